"""Rows of SQLite as rows of the store, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import ValidationError
from pydantic_core import from_json

from runlane.errors import RecordCorruptError, RecordTooNewError
from runlane.records import Record, Run, format_timestamp
from runlane.store._bodies import encode_json
from runlane.store._rows import QUEUED, DraftHead, EventRow, Head, MessageRow, RunRow, checked_run

if TYPE_CHECKING:
    import apsw
    from apsw import SQLiteValue

__all__ = [
    "EVENT_COLUMNS",
    "HEAD_COLUMNS",
    "MESSAGE_COLUMNS",
    "RUN_COLUMNS",
    "WAITING_COLUMNS",
    "event_row",
    "first_row",
    "head_row",
    "json_or_none",
    "message_row",
    "run_insert",
    "run_row",
    "run_update",
    "waiting_row",
]

Values: TypeAlias = "tuple[SQLiteValue, ...]"

HEAD_COLUMNS: Final = (
    "version, seq, lane_epoch, lane_owner, purged, lowest, next_place, gap, created_at, changed_at, active_at"
)
MESSAGE_COLUMNS: Final = "id, position, version, run_id, role, status, content, removed_at"
EVENT_COLUMNS: Final = "seq, version, id, command_id, kind, occurred_at, body, ignorable, schema_version"
_MAX_ID_CHARACTERS: Final = 512
_DIGEST_BYTES: Final = 32
_MOST: Final = 1 << 53
"""What no count reaches, and a JSON number still tells from its neighbours."""
_INSTANT_CHARACTERS: Final = len("2026-01-01T00:00:00.000Z")
_NOTHING: Final = (None,) * 6
_PRIORITIES: Final = (None, "interrupt-next")
_WAITING_FIELDS: Final = frozenset(
    {
        "id",
        "conversation_id",
        "input_message_ids",
        "assistant_message_id",
        "state",
        "revision",
        "queue_priority",
        "created_at",
        "updated_at",
    }
)
"""What is set of a run that waits."""

RUN_COLUMNS: Final = (
    "no, id, schema_version, arrival, version, place, assistant_message_id, queue_priority, created_at, request, "
    "inputs, state, revision, execution_sequence, owner_id, fencing_token, terminal_reason, terminal_policy_name, "
    "absorbed_into, updated_at, draft_kinds, draft_patches, draft_size, draft_sha256, last_operation, usage"
)

WAITING_COLUMNS: Final = (
    "id, assistant_message_id, inputs, revision, queue_priority, created_at, updated_at, arrival, version, place, "
    "schema_version = 1 AND state = 'queued' AND coalesce(execution_sequence, owner_id, fencing_token, "
    "terminal_reason, terminal_policy_name, absorbed_into, draft_kinds, last_operation, usage, request) IS NULL"
)
"""What `waiting_row` reads, and whether that is all of the run."""


def first_row(cursor: apsw.Cursor, /) -> tuple[Any, ...] | None:
    """Return the only row of a query, or None.

    The statement is run to its end: one that is left open keeps its connection on an old snapshot, even beyond the
    COMMIT, and the next write of that connection is refused once another process has written.
    """
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows[0] if rows else None


def head_row(conversation_id: str, row: Values, /) -> Head:
    """Read a head from `HEAD_COLUMNS`.

    Raises:
        RecordCorruptError: It counts what cannot have been counted.
    """
    head = Head._make(row)
    if not (0 <= head.version <= head.seq < _MOST and 0 <= head.lane_epoch < _MOST):
        raise RecordCorruptError(f"the head of conversation {conversation_id!r} contradicts itself")
    if not -QUEUED < head.lowest <= 0 <= head.gap <= head.next_place < QUEUED:
        raise RecordCorruptError(f"the head of conversation {conversation_id!r} gives places that do not exist")
    return head


def message_row(row: Values, /) -> MessageRow:
    """Read a message from `MESSAGE_COLUMNS`."""
    return MessageRow._make(row)


def event_row(row: Values, /) -> EventRow:
    """Read a ledger entry from `EVENT_COLUMNS`."""
    seq, version, event_id, command_id, kind, occurred_at, body, ignorable, schema_version = row
    return EventRow(
        seq,  # type: ignore[arg-type]
        version,  # type: ignore[arg-type]
        event_id,  # type: ignore[arg-type]
        event_id if command_id is None else command_id,  # type: ignore[arg-type]
        kind,  # type: ignore[arg-type]
        occurred_at,  # type: ignore[arg-type]
        body,  # type: ignore[arg-type]
        bool(ignorable),
        schema_version,  # type: ignore[arg-type]
    )


def run_row(conversation_id: str, row: tuple[Any, ...], /) -> tuple[int, RunRow]:
    """Read a run, and its number, from `RUN_COLUMNS`.

    Raises:
        RecordTooNewError: A later release wrote it.
        RecordCorruptError: It contradicts itself.
    """
    no, run_id, schema_version, arrival, version, place, assistant, priority, created, request, inputs, *live = row
    state, revision, sequence, owner, token, reason, policy, absorbed, updated, *tail = live
    kinds, patches, size, sha256, operation, usage = tail
    if schema_version != 1:
        what = f"run {run_id!r} of conversation {conversation_id!r}"
        raise RecordTooNewError(f"{what} has schema version {schema_version}; this program knows 1")
    draft = None
    if kinds is not None:
        draft = DraftHead(kinds, patches, size, sha256)
        if None in draft or not 0 <= patches <= size < _MOST or len(sha256) != _DIGEST_BYTES:
            raise RecordCorruptError(f"run {run_id!r} of conversation {conversation_id!r} contradicts its draft")
    run = None
    if state == "queued" and row[13:19] == _NOTHING and operation is usage is request is None:
        run = _waiting_run(conversation_id, run_id, assistant, inputs, revision, priority, created, updated)
    if run is None:
        facts = {
            "id": run_id,
            "conversation_id": conversation_id,
            "input_message_ids": inputs,
            "assistant_message_id": assistant,
            "state": state,
            "revision": revision,
            "queue_priority": priority,
            "execution_sequence": sequence,
            "owner_id": owner,
            "fencing_token": token,
            "terminal_reason": reason,
            "terminal_policy_name": policy,
            "absorbed_into_run_id": absorbed,
            "usage": usage,
            "last_operation": operation,
            "request": request,
            "created_at": created,
            "updated_at": updated,
        }
        run = _checked_run(facts, f"run {run_id!r} of conversation {conversation_id!r}")
    return no, RunRow(run, arrival, version, place, draft)


def waiting_row(conversation_id: str, row: tuple[Any, ...], /) -> RunRow | None:
    """Read a run from `WAITING_COLUMNS`; None if that is not all of it, or not valid: then it is read in full."""
    run_id, assistant, inputs, revision, priority, created, updated, arrival, version, place, complete = row
    if not complete:
        return None
    run = _waiting_run(conversation_id, run_id, assistant, inputs, revision, priority, created, updated)
    return None if run is None else RunRow(run, arrival, version, place)


def _waiting_run(  # noqa: PLR0913, PLR0917  the columns of a row
    conversation_id: str,
    run_id: str,
    assistant: str,
    inputs: bytes,
    revision: int,
    priority: str | None,
    created: str,
    updated: str,
) -> Run | None:
    """Return a run that waits and holds nothing but what every run holds; None if there is more to check.

    A backlog consists of these. The columns are typed by the table, so what is left to check is checked here, at a
    fraction of what a validation costs. Whatever does not pass is validated, and refused, in full.
    """
    try:
        ids: object = from_json(inputs)
        began = _instant(created)
        changed = began if updated == created else _instant(updated)
    except ValueError:
        return None
    if not isinstance(ids, list) or not ids or revision < 0 or priority not in _PRIORITIES:
        return None
    for item in (run_id, assistant, *ids):
        if type(item) is not str or not 0 < len(item) <= _MAX_ID_CHARACTERS:
            return None
    values: dict[str, object] = {
        "schema_version": 1,
        "id": run_id,
        "conversation_id": conversation_id,
        "input_message_ids": tuple(ids),
        "assistant_message_id": assistant,
        "state": "queued",
        "revision": revision,
        "queue_priority": priority,
        "execution_sequence": None,
        "owner_id": None,
        "fencing_token": None,
        "terminal_reason": None,
        "terminal_policy_name": None,
        "absorbed_into_run_id": None,
        "usage": None,
        "last_operation": None,
        "request": None,
        "created_at": began,
        "updated_at": changed,
    }
    return checked_run(values, _WAITING_FIELDS)


def _instant(text: str) -> datetime:
    """Read an instant as it is stored."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not UTC or len(text) != _INSTANT_CHARACTERS:
        raise ValueError
    return moment


def _checked_run(facts: dict[str, Any], what: str) -> Run:
    try:
        parsed = {name: _parsed(facts[name]) for name in ("input_message_ids", "usage", "last_operation", "request")}
        return Run.model_validate({**facts, **parsed})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = ".".join(str(step) for step in first["loc"])
        raise RecordCorruptError(f"{what} is not valid{f' at {path}' if path else ''}: {first['msg']}") from None
    except ValueError:
        raise RecordCorruptError(f"{what} holds bytes that are not JSON") from None


def _parsed(body: SQLiteValue) -> object:
    return None if body is None else from_json(body)  # type: ignore[arg-type]


def json_or_none(record: Record | None, argument: str, /) -> bytes | None:
    """Write an optional record."""
    return None if record is None else encode_json(record, argument=argument)


def run_insert(conversation: int, row: RunRow, /) -> tuple[str, Values]:
    """Return the statement that adds a run, with its values."""
    run = row.run
    statement = (
        "INSERT INTO run (conversation, id, assistant_message_id, queue_priority, created_at, request, inputs, arrival,"
        " version, place, state, revision, execution_sequence, owner_id, fencing_token, terminal_reason,"
        " terminal_policy_name, absorbed_into, updated_at, draft_kinds, draft_patches, draft_size, draft_sha256,"
        " last_operation, usage)"
        " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
    )
    values = (
        conversation,
        run.id,
        run.assistant_message_id,
        run.queue_priority,
        format_timestamp(run.created_at),
        None if run.request is None else encode_json(run.request, argument="run.request"),
        encode_json(list(run.input_message_ids), argument="run"),
        row.arrival,
        *_live(row),
        json_or_none(run.last_operation, "operation"),
        json_or_none(run.usage, "usage"),
    )
    return statement, values


def _live(row: RunRow) -> Values:
    run, draft = row.run, row.draft
    return (
        row.version,
        row.place,
        run.state,
        run.revision,
        run.execution_sequence,
        run.owner_id,
        run.fencing_token,
        run.terminal_reason,
        run.terminal_policy_name,
        run.absorbed_into_run_id,
        format_timestamp(run.updated_at),
        None if draft is None else draft.kinds,
        None if draft is None else draft.patches,
        None if draft is None else draft.size,
        None if draft is None else draft.sha256,
    )


_UPDATE: Final = (
    "UPDATE run SET version = ?, place = ?, state = ?, revision = ?, execution_sequence = ?, owner_id = ?,"
    " fencing_token = ?, terminal_reason = ?, terminal_policy_name = ?, absorbed_into = ?, updated_at = ?,"
    " draft_kinds = ?, draft_patches = ?, draft_size = ?, draft_sha256 = ?"
)
_UPDATES: Final = tuple(
    _UPDATE
    + ", inputs = ?" * bool(long & 1)
    + ", last_operation = ?" * bool(long & 2)
    + ", usage = ?" * bool(long & 4)
    + " WHERE no = ?"
    for long in range(8)
)
"""One statement for each choice of long columns, by bits."""


def run_update(no: int, before: RunRow, after: RunRow, /) -> tuple[str, Values]:
    """Return the statement that changes a run, with its values; long columns are written only if they changed."""
    old, new = before.run, after.run
    long = 0
    values: list[SQLiteValue] = []
    if new.input_message_ids != old.input_message_ids:
        long |= 1
        values.append(encode_json(list(new.input_message_ids), argument="run"))
    if new.last_operation is not old.last_operation:
        long |= 2
        values.append(json_or_none(new.last_operation, "operation"))
    if new.usage is not old.usage:
        long |= 4
        values.append(json_or_none(new.usage, "usage"))
    return _UPDATES[long], (*_live(after), *values, no)
