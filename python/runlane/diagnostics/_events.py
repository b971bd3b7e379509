"""The envelope every event has, and whose execution it belongs to."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypedDict, TypeVar

from typing_extensions import Unpack, override

from runlane.contracts import Id, JsonObject, TimestampMs
from runlane.diagnostics._catalog import CoreEventName
from runlane.diagnostics._payloads import CoreEventPayload
from runlane.diagnostics._plain import plain
from runlane.diagnostics._steps import RecordedSubStep
from runlane.errors import UsageError

__all__ = ["CoreEvent", "DiagnosticIdentity", "DiagnosticSpanFields", "ExecutionEventDescriptor", "trusted"]

T = TypeVar("T")

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
        if not given.keys() <= _SPAN_FACTS:
            raise UsageError("a span says nothing else of itself", argument=min(given.keys() - _SPAN_FACTS))
        object.__setattr__(self, "given", given)

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


_SPAN_FACTS: Final = frozenset(SpanFacts.__annotations__)


@dataclass(frozen=True, kw_only=True)
class DiagnosticIdentity:
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


@dataclass(frozen=True, kw_only=True)
class CoreEvent:
    """One fact, as consumers get it.

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
    """

    version: Literal[1] = VERSION
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

    def to_record(self) -> JsonObject:
        """Return the event as JSON of exact built-in types; `normalize_diagnostic_event` reads it back."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: plain(value) for name, value in given if value is not None}


class ExecutionEventDescriptor(NamedTuple):
    """What an observer is asked about before it gets an event."""

    name: CoreEventName
    content: bool
    identity: DiagnosticIdentity


def trusted(kind: type[T], facts: dict[str, Any], /) -> T:
    """Make a frozen dataclass without its constructor, at half the cost.

    Args:
        kind: The class.
        facts: Its fields, which become its own; those with a default may be left out.
    """
    made = object.__new__(kind)
    object.__setattr__(made, "__dict__", facts)
    return made
