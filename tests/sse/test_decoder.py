"""The decoder: grammar beyond the conformance cases, limits, strict UTF-8, the end of a stream."""

import gc
import sys
import threading
from typing import Any

import pytest

from runlane.errors import FormatError, InvalidValueError, UsageError
from runlane.sse import SseDecoder, SseEncodingError, SseLimitError
from tests.sse.decoding import cut, decode, reading


def texts(decoder: SseDecoder, chunk: bytes) -> list[str]:
    """Feed one chunk and return the data of its events."""
    return [event.data for event in decoder.feed(chunk)]


def test_an_event_is_there_with_its_blank_line() -> None:
    """An event is returned by the feed that completes its blank line, not by a later one."""
    decoder = SseDecoder()
    assert texts(decoder, b"data: 1\n") == []
    assert texts(decoder, b"\n") == ["1"]
    assert texts(decoder, b"data: 2\n\nda") == ["2"]


def test_s1_characters_may_be_cut_anywhere() -> None:
    """A multi-byte text cut at every byte position gives the same event, without U+FFFD."""
    body = 'data: {"t":"é你😀"}\n\n'.encode()
    for place in range(len(body) + 1):
        (event,) = decode([body[:place], body[place:]])
        assert event.data == '{"t":"é你😀"}'
    assert [event.data for event in decode(cut(body, 1))] == ['{"t":"é你😀"}']


def test_s2_only_cr_and_lf_end_a_line() -> None:
    """U+2028, U+2029, U+0085, VT, FF and FS stay in the text."""
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    (event,) = decode([f"data: {text}\n\n".encode()])
    assert event.data == text


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_s2_s4_every_line_end_and_a_byte_order_mark_mean_the_same(end: bytes, mark: bytes) -> None:
    """LF, CRLF, CR and a leading byte order mark give the same three events at every cut."""
    body = mark + b"data: 1\n\nevent: x\ndata: 2\n\nid: 7\ndata: 3\n\n".replace(b"\n", end)
    for place in range(len(body) + 1):
        events = decode([body[:place], body[place:]])
        assert [(e.event, e.data, e.id) for e in events] == [
            ("message", "1", None),
            ("x", "2", None),
            ("message", "3", "7"),
        ]


def test_s3_a_cr_at_the_end_of_a_chunk_waits_for_the_next_byte() -> None:
    """A CR that ends a chunk ends its line only with the next byte or the end of the body."""
    decoder = SseDecoder()
    assert texts(decoder, b"data: a\r\r") == []
    assert texts(decoder, b"") == []
    assert texts(decoder, b"x") == ["a"]
    decoder = SseDecoder()
    assert texts(decoder, b"data: a\r\r") == []
    assert [event.data for event in decoder.close()] == ["a"]
    decoder = SseDecoder()
    assert texts(decoder, b"data: a\r\n\r") == []
    assert texts(decoder, b"\ndata: b\r\n\r\n") == ["a", "b"]


def test_s6_s8_spaces_and_empty_fields() -> None:
    """Exactly one space goes, a bare field is an empty line, and no data dispatches nothing."""
    decoder = SseDecoder()
    assert texts(decoder, b"data:a\ndata: b\ndata:  c\ndata\n\n") == ["a\nb\n c\n"]
    assert texts(decoder, b"event: ping\nid: 9\n\n") == []
    assert decoder.last_event_id == "9"
    (event,) = decoder.feed(b"data\n\n")
    assert (event.event, event.data, event.id, event.last_event_id) == ("message", "", None, "9")


def test_s8_an_id_counts_from_its_blank_line() -> None:
    """The id in force changes at the end of the block, not at its field."""
    decoder = SseDecoder()
    decoder.feed(b"id: 1\ndata: x\n")
    assert decoder.last_event_id == ""
    decoder.feed(b"\n")
    assert decoder.last_event_id == "1"


def test_s7_retry_is_cut_to_an_exact_number() -> None:
    """A retry time beyond 2**53 - 1 is read as that, and one with a sign or a unit not at all."""
    decoder = SseDecoder()
    (event,) = decoder.feed(b"retry: 99999999999999999999999\ndata: x\n\n")
    assert event.retry_ms == decoder.retry_ms == 2**53 - 1
    decoder.feed(b"retry: +5\nretry: 5s\nretry:\nretry: \xd9\xa3\n")
    assert decoder.retry_ms == 2**53 - 1
    decoder.feed(b"retry: 007\n")
    assert decoder.retry_ms == 7


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_s9_a_limit_is_the_last_length_that_passes(size: int) -> None:
    """A line of exactly the limit passes, one byte more fails, and so for an event."""
    line = b"data: 7890\n"
    assert decode(cut(line + b"\n", size), SseDecoder(max_line_bytes=10))
    decoder = SseDecoder(max_line_bytes=9)
    with pytest.raises(SseLimitError) as caught:
        decode(cut(line + b"\n", size), decoder)
    assert (caught.value.scope, caught.value.limit, caught.value.retryable) == ("line", 9, False)
    assert decode(cut(line * 2 + b"\n", size), SseDecoder(max_event_bytes=20))
    with pytest.raises(SseLimitError) as caught:
        decode(cut(line * 2 + b"\n", size), SseDecoder(max_event_bytes=19))
    assert (caught.value.scope, caught.value.limit) == ("event", 19)


def test_s5_s9_comments_count_for_the_line_only() -> None:
    """Comments never fill an event, but each is a line."""
    decoder = SseDecoder(max_line_bytes=10, max_event_bytes=7)
    assert texts(decoder, b": 3456789\n" * 100 + b"data: x\n\n") == ["x"]
    decoder.feed(b": 34567890a")
    assert isinstance(decoder.failure, SseLimitError)


def test_s9_a_limit_is_judged_while_the_line_grows() -> None:
    """A line over the limit fails before its end arrives, and what is held stays bounded."""
    decoder = SseDecoder(max_line_bytes=1 << 20)
    piece = b"x" * 65_536
    fed = 0
    while decoder.failure is None:
        decoder.feed(piece)
        fed += len(piece)
    assert fed == (1 << 20) + len(piece)
    with pytest.raises(SseLimitError):
        decoder.feed(piece)


def test_s10_a_limit_does_not_apply_to_a_chunk() -> None:
    """One chunk of 5 MiB with 5,000 events is delivered whole under a limit of 2 KiB."""
    body = (b"data: " + b"x" * 1024 + b"\n\n") * 5_000
    assert len(SseDecoder(2048, 2048).feed(body)) == 5_000


def test_s11_good_events_come_before_the_fault() -> None:
    """A fault is latched behind the good events of its chunk; feed and close raise it for ever."""
    decoder = SseDecoder(max_line_bytes=20)
    assert texts(decoder, b"data: 1\n\ndata: 2\n\n" + b"x" * 21 + b"\n\ndata: 3\n\n") == ["1", "2"]
    failure = decoder.failure
    assert isinstance(failure, SseLimitError)
    assert isinstance(failure, FormatError)
    for chunk in (b"", b"data: 4\n\n"):
        with pytest.raises(SseLimitError) as caught:
            decoder.feed(chunk)
        assert caught.value is failure
    with pytest.raises(SseLimitError) as caught:
        decoder.close()
    assert caught.value is failure
    assert decoder.incomplete is None


def test_a_line_of_2_mib_works_under_a_larger_limit() -> None:
    """A data line of 2 MiB in pieces of 1 KiB is one event."""
    body = b"data: " + b"x" * (2 << 20) + b"\n\n"
    (event,) = decode(cut(body, 1024), SseDecoder(16 << 20, 16 << 20))
    assert len(event.data) == 2 << 20


def test_a_line_of_1_mib_may_come_byte_by_byte() -> None:
    """A line of 1 MiB fed one byte at a time is one event."""
    body = b"data:" + b"x" * (1 << 20) + b"\n\n"
    (event,) = decode(cut(body, 1), SseDecoder(2 << 20, 2 << 20))
    assert len(event.data) == 1 << 20


def test_s22_bad_bytes_are_replaced_and_reading_goes_on() -> None:
    """By default a bad byte is U+FFFD, and later events still arrive."""
    events = decode([b"data: a\xffb\n\ndata: \xf0\x9f\x98\n\nid: \xff\ndata: ok\n\n"])
    assert [event.data for event in events] == ["a\ufffdb", "\ufffd", "ok"]
    assert events[-1].id == "\ufffd"


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_s22_strict_reading_names_the_first_bad_byte(size: int) -> None:
    """With strict UTF-8 the first bad byte is an error with its offset, comments included."""
    good = "data: é\n\n".encode()
    found = reading(cut(good + b": \xff\n\n" + good, size), SseDecoder(strict_utf8=True))
    assert [event[1] for event in found.events] == ["é"]
    assert found.failure == ("utf8", len(good) + 2)


def test_s22_strict_reading_forgives_a_cut_character_at_the_end() -> None:
    """A character that the end of the body cuts is incomplete; a bad byte there is an error."""
    decoder = SseDecoder(strict_utf8=True)
    decoder.feed("data: é".encode()[:-1])
    assert decoder.close() == []
    assert decoder.incomplete is not None
    assert decoder.incomplete.raw_tail == b"data: \xc3"
    decoder = SseDecoder(strict_utf8=True)
    decoder.feed(b"data: \xff")
    with pytest.raises(SseEncodingError):
        decoder.close()
    decoder = SseDecoder(strict_utf8=True)
    decoder.feed(b"data: 1\n\n: a comment is text too \xff")
    with pytest.raises(SseEncodingError):
        decoder.close()


@pytest.mark.parametrize("size", [1, 4, 100])
def test_s17_what_is_left_without_a_blank_line_is_reported(size: int) -> None:
    """A block cut by the end of the body is no event, but data, name and raw bytes are known."""
    decoder = SseDecoder()
    body = b'data: done\n\nevent: x\n: hb\ndata: {"x":\r\ndata: 1}'
    assert [event.data for event in decode(cut(body, size), decoder)] == ["done"]
    left = decoder.incomplete
    assert left is not None
    assert (left.event, left.data, left.dropped_bytes) == ("x", '{"x":\n1}', 0)
    assert left.raw_tail == body.partition(b"\n\n")[2]
    assert decoder.close() == []
    assert decoder.incomplete == left


@pytest.mark.parametrize("body", [b"", b"\n", b": hb", b": hb\n", b"data: 1\n\n", b"\xef\xbb\xbf", b"data: 1\r\r"])
def test_s18_a_whole_stream_leaves_nothing(body: bytes) -> None:
    """Nothing, or comments only, are not an incomplete event."""
    decoder = SseDecoder()
    decode([body], decoder)
    assert decoder.incomplete is None


@pytest.mark.parametrize("size", [1000, 65_536, 1_000_000])
def test_s19_the_raw_tail_is_bounded(size: int) -> None:
    """Of a long unfinished block the last 65,536 bytes are kept, and the missing ones counted."""
    decoder = SseDecoder()
    body = b"".join(b"data: %07d\n" % number for number in range(20_000))
    decode(cut(body, size), decoder)
    assert decoder.incomplete is not None
    assert decoder.incomplete.raw_tail == body[-65_536:]
    assert decoder.incomplete.dropped_bytes == len(body) - 65_536


def test_s5_endless_comments_hold_no_memory() -> None:
    """A block of nothing but comments may go on for ever."""
    decoder = SseDecoder()
    for _ in range(2_000):
        assert decoder.feed(b": heartbeat\n" * 100) == []
    assert decoder.feed(b"data: x\n\n")[0].data == "x"


@pytest.mark.parametrize("chunk", [bytearray(b"data"), memoryview(b"data"), "data", None, 5])
def test_only_bytes_are_fed(chunk: object) -> None:
    """Anything but bytes is misuse, and leaves the decoder as it was."""
    decoder = SseDecoder()
    decoder.feed(b"data: ")
    with pytest.raises(UsageError, match="chunk: must be bytes"):
        decoder.feed(chunk)  # type: ignore[arg-type]
    assert texts(decoder, b"x\n\n") == ["x"]


def test_a_closed_decoder_takes_nothing() -> None:
    """Feeding after close is misuse."""
    decoder = SseDecoder()
    decoder.close()
    with pytest.raises(UsageError, match="closed"):
        decoder.feed(b"data: x\n\n")


@pytest.mark.parametrize("name", ["max_line_bytes", "max_event_bytes"])
def test_limits_are_checked(name: str) -> None:
    """A limit is an int from 0 to 2**53 - 1; a bool or a float is misuse."""
    make: Any = SseDecoder
    for bad in (True, 1.5, "1"):
        with pytest.raises(UsageError, match=name):
            make(**{name: bad})
    for bad in (-1, 2**53, 10**30):
        with pytest.raises(InvalidValueError, match=name):
            make(**{name: bad})
    assert make(**{name: 2**53 - 1}).feed(b"data: x\n\n")
    assert make(**{name: 0}).feed(b"\n\n") == []


def test_events_do_not_keep_their_chunk_alive() -> None:
    """An event kept for long holds its own text, not the chunk it came in."""
    chunk = b"data: kept\n\n" + b": padding\n" * 100_000
    before = sys.getrefcount(chunk)
    decoder = SseDecoder()
    (event,) = decoder.feed(chunk)
    gc.collect()
    assert sys.getrefcount(chunk) == before
    assert event.data == "kept"


def test_decoders_in_threads_do_not_meet() -> None:
    """Threads that each read their own stream get their own events."""
    bodies = [b"".join(b"id: %d\ndata: %d-%d\n\n" % (n, t, n) for n in range(500)) for t in range(4)]
    found: dict[int, list[str]] = {}

    def work(number: int) -> None:
        found[number] = [event.data for event in decode(cut(bodies[number], 7))]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {t: [f"{t}-{n}" for n in range(500)] for t in range(4)}


def test_one_decoder_in_two_threads_never_breaks() -> None:
    """Two threads that wrongly feed one decoder get whole events or a RuntimeError, no crash."""
    decoder = SseDecoder()
    counts: list[int] = []

    def work() -> None:
        got = 0
        for _ in range(2_000):
            try:
                got += len(decoder.feed(b"data: x\n\n"))
            except RuntimeError:
                continue
        counts.append(got)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 2
    assert 0 < sum(counts) <= 4_000


def test_s5_a_comment_makes_no_event() -> None:
    """A line that begins with a colon is dropped, within a block too; a colon elsewhere is text."""
    decoder = SseDecoder()
    assert [event.data for event in decoder.feed(b":a\n\n: b\ndata: x\n:c\ndata::y\n\n:d\n\n")] == ["x\n:y"]
    assert decoder.close() == []
    assert decoder.incomplete is None


def test_s7_each_field_does_its_own() -> None:
    """Data appends, event and id replace, an id with NUL and a retry that is not all ASCII digits do not count."""
    body = (
        "event: a\nevent: b\nid: 1\nid: 2\nid: x\0\nretry: 5\nretry: 6x\nretry: \u0665\nretry: -1\nretry:\n"
        "data: one\ndata: two\nDATA: no\nunknown: no\n\n"
    ).encode()
    [event] = SseDecoder().feed(body)
    assert (event.event, event.id, event.last_event_id, event.retry_ms) == ("b", "2", "2", 5)
    assert event.data == "one\ntwo"
