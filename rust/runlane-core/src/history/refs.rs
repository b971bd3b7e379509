//! A record and its parts, as they stand in the log.

use std::borrow::Cow;

use super::log::Entry;
use super::part::{Part, Word};
use super::text::{Span, decoded, to_usize};
use super::vocabulary::{Kinds, PartKind, Role, Status};

/// A piece of a record, given where the record starts in the log's text.
pub(super) fn within(text: &str, record_start: usize, span: Span) -> &str {
    let range = span.range();
    let start = record_start.saturating_add(range.start);
    let end = record_start.saturating_add(range.end);
    text.get(start..end).unwrap_or_default()
}

/// A record, as it stands in the log.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'l> {
    buffer: &'l str,
    parts: &'l [Part],
    entry: &'l Entry,
}

impl<'l> RecordRef<'l> {
    pub(super) fn new(buffer: &'l str, parts: &'l [Part], entry: &'l Entry) -> Self {
        Self {
            buffer,
            parts,
            entry,
        }
    }

    /// The stored text.
    pub fn text(self) -> &'l str {
        let end = self
            .entry
            .text_start
            .saturating_add(to_usize(self.entry.text_len));
        self.buffer
            .get(self.entry.text_start..end)
            .unwrap_or_default()
    }

    /// The message id, as it stands between quotes.
    pub fn id(self) -> &'l str {
        self.slice(self.entry.head.id)
    }

    /// The conversation's id, as it stands between quotes.
    pub fn conversation(self) -> &'l str {
        self.slice(self.entry.head.conversation)
    }

    /// The run's id, as it stands between quotes; None if no run owns the record.
    pub fn run(self) -> Option<&'l str> {
        self.entry
            .head
            .run
            .is_present()
            .then(|| self.slice(self.entry.head.run))
    }

    /// Who speaks.
    pub fn role(self) -> Role {
        self.entry.head.role
    }

    /// How far it got.
    pub fn status(self) -> Status {
        self.entry.head.status
    }

    /// Which kinds of parts it has.
    pub fn kinds(self) -> Kinds {
        self.entry.head.kinds
    }

    /// Bytes of what its parts say.
    pub fn said(self) -> u32 {
        self.entry.head.said
    }

    /// How many parts.
    pub fn part_count(self) -> usize {
        self.parts.len()
    }

    /// One part.
    pub fn part(self, place: usize) -> Option<PartRef<'l>> {
        self.parts.get(place).map(|part| PartRef {
            buffer: self.buffer,
            start: self.entry.text_start,
            part,
        })
    }

    /// The parts, in order.
    pub fn parts(self) -> impl DoubleEndedIterator<Item = PartRef<'l>> + ExactSizeIterator {
        self.parts.iter().map(move |part| PartRef {
            buffer: self.buffer,
            start: self.entry.text_start,
            part,
        })
    }

    /// The revision of the log at which the record came to stand where it does.
    pub(crate) fn since(self) -> u64 {
        self.entry.since
    }

    /// The same number for all records of one conversation.
    pub(crate) fn conversation_number(self) -> u32 {
        self.entry.conversation
    }

    fn slice(self, span: Span) -> &'l str {
        within(self.buffer, self.entry.text_start, span)
    }
}

/// A part, as it stands in its record. Strings are given as they stand between quotes.
#[derive(Clone, Copy, Debug)]
pub struct PartRef<'l> {
    buffer: &'l str,
    start: usize,
    part: &'l Part,
}

impl<'l> PartRef<'l> {
    /// What it is.
    pub fn kind(self) -> PartKind {
        self.part.kind
    }

    /// Its word of a closed list: an outcome, a consent, whether a request is automatic.
    pub fn word(self) -> Word {
        self.part.word
    }

    fn span(self, field: usize) -> Option<Span> {
        self.part
            .spans
            .get(field)
            .copied()
            .filter(|span| span.is_present())
    }

    fn field(self, field: usize) -> Option<&'l str> {
        self.span(field)
            .map(|span| within(self.buffer, self.start, span))
    }

    fn required(self, field: usize) -> &'l str {
        self.field(field).unwrap_or_default()
    }

    /// Whether a text part says nothing.
    pub(crate) fn says_nothing(self) -> bool {
        self.span(0).is_none_or(Span::is_empty)
    }

    /// The text of a text or reasoning part.
    pub fn said(self) -> &'l str {
        self.required(0)
    }

    /// The strings it says to a model; JSON as it is written.
    pub fn said_fields(self) -> Vec<Cow<'l, str>> {
        let strings: &[usize] = match self.part.kind {
            PartKind::Text | PartKind::Reasoning => &[0],
            PartKind::ToolCall => &[0, 1, 2],
            PartKind::ToolResult | PartKind::ApprovalRequest | PartKind::ApprovalResponse => {
                &[0, 1]
            }
            PartKind::File | PartKind::Source | PartKind::Provider | PartKind::Control => &[],
        };
        let json = match self.part.kind {
            PartKind::ToolResult => self.output(),
            PartKind::Provider => self.provider(),
            PartKind::Text
            | PartKind::Reasoning
            | PartKind::File
            | PartKind::Source
            | PartKind::ToolCall
            | PartKind::ApprovalRequest
            | PartKind::ApprovalResponse
            | PartKind::Control => None,
        };
        let strings = strings
            .iter()
            .filter_map(|field| self.field(*field))
            .map(decoded);
        strings.chain(json.map(Cow::Borrowed)).collect()
    }

    /// The provider's envelope (an object) of a reasoning part or a call.
    pub fn provider(self) -> Option<&'l str> {
        match self.part.kind {
            PartKind::Reasoning => self.field(1),
            PartKind::ToolCall => self.field(4),
            PartKind::Provider => self.field(0),
            PartKind::Text
            | PartKind::File
            | PartKind::Source
            | PartKind::ToolResult
            | PartKind::ApprovalRequest
            | PartKind::ApprovalResponse
            | PartKind::Control => None,
        }
    }

    /// The call's id, of a call, a result or an approval request.
    pub fn call_id(self) -> &'l str {
        self.required(0)
    }

    /// The tool's name, of a call or a result.
    pub fn tool_name(self) -> &'l str {
        self.required(1)
    }

    /// The arguments of a call, as the model wrote them.
    pub fn arguments(self) -> &'l str {
        self.required(2)
    }

    /// The parsed arguments of a call, as JSON.
    pub fn input(self) -> Option<&'l str> {
        self.field(3)
    }

    /// The output of a result, as JSON.
    pub fn output(self) -> Option<&'l str> {
        self.field(2)
    }

    /// The approval's id, of a request or a response.
    pub fn approval_id(self) -> &'l str {
        self.required(usize::from(self.part.kind == PartKind::ApprovalRequest))
    }

    /// The signature of an approval request.
    pub fn signature(self) -> Option<&'l str> {
        self.field(2)
    }

    /// The reason of an approval response.
    pub fn reason(self) -> Option<&'l str> {
        self.field(1)
    }

    /// The media type of a file.
    pub fn media_type(self) -> &'l str {
        self.required(0)
    }

    /// Where the application keeps a file; never sent to a model.
    pub fn reference(self) -> &'l str {
        self.required(1)
    }

    /// A file's name for people.
    pub fn filename(self) -> Option<&'l str> {
        self.field(2)
    }
}
