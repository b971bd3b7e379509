//! A cursor over one JSON text: strict RFC 8259, no recursion, no allocation.
//!
//! The text is known to be UTF-8. Strings are found, checked and left as they are: what goes to a provider is copied
//! from here, escapes and all.

use memchr::memchr2;

use super::text::Span;

/// How deep arrays and objects may nest.
pub(crate) const MAX_DEPTH: usize = 512;

/// The longest number, in characters; Python refuses to read a longer integer.
const MAX_NUMBER: usize = 4_300;

/// Below this many words of 8 bytes the end of a string is found before a vector search would have started.
const SHORT: usize = 6;

/// Why a text is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, in bytes from the start of the text.
    pub offset: usize,
    /// What is wrong there.
    pub problem: &'static str,
}

/// A position in a text.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'t> {
    bytes: &'t [u8],
    at: usize,
    /// Whether the text holds control characters at all; where there are none no string is searched for them.
    controls: bool,
}

impl<'t> Cursor<'t> {
    /// The start of a text.
    pub fn new(text: &'t str) -> Self {
        let bytes = text.as_bytes();
        let controls = bytes
            .iter()
            .fold(0, |any, byte| any | u8::from(*byte < b' '))
            != 0;
        Self {
            bytes,
            at: 0,
            controls,
        }
    }

    pub(crate) fn fault<T>(&self, problem: &'static str) -> Result<T, Fault> {
        Err(Fault {
            offset: self.at,
            problem,
        })
    }

    /// The next byte that is not white space, which stays.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at).copied() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.skip(1),
                other => return other,
            }
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    fn rest(&self) -> &'t [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Takes exactly these bytes if they come next, without skipping white space.
    pub(crate) fn take(&mut self, expected: &[u8]) -> bool {
        let found = self.rest().starts_with(expected);
        if found {
            self.skip(expected.len());
        }
        found
    }

    /// Takes one byte of punctuation.
    ///
    /// # Errors
    /// It does not come.
    pub fn expect(&mut self, byte: u8, problem: &'static str) -> Result<(), Fault> {
        if self.peek() == Some(byte) {
            self.skip(1);
            return Ok(());
        }
        self.fault(problem)
    }

    /// Takes the separator after a member: true if another follows, false if `close` came.
    ///
    /// # Errors
    /// Neither comes.
    pub fn more(&mut self, close: u8) -> Result<bool, Fault> {
        match self.peek() {
            Some(b',') => {
                self.skip(1);
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.skip(1);
                Ok(false)
            }
            _ => self.fault("a comma or the end of an array or object is missing"),
        }
    }

    /// Takes `close` if it comes next: the array or object is empty.
    pub fn closes(&mut self, close: u8) -> bool {
        let found = self.peek() == Some(close);
        if found {
            self.skip(1);
        }
        found
    }

    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fault("something follows the record"),
        }
    }

    fn span_from(&self, start: usize) -> Result<Span, Fault> {
        Span::new(start, self.at).map_or_else(|| self.fault("the record is too long"), Ok)
    }

    /// Takes a string and gives what stands between its quotes.
    ///
    /// # Errors
    /// No well-formed string comes.
    pub fn string(&mut self) -> Result<Span, Fault> {
        if self.peek() != Some(b'"') {
            return self.fault("a string is missing");
        }
        self.skip(1);
        let start = self.at;
        self.find_closing_quote()?;
        let span = self.span_from(start)?;
        self.skip(1);
        if self.controls
            && let Some(bytes) = self.bytes.get(span.range())
            && bytes.iter().any(|byte| *byte < b' ')
        {
            return self.fault("a control character stands in a string");
        }
        Ok(span)
    }

    fn find_closing_quote(&mut self) -> Result<(), Fault> {
        loop {
            let rest = self.rest();
            let found = near_end(rest);
            let Some(found) = found else {
                return self.fault("a string does not end");
            };
            self.skip(found);
            if rest.get(found) == Some(&b'"') {
                return Ok(());
            }
            self.escape()?;
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        match self.rest() {
            [
                b'\\',
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't',
                ..,
            ] => {
                self.skip(2);
                Ok(())
            }
            [b'\\', b'u', ..] => self.unicode_escape(),
            _ => self.fault("an escape is not one of JSON"),
        }
    }

    fn unicode_escape(&mut self) -> Result<(), Fault> {
        match self.code_unit() {
            None => self.fault("an escape is not one of JSON"),
            Some(0xDC00..=0xDFFF) => self.fault("a lone surrogate is not text"),
            Some(0xD800..=0xDBFF) => {
                let low = self.rest().starts_with(b"\\u").then(|| self.code_unit());
                match low {
                    Some(Some(0xDC00..=0xDFFF)) => Ok(()),
                    _ => self.fault("a lone surrogate is not text"),
                }
            }
            Some(_) => Ok(()),
        }
    }

    /// Takes `\uXXXX`.
    fn code_unit(&mut self) -> Option<u32> {
        let digits = self.rest().get(2..6)?;
        let unit = digits.iter().try_fold(0_u32, |sum, digit| {
            let value = char::from(*digit).to_digit(16)?;
            Some(sum << 4 | value)
        })?;
        self.skip(6);
        Some(unit)
    }

    /// Takes any value and gives its text.
    ///
    /// # Errors
    /// No well-formed value comes.
    pub fn value(&mut self) -> Result<Span, Fault> {
        self.peek();
        let start = self.at;
        let mut open = Nesting::default();
        loop {
            let opened = self.scalar_or_open(&mut open)?;
            if opened {
                continue;
            }
            if !self.find_next_value(&mut open)? {
                return self.span_from(start);
            }
        }
    }

    /// Takes a scalar, or the start of an array or object up to its first value: then true.
    fn scalar_or_open(&mut self, open: &mut Nesting) -> Result<bool, Fault> {
        match self.peek() {
            Some(b'"') => {
                self.string()?;
            }
            Some(b'{') => {
                self.skip(1);
                if !self.closes(b'}') {
                    self.push(open, true)?;
                    self.member_name()?;
                    return Ok(true);
                }
            }
            Some(b'[') => {
                self.skip(1);
                if !self.closes(b']') {
                    self.push(open, false)?;
                    return Ok(true);
                }
            }
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => {
                if !(self.take(b"true") || self.take(b"false") || self.take(b"null")) {
                    return self.fault("a value is missing");
                }
            }
        }
        Ok(false)
    }

    /// After a value: true if another value of an open array or object follows, false if none is open.
    fn find_next_value(&mut self, open: &mut Nesting) -> Result<bool, Fault> {
        while let Some(is_object) = open.innermost() {
            if self.more(if is_object { b'}' } else { b']' })? {
                if is_object {
                    self.member_name()?;
                }
                return Ok(true);
            }
            open.pop();
        }
        Ok(false)
    }

    fn push(&self, open: &mut Nesting, is_object: bool) -> Result<(), Fault> {
        if open.push(is_object) {
            return Ok(());
        }
        self.fault("arrays and objects nest too deep")
    }

    fn member_name(&mut self) -> Result<(), Fault> {
        self.string()?;
        self.expect(b':', "a colon is missing")
    }

    fn number(&mut self) -> Result<(), Fault> {
        self.take(b"-");
        let start = self.at;
        if !self.take(b"0") {
            self.digits()?;
        }
        if self.take(b".") {
            self.digits()?;
        }
        if self.take(b"e") || self.take(b"E") {
            let _signed = self.take(b"+") || self.take(b"-");
            self.digits()?;
        }
        if self.at.saturating_sub(start) > MAX_NUMBER {
            return self.fault("a number is too long");
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let count = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if count == 0 {
            return self.fault("a digit is missing");
        }
        self.skip(count);
        Ok(())
    }
}

/// Where the next quote or backslash stands.
fn near_end(rest: &[u8]) -> Option<usize> {
    let (words, _) = rest.as_chunks::<8>();
    for (place, word) in words.iter().take(SHORT).enumerate() {
        let word = u64::from_le_bytes(*word);
        let hits = zero_bytes(word ^ every(b'"')) | zero_bytes(word ^ every(b'\\'));
        if hits != 0 {
            let byte = usize::try_from(hits.trailing_zeros() / 8).unwrap_or(0);
            return Some(place.saturating_mul(8).saturating_add(byte));
        }
    }
    let seen = words.len().min(SHORT).saturating_mul(8);
    let far = memchr2(b'"', b'\\', rest.get(seen..)?)?;
    Some(far.saturating_add(seen))
}

/// The byte in each place of a word.
const fn every(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Marks zero bytes by their top bit; below the lowest mark there is no false one.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(every(1)) & !word & every(0x80)
}

/// Which of the open arrays and objects are objects: one bit each.
#[derive(Default)]
struct Nesting {
    depth: usize,
    objects: [u64; MAX_DEPTH / 64],
}

impl Nesting {
    fn word(&mut self, depth: usize) -> Option<(&mut u64, u64)> {
        let bit = 1_u64.checked_shl(u32::try_from(depth % 64).ok()?)?;
        Some((self.objects.get_mut(depth / 64)?, bit))
    }

    fn push(&mut self, is_object: bool) -> bool {
        let Some((word, bit)) = self.word(self.depth) else {
            return false;
        };
        if is_object {
            *word |= bit;
        } else {
            *word &= !bit;
        }
        self.depth = self.depth.saturating_add(1);
        true
    }

    fn innermost(&mut self) -> Option<bool> {
        let depth = self.depth.checked_sub(1)?;
        self.word(depth).map(|(word, bit)| *word & bit != 0)
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(text: &str) -> bool {
        let mut cursor = Cursor::new(text);
        cursor.value().is_ok() && cursor.end().is_ok()
    }

    #[test]
    fn accepts_what_json_is_and_nothing_else() {
        for good in [
            "0",
            "-0",
            "1.5e+10",
            "10E-2",
            "\"\"",
            "\"\\u00e9\\ud83d\\ude00\\n\"",
            "[]",
            "{}",
            " [ 1 , {\"a\":[ ]} ] ",
            "true",
            "null",
            "{\"a\":{\"b\":[1,2,\"x\"]},\"c\":false}",
            "\"\u{7f}é\"",
        ] {
            assert!(accepts(good), "{good}");
        }
        for bad in [
            "",
            "01",
            "-",
            "1.",
            "1e",
            ".5",
            "+1",
            "\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "\"a\nb\"",
            "[",
            "[1,]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":1,}",
            "{a:1}",
            "[}",
            "{]",
            "nul",
            "NaN",
            "1 2",
            "\"\\u12",
            "[1}",
            "{\"a\":1]",
        ] {
            assert!(!accepts(bad), "{bad}");
        }
    }

    #[test]
    fn nesting_has_a_limit_and_no_stack() {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(accepts(&deep(MAX_DEPTH)));
        // The innermost is empty and opens no level of its own.
        assert!(!accepts(&deep(MAX_DEPTH + 2)));
        assert!(!accepts(&"[".repeat(1_000_000)));
    }

    #[test]
    fn agrees_with_serde_json() {
        for text in [
            "{\"a\":[1,2.5,-3e7,{\"b\":null}]}",
            "[\"\\u0000\"]",
            "[1,2,]",
            "{\"a\":01}",
        ] {
            assert_eq!(
                accepts(text),
                serde_json::from_str::<serde_json::Value>(text).is_ok()
            );
        }
    }
}
