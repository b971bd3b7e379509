//! Event streams: any cutting, any limits, and a slow reader of the whole body agree on everything.
//!
//! The first three bytes choose the limits, strictness and the cutting; the rest is the body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runlane_core::sse::{Decoder, Event, Fault, Limits, MAX_RAW_TAIL, MAX_RETRY_MS};

/// An event: name, data, id, id in force, retry time.
type Seen = (Vec<u8>, Vec<u8>, Option<Vec<u8>>, Vec<u8>, Option<u64>);

/// What is left: name, data, raw tail, dropped bytes.
type Left = (Vec<u8>, Vec<u8>, Vec<u8>, u64);

#[derive(Debug, Default, PartialEq)]
struct Reading {
    events: Vec<Seen>,
    fault: Option<Fault>,
    left: Option<Left>,
    last_event_id: Vec<u8>,
    retry_ms: Option<u64>,
}

fuzz_target!(|input: &[u8]| {
    let [limit, mode, cutting, body @ ..] = input else {
        return;
    };
    let limits = Limits {
        line: if mode & 2 == 0 {
            1 << 20
        } else {
            usize::from(limit % 16)
        },
        event: if mode & 4 == 0 {
            1 << 20
        } else {
            usize::from(limit / 16) * 2
        },
    };
    let strict = mode & 1 == 1;
    let expected = slow(body, limits, strict);
    for cutting in [0, *cutting] {
        let found = fed(body, limits, strict, cutting);
        assert_eq!(found.events, expected.events);
        assert_eq!(found.fault, expected.fault);
        if expected.fault.is_none() {
            assert_eq!(found, expected);
        }
    }
});

/// Reads with the decoder; 0 is the whole body, anything else a series of small pieces.
fn fed(body: &[u8], limits: Limits, strict: bool, cutting: u8) -> Reading {
    let mut decoder = Decoder::new(limits, strict);
    let mut reading = Reading::default();
    let events = &mut reading.events;
    let mut emit = |event: &Event<'_>| {
        events.push((
            event.name.to_vec(),
            event.data.to_vec(),
            event.id.map(<[u8]>::to_vec),
            event.last_event_id.to_vec(),
            event.retry_ms,
        ));
    };
    let mut rest = body;
    let mut state = cutting;
    while !rest.is_empty() {
        state = state.wrapping_mul(37).wrapping_add(cutting);
        let size = if cutting == 0 {
            rest.len()
        } else {
            usize::from(state % 9).min(rest.len())
        };
        let (chunk, next) = rest.split_at(size);
        if !matches!(chunk, [byte] if decoder.take_byte(*byte)) {
            decoder.feed(chunk, &mut emit);
        }
        if size == 0 {
            // An odd step keeps the series from standing still on empty pieces.
            state = state.wrapping_add(1);
            let (chunk, next) = rest.split_at(1);
            if !matches!(chunk, [byte] if decoder.take_byte(*byte)) {
                decoder.feed(chunk, &mut emit);
            }
            rest = next;
            continue;
        }
        rest = next;
    }
    decoder.close(&mut emit);
    decoder.close(|_| panic!("closing twice gives an event"));
    reading.fault = decoder.fault();
    reading.left = decoder.incomplete().map(|left| {
        (
            left.name.clone(),
            left.data.clone(),
            left.raw_tail.clone(),
            left.dropped_bytes,
        )
    });
    reading.last_event_id = decoder.last_event_id().to_vec();
    reading.retry_ms = decoder.retry_ms();
    reading
}

#[derive(Default)]
struct Block {
    raw: Vec<u8>,
    size: usize,
    name: Vec<u8>,
    data: Option<Vec<u8>>,
    id: Option<Vec<u8>>,
    retry_ms: Option<u64>,
}

/// Reads the whole body, one line after the other.
fn slow(body: &[u8], limits: Limits, strict: bool) -> Reading {
    let mut reading = Reading::default();
    let mut block = Block::default();
    let mut at = if body.starts_with(b"\xEF\xBB\xBF") {
        3
    } else {
        0
    };
    while at < body.len() {
        let start = at;
        while at < body.len() && body[at] != b'\n' && body[at] != b'\r' {
            at += 1;
        }
        let line = &body[start..at];
        let ended = at < body.len();
        if ended {
            at += if body[at..].starts_with(b"\r\n") {
                2
            } else {
                1
            };
        }
        reading.fault = too_long(line, block.size, limits).or_else(|| {
            if strict {
                not_utf8(line, start, ended)
            } else {
                None
            }
        });
        if reading.fault.is_some() {
            return reading;
        }
        block.raw.extend_from_slice(&body[start..at]);
        if line.first() != Some(&b':') {
            block.size += line.len();
        }
        if line.is_empty() && ended {
            dispatch(std::mem::take(&mut block), &mut reading);
        } else {
            note(line, &mut block, &mut reading);
        }
    }
    if block.size > 0 {
        let dropped = block.raw.len().saturating_sub(MAX_RAW_TAIL);
        let tail = block.raw[dropped..].to_vec();
        reading.left = Some((
            block.name,
            block.data.unwrap_or_default(),
            tail,
            dropped as u64,
        ));
    }
    reading
}

fn too_long(line: &[u8], before: usize, limits: Limits) -> Option<Fault> {
    (1..=line.len()).find_map(|len| {
        if len > limits.line {
            Some(Fault::LineTooLong(limits.line))
        } else if line[0] != b':' && before + len > limits.event {
            Some(Fault::EventTooLong(limits.event))
        } else {
            None
        }
    })
}

fn not_utf8(line: &[u8], start: usize, ended: bool) -> Option<Fault> {
    let error = std::str::from_utf8(line).err()?;
    let bad = ended || error.error_len().is_some();
    bad.then(|| Fault::NotUtf8((start + error.valid_up_to()) as u64))
}

fn note(line: &[u8], block: &mut Block, reading: &mut Reading) {
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = match colon {
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None => (line, &line[line.len()..]),
    };
    let value = value.strip_prefix(b" ").unwrap_or(value);
    match name {
        b"data" => match &mut block.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => block.data = Some(value.to_vec()),
        },
        b"event" => block.name = value.to_vec(),
        b"id" if !value.contains(&0) => block.id = Some(value.to_vec()),
        b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
            let digits = std::str::from_utf8(value).expect("digits");
            let retry_ms = digits.parse::<u128>().map_or(MAX_RETRY_MS, |number| {
                number.min(u128::from(MAX_RETRY_MS)) as u64
            });
            block.retry_ms = Some(retry_ms);
            reading.retry_ms = block.retry_ms;
        }
        _ => {}
    }
}

fn dispatch(block: Block, reading: &mut Reading) {
    if let Some(id) = &block.id {
        reading.last_event_id.clone_from(id);
    }
    if let Some(data) = block.data {
        let id = reading.last_event_id.clone();
        reading
            .events
            .push((block.name, data, block.id, id, block.retry_ms));
    }
}
