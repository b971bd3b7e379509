"""One round as it is told: its start, and how it ended, whatever ended it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from runlane.diagnostics import DiagnosticSpanFields
from runlane.flow._events import LoopDecision
from runlane.flow._run_state import RunState, status_of
from runlane.flow._telling import tell_end

__all__ = ["RoundTelling"]


class RoundTelling:
    """Tells of a round: enter it at its start, set `decision` before its end.

    Attributes:
        decision: What the round decided; an error that leaves it decides instead.
    """

    __slots__ = ("_number", "_run", "_scope", "_started", "decision")

    def __init__(self, run: RunState, number: int) -> None:
        self._run = run
        self._number = number
        self._scope = run.scope.child(DiagnosticSpanFields(round=number))
        self._started = run.clock.monotonic()
        self.decision: LoopDecision = "continue"

    async def __aenter__(self) -> Self:
        await self._run.telling.round_started(self._scope, self._number)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        if error is not None:
            self.decision = "cancelled" if status_of(error, self._run.token) == "cancelled" else "failed"
        told = self._run.telling.round_finished(self._scope, self._number, self.decision, self._started)
        await tell_end(told, error)
