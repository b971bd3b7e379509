"""Durable events rebuilt from ledger entries: what a commit told its listeners, told again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, TypedDict

from runlane.contracts import require_kind
from runlane.delivery._events import (
    AdmissionEvent,
    CheckpointEvent,
    DurableEvent,
    RunOperationEvent,
    RunStateEvent,
    TerminalEvent,
)
from runlane.records import (
    COMPLETING_REASONS,
    AssistantPlaceholder,
    Message,
    Run,
    RunMetrics,
    RunState,
    TerminalReason,
    Usage,
)
from runlane.store import EventEnvelope, TransitionRecord

__all__ = ["fold_events", "placeholder_for"]

_TRANSITION = "runtime/transition"


class _Common(TypedDict):
    conversation_id: str
    run_id: str
    emitted_at: datetime
    snapshot_version: int


def placeholder_for(run: Run, /) -> AssistantPlaceholder:
    """Return what stands for the answer of a run that has none yet."""
    require_kind(run, Run, argument="run")
    return AssistantPlaceholder(
        id=run.assistant_message_id,
        conversation_id=run.conversation_id,
        run_id=run.id,
        created_at=run.created_at,
        updated_at=run.created_at,
    )


def fold_events(entry: EventEnvelope, /) -> list[DurableEvent]:
    """Return the events that followed the commit of a ledger entry, in order; none for entries of other kinds.

    A checkpoint's text is not part of the ledger: its event comes back without patch and draft, and its metrics have
    the spend only.
    """
    require_kind(entry, EventEnvelope, argument="entry")
    if entry.kind != _TRANSITION:
        return []
    record = TransitionRecord.model_validate(entry.payload)
    if record.run_id is None:
        return []
    common: _Common = {
        "conversation_id": entry.conversation_id,
        "run_id": record.run_id,
        "emitted_at": datetime.fromisoformat(entry.occurred_at),
        "snapshot_version": entry.version,
    }
    return _TELLERS.get(record.type, _change)(record, common)


def _state(state: RunState, common: _Common) -> RunStateEvent:
    return RunStateEvent(state=state, **common)


def _body(record: TransitionRecord) -> Message | None:
    return record.message.body if record.message else None


def _admission(record: TransitionRecord, common: _Common) -> list[DurableEvent]:
    run, message = record.run, _body(record)
    if run is None or message is None:
        return []
    return [
        AdmissionEvent(input=message, run=run, assistant=placeholder_for(run), **common),
        _state(run.state, common),
    ]


def _checkpoint(record: TransitionRecord, common: _Common) -> list[DurableEvent]:
    if record.message is None or not record.message.parts:
        return []
    metrics = RunMetrics(partial=True, usage=record.usage or Usage.unknown())
    return [CheckpointEvent(patch=None, draft=None, metrics=metrics, **common)]


def _operation(record: TransitionRecord, common: _Common) -> list[DurableEvent]:
    return [RunOperationEvent(operation=record.operation, **common)] if record.operation else []


def _change(record: TransitionRecord, common: _Common) -> list[DurableEvent]:
    return [_state(record.state, common)] if record.state else []


def _ending(record: TransitionRecord, common: _Common) -> list[DurableEvent]:
    events: list[DurableEvent] = []
    if record.type == "cancel" and record.state:
        events.append(_state(record.state, common))
    events.extend(_state("superseded", {**common, "run_id": run.run_id}) for run in record.absorbed or ())
    message = _body(record)
    if message is not None:
        reason: TerminalReason = record.reason or "cancelled"
        metrics = record.metrics or RunMetrics(
            partial=reason not in COMPLETING_REASONS, usage=record.usage or Usage.unknown()
        )
        events.append(
            TerminalEvent(reason=reason, policy_name=record.policy_name, message=message, metrics=metrics, **common)
        )
    return events


_TELLERS: Final[dict[str, Callable[[TransitionRecord, _Common], list[DurableEvent]]]] = {
    "accept": _admission,
    "checkpoint": _checkpoint,
    "operation": _operation,
    "cancel": _ending,
    "terminal": _ending,
}
