"""`abortable_stream`: pass-through, the reason, precedence and clean-up, on both event loops."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from typing_extensions import override

from runlane.contracts import CancelToken
from runlane.errors import AbortedError, UsageError
from runlane.sse import AbortableStream, StreamBusyError, _closing, abortable_stream
from tests.sse.bodies import WAIT, Script

pytestmark = pytest.mark.anyio


async def reason_of(stream: AbortableStream[Any]) -> Exception:
    """Take one step, which must fail, and return its error."""
    try:
        item = await anext(stream)
    except Exception as error:  # noqa: BLE001 - the tests look at it
        return error
    raise AssertionError(item)


async def test_t1_items_keep_order_and_identity() -> None:
    """What goes in comes out, the same objects in the same order."""
    items = [object(), object(), object()]
    for token in (None, CancelToken()):
        async with abortable_stream(Script[object](*items), token) as stream:
            found = [item async for item in stream]
        assert all(a is b for a, b in zip(found, items, strict=True))


async def test_t2_a_token_tripped_before_leaves_the_source_alone() -> None:
    """The reason is raised and iteration of the source never starts."""
    source, token = Script[int](1), CancelToken()
    reason = KeyError("why")
    token.cancel(reason)
    assert await reason_of(abortable_stream(source, token)) is reason
    assert source.started == 0


async def test_t3_tripping_stops_a_wait_after_the_source_unwound() -> None:
    """The wait is cancelled, the source's clean-up runs, then the reason is raised."""
    source, token = Script[int](1, WAIT, 2), CancelToken()
    reason = KeyError("why")
    steps: list[object] = []

    async def read() -> None:
        async with abortable_stream(source, token) as stream:
            steps.append(await anext(stream))
            steps.append(await reason_of(stream))
            steps.append(source.unwound)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await source.waiting.wait()
        token.cancel(reason)
    assert steps == [1, reason, True]
    assert source.closed == 1


async def test_t3_the_reason_is_raised_as_the_caller_left_it() -> None:
    """Neither cause nor context of the reason are touched, and a plain reason is wrapped once."""
    reason, cause = KeyError("why"), ValueError("cause")
    reason.__cause__ = cause
    token = CancelToken()
    stream = abortable_stream(Script[int](1, 2), token)
    await anext(stream)
    token.cancel(reason)
    assert await reason_of(stream) is reason
    assert (reason.__cause__, reason.__context__) == (cause, None)
    token = CancelToken()
    token.cancel("user")
    error = await reason_of(abortable_stream(Script[int](1), token))
    assert isinstance(error, AbortedError)
    assert error.reason == "user"
    assert await reason_of(abortable_stream(Script[int](1), token)) is error


async def test_t4_tripping_while_an_item_is_held_hides_the_rest() -> None:
    """The next step raises, even if the source has items ready."""
    source, token = Script[int](1, 2, 3), CancelToken()
    async with abortable_stream(source, token) as stream:
        assert await anext(stream) == 1
        token.cancel()
        assert isinstance(await reason_of(stream), AbortedError)
    assert source.items == [2, 3]


class AnswersAnAbort:
    """A source that meets its cancellation with an answer of its own."""

    def __init__(self, token: CancelToken, answer: Exception | int, reason: Exception) -> None:
        self.token, self.answer, self.reason = token, answer, reason

    def __aiter__(self) -> "AnswersAnAbort":
        return self

    async def __anext__(self) -> int:
        self.token.cancel(self.reason)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [1, StopAsyncIteration(), ValueError("its own"), KeyError("why")])
async def test_t5_the_reason_wins_over_what_the_source_does_then(answer: Exception | int) -> None:
    """An item, a silent end, or an error in the same moment: the reader gets the reason."""
    token, reason, told = CancelToken(), RuntimeError("why"), list[Exception]()
    source = AnswersAnAbort(token, answer, reason)
    assert await reason_of(abortable_stream(source, token, on_cleanup_error=told.append)) is reason
    assert told == ([answer] if isinstance(answer, (ValueError, KeyError)) else [])


async def test_t5_the_reason_raised_by_the_source_itself_is_no_cleanup_error() -> None:
    """A source that raises the token's own error is not reported for it."""
    token, reason, told = CancelToken(), RuntimeError("why"), list[Exception]()
    source = AnswersAnAbort(token, reason, reason)
    assert await reason_of(abortable_stream(source, token, on_cleanup_error=told.append)) is reason
    assert told == []


async def test_t6_t11_a_source_fails_and_ends_unchanged() -> None:
    """Without a tripped token an error is the same object and an end is an end."""
    error = ValueError("source")
    for token in (None, CancelToken()):
        stream = abortable_stream(Script[int](1, error, 2), token)
        assert await anext(stream) == 1
        assert await reason_of(stream) is error
        assert error.__cause__ is None
        assert error.__context__ is None
        assert isinstance(await reason_of(stream), StopAsyncIteration)


async def test_t7_cleanup_errors_are_reported_and_never_raised() -> None:
    """An error while unwinding, in aclose, or in the report itself never reaches the reader."""

    class Messy(Script[int]):
        @override
        async def aclose(self) -> None:
            await super().aclose()
            raise LookupError("close")

    token, reason, told = CancelToken(), RuntimeError("why"), list[Exception]()

    def report(error: Exception) -> None:
        told.append(error)
        raise ValueError("report")

    source = Messy(1, 2)
    stream = abortable_stream(source, token, on_cleanup_error=report)
    await anext(stream)
    token.cancel(reason)
    assert await reason_of(stream) is reason
    await stream.aclose()
    assert [type(error) for error in told] == [LookupError]
    assert source.closed == 1


async def test_t7_c10_a_close_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing has a deadline, and the overrun is reported."""

    class Stuck(Script[int]):
        @override
        async def aclose(self) -> None:
            await anyio.sleep_forever()

    assert _closing.CLEANUP_TIMEOUT == 1.0
    monkeypatch.setattr(_closing, "CLEANUP_TIMEOUT", 0.01)
    told = list[Exception]()
    async with abortable_stream(Stuck(1), None, on_cleanup_error=told.append) as stream:
        await anext(stream)
    assert [type(error) for error in told] == [TimeoutError]


async def test_t8_the_reason_is_raised_once() -> None:
    """After any end the stream is over."""
    token = CancelToken()
    stream = abortable_stream(Script[int](1, 2), token)
    await anext(stream)
    token.cancel()
    assert isinstance(await reason_of(stream), AbortedError)
    for _ in range(2):
        assert isinstance(await reason_of(stream), StopAsyncIteration)


async def test_t9_a_second_reader_is_refused() -> None:
    """Two steps at once: the second is misuse, the first is unharmed."""
    source = Script[int](WAIT, 1)
    stream = abortable_stream(source, CancelToken())
    seen = []

    async def read() -> None:
        seen.append(await anext(stream))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await source.waiting.wait()
        second = await reason_of(stream)
        with pytest.raises(StreamBusyError):
            await stream.aclose()
        source.go.set()
    assert isinstance(second, StreamBusyError)
    assert isinstance(second, RuntimeError)
    assert isinstance(second, UsageError)
    assert seen == [1]


async def test_t10_leaving_early_closes_the_source_once() -> None:
    """Leaving the block or aclose closes a source that can be closed; any other is left alone."""
    source = Script[int](1, 2)
    async with abortable_stream(source, None) as stream:
        await anext(stream)
    await stream.aclose()
    assert source.closed == 1
    assert isinstance(await reason_of(stream), StopAsyncIteration)
    unread = Script[int](1)
    async with abortable_stream(unread, CancelToken()):
        pass
    assert (unread.started, unread.closed) == (0, 1)
    async with abortable_stream(AnswersAnAbort(CancelToken(), 1, KeyError()), None) as other:
        assert await anext(other) == 1


async def test_t10_c10_closing_works_inside_a_cancelled_scope() -> None:
    """A generator with awaits in its clean-up is closed although the scope is cancelled."""
    cleaned = []

    async def source() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            await anyio.lowlevel.checkpoint()
            cleaned.append(True)

    with anyio.CancelScope() as scope:
        async with abortable_stream(source(), CancelToken()) as stream:
            await anext(stream)
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert cleaned == [True]


@pytest.mark.parametrize("token_first", [True, False])
async def test_t12_an_enclosing_cancellation_wins_over_the_reason(token_first: int) -> None:
    """Tripped and cancelled while the reader held an item: the loop's cancellation leaves."""
    token, seen = CancelToken(), list[object]()
    with anyio.CancelScope() as scope:
        stream = abortable_stream(Script[int](1, 2), token)
        seen.append(await anext(stream))
        for cancel in (token.cancel, scope.cancel) if token_first else (scope.cancel, token.cancel):
            cancel()
        seen.append(await reason_of(stream))
    assert seen == [1]
    assert scope.cancelled_caught


@pytest.mark.parametrize("token_first", [True, False])
async def test_t12_an_enclosing_cancellation_wins_while_waiting(token_first: int) -> None:
    """Tripped and cancelled while the source waited: the loop's cancellation leaves."""
    source, token, seen = Script[int](WAIT), CancelToken(), list[object]()
    scope = anyio.CancelScope()

    async def read() -> None:
        with scope:
            seen.append(await reason_of(abortable_stream(source, token)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await source.waiting.wait()
        for cancel in (token.cancel, scope.cancel) if token_first else (scope.cancel, token.cancel):
            cancel()
    assert seen == []
    assert scope.cancelled_caught
    assert (source.unwound, source.closed) == (True, 1)


async def test_t7_a_cleanup_report_must_be_a_plain_function() -> None:
    """An async callback is refused when it is given."""

    async def report(error: Exception) -> None:
        raise error

    for bad in (report, 5):
        with pytest.raises(UsageError, match="on_cleanup_error"):
            abortable_stream(Script[int](), None, on_cleanup_error=bad)  # type: ignore[arg-type]


async def test_t11_without_a_token_a_source_passes_through() -> None:
    """Its items and errors (T6), an end for good (T8), one reader at a time (T9), closed once (T10)."""
    error = ValueError("source")
    held = Script[int](1, error, 2)
    async with abortable_stream(held, None) as stream:
        assert await anext(stream) == 1
        assert await reason_of(stream) is error
        for _ in range(2):
            assert isinstance(await reason_of(stream), StopAsyncIteration)

    waiting = abortable_stream(Script[int](WAIT, 1), None)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anext, waiting)
            await anyio.wait_all_tasks_blocked()
            assert isinstance(await reason_of(waiting), StreamBusyError)
            scope.cancel()
    await waiting.aclose()
    await waiting.aclose()
