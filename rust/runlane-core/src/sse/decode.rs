//! Bytes to events, whatever the cutting.
//!
//! # Theory of operation
//! A chunk is scanned line by line. A line that lies whole inside a chunk is read where it is; only what a chunk
//! leaves unfinished is copied: the open line, the data of the open block, and the last raw bytes of the block for the
//! report of a stream that was cut. A CR that is the last byte of a chunk ends nothing yet: the next byte says whether
//! an LF belongs to it.
//!
//! A fault (a limit, or bad UTF-8 where that is refused) is latched at the first line that has it. Everything before
//! it has been handed out by then; nothing after it is read.

use memchr::memchr2;

use super::field::Field;
use super::tail::RawTail;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Buffers that grew past this are given back once their block is done.
const KEPT_CAPACITY: usize = 1 << 18;

/// How long a line and an event may be, in bytes without line terminators; comments count for the line only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest line.
    pub line: usize,
    /// The largest sum of the lines of one block.
    pub event: usize,
}

/// Why a stream is read no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A line is longer than this limit.
    LineTooLong(usize),
    /// The lines of one block are longer than this limit.
    EventTooLong(usize),
    /// The byte at this offset of the stream is not UTF-8, and strict reading was asked for.
    NotUtf8(u64),
}

/// One dispatched event, as raw bytes of what should be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'e> {
    /// The event name; empty means `message`.
    pub name: &'e [u8],
    /// The data lines, joined with LF.
    pub data: &'e [u8],
    /// The id field of this block, if it had one.
    pub id: Option<&'e [u8]>,
    /// The id in force: of this block or of an earlier one.
    pub last_event_id: &'e [u8],
    /// The reconnection time of this block, if it had one.
    pub retry_ms: Option<u64>,
}

/// What a finished stream left without a blank line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// The event name, read as if a blank line had followed; empty means `message`.
    pub name: Vec<u8>,
    /// The data, read as if a blank line had followed.
    pub data: Vec<u8>,
    /// The last raw bytes of the unfinished block, at most [`super::MAX_RAW_TAIL`].
    pub raw_tail: Vec<u8>,
    /// How many raw bytes before those are missing.
    pub dropped_bytes: u64,
}

/// The fields of the block being read.
#[derive(Debug, Default)]
struct Block {
    name: Vec<u8>,
    /// The data so far, from `data_from` on; meaningless unless `has_data`.
    data: Vec<u8>,
    data_from: usize,
    has_data: bool,
    id: Vec<u8>,
    has_id: bool,
    retry_ms: Option<u64>,
    /// Bytes of its lines that are not comments.
    bytes: usize,
}

impl Block {
    fn data(&self) -> Option<&[u8]> {
        self.has_data
            .then(|| self.data.get(self.data_from..).unwrap_or_default())
    }

    /// Adds one line of data by copying it.
    #[inline]
    fn append(&mut self, value: &[u8]) {
        if self.has_data {
            self.data.push(b'\n');
        } else {
            self.data.clear();
            self.data_from = 0;
            self.has_data = true;
        }
        self.data.extend_from_slice(value);
    }

    /// Takes the first line of data over from the line buffer, whose last `len` bytes are the value.
    fn adopt(&mut self, line: &mut Vec<u8>, len: usize) {
        std::mem::swap(&mut self.data, line);
        self.data_from = self.data.len().saturating_sub(len);
        self.has_data = true;
    }

    /// Takes note of a field other than data.
    #[inline]
    fn note(&mut self, field: Field<'_>) {
        match field {
            Field::Name(name) => {
                self.name.clear();
                self.name.extend_from_slice(name);
            }
            Field::Id(id) => {
                self.id.clear();
                self.id.extend_from_slice(id);
                self.has_id = true;
            }
            Field::Retry(retry_ms) => self.retry_ms = Some(retry_ms),
            Field::Blank | Field::Comment | Field::Data(_) | Field::Ignored => {}
        }
    }

    fn reset(&mut self) {
        self.name.clear();
        self.has_data = false;
        self.has_id = false;
        self.retry_ms = None;
        self.bytes = 0;
        if self.data.capacity() > KEPT_CAPACITY {
            self.data = Vec::new();
        }
    }
}

/// The state of one stream between chunks.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    strict: bool,
    /// How many bytes of a leading byte order mark were seen; None once that question is settled.
    bom: Option<usize>,
    /// The last chunk ended with a CR, and the line before it is in `line`.
    held_cr: bool,
    /// The line that is not finished.
    line: Vec<u8>,
    /// Offset in the stream of the first byte of `line`.
    line_offset: u64,
    /// Offset in the stream of the chunk being read.
    position: u64,
    /// How many more bytes may simply be added to the open line.
    slack: usize,
    block: Block,
    tail: RawTail,
    last_event_id: Vec<u8>,
    retry_ms: Option<u64>,
    fault: Option<Fault>,
    closed: bool,
    incomplete: Option<Incomplete>,
}

impl Decoder {
    /// A decoder at the start of a stream; `strict` makes invalid UTF-8 a fault.
    pub fn new(limits: Limits, strict: bool) -> Self {
        Self {
            limits,
            strict,
            bom: Some(0),
            held_cr: false,
            line: Vec::new(),
            line_offset: 0,
            position: 0,
            slack: 0,
            block: Block::default(),
            tail: RawTail::default(),
            last_event_id: Vec::new(),
            retry_ms: None,
            fault: None,
            closed: false,
            incomplete: None,
        }
    }

    /// The fault that ended the reading, if any.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Whether [`Decoder::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The sticky event id, as of the last block that ended.
    pub fn last_event_id(&self) -> &[u8] {
        &self.last_event_id
    }

    /// The last valid reconnection time, in milliseconds.
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// What the stream left unfinished; known once it is closed.
    pub fn incomplete(&self) -> Option<&Incomplete> {
        self.incomplete.as_ref()
    }

    /// Reads the next bytes and emits the events they complete; does nothing after a fault or after the end.
    pub fn feed(&mut self, chunk: &[u8], mut emit: impl FnMut(&Event<'_>)) {
        if chunk.is_empty() || self.closed || self.fault.is_some() {
            return;
        }
        if let Some(rest) = self.resume(chunk, &mut emit) {
            self.read_lines(chunk, rest, &mut emit);
        }
        self.position = self.position.saturating_add(chunk.len() as u64);
        self.slack = self.slack();
    }

    /// Reads one byte that does no more than make the open line longer; false if it may do more, and then nothing has
    /// happened. [`Decoder::feed`] takes every byte, this one only saves a byte that comes alone most of the way.
    #[inline]
    pub fn take_byte(&mut self, byte: u8) -> bool {
        if self.slack == 0 || matches!(byte, b'\n' | b'\r') {
            return false;
        }
        self.slack = self.slack.saturating_sub(1);
        self.position = self.position.saturating_add(1);
        self.line.push(byte);
        true
    }

    /// How many bytes the open line may grow by; none if the next byte may mean anything else.
    fn slack(&self) -> usize {
        let Some(first) = self.line.first() else {
            return 0;
        };
        if self.held_cr {
            return 0;
        }
        let room = self.limits.event.saturating_sub(self.block.bytes);
        let most = if *first == b':' {
            self.limits.line
        } else {
            self.limits.line.min(room)
        };
        most.saturating_sub(self.line.len())
    }

    /// Ends the stream: emits what a held CR completes and settles what is left unfinished.
    pub fn close(&mut self, mut emit: impl FnMut(&Event<'_>)) {
        if self.closed || self.fault.is_some() {
            return;
        }
        self.closed = true;
        self.slack = 0;
        let bom = self
            .bom
            .take()
            .and_then(|seen| BOM.get(..seen))
            .unwrap_or_default();
        if !self.grow(bom) || (self.held_cr && !self.end_line(b"\r", &mut emit)) {
            return;
        }
        self.incomplete = self.unfinished();
    }

    /// Settles what earlier chunks left open and returns where whole lines begin; None if the chunk ends before.
    #[inline]
    fn resume<'c>(
        &mut self,
        chunk: &'c [u8],
        emit: &mut impl FnMut(&Event<'_>),
    ) -> Option<&'c [u8]> {
        let mut rest = chunk;
        if self.bom.is_some() {
            rest = self.skip_bom(chunk)?;
        }
        if self.held_cr {
            self.held_cr = false;
            let (terminator, next): (&[u8], _) = match rest {
                [b'\n', next @ ..] => (b"\r\n", next),
                _ => (b"\r", rest),
            };
            if !self.end_line(terminator, emit) {
                return None;
            }
            rest = next;
        }
        if self.line.is_empty() {
            return Some(rest);
        }
        let Some((line, terminator, next)) = split_line(rest) else {
            self.hold(rest, self.line_offset);
            return None;
        };
        if !self.grow(line) || !self.end_line(terminator, emit) {
            return None;
        }
        Some(next)
    }

    /// Drops a leading byte order mark, or hands the bytes that only looked like one to the line.
    fn skip_bom<'c>(&mut self, chunk: &'c [u8]) -> Option<&'c [u8]> {
        let seen = self.bom.take().unwrap_or_default();
        let expected = BOM.get(seen..).unwrap_or_default();
        let matched = expected
            .iter()
            .zip(chunk)
            .take_while(|(want, got)| want == got)
            .count();
        let total = seen.saturating_add(matched);
        if matched == expected.len() {
            self.line_offset = total as u64;
            return chunk.get(matched..);
        }
        if matched == chunk.len() {
            self.bom = Some(total);
            return None;
        }
        // Only bytes of earlier chunks need keeping: those of this one are read where they are.
        self.grow(BOM.get(..seen).unwrap_or_default())
            .then_some(chunk)
    }

    /// Reads the lines that lie whole inside the chunk and keeps what is left open at its end.
    #[inline]
    fn read_lines<'c>(
        &mut self,
        chunk: &'c [u8],
        start: &'c [u8],
        emit: &mut impl FnMut(&Event<'_>),
    ) {
        let mut rest = start;
        let mut block_start = start;
        // The data of a block that has one data line so far, where it lies in the chunk.
        let mut borrowed: Option<&'c [u8]> = None;
        while let Some((line, _, next)) = split_line(rest) {
            if !self.admit(line, || chunk.len().saturating_sub(rest.len())) {
                return;
            }
            rest = next;
            match Field::read(line) {
                Field::Data(value) if borrowed.is_none() && !self.block.has_data => {
                    borrowed = Some(value);
                }
                Field::Data(value) => {
                    if let Some(first) = borrowed.take() {
                        self.block.append(first);
                    }
                    self.block.append(value);
                }
                Field::Blank => {
                    self.dispatch(borrowed.take(), emit);
                    block_start = rest;
                }
                field @ (Field::Name(_) | Field::Id(_) | Field::Retry(_)) => self.note(field),
                Field::Comment | Field::Ignored => {}
            }
        }
        if let Some(first) = borrowed {
            self.block.append(first);
        }
        let unread = block_start.len().saturating_sub(rest.len());
        self.tail
            .push(block_start.get(..unread).unwrap_or_default());
        let offset = chunk.len().saturating_sub(rest.len()) as u64;
        self.hold(rest, self.position.saturating_add(offset));
    }

    /// Keeps the end of a chunk: an open line, and perhaps a CR that may belong to it.
    fn hold(&mut self, rest: &[u8], offset: u64) {
        self.line_offset = offset;
        let line = rest.strip_suffix(b"\r").unwrap_or(rest);
        self.held_cr = line.len() < rest.len();
        self.grow(line);
    }

    /// Adds to the open line unless that makes it too long; false after a fault.
    #[inline]
    fn grow(&mut self, part: &[u8]) -> bool {
        let Some(first) = self.line.first().or_else(|| part.first()) else {
            return true;
        };
        let len = self.line.len().saturating_add(part.len());
        if let Some(fault) = self.excess(*first, len) {
            return self.latch(fault);
        }
        match part {
            [byte] => self.line.push(*byte),
            _ => self.line.extend_from_slice(part),
        }
        true
    }

    /// Reads the line buffer, now that its terminator is known; false after a fault.
    fn end_line(&mut self, terminator: &[u8], emit: &mut impl FnMut(&Event<'_>)) -> bool {
        self.held_cr = false;
        let mut line = std::mem::take(&mut self.line);
        let offset = self.line_offset;
        if self.strict
            && let Err(error) = std::str::from_utf8(&line)
        {
            return self.latch(Fault::NotUtf8(
                offset.saturating_add(error.valid_up_to() as u64),
            ));
        }
        self.count(&line);
        self.tail.push(&line);
        self.tail.push(terminator);
        match Field::read(&line) {
            Field::Data(value) if self.block.has_data => self.block.append(value),
            Field::Data(value) => {
                let len = value.len();
                self.block.adopt(&mut line, len);
            }
            Field::Blank => self.dispatch(None, emit),
            field @ (Field::Name(_) | Field::Id(_) | Field::Retry(_)) => self.note(field),
            Field::Comment | Field::Ignored => {}
        }
        line.clear();
        if line.capacity() <= KEPT_CAPACITY {
            self.line = line;
        }
        true
    }

    /// Checks a line that lies whole in a chunk and counts it; false after a fault.
    #[inline]
    fn admit(&mut self, line: &[u8], start: impl Fn() -> usize) -> bool {
        let Some(first) = line.first() else {
            return true;
        };
        if let Some(fault) = self.excess(*first, line.len()) {
            return self.latch(fault);
        }
        if self.strict
            && let Err(error) = std::str::from_utf8(line)
        {
            let offset = start().saturating_add(error.valid_up_to()) as u64;
            return self.latch(Fault::NotUtf8(self.position.saturating_add(offset)));
        }
        self.count(line);
        true
    }

    /// The fault of a line of this length, so far, if it is too long. The limit that is passed first is the one named.
    #[inline]
    fn excess(&self, first: u8, len: usize) -> Option<Fault> {
        let room = self.limits.event.saturating_sub(self.block.bytes);
        if len > self.limits.line && (first == b':' || self.limits.line <= room) {
            return Some(Fault::LineTooLong(self.limits.line));
        }
        (first != b':' && len > room).then_some(Fault::EventTooLong(self.limits.event))
    }

    #[inline]
    fn count(&mut self, line: &[u8]) {
        if line.first() != Some(&b':') {
            self.block.bytes = self.block.bytes.saturating_add(line.len());
        }
    }

    fn note(&mut self, field: Field<'_>) {
        if let Field::Retry(retry_ms) = field {
            self.retry_ms = Some(retry_ms);
        }
        self.block.note(field);
    }

    /// Ends the block: commits its id, emits its event if it has data, and starts the next one.
    #[inline]
    fn dispatch(&mut self, borrowed: Option<&[u8]>, emit: &mut impl FnMut(&Event<'_>)) {
        if self.block.has_id {
            std::mem::swap(&mut self.last_event_id, &mut self.block.id);
        }
        if let Some(data) = borrowed.or_else(|| self.block.data()) {
            emit(&Event {
                name: &self.block.name,
                data,
                id: self.block.has_id.then_some(self.last_event_id.as_slice()),
                last_event_id: &self.last_event_id,
                retry_ms: self.block.retry_ms,
            });
        }
        self.block.reset();
        self.tail.clear();
    }

    /// Stops for good and gives the buffers back; always false.
    #[cold]
    fn latch(&mut self, fault: Fault) -> bool {
        self.fault = Some(fault);
        self.held_cr = false;
        self.line = Vec::new();
        self.block = Block::default();
        self.tail = RawTail::default();
        false
    }

    /// What is left without a blank line, if anything but comments is.
    fn unfinished(&mut self) -> Option<Incomplete> {
        let line = std::mem::take(&mut self.line);
        // A sequence that the end cut short is part of what is incomplete, not a bad byte.
        if self.strict
            && let Err(error) = std::str::from_utf8(&line)
            && error.error_len().is_some()
        {
            self.latch(Fault::NotUtf8(
                self.line_offset.saturating_add(error.valid_up_to() as u64),
            ));
            return None;
        }
        self.count(&line);
        if self.block.bytes == 0 {
            return None;
        }
        self.tail.push(&line);
        match Field::read(&line) {
            Field::Data(value) => self.block.append(value),
            field @ (Field::Name(_) | Field::Id(_) | Field::Retry(_)) => self.note(field),
            Field::Blank | Field::Comment | Field::Ignored => {}
        }
        let (raw_tail, dropped_bytes) = self.tail.read();
        let incomplete = Incomplete {
            name: self.block.name.clone(),
            data: self.block.data().unwrap_or_default().to_vec(),
            raw_tail: raw_tail.to_vec(),
            dropped_bytes,
        };
        self.block = Block::default();
        self.tail = RawTail::default();
        Some(incomplete)
    }
}

/// Splits off the first line, its terminator, and what follows; None if its end is not known yet.
#[inline]
fn split_line(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let at = match text {
        [] => return None,
        [b'\n', ..] => 0,
        // A search of its own costs more than looking at a byte or two.
        [_] | [_, _] => text.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?,
        _ => memchr2(b'\n', b'\r', text)?,
    };
    let (line, after) = text.split_at_checked(at)?;
    let len = match after {
        [b'\r'] => return None,
        [b'\r', b'\n', ..] => 2,
        _ => 1,
    };
    let (terminator, next) = after.split_at_checked(len)?;
    Some((line, terminator, next))
}

#[cfg(test)]
mod tests;
