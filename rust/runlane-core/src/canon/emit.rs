//! A parsed document in canonical order.

use super::drain::Drain;
use super::order;
use super::problem::{Pointer, Problem, Refusal};
use super::tape::{Tape, Token};
use super::write::{Stop, Writer};

/// A member of an object, as it is put in order.
struct Member {
    prefix: u64,
    key: usize,
}

/// A container of which a part has been written.
enum Frame {
    Array {
        start: usize,
        next: usize,
        end: usize,
    },
    Object {
        first: usize,
        next: usize,
    },
}

/// Writes a parsed document, the keys of its objects in order.
///
/// # Errors
/// [`Problem::DuplicateKey`], [`Problem::TooManyBytes`].
pub fn emit<D: Drain>(tape: &Tape<'_>, writer: &mut Writer<D>) -> Result<(), Refusal> {
    let mut emitter = Emitter {
        tape,
        writer,
        frames: Vec::new(),
        members: Vec::new(),
    };
    emitter.run().map_err(|Stop| Refusal {
        problem: emitter.writer.problem().unwrap_or(Problem::Changed),
        pointer: emitter.pointer(),
        offset: None,
        type_name: None,
    })
}

struct Emitter<'t, 'd, 'w, D> {
    tape: &'t Tape<'d>,
    writer: &'w mut Writer<D>,
    frames: Vec<Frame>,
    members: Vec<Member>,
}

impl<D: Drain> Emitter<'_, '_, '_, D> {
    fn run(&mut self) -> Result<(), Stop> {
        self.value(0)?;
        while let Some(at) = self.next()? {
            self.value(at)?;
        }
        Ok(())
    }

    /// The place of the next value, after what stands before it has been written.
    fn next(&mut self) -> Result<Option<usize>, Stop> {
        while let Some(frame) = self.frames.last_mut() {
            match frame {
                Frame::Array { start, next, end } if *next < *end => {
                    let at = *next;
                    self.writer.part(at == *start)?;
                    *next = self.tape.after(at);
                    return Ok(Some(at));
                }
                Frame::Object { first, next } if *next < self.members.len() => {
                    let is_first = *next == *first;
                    let key = self.members.get(*next).map_or(0, |member| member.key);
                    *next = next.saturating_add(1);
                    self.writer.key(self.tape.key(key), is_first)?;
                    return Ok(Some(key.saturating_add(1)));
                }
                Frame::Array { .. } => {
                    self.frames.pop();
                    self.writer.close_array()?;
                }
                Frame::Object { first, .. } => {
                    self.members.truncate(*first);
                    self.frames.pop();
                    self.writer.close_object()?;
                }
            }
        }
        Ok(None)
    }

    fn value(&mut self, at: usize) -> Result<(), Stop> {
        match self.tape.token(at) {
            Some(Token::Null) | None => self.writer.null(),
            Some(Token::Boolean(value)) => self.writer.boolean(value),
            Some(Token::Integer(value)) => self.writer.integer(value),
            Some(Token::Double(value)) => self.writer.double(value),
            Some(Token::Digits(span)) => self.writer.digits(self.tape.text(span)),
            Some(Token::Text(span)) => self.writer.string(self.tape.text(span)),
            Some(Token::Array(end)) => {
                let start = at.saturating_add(1);
                self.writer.open_array()?;
                self.frames.push(Frame::Array {
                    start,
                    next: start,
                    end,
                });
                Ok(())
            }
            Some(Token::Object(end)) => self.object(at.saturating_add(1), end),
        }
    }

    fn object(&mut self, mut at: usize, end: usize) -> Result<(), Stop> {
        let first = self.members.len();
        self.writer.open_object()?;
        self.frames.push(Frame::Object { first, next: first });
        while at < end {
            let prefix = order::prefix(self.tape.key(at).as_bytes());
            self.members.push(Member { prefix, key: at });
            at = self.tape.after(at.saturating_add(1));
        }
        let tape = self.tape;
        let compare = |a: &Member, b: &Member| {
            let whole = || order::compare(tape.key(a.key).as_bytes(), tape.key(b.key).as_bytes());
            a.prefix.cmp(&b.prefix).then_with(whole)
        };
        let members = self.members.get_mut(first..).unwrap_or_default();
        if !members.is_sorted_by(|a, b| compare(a, b).is_lt()) {
            members.sort_unstable_by(compare);
            let twin = members.windows(2).position(|pair| match pair {
                [a, b] => compare(a, b).is_eq(),
                _ => false,
            });
            if let Some(twin) = twin {
                if let Some(Frame::Object { next, .. }) = self.frames.last_mut() {
                    *next = first.saturating_add(twin).saturating_add(1);
                }
                return Err(self.writer.refuse(Problem::DuplicateKey));
            }
        }
        Ok(())
    }

    /// The path to the value at hand, or to the second of two equal keys.
    fn pointer(&self) -> String {
        let mut pointer = Pointer::default();
        for frame in &self.frames {
            match *frame {
                Frame::Array { start, next, .. } => {
                    let mut at = start;
                    let mut index: usize = 0;
                    while self.tape.after(at) < next {
                        at = self.tape.after(at);
                        index = index.saturating_add(1);
                    }
                    pointer.index(index);
                }
                Frame::Object { next, .. } => {
                    let member = self.members.get(next.saturating_sub(1));
                    pointer.key(member.map_or("", |member| self.tape.key(member.key)));
                }
            }
        }
        pointer.finish()
    }
}
