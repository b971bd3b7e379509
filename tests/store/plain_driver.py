"""A third driver, written as the documentation of the port says: the standard library's `sqlite3`, one connection.

It imports nothing but what is public, and is held to every rule by `test_third_driver`.
"""

import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic
from typing import Any, TypeVar

import anyio
from typing_extensions import override

from runlane.errors import StoreError, UsageError
from runlane.records import Run
from runlane.store import (
    BranchRow,
    Changes,
    ConversationQuery,
    DraftHead,
    EventRow,
    Head,
    Lease,
    MessagePlace,
    MessageQuery,
    MessageRow,
    Names,
    OwnerRow,
    ReceiptRow,
    Rows,
    RunRow,
    SeedRow,
    StoreDriver,
    View,
)

T = TypeVar("T")

TABLES = """
CREATE TABLE head (cid TEXT PRIMARY KEY, row TEXT, purged INT, active_at TEXT);
CREATE TABLE run (cid TEXT, id TEXT, active INT, row TEXT, draft BLOB, PRIMARY KEY (cid, id));
CREATE TABLE message (age INTEGER PRIMARY KEY, cid TEXT, id TEXT, position INT, version INT, run_id TEXT, role TEXT,
    status TEXT, body BLOB, removed_at INT, UNIQUE (cid, id));
CREATE TABLE draft (no INTEGER PRIMARY KEY, cid TEXT, run_id TEXT, body BLOB);
CREATE TABLE receipt (cid TEXT, key TEXT, run_id TEXT, message_id TEXT, sha256 BLOB, PRIMARY KEY (cid, key));
CREATE TABLE seed (cid TEXT, key TEXT, message_ids TEXT, PRIMARY KEY (cid, key));
CREATE TABLE event (cid TEXT, seq INT, version INT, id TEXT, command_id TEXT, kind TEXT, at TEXT, body BLOB,
    ignorable INT, schema_version INT, PRIMARY KEY (cid, seq), UNIQUE (cid, id));
CREATE TABLE branch (key TEXT PRIMARY KEY, fingerprint BLOB, source TEXT, destination TEXT, seq INT, version INT,
    sha256 BLOB, at TEXT);
CREATE TABLE owner (id TEXT PRIMARY KEY, alive INT);
"""
OF_CONVERSATION = ("run", "message", "draft", "receipt", "seed", "event")
MESSAGE = "id, position, version, run_id, role, status, body, removed_at"
EVENT = "seq, version, id, command_id, kind, at, body, ignorable, schema_version"


class PlainRows(Rows):
    """Rows of one connection, in whatever transaction it is."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._all = connection.execute

    # --- what commands name ---------------------------------------------------------------------------------------

    @override
    def view(self, conversation_id: str, names: Names, /) -> View:
        view = View(conversation_id=conversation_id, head=self.head(conversation_id))
        view.active = {row.run.id: row for row in self.active(conversation_id)}
        view.ended = {row.run.id: row for row in self.runs(conversation_id, names.runs - view.active.keys())}
        for key in names.receipts:
            for found in self._all("SELECT * FROM receipt WHERE cid = ? AND key = ?", (conversation_id, key)):
                view.receipts[key] = ReceiptRow(*found[1:])
        for key in names.seeds:
            for found in self._all("SELECT message_ids FROM seed WHERE cid = ? AND key = ?", (conversation_id, key)):
                view.seeds[key] = SeedRow(key, tuple(json.loads(found[0])))
        places = "SELECT id, position, removed_at FROM message WHERE cid = ? AND id = ?"
        for message_id in names.messages:
            for found in self._all(places, (conversation_id, message_id)):
                view.messages[message_id] = MessagePlace(*found)
        view.drafts = {run_id: self.draft(conversation_id, run_id) for run_id in names.drafts}
        view.swept = {owner for owner, row in self.owners(names.owners).items() if not row.alive}
        bounds = view.span_bounds(names)
        if bounds is not None:
            query = MessageQuery(
                limit=view.span_limit(names), above=bounds[0] - 1, below=bounds[1] + 1, newest_first=False
            )
            rows = self.messages(conversation_id, query)
            view.span = tuple(MessagePlace(row.message_id, row.position, None) for row in rows)
        return view

    # --- reads ----------------------------------------------------------------------------------------------------

    @override
    def head(self, conversation_id: str, /) -> Head:
        found = self._all("SELECT row FROM head WHERE cid = ?", (conversation_id,)).fetchone()
        return Head() if found is None else Head(*json.loads(found[0]))

    @override
    def run(self, conversation_id: str, run_id: str, /) -> RunRow | None:
        found = self._all("SELECT row, draft FROM run WHERE cid = ? AND id = ?", (conversation_id, run_id)).fetchone()
        return None if found is None else _run_row(*found)

    @override
    def runs(self, conversation_id: str, run_ids: Iterable[str], /) -> list[RunRow]:
        return [row for run_id in run_ids if (row := self.run(conversation_id, run_id)) is not None]

    @override
    def active(self, conversation_id: str, /) -> list[RunRow]:
        found = self._all("SELECT row, draft FROM run WHERE cid = ? AND active", (conversation_id,))
        return [_run_row(*row) for row in found]

    @override
    def bodies(self, conversation_id: str, message_ids: Iterable[str], /) -> dict[str, MessageRow]:
        query = f"SELECT {MESSAGE} FROM message WHERE cid = ? AND id = ? AND body IS NOT NULL"
        found = (self._all(query, (conversation_id, message_id)).fetchone() for message_id in message_ids)
        return {row[0]: MessageRow(*row) for row in found if row is not None}

    @override
    def messages(self, conversation_id: str, query: MessageQuery, /) -> list[MessageRow]:
        way = "DESC" if query.newest_first else "ASC"
        found = self._all(
            f"SELECT {MESSAGE} FROM message WHERE cid = :cid AND body IS NOT NULL AND position IS NOT NULL"
            " AND (:above IS NULL OR position > :above) AND (:below IS NULL OR position < :below)"
            f" AND (:removed OR removed_at IS NULL) ORDER BY position {way}, age {way} LIMIT :limit",
            {
                "cid": conversation_id,
                "above": query.above,
                "below": query.below,
                "removed": query.removed,
                "limit": query.limit,
            },
        )
        return [MessageRow(*row) for row in found]

    @override
    def draft(self, conversation_id: str, run_id: str, /) -> tuple[bytes, ...]:
        query = "SELECT body FROM draft WHERE cid = ? AND run_id = ? ORDER BY no"
        return tuple(row[0] for row in self._all(query, (conversation_id, run_id)))

    @override
    def entry(self, conversation_id: str, event_id: str, /) -> EventRow | None:
        query = f"SELECT {EVENT} FROM event WHERE cid = ? AND id = ?"
        found = self._all(query, (conversation_id, event_id)).fetchone()
        return None if found is None else _event_row(found)

    @override
    def entries(self, conversation_id: str, first: int, last: int, limit: int, /) -> list[EventRow]:
        query = f"SELECT {EVENT} FROM event WHERE cid = ? AND seq BETWEEN ? AND ? ORDER BY seq LIMIT ?"
        return [_event_row(row) for row in self._all(query, (conversation_id, first, last, limit))]

    @override
    def recoverable(self, cursor: tuple[str, str] | None, limit: int, /) -> list[tuple[str, RunRow]]:
        query = "SELECT cid, row, draft FROM run WHERE active AND (cid, id) > (?, ?) ORDER BY cid, id LIMIT ?"
        return [(row[0], _run_row(row[1], row[2])) for row in self._all(query, (*(cursor or ("", "")), limit))]

    @override
    def conversations(self, query: ConversationQuery, /) -> list[tuple[str, Head]]:
        heads = [
            (row[0], Head(*json.loads(row[1])))
            for row in self._all("SELECT cid, row FROM head WHERE NOT purged ORDER BY active_at DESC, cid")
            if query.search is None or self._holds(row[0], query.search)
        ]
        if query.after is not None:
            at, after = query.after
            heads = [item for item in heads if (item[1].active_at, after) < (at, item[0])]
        return heads[: query.limit]

    def _holds(self, conversation_id: str, text: str) -> bool:
        wanted = text.encode().lower()
        bodies = self._all("SELECT body FROM message WHERE cid = ? AND body IS NOT NULL", (conversation_id,))
        return wanted in conversation_id.encode().lower() or any(wanted in row[0].lower() for row in bodies)

    @override
    def owners(self, owner_ids: Iterable[str], /) -> dict[str, OwnerRow]:
        found = (self._all("SELECT * FROM owner WHERE id = ?", (owner,)).fetchone() for owner in owner_ids)
        return {row[0]: OwnerRow(row[0], bool(row[1])) for row in found if row is not None}

    @override
    def branch(self, request_key: str, /) -> BranchRow | None:
        found = self._all("SELECT * FROM branch WHERE key = ?", (request_key,)).fetchone()
        return None if found is None else BranchRow(*found)

    # --- writes ---------------------------------------------------------------------------------------------------

    @override
    def save(self, conversation_id: str, changes: Changes, /) -> None:
        for entry in changes.entries:
            if self.entry(conversation_id, entry.event_id) is not None:
                raise UsageError("was used by another command", argument="command_id")
        self.put_head(conversation_id, changes.head)
        for run_id, (_, row) in changes.runs.items():
            values = (conversation_id, run_id, row.run.is_active, _run_text(row), row.draft and row.draft.sha256)
            self._all("REPLACE INTO run VALUES (?, ?, ?, ?, ?)", values)
        self._save_messages(conversation_id, changes)
        for receipt in changes.receipts:
            self._all("INSERT INTO receipt VALUES (?, ?, ?, ?, ?)", (conversation_id, *receipt))
        for seed in changes.seeds:
            self._all("INSERT INTO seed VALUES (?, ?, ?)", (conversation_id, seed.key, json.dumps(seed.message_ids)))
        for entry in changes.entries:
            self._all("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (conversation_id, *entry))
        self._save_drafts(conversation_id, changes)
        if changes.branch is not None:
            self._save_branch(changes.branch)

    def _save_branch(self, row: BranchRow) -> None:
        if self.branch(row.key) is not None:
            raise UsageError("was used by another request", argument="request_key")
        self._all("INSERT INTO branch VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _save_messages(self, conversation_id: str, changes: Changes) -> None:
        for message in (*changes.messages, *changes.answers):
            self._all(
                f"INSERT INTO message (cid, {MESSAGE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (cid, id) DO UPDATE SET position = excluded.position, version = excluded.version,"
                " status = excluded.status, body = excluded.body",
                (conversation_id, *message),
            )
        version = changes.head.version
        for message_id, position in changes.moved:
            move = "UPDATE message SET position = ?, version = ? WHERE cid = ? AND id = ?"
            self._all(move, (position, version, conversation_id, message_id))
        for message_id, removed_at in changes.removed:
            remove = "UPDATE message SET removed_at = ?1, version = ?1 WHERE cid = ?2 AND id = ?3"
            self._all(remove, (removed_at, conversation_id, message_id))

    def _save_drafts(self, conversation_id: str, changes: Changes) -> None:
        for step in changes.drafts:
            if step.patch == 0:
                self._all("DELETE FROM draft WHERE cid = ? AND run_id = ?", (conversation_id, step.run_id))
            else:
                insert = "INSERT INTO draft (cid, run_id, body) VALUES (?, ?, ?)"
                self._all(insert, (conversation_id, step.run_id, step.body))

    @override
    def purge(self, conversation_id: str, at: str, /) -> None:
        for table in OF_CONVERSATION:
            self._all(f"DELETE FROM {table} WHERE cid = ?", (conversation_id,))
        self.put_head(conversation_id, Head(purged=True, changed_at=at))
        self._all("DELETE FROM branch WHERE destination = ?", (conversation_id,))
        self._all("UPDATE branch SET source = NULL WHERE source = ?", (conversation_id,))

    def put_head(self, conversation_id: str, head: Head) -> None:
        """Write a head."""
        values = (conversation_id, json.dumps(head), bool(head.purged), head.active_at)
        self._all("REPLACE INTO head VALUES (?, ?, ?, ?)", values)


def _run_text(row: RunRow) -> str:
    draft = None if row.draft is None else [row.draft.kinds, row.draft.patches, row.draft.size]
    return json.dumps([row.run.to_json(), row.arrival, row.version, row.place, draft])


def _run_row(text: str, sha256: bytes | None) -> RunRow:
    run, arrival, version, place, draft = json.loads(text)
    head = None
    if draft is not None and sha256 is not None:
        kinds, patches, size = draft
        head = DraftHead(kinds, patches, size, sha256)
    return RunRow(run=Run.model_validate(run), arrival=arrival, version=version, place=place, draft=head)


def _event_row(row: Sequence[Any]) -> EventRow:
    seq, version, event_id, command_id, kind, at, body, ignorable, schema_version = row
    return EventRow(seq, version, event_id, command_id, kind, at, body, bool(ignorable), schema_version)


class PlainLease(Lease):
    """A lease as long as its block, unless a sweep takes it."""

    def __init__(self, owner_id: str, rows: PlainRows) -> None:
        self._owner_id = owner_id
        self._rows = rows

    @property
    @override
    def owner_id(self) -> str:
        return self._owner_id

    @property
    @override
    def held(self) -> bool:
        row = self._rows.owners([self._owner_id]).get(self._owner_id)
        return row is not None and row.alive


class PlainDriver(StoreDriver):
    """Transactions of one connection, one at a time."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._lock = threading.RLock()
        self.rows = PlainRows(self._connection)

    @property
    @override
    def location(self) -> str:
        return "plain"

    @override
    async def open(self) -> None:
        self._connection.executescript(TABLES)

    @override
    async def close(self) -> None:
        self._connection.close()

    def _transaction(self, work: Callable[[Rows], T]) -> T:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    result = work(self.rows)
                except BaseException:
                    self._connection.execute("ROLLBACK")
                    raise
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise StoreError(f"plain: {error}") from error
            return result

    @override
    async def read(self, work: Callable[[Rows], T], /) -> T:
        return self._transaction(work)

    @override
    async def write(self, work: Callable[[Rows], T], conversation_id: str, /) -> T:
        return self._transaction(work)

    @override
    def hold_lease(self, owner_id: str, /) -> AbstractAsyncContextManager[Lease]:
        return self._hold(owner_id)

    @asynccontextmanager
    async def _hold(self, owner_id: str) -> AsyncIterator[Lease]:
        if self.rows.owners([owner_id]):
            raise UsageError("was used before; every incarnation has an id of its own", argument="owner_id")
        self._connection.execute("INSERT INTO owner VALUES (?, 1)", (owner_id,))
        try:
            yield PlainLease(owner_id, self.rows)
        finally:
            self._connection.execute("UPDATE owner SET alive = 0 WHERE id = ?", (owner_id,))

    @override
    async def sweep_owners(self) -> Sequence[str]:
        gone = [row[0] for row in self._connection.execute("SELECT id FROM owner WHERE NOT alive ORDER BY id")]
        return [owner for owner in gone if self._take_lanes(owner)]

    def _take_lanes(self, owner: str) -> bool:
        taken = False
        for (cid,) in self._connection.execute("SELECT DISTINCT cid FROM run WHERE active").fetchall():
            head = self.rows.head(cid)
            if head.lane_owner == owner:
                self.rows.put_head(cid, head._replace(lane_owner=None, lane_epoch=head.lane_epoch + 1))
                taken = True
        return taken

    @override
    async def wait_for_change(self, conversation_id: str, version: int, max_wait: float, /) -> bool:
        ends = monotonic() + max_wait
        while self.rows.head(conversation_id).version <= version:
            if monotonic() >= ends:
                return False
            await anyio.sleep(0.01)
        return True
