//! The reader of JSON text (RFC 8259): strict, without recursion, into a [`Tape`].
//!
//! What it lets pass is a document whose every text is Unicode and whose every number has a place in the form.
//! Duplicate keys are found later, when keys are put in order.

use super::number;
use super::problem::{Pointer, Problem, Refusal};
use super::tape::{Span, Tape, Token};
use super::text;
use super::write::{Form, Limits};

/// Reads a document.
///
/// # Errors
/// [`Refusal`] for whatever is not JSON, has no place in the form, or is beyond the limits.
pub fn parse(document: &[u8], form: Form, limits: Limits) -> Result<Tape<'_>, Refusal> {
    let refuse = |problem, offset| Refusal {
        problem,
        pointer: String::new(),
        offset,
        type_name: None,
    };
    if document.len() > limits.max_bytes {
        return Err(refuse(Problem::TooManyBytes(limits.max_bytes), None));
    }
    let document = str::from_utf8(document)
        .map_err(|error| refuse(Problem::InvalidUtf8, Some(error.valid_up_to())))?;
    let mut parser = Parser {
        tape: Tape {
            document,
            arena: String::new(),
            tokens: Vec::new(),
        },
        open: Vec::new(),
        is_between: false,
        at: 0,
        nodes: 0,
        form,
        limits,
    };
    match parser.run() {
        Ok(()) => Ok(parser.tape),
        Err(problem) => Err(Refusal {
            pointer: parser.pointer(),
            ..refuse(problem, Some(parser.at))
        }),
    }
}

/// A container whose end has not been read.
struct Open {
    /// Its token.
    token: usize,
    /// The token of the key whose value is being read; nothing for an array.
    key: Option<usize>,
}

struct Parser<'d> {
    tape: Tape<'d>,
    open: Vec<Open>,
    /// A value has been read and a comma or an end is due: a fault is then the container's own.
    is_between: bool,
    at: usize,
    nodes: u64,
    form: Form,
    limits: Limits,
}

impl<'d> Parser<'d> {
    fn run(&mut self) -> Result<(), Problem> {
        loop {
            self.skip_space();
            self.count()?;
            if self.value()? {
                continue;
            }
            if !self.next_member()? {
                return Ok(());
            }
        }
    }

    fn count(&mut self) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(1);
        if self.open.len() > self.limits.max_depth {
            return Err(Problem::TooDeep(self.limits.max_depth));
        }
        if self.nodes > self.limits.max_nodes {
            return Err(Problem::TooManyNodes(self.limits.max_nodes));
        }
        Ok(())
    }

    /// Reads one value, or the start of a container up to its first value; true in that case.
    fn value(&mut self) -> Result<bool, Problem> {
        match self.peek() {
            Some(b'"') => {
                let span = self.string(Problem::LoneSurrogate)?;
                self.tape.tokens.push(Token::Text(span));
            }
            Some(b'{') => return self.open(true),
            Some(b'[') => return self.open(false),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Token::Boolean(true))?,
            Some(b'f') => self.word("false", Token::Boolean(false))?,
            Some(b'n') => self.word("null", Token::Null)?,
            _ => return Err(Problem::Syntax("a value")),
        }
        Ok(false)
    }

    fn open(&mut self, is_object: bool) -> Result<bool, Problem> {
        self.step();
        let token = self.tape.tokens.len();
        self.tape.tokens.push(if is_object {
            Token::Object(0)
        } else {
            Token::Array(0)
        });
        self.open.push(Open {
            token,
            key: is_object.then_some(0),
        });
        self.is_between = true;
        self.skip_space();
        let end = if is_object { b'}' } else { b']' };
        if self.take(end) {
            self.close();
            return Ok(false);
        }
        if is_object {
            self.member_key("a key or '}'")?;
        }
        self.is_between = false;
        Ok(true)
    }

    fn close(&mut self) {
        let next = self.tape.tokens.len();
        let Some(open) = self.open.pop() else { return };
        let is_object = open.key.is_some();
        if let Some(token) = self.tape.tokens.get_mut(open.token) {
            *token = if is_object {
                Token::Object(next)
            } else {
                Token::Array(next)
            };
        }
    }

    /// After a value: goes to the next one; false at the end of the document.
    fn next_member(&mut self) -> Result<bool, Problem> {
        self.is_between = true;
        loop {
            self.skip_space();
            let Some(open) = self.open.last() else {
                return if self.peek().is_none() {
                    Ok(false)
                } else {
                    Err(Problem::Syntax("the end"))
                };
            };
            let is_object = open.key.is_some();
            match (self.peek(), is_object) {
                (Some(b','), _) => {
                    self.step();
                    if is_object {
                        self.skip_space();
                        self.member_key("a key")?;
                    }
                    self.is_between = false;
                    return Ok(true);
                }
                (Some(b'}'), true) | (Some(b']'), false) => {
                    self.step();
                    self.close();
                }
                (_, true) => return Err(Problem::Syntax("',' or '}'")),
                (_, false) => return Err(Problem::Syntax("',' or ']'")),
            }
        }
    }

    fn member_key(&mut self, expected: &'static str) -> Result<(), Problem> {
        if self.peek() != Some(b'"') {
            return Err(Problem::Syntax(expected));
        }
        let span = self.string(Problem::LoneSurrogateInKey)?;
        if let Some(open) = self.open.last_mut() {
            open.key = Some(self.tape.tokens.len());
        }
        self.tape.tokens.push(Token::Text(span));
        self.skip_space();
        if self.take(b':') {
            Ok(())
        } else {
            Err(Problem::Syntax("':'"))
        }
    }

    fn word(&mut self, word: &str, token: Token) -> Result<(), Problem> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(Problem::Syntax("a value"));
        }
        self.at = self.at.saturating_add(word.len());
        self.tape.tokens.push(token);
        Ok(())
    }

    // --- numbers ---

    fn number(&mut self) -> Result<(), Problem> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        let mut is_integer = true;
        if self.take(b'.') {
            is_integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            is_integer = false;
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        let span = Span {
            start,
            end: self.at,
            is_unescaped: false,
        };
        let token = self.number_token(span, is_integer);
        if token.is_err() {
            self.at = start;
        }
        self.tape.tokens.push(token?);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Problem> {
        let count = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if count == 0 {
            return Err(Problem::Syntax("a digit"));
        }
        self.at = self.at.saturating_add(count);
        Ok(())
    }

    fn number_token(&self, span: Span, is_integer: bool) -> Result<Token, Problem> {
        let literal = self.tape.text(span);
        let is_lossless = self.form == Form::Lossless;
        if is_integer {
            if is_lossless && literal == "-0" {
                return Err(Problem::NegativeZero);
            }
            return self.integer_token(span, literal);
        }
        let value: f64 = literal.parse().map_err(|_| Problem::Syntax("a number"))?;
        if value.is_infinite() {
            Err(Problem::NumberOverflow)
        } else if is_lossless && value == 0.0 && value.is_sign_negative() {
            Err(Problem::NegativeZero)
        } else {
            Ok(Token::Double(value))
        }
    }

    /// In the interchange form, a long integer passes only as what a double prints: then no digit is lost, and
    /// the form of a document stays a fixed point. In the others it keeps its digits, unless they are too many.
    fn integer_token(&self, span: Span, literal: &str) -> Result<Token, Problem> {
        let value = literal.parse::<i64>().ok();
        if self.form != Form::Interchange {
            let is_too_long = literal.trim_start_matches('-').len() > self.limits.max_digits;
            return match value {
                Some(value) => Ok(Token::Integer(value)),
                None if is_too_long => Err(Problem::IntegerTooLong(self.limits.max_digits)),
                None => Ok(Token::Digits(span)),
            };
        }
        if let Some(value) = value.filter(|&value| number::is_safe(value)) {
            return Ok(Token::Integer(value));
        }
        let double = literal
            .parse::<f64>()
            .ok()
            .filter(|double| double.is_finite());
        double
            .filter(|&double| number::Printer::default().double(double) == literal)
            .map(Token::Double)
            .ok_or(Problem::IntegerRange)
    }

    // --- strings ---

    fn string(&mut self, lone: Problem) -> Result<Span, Problem> {
        self.step();
        let start = self.at;
        self.skip_plain();
        if self.peek() == Some(b'"') {
            let span = Span {
                start,
                end: self.at,
                is_unescaped: false,
            };
            self.step();
            return Ok(span);
        }
        let arena_start = self.tape.arena.len();
        let mut copied = start;
        loop {
            let plain = self.tape.document.get(copied..self.at).unwrap_or_default();
            self.tape.arena.push_str(plain);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape(lone)?,
                Some(_) => return Err(Problem::Syntax("an escape instead of a control character")),
                None => return Err(Problem::Syntax("'\"'")),
            }
            copied = self.at;
            self.skip_plain();
        }
        self.step();
        Ok(Span {
            start: arena_start,
            end: self.tape.arena.len(),
            is_unescaped: true,
        })
    }

    fn escape(&mut self, lone: Problem) -> Result<(), Problem> {
        self.step();
        let character = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(lone),
            _ => return Err(Problem::Syntax("an escape")),
        };
        self.step();
        self.tape.arena.push(character);
        Ok(())
    }

    fn unicode_escape(&mut self, lone: Problem) -> Result<(), Problem> {
        let first = self.code_unit()?;
        let character = if (0xD800..0xDC00).contains(&first) {
            if !self.rest().starts_with(b"\\u") {
                return Err(lone);
            }
            self.step();
            let second = self.code_unit()?;
            char::decode_utf16([first, second])
                .next()
                .and_then(Result::ok)
                .ok_or(lone)?
        } else {
            char::from_u32(u32::from(first)).ok_or(lone)?
        };
        self.tape.arena.push(character);
        Ok(())
    }

    /// Reads `uXXXX`.
    fn code_unit(&mut self) -> Result<u16, Problem> {
        let digits = self.rest().get(1..5).unwrap_or_default();
        let mut unit = 0_u16;
        for &byte in digits {
            let digit = char::from(byte)
                .to_digit(16)
                .ok_or(Problem::Syntax("four hexadecimal digits"))?;
            unit = (unit << 4) | u16::try_from(digit).unwrap_or_default();
        }
        if digits.len() != 4 {
            return Err(Problem::Syntax("four hexadecimal digits"));
        }
        self.at = self.at.saturating_add(5);
        Ok(unit)
    }

    // --- bytes ---

    fn rest(&self) -> &'d [u8] {
        self.tape
            .document
            .as_bytes()
            .get(self.at..)
            .unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.tape.document.as_bytes().get(self.at).copied()
    }

    const fn step(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        if is_there {
            self.step();
        }
        is_there
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.step();
        }
    }

    fn skip_plain(&mut self) {
        self.at = self.at.saturating_add(text::plain_len(self.rest()));
    }

    /// Where the fault is: down the open containers to what was being read.
    fn pointer(&self) -> String {
        let mut pointer = Pointer::default();
        let depth = self.open.len();
        let shown = if self.is_between {
            depth.saturating_sub(1)
        } else {
            depth
        };
        for open in self.open.iter().take(shown) {
            match open.key {
                Some(key) => pointer.key(self.tape.key(key)),
                None => pointer.index(self.items_read(open.token)),
            }
        }
        pointer.finish()
    }

    /// How many items of an open array have been read whole.
    fn items_read(&self, array: usize) -> usize {
        let mut count: usize = 0;
        let mut at = array.saturating_add(1);
        while at < self.tape.tokens.len() {
            let next = self.tape.after(at);
            if next <= at {
                break; // the item is open itself
            }
            at = next;
            count = count.saturating_add(1);
        }
        count
    }
}
