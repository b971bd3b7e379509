//! Why something has no canonical form, and where.

use core::fmt;

/// What is wrong with a value or a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// NaN or an infinity.
    NotFinite,
    /// Negative zero, where values must survive a round trip.
    NegativeZero,
    /// An integer that a binary64 cannot be trusted to hold.
    IntegerRange,
    /// An integer of more decimal digits than this.
    IntegerTooLong(usize),
    /// A number whose binary64 would be infinite.
    NumberOverflow,
    /// Text that is not a sequence of Unicode scalar values.
    LoneSurrogate,
    /// The same, in a key.
    LoneSurrogateInKey,
    /// A key of some other type than text.
    KeyType,
    /// A value of a type that JSON does not have.
    ValueType,
    /// The same key twice in one object.
    DuplicateKey,
    /// A container inside itself.
    Cycle,
    /// Nested deeper than this.
    TooDeep(usize),
    /// More values than this.
    TooManyNodes(u64),
    /// More bytes than this.
    TooManyBytes(usize),
    /// Bytes that are no UTF-8.
    InvalidUtf8,
    /// Bytes that are no JSON; what was expected there.
    Syntax(&'static str),
    /// A container that changed while it was read.
    Changed,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite => f.write_str("NaN and infinities are no JSON numbers"),
            Self::NegativeZero => f.write_str("negative zero does not survive a round trip"),
            Self::IntegerRange => {
                f.write_str("an integer outside ±(2^53 - 1); the record form keeps its digits")
            }
            Self::IntegerTooLong(limit) => write!(f, "an integer of more than {limit} digits"),
            Self::NumberOverflow => f.write_str("a number beyond the range of a double"),
            Self::LoneSurrogate => f.write_str("text with a lone surrogate"),
            Self::LoneSurrogateInKey => f.write_str("a key with a lone surrogate"),
            Self::KeyType => f.write_str("a key that is not text"),
            Self::ValueType => f.write_str("a value that is not plain JSON; convert it first"),
            Self::DuplicateKey => f.write_str("the same key twice"),
            Self::Cycle => f.write_str("a container inside itself"),
            Self::TooDeep(limit) => write!(f, "nested deeper than {limit}"),
            Self::TooManyNodes(limit) => write!(f, "more than {limit} values"),
            Self::TooManyBytes(limit) => write!(f, "more than {limit} bytes"),
            Self::InvalidUtf8 => f.write_str("bytes that are not UTF-8"),
            Self::Syntax(expected) => write!(f, "not JSON: expected {expected}"),
            Self::Changed => f.write_str("changed while it was read"),
        }
    }
}

/// A [`Problem`] and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub problem: Problem,
    /// Where: the JSON pointer (RFC 6901) of the value, of its object for a faulty key.
    pub pointer: String,
    /// The byte of the document at which it was seen.
    pub offset: Option<usize>,
    /// The name of the type of the faulty value or key, if that is the fault.
    pub type_name: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)?;
        if let Some(name) = &self.type_name {
            write!(f, " (type {name})")?;
        }
        if let Some(offset) = self.offset {
            write!(f, " (byte {offset})")?;
        }
        Ok(())
    }
}

/// A JSON pointer under construction, from the root to the leaf.
#[derive(Debug, Default)]
pub struct Pointer(String);

impl Pointer {
    /// Adds an object key, escaped.
    pub fn key(&mut self, key: &str) {
        self.0.push('/');
        for part in key.split_inclusive(['~', '/']) {
            match (part.strip_suffix('~'), part.strip_suffix('/')) {
                (Some(head), _) => self.0.extend([head, "~0"]),
                (_, Some(head)) => self.0.extend([head, "~1"]),
                (None, None) => self.0.push_str(part),
            }
        }
    }

    /// Adds a list position.
    pub fn index(&mut self, index: usize) {
        self.0.push('/');
        self.0.push_str(&index.to_string());
    }

    /// The finished pointer.
    pub fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_escapes_tilde_and_slash() {
        let mut pointer = Pointer::default();
        pointer.key("a/b~c");
        pointer.index(3);
        pointer.key("");
        pointer.key("~");
        assert_eq!(pointer.finish(), "/a~1b~0c/3//~0");
    }
}
