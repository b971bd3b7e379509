"""What an engine tells its live observers: rounds and the steps of workflows, as metadata only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from runlane.contracts import DurationMs, Id, InvocationStatus, TimestampMs

__all__ = ["LoopDecision", "LoopEvent", "WorkflowEvent", "WorkflowEventType"]

LoopDecision: TypeAlias = Literal["continue", "complete", "failed", "cancelled"]
"""How a round ended."""

WorkflowEventType: TypeAlias = Literal[
    "started", "node_entered", "node_finished", "route_taken", "recovery_taken", "finished"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEvent:
    """The start or the end of a round. An exception of whoever is told ends the run with it.

    Attributes:
        span_id: The enclosing diagnostics span.
        round: From 1.
        decision: On the end of a round only.
        at: Wall clock, Unix milliseconds.
    """

    run_id: Id
    span_id: Id
    round: int
    phase: Literal["started", "finished"]
    decision: LoopDecision | None = None
    at: TimestampMs


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowEvent:
    """A step of a workflow: who, when and how it ended; never what was said, given or raised.

    Attributes:
        visit: Which entry of the node this is, from 1.
        round: The engine's round.
        route_index: The route's position in the node's list of its kind.
        target_node_id: Where the route leads; None if it completes the workflow.
        error_code: The failure's stable code.
    """

    type: WorkflowEventType
    run_id: Id
    workflow_id: str
    span_id: Id
    at: TimestampMs
    node_id: str | None = None
    visit: int | None = None
    round: int | None = None
    route_index: int | None = None
    target_node_id: str | None = None
    status: InvocationStatus | None = None
    error_code: str | None = None
    duration_ms: DurationMs | None = None
