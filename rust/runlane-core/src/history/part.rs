//! One part of a stored message, told by its `type`, which may stand last.

use super::field::{id, non_empty, object, optional, slice};
use super::scan::{Cursor, Fault};
use super::text::Span;
use super::vocabulary::PartKind;

/// A part of a message; what the spans hold depends on the kind, see [`shape`].
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

/// Bytes of what a part says to a model, as it is written: escapes only make it more.
pub(super) fn said(part: &Part) -> u32 {
    let [first, second, third, ..] = part.spans;
    let spans = match part.kind {
        PartKind::Text | PartKind::Reasoning | PartKind::Provider => {
            [first, Span::ABSENT, Span::ABSENT]
        }
        PartKind::ToolCall | PartKind::ToolResult => [first, second, third],
        PartKind::ApprovalRequest | PartKind::ApprovalResponse => [first, second, Span::ABSENT],
        PartKind::File | PartKind::Source | PartKind::Control => return 0,
    };
    spans
        .into_iter()
        .map(Span::bytes)
        .fold(0, u32::saturating_add)
}

fn text_or_empty(cursor: &mut Cursor<'_>) -> Result<Span, Fault> {
    cursor.string()
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

pub(super) fn read_part(text: &str, cursor: &mut Cursor<'_>) -> Result<Part, Fault> {
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
