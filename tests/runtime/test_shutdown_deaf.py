"""Closing while a model or a tool ignores that it is cancelled: every budget shape, again and again."""

import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
import pytest
from typing_extensions import override

from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ModelProviderContext,
    TextDelta,
)
from runlane.records import Run
from runlane.runtime import AgentRuntime, CloseResult
from runlane.store import MemoryStore
from runlane.store.sqlite import SqliteStore
from runlane.testing import FakeClock
from tests.fixture_files import REPOSITORY
from tests.runtime.deaf_process import CONVERSATIONS

pytestmark = pytest.mark.anyio

_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
_REPEATS = 100 if _DEEP else 2
_SETTLED = CloseResult(settled=True, timed_out=False, remaining=0)
_ONE_LEFT = CloseResult(settled=False, timed_out=True, remaining=1)


class _Deaf(Protocol):
    """Work that goes on until the test lets it go, whoever cancels it."""

    reached: anyio.Event

    def release(self) -> None: ...


@dataclass
class _DeafModel(ChatProvider):
    """A model that shields itself from its cancellation."""

    provider_id = "deaf"
    model_id = "deaf"
    reached: anyio.Event = field(default_factory=anyio.Event)
    _released: anyio.Event = field(default_factory=anyio.Event)

    def release(self) -> None:
        self._released.set()

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        async def parts() -> AsyncGenerator[ModelPart, None]:
            yield TextDelta("half ")
            self.reached.set()
            with anyio.CancelScope(shield=True):
                await self._released.wait()
            yield FinishReport("stop")

        stream = parts()
        try:
            yield stream
        finally:
            await stream.aclose()


class _Calling(ChatProvider):
    """A model that calls the tool and has nothing else to say."""

    provider_id = "calling"
    model_id = "calling"

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        async def parts() -> AsyncGenerator[ModelPart, None]:
            yield FunctionCallDelta(0, id="c", name="work", arguments="{}")
            yield FinishReport("tool-calls")

        stream = parts()
        try:
            yield stream
        finally:
            await stream.aclose()


@dataclass
class _DeafTool:
    """A tool that shields itself from its cancellation."""

    reached: anyio.Event = field(default_factory=anyio.Event)
    _released: anyio.Event = field(default_factory=anyio.Event)

    def release(self) -> None:
        self._released.set()

    async def work(self) -> str:
        """Work for as long as it takes."""
        self.reached.set()
        with anyio.CancelScope(shield=True):
            await self._released.wait()
        return "done"


def _begun(kind: str, store: MemoryStore, clock: FakeClock) -> tuple[_Deaf, AgentRuntime]:
    if kind == "model":
        model = _DeafModel()
        return model, AgentRuntime(store, model=model, clock=clock)
    deaf = _DeafTool()
    return deaf, AgentRuntime(store, model=_Calling(), tools=[deaf.work], clock=clock)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["model", "tool"])
@pytest.mark.parametrize(
    ("budgets", "returns_after"),
    [({}, None), ({"grace": 3.0}, None), ({"force": 2.0}, 2.0), ({"grace": 3.0, "force": 2.0}, 5.0)],
    ids=["neither", "grace", "force", "both"],
)
async def test_close_comes_back_in_time_whatever_ignores_it(
    kind: str, budgets: dict[str, float], returns_after: float | None
) -> None:
    """With `force` it comes back with one run at work, otherwise when that is over; then nothing is left running."""
    before = anyio.get_running_tasks()
    for _ in range(_REPEATS):
        clock, closed = FakeClock(), list[CloseResult]()
        async with MemoryStore(clock=clock) as store, anyio.create_task_group() as tasks:
            deaf, runtime = _begun(kind, store, clock)
            async with runtime:
                ticket = runtime.submit("c", "Go")
                await deaf.reached.wait()

                async def close(runtime: AgentRuntime, into: list[CloseResult]) -> None:
                    into.append(await runtime.close(**budgets))

                tasks.start_soon(close, runtime, closed)
                await clock.advance(1000.0 if returns_after is None else returns_after - 0.1)
                assert closed == []
                if returns_after is not None:
                    await clock.advance(0.2)
                    assert closed == [_ONE_LEFT]
                deaf.release()
                assert (await ticket.result).reason == "shutdown"
            assert await store.list_active_runs("c") == ()
        assert closed == [_SETTLED if returns_after is None else _ONE_LEFT]
    assert len(anyio.get_running_tasks()) == len(before)


@pytest.mark.parametrize("budgets", [{}, {"force": 5.0}], ids=["neither", "force"])
async def test_a_tool_that_blocks_its_thread_does_not_hold_a_close(budgets: dict[str, float]) -> None:
    """The thread is let go: the run ends as shutdown at once, whatever the thread does."""
    stands, let_go = threading.Event(), threading.Event()

    def work() -> str:
        """Block the thread."""
        stands.set()
        let_go.wait(60)
        return "late"

    try:
        async with MemoryStore() as store:
            async with AgentRuntime(store, model=_Calling(), tools=[work]) as runtime:
                ticket = runtime.submit("c", "Go")
                await anyio.to_thread.run_sync(stands.wait)
                with anyio.fail_after(30):
                    assert await runtime.close(**budgets) == _SETTLED
                assert (await ticket.result).reason == "shutdown"
            assert await store.list_active_runs("c") == ()
    finally:
        let_go.set()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.timeout(7200)
async def test_a_process_that_is_told_to_end_does(backend: str, tmp_path: Path) -> None:
    """SIGTERM while a model swallows cancellations, a tool blocks, a generator is suspended and the loop is busy.

    Under each shape of budgets the process ends, with exit code 0 and not a word of complaint; nothing is left running
    and every run ended as shutdown.
    """
    program = str(REPOSITORY / "tests" / "runtime" / "deaf_process.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY), *sys.path))}
    shapes: tuple[tuple[str, ...], ...] = ((), ("grace=0.1",), ("force=20",), ("grace=0.1", "force=20"))
    for number in range(_REPEATS):
        path = tmp_path / f"store-{number}.db"
        # The first and the last shape come first: a short round has the two that differ most.
        command = [sys.executable, "-X", "dev", program, str(path), backend, *shapes[-number % len(shapes)]]
        complaints = tmp_path / f"complaints-{number}.txt"
        with complaints.open("wb") as errors:
            async with await anyio.open_process(command, stderr=errors, env=environment) as process:
                words = await _said_until_its_end(process)
                with anyio.fail_after(60):
                    assert await process.wait() == 0
        assert complaints.read_text() == ""
        assert (words.count(b"closing"), words[-2:]) == (1, [b"closed", b"settled"])
        assert [run.terminal_reason for run in await _runs(path)] == ["shutdown"] * 3


async def _said_until_its_end(process: anyio.abc.Process) -> list[bytes]:
    """Read what a process says; once all of its work stands, tell it to end."""
    said = b""
    assert process.stdout is not None
    with anyio.fail_after(120):
        async for chunk in process.stdout:
            said += chunk
            if said.count(b"stands") >= len(CONVERSATIONS) and b"closing" not in said:
                process.send_signal(signal.SIGTERM)
    return said.split()


async def _runs(path: Path) -> list[Run]:
    async with SqliteStore(path) as store:
        snapshots = [await store.load_snapshot(conversation_id) for conversation_id in CONVERSATIONS]
    return [run for snapshot in snapshots for run in snapshot.runs]
