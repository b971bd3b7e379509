"""How a round ends that an error leaves."""

from __future__ import annotations

from runlane.diagnostics import DiagnosticContext
from runlane.flow._events import LoopDecision
from runlane.flow._run_state import RunState, status_of
from runlane.flow._telling import ROUND_FINISHED, tell_end

__all__ = ["tell_round_failed"]


async def tell_round_failed(run: RunState, scope: DiagnosticContext, began: float, error: BaseException) -> None:
    """Tell that an error ended a round."""
    decision: LoopDecision = "cancelled" if status_of(error, run.token) == "cancelled" else "failed"
    values = (decision, began, run.telling.monotonic())
    await tell_end(lambda: run.telling.tell(scope, ROUND_FINISHED, values))
