"""The runtime snapshot of an archive: what a store keeps of a conversation beside the ledger, as JSON and as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from runlane.errors import ArchiveInvalidError, InvalidValueError, StoreError
from runlane.records import JsonObject, Message, Record, RecordId, RecordVersion, Run, Timestamp, format_timestamp
from runlane.store._archive import ConversationArchive, first_problem
from runlane.store._bodies import decode, decode_object, encode_json
from runlane.store._draft import draft_head
from runlane.store._driver import MessageQuery, Rows
from runlane.store._ledger import TRANSITION, TransitionRecord
from runlane.store._order import QUEUED
from runlane.store._outcomes import EventEnvelope
from runlane.store._reads import entry_name, envelope
from runlane.store._rows import MAX_POSITION, EventRow, Head, MessageRow, RunRow

__all__ = [
    "Contents",
    "Stored",
    "archive_of",
    "collect",
    "head_of_archive",
    "snapshot_json",
    "take_apart",
    "transitions",
]

_PAGE: Final = 10_000
_EVERYTHING: Final = 1 << 40

Place = Annotated[int, Field(gt=-QUEUED, lt=QUEUED, strict=True)]
Position = Annotated[int, Field(gt=-QUEUED, le=MAX_POSITION, strict=True)]
Version = Annotated[int, Field(ge=1, strict=True)]


class ArchivedRun(Record):
    """A run; `draft` are the checkpoints of its answer so far, oldest first, absent if there is none."""

    run: Run
    arrival: Version
    version: Version
    place: Place | None = None
    draft: tuple[dict[str, Any], ...] | None = None


class ArchivedMessage(Record):
    """A message; `removed_at` is the version at which compaction took it out of the active history."""

    message: dict[str, Any]
    position: Position
    version: Version
    removed_at: Version | None = None


class RuntimeSnapshot(Record):
    """The first projection of an archive. Receipts are not in it: the ledger says what was accepted and seeded."""

    archive_type: Literal["runtime-snapshot"]
    conversation_id: RecordId
    version: RecordVersion
    lane_epoch: Annotated[RecordVersion, Field(lt=1 << 53)]
    lane_owner: RecordId | None = None
    lowest: Annotated[Place, Field(le=0)] = 0
    next_place: Annotated[Place, Field(ge=0)] = 0
    gap: Annotated[Place, Field(ge=0)] = 0
    created_at: Timestamp | None = None
    changed_at: Timestamp | None = None
    active_at: Timestamp | None = None
    runs: tuple[ArchivedRun, ...]
    messages: tuple[ArchivedMessage, ...]


# --- out of a store -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A conversation as its rows, read in one transaction; nothing is parsed while that is open but who was admitted.

    Attributes:
        runs: By arrival.
        messages: By position, compacted ones included.
        drafts: Patches by run id.
    """

    conversation_id: str
    head: Head
    entries: list[EventRow]
    runs: list[RunRow]
    messages: list[MessageRow]
    drafts: dict[str, tuple[bytes, ...]]


def collect(rows: Rows, conversation_id: str, /) -> Stored:
    """Read everything of a conversation; an unknown or purged one is empty."""
    head = rows.head(conversation_id)
    if head.purged:
        head = Head()
    entries: list[EventRow] = []
    while len(entries) < head.seq:
        page = rows.entries(conversation_id, len(entries) + 1, head.seq, _PAGE)
        entries += page
        if not page:
            break  # the archive is looked through before it leaves, and a gap is found there
    runs = sorted(rows.runs(conversation_id, _admitted(conversation_id, entries)), key=lambda row: row.arrival)
    return Stored(
        conversation_id=conversation_id,
        head=head,
        entries=entries,
        runs=runs,
        messages=rows.messages(conversation_id, MessageQuery(limit=_EVERYTHING, newest_first=False, removed=True)),
        drafts={row.run.id: rows.draft(conversation_id, row.run.id) for row in runs if row.draft is not None},
    )


def _admitted(name: str, entries: Iterable[EventRow]) -> list[str]:
    """Return the ids of all runs that were ever admitted. Stored JSON is canonical, so most entries need no parsing."""
    payloads = (
        decode_object(row.body, what=entry_name(name, row))
        for row in entries
        if row.kind == TRANSITION and b'"type":"accept"' in row.body
    )
    return list(dict.fromkeys(str(payload.get("run_id")) for payload in payloads if payload.get("type") == "accept"))


def archive_of(stored: Stored, /) -> ConversationArchive:
    """Write rows as an archive.

    Raises:
        RecordCorruptError: A row holds no JSON object.
    """
    name = stored.conversation_id
    events = tuple(envelope(name, row, decode_object(row.body, what=entry_name(name, row))) for row in stored.entries)
    runs = [_run_json(row, stored.drafts.get(row.run.id, ())) for row in stored.runs]
    messages = [_message_json(name, row) for row in stored.messages]
    snapshot = snapshot_json(name, stored.head, runs, messages)
    return ConversationArchive(conversation_id=name, events=events, projections=(snapshot,))


def snapshot_json(name: str, head: Head, runs: list[JsonObject], messages: list[JsonObject], /) -> JsonObject:
    """Return a runtime snapshot as it stands in an archive."""
    facts: dict[str, Any] = {
        "archive_type": "runtime-snapshot",
        "conversation_id": name,
        "version": head.version,
        "lane_epoch": head.lane_epoch,
        "lane_owner": head.lane_owner,
        "lowest": head.lowest,
        "next_place": head.next_place,
        "gap": head.gap,
        "created_at": head.created_at or None,
        "changed_at": head.changed_at or None,
        "active_at": head.active_at or None,
        "runs": runs,
        "messages": messages,
    }
    return _without_none(facts)


def _run_json(row: RunRow, draft: Iterable[bytes]) -> JsonObject:
    what = f"a checkpoint of run {row.run.id!r}"
    return _without_none(
        {
            "run": row.run.to_json(),
            "arrival": row.arrival,
            "version": row.version,
            "place": row.place,
            "draft": None if row.draft is None else [decode_object(body, what=what) for body in draft],
        }
    )


def _message_json(name: str, row: MessageRow) -> JsonObject:
    what = f"message {row.message_id!r} of conversation {name!r}"
    return _without_none(
        {
            "message": decode_object(row.body or b"", what=what),
            "position": row.position,
            "version": row.version,
            "removed_at": row.removed_at,
        }
    )


def _without_none(facts: dict[str, Any]) -> JsonObject:
    return {name: value for name, value in facts.items() if value is not None}


# --- into rows ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Contents:
    """An archive taken apart: each record is valid by itself; whether they agree is another question.

    Attributes:
        runs, messages: By id, in the archive's order.
        drafts: Patches by run id.
    """

    archive: ConversationArchive
    snapshot: RuntimeSnapshot
    runs: dict[str, RunRow] = field(default_factory=dict)
    messages: dict[str, MessageRow] = field(default_factory=dict)
    drafts: dict[str, list[bytes]] = field(default_factory=dict)


def take_apart(archive: ConversationArchive, /) -> Contents:
    """Validate the snapshot of an archive that was decoded, record by record.

    Raises:
        ArchiveInvalidError: One is not valid, is there twice, or belongs to another conversation; or the archive holds
            something that this program does not know.
    """
    contents = Contents(archive, _snapshot(archive))
    for index, archived in enumerate(contents.snapshot.messages):
        _add_message(contents, f"projections.0.messages.{index}", archived)
    for index, run in enumerate(contents.snapshot.runs):
        _add_run(contents, f"projections.0.runs.{index}", run)
    return contents


def transitions(archive: ConversationArchive, /) -> Iterator[tuple[int, EventEnvelope, TransitionRecord]]:
    """Yield index, event and payload of each transition. They are not kept: there are many, and one use is enough.

    Raises:
        ArchiveInvalidError: A payload is none of a transition.
    """
    return (
        (index, event, _transition(index, event))
        for index, event in enumerate(archive.events)
        if event.kind == TRANSITION
    )


def _snapshot(archive: ConversationArchive) -> RuntimeSnapshot:
    if archive.spills:
        raise ArchiveInvalidError("this program cannot keep spilled artefacts", field="spills.0")
    for index, value in enumerate(archive.projections):
        kind = value.get("archive_type")
        if kind != "runtime-snapshot" or index > 0:
            problem = f"{kind!r} is none that this program knows, or not where it belongs"
            raise ArchiveInvalidError(problem, field=f"projections.{index}.archive_type")
    if not archive.projections:
        at = archive.events[0].occurred_at if archive.events else None
        nothing = Head() if at is None else Head(created_at=at, changed_at=at, active_at=at)
        return RuntimeSnapshot.model_validate(snapshot_json(archive.conversation_id, nothing, [], []))
    try:
        snapshot = RuntimeSnapshot.model_validate(archive.projections[0])
    except ValidationError as error:
        raise first_problem(error, "projections.0") from None
    if snapshot.conversation_id != archive.conversation_id:
        problem = f"it is conversation {snapshot.conversation_id!r}'s, not {archive.conversation_id!r}'s"
        raise ArchiveInvalidError(problem, field="projections.0.conversation_id")
    return snapshot


def head_of_archive(contents: Contents, /) -> Head:
    """Return the head that the conversation has."""
    snapshot = contents.snapshot
    created, changed, active = (
        "" if at is None else format_timestamp(at)
        for at in (snapshot.created_at, snapshot.changed_at, snapshot.active_at)
    )
    return Head(
        version=snapshot.version,
        seq=len(contents.archive.events),
        lane_epoch=snapshot.lane_epoch,
        lane_owner=snapshot.lane_owner,
        lowest=snapshot.lowest,
        next_place=snapshot.next_place,
        gap=snapshot.gap,
        created_at=created,
        changed_at=changed,
        active_at=active,
    )


def _add_message(contents: Contents, place: str, archived: ArchivedMessage) -> None:
    try:
        body = encode_json(archived.message, argument="message")
        message = decode(Message, body, what="it")
    except (InvalidValueError, StoreError) as error:
        raise ArchiveInvalidError(str(error), field=f"{place}.message") from None
    if message.conversation_id != contents.archive.conversation_id:
        raise ArchiveInvalidError("it belongs to another conversation", field=f"{place}.message.conversation_id")
    if message.id in contents.messages:
        raise ArchiveInvalidError(f"{message.id!r} is there twice", field=f"{place}.message.id")
    contents.messages[message.id] = MessageRow(
        message_id=message.id,
        position=archived.position,
        version=archived.version,
        run_id=message.run_id,
        role=message.role,
        status=message.status,
        body=body,
        removed_at=archived.removed_at,
    )


def _add_run(contents: Contents, place: str, archived: ArchivedRun) -> None:
    run = archived.run
    if run.conversation_id != contents.archive.conversation_id:
        raise ArchiveInvalidError("it belongs to another conversation", field=f"{place}.run.conversation_id")
    if run.id in contents.runs:
        raise ArchiveInvalidError(f"{run.id!r} is there twice", field=f"{place}.run.id")
    draft = None
    if archived.draft is not None:
        try:
            bodies = [encode_json(patch, argument="draft") for patch in archived.draft]
            draft = draft_head(bodies, what=f"run {run.id!r}")
        except (InvalidValueError, StoreError) as error:
            raise ArchiveInvalidError(str(error), field=f"{place}.draft") from None
        contents.drafts[run.id] = bodies
    contents.runs[run.id] = RunRow(run, archived.arrival, archived.version, archived.place, draft)


def _transition(index: int, event: EventEnvelope) -> TransitionRecord:
    place = f"events.{index}"
    if event.schema_version != 1:
        raise ArchiveInvalidError("a transition cannot be skipped", field=f"{place}.schema_version")
    try:
        record = TransitionRecord.model_validate(event.payload)
    except ValidationError as error:
        raise first_problem(error, f"{place}.payload") from None
    if record.run is not None or any(reference.body is not None for reference in record.brought):
        raise ArchiveInvalidError("runs and bodies belong into the snapshot", field=f"{place}.payload")
    return record
