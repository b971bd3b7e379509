"""`read_sse`: options, events, limits, cancellation, the end of a body, on both event loops."""

from collections.abc import AsyncIterator

import anyio
import pytest

from runlane.contracts import CancelToken
from runlane.errors import AbortedError, InvalidValueError, UsageError
from runlane.sse import (
    IncompleteSseEvent,
    SseEncodingError,
    SseEvent,
    SseLimitError,
    SseReader,
    SseReadOptions,
    StreamBusyError,
    read_sse,
)
from tests.sse.bodies import WAIT, Script
from tests.sse.decoding import cut, decode

pytestmark = pytest.mark.anyio


async def outcome(reader: SseReader) -> SseEvent | Exception:
    """Take one step and return its event or its error."""
    try:
        return await anext(reader)
    except Exception as error:  # noqa: BLE001 - the tests look at it
        return error


async def texts(reader: SseReader) -> list[str]:
    """Read to the end and return the data of the events."""
    return [event.data async for event in reader]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_a_body_is_read_as_the_decoder_reads_it(size: int) -> None:
    """The reader gives the decoder's events, its id and its retry time."""
    body = "id: 7\r\nretry: 5\r\ndata: é\r\n\r\n: hb\n\ndata: b\n\n".encode()
    async with read_sse(Script[bytes](*cut(body, size))) as reader:
        assert [event async for event in reader] == decode([body])
        assert (reader.last_event_id, reader.retry_ms, reader.incomplete) == ("7", 5, None)


async def test_the_id_to_resume_after_is_that_of_the_events_handed_out() -> None:
    """The reader's last event id never runs ahead of its consumer."""
    reader = read_sse(Script[bytes](b"id: 1\ndata: a\n\nid: 2\ndata: b\n\n", b"id: 3\n\n"))
    assert reader.last_event_id == ""
    await anext(reader)
    assert reader.last_event_id == "1"
    await anext(reader)
    assert reader.last_event_id == "2"
    assert await texts(reader) == []
    assert reader.last_event_id == "3"
    async with read_sse(Script[bytes](b"id: 1\ndata: a\n\nid: 2\ndata: b\n\n")) as reader:
        await anext(reader)
    assert reader.last_event_id == "1"


async def test_s20_options_are_taken_when_reading_is_asked_for() -> None:
    """A mapping is checked and copied at the call; changing it later changes nothing."""
    options: dict[str, object] = {"max_line_bytes": 100, "strict_utf8": True}
    reader = read_sse(Script[bytes](b"data: long enough\n\n"), options)
    options["max_line_bytes"] = 1
    assert await texts(reader) == ["long enough"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"unknown": 1}, UsageError),
        ({"idle_timeout_ms": 1}, UsageError),
        ({"signal": object()}, UsageError),
        ({"idle_timeout": "1"}, UsageError),
        ({"idle_timeout": True}, UsageError),
        ({"idle_timeout": -1}, InvalidValueError),
        ({"idle_timeout": float("nan")}, InvalidValueError),
        ({"max_line_bytes": 1.5}, UsageError),
        ({"max_event_bytes": -1}, InvalidValueError),
        ({"strict_utf8": 1}, UsageError),
        ({"on_incomplete": 1}, UsageError),
    ],
)
async def test_s20_bad_options_are_refused_at_the_call(options: dict[str, object], error: type[Exception]) -> None:
    """An unknown option, a wrong type or a number out of range is refused before any reading."""
    body = Script[bytes](b"")
    with pytest.raises(error):
        read_sse(body, options)
    assert body.started == 0


async def test_options_are_options_or_a_mapping() -> None:
    """Anything else is misuse."""
    with pytest.raises(UsageError, match="options"):
        read_sse(Script[bytes](), 5)  # type: ignore[arg-type]


async def test_an_async_callback_is_refused() -> None:
    """`on_incomplete` must be a plain function; an awaitable result is closed and refused."""

    async def report(incomplete: IncompleteSseEvent) -> None:
        raise AssertionError(incomplete)

    with pytest.raises(UsageError, match="on_incomplete"):
        SseReadOptions(on_incomplete=report)

    def hidden(incomplete: IncompleteSseEvent) -> object:
        return report(incomplete)

    with pytest.raises(UsageError, match="on_incomplete"):
        await texts(read_sse(Script[bytes](b"data: x"), {"on_incomplete": hidden}))


async def test_s11_events_before_a_limit_come_first() -> None:
    """Good, good, then the limit; the body is closed and the reader is over."""
    body = Script[bytes](b"data: 1\n\ndata: 2\n\n" + b"x" * 30, b"\n\ndata: 3\n\n")
    reader = read_sse(body, SseReadOptions(max_line_bytes=20))
    assert [(await anext(reader)).data for _ in range(2)] == ["1", "2"]
    assert isinstance(await outcome(reader), SseLimitError)
    assert body.closed == 1
    assert len(body.items) == 1
    assert isinstance(await outcome(reader), StopAsyncIteration)


async def test_s9_the_limit_bounds_what_is_read() -> None:
    """64 MiB without a line end are given up after the limit and one chunk."""
    chunks = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal chunks
        while True:
            chunks += 1
            yield b"x" * 65_536

    async with read_sse(body()) as reader:
        assert isinstance(await outcome(reader), SseLimitError)
    assert chunks == 17


async def test_s22_strict_utf8_is_an_option() -> None:
    """By default a bad byte is replaced; strict reading raises behind the good events."""
    chunk = b"data: 1\n\ndata: \xff\n\ndata: 3\n\n"
    assert await texts(read_sse(Script[bytes](chunk))) == ["1", "\ufffd", "3"]
    reader = read_sse(Script[bytes](chunk), {"strict_utf8": True})
    assert (await anext(reader)).data == "1"
    assert isinstance(await outcome(reader), SseEncodingError)


async def test_s14_tripping_between_two_steps_discards_the_chunk() -> None:
    """Of three events in one chunk the second and third never appear after the token tripped."""
    token, reason = CancelToken(), KeyError("why")
    body = Script[bytes](b"data: 1\n\ndata: 2\n\ndata: 3\n\n" + b"x" * 99)
    reader = read_sse(body, SseReadOptions(signal=token, max_line_bytes=20))
    assert (await anext(reader)).data == "1"
    token.cancel(reason)
    assert await outcome(reader) is reason
    assert body.closed == 1
    assert isinstance(await outcome(reader), StopAsyncIteration)
    assert reader.last_event_id == ""


async def test_what_was_read_already_can_be_had_at_once() -> None:
    """The rest of a chunk is handed out without a step, once; nothing before the first step, nor what is not read."""
    reader = read_sse(Script[bytes](b"id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: c\n\nda", b"ta: d\n\n"))
    assert reader.take_ready() == []
    assert (await anext(reader)).data == "a"
    assert [event.data for event in reader.take_ready()] == ["b", "c"]
    assert (reader.last_event_id, reader.take_ready()) == ("3", [])
    assert await texts(reader) == ["d"]
    assert reader.take_ready() == []


async def test_s14_a_tripped_token_keeps_what_was_read_already() -> None:
    """Of three events in one chunk the second and third cannot be had at once either."""
    token = CancelToken()
    reader = read_sse(Script[bytes](b"data: 1\n\ndata: 2\n\ndata: 3\n\n"), SseReadOptions(signal=token))
    assert (await anext(reader)).data == "1"
    token.cancel()
    assert reader.take_ready() == []
    assert isinstance(await outcome(reader), AbortedError)
    assert reader.take_ready() == []


async def test_s14_tripping_while_waiting_raises_the_reason() -> None:
    """The body unwinds and is closed, then the reason is raised, once and untouched."""
    token, reason = CancelToken(), KeyError("why")
    body = Script[bytes](b"data: 1\n\n", WAIT, b"data: 2\n\n")
    seen: list[object] = []

    async def read() -> None:
        async with read_sse(body, SseReadOptions(signal=token)) as reader:
            seen.extend([(await anext(reader)).data, await outcome(reader), body.unwound])
            seen.append(type(await outcome(reader)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await body.waiting.wait()
        token.cancel(reason)
    assert seen == ["1", reason, True, StopAsyncIteration]
    assert (reason.__cause__, reason.__context__) == (None, None)
    assert body.closed == 1


async def test_s14_a_token_tripped_before_leaves_the_body_alone() -> None:
    """Nothing is read, and the body is closed."""
    token = CancelToken()
    token.cancel()
    body = Script[bytes](b"data: 1\n\n")
    assert isinstance(await outcome(read_sse(body, {"signal": token})), AbortedError)
    assert (body.started, body.closed) == (0, 1)


@pytest.mark.parametrize("ready", [True, False])
async def test_s15_an_enclosing_cancellation_wins_over_the_reason(ready: int) -> None:
    """Tripped and cancelled while the consumer held an event: the loop's cancellation leaves."""
    token, seen = CancelToken(), list[object]()
    body = Script[bytes](b"data: 1\n\n" * (1 + ready), b"data: 2\n\n")
    with anyio.CancelScope() as scope:
        reader = read_sse(body, {"signal": token})
        await anext(reader)
        token.cancel()
        scope.cancel()
        seen.append(await outcome(reader))
    assert seen == []
    assert scope.cancelled_caught
    assert body.closed == 1


async def test_s15_an_enclosing_cancellation_is_seen_before_the_body_is_asked() -> None:
    """A body that never waits cannot keep a cancelled task running."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"data: x\n\n"

    seen = 0
    with anyio.CancelScope() as scope:
        async with read_sse(endless()) as reader:
            async for _ in reader:
                seen += 1
                scope.cancel()
    assert seen == 1
    assert scope.cancelled_caught


async def test_s16_a_failure_of_the_body_passes_unchanged() -> None:
    """After all events of earlier chunks the body's own error is raised, the same object."""
    error = ConnectionError("reset")
    for options in (None, {"signal": CancelToken(), "idle_timeout": 60}):
        body = Script[bytes](b"data: 1\n\ndata: 2\n\ndata: ", error)
        reader = read_sse(body, options)
        assert [(await anext(reader)).data for _ in range(2)] == ["1", "2"]
        assert await outcome(reader) is error
        assert (error.__cause__, error.__context__) == (None, None)
        assert body.closed == 1
        assert reader.incomplete is None


async def test_s17_an_unfinished_event_is_reported_and_not_dispatched() -> None:
    """A body cut before the blank line gives no event, but says what was left, once."""
    told = list[IncompleteSseEvent]()
    body = Script[bytes](b'data: {"x":1}')
    reader = read_sse(body, SseReadOptions(on_incomplete=told.append))
    assert await texts(reader) == []
    assert reader.incomplete is not None
    assert (reader.incomplete.data, reader.incomplete.raw_tail) == ('{"x":1}', b'data: {"x":1}')
    assert isinstance(await outcome(reader), StopAsyncIteration)
    assert told == [reader.incomplete]


async def test_s18_a_whole_body_reports_nothing() -> None:
    """A held-back CR at the end dispatches its event, and comments are not left over."""
    told = list[IncompleteSseEvent]()
    for tail in (b"data: 1\r\r", b"data: 1\n\n: bye"):
        reader = read_sse(Script[bytes](tail), {"on_incomplete": told.append})
        assert await texts(reader) == ["1"]
        assert reader.incomplete is None
    assert told == []


async def test_s19_what_the_report_raises_leaves_the_reader() -> None:
    """An exception from `on_incomplete` propagates and ends the reading."""
    error = LookupError("cut")

    def report(incomplete: IncompleteSseEvent) -> None:
        assert incomplete.data == "x"
        raise error

    body = Script[bytes](b"data: x")
    reader = read_sse(body, {"on_incomplete": report})
    assert await outcome(reader) is error
    assert body.closed == 1
    assert isinstance(await outcome(reader), StopAsyncIteration)


async def test_s21_every_end_closes_the_body_once() -> None:
    """The end of the body, leaving early and aclose close it; a step afterwards is the end."""
    body = Script[bytes](b"data: 1\n\n")
    reader = read_sse(body)
    assert await texts(reader) == ["1"]
    await reader.aclose()
    assert body.closed == 1
    body = Script[bytes](b"data: 1\n\ndata: 2\n\n")
    async with read_sse(body) as reader:
        await anext(reader)
    assert body.closed == 1
    assert isinstance(await outcome(reader), StopAsyncIteration)


async def test_a_second_reader_is_refused() -> None:
    """Two steps at once: the second is misuse, the first is unharmed."""
    body = Script[bytes](WAIT, b"data: 1\n\n")
    reader = read_sse(body)
    seen = []

    async def read() -> None:
        seen.append((await anext(reader)).data)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await body.waiting.wait()
        assert isinstance(await outcome(reader), StreamBusyError)
        with pytest.raises(StreamBusyError):
            await reader.aclose()
        body.go.set()
    assert seen == ["1"]


async def test_a_body_of_text_is_misuse() -> None:
    """A body that yields anything but bytes is refused, and closed."""
    body = Script[bytes]("data: 1\n\n")
    assert isinstance(await outcome(read_sse(body)), UsageError)
    assert body.closed == 1


async def test_s15_an_abort_hides_a_limit_further_on() -> None:
    """The reason of a token that trips before the fault is reached is what the consumer sees."""
    token, reason = CancelToken(), KeyError("why")
    body = Script[bytes](b"data: good\n\n" + b"data: " + b"x" * 100 + b"\n\n")
    async with read_sse(body, SseReadOptions(signal=token, max_line_bytes=50)) as reader:
        assert (await anext(reader)).data == "good"
        token.cancel(reason)
        with pytest.raises(KeyError) as caught:
            await anext(reader)
    assert caught.value is reason
