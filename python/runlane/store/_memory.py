"""The store in memory: the model that the others are compared with, and enough for tests and scripts."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
from typing_extensions import override

from runlane.clock import Clock
from runlane.contracts import clock_or_system
from runlane.errors import UsageError
from runlane.ids import IdSource
from runlane.store._driver import ConversationQuery, MessageQuery, Rows, StoreDriver
from runlane.store._port import Lease
from runlane.store._rows import (
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
from runlane.store._store import DriverStore
from runlane.store._waiting import wait_at_most

__all__ = ["MemoryDriver", "MemoryStore"]

T = TypeVar("T")


@dataclass(slots=True)
class _Conversation:
    """The tables of one conversation.

    Attributes:
        age: When each message row was made, which orders rows of one position.
        places: (position, age, message id) of every message that has a position, sorted.
    """

    head: Head = field(default_factory=Head)
    runs: dict[str, RunRow] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    messages: dict[str, MessageRow] = field(default_factory=dict)
    age: dict[str, int] = field(default_factory=dict)
    places: list[tuple[int, int, str]] = field(default_factory=list)
    receipts: dict[str, ReceiptRow] = field(default_factory=dict)
    seeds: dict[str, SeedRow] = field(default_factory=dict)
    drafts: dict[str, list[bytes]] = field(default_factory=dict)
    entries: list[EventRow] = field(default_factory=list)
    by_event_id: dict[str, EventRow] = field(default_factory=dict)


def _detached(row: RunRow) -> RunRow:
    """Return a row that shares nothing that can be changed: a run is frozen, the request it carries is not."""
    if not row.run.request:
        return row
    return row._replace(run=row.run.model_copy(update={"request": deepcopy(row.run.request)}))


class _MemoryRows(Rows):
    """Rows over dictionaries. A `save` is checked first and cannot fail after that, so a transaction is atomic."""

    def __init__(self, driver: MemoryDriver) -> None:
        self._all = driver.conversations
        self._owners = driver.owners
        self._branches = driver.branches

    def _of(self, conversation_id: str) -> _Conversation:
        return self._all.get(conversation_id) or _Conversation()

    @override
    def view(self, conversation_id: str, names: Names, /) -> View:
        own = self._of(conversation_id)
        view = View(conversation_id=conversation_id, head=own.head)
        view.active = {run_id: _detached(own.runs[run_id]) for run_id in own.active}
        view.ended = {run_id: _detached(own.runs[run_id]) for run_id in (names.runs - own.active) & own.runs.keys()}
        view.receipts = {key: own.receipts[key] for key in names.receipts & own.receipts.keys()}
        view.seeds = {key: own.seeds[key] for key in names.seeds & own.seeds.keys()}
        known = (own.messages[message_id] for message_id in names.messages & own.messages.keys())
        view.messages = {row.message_id: MessagePlace(row.message_id, row.position, row.removed_at) for row in known}
        view.drafts = {run_id: self.draft(conversation_id, run_id) for run_id in names.drafts}
        view.swept = {owner for owner, row in self.owners(names.owners).items() if not row.alive}
        view.span = self._span(view, names)
        return view

    def _span(self, view: View, names: Names) -> tuple[MessagePlace, ...]:
        bounds = view.span_bounds(names)
        if bounds is None:
            return ()
        query = MessageQuery(limit=view.span_limit(names), above=bounds[0] - 1, below=bounds[1] + 1, newest_first=False)
        rows = self.messages(view.conversation_id, query)
        return tuple(MessagePlace(row.message_id, row.position, None) for row in rows)

    @override
    def head(self, conversation_id: str, /) -> Head:
        return self._of(conversation_id).head

    @override
    def run(self, conversation_id: str, run_id: str, /) -> RunRow | None:
        row = self._of(conversation_id).runs.get(run_id)
        return None if row is None else _detached(row)

    @override
    def runs(self, conversation_id: str, run_ids: Iterable[str], /) -> list[RunRow]:
        found = self._of(conversation_id).runs
        return [_detached(row) for run_id in run_ids if (row := found.get(run_id))]

    @override
    def active(self, conversation_id: str, /) -> list[RunRow]:
        own = self._of(conversation_id)
        return [_detached(own.runs[run_id]) for run_id in own.active]

    @override
    def bodies(self, conversation_id: str, message_ids: Iterable[str], /) -> dict[str, MessageRow]:
        found = self._of(conversation_id).messages
        rows = (found.get(message_id) for message_id in message_ids)
        return {row.message_id: row for row in rows if row is not None and row.body is not None}

    @override
    def messages(self, conversation_id: str, query: MessageQuery, /) -> list[MessageRow]:
        own = self._of(conversation_id)
        low = 0 if query.above is None else bisect_left(own.places, (query.above + 1, -1, ""))
        high = len(own.places) if query.below is None else bisect_left(own.places, (query.below, -1, ""))
        steps = range(high - 1, low - 1, -1) if query.newest_first else range(low, high)
        found: list[MessageRow] = []
        for index in steps:
            row = own.messages[own.places[index][2]]
            if row.removed_at is None or query.removed:
                found.append(row)
            if len(found) == query.limit:
                break
        return found

    @override
    def draft(self, conversation_id: str, run_id: str, /) -> tuple[bytes, ...]:
        return tuple(self._of(conversation_id).drafts.get(run_id, ()))

    @override
    def entry(self, conversation_id: str, event_id: str, /) -> EventRow | None:
        return self._of(conversation_id).by_event_id.get(event_id)

    @override
    def entries(self, conversation_id: str, first: int, last: int, limit: int, /) -> list[EventRow]:
        return self._of(conversation_id).entries[max(first, 1) - 1 : last][:limit]

    @override
    def recoverable(self, cursor: tuple[str, str] | None, limit: int, /) -> list[tuple[str, RunRow]]:
        keys = sorted((cid, run_id) for cid, own in self._all.items() for run_id in own.active)
        behind = keys if cursor is None else [key for key in keys if key > cursor]
        return [(cid, _detached(self._all[cid].runs[run_id])) for cid, run_id in behind[:limit]]

    @override
    def conversations(self, query: ConversationQuery, /) -> list[tuple[str, Head]]:
        found = [(cid, own.head) for cid, own in self._all.items() if self._matches(cid, own, query.search)]
        found.sort(key=lambda item: item[0])
        found.sort(key=lambda item: item[1].active_at, reverse=True)
        if query.after is not None:
            at, after = query.after
            found = [
                (cid, head) for cid, head in found if head.active_at < at or (head.active_at == at and cid > after)
            ]
        return found[: query.limit]

    def _matches(self, conversation_id: str, own: _Conversation, search: str | None) -> bool:
        if own.head.purged or search is None:
            return not own.head.purged
        wanted = search.encode().lower()
        bodies = (row.body for row in own.messages.values() if row.body is not None)
        return wanted in conversation_id.encode().lower() or any(wanted in body.lower() for body in bodies)

    @override
    def owners(self, owner_ids: Iterable[str], /) -> dict[str, OwnerRow]:
        return {owner: OwnerRow(owner, self._owners[owner]) for owner in owner_ids if owner in self._owners}

    @override
    def branch(self, request_key: str, /) -> BranchRow | None:
        return self._branches.get(request_key)

    # --- writing --------------------------------------------------------------------------------------------------

    @override
    def save(self, conversation_id: str, changes: Changes, /) -> None:
        own = self._all.get(conversation_id) or _Conversation()
        ids = [row.event_id for row in changes.entries]
        if len(set(ids)) != len(ids) or any(event_id in own.by_event_id for event_id in ids):
            raise UsageError("was used by another command", argument="command_id")
        if changes.branch is not None:
            if changes.branch.key in self._branches:
                raise UsageError("was used by another request", argument="request_key")
            self._branches[changes.branch.key] = changes.branch
        self._all[conversation_id] = own
        own.head = changes.head
        for run_id, (_, row) in changes.runs.items():
            own.runs[run_id] = _detached(row)
            (own.active.add if row.run.is_active else own.active.discard)(run_id)
        for message in (*changes.messages, *changes.answers):
            self._put(own, message)
        for message_id, position in changes.moved:
            self._put(own, own.messages[message_id]._replace(position=position, version=changes.head.version))
        for message_id, version in changes.removed:
            self._put(own, own.messages[message_id]._replace(removed_at=version, version=version))
        own.receipts.update((row.key, row) for row in changes.receipts)
        own.seeds.update((row.key, row) for row in changes.seeds)
        self._save_drafts(own, changes)
        own.entries += changes.entries
        own.by_event_id.update((row.event_id, row) for row in changes.entries)

    def _put(self, own: _Conversation, row: MessageRow) -> None:
        age = own.age.setdefault(row.message_id, len(own.age))
        old = own.messages.get(row.message_id)
        if old is not None and old.position is not None:
            del own.places[bisect_left(own.places, (old.position, age, row.message_id))]
        if row.position is not None:
            insort(own.places, (row.position, age, row.message_id))
        own.messages[row.message_id] = row

    def _save_drafts(self, own: _Conversation, changes: Changes) -> None:
        for change in changes.drafts:
            if change.patch == 0:
                own.drafts.pop(change.run_id, None)
            else:
                own.drafts.setdefault(change.run_id, []).append(change.body)

    @override
    def purge(self, conversation_id: str, at: str, /) -> None:
        self._all[conversation_id] = _Conversation(head=Head(purged=True, changed_at=at))
        for key, row in list(self._branches.items()):
            if row.destination_id == conversation_id:
                del self._branches[key]
            elif row.source_id == conversation_id:
                self._branches[key] = row._replace(source_id=None)


@dataclass(slots=True)
class _MemoryLease:
    """A lease that lives as long as its block, unless a sweep takes it."""

    owner_id: str
    owners: dict[str, bool]

    @property
    def held(self) -> bool:
        """Whether it was neither released nor swept."""
        return self.owners.get(self.owner_id, False)


class MemoryDriver(StoreDriver):
    """Rows in dictionaries, one transaction at a time. Everything is lost with the object."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.conversations: dict[str, _Conversation] = {}
        self.owners: dict[str, bool] = {}
        self._clock = clock_or_system(clock)
        self.branches: dict[str, BranchRow] = {}
        self._lock = threading.RLock()
        self._waiting: dict[str, set[anyio.Event]] = {}

    @property
    @override
    def location(self) -> str:
        return "memory"

    @override
    async def open(self) -> None:
        """Nothing has to be opened."""

    @override
    async def close(self) -> None:
        """Nothing has to be closed; the contents stay for the next block."""

    @override
    async def read(self, work: Callable[[Rows], T], /) -> T:
        with self._lock:
            return work(_MemoryRows(self))

    @override
    async def write(self, work: Callable[[Rows], T], conversation_id: str, /) -> T:
        with self._lock:
            before = self.conversations.get(conversation_id)
            try:
                result = work(_MemoryRows(self))
            except BaseException:
                # A purge puts another conversation in its place; a save is the last that can fail, and fails whole.
                self.conversations.pop(conversation_id, None)
                if before is not None:
                    self.conversations[conversation_id] = before
                raise
        for event in self._waiting.pop(conversation_id, ()):
            event.set()
        return result

    @override
    def hold_lease(self, owner_id: str, /) -> AbstractAsyncContextManager[Lease]:
        return self._hold(owner_id)

    @asynccontextmanager
    async def _hold(self, owner_id: str) -> AsyncIterator[Lease]:
        if owner_id in self.owners:
            raise UsageError(
                f"{owner_id!r} was used before; every incarnation has an id of its own", argument="owner_id"
            )
        self.owners[owner_id] = True
        try:
            yield _MemoryLease(owner_id, self.owners)
        finally:
            self.owners[owner_id] = False

    @override
    async def sweep_owners(self) -> Sequence[str]:
        with self._lock:
            gone = sorted(owner for owner, alive in self.owners.items() if not alive)
            return [owner for owner in gone if self._take_lanes(owner)]

    def _take_lanes(self, owner: str) -> bool:
        mine = [own for own in self.conversations.values() if own.head.lane_owner == owner and own.active]
        for own in mine:
            own.head = own.head._replace(lane_owner=None, lane_epoch=own.head.lane_epoch + 1)
        return bool(mine)

    @override
    async def wait_for_change(self, conversation_id: str, version: int, max_wait: float, /) -> bool:
        ends = self._clock.monotonic() + max_wait
        while True:
            if self.conversations.get(conversation_id, _Conversation()).head.version > version:
                return True
            rest = ends - self._clock.monotonic()
            if rest <= 0:
                return False
            event = anyio.Event()
            self._waiting.setdefault(conversation_id, set()).add(event)
            try:
                await wait_at_most(event, self._clock, rest)
            finally:
                self._stop_waiting(conversation_id, event)

    def _stop_waiting(self, conversation_id: str, event: anyio.Event) -> None:
        waiting = self._waiting.get(conversation_id, set())
        waiting.discard(event)
        if not waiting:
            self._waiting.pop(conversation_id, None)


class MemoryStore(DriverStore):
    """A store that lives as long as the object.

    Example:
        >>> store = MemoryStore()
        >>> store.driver.location
        'memory'
    """

    def __init__(self, *, clock: Clock | None = None, ids: IdSource | None = None) -> None:
        super().__init__(MemoryDriver(clock=clock), clock=clock, ids=ids)
