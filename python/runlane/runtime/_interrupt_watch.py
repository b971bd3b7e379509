"""Notices that another process asked a run to stop which has nothing to write at the moment.

Whoever writes finds out by itself: a checkpoint of a run that was asked to stop conflicts. A run that waits for its
provider or a tool would notice only afterwards, so the records of such runs are looked at now and then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from anyio.abc import TaskGroup

from runlane.clock import Clock
from runlane.contracts import CancelToken
from runlane.errors import StoreError
from runlane.records import Run
from runlane.runtime._store_calls import StoreCalls

__all__ = ["InterruptWatch"]

_EVERY: Final = 2.5
"""Seconds between two looks at the same run; one that began in between is looked at after at most twice as long."""


class Writing(Protocol):
    """The durable side of an execution, as far as it has to be known here."""

    @property
    def run(self) -> Run:
        """As last written; owner and fencing token are the execution's own."""
        ...


@dataclass(eq=False, slots=True)
class _Watched:
    """An executing run, and the revision it had when it was last thought of, or None if it is new."""

    writer: Writing
    token: CancelToken
    revision: int | None = None

    def is_idle(self) -> bool:
        """Whether it wrote nothing since this was asked last; what wrote would know by itself."""
        before, self.revision = self.revision, self.writer.run.revision
        return self.revision == before


class InterruptWatch:
    """Trips the tokens of executing runs that were asked to stop by somebody else.

    There is one sleeping task per runtime, and none while nothing executes; a run that ends sooner, or that writes by
    itself, costs no read.
    """

    def __init__(self, calls: StoreCalls, clock: Clock, /) -> None:
        """Watch a store."""
        self._calls = calls
        self._clock = clock
        self._runs: set[_Watched] = set()
        self._tasks: TaskGroup | None = None
        self._works = False

    def start(self, tasks: TaskGroup, /) -> None:
        """Say where the task may run."""
        self._tasks = tasks

    @contextmanager
    def watch(self, writer: Writing, token: CancelToken, /) -> Iterator[None]:
        """Watch a run for the length of a block."""
        watched = _Watched(writer, token)
        self._runs.add(watched)
        if not self._works and self._tasks is not None:
            self._works = True
            self._tasks.start_soon(self._work, name="interrupt watch")
        try:
            yield
        finally:
            self._runs.discard(watched)

    async def _work(self) -> None:
        try:
            while self._runs:
                await self._clock.sleep(_EVERY)
                await self._look_at_all()
        finally:
            self._works = False

    async def _look_at_all(self) -> None:
        for watched in tuple(self._runs):
            if watched in self._runs and not watched.token.cancelled and watched.is_idle():
                await self._look(watched)

    async def _look(self, watched: _Watched) -> None:
        own = watched.writer.run
        try:
            view = await self._calls.store.load_run(own.conversation_id, own.id)
        except StoreError:
            # The run's own next write will find out what is wrong.
            return
        if view is None or view.run.state != "interrupt_requested":
            return
        if (view.run.owner_id, view.run.fencing_token) == (own.owner_id, own.fencing_token):
            watched.token.cancel("user-interrupt")
