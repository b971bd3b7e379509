"""What a publisher left to await, awaited beside the runs: in order, bounded, and without a run noticing."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from runlane.contracts import stray_ends
from runlane.delivery import BoundedSink, RuntimeEvent, SinkDrop, SinkLimits, let_go
from runlane.errors import BudgetError

__all__ = ["Courier", "OnPublishError", "Publisher"]

Publisher = Callable[[RuntimeEvent], Awaitable[None] | None]
"""Called with every event, in order; may be a coroutine function. What it raises never fails a run."""

OnPublishError = Callable[[RuntimeEvent, Exception], Awaitable[None] | None]
"""Called when a publisher raised or fell too far behind; what it raises itself is swallowed."""

_CLOSE_WITHIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Delivery:
    event: RuntimeEvent
    rest: Awaitable[object]


class Courier(BoundedSink[_Delivery]):
    """Calls a publisher at once and awaits later what it left to await, one event after another.

    A publisher that is `capacity` events behind misses events, and is told so by `on_error`.
    """

    def __init__(self, publisher: Publisher, on_error: OnPublishError | None, capacity: int, /) -> None:
        """Prepare; entered with the runtime."""
        limits = SinkLimits(max_pending=capacity, close_timeout=_CLOSE_WITHIN)
        super().__init__(self._deliver, limits=limits, on_drop=self._missed)
        self._publisher = publisher
        self._on_error = on_error
        self._capacity = capacity
        self._failures: deque[tuple[RuntimeEvent, Exception]] = deque(maxlen=capacity)

    @property
    def is_behind(self) -> bool:
        """Whether something was not delivered yet."""
        return self.status.pending > 0

    def publish(self, event: RuntimeEvent, /) -> None:
        """Hand an event over; never waits, never raises."""
        rest: Awaitable[object] | None
        try:
            with stray_ends("delivery.publisher"):
                rest = self._publisher(event)
        except Exception as error:  # noqa: BLE001 - a publisher never fails a run
            rest = self._report(event, error)
        if rest is not None:
            self.offer(_Delivery(event, rest))

    async def _deliver(self, delivery: _Delivery) -> None:
        try:
            with stray_ends("delivery.publisher"):
                await delivery.rest
        except Exception as error:  # noqa: BLE001 - likewise
            self._failures.append((delivery.event, error))
        while self._failures:
            rest = self._report(*self._failures.popleft())
            if rest is not None:
                await rest

    def _missed(self, drop: SinkDrop[_Delivery]) -> None:
        let_go(drop.event.rest)
        if drop.reason == "capacity":
            # Told by the delivery that is underway: the hook may have to be awaited.
            error = BudgetError("the publisher is too far behind", allowance="delivery.capacity", limit=self._capacity)
            self._failures.append((drop.event.event, error))

    def _report(self, event: RuntimeEvent, error: Exception) -> Awaitable[object] | None:
        with suppress(Exception):  # the hook for failures has nobody left to tell
            rest = None if self._on_error is None else self._on_error(event, error)
            return _quietly(rest) if inspect.isawaitable(rest) else None
        return None


async def _quietly(rest: Awaitable[object]) -> None:
    with suppress(Exception), stray_ends("delivery.on_publish_error"):
        await rest
