"""Events and incomplete events as values, and the encoder."""

import copy
import pickle
from typing import Any

import pytest

from runlane.errors import InvalidValueError, UsageError
from runlane.sse import IncompleteSseEvent, SseEvent, encode_sse

EVENT = SseEvent(event="delta", data="é\n", id="7", last_event_id="7", retry_ms=5)
LEFT = IncompleteSseEvent(data="d", event="e", raw_tail=b"data: d", dropped_bytes=3)


def test_an_event_has_defaults() -> None:
    """Only data must be given."""
    event = SseEvent(data="x")
    assert (event.event, event.data, event.id, event.last_event_id, event.retry_ms) == (
        "message",
        "x",
        None,
        "",
        None,
    )
    left = IncompleteSseEvent(data="x", raw_tail=b"")
    assert (left.event, left.dropped_bytes) == ("message", 0)


@pytest.mark.parametrize("value", [EVENT, LEFT, SseEvent(data="")])
def test_values_copy_and_pickle(value: object) -> None:
    """A value that was copied or pickled is equal and hashes alike."""
    twins = [copy.copy(value), copy.deepcopy(value)]
    twins += [pickle.loads(pickle.dumps(value, protocol)) for protocol in range(2, 6)]  # noqa: S301
    for twin in twins:
        assert twin == value
        assert hash(twin) == hash(value)


@pytest.mark.parametrize(
    "change", [{"event": "x"}, {"data": "x"}, {"id": None}, {"last_event_id": "x"}, {"retry_ms": 6}]
)
def test_events_differ_in_any_field(change: dict[str, Any]) -> None:
    """Two events are equal only if all fields are."""
    fields: dict[str, Any] = {name: getattr(EVENT, name) for name in SseEvent.__match_args__}
    assert SseEvent(**fields) == EVENT
    assert SseEvent(**fields | change) != EVENT


def test_values_are_no_other_kind() -> None:
    """An event equals only events."""
    assert EVENT != ("delta", "é\n", "7", "7", 5)
    assert SseEvent(data="d") != LEFT
    assert EVENT is not None


def test_values_are_immutable_and_final() -> None:
    """Fields cannot be set, and the classes cannot be extended."""
    for value in (EVENT, LEFT):
        with pytest.raises(AttributeError):
            value.data = "y"  # type: ignore[misc]
        with pytest.raises(AttributeError):
            value.more = 1  # type: ignore[union-attr]
    with pytest.raises(TypeError):
        type("Mine", (SseEvent,), {})


def test_values_show_their_fields() -> None:
    """The repr names every field."""
    assert repr(EVENT) == ("SseEvent(event='delta', data='é\\n', id='7', last_event_id='7', retry_ms=5)")
    assert repr(LEFT) == ("IncompleteSseEvent(data='d', event='e', raw_tail=b'data: d', dropped_bytes=3)")


def test_an_event_can_be_matched() -> None:
    """Fields match by position in the order of the class."""
    match EVENT:
        case SseEvent(name, data, id_, last, retry_ms):
            assert (name, data, id_, last, retry_ms) == ("delta", "é\n", "7", "7", 5)


@pytest.mark.parametrize(
    ("field", "bad"),
    [("data", b"x"), ("event", 5), ("id", 7), ("last_event_id", 7), ("retry_ms", "5"), ("retry_ms", True)],
)
def test_wrong_types_are_misuse(field: str, bad: object) -> None:
    """A field of the wrong type is refused by its name, in events and when encoding."""
    make: Any = SseEvent
    with pytest.raises(UsageError, match=rf"^{field}: must be an? "):
        make(**{"data": "x", field: bad})


def test_retry_is_bounded() -> None:
    """A retry time is from 0 to 2**53 - 1."""
    for bad in (-1, 2**53):
        with pytest.raises(InvalidValueError, match="retry_ms"):
            SseEvent(data="", retry_ms=bad)
        with pytest.raises(InvalidValueError, match="retry_ms"):
            encode_sse("", retry_ms=bad)


def test_every_field_is_written() -> None:
    """Comment, event, id, retry and data are written in this order, one line each."""
    assert encode_sse("a\nb", event="delta", id="7", retry_ms=1500, comment="c\nd") == (
        b": c\n: d\nevent: delta\nid: 7\nretry: 1500\ndata: a\ndata: b\n\n"
    )
    assert encode_sse("é") == "data: é\n\n".encode()
    assert encode_sse(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert encode_sse(data="x", event="") == b"data: x\n\n"
    assert encode_sse("", id="") == b"id: \ndata: \n\n"
    assert encode_sse(comment="keep-alive") == b": keep-alive\n\n"
    assert encode_sse("\r\n\n\r x") == b"data: \ndata: \ndata: \ndata:  x\n\n"


@pytest.mark.parametrize("field", ["event", "id"])
@pytest.mark.parametrize("bad", ["a\nb", "a\r", "\0", "\r\ndata: smuggled"])
def test_names_and_ids_cannot_smuggle_lines(field: str, bad: str) -> None:
    """CR, LF and NUL are refused in event names and ids."""
    fields: dict[str, Any] = {field: bad}
    with pytest.raises(InvalidValueError, match=rf"^{field}: must not hold CR, LF or NUL"):
        encode_sse("x", **fields)


@pytest.mark.parametrize("field", ["data", "event", "id", "comment"])
def test_what_is_not_utf8_is_refused(field: str) -> None:
    """A lone surrogate is refused by the name of its field, and so are data bytes that are bad."""
    fields: dict[str, Any] = {field: "\ud83d"}
    with pytest.raises(InvalidValueError, match=rf"^{field}: "):
        encode_sse(**fields)
    with pytest.raises(InvalidValueError, match=r"^data: must be UTF-8"):
        encode_sse(b"\xff")


@pytest.mark.parametrize("field", ["data", "event", "id", "comment", "retry_ms"])
def test_encoding_refuses_other_types(field: str) -> None:
    """A field of the wrong type is misuse, and so is a frame with nothing in it."""
    fields: dict[str, Any] = {field: 1.5}
    with pytest.raises(UsageError, match=rf"^{field}: must be"):
        encode_sse(**fields)
    with pytest.raises(UsageError, match=r"^data: "):
        encode_sse()


def test_a_large_event_is_whole() -> None:
    """A megabyte of data is written and ends with one blank line."""
    frame = encode_sse("x" * 1_000_000, event="big")
    assert len(frame) == 1_000_000 + len(b"event: big\ndata: \n\n")
    assert frame.count(b"\n") == 3
