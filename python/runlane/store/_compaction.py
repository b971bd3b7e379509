"""Changes that concern no run: a summary in place of old messages, and ledger entries of the layers above."""

from __future__ import annotations

from runlane.errors import InvalidValueError, UsageError
from runlane.records import format_timestamp
from runlane.store._bodies import encode_json
from runlane.store._commands import AppendEvent, ReplaceCompactedRange
from runlane.store._ledger import EVENT_KINDS, TRANSITION
from runlane.store._order import QUEUED, answer_position, queue_positions
from runlane.store._outcomes import Applied, Conflict, Delta, NotFound
from runlane.store._rows import Changes, EventRow, MessagePlace, View
from runlane.store._step import Decision, Step, moment, next_head, refuse_foreign

__all__ = ["append_event", "replace_range"]


def replace_range(view: View, command: ReplaceCompactedRange, /) -> Decision:
    """Put a summary where contiguous messages were; their rows stay, flagged."""
    if command.expected_version != view.head.version:
        return Decision(Conflict(actual_version=view.head.version))
    ids = set(command.replaced_message_ids)
    if not ids or len(ids) != len(command.replaced_message_ids):
        raise UsageError("names at least one message, each once", argument="replaced_message_ids")
    if any(row.run.assistant_message_id in ids for row in view.active.values()):
        raise UsageError("includes the answer of an active run", argument="replaced_message_ids")
    places = [view.messages.get(message_id) for message_id in command.replaced_message_ids]
    if any(place is None or place.position is None or place.removed_at is not None for place in places):
        return Decision(NotFound())
    first = _first_of_range(view, ids)
    _check_summary(view, command)
    step = Step(view, command)
    step.changes.removed.extend((message_id, step.version) for message_id in command.replaced_message_ids)
    reference = step.insert(command.summary, first)
    return step.finish("compact", {"message": reference, "removed": [*command.replaced_message_ids]})


def _first_of_range(view: View, ids: set[str]) -> int:
    """Return the position of the first message of a contiguous range.

    Raises:
        UsageError: Something stands between the messages.
    """
    waiting = queue_positions(view.active.values())
    span = sorted((waiting.get(place.message_id, place.position or 0), place) for place in _with_drafts(view))
    inside = [index for index, (_, place) in enumerate(span) if place.message_id in ids]
    if not inside or inside[-1] - inside[0] + 1 != len(ids) or len(inside) != len(ids):
        raise UsageError("is not contiguous", argument="replaced_message_ids")
    first = span[inside[0]][1].position
    return first if first is not None and first < QUEUED else view.head.next_place


def _with_drafts(view: View) -> list[MessagePlace]:
    """Return the span with the answers that are being written, which stand between messages without being rows."""
    drafts = [
        MessagePlace(row.run.assistant_message_id, answer_position(row.place), None)
        for row in view.active.values()
        if row.draft is not None and row.place is not None
    ]
    return [*view.span, *drafts]


def _check_summary(view: View, command: ReplaceCompactedRange) -> None:
    summary = command.summary
    refuse_foreign(view, summary.conversation_id, argument="summary")
    if summary.role != "summary" or summary.status != "committed" or summary.run_id is not None:
        raise UsageError("must be a committed summary message of no run", argument="summary")
    if summary.id in view.messages:
        raise UsageError(f"message id {summary.id!r} is taken", argument="summary.id")


def append_event(view: View, command: AppendEvent, /) -> Decision:
    """Append an entry of the layers above; the version stays. Its identity is checked by the store."""
    if command.kind not in EVENT_KINDS or command.kind == TRANSITION:
        raise InvalidValueError(f"{command.kind!r} is not a kind that can be appended", argument="kind")
    before, event_id = view.head, command.event_id
    body = encode_json(command.payload, argument="payload")
    at = format_timestamp(moment(command.at))
    occurred = at
    if command.occurred_at is not None:
        occurred = format_timestamp(moment(command.occurred_at, argument="occurred_at"))
    head = next_head(before, before.version, at)
    entry = EventRow(
        head.seq,
        head.version,
        command.command_id if event_id is None else event_id,
        command.command_id,
        command.kind,
        occurred,
        body,
        command.ignorable,
    )
    changes = Changes(before, head, entries=[entry])
    return Decision(Applied(Delta(head.version, head.seq)), changes)
