"""The driver port: what a database must offer to become a store.

A driver maps rows and gives atomic transactions. It decides nothing: which rows a command may look at is said by
`Names`, what it writes by `Changes`, and both are made here, for every driver alike. A third driver is three things:

1. A `Rows` over its own tables: a dozen reads by key, one `save`, one `purge`. All of them are plain synchronous
   functions that run inside one transaction, and speak in the rows of `runlane.store` (`Head`, `RunRow`, `MessageRow`,
   ...). Archives and branches need nothing more: an import is one `save` of many rows.
2. `StoreDriver.read` and `write`, which open a transaction, call a function with its `Rows`, commit, and turn the
   database's errors into `StoreError`s. `write` must serialise with every other `write` of the same conversation,
   whoever does it: take the database's write lock, or lock the head row first.
3. Leases and waiting, which may be as simple as those of the memory driver.

Example:
    The write path of a database with one connection and blocking calls::

        async def write(self, work, conversation_id, /):
            with self._lock:
                self._execute("BEGIN IMMEDIATE")
                try:
                    result = work(MyRows(self._connection))
                except BaseException:
                    self._execute("ROLLBACK")
                    raise
                self._execute("COMMIT")
            return result

    and in `MyRows.save`, the compare-and-swap that makes it safe::

        def save(self, conversation_id, changes, /):
            n = self._execute(
                "UPDATE conversation SET version = ?, seq = ? WHERE id = ? AND version = ? AND seq = ?",
                (changes.head.version, changes.head.seq, conversation_id, changes.before.version, changes.before.seq),
            )
            ...
            if changes.branch is not None:
                self._execute("INSERT INTO branch VALUES (?, ?, ?, ?, ?, ?, ?, ?)", changes.branch)

    Then `DriverStore(MyDriver(...))` is a store, and `runlane.testing.STORE_CHECKS` say whether it is a good one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from runlane.store._port import Lease
from runlane.store._rows import BranchRow, Changes, EventRow, Head, MessageRow, Names, OwnerRow, RunRow, View

__all__ = ["ConversationQuery", "MessageQuery", "PurgeDriver", "Rows", "StoreDriver"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQuery:
    """Which messages with a body and a position to read, ordered by position and, at the same one, by age of the row.

    Attributes:
        above, below: Exclusive bounds; None is open.
        newest_first: Whether the highest positions come first.
        removed: Whether compacted messages are included.
    """

    limit: int
    above: int | None = None
    below: int | None = None
    newest_first: bool = True
    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationQuery:
    """Which conversations to list: newest admission first, equal ones by id.

    Attributes:
        after: Continue behind this (`active_at`, conversation id).
        search: Only ids or messages that contain this text, compared without case; None takes all.
    """

    limit: int
    after: tuple[str, str] | None = None
    search: str | None = None


class Rows(Protocol):
    """One transaction's view of the tables. Everything is by conversation but the last four reads."""

    def view(self, conversation_id: str, names: Names, /) -> View:
        """Return the head, active runs and the named rows; an unknown conversation gives an empty view.

        If `names.lane` is set, all active runs are there; else it is enough that the named ones are.
        """
        ...

    def head(self, conversation_id: str, /) -> Head:
        """Return the head; that of an unknown conversation is `Head()`."""
        ...

    def run(self, conversation_id: str, run_id: str, /) -> RunRow | None:
        """Return one run."""
        ...

    def runs(self, conversation_id: str, run_ids: Iterable[str], /) -> list[RunRow]:
        """Return these runs as far as they exist, in any order."""
        ...

    def active(self, conversation_id: str, /) -> list[RunRow]:
        """Return the active runs, in any order."""
        ...

    def bodies(self, conversation_id: str, message_ids: Iterable[str], /) -> dict[str, MessageRow]:
        """Return these messages as far as they have a body, compacted ones included."""
        ...

    def messages(self, conversation_id: str, query: MessageQuery, /) -> list[MessageRow]:
        """Return a range of messages."""
        ...

    def draft(self, conversation_id: str, run_id: str, /) -> tuple[bytes, ...]:
        """Return the rows of a draft, oldest first."""
        ...

    def entry(self, conversation_id: str, event_id: str, /) -> EventRow | None:
        """Return one ledger entry, by one look-up."""
        ...

    def entries(self, conversation_id: str, first: int, last: int, limit: int, /) -> list[EventRow]:
        """Return ledger entries with `first <= seq <= last`, ascending."""
        ...

    def recoverable(self, cursor: tuple[str, str] | None, limit: int, /) -> list[tuple[str, RunRow]]:
        """Return active runs of all conversations by (conversation id, run id), behind a cursor."""
        ...

    def conversations(self, query: ConversationQuery, /) -> list[tuple[str, Head]]:
        """Return conversations that are not purged."""
        ...

    def owners(self, owner_ids: Iterable[str], /) -> dict[str, OwnerRow]:
        """Return what is known of these owners; one that never held a lease is missing."""
        ...

    def branch(self, request_key: str, /) -> BranchRow | None:
        """Return the receipt of a branch, whatever conversations it is about."""
        ...

    def save(self, conversation_id: str, changes: Changes, /) -> None:
        """Write changes that were decided on rows of this transaction.

        Raises:
            UsageError: An entry's event id is taken, or the branch's request key.
        """
        ...

    def purge(self, conversation_id: str, at: str, /) -> None:
        """Remove everything of the conversation and leave a head with `purged` set, nothing else.

        The receipt of the branch that made it goes too; receipts of branches made from it lose their `source_id`.
        """
        ...


class StoreDriver(Protocol):
    """Transactions, leases and notification over a database."""

    @property
    def location(self) -> str:
        """Where the data is, for errors: a path or URL without credentials."""
        ...

    async def open(self) -> None:
        """Open the database, creating or migrating what it needs."""
        ...

    async def close(self) -> None:
        """Finish what was begun and close; idempotent."""
        ...

    async def read(self, work: Callable[[Rows], T], /) -> T:
        """Call a function with one consistent snapshot."""
        ...

    async def write(self, work: Callable[[Rows], T], conversation_id: str, /) -> T:
        """Call a function in one atomic transaction, and answer when it is durable.

        An exception from the function leaves nothing behind. Transactions of one conversation commit in call order.
        """
        ...

    def hold_lease(self, owner_id: str, /) -> AbstractAsyncContextManager[Lease]:
        """Register an owner and keep its lease alive for the length of a block."""
        ...

    async def sweep_owners(self) -> Sequence[str]:
        """Raise the epoch of the lanes of owners that are provably gone; return these owners."""
        ...

    async def wait_for_change(self, conversation_id: str, version: int, max_wait: float, /) -> bool:
        """Wait until the conversation is past a version."""
        ...


PurgeDriver = StoreDriver
"""A driver that can purge. Every driver must: its `write` serialises the purge with every mutation of that id."""
