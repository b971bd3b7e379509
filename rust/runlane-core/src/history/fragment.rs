//! The messages of a plan in the form of chat completions, copied from the stored text escapes and all.

use super::chronology::At;
use super::log::Log;
use super::part::Word;
use super::plan::{Item, ItemKind, Plan, PlannedMessage};
use super::refs::PartRef;
use super::scan::Cursor;
use super::settle::settled;
use super::text::{decoded, escaped_len, push_escaped, to_usize};
use super::vocabulary::{FAILED_MARK, INTERRUPTED_MARK, PartKind, Side};

/// The name on envelopes of this wire protocol.
const PROTOCOL: &str = "openai-chat";

/// What stands for the result of a call that waits for consent.
const WAITS: &str = "not run yet: the call waits for approval";
/// What stands for any other result that is not there.
const MISSING: &str = "no result is known";

/// How messages are written.
#[derive(Debug)]
pub struct OpenAiChat<'f, F> {
    /// Whether reasoning of this protocol's providers is given back beside the calls it led to.
    pub send_reasoning: bool,
    /// The content piece, as JSON, for a user's file with resolved data.
    pub piece: &'f F,
}

/// Where a body goes, piece by piece: most pieces are the stored text itself.
pub trait Sink<'l> {
    /// Takes bytes as they are.
    fn bytes(&mut self, bytes: &'l [u8]);
    /// Takes JSON that becomes the inside of a JSON string.
    fn escaped(&mut self, json: &'l str);
}

/// Counts the bytes of a body.
#[derive(Debug, Default)]
pub struct Length(pub usize);

impl<'l> Sink<'l> for Length {
    fn bytes(&mut self, bytes: &'l [u8]) {
        self.0 = self.0.saturating_add(bytes.len());
    }

    fn escaped(&mut self, json: &'l str) {
        self.0 = self.0.saturating_add(escaped_len(json));
    }
}

impl<'l> Sink<'l> for Vec<u8> {
    fn bytes(&mut self, bytes: &'l [u8]) {
        self.extend_from_slice(bytes);
    }

    fn escaped(&mut self, json: &'l str) {
        push_escaped(self, json);
    }
}

/// Writes the messages, each a JSON object, with commas between them and each round of calls settled; `started` says that one stands there already.
///
/// # Errors
/// The place of a file whose content piece is not given.
pub fn write_openai_chat<'l, F, S>(
    log: &'l Log,
    plan: &Plan,
    form: &OpenAiChat<'l, F>,
    started: bool,
    body: &mut S,
) -> Result<(), (u32, u32)>
where
    F: Fn(u32, u32) -> Option<&'l [u8]>,
    S: Sink<'l>,
{
    let plan = settled(log, plan);
    write_from(log, &plan, 0, form, started, body, |_| {})
}

/// The same from one message on; `ended` is told of the body after each message.
fn write_from<'l, F, S>(
    log: &'l Log,
    plan: &Plan,
    from: usize,
    form: &OpenAiChat<'l, F>,
    started: bool,
    body: &mut S,
    mut ended: impl FnMut(&mut S),
) -> Result<(), (u32, u32)>
where
    F: Fn(u32, u32) -> Option<&'l [u8]>,
    S: Sink<'l>,
{
    let mut writer = Writer {
        log,
        body,
        needs_comma: started,
    };
    for (place, message) in plan.messages.iter().enumerate().skip(from) {
        let items = plan.items_of(place);
        match message.side {
            Side::User => writer.user(items, form.piece)?,
            Side::Assistant if !writer.has_form(items) => {}
            Side::Assistant if message.traffic => writer.calls(items, form.send_reasoning),
            Side::Assistant => {
                writer.open(b",{\"role\":\"assistant\",\"content\":\"");
                writer.texts(items);
                writer.push(b"\"}");
            }
            Side::Tool => writer.results(items),
        }
        ended(writer.body);
    }
    Ok(())
}

/// The messages of a conversation in the form of chat completions, kept from one request to the next.
///
/// A message is written again only if it is another one now, or a record that it is made of changed since.
#[derive(Debug, Default)]
pub struct Fragments {
    /// Each message with a comma in front.
    text: Vec<u8>,
    kept: Vec<Kept>,
    items: Vec<Item>,
    revision: u64,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    message: PlannedMessage,
    /// Where its text ends.
    end: usize,
}

impl Fragments {
    /// Brings the fragments up to the plan and gives them, each with a comma in front. The plan is one of this log,
    /// always the same.
    ///
    /// # Errors
    /// The place of a file whose content piece is not given.
    pub fn update<'f, F>(
        &mut self,
        log: &'f Log,
        plan: &Plan,
        form: &OpenAiChat<'f, F>,
    ) -> Result<&[u8], (u32, u32)>
    where
        F: Fn(u32, u32) -> Option<&'f [u8]>,
    {
        let plan = &*settled(log, plan);
        let from = self.unchanged(log, plan);
        let end = from.checked_sub(1).and_then(|last| self.kept.get(last));
        self.text.truncate(end.map_or(0, |kept| kept.end));
        self.kept.truncate(from);
        let first = plan
            .messages
            .get(from)
            .map_or(plan.items.len(), |message| to_usize(message.first));
        self.items.truncate(first);
        self.items
            .extend_from_slice(plan.items.get(first..).unwrap_or_default());
        let mut messages = plan.messages.iter().skip(from);
        let kept = &mut self.kept;
        let written = write_from(
            log,
            plan,
            from,
            form,
            true,
            &mut self.text,
            |text: &mut Vec<u8>| {
                if let Some(message) = messages.next() {
                    kept.push(Kept {
                        message: *message,
                        end: text.len(),
                    });
                }
            },
        );
        if let Err(missing) = written {
            *self = Self::default();
            return Err(missing);
        }
        self.revision = log.revision();
        Ok(&self.text)
    }

    /// How many messages from the first on are what they were.
    fn unchanged(&self, log: &Log, plan: &Plan) -> usize {
        let same = |(kept, message): &(&Kept, &PlannedMessage)| kept.message == **message;
        let messages = self
            .kept
            .iter()
            .zip(&plan.messages)
            .take_while(same)
            .count();
        let stays = |(kept, item): &(&Item, &Item)| {
            kept == item
                && item.kind != ItemKind::File
                && log
                    .get(to_usize(item.record))
                    .is_some_and(|record| record.since() <= self.revision)
        };
        let items = self.items.iter().zip(&plan.items).take_while(stays).count();
        let ends_within = |message: usize| {
            let next = plan.messages.get(message.saturating_add(1));
            let end = next.map_or(plan.items.len(), |next| to_usize(next.first));
            let was = self.kept.get(message.saturating_add(1));
            let end_was = was.map_or(self.items.len(), |next| to_usize(next.message.first));
            end <= items && end == end_was
        };
        let mut from = messages;
        while from > 0 && !ends_within(from.saturating_sub(1)) {
            from = from.saturating_sub(1);
        }
        from
    }
}

struct Writer<'w, 'l, S> {
    log: &'l Log,
    body: &'w mut S,
    needs_comma: bool,
}

impl<'l, S: Sink<'l>> Writer<'_, 'l, S> {
    fn push(&mut self, bytes: &'l [u8]) {
        self.body.bytes(bytes);
    }

    fn raw(&mut self, text: &'l str) {
        self.push(text.as_bytes());
    }

    /// Starts a message; the comma in front is left out where nothing stands before it.
    fn open(&mut self, start: &'static [u8]) {
        let from = usize::from(!self.needs_comma);
        self.needs_comma = true;
        self.push(start.get(from..).unwrap_or_default());
    }

    /// Whether a text item says something.
    fn says_something(&self, item: Item) -> bool {
        match item.kind {
            ItemKind::Part => {
                let text = self.part(item).filter(|part| part.kind() == PartKind::Text);
                text.is_some_and(|part| !part.says_nothing())
            }
            ItemKind::JoinedText
            | ItemKind::Attachment
            | ItemKind::InterruptedMark
            | ItemKind::FailedMark => true,
            ItemKind::File | ItemKind::Closed(_) | ItemKind::Open { .. } => false,
        }
    }

    /// Whether an answer says something in this form: endpoints refuse one without text and calls.
    fn has_form(&self, items: &[Item]) -> bool {
        items
            .iter()
            .any(|item| self.says_something(*item) || self.is_call(*item))
    }

    fn is_call(&self, item: Item) -> bool {
        self.part(item)
            .is_some_and(|part| part.kind() == PartKind::ToolCall)
    }

    /// The part that an item is made from; a mark and a joined text are made from none.
    fn part(&self, item: Item) -> Option<PartRef<'l>> {
        match item.kind {
            ItemKind::Part
            | ItemKind::File
            | ItemKind::Attachment
            | ItemKind::Closed(_)
            | ItemKind::Open { .. } => {}
            ItemKind::JoinedText | ItemKind::InterruptedMark | ItemKind::FailedMark => return None,
        }
        let at = At {
            record: item.record,
            part: item.part,
        };
        at.find(self.log)
    }

    /// Writes what the text items say, one after the other.
    fn texts(&mut self, items: &[Item]) {
        for item in items {
            self.text(*item);
        }
    }

    fn text(&mut self, item: Item) {
        match item.kind {
            ItemKind::Part => {
                if let Some(part) = self.part(item).filter(|part| part.kind() == PartKind::Text) {
                    self.raw(part.said());
                }
            }
            ItemKind::JoinedText => self.joined(item.record),
            ItemKind::Attachment => {
                if let Some(file) = self.part(item) {
                    self.push(b"[attachment: ");
                    self.raw(file.filename().unwrap_or_else(|| file.media_type()));
                    self.push(b"]");
                }
            }
            ItemKind::InterruptedMark => self.raw(INTERRUPTED_MARK),
            ItemKind::FailedMark => self.raw(FAILED_MARK),
            ItemKind::File | ItemKind::Closed(_) | ItemKind::Open { .. } => {}
        }
    }

    fn joined(&mut self, record: u32) {
        let Some(record) = self.log.get(to_usize(record)) else {
            return;
        };
        let texts = record.parts().filter(|part| part.kind() == PartKind::Text);
        for (place, part) in texts.enumerate() {
            if place > 0 {
                self.push(b"\\n");
            }
            self.raw(part.said());
        }
    }

    fn user<F>(&mut self, items: &[Item], piece: &F) -> Result<(), (u32, u32)>
    where
        F: Fn(u32, u32) -> Option<&'l [u8]>,
    {
        if items.iter().all(|item| item.kind != ItemKind::File) {
            self.open(b",{\"role\":\"user\",\"content\":\"");
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    self.push(b"\\n");
                }
                self.text(*item);
            }
            self.push(b"\"}");
            return Ok(());
        }
        self.open(b",{\"role\":\"user\",\"content\":");
        let mut opener: &'static [u8] = b"[";
        for item in items {
            self.push(opener);
            opener = b",";
            if item.kind == ItemKind::File {
                let encoded = piece(item.record, item.part).ok_or((item.record, item.part))?;
                self.push(encoded);
            } else {
                self.push(b"{\"type\":\"text\",\"text\":\"");
                self.text(*item);
                self.push(b"\"}");
            }
        }
        self.push(b"]}");
        Ok(())
    }

    fn calls(&mut self, items: &[Item], send_reasoning: bool) {
        self.open(b",{\"role\":\"assistant\",\"content\":");
        if items.iter().any(|item| self.says_something(*item)) {
            self.push(b"\"");
            self.texts(items);
            self.push(b"\"");
        } else {
            self.push(b"null");
        }
        if send_reasoning {
            self.reasoning(items);
        }
        let mut opener: &'static [u8] = b",\"tool_calls\":[";
        for item in items {
            if let Some(call) = self
                .part(*item)
                .filter(|part| part.kind() == PartKind::ToolCall)
            {
                self.push(opener);
                opener = b",";
                self.call(call);
            }
        }
        self.push(if opener == b"," { b"]}" } else { b"}" });
    }

    fn call(&mut self, call: PartRef<'l>) {
        self.push(b"{\"id\":\"");
        self.raw(call.call_id());
        self.push(b"\",\"type\":\"function\",\"function\":{\"name\":\"");
        self.raw(call.tool_name());
        self.push(b"\",\"arguments\":\"");
        let arguments = call.arguments();
        let blank = !arguments.starts_with('{') && decoded(arguments).trim().is_empty();
        self.raw(if blank { "{}" } else { arguments });
        self.push(b"\"}");
        for (name, value) in own_data(call).map(members).unwrap_or_default() {
            if !matches!(name, "id" | "type" | "function") {
                self.push(b",\"");
                self.raw(name);
                self.push(b"\":");
                self.raw(value);
            }
        }
        self.push(b"}");
    }

    /// Gives a provider its own reasoning back, in the field it used.
    fn reasoning(&mut self, items: &[Item]) {
        let mut fields: Vec<(&'l str, Vec<&'l str>)> = Vec::new();
        let mut details: Vec<&'l str> = Vec::new();
        for item in items {
            let Some(block) = self
                .part(*item)
                .filter(|part| part.kind() == PartKind::Reasoning)
            else {
                continue;
            };
            for (name, value) in own_data(block).map(members).unwrap_or_default() {
                match name {
                    "field" => {
                        if let Some(field) = quoted(value).filter(|field| !is_taken(field)) {
                            match fields.iter_mut().find(|(known, _)| *known == field) {
                                Some((_, texts)) => texts.push(block.said()),
                                None => fields.push((field, vec![block.said()])),
                            }
                        }
                    }
                    "reasoning_details" => {
                        let inner = value
                            .strip_prefix('[')
                            .and_then(|inner| inner.strip_suffix(']'));
                        details.extend(inner.map(str::trim).filter(|inner| !inner.is_empty()));
                    }
                    _ => {}
                }
            }
        }
        for (field, texts) in fields {
            self.push(b",\"");
            self.raw(field);
            self.push(b"\":\"");
            for text in texts {
                self.raw(text);
            }
            self.push(b"\"");
        }
        let mut opener: &'static [u8] = b",\"reasoning_details\":[";
        for detail in details {
            self.push(opener);
            opener = b",";
            self.raw(detail);
        }
        if opener == b"," {
            self.push(b"]");
        }
    }

    fn results(&mut self, items: &[Item]) {
        for item in items {
            let Some(part) = self.part(*item) else {
                continue;
            };
            if part.kind() == PartKind::ApprovalResponse {
                continue;
            }
            self.open(b",{\"role\":\"tool\",\"tool_call_id\":\"");
            self.raw(part.call_id());
            self.push(b"\",\"content\":\"");
            let said = match item.kind {
                ItemKind::Closed(evidence) => Some(evidence.message()),
                ItemKind::Open { asked: true } => Some(WAITS),
                ItemKind::Open { asked: false } => Some(MISSING),
                ItemKind::Part
                | ItemKind::JoinedText
                | ItemKind::File
                | ItemKind::Attachment
                | ItemKind::InterruptedMark
                | ItemKind::FailedMark => None,
            };
            if let Some(said) = said {
                self.push(b"{\\\"message\\\":\\\"");
                self.raw(said);
                self.push(b"\\\"}");
            } else {
                self.output(part);
            }
            self.push(b"\"}");
        }
    }

    fn output(&mut self, result: PartRef<'l>) {
        match (result.output(), result.word()) {
            (Some(json), _) => match quoted(json) {
                Some(said) => self.raw(said),
                None => self.body.escaped(json),
            },
            (None, Word::Error) => self.push(b"error"),
            (None, Word::Interrupted) => self.push(b"interrupted"),
            (None, Word::None | Word::Yes | Word::No | Word::Success) => {}
        }
    }
}

fn is_taken(field: &str) -> bool {
    matches!(field, "role" | "content" | "tool_calls")
}

/// What stands between the quotes of a JSON string.
fn quoted(json: &str) -> Option<&str> {
    json.strip_prefix('"')?.strip_suffix('"')
}

/// The data of an envelope of this protocol.
fn own_data(part: PartRef<'_>) -> Option<&str> {
    let (provider, data) = envelope_of(part)?;
    (provider == PROTOCOL).then_some(data)
}

/// The provider's name, escapes and all, and its data, of a part's envelope.
pub(super) fn envelope_of(part: PartRef<'_>) -> Option<(&str, &str)> {
    let fields = members(part.provider()?);
    let of = |wanted: &str| {
        fields
            .iter()
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| *value)
    };
    Some((quoted(of("provider")?)?, of("data")?))
}

/// Names and values of a JSON object that is known to be well formed.
fn members(object: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut cursor = Cursor::new(object);
    if cursor.expect(b'{', "").is_err() || cursor.closes(b'}') {
        return found;
    }
    loop {
        let (Ok(name), Ok(()), Ok(value)) =
            (cursor.string(), cursor.expect(b':', ""), cursor.value())
        else {
            return found;
        };
        let slice = |range| object.get(range).unwrap_or_default();
        found.push((slice(name.range()), slice(value.range())));
        if !cursor.more(b'}').unwrap_or(false) {
            return found;
        }
    }
}
