"""The decoder against the oracle, and its laws."""

from hypothesis import example, given
from hypothesis import strategies as st

from runlane.sse import SseDecoder, encode_sse
from tests.oracles.sse import read
from tests.sse.decoding import BODIES, cut, cut_at, decode, reading

LIMITS = st.one_of(st.just(1_048_576), st.integers(0, 20))


@given(BODIES, st.lists(st.integers(0, 200)), LIMITS, LIMITS, st.integers(0, 1))
@example(b"\xef\xbb\n\n", [1], 1, 9, 0)
@example(b"data: 1\n\n: \xff", [], 99, 99, 1)
@example(b"data: a\r\n\r\ndata: b", [8, 9, 10], 7, 7, 1)
def test_any_cutting_means_what_the_oracle_says(
    body: bytes,
    places: list[int],
    line: int,
    event: int,
    strict: bool,  # noqa: FBT001
) -> None:
    """Whatever the cutting and the limits, events, fault, rest, id and retry are the oracle's."""
    expected = read(body, line, event, strict_utf8=bool(strict))
    chunks = cut_at(body, (place for place in places if place <= len(body)))
    found = reading(chunks, SseDecoder(line, event, bool(strict)))
    if expected.failure is not None:
        # What a decoder knows of a stream after its fault is no promise.
        assert (found.events, found.failure) == (expected.events, expected.failure)
        assert found.incomplete is None
    else:
        assert found == expected


@given(BODIES, st.integers(1, 4))
def test_small_pieces_give_the_events_of_the_whole(body: bytes, size: int) -> None:
    """Pieces of one to four bytes give the same events as the whole body."""
    assert decode(cut(body, size)) == decode([body])


@given(BODIES, BODIES)
def test_a_blank_line_makes_streams_add_up(first: bytes, second: bytes) -> None:
    """After a blank line the next bytes mean what they mean alone, but for the sticky id."""
    first = b"\n" + first + b"\n\n"
    alone = decode([b"\n" + second])
    together = decode([first + second])[len(decode([first])) :]
    assert [(event.event, event.data) for event in together] == [(event.event, event.data) for event in alone]


_LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=20)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.none() | _LINE,
    st.none() | _LINE,
    st.none() | st.integers(0, 2**53 - 1),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
def test_what_is_encoded_is_read_back(
    data: str, event: str | None, id_: str | None, retry_ms: int | None, comment: str | None
) -> None:
    """The decoder reads an encoded event back, with LF for every line end of the data."""
    frame = encode_sse(data, event=event, id=id_, retry_ms=retry_ms, comment=comment)
    decoder = SseDecoder()
    (found,) = decode([b"\n", frame], decoder)
    assert found.data == data.replace("\r\n", "\n").replace("\r", "\n")
    assert found.event == (event or "message")
    assert (found.id, found.last_event_id) == (id_, id_ or "")
    assert found.retry_ms == retry_ms
    assert decoder.incomplete is None


@given(BODIES)
def test_reading_is_total(body: bytes) -> None:
    """Whatever the bytes, events hold text that is valid and has no line end but LF."""
    for event in decode([body]):
        assert event.data.encode().decode() == event.data
        assert "\r" not in event.data
