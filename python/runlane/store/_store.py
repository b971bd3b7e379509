"""The store over a driver: the same rules for every database."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio.to_thread
from typing_extensions import override

from runlane.clock import Clock
from runlane.contracts import clock_or_system, ids_or_random, require_kind, require_port
from runlane.errors import ArchiveInvalidError, InvalidValueError, RecordCorruptError
from runlane.ids import IdSource
from runlane.records import ConversationHead, Message, Run, Snapshot, format_timestamp
from runlane.store import _reads
from runlane.store._archive import ConversationArchive, decode_archive, encode_archive
from runlane.store._branch import BranchConversation, BranchResult, check_branch, fingerprint
from runlane.store._branching import branch_changes, branch_rows, known_branch
from runlane.store._commands import Command, PurgeConversation, ReadEvents
from runlane.store._driver import Rows, StoreDriver
from runlane.store._importing import changes_of, import_rows
from runlane.store._order import in_order
from runlane.store._outcomes import (
    AlreadyPurged,
    Conflict,
    Delta,
    EventEnvelope,
    EventPage,
    ImportResult,
    MessagePage,
    Outcome,
    Purged,
    PurgeResult,
    RecoverablePage,
    RunView,
    StillActive,
)
from runlane.store._pages import Place
from runlane.store._port import Lease, Store
from runlane.store._rows import MAX_POSITION, BranchRow, Changes
from runlane.store._shape import check_commands, check_id, check_kind, check_text, listed
from runlane.store._snapshot import Stored, archive_of, collect, take_apart
from runlane.store._transaction import transact

__all__ = ["DriverStore", "purge_conversation"]

T = TypeVar("T")

_MOST_RUNS: Final = 1_000
_MOST_MESSAGES: Final = 1_000
_MOST_EVENTS: Final = 10_000


def _check_id(conversation_id: str) -> None:
    check_id(conversation_id, "conversation_id")


def _check_number(value: object, least: int, argument: str) -> None:
    if type(value) is not int or value < least:
        raise InvalidValueError(f"must be an integer of at least {least}", argument=argument)


def _place(before: int | str) -> Place:
    if isinstance(before, str):
        return Place.read(before, "before")
    _check_number(before, -MAX_POSITION, "before")
    return Place(before)


def _check_pair(value: object, argument: str) -> None:
    if not isinstance(value, tuple) or [type(item) for item in value] != [str, str]:
        raise InvalidValueError("must be a pair of texts", argument=argument)
    for item in value:
        check_text(item, argument)


class DriverStore(Store):
    """A store made of a driver.

    Args:
        driver: Where rows live.
        clock: Dates the commands of the named operations; the system's by default.
        ids: Names them; random by default.

    Raises:
        UsageError: An argument of the wrong kind.

    Example:
        >>> store = DriverStore(MemoryDriver())  # doctest: +SKIP
    """

    def __init__(self, driver: StoreDriver, *, clock: Clock | None = None, ids: IdSource | None = None) -> None:
        self.driver = require_port(driver, StoreDriver, argument="driver")
        self.clock = clock_or_system(clock)
        self.ids = ids_or_random(ids)

    @override
    async def __aenter__(self) -> Self:
        await self.driver.open()
        return self

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        await self.driver.close()

    @override
    async def apply(self, conversation_id: str, commands: Sequence[Command], /) -> tuple[Outcome, ...]:
        _check_id(conversation_id)
        together = listed(commands, "commands")
        check_commands(together)
        return await self.driver.write(
            partial(transact, conversation_id=conversation_id, commands=together), conversation_id
        )

    @override
    async def purge(self, command: PurgeConversation, /) -> PurgeResult:
        check_kind(command, PurgeConversation, "command")
        _check_id(command.conversation_id)
        if command.expected_version is not None:
            _check_number(command.expected_version, 0, "expected_version")
        at = format_timestamp(self.clock.now())
        return await self.driver.write(partial(_purge, command=command, at=at), command.conversation_id)

    # --- whole conversations --------------------------------------------------------------------------------------

    @override
    async def export_conversation(self, conversation_id: str, /) -> ConversationArchive:
        _check_id(conversation_id)
        stored = await self.driver.read(lambda rows: collect(rows, conversation_id))
        return await _beside(lambda: _exported(stored))

    @override
    async def import_conversation(self, archive: ConversationArchive | bytes, /) -> ImportResult:
        check_kind(archive, (ConversationArchive, bytes), "archive")
        conversation_id, changes = await _beside(lambda: _prepared(archive))
        await self.driver.write(lambda rows: import_rows(rows, conversation_id, changes), conversation_id)
        return ImportResult(conversation_id=conversation_id, events=len(changes.entries))

    @override
    async def branch_conversation(self, request: BranchConversation, /) -> BranchResult:
        check_branch(request)
        asked = await _beside(lambda: fingerprint(request))
        known, stored = await self.driver.read(lambda rows: _source(rows, request, asked))
        if known is not None:
            return known
        at = format_timestamp(self.clock.now())
        changes, row = await _beside(lambda: _branched(request, asked, stored, at, self.ids))
        return await self.driver.write(lambda rows: branch_rows(rows, request, changes, row), request.destination_id)

    # --- reads ----------------------------------------------------------------------------------------------------

    @override
    async def load_head(self, conversation_id: str, /) -> ConversationHead:
        _check_id(conversation_id)
        return await self.driver.read(lambda rows: _reads.head_of(rows, conversation_id))

    @override
    async def load_run(self, conversation_id: str, run_id: str, /) -> RunView | None:
        _check_id(conversation_id)
        check_id(run_id, "run_id")
        return await self.driver.read(lambda rows: _reads.run_view(rows, conversation_id, run_id))

    @override
    async def list_active_runs(self, conversation_id: str, /) -> tuple[Run, ...]:
        _check_id(conversation_id)
        return await self.driver.read(lambda rows: _reads.active_runs(rows, conversation_id))

    @override
    async def load_draft(self, conversation_id: str, run_id: str, /) -> Message | None:
        _check_id(conversation_id)
        check_id(run_id, "run_id")
        return await self.driver.read(lambda rows: _reads.draft_of(rows, conversation_id, run_id))

    @override
    async def load_snapshot(self, conversation_id: str, /) -> Snapshot:
        _check_id(conversation_id)
        return await self.driver.read(lambda rows: _reads.snapshot(rows, conversation_id))

    @override
    async def load_changes(self, conversation_id: str, since_version: int, /) -> Delta:
        _check_id(conversation_id)
        _check_number(since_version, 0, "since_version")
        return await self.driver.read(lambda rows: _reads.changes_since(rows, conversation_id, since_version))

    @override
    async def read_messages(
        self, conversation_id: str, /, *, before: int | str | None = None, limit: int = 100
    ) -> MessagePage:
        _check_id(conversation_id)
        _reads.check_limit(limit, _MOST_MESSAGES)
        start = None if before is None else _place(before)
        return await self.driver.read(lambda rows: _reads.messages_before(rows, conversation_id, start, limit))

    @override
    async def scan_recoverable(self, *, cursor: tuple[str, str] | None = None, limit: int = 100) -> RecoverablePage:
        _reads.check_limit(limit, _MOST_RUNS)
        if cursor is not None:
            _check_pair(cursor, "cursor")
        return await self.driver.read(lambda rows: _reads.recoverable_runs(rows, cursor, limit))

    @override
    async def read_events(self, query: ReadEvents, /) -> EventPage:
        check_kind(query, ReadEvents, "query")
        _check_id(query.conversation_id)
        _reads.check_limit(query.limit, _MOST_EVENTS)
        first, last = query.from_seq, query.to_seq
        if first is not None:
            _check_number(first, 1, "from_seq")
        if last is not None:
            _check_number(last, first or 1, "to_seq")
        if query.after_version is not None:
            _check_number(query.after_version, 0, "after_version")
        return await self.driver.read(lambda rows: _reads.events(rows, query))

    @override
    async def find_event(self, conversation_id: str, event_id: str, /) -> EventEnvelope | None:
        _check_id(conversation_id)
        check_id(event_id, "event_id")
        return await self.driver.read(lambda rows: _reads.event_by_id(rows, conversation_id, event_id))

    # --- ownership and notification -------------------------------------------------------------------------------

    @override
    def hold_lease(self, owner_id: str, /) -> AbstractAsyncContextManager[Lease]:
        check_id(owner_id, "owner_id")
        return self.driver.hold_lease(owner_id)

    @override
    async def sweep_owners(self) -> tuple[str, ...]:
        return tuple(await self.driver.sweep_owners())

    @override
    async def wait_for_change(self, conversation_id: str, version: int, /, *, max_wait: float) -> bool:
        _check_id(conversation_id)
        _check_number(version, 0, "version")
        if type(max_wait) not in {int, float} or not 0 <= max_wait < math.inf:
            raise InvalidValueError("must be a time in seconds of at least 0", argument="max_wait")
        return await self.driver.wait_for_change(conversation_id, version, max_wait)


async def _beside(work: Callable[[], T]) -> T:
    """Do what takes a time that grows with the conversation where nobody waits for it: in a worker thread."""
    return await anyio.to_thread.run_sync(work)


def _exported(stored: Stored) -> ConversationArchive:
    """Write rows as an archive, and make sure that it would give these very rows again.

    Raises:
        RecordCorruptError: It would not.
    """
    archive = archive_of(stored)
    try:
        rebuilt = changes_of(take_apart(archive))
    except ArchiveInvalidError as error:
        problem = f"conversation {stored.conversation_id!r} contradicts itself: {error}"
        raise RecordCorruptError(problem) from error
    same = (
        rebuilt.head == stored.head
        and rebuilt.entries == stored.entries
        and [row for _, row in rebuilt.runs.values()] == stored.runs
        and rebuilt.messages[: len(stored.messages)] == stored.messages
    )
    if not same:
        raise RecordCorruptError(f"conversation {stored.conversation_id!r} has rows that contradict their contents")
    return archive


def _prepared(archive: ConversationArchive | bytes) -> tuple[str, Changes]:
    """Check an archive and return its rows; one that was made by hand is held to the same rules as bytes."""
    decoded = decode_archive(archive if isinstance(archive, bytes) else encode_archive(archive))
    return decoded.conversation_id, changes_of(take_apart(decoded))


def _source(rows: Rows, request: BranchConversation, asked: bytes) -> tuple[BranchResult | None, Stored | None]:
    known = known_branch(rows, request, asked)
    if known is not None or request.source_id is None:
        return known, None
    return None, collect(rows, request.source_id)


def _branched(
    request: BranchConversation, asked: bytes, stored: Stored | None, at: str, ids: IdSource
) -> tuple[Changes, BranchRow]:
    source = decode_archive(request.archive or b"") if stored is None else _exported(stored)
    changes, boundary = branch_changes(source, request, at, ids)
    row = BranchRow(request.request_key, asked, source.conversation_id, request.destination_id, *boundary, at)
    return changes, row


def _purge(rows: Rows, command: PurgeConversation, at: str) -> PurgeResult:
    head = rows.head(command.conversation_id)
    if head.purged:
        return AlreadyPurged()
    if command.expected_version not in {None, head.version}:
        return Conflict(actual_version=head.version)
    active = in_order(rows.active(command.conversation_id))
    if active:
        return StillActive(run_ids=tuple(row.run.id for row in active))
    rows.purge(command.conversation_id, at)
    return Purged()


async def purge_conversation(
    store: Store, conversation_id: str, /, *, expected_version: int | None = None
) -> PurgeResult:
    """Remove everything a store keeps under a conversation id; see `Store.purge`."""
    require_kind(store, Store, argument="store")
    return await store.purge_conversation(conversation_id, expected_version=expected_version)
