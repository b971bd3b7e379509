"""How far a listener has read, and what an event means to it: new, seen before, or a sign of loss.

| event | condition | status |
|---|---|---|
| durable | version lower than the cursor's | duplicate |
| durable | same version, id seen | duplicate |
| durable | same version, other id | accepted |
| durable | higher version, however far | accepted; the ids start again |
| transient | same epoch, sequence not above the last | duplicate |
| transient | same epoch, the next sequence | accepted |
| transient | same epoch, a later sequence | gap; the cursor advances all the same |
| transient | another epoch, or none yet | accepted at any sequence |

A `ConversationCursor` follows every run of a conversation. It sees each run from its beginning, so the first transient
event of a run must be number 1 there; otherwise it is a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from runlane.contracts import require_kind
from runlane.delivery._events import DurableEvent, RuntimeEvent, TransientEvent

__all__ = [
    "ConversationCursor",
    "CursorAdvance",
    "CursorStatus",
    "EventCursor",
    "RunPosition",
    "advance_conversation_cursor",
    "advance_event_cursor",
]

CursorStatus: TypeAlias = Literal["accepted", "duplicate", "gap"]
"""What an event is to a listener."""

_NO_IDS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCursor:
    """How far the events of one run were read; keep it and go on from it.

    Attributes:
        snapshot_version: Of the last durable event, or of the snapshot that was loaded.
        durable_event_ids: What was seen of that version.
        runtime_epoch: Of the last transient event.
        sequence: Of the last transient event; present exactly when `runtime_epoch` is.
    """

    snapshot_version: int | None = None
    durable_event_ids: frozenset[str] = _NO_IDS
    runtime_epoch: str | None = None
    sequence: int | None = None


class RunPosition(NamedTuple):
    """The last transient event of a run that was read."""

    runtime_epoch: str
    sequence: int


_NO_RUNS: Final[Mapping[str, RunPosition]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCursor:
    """How far the events of a conversation were read, for all its runs.

    Attributes:
        snapshot_version: Of the last durable event, or of the snapshot that was loaded.
        durable_event_ids: What was seen of that version.
        runs: The position in each run's transient events, by run id.
    """

    snapshot_version: int | None = None
    durable_event_ids: frozenset[str] = _NO_IDS
    runs: Mapping[str, RunPosition] = field(default_factory=lambda: _NO_RUNS)


C = TypeVar("C", EventCursor, ConversationCursor)


@dataclass(frozen=True, slots=True)
class CursorAdvance(Generic[C]):
    """What an event was to a cursor, and the cursor after it."""

    status: CursorStatus
    cursor: C


def advance_event_cursor(cursor: EventCursor, event: RuntimeEvent, /) -> CursorAdvance[EventCursor]:
    """Return what an event of the one followed run means; pure.

    Example:
        >>> from datetime import UTC, datetime
        >>> from runlane.delivery import RunStateEvent
        >>> event = RunStateEvent(
        ...     conversation_id="c", run_id="r", emitted_at=datetime(2026, 1, 1, tzinfo=UTC),
        ...     snapshot_version=4, state="running",
        ... )
        >>> first = advance_event_cursor(EventCursor(), event)
        >>> first.status, advance_event_cursor(first.cursor, event).status
        ('accepted', 'duplicate')
    """
    require_kind(cursor, EventCursor, argument="cursor")
    if isinstance(event, DurableEvent):
        return _advance_durable(cursor, event)
    require_kind(event, TransientEvent, argument="event")
    last = None
    if cursor.runtime_epoch is not None and cursor.sequence is not None:
        last = RunPosition(cursor.runtime_epoch, cursor.sequence)
    status = _transient_status(last, event)
    if status == "duplicate":
        return CursorAdvance(status, cursor)
    return CursorAdvance(status, replace(cursor, runtime_epoch=event.runtime_epoch, sequence=event.sequence))


def advance_conversation_cursor(
    cursor: ConversationCursor, event: RuntimeEvent, /
) -> CursorAdvance[ConversationCursor]:
    """Return what an event of any run of the conversation means; pure."""
    require_kind(cursor, ConversationCursor, argument="cursor")
    if isinstance(event, DurableEvent):
        return _advance_durable(cursor, event)
    require_kind(event, TransientEvent, argument="event")
    last = cursor.runs.get(event.run_id)
    status = _transient_status(last, event)
    if status == "duplicate":
        return CursorAdvance(status, cursor)
    if last is None and event.sequence != 1:
        status = "gap"
    runs = {**cursor.runs, event.run_id: RunPosition(event.runtime_epoch, event.sequence)}
    return CursorAdvance(status, replace(cursor, runs=MappingProxyType(runs)))


def _advance_durable(cursor: C, event: DurableEvent) -> CursorAdvance[C]:
    seen, version = cursor.snapshot_version, event.snapshot_version
    if seen is None or version > seen:
        ids = frozenset((event.event_id,))
    elif version < seen or event.event_id in cursor.durable_event_ids:
        return CursorAdvance("duplicate", cursor)
    else:
        ids = cursor.durable_event_ids | {event.event_id}
    return CursorAdvance("accepted", replace(cursor, snapshot_version=version, durable_event_ids=ids))


def _transient_status(last: RunPosition | None, event: TransientEvent) -> CursorStatus:
    if last is None or last.runtime_epoch != event.runtime_epoch:
        return "accepted"
    if event.sequence <= last.sequence:
        return "duplicate"
    return "accepted" if event.sequence == last.sequence + 1 else "gap"
