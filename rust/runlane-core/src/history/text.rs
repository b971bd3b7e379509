//! Pieces of a record's text, and strings as they stand in JSON.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr;

/// A piece of a record's text, from its start; the empty one at 0 stands for an absent field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// No field.
    pub const ABSENT: Self = Self { start: 0, end: 0 };

    pub(crate) fn new(start: usize, end: usize) -> Option<Self> {
        Some(Self {
            start: u32::try_from(start).ok()?,
            end: u32::try_from(end).ok()?,
        })
    }

    /// Whether the field is there; a record starts with a brace, so no field starts at 0.
    pub fn is_present(self) -> bool {
        self.end != 0
    }

    /// The piece of this text.
    pub fn of(self, text: &str) -> &str {
        text.get(self.range()).unwrap_or_default()
    }

    /// How many bytes.
    pub fn len(self) -> usize {
        self.range().len()
    }

    pub(crate) fn bytes(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Whether no byte stands there.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    pub(crate) fn range(self) -> Range<usize> {
        to_usize(self.start)..to_usize(self.end)
    }
}

/// A 32-bit index as one of the machine; saturates where that is smaller.
pub(crate) fn to_usize(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// What a JSON string says, given what stands between its quotes and is known to be well formed.
pub fn decoded(raw: &str) -> Cow<'_, str> {
    if memchr(b'\\', raw.as_bytes()).is_none() {
        return Cow::Borrowed(raw);
    }
    let mut said = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        said.push_str(plain);
        let mut after = escape.chars();
        let character = match after.next() {
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => code_point(&mut after),
            Some(other) => other,
            None => char::REPLACEMENT_CHARACTER,
        };
        said.push(character);
        rest = after.as_str();
    }
    said.push_str(rest);
    Cow::Owned(said)
}

/// Reads the digits after `\u`, and the second half of a pair.
fn code_point(after: &mut std::str::Chars<'_>) -> char {
    let high = code_unit(after);
    if !(0xD800..0xDC00).contains(&high) {
        return char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER);
    }
    let mut ahead = after.clone();
    let low = match (ahead.next(), ahead.next()) {
        (Some('\\'), Some('u')) => code_unit(&mut ahead),
        _ => 0,
    };
    if !(0xDC00..0xE000).contains(&low) {
        return char::REPLACEMENT_CHARACTER;
    }
    *after = ahead;
    let point = 0x1_0000_u32
        .saturating_add(high.saturating_sub(0xD800) << 10)
        .saturating_add(low.saturating_sub(0xDC00));
    char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn code_unit(after: &mut std::str::Chars<'_>) -> u32 {
    after
        .by_ref()
        .take(4)
        .fold(0, |sum, digit| sum << 4 | digit.to_digit(16).unwrap_or(0))
}

/// Whether two strings, as they stand between quotes, say the same.
pub(crate) fn same(left: &str, right: &str) -> bool {
    left == right
        || (memchr(b'\\', left.as_bytes()).is_some() || memchr(b'\\', right.as_bytes()).is_some())
            && decoded(left) == decoded(right)
}

/// How many bytes [`push_escaped`] writes.
pub(crate) fn escaped_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let count = |wanted: fn(u8) -> bool| bytes.iter().filter(|byte| wanted(**byte)).count();
    let longer = count(|byte| byte == b'"' || byte == b'\\');
    let controls = count(|byte| byte < b' ');
    let short = if controls == 0 {
        0
    } else {
        count(|byte| matches!(byte, b'\n' | b'\r' | b'\t' | 0x8 | 0xC))
    };
    let long = controls.saturating_sub(short).saturating_mul(5);
    [longer, short, long]
        .into_iter()
        .fold(bytes.len(), usize::saturating_add)
}

/// Appends `text` as the inside of a JSON string.
pub fn push_escaped(body: &mut Vec<u8>, text: &str) {
    let mut start = 0;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(byte, b'"' | b'\\' | 0..=0x1F) {
            body.extend_from_slice(bytes.get(start..at).unwrap_or_default());
            push_escape(body, *byte);
            start = at.saturating_add(1);
        }
    }
    body.extend_from_slice(bytes.get(start..).unwrap_or_default());
}

fn push_escape(body: &mut Vec<u8>, byte: u8) {
    let short: &[u8] = match byte {
        b'"' => b"\\\"",
        b'\\' => b"\\\\",
        b'\n' => b"\\n",
        b'\r' => b"\\r",
        b'\t' => b"\\t",
        0x8 => b"\\b",
        0xC => b"\\f",
        _ => {
            let digit = |value: u8| {
                char::from_digit(u32::from(value), 16).map_or(b'0', |digit| digit as u8)
            };
            body.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            return;
        }
    };
    body.extend_from_slice(short);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_as_json_reads_them() {
        for raw in [
            "",
            "plain",
            "é\\u00e9",
            "a\\\"b\\\\c\\/d\\b\\f\\n\\r\\t",
            "\\ud83d\\ude00!",
            "\\u0000",
        ] {
            let expected: String = serde_json::from_str(&format!("\"{raw}\"")).unwrap();
            assert_eq!(decoded(raw), expected);
        }
    }

    #[test]
    fn strings_are_compared_by_what_they_say() {
        assert!(same("a", "\\u0061"));
        assert!(same("a\\n", "a\\u000a"));
        assert!(!same("a", "b"));
        assert!(!same("\\u0061", "b"));
    }

    #[test]
    fn text_is_written_as_json_writes_it() {
        let text = "a\"b\\c\n\r\t\u{8}\u{c}\u{1}\u{1f}é😀";
        let mut body = Vec::new();
        push_escaped(&mut body, text);
        assert_eq!(body.len(), escaped_len(text));
        let quoted = format!("\"{}\"", String::from_utf8(body).unwrap());
        assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
    }
}
