//! Strings as text: quotes, the shortest escapes, everything else as it is (RFC 8785, section 3.2.2.2).

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The digit of a number below 16.
pub(super) fn hex_digit(nibble: u8) -> u8 {
    HEX.get(usize::from(nibble)).copied().unwrap_or(b'0')
}

/// Whether a byte cannot stand in a string as it is.
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Whether a byte of a chunk is special: without a branch, so the compiler turns it into a few vector instructions.
#[inline]
fn any_special<const N: usize>(chunk: &[u8; N]) -> bool {
    chunk
        .iter()
        .fold(false, |found, &byte| found | is_special(byte))
}

/// Copies a string that needs no escape; false if it needs one, and then the copy means nothing.
///
/// Both slices are of one length. Up to 32 bytes are looked at and copied as two overlapping pairs of words, without
/// a call or a loop: most keys and values are that short.
#[expect(
    clippy::inline_always,
    reason = "measured: a call per key and value costs a tenth of a walk"
)]
#[inline(always)]
pub(super) fn copy_plain(to: &mut [u8], from: &[u8]) -> bool {
    if from.len() > 32 {
        return copy_long_plain(to, from);
    }
    if let (Some(a), Some(b)) = (from.first_chunk::<16>(), from.last_chunk::<16>()) {
        put(to, a, b);
        !(any_special(a) | any_special(b))
    } else if let (Some(a), Some(b)) = (from.first_chunk::<8>(), from.last_chunk::<8>()) {
        put(to, a, b);
        !any_special(&paired::<8, 16>(a, b))
    } else if let (Some(a), Some(b)) = (from.first_chunk::<4>(), from.last_chunk::<4>()) {
        put(to, a, b);
        !any_special(&paired::<4, 8>(a, b))
    } else {
        let mut found = false;
        for (to, &from) in to.iter_mut().zip(from) {
            *to = from;
            found |= is_special(from);
        }
        !found
    }
}

fn copy_long_plain(to: &mut [u8], from: &[u8]) -> bool {
    let is_plain = is_long_plain(from);
    if is_plain {
        to.copy_from_slice(from);
    }
    is_plain
}

/// Copies up to 32 bytes without a call; more with one. Both slices are of one length.
#[inline]
pub(super) fn copy_short(to: &mut [u8], from: &[u8]) {
    if from.len() > 32 {
        to.copy_from_slice(from);
    } else if let (Some(a), Some(b)) = (from.first_chunk::<16>(), from.last_chunk::<16>()) {
        put(to, a, b);
    } else if let (Some(a), Some(b)) = (from.first_chunk::<8>(), from.last_chunk::<8>()) {
        put(to, a, b);
    } else if let (Some(a), Some(b)) = (from.first_chunk::<4>(), from.last_chunk::<4>()) {
        put(to, a, b);
    } else {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = from;
        }
    }
}

/// Puts one word at the start and one at the end; they may overlap.
#[inline]
fn put<const N: usize>(to: &mut [u8], first: &[u8; N], last: &[u8; N]) {
    if let Some(place) = to.first_chunk_mut::<N>() {
        *place = *first;
    }
    if let Some(place) = to.last_chunk_mut::<N>() {
        *place = *last;
    }
}

/// Two words as one chunk.
#[inline]
fn paired<const N: usize, const M: usize>(first: &[u8; N], last: &[u8; N]) -> [u8; M] {
    let mut both = [0; M];
    put(&mut both, first, last);
    both
}

/// Whether a long string needs no escape: the inner loop has no branch, so the compiler turns it into SIMD.
fn is_long_plain(bytes: &[u8]) -> bool {
    let (chunks, _) = bytes.as_chunks::<32>();
    let tail = bytes.last_chunk::<32>();
    !chunks.iter().chain(tail).any(any_special)
}

/// The length of the plain text at the start.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let (chunks, _) = bytes.as_chunks::<32>();
    let skipped = chunks
        .iter()
        .take_while(|chunk| !any_special(chunk))
        .count()
        .saturating_mul(32);
    let rest = bytes.get(skipped..).unwrap_or_default();
    let more = rest
        .iter()
        .position(|&byte| is_special(byte))
        .unwrap_or(rest.len());
    skipped.saturating_add(more)
}

/// The escape of a byte that is special, and its length.
pub(super) fn escape(byte: u8) -> ([u8; 6], usize) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0C => b'f',
        b'\r' => b'r',
        _ => {
            let [high, low] = [byte >> 4, byte & 0xF].map(hex_digit);
            return ([b'\\', b'u', b'0', b'0', high, low], 6);
        }
    };
    ([b'\\', short, 0, 0, 0, 0], 2)
}

/// Appends a key as it stands behind another member: a comma, the quoted key and a colon.
pub(super) fn push_key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    for &byte in key.as_bytes() {
        if is_special(byte) {
            let (escape, length) = escape(byte);
            out.extend(escape.iter().take(length));
        } else {
            out.push(byte);
        }
    }
    out.extend_from_slice(b"\":");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8]) {
        let place = bytes.iter().position(|&byte| is_special(byte));
        let mut copy = vec![0; bytes.len()];
        assert_eq!(copy_plain(&mut copy, bytes), place.is_none(), "{bytes:?}");
        assert_eq!(plain_len(bytes), place.unwrap_or(bytes.len()), "{bytes:?}");
        if place.is_none() {
            assert_eq!(copy, bytes);
        }
        copy.fill(0);
        copy_short(&mut copy, bytes);
        assert_eq!(copy, bytes);
    }

    #[test]
    fn plain_is_told_from_special_at_every_place_and_length() {
        for length in 0..80 {
            let plain: Vec<u8> = (b'A'..=b'Z').cycle().take(length).collect();
            check(&plain);
            for place in 0..length {
                for byte in [
                    0, 0x1F, 0x20, 0x21, 0x22, 0x23, 0x5B, 0x5C, 0x5D, 0x7F, 0x80, 0xA2, 0xDC, 0xFF,
                ] {
                    let mut bytes = plain.clone();
                    bytes[place] = byte;
                    check(&bytes);
                }
            }
        }
    }

    #[test]
    fn every_pair_of_neighbours_is_judged_exactly() {
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                check(&[b'a', first, second, 0x80, 0xFF, b'#', b']', b'[']);
            }
        }
    }

    #[test]
    fn escapes_are_the_shortest() {
        let mut out = Vec::new();
        for byte in [b'"', b'\\', 8, 9, 10, 12, 13, 0, 0x1F] {
            let (escape, length) = escape(byte);
            out.extend_from_slice(&escape[..length]);
        }
        assert_eq!(out, br#"\"\\\b\t\n\f\r\u0000\u001f"#);
    }
}
