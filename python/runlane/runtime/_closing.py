"""Closing a runtime honestly: what is inside may finish, what executes is told to stop, what is left is counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from runlane.errors import RuntimeClosedError
from runlane.runtime._coordinator import CloseResult, check_budget
from runlane.runtime._core import RuntimeCore
from runlane.runtime._submission import Submissions
from runlane.runtime._waiting import wait_at_most

__all__ = ["Gate", "close_runtime"]


class Gate:
    """Counts recoveries, resumes and abandons that are inside, and lets none in once it is closed."""

    def __init__(self) -> None:
        """Create an open gate with nobody inside."""
        self.closed = False
        self.inside = 0
        self.idle: anyio.Event | None = None

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Be inside for the length of a block.

        Raises:
            RuntimeClosedError: The gate is closed.
        """
        if self.closed:
            raise RuntimeClosedError
        if self.inside == 0:
            self.idle = anyio.Event()
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            if self.inside == 0 and self.idle is not None:
                self.idle.set()


async def close_runtime(
    core: RuntimeCore, submissions: Submissions, gate: Gate, *, grace: float | None, force: float | None
) -> CloseResult:
    """Close in order; see `AgentRuntime.close`.

    Admissions that are inside are waited for first, at most `force` seconds; what that took is taken off both budgets.
    """
    check_budget(grace, "grace")
    check_budget(force, "force")
    submissions.closed = gate.closed = True
    core.conversations.offer_nothing()
    started = core.clock.monotonic()
    if submissions.underway:
        await wait_at_most(core.clock, submissions.next_idle(), force)
    if gate.inside and gate.idle is not None:
        await wait_at_most(core.clock, gate.idle, _left(force, core.clock.monotonic() - started))
    spent = core.clock.monotonic() - started
    result = await core.lanes.close(grace=_left(grace, spent), force=_left(force, spent))
    return CloseResult.of(result.remaining + submissions.underway + gate.inside)


def _left(budget: float | None, spent: float) -> float | None:
    return None if budget is None else max(0.0, budget - spent)
