"""The demo's hold on a worker process: orders in, facts out, and the kill."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, Final, TypeAlias

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from runlane.errors import RunlaneError

__all__ = ["Fact", "Worker", "WorkerFailedError", "start_worker"]

_MODULE: Final = "runlane.cli._demo_worker"
_LONGEST_LINE: Final = 1 << 20

Fact: TypeAlias = dict[str, Any]


class WorkerFailedError(RunlaneError):
    """A worker process of the demo could not do its part.

    Attributes:
        code: The code of the error that ended it.
    """

    def __init__(self, message: str, *, code: str = "demo.worker_failed") -> None:
        super().__init__(f"the demo's worker process failed: {message}")
        self.code = code


class Worker:
    """A running worker process."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        if process.stdout is None:
            raise WorkerFailedError("it has no output")
        self._facts = BufferedByteReceiveStream(process.stdout)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def order(self, do: str, **what: str) -> None:
        """Give it an order."""
        if self._process.stdin is None:
            raise WorkerFailedError("it takes no orders")
        try:
            await self._process.stdin.send((json.dumps({"do": do, **what}) + "\n").encode())
        except anyio.BrokenResourceError as error:
            raise WorkerFailedError("it ended before its order came") from error

    async def facts(self) -> AsyncIterator[Fact]:
        """Yield what it tells, until it ends.

        Raises:
            WorkerFailedError: It tells of a failure.
        """
        while True:
            try:
                line = await self._facts.receive_until(b"\n", _LONGEST_LINE)
            except (anyio.IncompleteRead, anyio.EndOfStream, anyio.ClosedResourceError):
                return
            fact: Fact = json.loads(line)
            if fact["event"] == "failed":
                raise WorkerFailedError(fact["message"], code=fact["code"])
            yield fact

    async def expect(self, event: str) -> Fact:
        """Return the next fact of a kind, leaving out what comes before it.

        Raises:
            WorkerFailedError: It ended first.
        """
        async for fact in self.facts():
            if fact["event"] == event:
                return fact
        raise WorkerFailedError(f"it ended before it was {event}")

    async def kill(self) -> int:
        """End it with SIGKILL, which no process can catch, and return its exit status: minus the signal's number."""
        self._process.kill()
        return await self._process.wait()

    async def leave(self) -> int:
        """Let it end by itself: its stdin ends."""
        if self._process.stdin is not None:
            await self._process.stdin.aclose()
        return await self._process.wait()


@asynccontextmanager
async def start_worker(store: Path, base_url: str, *, show_errors: bool) -> AsyncIterator[Worker]:
    """Run a worker process for the length of a block; whatever happens, it does not outlive the block.

    Args:
        store: The store's file.
        base_url: The model's endpoint.
        show_errors: Whether the process may write to stderr.
    """
    process = await anyio.open_process(
        [sys.executable, "-P", "-m", _MODULE, str(store), base_url],
        stdin=PIPE,
        stdout=PIPE,
        stderr=None if show_errors else DEVNULL,
        start_new_session=True,  # a Ctrl-C at the terminal is for the demo, which then ends its workers
    )
    try:
        worker = Worker(process)
        await worker.expect("ready")
        yield worker
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
