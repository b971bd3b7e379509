"""What a run of a workflow went through, as captured: records only."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from runlane.contracts import DurationMs, IdField, InvocationStatus, Record, TimestampMs
from runlane.flow._graph import EdgeKind

__all__ = [
    "WorkflowChain",
    "WorkflowChainCoverage",
    "WorkflowChainNode",
    "WorkflowChainNodeEvent",
    "WorkflowChainTransition",
    "WorkflowSubflowRecord",
]


class WorkflowChainNodeEvent(Record):
    """A fact captured in a visit.

    Attributes:
        content: Whether it may hold what people, models or tools said.
        payload: Exactly what the source handed over.
    """

    name: str
    sequence: int
    occurred_at: TimestampMs
    content: bool
    payload: JsonValue = None


class WorkflowSubflowRecord(Record):
    """One write or one fix of a sub-step; fixes are not folded into the step they change.

    Attributes:
        entry: `write` or `fix`; old records may lack it, and all else.
    """

    entry: Literal["write", "fix"] | None = None
    step_id: IdField | None = None
    sequence: int | None = None
    revision: int | None = None
    recorded_at: TimestampMs | None = None
    title: str | None = None
    status: str | None = None
    kind: str | None = None
    group: str | None = None
    detail: JsonValue = None
    duration_ms: DurationMs | None = None
    sub_node_id: IdField | None = None
    reported_id: IdField | None = None
    truncated: bool | None = None


class WorkflowChainNode(Record):
    """One visit. Two visits of one node are two of these.

    Attributes:
        node_id: The node, if any fact of the visit names it.
        entered_at: Absent if the entry was not captured.
        status: How it ended; absent if the end was not captured.
        events: Other facts of the visit, by sequence.
        subflow: Every write and every fix reported in it, by sequence.
        sub_steps_dropped: Entries that were reported and not kept.
        sub_steps_truncated: Steps whose text was cut.
    """

    span_id: IdField
    node_id: IdField | None = None
    visit: int | None = None
    entered_at: TimestampMs | None = None
    finished_at: TimestampMs | None = None
    status: InvocationStatus | None = None
    events: tuple[WorkflowChainNodeEvent, ...] = ()
    subflow: tuple[WorkflowSubflowRecord, ...] = ()
    sub_steps_dropped: int | None = None
    sub_steps_truncated: int | None = None


class WorkflowChainTransition(Record):
    """A route or recovery that was taken, from a captured fact.

    Attributes:
        from_span_id: The visit it left.
        to_span_id: The visit it led to. That visit's entry need not have been captured.
        route_index: Its position among the node's routes of that kind.
        completes: Whether it ended the workflow.
    """

    from_span_id: IdField
    to_span_id: IdField | None = None
    to_node_id: IdField | None = None
    kind: EdgeKind
    route_index: int
    completes: bool
    sequence: int


class WorkflowChainCoverage(Record):
    """How much of the run was captured.

    Attributes:
        complete: Start and end were seen, visits and transitions are as many as the end says, and every visit was
            entered and finished. It says nothing of content.
        content_included: Whether any captured fact holds content.
    """

    complete: bool
    started_seen: bool
    finished_seen: bool
    visits_expected: int | None = None
    visits_captured: int
    transitions_expected: int | None = None
    transitions_captured: int
    content_included: bool


class WorkflowChain(Record):
    """What one workflow of one run went through.

    Attributes:
        workflow_id: Absent if no captured fact names it.
        nodes: Visits in the order of entry.
        transitions: In the order they were taken.
    """

    run_id: IdField
    workflow_id: IdField | None = None
    nodes: tuple[WorkflowChainNode, ...] = ()
    transitions: tuple[WorkflowChainTransition, ...] = ()
    coverage: WorkflowChainCoverage
