//! One line of an event stream, told apart by its field name.

/// The largest retry time reported, in milliseconds: the largest integer a double holds exactly. A longer one means
/// "wait very long" and is cut to it.
pub const MAX_RETRY_MS: u64 = (1 << 53) - 1;

/// What a line means; values have lost the one space that may follow the colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'l> {
    /// An empty line: the block ends.
    Blank,
    /// A line that starts with a colon.
    Comment,
    /// One line of data.
    Data(&'l [u8]),
    /// The event's name.
    Name(&'l [u8]),
    /// The event's id; never holds a NUL, such an id is ignored.
    Id(&'l [u8]),
    /// A reconnection time in milliseconds.
    Retry(u64),
    /// A field nobody knows, or one with a value that does not count.
    Ignored,
}

impl<'l> Field<'l> {
    /// Reads one line, given without its terminator.
    #[inline]
    pub(super) fn read(line: &'l [u8]) -> Self {
        match line {
            [] => Self::Blank,
            [b':', ..] => Self::Comment,
            [b'd', b'a', b't', b'a', rest @ ..] => value(rest).map_or(Self::Ignored, Self::Data),
            [b'e', b'v', b'e', b'n', b't', rest @ ..] => {
                value(rest).map_or(Self::Ignored, Self::Name)
            }
            [b'i', b'd', rest @ ..] => value(rest).map_or(Self::Ignored, Self::id),
            [b'r', b'e', b't', b'r', b'y', rest @ ..] => value(rest)
                .and_then(milliseconds)
                .map_or(Self::Ignored, Self::Retry),
            _ => Self::Ignored,
        }
    }

    fn id(id: &'l [u8]) -> Self {
        if memchr::memchr(0, id).is_none() {
            Self::Id(id)
        } else {
            Self::Ignored
        }
    }
}

/// What follows the colon and one space, or nothing without a colon; None if the name of the field goes on.
#[inline]
fn value(after_name: &[u8]) -> Option<&[u8]> {
    match after_name {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        [_, ..] => None,
    }
}

/// A whole number of ASCII digits, at least one, cut to [`MAX_RETRY_MS`].
fn milliseconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = value.iter().fold(0_u64, |sum, digit| {
        let digit = u64::from(digit.saturating_sub(b'0'));
        sum.saturating_mul(10).saturating_add(digit)
    });
    Some(number.min(MAX_RETRY_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_space_goes() {
        assert_eq!(Field::read(b"data:  x"), Field::Data(b" x"));
        assert_eq!(Field::read(b"data:\tx"), Field::Data(b"\tx"));
        assert_eq!(Field::read(b"data:x"), Field::Data(b"x"));
        assert_eq!(Field::read(b"data: "), Field::Data(b""));
        assert_eq!(Field::read(b"data"), Field::Data(b""));
    }

    #[test]
    fn names_are_exact() {
        for line in [
            &b"Data: x"[..],
            b" data: x",
            b"data : x",
            b"datax: x",
            b"da",
            b"foo",
        ] {
            assert_eq!(Field::read(line), Field::Ignored);
        }
    }

    #[test]
    fn an_id_with_nul_does_not_count() {
        assert_eq!(Field::read(b"id: a\0b"), Field::Ignored);
        assert_eq!(Field::read(b"id"), Field::Id(b""));
    }

    #[test]
    fn retry_takes_digits_only() {
        assert_eq!(Field::read(b"retry: 0150"), Field::Retry(150));
        for line in [
            &b"retry: 12x"[..],
            b"retry: -1",
            b"retry: +1",
            b"retry:",
            b"retry:  1",
            b"retry: 1 ",
        ] {
            assert_eq!(Field::read(line), Field::Ignored);
        }
        assert_eq!(
            Field::read(b"retry: 99999999999999999999999"),
            Field::Retry(MAX_RETRY_MS)
        );
    }
}
