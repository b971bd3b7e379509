//! The writer: what a value of each kind becomes, and how much of it there may be.
//!
//! A traversal (of a Python value, of a parsed document) calls it in the order of the output. It holds the rules
//! of the form and the limits; the traversal holds the order of keys and the path.

use sha2::{Digest as _, Sha256};

use super::number;
use super::problem::Problem;
use super::text;

/// Which JSON form is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// RFC 8785: every number is a double, so integers beyond ±(2^53 - 1) are refused.
    Interchange,
    /// The same, but integers of any size keep their digits.
    Record,
    /// What reads back as the same Python value: keys in given order, doubles told from integers, no -0.
    Lossless,
}

/// How much is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The greatest depth of a value; the root has depth 0.
    pub max_depth: usize,
    /// The greatest number of values, containers included, keys not.
    pub max_nodes: u64,
    /// The greatest length of the text, and of a document that is read.
    pub max_bytes: usize,
}

/// Where text goes that is no longer needed in the buffer.
pub trait Drain {
    /// From how many buffered bytes on text is handed over; never, if text is what is wanted.
    const THRESHOLD: usize;
    /// Takes text; every piece but the last is a multiple of 64 bytes, or comes with an empty buffer.
    fn take(&mut self, bytes: &[u8]);
}

/// Text is the result: it stays in the buffer.
#[derive(Debug, Default)]
pub struct Keep;

impl Drain for Keep {
    const THRESHOLD: usize = usize::MAX;
    fn take(&mut self, _: &[u8]) {}
}

/// The text is only counted: for finding out where a refused value is at fault.
#[derive(Debug, Default)]
pub struct Count;

impl Drain for Count {
    const THRESHOLD: usize = 4096;
    fn take(&mut self, _: &[u8]) {}
}

/// The text is hashed as it comes.
#[derive(Debug, Default)]
pub struct Hash(Sha256);

impl Drain for Hash {
    const THRESHOLD: usize = 4096;
    fn take(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

/// See the module.
#[derive(Debug)]
pub struct Writer<D> {
    form: Form,
    limits: Limits,
    nodes: u64,
    drained: usize,
    out: Vec<u8>,
    drain: D,
}

impl<D: Drain + Default> Writer<D> {
    /// A writer with nothing written.
    pub fn new(form: Form, limits: Limits) -> Self {
        let capacity = if D::THRESHOLD == usize::MAX {
            512
        } else {
            D::THRESHOLD.saturating_add(512)
        };
        Self {
            form,
            limits,
            nodes: 0,
            drained: 0,
            out: Vec::with_capacity(capacity),
            drain: D::default(),
        }
    }
}

impl<D: Drain> Writer<D> {
    /// The form that is written.
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Counts one value; to be called before it is written.
    ///
    /// # Errors
    /// [`Problem::TooDeep`], [`Problem::TooManyNodes`].
    pub fn enter(&mut self, depth: usize) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(1);
        if depth > self.limits.max_depth {
            return Err(Problem::TooDeep(self.limits.max_depth));
        }
        if self.nodes > self.limits.max_nodes {
            return Err(Problem::TooManyNodes(self.limits.max_nodes));
        }
        Ok(())
    }

    /// Writes `null`.
    ///
    /// # Errors
    /// [`Problem::TooManyBytes`], like every method that writes a value.
    pub fn null(&mut self) -> Result<(), Problem> {
        self.out.extend_from_slice(b"null");
        self.settle()
    }

    /// Writes a boolean.
    ///
    /// # Errors
    /// See [`Self::null`].
    pub fn boolean(&mut self, value: bool) -> Result<(), Problem> {
        self.out
            .extend_from_slice(if value { b"true" } else { b"false" });
        self.settle()
    }

    /// Writes an integer of 64 bits.
    ///
    /// # Errors
    /// [`Problem::IntegerRange`] where the form has doubles only; see also [`Self::null`].
    pub fn integer(&mut self, value: i64) -> Result<(), Problem> {
        if self.form == Form::Interchange && !number::is_safe(value) {
            return Err(Problem::IntegerRange);
        }
        number::push_integer(&mut self.out, value);
        self.settle()
    }

    /// Whether an integer of about so many digits beyond 64 bits may be written at all.
    ///
    /// # Errors
    /// As for [`Self::digits`].
    pub fn expect_digits(&self, about: usize) -> Result<(), Problem> {
        if self.form == Form::Interchange {
            return Err(Problem::IntegerRange);
        }
        self.room_for(about)
    }

    /// Writes a number whose digits are already in order.
    ///
    /// # Errors
    /// See [`Self::null`].
    pub fn digits(&mut self, digits: &str) -> Result<(), Problem> {
        self.room_for(digits.len())?;
        self.span(digits.as_bytes());
        self.settle()
    }

    /// Writes a double.
    ///
    /// # Errors
    /// [`Problem::NotFinite`], [`Problem::NegativeZero`]; see also [`Self::null`].
    pub fn double(&mut self, value: f64) -> Result<(), Problem> {
        if !value.is_finite() {
            return Err(Problem::NotFinite);
        }
        if self.form != Form::Lossless {
            number::push_double(&mut self.out, value);
        } else if value == 0.0 && value.is_sign_negative() {
            return Err(Problem::NegativeZero);
        } else {
            number::push_marked_double(&mut self.out, value);
        }
        self.settle()
    }

    /// Writes a string.
    ///
    /// # Errors
    /// See [`Self::null`].
    pub fn string(&mut self, value: &str) -> Result<(), Problem> {
        self.quoted(value)?;
        self.settle()
    }

    /// Writes an object's key and the colon behind it, after a comma if it is not the first.
    ///
    /// # Errors
    /// See [`Self::null`].
    pub fn key(&mut self, key: &str, is_first: bool) -> Result<(), Problem> {
        if !is_first {
            self.out.push(b',');
        }
        self.quoted(key)?;
        self.out.push(b':');
        Ok(())
    }

    /// Opens an array.
    pub fn open_array(&mut self) {
        self.out.push(b'[');
    }

    /// Parts an item of an array from the one before it.
    pub fn part(&mut self, is_first: bool) {
        if !is_first {
            self.out.push(b',');
        }
    }

    /// Closes an array.
    ///
    /// # Errors
    /// See [`Self::null`].
    pub fn close_array(&mut self) -> Result<(), Problem> {
        self.out.push(b']');
        self.settle()
    }

    /// Opens an object.
    pub fn open_object(&mut self) {
        self.out.push(b'{');
    }

    /// Closes an object.
    ///
    /// # Errors
    /// See [`Self::null`].
    pub fn close_object(&mut self) -> Result<(), Problem> {
        self.out.push(b'}');
        self.settle()
    }

    fn quoted(&mut self, value: &str) -> Result<(), Problem> {
        self.room_for(value.len())?;
        let bytes = value.as_bytes();
        self.out.push(b'"');
        if text::is_plain(bytes) {
            self.span(bytes);
        } else {
            self.escaped(bytes);
        }
        self.out.push(b'"');
        Ok(())
    }

    fn escaped(&mut self, mut bytes: &[u8]) {
        loop {
            let (plain, rest) = bytes
                .split_at_checked(text::plain_len(bytes))
                .unwrap_or((bytes, &[]));
            self.span(plain);
            let Some((&special, rest)) = rest.split_first() else {
                return;
            };
            text::push_escape(&mut self.out, special);
            if self.out.len() >= D::THRESHOLD {
                self.drain_blocks();
            }
            bytes = rest;
        }
    }

    /// Appends finished text; a long piece goes past the buffer.
    fn span(&mut self, bytes: &[u8]) {
        if bytes.len() < D::THRESHOLD {
            self.out.extend_from_slice(bytes);
        } else {
            self.drain_all();
            self.drained = self.drained.saturating_add(bytes.len());
            self.drain.take(bytes);
        }
    }

    fn room_for(&self, more: usize) -> Result<(), Problem> {
        if self.len().saturating_add(more) > self.limits.max_bytes {
            return Err(Problem::TooManyBytes(self.limits.max_bytes));
        }
        Ok(())
    }

    /// After a value: is it still short enough, and is there a drain's worth of it?
    fn settle(&mut self) -> Result<(), Problem> {
        if self.out.len() >= D::THRESHOLD {
            self.drain_blocks();
        }
        self.room_for(0)
    }

    fn len(&self) -> usize {
        self.drained.saturating_add(self.out.len())
    }

    /// Hands over whole blocks of 64 bytes and keeps the rest, so that the hash never copies.
    fn drain_blocks(&mut self) {
        let whole = self.out.len() & !63;
        self.drain.take(self.out.get(..whole).unwrap_or_default());
        self.out.drain(..whole);
        self.drained = self.drained.saturating_add(whole);
    }

    fn drain_all(&mut self) {
        self.drain.take(&self.out);
        self.drained = self.len();
        self.out.clear();
    }
}

impl Writer<Keep> {
    /// The text.
    pub fn into_text(self) -> Vec<u8> {
        self.out
    }
}

impl Writer<Hash> {
    /// The SHA-256 of the text, as 64 lower-case hexadecimal digits.
    pub fn into_hex(mut self) -> String {
        self.drain_all();
        let digest: [u8; 32] = self.drain.0.finalize().into();
        hex(&digest)
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or('0');
    bytes
        .iter()
        .flat_map(|&byte| [digit(byte >> 4), digit(byte & 0xF)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        max_depth: 128,
        max_nodes: 1000,
        max_bytes: 1 << 20,
    };

    #[test]
    fn the_hash_is_that_of_the_text_however_long_its_pieces() {
        for length in [0, 1, 63, 64, 4000, 4095, 4096, 4097, 9000, 70_000] {
            for filler in ["x", "\n", "é"] {
                let value = filler.repeat(length);
                let mut text = Writer::<Keep>::new(Form::Record, LIMITS);
                let mut hash = Writer::<Hash>::new(Form::Record, LIMITS);
                text.open_array();
                hash.open_array();
                for _ in 0..3 {
                    text.string(&value).unwrap();
                    hash.string(&value).unwrap();
                }
                assert_eq!(hash.into_hex(), hex(&Sha256::digest(text.into_text())));
            }
        }
    }

    #[test]
    fn the_byte_limit_is_exact() {
        let write = |max_bytes| {
            let mut writer = Writer::<Keep>::new(
                Form::Record,
                Limits {
                    max_bytes,
                    ..LIMITS
                },
            );
            writer.string("abc").map(|()| writer.into_text())
        };
        assert_eq!(write(5), Ok(b"\"abc\"".to_vec()));
        assert_eq!(write(4), Err(Problem::TooManyBytes(4)));
    }

    #[test]
    fn node_and_depth_limits_are_exact() {
        let mut writer = Writer::<Keep>::new(
            Form::Record,
            Limits {
                max_depth: 2,
                max_nodes: 3,
                ..LIMITS
            },
        );
        assert_eq!(writer.enter(2), Ok(()));
        assert_eq!(writer.enter(3), Err(Problem::TooDeep(2)));
        assert_eq!(writer.enter(0), Ok(()));
        assert_eq!(writer.enter(0), Err(Problem::TooManyNodes(3)));
    }
}
