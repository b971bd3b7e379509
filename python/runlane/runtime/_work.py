"""A run that is to be executed here, and the inputs that may still join it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from runlane.history import ResolvedFiles
from runlane.records import Run
from runlane.runtime._coordinator import LaneItem
from runlane.runtime._promise import Promise
from runlane.runtime._tickets import RunResult

__all__ = ["Batch", "Work"]


@dataclass(eq=False, slots=True, kw_only=True)
class Work:
    """A run that is to be executed here.

    Attributes:
        run: As last known.
        context: The application's own value; of a run that several inputs share, the first one's.
        lane: The name of its lane.
        batch: How later inputs join it, or None if none may.
        item: Its place in the lane, once it has one.
        files: What users attached, as far as it was fetched for this run.
        entry: How the run is admitted if it is in its lane before that; returns the acquisition if that was the same
            commit, else None, and raises if the input begins no run. None for a run that is durable.
        failure: Of a commit that may have acquired it all the same; None if there was none.
    """

    run: Run
    context: object
    lane: str
    batch: Batch | None = None
    result: Promise[RunResult] = field(default_factory=Promise)
    accepted: Promise[object] = field(default_factory=Promise)
    item: LaneItem | None = None
    files: ResolvedFiles | None = None
    entry: Callable[[], Awaitable[Any]] | None = None
    failure: Exception | None = None


class Batch:
    """A run that waits, and that later inputs may join, with those that are about to.

    Attributes:
        work: The run, once its first input is durable.
    """

    __slots__ = ("_closed", "_nobody", "_underway", "work")

    def __init__(self) -> None:
        """Wait for the first input."""
        self.work: Work | None = None
        self._underway = 0
        self._closed = False
        self._nobody: anyio.Event | None = None

    @property
    def is_open(self) -> bool:
        """Whether further inputs may join."""
        return not self._closed

    def enter(self) -> None:
        """Note that an input is going to join."""
        self._underway += 1

    def leave(self) -> None:
        """Note that an input has joined, or will not."""
        self._underway -= 1
        if self._underway == 0 and self._nobody is not None:
            self._nobody.set()

    def close(self) -> None:
        """Let nobody join any more but those who are underway."""
        self._closed = True

    async def complete(self) -> None:
        """Close, and wait for those who are underway: the run is about to start."""
        self.close()
        if self._underway:
            self._nobody = anyio.Event()
            await self._nobody.wait()
