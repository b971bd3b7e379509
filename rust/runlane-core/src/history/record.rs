//! One stored message, read from its bytes once.
//!
//! Everything the records' own validation asks is asked here and in [`super::part`]: known fields only, each once and
//! of its type, known words, ids of 1 to 512 characters. What is kept are positions in the text.

use super::field::{id, is_timestamp, object, optional, slice};
use super::part::{Part, read_part, said};
use super::scan::{Cursor, Fault};
use super::text::Span;
use super::vocabulary::{Kinds, Role, Status};

/// The schema version this program writes and reads.
const SCHEMA_VERSION: &str = "1";

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
