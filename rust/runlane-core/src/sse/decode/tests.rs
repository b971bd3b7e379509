use super::*;
use crate::sse::MAX_RAW_TAIL;

const WIDE: Limits = Limits {
    line: 1 << 20,
    event: 1 << 20,
};

/// An event with its bytes copied out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: Vec<u8>,
    data: Vec<u8>,
    id: Option<Vec<u8>>,
    last_event_id: Vec<u8>,
    retry_ms: Option<u64>,
}

/// Everything a stream gives, read in pieces of one size.
fn read(body: &[u8], size: usize, limits: Limits, strict: bool) -> (Vec<Seen>, Decoder) {
    let mut decoder = Decoder::new(limits, strict);
    let mut seen = Vec::new();
    let mut emit = |event: &Event<'_>| {
        seen.push(Seen {
            name: event.name.to_vec(),
            data: event.data.to_vec(),
            id: event.id.map(<[u8]>::to_vec),
            last_event_id: event.last_event_id.to_vec(),
            retry_ms: event.retry_ms,
        });
    };
    for chunk in body.chunks(size) {
        // As the binding does: a byte that comes alone first goes this way.
        let is_taken = matches!(chunk, [byte] if decoder.take_byte(*byte));
        if !is_taken {
            decoder.feed(chunk, &mut emit);
        }
    }
    decoder.close(&mut emit);
    (seen, decoder)
}

/// The data of the events, which must be the same in pieces of any size up to the whole.
fn data(body: &[u8], limits: Limits) -> (Vec<String>, Option<Fault>) {
    let (whole, decoder) = read(body, body.len().max(1), limits, false);
    for size in 1..body.len() {
        let (pieces, other) = read(body, size, limits, false);
        assert_eq!(
            (&pieces, other.fault()),
            (&whole, decoder.fault()),
            "in pieces of {size}"
        );
        if decoder.fault().is_none() {
            assert_eq!(
                other.incomplete(),
                decoder.incomplete(),
                "in pieces of {size}"
            );
        }
    }
    let texts = whole
        .iter()
        .map(|event| String::from_utf8_lossy(&event.data).into_owned());
    (texts.collect(), decoder.fault())
}

#[test]
fn line_ends_and_byte_order_marks() {
    for end in ["\n", "\r", "\r\n"] {
        for mark in ["", "\u{feff}"] {
            let body = format!("{mark}data: 1\n\n: hb\ndata: 2\ndata: 3\n\n").replace('\n', end);
            assert_eq!(data(body.as_bytes(), WIDE).0, ["1", "2\n3"]);
        }
    }
    assert_eq!(data(b"\xEF\xBBdata: 1\n\ndata: 2\n\n", WIDE).0, ["2"]);
    assert_eq!(
        data("\u{feff}\u{feff}data: 1\n\ndata: 2\n\n".as_bytes(), WIDE).0,
        ["2"]
    );
}

#[test]
fn data_that_spans_chunks_is_joined() {
    let (events, _) = data(b"data: a\ndata\ndata:b\ndata:  c\n\ndata: d\n\n", WIDE);
    assert_eq!(events, ["a\n\nb\n c", "d"]);
}

#[test]
fn ids_stick_and_names_do_not() {
    let (events, decoder) = read(
        b"id: 7\nevent: x\ndata: 1\n\ndata: 2\n\nid\n\n",
        3,
        WIDE,
        false,
    );
    assert_eq!(events[0].id.as_deref(), Some(&b"7"[..]));
    assert_eq!(events[0].name, b"x");
    assert_eq!(
        (&events[1].id, events[1].last_event_id.as_slice()),
        (&None, &b"7"[..])
    );
    assert_eq!(events[1].name, b"");
    assert_eq!(decoder.last_event_id(), b"");
}

#[test]
fn the_limit_passed_first_is_named() {
    let both = Limits { line: 8, event: 10 };
    assert_eq!(
        data(b"data: 1\n\ndata: 12\n\n", both),
        (vec!["1".into(), "12".into()], None)
    );
    assert_eq!(data(b"data: 123\n\n", both).1, Some(Fault::LineTooLong(8)));
    assert_eq!(
        data(b"data:1\ndata:12\n\n", both).1,
        Some(Fault::EventTooLong(10))
    );
    assert_eq!(
        data(b"data:1\n: comment", both).1,
        Some(Fault::LineTooLong(8))
    );
    assert_eq!(data(b"data:1\n: commen\n\n", both).0, ["1"]);
    let none = Limits { line: 0, event: 0 };
    assert_eq!(data(b"\n\r\n\n", none), (Vec::new(), None));
    assert_eq!(data(b"\n:", none).1, Some(Fault::LineTooLong(0)));
}

#[test]
fn a_fault_stops_the_reading_for_good() {
    let tight = Limits { line: 9, event: 99 };
    let (events, mut decoder) = read(b"data: 1\n\ndata: 1234\n\ndata: 2\n\n", 64, tight, false);
    assert_eq!(events.len(), 1);
    decoder.feed(b"data: 3\n\n", |_| panic!("an event after a fault"));
    decoder.close(|_| panic!("an event after a fault"));
    assert_eq!(decoder.incomplete(), None);
    assert!(decoder.line.capacity() == 0 && decoder.block.data.capacity() == 0);
}

#[test]
fn strict_reading_gives_the_offset_in_the_stream() {
    let body = b"\xEF\xBB\xBFdata: \xC3\xA9\n\r\ndata: ab\xFFc\n\n";
    for size in 1..body.len() {
        let (events, decoder) = read(body, size, WIDE, true);
        assert_eq!(
            (events.len(), decoder.fault()),
            (1, Some(Fault::NotUtf8(22)))
        );
    }
    assert_eq!(read(body, 4, WIDE, false).0.len(), 2);
    let comment = b"data: 1\n\n: \xFF";
    assert_eq!(
        read(comment, 4, WIDE, true).1.fault(),
        Some(Fault::NotUtf8(11))
    );
}

#[test]
fn what_is_cut_is_reported_with_its_raw_bytes() {
    let body = b"data: 1\n\nevent: x\r\n: hb\ndata: {\r\ndata: 1}";
    for size in 1..=body.len() {
        let (_, decoder) = read(body, size, WIDE, false);
        let left = decoder.incomplete().unwrap();
        assert_eq!(
            (left.name.as_slice(), left.data.as_slice()),
            (&b"x"[..], &b"{\n1}"[..])
        );
        assert_eq!(
            (left.raw_tail.as_slice(), left.dropped_bytes),
            (&body[9..], 0)
        );
    }
    for whole in [
        &b""[..],
        b": hb",
        b"data: 1\r\r",
        b"id: 1\n\n",
        b"\xEF\xBB\xBF",
    ] {
        assert_eq!(read(whole, 1, WIDE, false).1.incomplete(), None);
    }
    let long = b"data: x\n".repeat(20_000);
    let (_, decoder) = read(&long, 1000, WIDE, false);
    let left = decoder.incomplete().unwrap();
    assert_eq!(left.raw_tail, long[long.len() - MAX_RAW_TAIL..]);
    assert_eq!(left.dropped_bytes, (long.len() - MAX_RAW_TAIL) as u64);
}

#[test]
fn large_buffers_are_given_back() {
    let mut decoder = Decoder::new(WIDE, false);
    let mut count = 0;
    let line = vec![b'x'; 600_000];
    decoder.feed(b"data: ", |_| count += 1);
    decoder.feed(&line, |_| count += 1);
    decoder.feed(b"\n\ndata: y\n\n", |_| count += 1);
    assert_eq!(count, 2);
    assert!(decoder.line.capacity() <= KEPT_CAPACITY);
    assert!(decoder.block.data.capacity() <= KEPT_CAPACITY);
}
