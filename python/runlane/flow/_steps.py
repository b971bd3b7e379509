"""Runs a step, round after round, until it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runlane.contracts import ErrorContext, annotate_error, resolve
from runlane.errors import WorkflowContractError
from runlane.flow._context import CoreStep, StepComplete, StepContinue, StepOutcome
from runlane.flow._rounds import tell_round_failed
from runlane.flow._run_state import RunState
from runlane.flow._telling import ROUND_FINISHED, ROUND_STARTED
from runlane.flow._visit import Round

if TYPE_CHECKING:
    from runlane.flow._context import CoreStepContext

__all__ = ["run_steps"]


async def run_steps(run: RunState, step: CoreStep) -> object:
    """Call a step until it completes, and return its value.

    Raises:
        Exception: Whatever a round failed with, the same object.
        WorkflowContractError: A round returned no outcome (`step_outcome`).
    """
    while True:
        number = run.begin_round()
        outcome = await (_told_round if run.telling.enabled else _round)(run, step, number)
        if isinstance(outcome, StepComplete):
            return outcome.value


async def _told_round(run: RunState, step: CoreStep, number: int) -> StepOutcome:
    telling, scope = run.telling, run.scope.child(round=number)
    began = telling.monotonic()
    rest = telling.tell(scope, ROUND_STARTED, ())
    if rest is not None:
        await rest
    try:
        outcome = await _round(run, step, number)
    except BaseException as error:
        await tell_round_failed(run, scope, began, error)
        raise
    decision = "complete" if isinstance(outcome, StepComplete) else "continue"
    rest = telling.tell(scope, ROUND_FINISHED, (decision, began, telling.monotonic()))
    if rest is not None:
        await rest
    return outcome


async def _round(run: RunState, step: CoreStep, number: int) -> StepOutcome:
    place = Round(run, number, None)
    context: CoreStepContext = place
    try:
        # Whoever forgets `async` has still said what comes next.
        outcome: Any = await resolve(step(context))
    except Exception as error:
        annotate_error(error, ErrorContext(operation="round"))
        raise
    finally:
        place.ended = True
    run.raise_if_cancelled()
    if not isinstance(outcome, StepContinue | StepComplete):
        text = f"a step returned {type(outcome).__name__}; return StepContinue() or StepComplete(value)"
        raise WorkflowContractError(text, rule="step_outcome")
    return outcome
