"""The steps of a reader: awaitables that take their event when they are awaited."""

import gc
import inspect
import weakref

import anyio
import pytest

from runlane.contracts import CancelToken
from runlane.errors import AbortedError
from runlane.sse import SseReader, SseReadOptions, read_sse
from tests.sse.bodies import WAIT, Script

pytestmark = pytest.mark.anyio

THREE = b"data: a\n\ndata: b\n\ndata: c\n\n"


async def started() -> SseReader:
    """A reader that has handed out the first of three events of one chunk."""
    reader = read_sse(Script[bytes](THREE))
    assert (await anext(reader)).data == "a"
    return reader


async def test_a_step_that_nobody_awaits_costs_no_event() -> None:
    """A step made and dropped, or kept while others are awaited, takes nothing."""
    reader = await started()
    kept = anext(reader)
    dropped = anext(reader)
    del dropped
    assert inspect.isawaitable(kept)
    assert (await anext(reader)).data == "b"
    assert (await kept).data == "c"


async def test_a_step_is_awaited_once() -> None:
    """A step that gave its event gives no other."""
    reader = await started()
    step = anext(reader)
    other = anext(reader)
    assert (await step).data == "b"
    with pytest.raises(RuntimeError, match="awaited once"):
        await step
    assert (await other).data == "c"


async def test_a_step_begun_by_hand_too_late_says_so() -> None:
    """Two steps begun before either was finished cannot both have the one event that is left."""
    reader = await started()
    await anext(reader)
    begun = [iter(anext(reader).__await__()) for _ in range(2)]
    with pytest.raises(StopIteration) as ended:
        next(begun[0])
    assert ended.value.value.data == "c"
    with pytest.raises(RuntimeError, match="taken by another"):
        next(begun[1])


async def test_a_task_cancelled_at_once_costs_no_event() -> None:
    """A task that is cancelled as it begins either has its event or leaves it to the next one."""
    reader = await started()
    found: list[str] = []

    async def take() -> None:
        found.append((await anext(reader)).data)

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        group.cancel_scope.cancel()
    assert found + [event.data async for event in reader] == ["b", "c"]


async def test_with_a_token_every_step_asks_it() -> None:
    """Events at hand are not handed out once the token was cancelled, whatever made the step."""
    token = CancelToken()
    reader = read_sse(Script[bytes](THREE), {"signal": token})
    assert (await anext(reader)).data == "a"
    step = anext(reader)
    token.cancel("enough")
    with pytest.raises(AbortedError):
        await step


async def test_events_come_over_many_chunks_and_waits() -> None:
    """Steps that find an event and steps that wait for one take turns, and no event is lost or doubled."""
    chunks = [f"data: {number}\n\n".encode() * (number % 4) for number in range(40)]
    body = Script[bytes](*(item for chunk in chunks for item in (chunk, WAIT)))
    expected = [str(number) for number in range(40) for _ in range(number % 4)]
    found: list[str] = []

    async def read() -> None:
        async with read_sse(body) as reader:
            found.extend([event.data async for event in reader])

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        for _ in chunks:
            await body.waiting.wait()
            body.waiting = anyio.Event()
            body.go.set()
    assert found == expected


class _Noted(SseReader):
    """A reader that a weak reference can point to."""

    __slots__ = ("__weakref__",)


async def test_a_reader_in_a_cycle_with_its_step_is_collected() -> None:
    """A step that was never awaited does not keep its reader alive for good."""
    reader = _Noted(Script[bytes](THREE), SseReadOptions())
    await anext(reader)
    step = anext(reader)
    noted = weakref.ref(reader)
    del reader, step
    gc.collect()
    assert noted() is None
