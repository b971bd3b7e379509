"""Where time comes from.

Nothing in runlane reads a clock directly: it asks a `Clock`, so that a whole runtime can be run under a clock moved by
hand.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import anyio

__all__ = ["Clock", "SystemClock"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Clock(Protocol):
    """Wall time, elapsed time and waiting."""

    def now(self) -> datetime:
        """Return the wall time as an aware UTC `datetime`. It may go backwards: never subtract two of them.

        What is stored of it are whole milliseconds, so anything finer is dropped later.
        """
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start. It never goes backwards; only differences mean something."""
        ...

    async def sleep(self, seconds: float, /) -> None:
        """Wait until `monotonic()` has advanced by `seconds`; a non-positive value only yields to the event loop."""
        ...


class SystemClock:
    """The machine's clocks.

    Example:
        >>> SystemClock().now().tzinfo is UTC
        True
    """

    def now(self) -> datetime:
        """Return the wall time in UTC, rounded down to the milliseconds that records keep: none has to be cut later."""
        return _EPOCH + _MILLISECOND * (time.time_ns() // 1_000_000)

    unix_ns = staticmethod(time.time_ns)
    """The wall time in Unix nanoseconds: what `now` is made of."""

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float, /) -> None:
        """Wait on the running event loop."""
        await anyio.sleep(max(0.0, seconds))
