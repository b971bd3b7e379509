"""Progress of running calls: cut, throttled, and told in order from whatever thread it comes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TypeAlias

import anyio.from_thread
import anyio.lowlevel

from runlane.clock import Clock
from runlane.models import repair_text
from runlane.tools._context import TOOL_PROGRESS_MESSAGE_MAX, TOOL_PROGRESS_SPACING

__all__ = ["CallProgress", "TellProgress"]

TellProgress: TypeAlias = Callable[[str, float | None, float | None], object]
"""Told of a report that is delivered, in the event loop's thread: the message, how far, of how much."""


class CallProgress:
    """Takes the reports of one call until it is over.

    A message is cut first. A report that comes within 250 ms of the last one that was delivered is dropped, and so is
    everything after the call has ended.
    """

    __slots__ = ("_clock", "_delivered", "_over", "_tell", "_thread", "_token")

    def __init__(self, tell: TellProgress, clock: Clock, /) -> None:
        """Take reports from now on; belongs to the event loop that makes it."""
        self._tell = tell
        self._clock = clock
        self._delivered: float | None = None
        self._over = False
        self._thread = threading.get_ident()
        self._token = anyio.lowlevel.current_token()

    def __call__(self, message: str, /, progress: float | None = None, total: float | None = None) -> None:
        """Report; see `ToolExecutionContext.report_progress`."""
        if self._over or not isinstance(message, str):
            return
        report = (repair_text(message)[:TOOL_PROGRESS_MESSAGE_MAX], _number(progress), _number(total))
        if threading.get_ident() == self._thread:
            self._report(*report)
            return
        try:
            anyio.from_thread.run_sync(self._report, *report, token=self._token)
        except RuntimeError:
            self._over = True  # the event loop is gone

    def end(self) -> None:
        """Drop whatever still comes."""
        self._over = True

    def _report(self, message: str, progress: float | None, total: float | None) -> None:
        now = self._clock.monotonic()
        if self._over or (self._delivered is not None and now - self._delivered < TOOL_PROGRESS_SPACING):
            return
        self._delivered = now
        self._tell(message, progress, total)


def _number(value: object) -> float | None:
    """Return a finite number, or None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number else None  # type: ignore[return-value]  # checked above
