"""Every read of a store, as a function of one transaction's rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from runlane.errors import InvalidValueError, RecordCorruptError
from runlane.records import ConversationHead, JsonObject, Message, Run, Snapshot
from runlane.store._bodies import decode_object, digest
from runlane.store._commands import ReadEvents
from runlane.store._draft import draft_message, read_draft
from runlane.store._driver import MessageQuery, Rows
from runlane.store._ledger import TRANSITION
from runlane.store._order import answer_position, in_order, order_key, queue_positions
from runlane.store._outcomes import (
    Delta,
    EventEnvelope,
    EventPage,
    MessagePage,
    RecoverableDescriptor,
    RecoverablePage,
    RunView,
    StoredMessage,
)
from runlane.store._pages import Page, Place
from runlane.store._rows import EventRow, MessageRow, RunRow
from runlane.store._transaction import read_message

__all__ = [
    "active_runs",
    "changes_since",
    "check_limit",
    "draft_of",
    "entry_name",
    "envelope",
    "event_by_id",
    "events",
    "head_of",
    "messages_before",
    "recoverable_runs",
    "run_view",
    "snapshot",
    "stored_message",
]

_PAGE: Final = 1_000
_LAST: Final = 1 << 62
"""A sequence beyond all, which a database can still compare."""
_PLACES: Final = frozenset({"acquire", "terminal", "cancel", "recover"})
"""Transitions after which a run's inputs may stand somewhere else."""


def check_limit(limit: int, most: int, /) -> None:
    """Refuse a page size out of range.

    Raises:
        InvalidValueError: It is not an integer of 1 to `most`.
    """
    if type(limit) is not int or not 1 <= limit <= most:
        raise InvalidValueError(f"must be an integer of 1 to {most:,}", argument="limit")


def head_of(rows: Rows, conversation_id: str, /) -> ConversationHead:
    """Return the head as a record."""
    head = rows.head(conversation_id)
    return ConversationHead(conversation_id=conversation_id, version=0 if head.purged else head.version)


def run_view(rows: Rows, conversation_id: str, run_id: str, /) -> RunView | None:
    """Return one run, with its answer if it ended."""
    row = rows.run(conversation_id, run_id)
    if row is None:
        return None
    run = row.run
    assistant = None
    if run.terminal_reason is not None and run.terminal_reason != "absorbed":
        answer = rows.bodies(conversation_id, [run.assistant_message_id]).get(run.assistant_message_id)
        if answer is None:
            raise RecordCorruptError(f"run {run_id!r} of conversation {conversation_id!r} ended without an answer")
        assistant = read_message(conversation_id, answer)
    return RunView(snapshot_version=rows.head(conversation_id).version, run=run, assistant=assistant)


def active_runs(rows: Rows, conversation_id: str, /) -> tuple[Run, ...]:
    """Return the active runs in causal order."""
    return tuple(row.run for row in in_order(rows.active(conversation_id)))


def draft_of(rows: Rows, conversation_id: str, run_id: str, /) -> Message | None:
    """Return the streaming answer of an active run."""
    row = rows.run(conversation_id, run_id)
    return None if row is None else _draft(rows, conversation_id, row)


def _draft(rows: Rows, conversation_id: str, row: RunRow) -> Message | None:
    if row.draft is None:
        return None
    bodies = rows.draft(conversation_id, row.run.id)
    what = f"run {row.run.id!r} of conversation {conversation_id!r}"
    return draft_message(row.run, read_draft(row.draft, bodies, what=what))


def snapshot(rows: Rows, conversation_id: str, /) -> Snapshot:
    """Return everything active: messages, drafts among them, and the runs these and the queue belong to."""
    active = rows.active(conversation_id)
    waiting = queue_positions(active)
    placed: list[tuple[int, int, Message]] = []
    for age, row in enumerate(_all_messages(rows, conversation_id)):
        position = waiting.get(row.message_id, row.position or 0)
        placed.append((position, age, read_message(conversation_id, row)))
    for run in active:
        draft = _draft(rows, conversation_id, run)
        if draft is not None and run.place is not None:
            placed.append((answer_position(run.place), len(placed), draft))
    messages = tuple(message for _, _, message in sorted(placed, key=lambda item: item[:2]))
    wanted = {message.run_id for message in messages if message.run_id is not None}
    ended = rows.runs(conversation_id, wanted - {row.run.id for row in active})
    return Snapshot(
        conversation_id=conversation_id,
        version=head_of(rows, conversation_id).version,
        messages=messages,
        runs=tuple(row.run for row in in_order([*active, *ended])),
    )


def _all_messages(rows: Rows, conversation_id: str) -> list[MessageRow]:
    return rows.messages(conversation_id, MessageQuery(limit=1 << 40, newest_first=False))


def messages_before(rows: Rows, conversation_id: str, before: Place | None, limit: int, /) -> MessagePage:
    """Return a page of messages, newest first; the queue's come first of all, in the order of its runs."""
    found, following = Page(conversation_id, limit, newest_first=True, start=before, removed=False).read(rows)
    return MessagePage(
        items=tuple(stored_message(conversation_id, row, position) for position, row in found),
        version=head_of(rows, conversation_id).version,
        next_before=following,
    )


def stored_message(conversation_id: str, row: MessageRow, position: int, /) -> StoredMessage:
    """Return a message row for readers that parse it themselves.

    Raises:
        RecordCorruptError: It cannot be a message.
    """
    body = row.body or b""
    if not (body.startswith(b"{") and body.endswith(b"}")):
        raise RecordCorruptError(f"message {row.message_id!r} of conversation {conversation_id!r} is not a JSON object")
    return StoredMessage(
        position=position,
        version=row.version,
        message_id=row.message_id,
        run_id=row.run_id,
        role=row.role,
        status=row.status,
        body=body,
    )


def recoverable_runs(rows: Rows, cursor: tuple[str, str] | None, limit: int, /) -> RecoverablePage:
    """Return a page of active runs, and whether their owners live."""
    found = rows.recoverable(cursor, limit + 1)
    page = found[:limit]
    owner_ids = {owner_id for _, row in page if (owner_id := row.run.owner_id) is not None}
    alive: dict[str | None, bool] = {owner_id: owner.alive for owner_id, owner in rows.owners(owner_ids).items()}
    items = tuple([RecoverableDescriptor(name, row.run, alive.get(row.run.owner_id)) for name, row in page])
    last = (page[-1][0], page[-1][1].run.id) if len(found) > limit else None
    return RecoverablePage(items=items, next_cursor=last)


# --- the ledger ---------------------------------------------------------------------------------------------------


def events(rows: Rows, query: ReadEvents, /) -> EventPage:
    """Return a page of ledger entries, with the bodies they refer to."""
    first, last = min(query.from_seq or 1, _LAST), min(query.to_seq or _LAST, _LAST)
    head = rows.head(query.conversation_id)
    if query.after_version:
        if head.version <= query.after_version:
            return EventPage(items=())
        first = max(first, _first_after(rows, query.conversation_id, query.after_version, head.seq))
    found = _entries(rows, query.conversation_id, (first, min(last, head.seq)), query.limit + 1)
    page = found[: query.limit]
    items = _envelopes(rows, query.conversation_id, page)
    return EventPage(items=items, next_seq=page[-1].seq + 1 if len(found) > query.limit else None)


def _entries(rows: Rows, conversation_id: str, span: tuple[int, int], limit: int) -> list[EventRow]:
    """Return ledger entries from the first to the last that the head knows of, all that there must be.

    Raises:
        RecordCorruptError: One is missing.
    """
    first, last = span
    if first > last:
        return []
    found = rows.entries(conversation_id, first, last, limit)
    for seq in range(first, min(last, first + limit - 1) + 1):
        if seq - first >= len(found) or found[seq - first].seq != seq:
            raise RecordCorruptError(f"ledger entry {seq} of conversation {conversation_id!r} is missing")
    return found


def event_by_id(rows: Rows, conversation_id: str, event_id: str, /) -> EventEnvelope | None:
    """Return one ledger entry."""
    row = rows.entry(conversation_id, event_id)
    return None if row is None else _envelopes(rows, conversation_id, [row])[0]


def _envelopes(rows: Rows, conversation_id: str, entries: list[EventRow]) -> tuple[EventEnvelope, ...]:
    payloads = [decode_object(row.body, what=entry_name(conversation_id, row)) for row in entries]
    transitions = [(row, payload) for row, payload in zip(entries, payloads, strict=True) if row.kind == TRANSITION]
    _join(rows, conversation_id, transitions)
    return tuple(envelope(conversation_id, row, payload) for row, payload in zip(entries, payloads, strict=True))


def envelope(conversation_id: str, row: EventRow, payload: JsonObject, /) -> EventEnvelope:
    """Return a ledger entry as it is read, with a payload that was made of its body."""
    return EventEnvelope(
        schema_version=row.schema_version,
        event_id=row.event_id,
        conversation_id=conversation_id,
        seq=row.seq,
        version=row.version,
        kind=row.kind,
        occurred_at=row.occurred_at,
        payload=payload,
        command_id=row.command_id,
        ignorable=row.ignorable,
    )


def entry_name(conversation_id: str, row: EventRow, /) -> str:
    """Return what errors call a ledger entry."""
    return f"ledger entry {row.seq} of conversation {conversation_id!r}"


def _join(rows: Rows, conversation_id: str, transitions: list[tuple[EventRow, JsonObject]]) -> None:
    """Put the bodies, and the runs of admissions, beside what the entries say of them."""
    references = [reference for _, payload in transitions for reference in _references(payload)]
    bodies = rows.bodies(conversation_id, {str(reference.get("id")) for reference in references})
    for reference in references:
        name = str(reference.get("id"))
        row = bodies.get(name)
        body = None if row is None else row.body
        if body is None or digest(body).hex() != reference.get("sha256"):
            raise RecordCorruptError(
                f"message {name!r} of conversation {conversation_id!r} is not the one its ledger names"
            )
        reference["body"] = decode_object(body, what=f"message {name!r}")
    accepted = [(entry, payload) for entry, payload in transitions if payload.get("type") == "accept"]
    names = {str(payload.get("run_id")) for _, payload in accepted}
    runs = {row.run.id: row.run for row in rows.runs(conversation_id, names)}
    for entry, payload in accepted:
        payload["run"] = _as_accepted(payload, entry.occurred_at, runs, conversation_id).to_json()


def _references(payload: JsonObject) -> list[JsonObject]:
    """Return what an entry says of whole messages; a draft's reference is followed nowhere."""
    if payload.get("type") == "checkpoint":
        return []
    several: JsonValue = payload.get("messages", [])
    listed: list[JsonValue] = [payload.get("message"), *(several if isinstance(several, list) else [])]
    return [value for value in listed if isinstance(value, dict)]


def _as_accepted(payload: JsonObject, at: str, runs: dict[str, Run], conversation_id: str) -> Run:
    """Return a run as an admission left it: a run only ever gains inputs, at the end, one by one."""
    run = runs.get(str(payload.get("run_id")))
    count = payload.get("inputs")
    revision = payload.get("revision")
    if run is None or type(count) is not int or type(revision) is not int:
        raise RecordCorruptError(f"an admission in conversation {conversation_id!r} names a run that is not there")
    if not 0 < count <= len(run.input_message_ids) or not 0 <= revision <= run.revision:
        raise RecordCorruptError(f"an admission in conversation {conversation_id!r} contradicts run {run.id!r}")
    return Run(
        id=run.id,
        conversation_id=run.conversation_id,
        input_message_ids=run.input_message_ids[:count],
        assistant_message_id=run.assistant_message_id,
        state="queued",
        revision=revision,
        queue_priority=run.queue_priority,
        request=run.request,
        created_at=run.created_at,
        updated_at=datetime.fromisoformat(at) if revision else run.created_at,
    )


# --- catching up --------------------------------------------------------------------------------------------------


def changes_since(rows: Rows, conversation_id: str, since: int, /) -> Delta:
    """Return what changed after a version, found through the ledger: its cost follows the changes."""
    head = rows.head(conversation_id)
    if head.purged or since >= head.version:
        return Delta(version=0 if head.purged else head.version, seq=0 if head.purged else head.seq)
    run_ids: set[str] = set()
    message_ids: set[str] = set()
    placed_runs: set[str] = set()
    for payload in _transitions_after(rows, conversation_id, since, head.seq):
        named = {str(payload[key]) for key in ("run_id",) if key in payload} | set(_absorbed(payload))
        run_ids |= named
        message_ids |= {str(reference.get("id")) for reference in _references(payload)}
        if payload.get("type") in _PLACES:
            placed_runs |= named
        removed = payload.get("removed")
        message_ids.update(str(item) for item in (removed if isinstance(removed, list) else ()))
    runs = in_order(rows.runs(conversation_id, run_ids))
    message_ids.update(item for row in runs if row.run.id in placed_runs for item in row.run.input_message_ids)
    messages, gone = _current(rows, conversation_id, message_ids, runs)
    return Delta(
        version=head.version, seq=head.seq, runs=tuple(row.run for row in runs), messages=messages, removed=gone
    )


def _absorbed(payload: JsonObject) -> list[str]:
    listed = payload.get("absorbed")
    return [str(item.get("run_id")) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _current(
    rows: Rows, conversation_id: str, message_ids: set[str], runs: Iterable[RunRow]
) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """Split messages into those that are active now, in causal order, and those that were compacted."""
    waiting = queue_positions(sorted((row for row in runs if row.run.is_active), key=order_key))
    found = rows.bodies(conversation_id, message_ids).values()
    active = [row for row in found if row.removed_at is None]
    active.sort(key=lambda row: (waiting.get(row.message_id, row.position or 0), row.version))
    gone = sorted((row for row in found if row.removed_at is not None), key=lambda row: row.position or 0)
    return tuple(read_message(conversation_id, row) for row in active), tuple(row.message_id for row in gone)


def _transitions_after(rows: Rows, conversation_id: str, since: int, last: int) -> list[JsonObject]:
    first = _first_after(rows, conversation_id, since, last)
    found: list[JsonObject] = []
    while first <= last:
        page = _entries(rows, conversation_id, (first, last), _PAGE)
        found += [
            decode_object(row.body, what=entry_name(conversation_id, row)) for row in page if row.kind == TRANSITION
        ]
        first += len(page)
    return found


def _first_after(rows: Rows, conversation_id: str, since: int, last: int) -> int:
    """Return the sequence of the first entry past a version, by bisection: neither ever falls behind the other.

    A version is never larger than its sequence, so the search begins there.
    """
    low, high = since + 1, last
    while low < high:
        middle = (low + high) // 2
        if _entries(rows, conversation_id, (middle, middle), 1)[0].version > since:
            high = middle
        else:
            low = middle + 1
    return low
