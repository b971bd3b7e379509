"""Writing what was decided: one statement a row, every value bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import apsw

from runlane.errors import StoreError, UsageError
from runlane.store._bodies import encode_json
from runlane.store._rows import Changes
from runlane.store.sqlite._codec import run_insert, run_update

if TYPE_CHECKING:
    from apsw import SQLiteValue

__all__ = ["PATCH_BITS", "PATCH_MASK", "save"]

PATCH_BITS: Final = 24
PATCH_MASK: Final = (1 << PATCH_BITS) - 1
_LANE: Final = slice(2, 8)
"""Where a head tells of its lane and its positions."""
_HEAD_UPDATES: Final = tuple(
    "UPDATE conversation SET version = ?, seq = ?, changed_at = ?"  # noqa: S608  constant columns
    + ", lane_epoch = ?, lane_owner = ?, lowest = ?, next_place = ?, gap = ?" * bool(changed & 1)
    + ", active_at = ?" * bool(changed & 2)
    + " WHERE no = ? AND version = ? AND seq = ?"
    for changed in range(4)
)
"""One statement for each choice of columns, by bits: an index is written whenever one of its columns is set."""

_INSERT_ENTRY: Final = (
    "INSERT INTO event (conversation, seq, version, id, command_id, kind, occurred_at, body, ignorable, schema_version)"
    " VALUES (?1, ?2, ?3, ?4, nullif(?5, ?4), ?6, ?7, ?8, ?9, ?10)"
)
"""The columns of an `EventRow`, in its order; an entry that is named after its command does not say so twice."""

RunNumbers = dict[tuple[str, str], int]


def save(
    cursor: apsw.Cursor,
    conversation_id: str,
    number: int,
    changes: Changes,
    run_numbers: RunNumbers,
    /,
) -> int:
    """Write one transaction's changes.

    Args:
        cursor: Of a connection that has a transaction open.
        conversation_id: The conversation.
        number: Its number, 0 if it is new.
        changes: What was decided.
        run_numbers: Numbers of the runs that were read, by (conversation id, run id); new runs are added.

    Returns:
        The conversation's number.

    Raises:
        UsageError: An entry's id is taken, or the request key of a branch.
    """
    connection = cursor.connection
    number = _save_head(cursor, connection, conversation_id, number, changes)
    _save_runs(cursor, connection, conversation_id, number, changes, run_numbers)
    _save_messages(cursor, number, changes)
    for receipt in changes.receipts:
        values = (number, receipt.key, receipt.run_id, receipt.message_id, receipt.sha256)
        cursor.execute("INSERT INTO receipt VALUES (?, ?, ?, ?, ?)", values)
    for seed in changes.seeds:
        ids = encode_json(list(seed.message_ids), argument="inputs")
        cursor.execute("INSERT INTO seed VALUES (?, ?, ?)", (number, seed.key, ids))
    _save_drafts(cursor, conversation_id, changes, run_numbers)
    _save_entries(cursor, number, changes)
    if changes.branch is not None:
        try:
            cursor.execute("INSERT INTO branch VALUES (?, ?, ?, ?, ?, ?, ?, ?)", changes.branch)
        except apsw.ConstraintError:
            raise UsageError(f"{changes.branch.key!r} was used by another request", argument="request_key") from None
    return number


def _save_head(
    cursor: apsw.Cursor, connection: apsw.Connection, conversation_id: str, number: int, changes: Changes
) -> int:
    before, head = changes.before, changes.head
    if number == 0:
        cursor.execute(
            "INSERT INTO conversation (id, version, seq, lane_epoch, lane_owner, lowest, next_place, gap, created_at,"
            " changed_at, active_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                conversation_id,
                head.version,
                head.seq,
                head.lane_epoch,
                head.lane_owner,
                head.lowest,
                head.next_place,
                head.gap,
                head.created_at,
                head.changed_at,
                head.active_at,
            ),
        )
        return connection.last_insert_rowid()
    if head is before:
        return number
    changed = 0
    values: list[SQLiteValue] = [head.version, head.seq, head.changed_at]
    if head[_LANE] != before[_LANE]:
        changed |= 1
        values += [head.lane_epoch, head.lane_owner, head.lowest, head.next_place, head.gap]
    if head.active_at != before.active_at:
        changed |= 2
        values.append(head.active_at)
    cursor.execute(_HEAD_UPDATES[changed], (*values, number, before.version, before.seq))
    if connection.changes() != 1:
        raise StoreError(f"the head of conversation {conversation_id!r} moved inside a transaction")
    return number


def _save_runs(
    cursor: apsw.Cursor,
    connection: apsw.Connection,
    conversation_id: str,
    number: int,
    changes: Changes,
    run_numbers: RunNumbers,
) -> None:
    for run_id, (before, after) in changes.runs.items():
        key = (conversation_id, run_id)
        if before is None:
            cursor.execute(*run_insert(number, after))
            run_numbers[key] = connection.last_insert_rowid()
        else:
            cursor.execute(*run_update(run_numbers[key], before, after))
        if before is None and after.run.is_active:
            cursor.execute("INSERT INTO active_run VALUES (?, ?, ?)", (*key, run_numbers[key]))
        elif before is not None and not after.run.is_active:
            cursor.execute("DELETE FROM active_run WHERE conversation_id = ? AND run_id = ?", key)


def _save_messages(cursor: apsw.Cursor, number: int, changes: Changes) -> None:
    connection, version = cursor.connection, changes.head.version
    moved = dict(changes.moved)
    for row in changes.messages:
        # An input that an idle lane accepts and acquires at once is written where it ends up.
        place = moved.pop(row.message_id, None)
        position, changed = (row.position, row.version) if place is None else (place, version)
        cursor.execute(
            "INSERT INTO message (conversation, id, position, removed_at, version, run_id, role, status)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (number, row.message_id, position, row.removed_at, changed, row.run_id, row.role, row.status),
        )
        if row.body is not None:
            cursor.execute("INSERT INTO body VALUES (?, ?)", (connection.last_insert_rowid(), row.body))
    for row in changes.answers:
        cursor.execute(
            "UPDATE message SET position = ?, version = ?, status = ? WHERE id = ? AND conversation = ?",
            (row.position, row.version, row.status, row.message_id, number),
        )
        cursor.execute(
            "INSERT INTO body SELECT no, ? FROM message WHERE id = ? AND conversation = ?",
            (row.body, row.message_id, number),
        )
    for message_id, position in moved.items():
        cursor.execute(
            "UPDATE message SET position = ?, version = ? WHERE id = ? AND conversation = ?",
            (position, version, message_id, number),
        )
    for message_id, at in changes.removed:
        cursor.execute(
            "UPDATE message SET removed_at = ?, version = ? WHERE id = ? AND conversation = ?",
            (at, at, message_id, number),
        )


def _save_drafts(cursor: apsw.Cursor, conversation_id: str, changes: Changes, run_numbers: RunNumbers) -> None:
    for change in changes.drafts:
        base = run_numbers[conversation_id, change.run_id] << PATCH_BITS
        if change.patch == 0:
            cursor.execute("DELETE FROM draft WHERE key BETWEEN ? AND ?", (base, base | PATCH_MASK))
        else:
            cursor.execute("INSERT INTO draft VALUES (?, ?)", (base | change.patch, change.body))


def _save_entries(cursor: apsw.Cursor, number: int, changes: Changes) -> None:
    for row in changes.entries:
        try:
            cursor.execute(_INSERT_ENTRY, (number, *row))
        except apsw.ConstraintError:
            raise UsageError(f"{row.event_id!r} was used by another command", argument="command_id") from None
