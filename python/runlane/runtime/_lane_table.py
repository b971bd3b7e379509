"""Which conversations are awake in this process, and which may go to sleep.

A lane is awake while somebody uses it. After that it keeps its records for a while, so that the next turn finds them;
the longest unused go first when there are too many or they are too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anyio.abc import TaskGroup

from runlane.clock import Clock
from runlane.runtime._announcing import Publishing
from runlane.runtime._config import HistoryConfig
from runlane.runtime._lane import ConversationLane
from runlane.runtime._store_calls import StoreCalls

__all__ = ["LaneTable"]


class LaneTable:
    """The lanes of one runtime, by conversation."""

    def __init__(self, calls: StoreCalls, publishing: Publishing, clock: Clock, limits: HistoryConfig, /) -> None:
        """Create an empty table."""
        self._calls = calls
        self._publishing = publishing
        self._clock = clock
        self._limits = limits
        self._awake: dict[str, ConversationLane] = {}
        self._idle: dict[str, ConversationLane] = {}
        self._idle_bytes = 0
        self._tasks: TaskGroup | None = None
        self._sweeps = False

    def __len__(self) -> int:
        return len(self._awake) + len(self._idle)

    def start(self, tasks: TaskGroup, /) -> None:
        """Say where sleeping lanes may be swept away."""
        self._tasks = tasks

    @contextmanager
    def use(self, conversation_id: str, /) -> Iterator[ConversationLane]:
        """Keep a lane awake for the length of a block."""
        lane = self.hold(conversation_id)
        try:
            yield lane
        finally:
            self.release(lane)

    def hold(self, conversation_id: str, /) -> ConversationLane:
        """Keep a lane awake until it is released as often as it was held."""
        lane = self._wake(conversation_id)
        lane.users += 1
        return lane

    def release(self, lane: ConversationLane, /) -> None:
        """Let a lane go to rest once nobody holds it."""
        lane.users -= 1
        if lane.users == 0:
            self._rest(lane)

    def _wake(self, conversation_id: str) -> ConversationLane:
        lane = self._awake.get(conversation_id)
        if lane is None:
            lane = self._idle.pop(conversation_id, None)
            if lane is None:
                lane = ConversationLane(self._calls, self._publishing, conversation_id, self._limits)
            else:
                self._idle_bytes -= lane.records.size
            self._awake[conversation_id] = lane
        return lane

    def _rest(self, lane: ConversationLane) -> None:
        del self._awake[lane.conversation_id]
        lane.idle_since = self._clock.monotonic()
        self._idle[lane.conversation_id] = lane
        self._idle_bytes += lane.records.size
        while self._idle and (
            len(self._idle) > self._limits.max_idle_lanes or self._idle_bytes > self._limits.max_idle_bytes
        ):
            self._drop_oldest()
        if self._idle and not self._sweeps and self._tasks is not None:
            self._sweeps = True
            self._tasks.start_soon(self._sweep, name="sleeping lanes")

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._idle))
        self._idle_bytes -= self._idle.pop(oldest).records.size

    async def _sweep(self) -> None:
        """Forget lanes whose time is up, until none rests."""
        try:
            while self._idle:
                oldest = next(iter(self._idle.values()))
                left = oldest.idle_since + self._limits.idle - self._clock.monotonic()
                if left <= 0:
                    self._drop_oldest()
                else:
                    await self._clock.sleep(left)
        finally:
            self._sweeps = False
