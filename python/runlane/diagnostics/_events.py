"""The envelope every event has, and whose execution it belongs to."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any, Final, Literal, NamedTuple, NoReturn, Self, TypedDict

from typing_extensions import Unpack, override

from runlane.contracts import Id, JsonObject, TimestampMs
from runlane.diagnostics._catalog import CoreEventName
from runlane.diagnostics._payloads import CoreEventPayload
from runlane.diagnostics._plain import plain
from runlane.diagnostics._steps import RecordedSubStep
from runlane.errors import UsageError

__all__ = ["CoreEvent", "DiagnosticIdentity", "DiagnosticSpanFields", "ExecutionEventDescriptor"]

VERSION: Final = 1


class SpanFacts(TypedDict, total=False):
    """What may be said of a span; None is as good as nothing."""

    agent_id: Id | None
    branch_id: Id | None
    workflow_id: Id | None
    node_id: Id | None
    visit: int | None
    round: int | None
    stage: Id | None
    tool_id: Id | None
    invocation_id: Id | None


class DiagnosticSpanFields:
    """What a span says of itself. Its run and span ids are given to it, never said.

    One is made per visit, so it keeps only what was said.

    Attributes:
        given: The fields that were said.

    Raises:
        TypeError: There is no such field.

    Example:
        >>> DiagnosticSpanFields(node_id=Id("draft"), visit=1).given
        {'node_id': 'draft', 'visit': 1}
    """

    __slots__ = ("given",)
    given: SpanFacts

    def __init__(self, **given: Unpack[SpanFacts]) -> None:
        for name in given:
            if name not in _SPAN_FACTS:
                raise UsageError("a span says nothing else of itself", argument=min(given.keys() - _SPAN_FACTS))
        _set_given(self, given)

    @classmethod
    def trusted(cls, given: SpanFacts, /) -> Self:
        """Return the fields a program wrote out itself: they are kept as they are, at a third of the cost."""
        made = object.__new__(cls)
        _set_given(made, given)
        return made

    @override
    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(name)

    @override
    def __eq__(self, other: object) -> bool:
        return self.given == other.given if isinstance(other, DiagnosticSpanFields) else NotImplemented

    @override
    def __hash__(self) -> int:
        return hash(tuple(self.given.items()))

    @override
    def __repr__(self) -> str:
        return f"DiagnosticSpanFields({', '.join(f'{name}={value!r}' for name, value in self.given.items())})"


_set_given: Final = DiagnosticSpanFields.__dict__["given"].__set__
_SPAN_FACTS: Final = frozenset(SpanFacts.__annotations__)


class DiagnosticIdentity(NamedTuple):
    """Which execution a fact belongs to; never whose data it is.

    Attributes:
        span_id: The stretch of work that tells the fact.
        parent_span_id: The one around it; None for a root.
        visit: From 1, per node.
        round: From 1, per run.
    """

    run_id: Id
    span_id: Id
    parent_span_id: Id | None = None
    agent_id: Id | None = None
    branch_id: Id | None = None
    workflow_id: Id | None = None
    node_id: Id | None = None
    visit: int | None = None
    round: int | None = None
    stage: Id | None = None
    tool_id: Id | None = None
    invocation_id: Id | None = None


class CoreEvent(NamedTuple):
    """One fact, as consumers get it.

    Several are made in each visit, whatever it does: so an event and its identity are tuples with names, which cost a
    fifth of a frozen dataclass.

    Attributes:
        event_id: Unique.
        producer_id: Names the sequence: one root scope with all its descendants.
        sequence: From 1, strictly increasing in the order of emission. A consumer that does not take every event sees
            holes, which prove nothing.
        occurred_at: Wall clock, Unix milliseconds; may go backwards, order is `sequence`.
        identity: The span that told it.
        payload: What this event says beyond the envelope.
        sub_steps: The steps a visit or a tool reported; only with `node.finished` and `tool.finished`.
        sub_steps_dropped: Entries beyond the limit; present only if there were some.
        sub_steps_truncated: Carried steps with a bounded title or detail; present only if there were some.
        version: Of the envelope; 1.
    """

    event_id: Id
    name: CoreEventName
    producer_id: Id
    sequence: int
    occurred_at: TimestampMs
    identity: DiagnosticIdentity
    payload: CoreEventPayload
    sub_steps: tuple[RecordedSubStep, ...] | None = None
    sub_steps_dropped: int | None = None
    sub_steps_truncated: int | None = None
    version: Literal[1] = VERSION

    def to_record(self) -> JsonObject:
        """Return the event as JSON of exact built-in types; `normalize_diagnostic_event` reads it back."""
        given = {"version": self.version, **self._asdict()}
        return {name: plain(_named(value)) for name, value in given.items() if value is not None}


def _named(value: Any) -> object:  # noqa: ANN401 - any payload
    """Return a tuple with names as what it says; anything else as it is."""
    names: tuple[str, ...] | None = getattr(type(value), "_fields", None)
    if names is None or not isinstance(value, tuple):
        return value
    return {name: member for name, member in zip(names, value, strict=True) if member is not None}


class ExecutionEventDescriptor(NamedTuple):
    """What an observer is asked about before it gets an event."""

    name: CoreEventName
    content: bool
    identity: DiagnosticIdentity
