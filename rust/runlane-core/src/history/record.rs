//! One stored message, read from its bytes once.
//!
//! Everything the records' own validation asks is asked here: known fields only, each once and of its type, known
//! words, ids of 1 to 512 characters. What is kept are positions in the text.

use super::scan::{Cursor, Fault};
use super::text::{Span, decoded};
use super::vocabulary::{Kinds, PartKind, Role, Status};

/// The longest id, in characters.
const MAX_ID: usize = 512;

/// The schema version this program writes and reads.
const SCHEMA_VERSION: &str = "1";

/// A part of a message; what the spans hold depends on the kind, see [`super::fields`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) kind: PartKind,
    pub(crate) word: Word,
    pub(crate) spans: [Span; 5],
}

/// What a part says with a word of a closed list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Word {
    /// No such word.
    #[default]
    None,
    /// true.
    Yes,
    /// false.
    No,
    /// A result's outcome.
    Success,
    /// A result's outcome.
    Error,
    /// A result's outcome.
    Interrupted,
}

/// A message, as positions in its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) id: Span,
    pub(crate) conversation: Span,
    pub(crate) run: Span,
    pub(crate) role: Role,
    pub(crate) status: Status,
    pub(crate) kinds: Kinds,
    /// Bytes of what the parts say, the bound of any byte-level tokenizer.
    pub(crate) said: u32,
}

/// Why bytes are not a message this program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not a stored message.
    Corrupt(Fault),
    /// A newer release wrote it.
    TooNew,
}

/// Reads a message; its parts are appended to `parts`, which is left as it was on a refusal.
pub(crate) fn read(text: &str, parts: &mut Vec<Part>) -> Result<Head, Refusal> {
    let before = parts.len();
    read_message(text, parts).map_err(|fault| {
        parts.truncate(before);
        if is_newer(text) {
            Refusal::TooNew
        } else {
            Refusal::Corrupt(fault)
        }
    })
}

/// Whether a JSON object says, in a field this program does read, that it is of a later schema version.
fn is_newer(text: &str) -> bool {
    let mut cursor = Cursor::new(text);
    let mut newer = false;
    let whole = (|| -> Result<(), Fault> {
        cursor.expect(b'{', "")?;
        if cursor.closes(b'}') {
            return Ok(());
        }
        loop {
            let name = cursor.string()?;
            cursor.expect(b':', "")?;
            let value = cursor.value()?;
            if slice(text, name) == "schema_version" {
                newer = slice(text, value)
                    .parse::<u64>()
                    .is_ok_and(|version| version > 1);
            }
            if !cursor.more(b'}')? {
                return cursor.end();
            }
        }
    })();
    whole.is_ok() && newer
}

fn slice(text: &str, span: Span) -> &str {
    text.get(span.range()).unwrap_or_default()
}

/// The fields of a message, by the bit that says it was seen.
#[derive(Clone, Copy)]
#[repr(u16)]
enum Field {
    SchemaVersion = 1,
    Id = 2,
    Conversation = 4,
    Run = 8,
    Role = 16,
    Status = 32,
    Parts = 64,
    Metadata = 128,
    CreatedAt = 256,
    UpdatedAt = 512,
}

const REQUIRED: u16 = Field::Id as u16
    | Field::Conversation as u16
    | Field::Role as u16
    | Field::Status as u16
    | Field::Parts as u16
    | Field::CreatedAt as u16
    | Field::UpdatedAt as u16;

impl Field {
    fn read(name: &str) -> Option<Self> {
        Some(match name {
            "id" => Self::Id,
            "role" => Self::Role,
            "parts" => Self::Parts,
            "run_id" => Self::Run,
            "status" => Self::Status,
            "metadata" => Self::Metadata,
            "created_at" => Self::CreatedAt,
            "updated_at" => Self::UpdatedAt,
            "schema_version" => Self::SchemaVersion,
            "conversation_id" => Self::Conversation,
            _ => return None,
        })
    }
}

fn read_message(text: &str, parts: &mut Vec<Part>) -> Result<Head, Fault> {
    let mut cursor = Cursor::new(text);
    let mut head = Head {
        id: Span::ABSENT,
        conversation: Span::ABSENT,
        run: Span::ABSENT,
        role: Role::User,
        status: Status::Committed,
        kinds: Kinds::default(),
        said: 0,
    };
    cursor.expect(b'{', "a message is a JSON object")?;
    let mut seen = 0_u16;
    loop {
        let name = cursor.string()?;
        cursor.expect(b':', "a colon is missing")?;
        let Some(field) = Field::read(slice(text, name)) else {
            return cursor.fault("a field is not one of a message");
        };
        if seen & field as u16 != 0 {
            return cursor.fault("a field stands twice");
        }
        seen |= field as u16;
        read_field(text, &mut cursor, field, &mut head, parts)?;
        if !cursor.more(b'}')? {
            break;
        }
    }
    if seen & REQUIRED != REQUIRED {
        return cursor.fault("a field of a message is missing");
    }
    cursor.end()?;
    Ok(head)
}

fn read_field(
    text: &str,
    cursor: &mut Cursor<'_>,
    field: Field,
    head: &mut Head,
    parts: &mut Vec<Part>,
) -> Result<(), Fault> {
    match field {
        Field::SchemaVersion => {
            let version = cursor.value()?;
            if slice(text, version) != SCHEMA_VERSION {
                return cursor.fault("the schema version is not one of a message");
            }
        }
        Field::Id => head.id = id(text, cursor)?,
        Field::Conversation => head.conversation = id(text, cursor)?,
        Field::Run => head.run = optional(cursor, |cursor| id(text, cursor))?,
        Field::Role => {
            let word = cursor.string()?;
            let Some(role) = Role::read(slice(text, word)) else {
                return cursor.fault("the role is not one of a message");
            };
            head.role = role;
        }
        Field::Status => {
            let word = cursor.string()?;
            let Some(status) = Status::read(slice(text, word)) else {
                return cursor.fault("the status is not one of a message");
            };
            head.status = status;
        }
        Field::Parts => read_parts(text, cursor, head, parts)?,
        Field::Metadata => {
            optional(cursor, object)?;
        }
        Field::CreatedAt | Field::UpdatedAt => {
            let moment = cursor.string()?;
            if !is_timestamp(slice(text, moment).as_bytes()) {
                return cursor.fault("a time is not an ISO-8601 instant with an offset");
            }
        }
    }
    Ok(())
}

fn read_parts(
    text: &str,
    cursor: &mut Cursor<'_>,
    head: &mut Head,
    parts: &mut Vec<Part>,
) -> Result<(), Fault> {
    cursor.expect(b'[', "the parts are an array")?;
    if cursor.closes(b']') {
        return Ok(());
    }
    loop {
        let part = read_part(text, cursor)?;
        head.kinds.insert(part.kind);
        head.said = head.said.saturating_add(said(&part));
        parts.push(part);
        if !cursor.more(b']')? {
            return Ok(());
        }
    }
}

/// Bytes of what a part says to a model, as it is written: escapes only make it more.
fn said(part: &Part) -> u32 {
    let [first, second, third, ..] = part.spans;
    let spans = match part.kind {
        PartKind::Text | PartKind::Reasoning => [first, Span::ABSENT, Span::ABSENT],
        PartKind::ToolCall | PartKind::ToolResult => [first, second, third],
        PartKind::ApprovalRequest | PartKind::ApprovalResponse => [first, second, Span::ABSENT],
        PartKind::File | PartKind::Source | PartKind::Provider | PartKind::Control => return 0,
    };
    spans
        .into_iter()
        .map(Span::bytes)
        .fold(0, u32::saturating_add)
}

fn id(text: &str, cursor: &mut Cursor<'_>) -> Result<Span, Fault> {
    let span = cursor.string()?;
    let too_long = span.len() > MAX_ID && decoded(slice(text, span)).chars().count() > MAX_ID;
    if span.is_empty() || too_long {
        return cursor.fault("an id has 1 to 512 characters");
    }
    Ok(span)
}

fn non_empty(cursor: &mut Cursor<'_>) -> Result<Span, Fault> {
    let span = cursor.string()?;
    if span.is_empty() {
        return cursor.fault("a text that must not be empty is");
    }
    Ok(span)
}

fn text_or_empty(cursor: &mut Cursor<'_>) -> Result<Span, Fault> {
    cursor.string()
}

fn object(cursor: &mut Cursor<'_>) -> Result<Span, Fault> {
    if cursor.peek() != Some(b'{') {
        return cursor.fault("a field must be an object");
    }
    cursor.value()
}

/// Reads a field that may be absent, which `null` also says.
fn optional(
    cursor: &mut Cursor<'_>,
    read: impl FnOnce(&mut Cursor<'_>) -> Result<Span, Fault>,
) -> Result<Span, Fault> {
    if cursor.peek() == Some(b'n') {
        cursor.value()?;
        return Ok(Span::ABSENT);
    }
    read(cursor)
}

fn boolean(text: &str, cursor: &mut Cursor<'_>) -> Result<Word, Fault> {
    let value = cursor.value()?;
    match slice(text, value) {
        "true" => Ok(Word::Yes),
        "false" => Ok(Word::No),
        _ => cursor.fault("a field must be true or false"),
    }
}

/// The fields that parts have, in no order; a part is told by its `type`, which may come last.
#[derive(Default)]
struct Fields {
    kind: Option<PartKind>,
    seen: u32,
    spans: [Span; PartField::COUNT],
    word: Word,
}

/// A field of a part; the number is its place in [`Fields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartField {
    Text,
    Provider,
    MediaType,
    Reference,
    Filename,
    SourceId,
    Url,
    Title,
    CallId,
    ToolName,
    Arguments,
    Input,
    Output,
    ApprovalId,
    Signature,
    Reason,
    Envelope,
    Outcome,
    IsAutomatic,
    Approved,
    Type,
}

impl PartField {
    const COUNT: usize = 17;

    const fn bit(self) -> u32 {
        1 << (self as u32)
    }

    fn read(name: &str) -> Option<Self> {
        Some(match name {
            "type" => Self::Type,
            "text" => Self::Text,
            "provider" => Self::Provider,
            "media_type" => Self::MediaType,
            "reference" => Self::Reference,
            "filename" => Self::Filename,
            "source_id" => Self::SourceId,
            "url" => Self::Url,
            "title" => Self::Title,
            "call_id" => Self::CallId,
            "tool_name" => Self::ToolName,
            "arguments" => Self::Arguments,
            "input" => Self::Input,
            "output" => Self::Output,
            "approval_id" => Self::ApprovalId,
            "signature" => Self::Signature,
            "reason" => Self::Reason,
            "envelope" => Self::Envelope,
            "outcome" => Self::Outcome,
            "is_automatic" => Self::IsAutomatic,
            "approved" => Self::Approved,
            _ => return None,
        })
    }
}

/// What a kind of part must have, may have, and where its fields go.
struct Shape {
    required: u32,
    optional: u32,
    kept: [Option<PartField>; 5],
}

const fn bits(fields: &[PartField]) -> u32 {
    let mut bits = 0;
    let mut rest = fields;
    while let [field, others @ ..] = rest {
        bits |= field.bit();
        rest = others;
    }
    bits
}

const fn shape(kind: PartKind) -> Shape {
    use PartField as F;
    const NONE: [Option<PartField>; 5] = [None; 5];
    match kind {
        PartKind::Text => Shape {
            required: bits(&[F::Text]),
            optional: 0,
            kept: [Some(F::Text), None, None, None, None],
        },
        PartKind::Reasoning => Shape {
            required: bits(&[F::Text]),
            optional: bits(&[F::Provider]),
            kept: [Some(F::Text), Some(F::Provider), None, None, None],
        },
        PartKind::File => Shape {
            required: bits(&[F::MediaType, F::Reference]),
            optional: bits(&[F::Filename]),
            kept: [
                Some(F::MediaType),
                Some(F::Reference),
                Some(F::Filename),
                None,
                None,
            ],
        },
        PartKind::Source => Shape {
            required: bits(&[F::SourceId]),
            optional: bits(&[F::Url, F::Title]),
            kept: [Some(F::SourceId), Some(F::Url), Some(F::Title), None, None],
        },
        PartKind::ToolCall => Shape {
            required: bits(&[F::CallId, F::ToolName, F::Arguments]),
            optional: bits(&[F::Input, F::Provider]),
            kept: [
                Some(F::CallId),
                Some(F::ToolName),
                Some(F::Arguments),
                Some(F::Input),
                Some(F::Provider),
            ],
        },
        PartKind::ToolResult => Shape {
            required: bits(&[F::CallId, F::ToolName, F::Outcome]),
            optional: bits(&[F::Output]),
            kept: [
                Some(F::CallId),
                Some(F::ToolName),
                Some(F::Output),
                None,
                None,
            ],
        },
        PartKind::ApprovalRequest => Shape {
            required: bits(&[F::CallId, F::ApprovalId]),
            optional: bits(&[F::IsAutomatic, F::Signature]),
            kept: [
                Some(F::CallId),
                Some(F::ApprovalId),
                Some(F::Signature),
                None,
                None,
            ],
        },
        PartKind::ApprovalResponse => Shape {
            required: bits(&[F::ApprovalId, F::Approved]),
            optional: bits(&[F::Reason]),
            kept: [Some(F::ApprovalId), Some(F::Reason), None, None, None],
        },
        PartKind::Provider => Shape {
            required: bits(&[F::Envelope]),
            optional: 0,
            kept: [Some(F::Envelope), None, None, None, None],
        },
        PartKind::Control => Shape {
            required: bits(&[F::Reason]),
            optional: 0,
            kept: NONE,
        },
    }
}

fn read_part(text: &str, cursor: &mut Cursor<'_>) -> Result<Part, Fault> {
    cursor.expect(b'{', "a part is a JSON object")?;
    let mut fields = Fields::default();
    if !cursor.closes(b'}') {
        loop {
            let name = cursor.string()?;
            cursor.expect(b':', "a colon is missing")?;
            let Some(field) = PartField::read(slice(text, name)) else {
                return cursor.fault("a field is not one of a part");
            };
            if fields.seen & field.bit() != 0 {
                return cursor.fault("a field stands twice");
            }
            fields.seen |= field.bit();
            read_part_field(text, cursor, field, &mut fields)?;
            if !cursor.more(b'}')? {
                break;
            }
        }
    }
    assemble(text, cursor, &fields)
}

fn read_part_field(
    text: &str,
    cursor: &mut Cursor<'_>,
    field: PartField,
    fields: &mut Fields,
) -> Result<(), Fault> {
    use PartField as F;
    let span = match field {
        F::Type => {
            let word = cursor.string()?;
            fields.kind = PartKind::read(slice(text, word));
            return Ok(());
        }
        F::Outcome => {
            let word = cursor.string()?;
            fields.word = match slice(text, word) {
                "success" => Word::Success,
                "error" => Word::Error,
                "interrupted" => Word::Interrupted,
                _ => return cursor.fault("the outcome is not one of a result"),
            };
            return Ok(());
        }
        F::IsAutomatic if cursor.peek() == Some(b'n') => cursor.value()?,
        F::IsAutomatic | F::Approved => {
            fields.word = boolean(text, cursor)?;
            return Ok(());
        }
        F::Text | F::Arguments => cursor.string()?,
        F::CallId | F::ApprovalId => id(text, cursor)?,
        F::MediaType | F::Reference | F::ToolName | F::SourceId => non_empty(cursor)?,
        F::Filename | F::Signature | F::Reason => optional(cursor, non_empty)?,
        F::Url | F::Title => optional(cursor, text_or_empty)?,
        F::Input | F::Output => cursor.value()?,
        F::Provider => optional(cursor, |cursor| envelope(text, cursor))?,
        F::Envelope => envelope(text, cursor)?,
    };
    if let Some(place) = fields.spans.get_mut(field as usize) {
        *place = span;
    }
    Ok(())
}

fn assemble(text: &str, cursor: &Cursor<'_>, fields: &Fields) -> Result<Part, Fault> {
    let Some(kind) = fields.kind else {
        return cursor.fault("the type is not one of a part");
    };
    let shape = shape(kind);
    let seen = fields.seen & !PartField::Type.bit();
    if seen & shape.required != shape.required {
        return cursor.fault("a field of the part is missing");
    }
    if seen & !(shape.required | shape.optional) != 0 {
        return cursor.fault("a field is not one of this part");
    }
    if kind == PartKind::Control {
        let reason = fields
            .spans
            .get(PartField::Reason as usize)
            .copied()
            .unwrap_or_default();
        if !matches!(slice(text, reason), "run-interrupted" | "stale-run") {
            return cursor.fault("the reason is not one of a control part");
        }
    }
    let spans = shape.kept.map(|field| {
        field
            .and_then(|field| fields.spans.get(field as usize).copied())
            .unwrap_or_default()
    });
    Ok(Part {
        kind,
        word: fields.word,
        spans,
    })
}

/// Reads a provider's envelope: a version of at least 1, a name, and the provider's own object.
fn envelope(text: &str, cursor: &mut Cursor<'_>) -> Result<Span, Fault> {
    let mut ahead = *cursor;
    let whole = object(cursor)?;
    ahead.expect(b'{', "a provider envelope is an object")?;
    let (mut named, mut holds) = (false, false);
    if !ahead.closes(b'}') {
        loop {
            let name = ahead.string()?;
            ahead.expect(b':', "a colon is missing")?;
            match slice(text, name) {
                "schema_version" => {
                    let version = ahead.value()?;
                    if !slice(text, version)
                        .parse::<u64>()
                        .is_ok_and(|version| version > 0)
                    {
                        return ahead.fault("an envelope's schema version is at least 1");
                    }
                }
                "provider" if !named => {
                    non_empty(&mut ahead)?;
                    named = true;
                }
                "data" if !holds => {
                    object(&mut ahead)?;
                    holds = true;
                }
                _ => return ahead.fault("a field is not one of a provider envelope"),
            }
            if !ahead.more(b'}')? {
                break;
            }
        }
    }
    if named && holds {
        return Ok(whole);
    }
    ahead.fault("a provider envelope names its provider and holds its data")
}

/// Whether a text is a date, a time and an offset: `2026-01-02T03:04:05.678Z`, seconds' fraction optional.
fn is_timestamp(text: &[u8]) -> bool {
    let Some((date_time, rest)) = text.split_at_checked(19) else {
        return false;
    };
    let shaped = date_time
        .iter()
        .zip(b"dddd-dd-ddTdd:dd:dd")
        .all(|(byte, form)| match form {
            b'd' => byte.is_ascii_digit(),
            b'T' => matches!(byte, b'T' | b't' | b' '),
            _ => byte == form,
        });
    shaped && in_range(date_time) && is_offset(without_fraction(rest))
}

fn in_range(date_time: &[u8]) -> bool {
    let number = |at: usize| {
        let digits = date_time.get(at..).and_then(|from| from.first_chunk::<2>());
        digits.map_or(u8::MAX, |[tens, ones]| {
            tens.saturating_sub(b'0')
                .saturating_mul(10)
                .saturating_add(ones.saturating_sub(b'0'))
        })
    };
    (1..=12).contains(&number(5))
        && (1..=31).contains(&number(8))
        && number(11) < 24
        && number(14) < 60
        && number(17) < 60
}

fn without_fraction(rest: &[u8]) -> &[u8] {
    let Some((b'.', fraction)) = rest.split_first() else {
        return rest;
    };
    let digits = fraction
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if digits == 0 {
        rest
    } else {
        fraction.get(digits..).unwrap_or_default()
    }
}

fn is_offset(rest: &[u8]) -> bool {
    match rest {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] | [b'+' | b'-', h1, h2, m1, m2] => {
            [h1, h2, m1, m2].into_iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}
