"""The envelope every event has, and whose execution it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeVar

from runlane.contracts import Id, JsonObject, TimestampMs
from runlane.diagnostics._catalog import CoreEventName
from runlane.diagnostics._payloads import CoreEventPayload
from runlane.diagnostics._plain import plain
from runlane.diagnostics._steps import RecordedSubStep

__all__ = ["CoreEvent", "DiagnosticIdentity", "DiagnosticSpanFields", "ExecutionEventDescriptor", "trusted"]

T = TypeVar("T")

VERSION: Final = 1


class DiagnosticSpanFields(NamedTuple):
    """What a span may say of itself. Run and span ids are given, never said."""

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
        given = ((name, value) for name, value in self.__dict__.items() if value is not None)
        return {name: plain(value) for name, value in given}


class ExecutionEventDescriptor(NamedTuple):
    """What an observer is asked about before it gets an event."""

    name: CoreEventName
    content: bool
    identity: DiagnosticIdentity


def trusted(kind: type[T], facts: dict[str, Any], /) -> T:
    """Make a frozen dataclass of facts that are known to be all of its fields: half the cost of its constructor."""
    made = object.__new__(kind)
    made.__dict__.update(facts)
    return made
