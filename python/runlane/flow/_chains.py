"""What actually happened in a workflow, put together from captured facts and never from its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from runlane.contracts import Id, InvocationStatus, MaybeAwaitable, TimestampMs, resolve
from runlane.diagnostics import (
    CORE_EVENT_CATALOG,
    CoreDiagnosticRecord,
    CoreEvent,
    DiagnosticIdentity,
    normalize_diagnostic_event,
)
from runlane.errors import UsageError
from runlane.flow._chain_records import (
    WorkflowChain,
    WorkflowChainCoverage,
    WorkflowChainNode,
    WorkflowChainNodeEvent,
    WorkflowChainTransition,
    WorkflowSubflowRecord,
)
from runlane.flow._graph import EdgeKind

__all__ = ["WorkflowChainRequest", "WorkflowChainSource", "build_workflow_chain", "read_workflow_chain"]

_ENDS: Final[tuple[InvocationStatus, ...]] = ("succeeded", "failed", "cancelled")
_TRANSITIONS: Final[dict[str, EdgeKind]] = {"route.taken": "normal", "recovery.taken": "recovery"}
_WORKFLOW_FACTS: Final = frozenset({"workflow.started", "workflow.finished"})
_TOLD_OTHERWISE: Final = frozenset({*_TRANSITIONS, *_WORKFLOW_FACTS, "node.entered", "node.finished"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowChainRequest:
    """Which chain is asked for.

    Attributes:
        workflow_id: None stands for the outermost workflow of the run.
    """

    run_id: Id
    workflow_id: Id | None = None


WorkflowChainSource: TypeAlias = Callable[[WorkflowChainRequest], MaybeAwaitable[Iterable[object]]]
"""Gives the captured records of a run. Who may read, and how much is kept, it has settled already."""


async def read_workflow_chain(source: WorkflowChainSource, request: WorkflowChainRequest, /) -> WorkflowChain:
    """Ask a source once and build the chain of what it gives.

    Raises:
        CheckFailedError: A record is malformed.
    """
    records = await resolve(source(request))
    return build_workflow_chain(records, run_id=request.run_id, workflow_id=request.workflow_id)


def build_workflow_chain(records: Iterable[object], /, *, run_id: Id, workflow_id: Id | None = None) -> WorkflowChain:
    """Build the chain of one workflow of one run.

    Records of other runs and of other workflows are left aside, a record that comes twice counts once, and the order
    in which they come does not matter.

    Args:
        records: Stored records, or events as an observer got them.
        run_id: The run.
        workflow_id: The workflow; by default the outermost one.

    Raises:
        CheckFailedError: A record is malformed.
    """
    if isinstance(records, str | bytes) or not isinstance(records, Iterable):
        raise UsageError("must be records, one after the other", argument="records")
    facts = {fact.event_id: fact for fact in map(_normalized, records) if fact.identity.run_id == run_id}
    ordered = sorted(facts.values(), key=lambda fact: (fact.sequence, fact.event_id))
    spans = _Spans(ordered)
    if workflow_id is None:
        outermost = spans.outermost(ordered)
        mine = [fact for fact in ordered if outermost is not None and spans.workflow_of(fact.identity) == outermost]
        workflow_id = next((fact.identity.workflow_id for fact in mine if fact.identity.workflow_id is not None), None)
    else:
        mine = [fact for fact in ordered if fact.identity.workflow_id == workflow_id]
    return _Builder(run_id, workflow_id, spans).build(mine)


def _normalized(record: object) -> CoreDiagnosticRecord:
    kind: type = type(record)  # what an object says of its class is not asked
    return normalize_diagnostic_event(CoreEvent.to_record(record) if issubclass(kind, CoreEvent) else record)  # type: ignore[arg-type]


class _Spans:
    """Which span is which: a workflow's, a visit's under it, or one of a model or a tool under a visit.

    Children inherit what their parents say of themselves, so a span is told apart by what it adds.
    """

    def __init__(self, facts: Iterable[CoreDiagnosticRecord]) -> None:
        self._workflows: set[Id] = set()
        self._identities: dict[Id, DiagnosticIdentity] = {}
        for fact in facts:
            self._identities[fact.identity.span_id] = fact.identity
            if fact.name in _WORKFLOW_FACTS:
                self._workflows.add(fact.identity.span_id)

    def visit_of(self, identity: DiagnosticIdentity) -> Id | None:
        """Return the visit a fact belongs to, or None if it is a workflow's or nobody's."""
        known: DiagnosticIdentity | None = identity
        span: Id | None = identity.span_id
        while known is not None and _is_within(known):
            span = known.parent_span_id
            known = None if span is None else self._identities.get(span)
        if span is None or span in self._workflows or (known is not None and known.node_id is None):
            return None
        return span

    def workflow_of(self, identity: DiagnosticIdentity) -> Id | None:
        """Return the span of the workflow run a fact belongs to, or None if that is not known."""
        if identity.span_id in self._workflows:
            return identity.span_id
        visit = self.visit_of(identity)
        known = None if visit is None else self._identities.get(visit)
        return None if known is None else known.parent_span_id

    def outermost(self, facts: Iterable[CoreDiagnosticRecord]) -> Id | None:
        """Return the span of the first workflow that is under no other."""
        candidates = (self.workflow_of(fact.identity) for fact in facts if fact.identity.workflow_id is not None)
        return next((span for span in candidates if span is not None and not self._is_nested(span)), None)

    def _is_nested(self, span: Id) -> bool:
        known = self._identities.get(span)
        return known is not None and known.node_id is not None


def _is_within(identity: DiagnosticIdentity) -> bool:
    """Whether a span is a model's or a tool's within a visit."""
    return identity.stage is not None or identity.tool_id is not None or identity.invocation_id is not None


@dataclass(slots=True)
class _VisitFacts:
    """What was captured of one visit."""

    span_id: Id
    first: int
    node_id: Id | None = None
    visit: int | None = None
    entered_at: TimestampMs | None = None
    entered: int | None = None
    finished_at: TimestampMs | None = None
    status: InvocationStatus | None = None
    events: list[WorkflowChainNodeEvent] = field(default_factory=list)
    subflow: tuple[WorkflowSubflowRecord, ...] = ()
    dropped: int | None = None
    truncated: int | None = None

    def place(self) -> int:
        """Return where it stands among the others: by its entry, or by its first fact if that was not captured."""
        return self.first if self.entered is None else self.entered

    def told(self) -> WorkflowChainNode:
        return WorkflowChainNode(
            span_id=self.span_id,
            node_id=self.node_id,
            visit=self.visit,
            entered_at=self.entered_at,
            finished_at=self.finished_at,
            status=self.status,
            events=tuple(self.events),
            subflow=self.subflow,
            sub_steps_dropped=self.dropped,
            sub_steps_truncated=self.truncated,
        )


class _Builder:
    def __init__(self, run_id: Id, workflow_id: Id | None, spans: _Spans) -> None:
        self._run_id = run_id
        self._workflow_id = workflow_id
        self._spans = spans
        self._visits: dict[Id, _VisitFacts] = {}
        self._transitions: list[WorkflowChainTransition] = []
        self._started = 0
        self._ends: list[dict[str, Any]] = []
        self._content = False

    def build(self, facts: Sequence[CoreDiagnosticRecord]) -> WorkflowChain:
        for fact in facts:
            self._take(fact)
        for fact in facts:
            self._take_event(fact)
        visits = sorted(self._visits.values(), key=_VisitFacts.place)
        return WorkflowChain(
            run_id=self._run_id,
            workflow_id=self._workflow_id,
            nodes=tuple(visit.told() for visit in visits),
            transitions=tuple(self._transitions),
            coverage=self._coverage(),
        )

    def _take(self, fact: CoreDiagnosticRecord) -> None:
        if fact.name == "workflow.started":
            self._started += 1
        elif fact.name == "workflow.finished":
            self._ends.append(_facts_of(fact))
        elif fact.name in _TRANSITIONS:
            self._take_transition(fact)
        elif self._spans.visit_of(fact.identity) == fact.identity.span_id:
            self._take_visit(fact)
        self._content = self._content or CORE_EVENT_CATALOG[fact.name].content

    def _take_transition(self, fact: CoreDiagnosticRecord) -> None:
        facts = _facts_of(fact)
        target, span, index = facts.get("target_node_id"), facts.get("target_span_id"), facts.get("route_index")
        self._transitions.append(
            WorkflowChainTransition(
                from_span_id=fact.identity.span_id,
                to_span_id=_id(span),
                to_node_id=_id(target),
                kind=_TRANSITIONS[fact.name],
                route_index=index if type(index) is int else -1,
                completes=facts.get("completes") is True,
                sequence=fact.sequence,
            )
        )

    def _take_visit(self, fact: CoreDiagnosticRecord) -> None:
        span_id = fact.identity.span_id
        visit = self._visits.get(span_id)
        if visit is None:
            visit = self._visits[span_id] = _VisitFacts(span_id, fact.sequence)
        visit.node_id = fact.identity.node_id
        visit.visit = fact.identity.visit
        if fact.name == "node.entered":
            visit.entered, visit.entered_at = fact.sequence, fact.occurred_at
        elif fact.name == "node.finished":
            self._finish(visit, fact)

    def _take_event(self, fact: CoreDiagnosticRecord) -> None:
        """Keep what else a visit told, its models and tools included; a fact of nobody's visit is left out."""
        span = self._spans.visit_of(fact.identity)
        visit = None if span is None else self._visits.get(span)
        if visit is not None and fact.name not in _TOLD_OTHERWISE:
            visit.events.append(
                WorkflowChainNodeEvent(
                    name=fact.name,
                    sequence=fact.sequence,
                    occurred_at=fact.occurred_at,
                    content=CORE_EVENT_CATALOG[fact.name].content,
                    payload=fact.payload,
                )
            )

    def _finish(self, visit: _VisitFacts, fact: CoreDiagnosticRecord) -> None:
        visit.finished_at = fact.occurred_at
        status = _facts_of(fact).get("status")
        visit.status = next((known for known in _ENDS if known == status), None)
        visit.dropped, visit.truncated = fact.sub_steps_dropped, fact.sub_steps_truncated
        steps = fact.sub_steps or ()
        visit.subflow = tuple(
            WorkflowSubflowRecord.model_validate(step.model_dump(exclude_none=True)) for step in steps
        )
        self._content = self._content or any(step.title is not None or step.detail is not None for step in steps)

    def _coverage(self) -> WorkflowChainCoverage:
        visits = _sum(end.get("visits") for end in self._ends)
        transitions = _sum(end.get("transitions") for end in self._ends)
        whole = all(visit.entered is not None and visit.finished_at is not None for visit in self._visits.values())
        seen = 0 < self._started == len(self._ends)
        return WorkflowChainCoverage(
            complete=seen and whole and visits == len(self._visits) and transitions == len(self._transitions),
            started_seen=self._started > 0,
            finished_seen=bool(self._ends),
            visits_expected=visits,
            visits_captured=len(self._visits),
            transitions_expected=transitions,
            transitions_captured=len(self._transitions),
            content_included=self._content,
        )


def _facts_of(fact: CoreDiagnosticRecord) -> dict[str, Any]:
    """Return a payload's members; what is no object has none."""
    return fact.payload if isinstance(fact.payload, dict) else {}


def _id(value: object) -> Id | None:
    return Id(value) if type(value) is str and value else None


def _sum(counts: Iterable[object]) -> int | None:
    """Add counts up; nothing to add, or one that is no count, is unknown."""
    known = list(counts)
    numbers = [count for count in known if type(count) is int and count >= 0]
    return sum(numbers) if numbers and len(numbers) == len(known) else None
