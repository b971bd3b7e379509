//! The writer: what a value of each kind becomes, and how much of it there may be.
//!
//! A traversal (of a Python value, of a parsed document) calls it in the order of the output. It holds the rules
//! of the form and the limits; the traversal holds the order of keys and the path.

use super::drain::{BLOCK, Drain, Hash, Hex, Keep};
use super::number::{self, Printer};
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
    /// The greatest number of decimal digits of an integer beyond 64 bits.
    pub max_digits: usize,
}

/// The end of a writing or a walk before its time; the [`Writer`] knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop;

/// The first buffer for text that is kept.
const FIRST: usize = 512;

/// How much of a long string is written at a time.
const PIECE: usize = 512;

/// See the module.
pub struct Writer<D> {
    form: Form,
    limits: Limits,
    nodes: u64,
    /// How much has been handed over.
    drained: usize,
    buffer: Vec<u8>,
    /// Where the buffer goes on.
    at: usize,
    /// Up to where it may be filled before [`Self::make_room`] has to look.
    end: usize,
    problem: Option<Problem>,
    drain: D,
}

impl<D: Drain + Default> Writer<D> {
    /// A writer with nothing written.
    pub fn new(form: Form, limits: Limits) -> Self {
        let size = D::BUFFER.unwrap_or(FIRST);
        Self {
            form,
            limits,
            nodes: 0,
            drained: 0,
            buffer: vec![0; size],
            at: 0,
            end: size.min(limits.max_bytes),
            problem: None,
            drain: D::default(),
        }
    }
}

impl<D: Drain> Writer<D> {
    /// The form that is written.
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Notes why it ends.
    #[cold]
    pub fn refuse(&mut self, problem: Problem) -> Stop {
        self.problem = Some(problem);
        Stop
    }

    /// Why it ended.
    pub const fn problem(&self) -> Option<Problem> {
        self.problem
    }

    /// Counts so many values, at least one, of a depth; to be called before the first of them is written.
    ///
    /// # Errors
    /// [`Problem::TooDeep`], [`Problem::TooManyNodes`].
    #[inline]
    pub fn enter(&mut self, depth: usize, count: u64) -> Result<(), Stop> {
        self.nodes = self.nodes.saturating_add(count);
        if depth > self.limits.max_depth {
            return Err(self.refuse(Problem::TooDeep(self.limits.max_depth)));
        }
        if self.nodes > self.limits.max_nodes {
            return Err(self.refuse(Problem::TooManyNodes(self.limits.max_nodes)));
        }
        Ok(())
    }

    /// Writes `null`.
    ///
    /// # Errors
    /// [`Problem::TooManyBytes`], like every method that writes.
    #[inline]
    pub fn null(&mut self) -> Result<(), Stop> {
        self.push(b"null")
    }

    /// Writes a boolean.
    ///
    /// # Errors
    /// See [`Self::null`].
    #[inline]
    pub fn boolean(&mut self, value: bool) -> Result<(), Stop> {
        self.push(if value { b"true" } else { b"false" })
    }

    /// Writes an integer of 64 bits.
    ///
    /// # Errors
    /// [`Problem::IntegerRange`] where the form has doubles only; see also [`Self::null`].
    #[inline]
    pub fn integer(&mut self, value: i64) -> Result<(), Stop> {
        if self.form == Form::Interchange && !number::is_safe(value) {
            return Err(self.refuse(Problem::IntegerRange));
        }
        let mut printer = itoa::Buffer::new();
        self.push(printer.format(value).as_bytes())
    }

    /// Whether an integer of so many digits beyond 64 bits, or a few more, may be written at all.
    ///
    /// # Errors
    /// As for [`Self::digits`].
    pub fn expect_digits(&mut self, about: usize) -> Result<(), Stop> {
        if self.form == Form::Interchange {
            return Err(self.refuse(Problem::IntegerRange));
        }
        self.within_limit(about)?;
        if about > self.limits.max_digits {
            return Err(self.refuse(Problem::IntegerTooLong(self.limits.max_digits)));
        }
        Ok(())
    }

    /// Writes an integer beyond 64 bits, whose digits are already in order.
    ///
    /// # Errors
    /// [`Problem::IntegerRange`] where the form has doubles only, [`Problem::IntegerTooLong`]; see also
    /// [`Self::null`].
    pub fn digits(&mut self, digits: &str) -> Result<(), Stop> {
        self.expect_digits(digits.trim_start_matches('-').len())?;
        self.span(digits.as_bytes())
    }

    /// Writes a double.
    ///
    /// # Errors
    /// [`Problem::NotFinite`], [`Problem::NegativeZero`]; see also [`Self::null`].
    pub fn double(&mut self, value: f64) -> Result<(), Stop> {
        if !value.is_finite() {
            return Err(self.refuse(Problem::NotFinite));
        }
        let mut printer = Printer::default();
        let digits = printer.double(value);
        if self.form == Form::Lossless {
            if value == 0.0 && value.is_sign_negative() {
                return Err(self.refuse(Problem::NegativeZero));
            }
            self.push(digits.as_bytes())?;
            return self.push(number::double_mark(digits).as_bytes());
        }
        self.push(digits.as_bytes())
    }

    /// Writes a string.
    ///
    /// # Errors
    /// See [`Self::null`].
    #[inline]
    pub fn string(&mut self, value: &str) -> Result<(), Stop> {
        let bytes = value.as_bytes();
        if bytes.len() <= PIECE {
            let place = self.room(bytes.len().wrapping_add(2))?;
            if let [first, middle @ .., last] = place {
                *first = b'"';
                *last = b'"';
                if text::copy_plain(middle, bytes) {
                    return Ok(());
                }
            }
            self.at = self.at.saturating_sub(bytes.len().saturating_add(2));
        }
        self.escaped(bytes)
    }

    /// Writes an object's key and the colon behind it, after a comma if it is not the first.
    ///
    /// # Errors
    /// See [`Self::null`].
    #[inline]
    pub fn key(&mut self, key: &str, is_first: bool) -> Result<(), Stop> {
        let bytes = key.as_bytes();
        if !is_first {
            self.push_byte(b',')?;
        }
        if bytes.len() <= PIECE {
            let place = self.room(bytes.len().wrapping_add(3))?;
            if let [first, middle @ .., quote, colon] = place {
                *first = b'"';
                *quote = b'"';
                *colon = b':';
                if text::copy_plain(middle, bytes) {
                    return Ok(());
                }
            }
            self.at = self.at.saturating_sub(bytes.len().saturating_add(3));
        }
        self.escaped(bytes)?;
        self.push_byte(b':')
    }

    /// Writes what [`render_key`] made of a key.
    ///
    /// # Errors
    /// See [`Self::null`].
    #[inline]
    pub fn rendered(&mut self, rendered: &[u8], is_first: bool) -> Result<(), Stop> {
        let bytes = rendered.get(usize::from(is_first)..).unwrap_or_default();
        if bytes.len() > PIECE {
            self.span(bytes)
        } else {
            self.push(bytes)
        }
    }

    /// Opens an array.
    ///
    /// # Errors
    /// See [`Self::null`].
    #[inline]
    pub fn open_array(&mut self) -> Result<(), Stop> {
        self.push_byte(b'[')
    }

    /// Parts an item of an array from the one before it.
    ///
    /// # Errors
    /// See [`Self::null`].
    #[inline]
    pub fn part(&mut self, is_first: bool) -> Result<(), Stop> {
        if is_first {
            Ok(())
        } else {
            self.push_byte(b',')
        }
    }

    /// Closes an array.
    ///
    /// # Errors
    /// See [`Self::null`].
    #[inline]
    pub fn close_array(&mut self) -> Result<(), Stop> {
        self.push_byte(b']')
    }

    /// Opens an object.
    ///
    /// # Errors
    /// See [`Self::null`].
    #[inline]
    pub fn open_object(&mut self) -> Result<(), Stop> {
        self.push_byte(b'{')
    }

    /// Closes an object.
    ///
    /// # Errors
    /// See [`Self::null`].
    #[inline]
    pub fn close_object(&mut self) -> Result<(), Stop> {
        self.push_byte(b'}')
    }

    /// A string that is long or needs escapes.
    #[cold]
    fn escaped(&mut self, mut bytes: &[u8]) -> Result<(), Stop> {
        self.within_limit(bytes.len().saturating_add(2))?;
        self.push_byte(b'"')?;
        loop {
            let (plain, rest) = bytes
                .split_at_checked(text::plain_len(bytes))
                .unwrap_or((bytes, &[]));
            self.span(plain)?;
            let Some((&special, rest)) = rest.split_first() else {
                break;
            };
            let (escape, length) = text::escape(special);
            self.push(escape.get(..length).unwrap_or_default())?;
            bytes = rest;
        }
        self.push_byte(b'"')
    }

    /// Writes text of any length in pieces.
    fn span(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.within_limit(bytes.len())?;
        bytes.chunks(PIECE).try_for_each(|piece| self.push(piece))
    }

    /// Writes a short text.
    #[inline]
    fn push(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        text::copy_short(self.room(bytes.len())?, bytes);
        Ok(())
    }

    #[inline]
    fn push_byte(&mut self, byte: u8) -> Result<(), Stop> {
        if let [place] = self.room(1)? {
            *place = byte;
        }
        Ok(())
    }

    /// The place for so many more bytes, which count as written.
    #[inline]
    fn room(&mut self, more: usize) -> Result<&mut [u8], Stop> {
        if self.end.wrapping_sub(self.at) < more {
            self.make_room(more)?;
        }
        let start = self.at;
        self.at = start.wrapping_add(more);
        Ok(self.buffer.get_mut(start..self.at).unwrap_or_default())
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, more: usize) -> Result<(), Stop> {
        self.within_limit(more)?;
        if D::BUFFER.is_some() {
            let whole = self.at & !BLOCK.saturating_sub(1);
            self.drain
                .take(self.buffer.get(..whole).unwrap_or_default());
            self.buffer.copy_within(whole..self.at, 0);
            self.at = self.at.saturating_sub(whole);
            self.drained = self.drained.saturating_add(whole);
        } else {
            let wanted = self
                .at
                .saturating_add(more)
                .max(self.buffer.len().saturating_mul(2));
            self.buffer.resize(wanted, 0);
        }
        self.end = self
            .buffer
            .len()
            .min(self.limits.max_bytes.saturating_sub(self.drained));
        Ok(())
    }

    fn within_limit(&mut self, more: usize) -> Result<(), Stop> {
        let length = self.drained.saturating_add(self.at).saturating_add(more);
        if length > self.limits.max_bytes {
            return Err(self.refuse(Problem::TooManyBytes(self.limits.max_bytes)));
        }
        Ok(())
    }
}

/// Appends a key as it stands behind another member, to be written many times; false if there might be no room for
/// it without moving what is there.
pub fn render_key(out: &mut Vec<u8>, key: &str) -> bool {
    let most = key.len().saturating_mul(6).saturating_add(4);
    let has_room = out.capacity().saturating_sub(out.len()) >= most;
    if has_room {
        text::push_key(out, key);
    }
    has_room
}

impl Writer<Keep> {
    /// The text.
    pub fn text(&self) -> &[u8] {
        self.buffer.get(..self.at).unwrap_or_default()
    }

    /// The text, as a value of its own.
    pub fn into_text(mut self) -> Vec<u8> {
        self.buffer.truncate(self.at);
        self.buffer
    }
}

impl Writer<Hash> {
    /// The SHA-256 of the text, as lower-case hexadecimal digits.
    pub fn into_hex(self) -> Hex {
        let rest = self.buffer.get(..self.at).unwrap_or_default();
        self.drain.finish(rest)
    }
}

#[cfg(test)]
mod tests;
