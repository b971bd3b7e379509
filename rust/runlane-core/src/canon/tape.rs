//! A parsed document: its values in a row, in the order of the text.
//!
//! A container's token says where the value behind it starts, so a value is passed over in one step. Object
//! members are a key's text token and then the value. Text without escapes is not copied out of the document.

use core::ops::Range;

/// A piece of the document, or of the arena that holds the texts that had escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte behind the last.
    pub end: usize,
    /// Whether it lies in the arena.
    pub is_unescaped: bool,
}

impl Span {
    const fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

/// One value, or one key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Token {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// An integer of 64 bits.
    Integer(i64),
    /// A longer integer: its digits, with a sign if negative.
    Digits(Span),
    /// A number with a point or an exponent.
    Double(f64),
    /// A string, or a key.
    Text(Span),
    /// An array, with the number of the token behind it.
    Array(usize),
    /// An object, likewise.
    Object(usize),
}

/// See the module.
#[derive(Debug)]
pub struct Tape<'d> {
    pub(super) document: &'d str,
    pub(super) arena: String,
    pub(super) tokens: Vec<Token>,
}

impl Tape<'_> {
    /// The token at a place; nothing behind the last.
    pub fn token(&self, at: usize) -> Option<Token> {
        self.tokens.get(at).copied()
    }

    /// The place behind a value (or key) and all it holds.
    pub fn after(&self, at: usize) -> usize {
        match self.token(at) {
            Some(Token::Array(next) | Token::Object(next)) => next,
            Some(
                Token::Null
                | Token::Boolean(_)
                | Token::Integer(_)
                | Token::Digits(_)
                | Token::Double(_)
                | Token::Text(_),
            )
            | None => at.saturating_add(1),
        }
    }

    /// A text or the digits of a long integer.
    pub fn text(&self, span: Span) -> &str {
        let source = if span.is_unescaped {
            &self.arena
        } else {
            self.document
        };
        source.get(span.range()).unwrap_or_default()
    }

    /// The text of a key token; empty for any other.
    pub fn key(&self, at: usize) -> &str {
        match self.token(at) {
            Some(Token::Text(span)) => self.text(span),
            Some(
                Token::Null
                | Token::Boolean(_)
                | Token::Integer(_)
                | Token::Digits(_)
                | Token::Double(_)
                | Token::Array(_)
                | Token::Object(_),
            )
            | None => "",
        }
    }
}
