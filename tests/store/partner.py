"""The other process: opens stores, appends turns, and carries out operations for a store that alternates."""

import multiprocessing
import pickle
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread
from typing_extensions import override

from runlane.clock import SystemClock
from runlane.ids import RandomIds
from runlane.records import ConversationHead, Message, Run, Snapshot
from runlane.store import (
    Applied,
    BranchConversation,
    BranchResult,
    Command,
    ConversationArchive,
    Delta,
    EventEnvelope,
    EventPage,
    ImportResult,
    Lease,
    MessagePage,
    Outcome,
    PurgeConversation,
    PurgeResult,
    ReadEvents,
    RecoverablePage,
    RunView,
    Store,
)
from runlane.store.sqlite import SqliteStore
from tests.store.turns import accept


def open_and_close(path: str, _index: int) -> int:
    """Open a store and close it; return 8 if a commit worked."""

    async def use() -> int:
        async with SqliteStore(path) as store:
            await store.append_event(conversation_id="c1", kind="state/set", payload={})
            return 8

    return anyio.run(use)


def append_turns(path: str, name: str, rounds: int) -> None:
    """Commit inputs to conversation `c1` as fast as possible, from two tasks."""

    async def half(store: Store, first: int) -> None:
        for index in range(first, rounds, 2):
            outcomes = await store.apply("c1", accept("c1", f"{name}-{index}"))
            assert isinstance(outcomes[-1], Applied)

    async def use() -> None:
        async with SqliteStore(path) as store, anyio.create_task_group() as group:
            group.start_soon(half, store, 0)
            group.start_soon(half, store, 1)

    anyio.run(use)


# --- a store in another process -----------------------------------------------------------------------------------


class Remote:
    """Calls methods of a store in another process, one at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    async def call(self, name: str, *args: object, **more: object) -> Any:  # noqa: ANN401  whatever the method gives
        """Call a method there, and return or raise what it did."""
        return await anyio.to_thread.run_sync(self._call, name, args, more)

    def _call(self, name: str, args: tuple[object, ...], more: dict[str, object]) -> object:
        with self._lock:
            self._connection.send((name, args, more))
            worked, result = self._connection.recv()
        if worked:
            return result
        raise result


@asynccontextmanager
async def partner(path: Path) -> AsyncIterator[Remote]:
    """Run another process with the same file open, for the length of a block."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.store.partner"])
    ours, theirs = context.Pipe()
    child = context.Process(target=_serve, args=(theirs, str(path)), daemon=True)
    child.start()
    theirs.close()
    try:
        yield Remote(ours)
    finally:
        ours.send(None)
        await anyio.to_thread.run_sync(child.join)
        ours.close()


def _serve(connection: Connection, path: str) -> None:
    async def use() -> None:
        async with SqliteStore(path, durability="relaxed") as store:
            while (request := await anyio.to_thread.run_sync(connection.recv)) is not None:
                name, args, more = request
                try:
                    answer = True, await getattr(store, name)(*args, **more)
                except Exception as error:  # noqa: BLE001  raised on the other side
                    answer = False, error
                connection.send_bytes(pickle.dumps(answer))

    anyio.run(use)


class PairedStore(Store):
    """A store whose operations go to this process and to the other one in turn."""

    def __init__(self, here: SqliteStore, there: Remote) -> None:
        self.clock = SystemClock()
        self.ids = RandomIds()
        self._here = here
        self._there = there
        self._turn = 0

    async def _call(self, name: str, *args: object, **more: object) -> Any:  # noqa: ANN401  whatever the method gives
        self._turn += 1
        if self._turn % 2:
            return await getattr(self._here, name)(*args, **more)
        return await self._there.call(name, *args, **more)

    @override
    async def __aenter__(self) -> Self:
        return self

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        """Both stores are closed by their own blocks."""

    @override
    async def apply(self, conversation_id: str, commands: Sequence[Command], /) -> tuple[Outcome, ...]:
        outcomes: tuple[Outcome, ...] = await self._call("apply", conversation_id, commands)
        return outcomes

    @override
    async def purge(self, command: PurgeConversation, /) -> PurgeResult:
        result: PurgeResult = await self._call("purge", command)
        return result

    @override
    async def export_conversation(self, conversation_id: str, /) -> ConversationArchive:
        archive: ConversationArchive = await self._call("export_conversation", conversation_id)
        return archive

    @override
    async def import_conversation(self, archive: ConversationArchive | bytes, /) -> ImportResult:
        result: ImportResult = await self._call("import_conversation", archive)
        return result

    @override
    async def branch_conversation(self, request: BranchConversation, /) -> BranchResult:
        result: BranchResult = await self._call("branch_conversation", request)
        return result

    @override
    async def load_head(self, conversation_id: str, /) -> ConversationHead:
        head: ConversationHead = await self._call("load_head", conversation_id)
        return head

    @override
    async def load_run(self, conversation_id: str, run_id: str, /) -> RunView | None:
        view: RunView | None = await self._call("load_run", conversation_id, run_id)
        return view

    @override
    async def list_active_runs(self, conversation_id: str, /) -> tuple[Run, ...]:
        runs: tuple[Run, ...] = await self._call("list_active_runs", conversation_id)
        return runs

    @override
    async def load_draft(self, conversation_id: str, run_id: str, /) -> Message | None:
        draft: Message | None = await self._call("load_draft", conversation_id, run_id)
        return draft

    @override
    async def load_snapshot(self, conversation_id: str, /) -> Snapshot:
        snapshot: Snapshot = await self._call("load_snapshot", conversation_id)
        return snapshot

    @override
    async def load_changes(self, conversation_id: str, since_version: int, /) -> Delta:
        delta: Delta = await self._call("load_changes", conversation_id, since_version)
        return delta

    @override
    async def read_messages(
        self, conversation_id: str, /, *, before: int | str | None = None, limit: int = 100
    ) -> MessagePage:
        page: MessagePage = await self._call("read_messages", conversation_id, before=before, limit=limit)
        return page

    @override
    async def scan_recoverable(self, *, cursor: tuple[str, str] | None = None, limit: int = 100) -> RecoverablePage:
        page: RecoverablePage = await self._call("scan_recoverable", cursor=cursor, limit=limit)
        return page

    @override
    async def read_events(self, query: ReadEvents, /) -> EventPage:
        page: EventPage = await self._call("read_events", query)
        return page

    @override
    async def find_event(self, conversation_id: str, event_id: str, /) -> EventEnvelope | None:
        event: EventEnvelope | None = await self._call("find_event", conversation_id, event_id)
        return event

    @override
    def hold_lease(self, owner_id: str, /) -> AbstractAsyncContextManager[Lease]:
        return self._here.hold_lease(owner_id)

    @override
    async def sweep_owners(self) -> tuple[str, ...]:
        owners: tuple[str, ...] = await self._call("sweep_owners")
        return owners

    @override
    async def wait_for_change(self, conversation_id: str, version: int, /, *, max_wait: float) -> bool:
        return await self._here.wait_for_change(conversation_id, version, max_wait=max_wait)
