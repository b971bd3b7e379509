"""One round as it is told: its start, and how it ended, whatever ended it."""

from __future__ import annotations

from runlane.diagnostics import DiagnosticSpanFields
from runlane.flow._events import LoopDecision
from runlane.flow._run_state import RunState, status_of
from runlane.flow._telling import Rest, tell_end

__all__ = ["RoundTelling"]


class RoundTelling:
    """Tells of a round: `start` it, then `finish` it or let it `fail`."""

    __slots__ = ("_number", "_run", "_scope", "_started")

    def __init__(self, run: RunState, number: int) -> None:
        self._run = run
        self._number = number
        self._scope = run.scope.child(DiagnosticSpanFields.trusted({"round": number}))
        self._started = run.clock.monotonic()

    def start(self) -> Rest:
        """Tell that it begins; return what is left to await."""
        return self._run.telling.round_started(self._scope, self._number)

    def finish(self, decision: LoopDecision) -> Rest:
        """Tell what it decided; return what is left to await."""
        return self._run.telling.round_finished(self._scope, self._number, decision, self._started)

    async def fail(self, error: BaseException) -> None:
        """Tell that an error ended it."""
        decision: LoopDecision = "cancelled" if status_of(error, self._run.token) == "cancelled" else "failed"
        await tell_end(lambda: self.finish(decision))
