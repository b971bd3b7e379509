"""From an archive to the rows of a conversation: whatever would contradict itself in a store is refused before."""

from __future__ import annotations

from datetime import datetime

from runlane.errors import ArchiveInvalidError, ConversationPurgedError, ImportTargetNotEmptyError, InvalidValueError
from runlane.store._agreement import Told, check_runs, require
from runlane.store._bodies import encode_json
from runlane.store._driver import Rows
from runlane.store._ledger import ENVELOPE_VERSION, EVENT_KINDS, TRANSITION
from runlane.store._rows import Changes, DraftChange, EventRow, Head, MessageRow
from runlane.store._shape import check_id
from runlane.store._snapshot import Contents, head_of_archive, transitions

__all__ = ["changes_of", "import_rows"]


def import_rows(rows: Rows, conversation_id: str, changes: Changes, /) -> None:
    """Write an archive's rows where there is nothing.

    Raises:
        ConversationPurgedError: The id was purged.
        ImportTargetNotEmptyError: The conversation exists.
    """
    head = rows.head(conversation_id)
    if head.purged:
        raise ConversationPurgedError(conversation_id=conversation_id)
    if head.version or head.seq:
        raise ImportTargetNotEmptyError(conversation_id=conversation_id)
    if changes.entries:
        rows.save(conversation_id, changes)


def changes_of(contents: Contents, /) -> Changes:
    """Return the rows of an archive. It takes a time that grows with the conversation, and no lock.

    The ledger decides: it must be contiguous, count versions as a store does, name every message with its hash and
    tell every revision of every run up to the one that is there. Receipts and placed seeds are made from it.

    Raises:
        ArchiveInvalidError: Something is not valid, or the parts do not agree; `field` says where.
    """
    told = Told(contents)
    entries = _entries(contents)
    for index, event, record in transitions(contents.archive):
        told.hear(f"events.{index}.payload", event, record)
    check_runs(contents)
    told.finish()
    changes = Changes(before=Head(), head=head_of_archive(contents))
    changes.runs = {run_id: (None, row) for run_id, row in contents.runs.items()}
    changes.messages = [*contents.messages.values(), *_reserved(contents)]
    changes.receipts = list(told.receipts.values())
    changes.seeds = list(told.seeds.values())
    changes.drafts = [
        DraftChange(run_id, number, body)
        for run_id, bodies in contents.drafts.items()
        for number, body in enumerate(bodies, start=1)
    ]
    changes.entries = entries
    return changes


def _entries(contents: Contents) -> list[EventRow]:
    """Return the ledger's rows; sequences and versions must be those that a store gives."""
    version = 0
    found: list[EventRow] = []
    for index, event in enumerate(contents.archive.events):
        place = f"events.{index}"
        version += event.kind == TRANSITION
        require(event.seq == index + 1, f"{place}.seq", f"the ledger must be contiguous; wanted {index + 1}")
        require(event.version == version, f"{place}.version", f"wanted {version}, as the transitions before it count")
        require(_has_zone(event.occurred_at), f"{place}.occurred_at", "must be a time with its zone")
        known = event.kind in EVENT_KINDS and event.schema_version == ENVELOPE_VERSION
        require(known or event.ignorable, f"{place}.kind", f"{event.kind!r} is none that this program knows")
        command_id = event.event_id if event.command_id is None else event.command_id
        try:
            for name, value in (("event_id", event.event_id), ("command_id", command_id), ("kind", event.kind)):
                check_id(value, f"{place}.{name}")
            body = encode_json(event.payload, argument=f"{place}.payload")
        except InvalidValueError as error:
            raise ArchiveInvalidError(str(error), field=error.argument) from None
        found.append(
            EventRow(
                seq=event.seq,
                version=version,
                event_id=event.event_id,
                command_id=command_id,
                kind=event.kind,
                occurred_at=event.occurred_at,
                body=body,
                ignorable=event.ignorable,
                schema_version=event.schema_version,
            )
        )
    snapshot = contents.snapshot
    place = "projections.0" if contents.archive.projections else "projections"
    require(snapshot.version == version, f"{place}.version", f"the ledger ends at version {version}")
    require(snapshot.gap <= snapshot.next_place, "projections.0.gap", "it lies behind next_place")
    require(snapshot.created_at or not found, "projections.0.created_at", "a conversation with events has begun")
    require(snapshot.changed_at or not found, "projections.0.changed_at", "a conversation with events has changed")
    require(snapshot.active_at or not found, "projections.0.active_at", "a conversation with events was active")
    return found


def _has_zone(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _reserved(contents: Contents) -> list[MessageRow]:
    """Return the rows that reserve answers which do not exist."""
    return [
        MessageRow(row.run.assistant_message_id, None, row.arrival, run_id, "assistant", "pending", None)
        for run_id, row in contents.runs.items()
        if row.run.assistant_message_id not in contents.messages
    ]
