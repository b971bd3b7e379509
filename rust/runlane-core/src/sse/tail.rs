//! The last raw bytes of an unfinished block, kept to report a stream that was cut.

/// How many raw bytes an unfinished block keeps at most.
pub const MAX_RAW_TAIL: usize = 65_536;

/// A byte log that forgets all but its last [`MAX_RAW_TAIL`] bytes.
///
/// It holds at most twice that much, so that appending costs amortised constant time per byte.
#[derive(Debug, Default)]
pub(super) struct RawTail {
    bytes: Vec<u8>,
    total: u64,
}

impl RawTail {
    /// Appends bytes, forgetting the oldest.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let kept = last(bytes);
        let room = MAX_RAW_TAIL
            .saturating_mul(2)
            .saturating_sub(self.bytes.len());
        if kept.len() > room {
            let surplus = self.bytes.len().saturating_sub(MAX_RAW_TAIL);
            self.bytes.drain(..surplus);
        }
        self.bytes.extend_from_slice(kept);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.total = 0;
    }

    /// The kept bytes, and how many before them were forgotten.
    pub(super) fn read(&self) -> (&[u8], u64) {
        let kept = last(&self.bytes);
        (kept, self.total.saturating_sub(kept.len() as u64))
    }
}

/// The last [`MAX_RAW_TAIL`] bytes.
fn last(bytes: &[u8]) -> &[u8] {
    bytes
        .len()
        .checked_sub(MAX_RAW_TAIL)
        .and_then(|surplus| bytes.get(surplus..))
        .unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_bytes_and_counts_the_rest() {
        let all: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        for piece in [1, 7, 4096, 65_535, 65_536, 65_537, 131_072, 200_000] {
            let mut tail = RawTail::default();
            for part in all.chunks(piece) {
                tail.push(part);
                assert!(tail.bytes.len() <= 2 * MAX_RAW_TAIL);
            }
            assert_eq!(
                tail.read(),
                (
                    &all[200_000 - MAX_RAW_TAIL..],
                    200_000 - MAX_RAW_TAIL as u64
                )
            );
        }
    }

    #[test]
    fn a_short_log_is_whole() {
        let mut tail = RawTail::default();
        tail.push(b"ab");
        tail.push(b"c");
        assert_eq!(tail.read(), (&b"abc"[..], 0));
        tail.clear();
        assert_eq!(tail.read(), (&b""[..], 0));
    }
}
