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
    CoreEventName,
    CoreEventPayload,
    DiagnosticContext,
    ErrorFacts,
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

__all__ = ["Place", "Rest", "Telling", "tell_end"]

Rest: TypeAlias = Coroutine[Any, Any, object] | None
"""What is left to await of something that was told; it is awaited at once."""

_CLOSING: Final = 1.0
"""Seconds that telling an end may take once the run itself has no time left."""

_NODE_ENTERED: Final = NodeEntered()
_ROUND_STARTED: Final = RoundStarted()


class Place:
    """Where in a workflow something happens, and the scope that tells of it."""

    __slots__ = ("node_id", "round", "scope", "visit", "workflow_id")

    def __init__(
        self,
        scope: DiagnosticContext,
        workflow_id: str,
        node_id: str | None = None,
        visit: int | None = None,
        round: int | None = None,  # noqa: A002 - the word of the events
    ) -> None:
        self.scope = scope
        self.workflow_id = workflow_id
        self.node_id = node_id
        self.visit = visit
        self.round = round


class Telling:
    """Whoever is told of one run.

    Attributes:
        enabled: Whether anybody is; if not, nothing here is called.
    """

    __slots__ = ("_clock", "_on_loop", "_on_workflow", "_scope", "enabled")

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
        self.enabled = scope.enabled or on_loop is not None or on_workflow is not None

    def now(self) -> TimestampMs:
        """Return the wall time in Unix milliseconds."""
        return timestamp_ms(self._clock.now())

    # What is told here is told at once; what a method returns is what is left to await, or None.

    # --- the run and its rounds ----------------------------------------------------------------------------------

    def run_started(self, *, is_workflow: bool, max_rounds: int) -> Rest:
        """A run begins."""
        kind = RunStarted(kind="workflow" if is_workflow else "step", max_rounds=max_rounds)
        return self._scope.tell("run.started", kind)

    def run_finished(self, status: InvocationStatus, rounds: int, started: float, error: object) -> Rest:
        """A run ended."""
        payload = RunFinished(
            status=status, rounds=rounds, duration_ms=elapsed_ms(started, self._clock.monotonic()), error=_facts(error)
        )
        return self._scope.tell("run.finished", payload)

    def round_started(self, scope: DiagnosticContext, number: int) -> Rest:
        """A round begins."""
        rest = scope.tell("round.started", _ROUND_STARTED)
        if self._on_loop is None:
            return rest
        return self._tell_loop(rest, scope, number, "started", None)

    def round_finished(self, scope: DiagnosticContext, number: int, decision: LoopDecision, started: float) -> Rest:
        """A round ended."""
        duration = elapsed_ms(started, self._clock.monotonic())
        rest = scope.tell("round.finished", RoundFinished(decision, duration))
        if self._on_loop is None:
            return rest
        return self._tell_loop(rest, scope, number, "finished", decision)

    async def _tell_loop(
        self,
        rest: Rest,
        scope: DiagnosticContext,
        number: int,
        phase: Literal["started", "finished"],
        decision: LoopDecision | None,
    ) -> None:
        if rest is not None:
            await rest
        if self._on_loop is None:
            return
        identity = scope.identity
        event = LoopEvent(
            run_id=identity.run_id,
            span_id=identity.span_id,
            round=number,
            phase=phase,
            decision=decision,
            at=self.now(),
        )
        await resolve(self._on_loop(event))

    # --- a workflow ----------------------------------------------------------------------------------------------

    def workflow_started(self, place: Place, *, nodes: int, start: str) -> Rest:
        """A workflow begins."""
        return self._tell("started", place, "workflow.started", WorkflowStarted(nodes=nodes, start=Id(start)))

    def workflow_finished(
        self, place: Place, walk: Traversal, status: InvocationStatus, started: float, error: object
    ) -> Rest:
        """A workflow ended."""
        payload = WorkflowFinished(
            status=status,
            visits=walk.total_visits,
            transitions=walk.transitions,
            duration_ms=elapsed_ms(started, self._clock.monotonic()),
            error=_facts(error),
        )
        return self._tell("finished", place, "workflow.finished", payload)

    def node_entered(self, place: Place) -> Rest:
        """A visit begins."""
        return self._tell("node_entered", place, "node.entered", _NODE_ENTERED)

    def node_finished(
        self, place: Place, status: InvocationStatus, started: float, error: object, steps: SubFlowLogger | None
    ) -> Rest:
        """A handler ended."""
        duration = elapsed_ms(started, self._clock.monotonic())
        payload = NodeFinished(status, duration, None if error is None else ErrorFacts.of(error))
        return self._tell("node_finished", place, "node.finished", payload, steps)

    def route_taken(
        self, place: Place, index: int, target: str | None, span: Id | None, phase: str | None, *, recovers: bool
    ) -> Rest:
        """A route was taken."""
        goal = None if target is None else Id(target)
        if recovers:
            recovery = RecoveryTaken(
                route_index=index, completes=goal is None, target_node_id=goal, target_span_id=span, phase=phase
            )
            return self._tell("recovery_taken", place, "recovery.taken", recovery)
        taken = RouteTaken(index, goal is None, goal, span)
        return self._tell("route_taken", place, "route.taken", taken)

    def _tell(
        self,
        kind: WorkflowEventType,
        place: Place,
        name: CoreEventName,
        payload: CoreEventPayload,
        steps: SubFlowLogger | None = None,
    ) -> Rest:
        rest = place.scope.tell(name, payload, sub_steps=steps)
        return rest if self._on_workflow is None else self._tell_workflow(rest, kind, place, payload)

    async def _tell_workflow(
        self, rest: Rest, kind: WorkflowEventType, place: Place, payload: CoreEventPayload
    ) -> None:
        if rest is not None:
            await rest
        if self._on_workflow is not None:
            await resolve(self._on_workflow(self._event(kind, place, payload)))

    def _event(self, kind: WorkflowEventType, place: Place, payload: CoreEventPayload) -> WorkflowEvent:
        error = getattr(payload, "error", None)
        identity = place.scope.identity
        return WorkflowEvent(
            type=kind,
            run_id=identity.run_id,
            workflow_id=place.workflow_id,
            span_id=identity.span_id,
            at=self.now(),
            node_id=place.node_id,
            visit=place.visit,
            round=place.round,
            route_index=getattr(payload, "route_index", None),
            target_node_id=getattr(payload, "target_node_id", None),
            status=getattr(payload, "status", None),
            error_code=None if error is None else error.code,
            duration_ms=getattr(payload, "duration_ms", None),
        )


async def tell_end(tell: Callable[[], Rest], /) -> None:
    """Tell an end that an error leaves with: nothing stops the telling for a second, and only that error leaves."""
    with anyio.move_on_after(_CLOSING, shield=True), suppress(Exception):
        rest = tell()
        if rest is not None:
            await rest


def _facts(error: object) -> ErrorFacts | None:
    return None if error is None else ErrorFacts.of(error)
