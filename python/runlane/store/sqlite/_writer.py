"""The one thread that writes: it commits what waits on all lanes together.

Theory of operation. A mutation is a function over rows that may be run again. The thread takes what is queued, up to a
group's size, and runs all of it in one transaction. One that loses a race or is refused has written nothing and costs
the others nothing. If one fails after it wrote, which only misuse or damage brings about, the transaction is taken back
and the group runs once more with a savepoint around each mutation, so that a failure takes back only itself.

One COMMIT, and so one flush of the disk, makes the whole group durable; only then is anybody answered. While the disk
is busy the next group gathers, so the group grows with the load and nobody waits for company.

Functions of one conversation run in the order they were handed in, and each sees what the ones before it wrote.

When nothing has come for a while and the file holds many free pages, some of them are given back to the file system.

A COMMIT that fails fails everybody in the group. Whether it is certain that nothing was written is said by the error
(`runlane.store.sqlite._errors.commit_failure`); if not, each caller finds out by sending the same commands again.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import apsw

from runlane.errors import StoreBusyError, StoreClosedError, StoreFullError, StoreUnavailableError
from runlane.store._driver import Rows
from runlane.store.sqlite._bridge import Reply, deliver
from runlane.store.sqlite._errors import commit_failure, typed_error
from runlane.store.sqlite._host import Host
from runlane.store.sqlite._reserve import Reserve
from runlane.store.sqlite._rows import LaneCache, SqliteRows

__all__ = ["Mutation", "Probe", "Writer"]

_GROUP: Final = 64
_IDLE: Final = 0.5
"""Seconds without a mutation after which the file is tidied."""
_VACUUM_PAGES: Final = 200
_KEPT_PAGES: Final = 512
"""Free pages that stay: drafts come and go, and take theirs from here."""
_LONG_LOG: Final = 32_768
"""Pages of a log that is worth waiting for: 64 MiB."""


@dataclass(slots=True)
class Mutation:
    """One function to run in a transaction, and who waits for it."""

    work: Callable[[Rows], Any]
    conversation_id: str
    reply: Reply[Any] = field(default_factory=Reply)


@dataclass(slots=True)
class Probe:
    """Where tests stop a writer: called in its thread around each COMMIT that writes something."""

    before_commit: Callable[[], None] = lambda: None
    after_commit: Callable[[], None] = lambda: None


class _TakenBackError(Exception):
    """A mutation failed after it wrote, outside a savepoint."""


def _identity(location: str) -> tuple[int, int] | None:
    """Return what tells a file from any other that may have its name later; None if there is none."""
    try:
        found = os.stat(location)  # noqa: PTH116  once per transaction
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Writer:
    """Owns the write connection.

    Args:
        connection: The only one that writes; closed with the writer.
        location: The file, for errors.
        host: Judges owners.
        reserve: What is given back when the disk is full.
        most_waiting: How many mutations may wait.

    Attributes:
        committed: Called after each COMMIT with the conversations it touched, and how far they have come, before
            anybody is answered.
        answered: Called after each COMMIT, once everybody is answered.
        checkpoint_wanted: Asked after a COMMIT that left this many pages in the write-ahead log.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        location: str,
        host: Host,
        reserve: Reserve,
        most_waiting: int,
    ) -> None:
        self.probe = Probe()
        self.wal_pages = 0
        self.committed: Callable[[dict[str, int | None]], None] = lambda _versions: None
        self.answered: Callable[[], None] = lambda: None
        self.checkpoint_wanted: Callable[[int], bool] = lambda _pages: False
        self._connection = connection
        self._connection.set_wal_hook(self._note_pages)
        self._cursor = self._connection.cursor()
        self._location = location
        self._identity = _identity(location)
        self._host = host
        self._reserve = reserve
        self._untidy = True
        self._most_waiting = most_waiting
        self._queue: queue.SimpleQueue[Mutation | None] = queue.SimpleQueue()
        self._closed = False
        self._cache = LaneCache()
        self._thread = threading.Thread(target=self._run, name="runlane-writer", daemon=True)
        self._thread.start()

    def submit(self, mutation: Mutation, /) -> None:
        """Queue a mutation.

        Raises:
            StoreClosedError: The writer is closed.
            StoreBusyError: Too many wait.
        """
        if self._closed:
            raise StoreClosedError("is closed", store=self._location)
        if self._queue.qsize() >= self._most_waiting:
            raise StoreBusyError(f"{self._most_waiting} mutations are waiting", store=self._location)
        self._queue.put(mutation)

    def close(self) -> None:
        """Carry out what is queued and end the thread. Blocks."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _note_pages(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self.wal_pages = pages
        return apsw.SQLITE_OK

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        open_ = True
        while open_:
            group, open_ = self._gather()
            if group:
                self._carry_out(group)
        self._finish()

    def _gather(self) -> tuple[list[Mutation], bool]:
        """Wait for a mutation and take whatever else is there; False if it was the last."""
        try:
            first = self._queue.get(timeout=_IDLE if self._untidy else None)
        except queue.Empty:
            self._tidy()
            return [], True
        if first is None:
            return [], False
        group = [first]
        while len(group) < _GROUP and not self._queue.empty():
            following = self._queue.get()
            if following is None:
                return group, False
            group.append(following)
        return group, True

    def _tidy(self) -> None:
        """Give free pages back to the file system, a few at a time."""
        self._untidy = False
        if _identity(self._location) != self._identity:
            return
        with suppress(apsw.Error):
            free = int(str(self._connection.pragma("freelist_count")))
            if free > _KEPT_PAGES:
                pages = min(_VACUUM_PAGES, free - _KEPT_PAGES)
                with self._connection:
                    self._connection.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
                self._untidy = True

    def _carry_out(self, group: list[Mutation]) -> None:
        self._reserve.look()
        try:
            wrote = self._transact(group)
        except BaseException as error:  # noqa: BLE001  every waiting task is told, whatever happened
            self._fail(group, self._typed(error))
            wrote = False
        if wrote:
            self.committed({mutation.conversation_id: self._version(mutation.conversation_id) for mutation in group})
        deliver(mutation.reply for mutation in group)
        if wrote:
            self.answered()
            self._untidy = True
            if self.checkpoint_wanted(self.wal_pages):
                self._checkpoint()

    def _version(self, conversation_id: str) -> int | None:
        """Return how far a conversation has come that was just committed; None if that is not remembered."""
        known = self._cache.heads.get(conversation_id)
        return None if known is None else known[1].version

    def _checkpoint(self) -> None:
        """Write back what is left of the log; a long one is also cut, unless somebody reads it."""
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if self.wal_pages > _LONG_LOG else apsw.SQLITE_CHECKPOINT_PASSIVE
        with suppress(apsw.Error):
            self._connection.wal_checkpoint(mode=mode)

    def _transact(self, group: list[Mutation]) -> bool:
        """Commit a group; whether anything was written."""
        if _identity(self._location) != self._identity:
            # A commit would go into a file that nobody can open any more, or mix two files under one log.
            problem = "the file was removed or replaced while it was open; put it back, or open the store anew"
            raise StoreUnavailableError(problem, store=self._location)
        self._begin()
        try:
            wrote = self._run_all(group)
        except _TakenBackError:
            self._take_back()
            self._begin()
            wrote = self._run_all(group, careful=True)
        if wrote:
            self.probe.before_commit()
        try:
            self._cursor.execute("COMMIT")
        except apsw.Error as error:
            raise commit_failure(error, self._location) from error
        self._cache.committed(self._connection.data_version())
        if wrote:
            self.probe.after_commit()
        return wrote

    def _begin(self) -> None:
        self._cursor.execute("BEGIN IMMEDIATE")
        self._cache.look(self._connection.data_version())

    def _run_all(self, group: list[Mutation], *, careful: bool = False) -> bool:
        wrote = False
        for mutation in group:
            wrote = self._one(mutation, careful=careful) or wrote
        return wrote

    def _one(self, mutation: Mutation, *, careful: bool) -> bool:
        """Run one mutation; whether it wrote. Raises if the whole transaction is lost, or must be taken back."""
        rows = SqliteRows(self._cursor, self._host, self._cache, careful=careful)
        rows.full = self._location if self._reserve.is_spent else None
        try:
            result = mutation.work(rows)
        except BaseException as error:
            self._cache.forget(mutation.conversation_id)
            if not self._connection.in_transaction:
                raise
            if rows.saved and not careful:
                raise _TakenBackError from error
            if rows.saved:
                self._cursor.execute("ROLLBACK TO one")
                self._cursor.execute("RELEASE one")
            mutation.reply.fail(self._typed(error))
            return False
        if rows.saved and careful:
            self._cursor.execute("RELEASE one")
        mutation.reply.succeed(result)
        return rows.saved

    def _take_back(self) -> None:
        """Undo a transaction that was not committed, and what was remembered of it."""
        self._cache.clear()
        if self._connection.in_transaction:
            with suppress(apsw.Error):
                self._connection.execute("ROLLBACK")

    def _typed(self, error: BaseException) -> BaseException:
        typed = typed_error(error, self._location)
        if isinstance(typed, StoreFullError):
            self._reserve.give_back()
        return typed

    def _fail(self, group: list[Mutation], error: BaseException) -> None:
        """Take the transaction back and tell everybody; one that had failed by itself keeps its own error."""
        self._take_back()
        for mutation in group:
            if not mutation.reply.failed:
                mutation.reply.fail(error)

    def _finish(self) -> None:
        if self.wal_pages:
            with suppress(apsw.Error):
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._connection.close()
