//! Where written text goes: it is kept, counted, or hashed as it comes.

use ring::digest::{Context, SHA256};

use super::text;

/// Where text goes that is no longer needed in the buffer.
pub trait Drain {
    /// The size of the buffer if text is handed over when it is full; nothing if all text is to stay in it.
    const BUFFER: Option<usize>;
    /// Takes text.
    fn take(&mut self, bytes: &[u8]);
}

/// Text is the result: it stays in the buffer.
#[derive(Debug, Default)]
pub struct Keep;

impl Drain for Keep {
    const BUFFER: Option<usize> = None;
    fn take(&mut self, _: &[u8]) {}
}

/// The text is only counted: for finding out where a refused value is at fault.
#[derive(Debug, Default)]
pub struct Count;

impl Drain for Count {
    const BUFFER: Option<usize> = Some(BUFFER);
    fn take(&mut self, _: &[u8]) {}
}

/// The text is hashed as it comes.
pub struct Hash(Context);

impl Default for Hash {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Hash {
    /// The SHA-256 of what was taken and of these last bytes.
    pub(super) fn finish(mut self, rest: &[u8]) -> Hex {
        self.take(rest);
        Hex::new(self.0.finish().as_ref())
    }
}

impl Drain for Hash {
    const BUFFER: Option<usize> = Some(BUFFER);
    fn take(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

/// Large enough that a small value is hashed at one go, small enough to stay in the first cache.
const BUFFER: usize = 1024;

/// The block of SHA-256: only whole ones are handed over before the end, so that the hash need not keep a rest.
pub(super) const BLOCK: usize = 64;

/// A digest as text.
pub struct Hex([u8; 64]);

impl Hex {
    pub(super) fn new(digest: &[u8]) -> Self {
        let mut text = [b'0'; 64];
        let (pairs, _) = text.as_chunks_mut::<2>();
        for (pair, byte) in pairs.iter_mut().zip(digest) {
            *pair = [byte >> 4, byte & 0xF].map(text::hex_digit);
        }
        Self(text)
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}
