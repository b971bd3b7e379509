"""Tells what happens in a run: to the diagnostics, and to the two observers of the engine."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import anyio

from runlane.clock import Clock
from runlane.contracts import (
    Id,
    InvocationStatus,
    Observer,
    TimestampMs,
    elapsed_ms,
    resolve,
    timestamp_ms,
)
from runlane.diagnostics import (
    DiagnosticContext,
    DiagnosticIdentity,
    ErrorFacts,
    Fact,
    NodeEntered,
    NodeFinished,
    RecoveryTaken,
    RoundFinished,
    RoundStarted,
    RouteTaken,
    RunFinished,
    RunStarted,
    SubFlowLogger,
    WorkflowFinished,
    WorkflowStarted,
)
from runlane.flow._events import LoopDecision, LoopEvent, WorkflowEvent, WorkflowEventType
from runlane.flow._machine import Traversal

__all__ = [
    "NODE_ENTERED",
    "NODE_FINISHED",
    "RECOVERY_TAKEN",
    "ROUND_FINISHED",
    "ROUND_STARTED",
    "ROUTE_TAKEN",
    "WORKFLOW_STARTED",
    "Rest",
    "Telling",
    "tell_end",
]

Rest: TypeAlias = Coroutine[Any, Any, object] | None
"""What is left to await of something that was told; it is awaited at once."""

_CLOSING: Final = 1.0
"""Seconds that telling an end may take once the run itself has no time left."""


Values: TypeAlias = tuple[object, ...]
Facts: TypeAlias = ErrorFacts | None

# What is told, and how each payload is worded of the values it is told with, once somebody reads it.


def _run_started(kind: Literal["workflow", "step"], max_rounds: int) -> RunStarted:
    return RunStarted(kind=kind, max_rounds=max_rounds)


def _run_finished(status: InvocationStatus, rounds: int, began: float, ended: float, error: Facts) -> RunFinished:
    return RunFinished(status=status, rounds=rounds, duration_ms=elapsed_ms(began, ended), error=error)


def _workflow_started(nodes: int, start: str) -> WorkflowStarted:
    return WorkflowStarted(nodes=nodes, start=Id(start))


def _workflow_finished(
    status: InvocationStatus, visits: int, transitions: int, began: float, ended: float, error: Facts
) -> WorkflowFinished:
    duration = elapsed_ms(began, ended)
    return WorkflowFinished(status=status, visits=visits, transitions=transitions, duration_ms=duration, error=error)


def _round_finished(decision: LoopDecision, began: float, ended: float) -> RoundFinished:
    return RoundFinished(decision, elapsed_ms(began, ended))


def _node_finished(status: InvocationStatus, began: float, ended: float, error: Facts) -> NodeFinished:
    return NodeFinished(status, elapsed_ms(began, ended), error)


def _route_taken(index: int, target: DiagnosticContext | None) -> RouteTaken:
    if target is None:
        return RouteTaken(index, completes=True)
    identity = target.identity
    return RouteTaken(index, completes=False, target_node_id=identity.node_id, target_span_id=identity.span_id)


def _recovery_taken(index: int, target: DiagnosticContext | None, phase: str | None) -> RecoveryTaken:
    if target is None:
        return RecoveryTaken(route_index=index, completes=True, phase=phase)
    node_id, span_id = target.identity.node_id, target.identity.span_id
    return RecoveryTaken(
        route_index=index, completes=False, target_node_id=node_id, target_span_id=span_id, phase=phase
    )


RUN_STARTED: Final = Fact("run.started", _run_started)
RUN_FINISHED: Final = Fact("run.finished", _run_finished)
ROUND_STARTED: Final = Fact("round.started", RoundStarted)
ROUND_FINISHED: Final = Fact("round.finished", _round_finished)
WORKFLOW_STARTED: Final = Fact("workflow.started", _workflow_started)
WORKFLOW_FINISHED: Final = Fact("workflow.finished", _workflow_finished)
NODE_ENTERED: Final = Fact("node.entered", NodeEntered)
NODE_FINISHED: Final = Fact("node.finished", _node_finished)
ROUTE_TAKEN: Final = Fact("route.taken", _route_taken)
RECOVERY_TAKEN: Final = Fact("recovery.taken", _recovery_taken)

_WORKFLOW_EVENTS: Final[dict[str, WorkflowEventType]] = {
    "workflow.started": "started",
    "workflow.finished": "finished",
    "node.entered": "node_entered",
    "node.finished": "node_finished",
    "route.taken": "route_taken",
    "recovery.taken": "recovery_taken",
}


class Telling:
    """Whoever is told of one run.

    Attributes:
        enabled: Whether anybody is; if not, nothing here is called.
        also: Tells the engine's own observers what a scope was told; None if there are none.
        monotonic: Reads the run's clock.
    """

    __slots__ = ("_clock", "_on_loop", "_on_workflow", "_scope", "also", "enabled", "monotonic")

    def __init__(
        self,
        scope: DiagnosticContext,
        clock: Clock,
        *,
        on_loop: Observer[LoopEvent] | None,
        on_workflow: Observer[WorkflowEvent] | None,
    ) -> None:
        self._scope = scope
        self._clock = clock
        self._on_loop = on_loop
        self._on_workflow = on_workflow
        watched = on_loop is not None or on_workflow is not None
        self.enabled = scope.enabled or watched
        self.also = self._also if watched else None
        self.monotonic = clock.monotonic

    def now(self) -> TimestampMs:
        """Return the wall time in Unix milliseconds."""
        return timestamp_ms(self._clock.now())

    # What is told here is told at once; what a method returns is what is left to await, or None.

    def tell(self, scope: DiagnosticContext, fact: Fact, values: Values, steps: SubFlowLogger | None = None) -> Rest:
        """Tell a fact to the diagnostics, then to the engine's own observers."""
        told: Rest = scope.tell(fact, values) if steps is None else _emit(scope, fact, values, steps)
        return told if self.also is None else self.also(told, scope, fact, values)

    def run_started(self, *, is_workflow: bool, max_rounds: int) -> Rest:
        """A run begins."""
        return self._scope.tell(RUN_STARTED, ("workflow" if is_workflow else "step", max_rounds))

    def run_finished(self, status: InvocationStatus, rounds: int, began: float, error: object) -> Rest:
        """A run ended."""
        return self._scope.tell(RUN_FINISHED, (status, rounds, began, self.monotonic(), _facts(error)))

    def workflow_finished(
        self, scope: DiagnosticContext, walk: Traversal, status: InvocationStatus, began: float, error: object
    ) -> Rest:
        """A workflow ended."""
        values = (status, walk.total_visits, walk.transitions, began, self.monotonic(), _facts(error))
        return self.tell(scope, WORKFLOW_FINISHED, values)

    def node_finished(
        self,
        scope: DiagnosticContext,
        status: InvocationStatus,
        began: float,
        error: object,
        steps: SubFlowLogger | None,
    ) -> Rest:
        """A handler ended."""
        return self.tell(scope, NODE_FINISHED, (status, began, self.monotonic(), _facts(error)), steps)

    # --- the observers of the engine -----------------------------------------------------------------------------

    async def _also(self, told: Rest, scope: DiagnosticContext, fact: Fact, values: Values) -> None:
        if told is not None:
            await told
        kind = _WORKFLOW_EVENTS.get(fact.name)
        payload = fact.payload(values)
        if kind is not None and self._on_workflow is not None:
            await resolve(self._on_workflow(self._workflow_event(kind, scope.identity, payload)))
        if kind is None and self._on_loop is not None:
            await resolve(self._on_loop(self._loop_event(scope.identity, payload)))

    def _loop_event(self, identity: DiagnosticIdentity, payload: object) -> LoopEvent:
        decision: LoopDecision | None = getattr(payload, "decision", None)
        return LoopEvent(
            run_id=identity.run_id,
            span_id=identity.span_id,
            round=identity.round or 0,
            phase="started" if decision is None else "finished",
            decision=decision,
            at=self.now(),
        )

    def _workflow_event(self, kind: WorkflowEventType, identity: DiagnosticIdentity, payload: object) -> WorkflowEvent:
        error = getattr(payload, "error", None)
        # A workflow within a visit inherits the place of that visit, which is none of its own.
        place = None if kind in {"started", "finished"} else identity
        return WorkflowEvent(
            type=kind,
            run_id=identity.run_id,
            workflow_id=identity.workflow_id or "",
            span_id=identity.span_id,
            at=self.now(),
            node_id=None if place is None else place.node_id,
            visit=None if place is None else place.visit,
            round=None if place is None else place.round,
            route_index=getattr(payload, "route_index", None),
            target_node_id=getattr(payload, "target_node_id", None),
            status=getattr(payload, "status", None),
            error_code=None if error is None else error.code,
            duration_ms=getattr(payload, "duration_ms", None),
        )


def _emit(scope: DiagnosticContext, fact: Fact, values: Values, steps: SubFlowLogger) -> Rest:
    return scope.emit(fact.name, fact.payload(values), sub_steps=steps)


async def tell_end(tell: Callable[[], Rest], /) -> None:
    """Tell an end that an error leaves with: nothing stops the telling for a second, and only that error leaves."""
    with anyio.move_on_after(_CLOSING, shield=True), suppress(Exception):
        rest = tell()
        if rest is not None:
            await rest


def _facts(error: object) -> ErrorFacts | None:
    return None if error is None else ErrorFacts.of(error)
