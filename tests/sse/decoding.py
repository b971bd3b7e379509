"""What the tests of event streams share: ways to feed a decoder, and streams for Hypothesis."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from hypothesis import strategies as st

from runlane.sse import SseDecoder, SseEncodingError, SseEvent, SseLimitError
from tests.oracles.sse import Reading


def cut(body: bytes, size: int) -> Iterator[bytes]:
    """Cut a body into pieces of one size."""
    return (body[at : at + size] for at in range(0, len(body), size))


def cut_at(body: bytes, places: Iterable[int]) -> list[bytes]:
    """Cut a body at the given places."""
    edges = [0, *sorted(places), len(body)]
    return [body[start:end] for start, end in pairwise(edges)]


def decode(chunks: Iterable[bytes], decoder: SseDecoder | None = None) -> list[SseEvent]:
    """Feed all chunks, close, and return the events."""
    decoder = decoder or SseDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.close()


def reading(chunks: Iterable[bytes], decoder: SseDecoder) -> Reading:
    """Feed all chunks, close, and return everything there is to know, as the oracle puts it."""
    result = Reading()
    try:
        for chunk in chunks:
            result.events += map(fields, decoder.feed(chunk))
        result.events += map(fields, decoder.close())
    except SseLimitError as error:
        result.failure = (error.scope, error.limit)
    except SseEncodingError as error:
        result.failure = ("utf8", error.offset)
    if decoder.incomplete is not None:
        left = decoder.incomplete
        result.incomplete = (left.data, left.event, left.raw_tail, left.dropped_bytes)
    result.last_event_id = decoder.last_event_id
    result.retry_ms = decoder.retry_ms
    return result


def fields(event: SseEvent) -> tuple[str, str, str | None, str, int | None]:
    """Return an event as the oracle writes it."""
    return event.event, event.data, event.id, event.last_event_id, event.retry_ms


VALUES = st.one_of(
    st.text(max_size=8).map(str.encode),
    st.sampled_from([b"", b" ", b"  x", b"\0", b"7", b"a:b", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f", b"0150"]),
    st.binary(max_size=6),
)
NAMES = st.sampled_from(
    [b"data", b"data", b"data", b"event", b"id", b"retry", b"", b"Data", b"datax", b"foo", b"\xef\xbb\xbfdata"]
)
LINES = st.one_of(
    st.just(b""),
    st.builds(lambda name, mark, value: name + mark + value, NAMES, st.sampled_from([b":", b": "]), VALUES),
    NAMES,
    VALUES,
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n"])
BODIES = st.builds(
    lambda mark, parts, rest: mark + b"".join(line + end for line, end in parts) + rest,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\xef\xbb", b"\xef\xbb\xbf\xef\xbb\xbf"]),
    st.lists(st.tuples(LINES, ENDS), max_size=12),
    st.one_of(st.just(b""), LINES),
)
"""Bodies rich in everything that the grammar tells apart."""
