"""A clock that a test moves by hand."""

from __future__ import annotations

import heapq
import itertools
from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel

from runlane.contracts import require_kind
from runlane.errors import InvalidValueError

__all__ = ["FakeClock"]

_START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Time stands still until `advance` is called; whoever sleeps wakes in order of deadlines.

    Example:
        >>> clock = FakeClock()
        >>> clock.tick(1.5)
        >>> clock.monotonic(), clock.now().isoformat()
        (1.5, '2026-01-01T00:00:01.500000+00:00')
    """

    def __init__(self, start: datetime = _START) -> None:
        """Start at an aware instant, and at 0 monotonic seconds."""
        self._start = require_kind(start, datetime, argument="start")
        self._elapsed = 0.0
        self._jumped = timedelta()
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        """Return the wall time."""
        return self._start + self._jumped + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds that have passed since the start."""
        return self._elapsed

    async def sleep(self, seconds: float, /) -> None:
        """Wait until the clock was advanced that far."""
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        event = anyio.Event()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), event))
        await event.wait()

    @property
    def sleepers(self) -> int:
        """How many sleep, those that were cancelled meanwhile included."""
        return len(self._sleepers)

    def jump(self, seconds: float, /) -> None:
        """Change the wall time alone, backwards too, as an administrator would."""
        self._jumped += timedelta(seconds=seconds)

    def tick(self, seconds: float, /) -> None:
        """Let time pass at once and wake whoever is due; they run when the caller next waits.

        Raises:
            InvalidValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise InvalidValueError("must not be negative; use jump for the wall time", argument="seconds")
        self._elapsed += seconds
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            heapq.heappop(self._sleepers)[2].set()

    async def advance(self, seconds: float, /) -> None:
        """Let time pass deadline by deadline, and everybody who wakes act before it goes on.

        Raises:
            InvalidValueError: `seconds` is negative.
        """
        until = self._elapsed + seconds
        await anyio.wait_all_tasks_blocked()
        while self._sleepers and self._sleepers[0][0] <= until:
            self.tick(max(0.0, self._sleepers[0][0] - self._elapsed))
            await anyio.wait_all_tasks_blocked()
        self.tick(max(0.0, until - self._elapsed))
        await anyio.wait_all_tasks_blocked()
