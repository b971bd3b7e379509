"""Waiting for an event for a limited time of a clock that tests may move by hand."""

from __future__ import annotations

import anyio

from runlane.clock import Clock, SystemClock

__all__ = ["wait_at_most"]


async def wait_at_most(event: anyio.Event, clock: Clock, seconds: float, /) -> None:
    """Return when the event is set, or after this many seconds of the clock."""
    if isinstance(clock, SystemClock):
        with anyio.move_on_after(max(0.0, seconds)):
            await event.wait()
        return
    async with anyio.create_task_group() as group:
        group.start_soon(_set_later, event, clock, seconds)
        await event.wait()
        group.cancel_scope.cancel()


async def _set_later(event: anyio.Event, clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
    event.set()
