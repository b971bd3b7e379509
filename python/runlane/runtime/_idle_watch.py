"""Notices providers that have fallen silent: one timer for all open calls of a runtime."""

from __future__ import annotations

from dataclasses import dataclass

from anyio.abc import TaskGroup

from runlane.clock import Clock
from runlane.contracts import CancelToken
from runlane.errors import ModelIdleTimeoutError

__all__ = ["IdleWatch", "Watched"]


@dataclass(eq=False, slots=True)
class Watched:
    """One open call.

    Attributes:
        token: Tripped when it was silent for too long, with `ModelIdleTimeoutError`.
        limit: Seconds it may be silent.
        heard: When it last said something; None while nothing is expected of it.
    """

    token: CancelToken
    limit: float
    heard: float | None


class IdleWatch:
    """Trips the token of a call whose provider was silent for longer than its limit.

    Hearing something costs one attribute; there is one sleeping task per runtime, and none while no call is open.
    """

    def __init__(self, clock: Clock, /) -> None:
        """Watch by a clock."""
        self._clock = clock
        self._calls: set[Watched] = set()
        self._tasks: TaskGroup | None = None
        self._runs = False

    def start(self, tasks: TaskGroup, /) -> None:
        """Say where the timer may run."""
        self._tasks = tasks

    def add(self, token: CancelToken, limit: float, /) -> Watched:
        """Watch a call from now on."""
        call = Watched(token, limit, self._clock.monotonic())
        self._calls.add(call)
        if not self._runs and self._tasks is not None:
            self._runs = True
            self._tasks.start_soon(self._work, name="idle watch")
        return call

    def listen(self, call: Watched, /) -> None:
        """Expect a call to say something from now on; set its `heard` to None once it has."""
        call.heard = self._clock.monotonic()

    def remove(self, call: Watched, /) -> None:
        """Stop watching a call; idempotent."""
        self._calls.discard(call)

    async def _work(self) -> None:
        try:
            while self._calls:
                await self._clock.sleep(self._check())
        finally:
            self._runs = False

    def _check(self) -> float:
        """Trip what is overdue, and return how long nothing can become so."""
        now = self._clock.monotonic()
        for call in tuple(self._calls):
            if call.heard is not None and call.heard + call.limit <= now:
                self._calls.discard(call)
                call.token.cancel(ModelIdleTimeoutError(idle_timeout=call.limit))
        least = min((call.limit for call in self._calls), default=0.0)
        return min(
            (call.heard + call.limit - now if call.heard is not None else least for call in self._calls), default=0.0
        )
