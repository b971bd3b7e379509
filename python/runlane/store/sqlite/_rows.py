"""The tables of a SQLite store, inside one transaction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import apsw
from pydantic_core import from_json
from typing_extensions import override

from runlane.errors import RecordCorruptError, StoreFullError
from runlane.store._driver import ConversationQuery, MessageQuery, Rows
from runlane.store._rows import (
    MAX_POSITION,
    BranchRow,
    Changes,
    EventRow,
    Head,
    MessagePlace,
    MessageRow,
    Names,
    OwnerRow,
    ReceiptRow,
    RunRow,
    SeedRow,
    View,
)
from runlane.store.sqlite._codec import (
    EVENT_COLUMNS,
    HEAD_COLUMNS,
    MESSAGE_COLUMNS,
    RUN_COLUMNS,
    WAITING_COLUMNS,
    Values,
    event_row,
    first_row,
    head_row,
    message_row,
    run_row,
    waiting_row,
)
from runlane.store.sqlite._host import Host
from runlane.store.sqlite._owners import OwnerFacts, owners
from runlane.store.sqlite._save import PATCH_BITS, PATCH_MASK, save

__all__ = ["CachedLane", "LaneCache", "SqliteRows"]

_CACHED_LANES: Final = 1024
_CACHED_NUMBERS: Final = 16 * _CACHED_LANES


@dataclass(slots=True)
class CachedLane:
    """The active runs of a conversation as of a version.

    Attributes:
        complete: Whether all active runs are here.
    """

    version: int
    complete: bool
    runs: dict[str, RunRow] = field(default_factory=dict)


class LaneCache:
    """What the writer remembers of the conversations it last saw, so that a turn reads its head and its run once.

    Heads and owners hold as long as nobody else committed: SQLite counts whatever changed the file, and `look` compares
    what it counts at the beginning of a transaction with what it counted right after our last COMMIT. Runs hold only
    for the version they were read at, and every change of a run changes the version. So another process's commit can
    never be missed.

    Attributes:
        heads: Number and head of conversations, by id; 0 and an empty head for one that does not exist.
        owners: Rows of owners, by id.
        numbers: Numbers of runs, by (conversation id, run id).
    """

    def __init__(self) -> None:
        self._lanes: OrderedDict[str, CachedLane] = OrderedDict()
        self._counted = -1
        self.heads: dict[str, tuple[int, Head]] = {}
        self.owners: OwnerFacts = {}
        self.numbers: dict[tuple[str, str], int] = {}

    def look(self, counted: int) -> None:
        """Begin a transaction: drop heads and owners if somebody else committed since our last COMMIT."""
        if counted != self._counted:
            self.heads.clear()
            self.owners.clear()
        if len(self.numbers) > _CACHED_NUMBERS or len(self.heads) > _CACHED_NUMBERS:
            self.clear()

    def committed(self, counted: int) -> None:
        """Note what SQLite counts right after a COMMIT of ours, before anybody else can have made one."""
        self._counted = counted

    def get(self, conversation_id: str, version: int) -> CachedLane | None:
        """Return what is known at this very version."""
        lane = self._lanes.get(conversation_id)
        if lane is None or lane.version != version:
            return None
        self._lanes.move_to_end(conversation_id)
        return lane

    def put(self, conversation_id: str, lane: CachedLane) -> None:
        """Remember the runs of a conversation; the one used longest ago makes room."""
        self._lanes[conversation_id] = lane
        self._lanes.move_to_end(conversation_id)
        if len(self._lanes) > _CACHED_LANES:
            self.forget(next(iter(self._lanes)))

    def forget(self, conversation_id: str) -> None:
        """Drop a conversation: what was decided for it may not have been committed."""
        self.heads.pop(conversation_id, None)
        lane = self._lanes.pop(conversation_id, None)
        for run_id in () if lane is None else lane.runs:
            self.numbers.pop((conversation_id, run_id), None)

    def clear(self) -> None:
        """Drop everything."""
        self._lanes.clear()
        self.heads.clear()
        self.owners.clear()
        self.numbers.clear()


class SqliteRows(Rows):
    """Rows over one connection that has a transaction open.

    Attributes:
        cursor: Everything is executed through it.
        saved: Whether anything was written.
        full: The file whose disk is full, so that inputs are refused and only what was begun goes on; else None.

    Args:
        cursor: Of a connection that has a transaction open.
        host: Judges owners.
        cache: What the writer remembers; None for a reader.
        careful: Whether writes stand under a savepoint of their own.
    """

    def __init__(
        self, cursor: apsw.Cursor, host: Host, cache: LaneCache | None = None, *, careful: bool = False
    ) -> None:
        self.cursor = cursor
        self.saved = False
        self.full: str | None = None
        self._careful = careful
        self._host = host
        self._cache = cache
        self._heads: dict[str, tuple[int, Head]] = {} if cache is None else cache.heads
        self._owners: OwnerFacts = {} if cache is None else cache.owners
        self._run_numbers: dict[tuple[str, str], int] = {} if cache is None else cache.numbers

    # --- keys -----------------------------------------------------------------------------------------------------

    def number(self, conversation_id: str, /) -> int:
        """Return the conversation's number, 0 for an unknown one."""
        return self._known(conversation_id)[0]

    def _known(self, conversation_id: str) -> tuple[int, Head]:
        known = self._heads.get(conversation_id)
        if known is None:
            row = first_row(
                self.cursor.execute(
                    f"SELECT no, {HEAD_COLUMNS} FROM conversation WHERE id = ?",  # noqa: S608  constant columns
                    (conversation_id,),
                )
            )
            known = (0, Head()) if row is None else (row[0], head_row(conversation_id, row[1:]))
            self._heads[conversation_id] = known
        return known

    def _run(self, conversation_id: str, row: Values) -> RunRow:
        number, run = run_row(conversation_id, row)
        if run.run.is_active:  # no command changes an ended run, nor has it a draft: its number would only take room
            self._run_numbers[conversation_id, run.run.id] = number
        return run

    # --- reading --------------------------------------------------------------------------------------------------

    @override
    def view(self, conversation_id: str, names: Names, /) -> View:
        number, head = self._known(conversation_id)
        view = View(conversation_id, head)
        if names.owners:
            view.swept = {owner for owner, row in self.owners(names.owners).items() if not row.alive}
        if number == 0 or view.head.purged:
            return view
        self._load_runs(view, names)
        self._load_named(view, names, number)
        view.drafts = {run_id: self.draft(conversation_id, run_id) for run_id in names.drafts}
        view.span = self._span(view, names)
        return view

    def _load_runs(self, view: View, names: Names) -> None:
        conversation_id = view.conversation_id
        lane = None if self._cache is None else self._cache.get(conversation_id, view.head.version)
        if lane is not None and (lane.complete or not names.lane):
            view.active = dict(lane.runs)
        elif names.lane:
            lane = None
            view.active = {row.run.id: row for row in self.active(conversation_id)}
        for run_id in names.runs:
            if run_id in view.active:
                continue
            row = self.run(conversation_id, run_id)
            if row is not None and row.run.is_active and (names.lane or (lane is not None and lane.complete)):
                raise RecordCorruptError(f"run {run_id!r} of conversation {conversation_id!r} is active and not listed")
            if row is not None:
                (view.active if row.run.is_active else view.ended)[run_id] = row
        if self._cache is not None and (lane is None or len(lane.runs) != len(view.active)):
            complete = names.lane or (lane is not None and lane.complete)
            self._cache.put(conversation_id, CachedLane(view.head.version, complete, dict(view.active)))

    def _load_named(self, view: View, names: Names, number: int) -> None:
        for key in names.receipts:
            for row in self.cursor.execute(
                "SELECT key, run_id, message_id, sha256 FROM receipt WHERE conversation = ? AND key = ?", (number, key)
            ):
                view.receipts[key] = ReceiptRow(*row)
        for key in names.seeds:
            for (body,) in self.cursor.execute(
                "SELECT message_ids FROM seed WHERE conversation = ? AND key = ?", (number, key)
            ):
                view.seeds[key] = SeedRow(key, _ids(body))
        for message_id in names.messages:
            for row in self.cursor.execute(
                "SELECT id, position, removed_at FROM message WHERE id = ? AND conversation = ?", (message_id, number)
            ):
                view.messages[message_id] = MessagePlace(*row)

    def _span(self, view: View, names: Names) -> tuple[MessagePlace, ...]:
        bounds = view.span_bounds(names)
        if bounds is None:
            return ()
        found = self.cursor.execute(
            "SELECT id, position FROM message WHERE conversation = ? AND position BETWEEN ? AND ?"
            " AND removed_at IS NULL ORDER BY position, no LIMIT ?",
            (self.number(view.conversation_id), *bounds, view.span_limit(names)),
        )
        return tuple(MessagePlace(message_id, position, None) for message_id, position in found)

    @override
    def head(self, conversation_id: str, /) -> Head:
        return self._known(conversation_id)[1]

    @override
    def run(self, conversation_id: str, run_id: str, /) -> RunRow | None:
        row = first_row(
            self.cursor.execute(
                f"SELECT {RUN_COLUMNS} FROM run WHERE id = ? AND conversation = ?",  # noqa: S608  constant columns
                (run_id, self.number(conversation_id)),
            )
        )
        return None if row is None else self._run(conversation_id, row)

    @override
    def runs(self, conversation_id: str, run_ids: Iterable[str], /) -> list[RunRow]:
        return [row for run_id in run_ids if (row := self.run(conversation_id, run_id)) is not None]

    @override
    def active(self, conversation_id: str, /) -> list[RunRow]:
        found: list[tuple[Any, ...]] = self.cursor.execute(
            f"SELECT {RUN_COLUMNS} FROM active_run LEFT JOIN run ON no = active_run.run"  # noqa: S608  constant columns
            " AND id = run_id AND conversation = ? WHERE conversation_id = ?",
            (self.number(conversation_id), conversation_id),
        ).fetchall()
        return [_active(conversation_id, None if row[0] is None else self._run(conversation_id, row)) for row in found]

    @override
    def bodies(self, conversation_id: str, message_ids: Iterable[str], /) -> dict[str, MessageRow]:
        number = self.number(conversation_id)
        found: dict[str, MessageRow] = {}
        for message_id in message_ids:
            row = first_row(
                self.cursor.execute(
                    f"SELECT {MESSAGE_COLUMNS} FROM message JOIN body USING (no)"  # noqa: S608  constant columns
                    " WHERE id = ? AND conversation = ?",
                    (message_id, number),
                )
            )
            if row is not None:
                found[message_id] = message_row(row)
        return found

    @override
    def messages(self, conversation_id: str, query: MessageQuery, /) -> list[MessageRow]:
        order = "DESC" if query.newest_first else "ASC"
        kept = "" if query.removed else " AND removed_at IS NULL"
        found = self.cursor.execute(
            f"SELECT {MESSAGE_COLUMNS} FROM message JOIN body USING (no) WHERE conversation = ?"  # noqa: S608
            f" AND position > ? AND position < ?{kept} ORDER BY position {order}, no {order} LIMIT ?",
            (
                self.number(conversation_id),
                -MAX_POSITION if query.above is None else query.above,
                MAX_POSITION if query.below is None else query.below,
                query.limit,
            ),
        )
        return [message_row(row) for row in found]

    @override
    def draft(self, conversation_id: str, run_id: str, /) -> tuple[bytes, ...]:
        key = conversation_id, run_id
        if key not in self._run_numbers:
            self.run(conversation_id, run_id)
        number = self._run_numbers.get(key)
        if number is None:
            return ()
        found = self.cursor.execute(
            "SELECT body FROM draft WHERE key BETWEEN ? AND ? ORDER BY key",
            (number << PATCH_BITS, (number << PATCH_BITS) | PATCH_MASK),
        )
        return tuple(body for (body,) in found)

    @override
    def entry(self, conversation_id: str, event_id: str, /) -> EventRow | None:
        number = self.number(conversation_id)
        if number == 0:
            return None
        row = first_row(
            self.cursor.execute(
                f"SELECT {EVENT_COLUMNS} FROM event WHERE id = ? AND conversation = ?",  # noqa: S608  constant columns
                (event_id, number),
            )
        )
        return None if row is None else event_row(row)

    @override
    def entries(self, conversation_id: str, first: int, last: int, limit: int, /) -> list[EventRow]:
        found = self.cursor.execute(
            f"SELECT {EVENT_COLUMNS} FROM event"  # noqa: S608  constant columns
            " WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq LIMIT ?",
            (self.number(conversation_id), first, last, limit),
        )
        return [event_row(row) for row in found]

    @override
    def recoverable(self, cursor: tuple[str, str] | None, limit: int, /) -> list[tuple[str, RunRow]]:
        found: list[tuple[Any, ...]] = self.cursor.execute(
            f"SELECT active_run.conversation_id, no, {WAITING_COLUMNS}"  # noqa: S608  constant columns
            " FROM active_run LEFT JOIN run ON no = active_run.run AND id = run_id"
            " WHERE (active_run.conversation_id, active_run.run_id) > (?, ?)"
            " ORDER BY active_run.conversation_id, active_run.run_id LIMIT ?",
            (*(cursor or ("", "")), limit),
        ).fetchall()
        return [(row[0], waiting_row(row[0], row[2:]) or self._whole(row[0], row[1])) for row in found]

    def _whole(self, conversation_id: str, number: int | None) -> RunRow:
        row = first_row(self.cursor.execute(f"SELECT {RUN_COLUMNS} FROM run WHERE no = ?", (number,)))  # noqa: S608
        return _active(conversation_id, None if row is None else run_row(conversation_id, row)[1])

    @override
    def conversations(self, query: ConversationQuery, /) -> list[tuple[str, Head]]:
        where, values = "purged = 0", []
        if query.after is not None:
            where += " AND (active_at < ? OR (active_at = ? AND id > ?))"
            values += [query.after[0], query.after[0], query.after[1]]
        if query.search is not None:
            where += (
                " AND (instr(lower(id), lower(?)) OR EXISTS (SELECT 1 FROM message JOIN body USING (no)"
                " WHERE message.conversation = conversation.no AND instr(lower(CAST(content AS TEXT)), lower(?))))"
            )
            values += [query.search, query.search]
        found = self.cursor.execute(
            f"SELECT id, {HEAD_COLUMNS} FROM conversation WHERE {where} ORDER BY active_at DESC, id LIMIT ?",  # noqa: S608
            (*values, query.limit),
        )
        return [(row[0], head_row(row[0], row[1:])) for row in found]

    @override
    def owners(self, owner_ids: Iterable[str], /) -> dict[str, OwnerRow]:
        return owners(self.cursor, self._host, owner_ids, self._owners)

    @override
    def branch(self, request_key: str, /) -> BranchRow | None:
        row = first_row(self.cursor.execute("SELECT * FROM branch WHERE key = ?", (request_key,)))
        return None if row is None else BranchRow._make(row)

    # --- writing --------------------------------------------------------------------------------------------------

    def begin_saving(self) -> None:
        """Note that this mutation writes, and open its savepoint if it has one."""
        if not self.saved and self._careful:
            self.cursor.execute("SAVEPOINT one")
        self.saved = True

    def change_owners(self) -> None:
        """Begin to change owners, and the heads of their lanes, beside `save`."""
        self.begin_saving()
        self._heads.clear()
        self._owners.clear()

    @override
    def save(self, conversation_id: str, changes: Changes, /) -> None:
        if self.full is not None and (changes.receipts or changes.seeds):
            problem = "the disk is full; what was accepted goes on, and inputs are taken once there is room"
            raise StoreFullError(problem, store=self.full)
        self.begin_saving()
        number = save(self.cursor, conversation_id, self.number(conversation_id), changes, self._run_numbers)
        self._heads[conversation_id] = number, changes.head
        self._remember(conversation_id, changes)

    def _remember(self, conversation_id: str, changes: Changes) -> None:
        if self._cache is None:
            return
        known = self._cache.get(conversation_id, changes.before.version)
        fresh = changes.before.version == 0
        lane = CachedLane(changes.head.version, fresh, {}) if known is None else known
        lane.version = changes.head.version
        for run_id, (_, after) in changes.runs.items():
            if after.run.is_active:
                lane.runs[run_id] = after
            else:
                lane.runs.pop(run_id, None)
                self._run_numbers.pop((conversation_id, run_id), None)
        if known is None:
            self._cache.put(conversation_id, lane)

    @override
    def purge(self, conversation_id: str, at: str, /) -> None:
        self.begin_saving()
        number = self.number(conversation_id)
        if number:
            self._delete(number, conversation_id)
        self.cursor.execute(
            "INSERT INTO conversation (id, version, seq, lane_epoch, purged, lowest, next_place, gap, created_at,"
            " changed_at, active_at) VALUES (?, 0, 0, 0, 1, 0, 0, 0, '', '', '')"
            " ON CONFLICT (id) DO UPDATE SET version = 0, seq = 0, lane_epoch = 0, lane_owner = NULL, purged = 1,"
            " lowest = 0, next_place = 0, gap = 0, created_at = '', changed_at = '', active_at = ''",
            (conversation_id,),
        )
        self.cursor.execute("DELETE FROM branch WHERE destination = ?", (conversation_id,))
        self.cursor.execute("UPDATE branch SET source = NULL WHERE source = ?", (conversation_id,))
        if self._cache is not None:
            self._cache.forget(conversation_id)

    def _delete(self, number: int, conversation_id: str) -> None:
        """Remove all rows of a conversation. Each of its runs is found by the answer it reserved."""
        run_numbers: list[tuple[Any, ...]] = self.cursor.execute(
            "SELECT run.no FROM message JOIN run ON run.id = message.run_id AND run.conversation = message.conversation"
            " WHERE message.conversation = ? AND message.run_id IS NOT NULL",
            (number,),
        ).fetchall()
        for (run_number,) in run_numbers:
            bounds = (run_number << PATCH_BITS, (run_number << PATCH_BITS) | PATCH_MASK)
            self.cursor.execute("DELETE FROM draft WHERE key BETWEEN ? AND ?", bounds)
            self.cursor.execute("DELETE FROM run WHERE no = ?", (run_number,))
        self.cursor.execute("DELETE FROM body WHERE no IN (SELECT no FROM message WHERE conversation = ?)", (number,))
        self.cursor.execute("DELETE FROM active_run WHERE conversation_id = ?", (conversation_id,))
        for table in ("message", "receipt", "seed", "event"):
            self.cursor.execute(f"DELETE FROM {table} WHERE conversation = ?", (number,))  # noqa: S608  constant names


def _active(conversation_id: str, row: RunRow | None) -> RunRow:
    """Return a run that the backlog lists.

    Raises:
        RecordCorruptError: It is not there, or it has ended.
    """
    if row is None or not row.run.is_active:
        what = "is not there" if row is None else f"{row.run.id!r} has ended"
        raise RecordCorruptError(f"a run in the backlog of conversation {conversation_id!r} {what}")
    return row


def _ids(body: bytes) -> tuple[str, ...]:
    try:
        return tuple(str(item) for item in from_json(body))
    except (ValueError, TypeError):
        raise RecordCorruptError("a seed receipt is not a list of ids") from None
