"""Waiting by the runtime's own clock."""

from __future__ import annotations

import anyio

from runlane.clock import Clock

__all__ = ["wait_at_most"]


async def wait_at_most(clock: Clock, event: anyio.Event, seconds: float | None, /) -> bool:
    """Wait for an event, but not longer than `seconds` of the clock (None: as long as it takes).

    Returns:
        Whether the event was set.
    """
    if event.is_set() or seconds is None:
        await event.wait()
        return True
    if seconds <= 0:
        return False
    async with anyio.create_task_group() as race:

        async def ring() -> None:
            await clock.sleep(seconds)
            race.cancel_scope.cancel()

        race.start_soon(ring)
        await event.wait()
        race.cancel_scope.cancel()
    return event.is_set()
