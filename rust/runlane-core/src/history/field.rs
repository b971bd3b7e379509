//! What one field of a record may hold.

use super::scan::{Cursor, Fault};
use super::text::{Span, decoded};

/// The longest id, in characters.
const MAX_ID: usize = 512;

/// The text of a span.
pub(super) fn slice(text: &str, span: Span) -> &str {
    text.get(span.range()).unwrap_or_default()
}

pub(super) fn id(text: &str, cursor: &mut Cursor<'_>) -> Result<Span, Fault> {
    let span = cursor.string()?;
    let too_long = span.len() > MAX_ID && decoded(slice(text, span)).chars().count() > MAX_ID;
    if span.is_empty() || too_long {
        return cursor.fault("an id has 1 to 512 characters");
    }
    Ok(span)
}

pub(super) fn non_empty(cursor: &mut Cursor<'_>) -> Result<Span, Fault> {
    let span = cursor.string()?;
    if span.is_empty() {
        return cursor.fault("a text that must not be empty is");
    }
    Ok(span)
}

pub(super) fn object(cursor: &mut Cursor<'_>) -> Result<Span, Fault> {
    if cursor.peek() != Some(b'{') {
        return cursor.fault("a field must be an object");
    }
    cursor.value()
}

/// Reads a field that may be absent, which `null` also says.
pub(super) fn optional(
    cursor: &mut Cursor<'_>,
    read: impl FnOnce(&mut Cursor<'_>) -> Result<Span, Fault>,
) -> Result<Span, Fault> {
    if cursor.peek() == Some(b'n') {
        cursor.value()?;
        return Ok(Span::ABSENT);
    }
    read(cursor)
}

/// Whether a text is a date, a time and an offset: `2026-01-02T03:04:05.678Z`, seconds' fraction optional.
pub(super) fn is_timestamp(text: &[u8]) -> bool {
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
