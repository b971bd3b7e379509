//! Strings as text: quotes, the shortest escapes, everything else as it is (RFC 8785, section 3.2.2.2).

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Whether a byte cannot stand in a string as it is.
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Whether one of eight bytes is special; exact, because no borrow crosses a byte whose high bit is kept out.
const fn any_special(word: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    const QUOTE: u64 = ONES.wrapping_mul(b'"' as u64);
    const BACKSLASH: u64 = ONES.wrapping_mul(b'\\' as u64);
    // A byte below n sets its high bit when n is subtracted; `& !word` drops bytes that were high already.
    let control = word.wrapping_sub(ONES.wrapping_mul(0x20)) & !word;
    let quote = (word ^ QUOTE).wrapping_sub(ONES) & !(word ^ QUOTE);
    let backslash = (word ^ BACKSLASH).wrapping_sub(ONES) & !(word ^ BACKSLASH);
    (control | quote | backslash) & HIGH != 0
}

/// Whether a string needs no escape. Never wrong: a borrow can only follow a byte that is special itself.
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    if bytes.len() >= 32 {
        return is_long_plain(bytes);
    }
    let (words, rest) = bytes.as_chunks::<8>();
    if words
        .iter()
        .any(|word| any_special(u64::from_le_bytes(*word)))
    {
        return false;
    }
    match bytes.last_chunk::<8>() {
        Some(tail) => !any_special(u64::from_le_bytes(*tail)),
        None => !rest.iter().any(|&byte| is_special(byte)),
    }
}

/// The same by whole vectors: the inner loop has no branch, so the compiler turns it into SIMD.
fn is_long_plain(bytes: &[u8]) -> bool {
    fn chunk_is_plain(chunk: &[u8; 32]) -> bool {
        !chunk
            .iter()
            .fold(false, |found, &byte| found | is_special(byte))
    }
    let (chunks, _) = bytes.as_chunks::<32>();
    chunks.iter().all(chunk_is_plain) && bytes.last_chunk::<32>().is_some_and(chunk_is_plain)
}

/// The length of the plain text at the start.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let (chunks, _) = bytes.as_chunks::<32>();
    let skipped = chunks
        .iter()
        .take_while(|chunk| is_plain(*chunk))
        .count()
        .saturating_mul(32);
    let rest = bytes.get(skipped..).unwrap_or_default();
    let more = rest
        .iter()
        .position(|&byte| is_special(byte))
        .unwrap_or(rest.len());
    skipped.saturating_add(more)
}

/// Appends the escape of a byte that is special.
pub(super) fn push_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0C => b'f',
        b'\r' => b'r',
        _ => {
            let [high, low] = [byte >> 4, byte & 0xF]
                .map(|nibble| *HEX.get(usize::from(nibble)).unwrap_or(&b'0'));
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_is_told_from_special_at_every_place_and_length() {
        for length in 0..80 {
            let plain = vec![b'x'; length];
            assert!(is_plain(&plain));
            assert_eq!(plain_len(&plain), length);
            for place in 0..length {
                for byte in 0..=255_u8 {
                    let mut bytes = plain.clone();
                    bytes[place] = byte;
                    assert_eq!(
                        is_plain(&bytes),
                        !is_special(byte),
                        "{byte} at {place} of {length}"
                    );
                    let expected = if is_special(byte) { place } else { length };
                    assert_eq!(plain_len(&bytes), expected, "{byte} at {place} of {length}");
                }
            }
        }
    }

    #[test]
    fn every_pair_of_neighbours_is_judged_exactly() {
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                let bytes = [b'a', first, second, 0x80, 0xFF, b'#', b']', b'['];
                let expected = !is_special(first) && !is_special(second);
                assert_eq!(is_plain(&bytes), expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn escapes_are_the_shortest() {
        let mut out = Vec::new();
        for byte in [b'"', b'\\', 8, 9, 10, 12, 13, 0, 0x1F] {
            push_escape(&mut out, byte);
        }
        assert_eq!(out, br#"\"\\\b\t\n\f\r\u0000\u001f"#);
    }
}
