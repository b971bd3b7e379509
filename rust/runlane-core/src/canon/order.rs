//! The order of object keys: by UTF-16 code unit (RFC 8785, section 3.2.3), decided on UTF-8 bytes.
//!
//! Code-unit order and byte order differ in one place only: a character above U+FFFF starts with a surrogate
//! (0xD800..=0xDBFF) in UTF-16 and so stands before U+E000..=U+FFFF, while its UTF-8 lead byte (0xF0..=0xF4)
//! stands after theirs (0xEE, 0xEF). Lifting those two lead bytes above all others makes the orders equal.

use core::cmp::Ordering;

const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// A byte's place in the order; a continuation byte never meets a lead byte, so lifting is harmless there.
const fn weight(byte: u8) -> u8 {
    match byte {
        0xEE | 0xEF => byte | 0x10,
        _ => byte,
    }
}

/// The first eight bytes of a key as one number that sorts as the keys do; equal numbers decide nothing.
pub fn prefix(key: &[u8]) -> u64 {
    let packed = if let Some(head) = key.first_chunk::<8>() {
        u64::from_be_bytes(*head)
    } else {
        key.iter()
            .zip([56_u32, 48, 40, 32, 24, 16, 8])
            .fold(0, |packed, (&byte, shift)| {
                packed | u64::from(byte) << shift
            })
    };
    if packed & HIGH_BITS == 0 {
        packed
    } else {
        u64::from_be_bytes(packed.to_be_bytes().map(weight))
    }
}

/// Compares two UTF-8 keys by UTF-16 code unit.
pub fn compare(left: &[u8], right: &[u8]) -> Ordering {
    match left.iter().zip(right).find(|(a, b)| a != b) {
        Some((&a, &b)) => weight(a).cmp(&weight(b)),
        None => left.len().cmp(&right.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_utf16(left: &str, right: &str) -> Ordering {
        left.encode_utf16().cmp(right.encode_utf16())
    }

    #[test]
    fn order_is_that_of_utf16_code_units() {
        let keys = [
            "",
            "\0",
            "a",
            "ab",
            "abcdefgh",
            "abcdefgh\0",
            "abcdefgi",
            "é",
            "\u{7ff}",
            "\u{800}",
            "\u{d7ff}",
            "\u{e000}",
            "\u{fb33}",
            "\u{ffff}",
            "\u{10000}",
            "\u{1f600}",
            "\u{10ffff}",
            "abcdefg\u{1f600}",
            "abcdefg\u{fb33}",
            "aaaaaaaaa\u{ffff}",
            "aaaaaaaaa\u{10000}",
        ];
        for left in keys {
            for right in keys {
                let expected = by_utf16(left, right);
                assert_eq!(
                    compare(left.as_bytes(), right.as_bytes()),
                    expected,
                    "{left:?} {right:?}"
                );
                let (a, b) = (prefix(left.as_bytes()), prefix(right.as_bytes()));
                assert!(a == b || a.cmp(&b) == expected, "{left:?} {right:?}");
            }
        }
    }
}
