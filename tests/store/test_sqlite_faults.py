"""What goes wrong around a SQLite store: no space, no right to write, lost commits, dead owners; and purge."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import anyio
import apsw
import pytest

from runlane.errors import (
    LeaseLostError,
    StoreBusyError,
    StoreCommitUnknownError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    UsageError,
)
from runlane.store import Applied, Conflict, DraftPatch, Duplicate, Lease, Purged
from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.store.sqlite._errors import commit_failure, store_error
from runlane.store.sqlite._host import Host
from runlane.testing import check_conversation
from runlane.testing._store_kit import Lane, applied
from tests.store.host import FakeHost, block_until

pytestmark = pytest.mark.anyio


# --- no space, no right to write ----------------------------------------------------------------------------------


@contextmanager
def _file_size_limit(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size; the kernel answers writes past it with an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def _accept_until_refused(lane: Lane, most: int = 200) -> tuple[list[str], StoreError]:
    kept: list[str] = []
    for index in range(most):
        name = f"r{index}"
        try:
            applied(await lane.try_accept(name, "x" * 20_000))
        except StoreError as error:
            return kept, error
        kept.append(name)
    raise AssertionError("nothing was refused")


async def test_a_log_that_cannot_grow_loses_nothing(tmp_path: Path) -> None:
    """When the log cannot grow a mutation gets a typed error; what was answered is there, and later all works again."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        lane = Lane(store)
        with _file_size_limit(600_000):
            kept, error = await _accept_until_refused(lane)
        assert isinstance(error, StoreUnavailableError)
        assert not isinstance(error, StoreCommitUnknownError)
        assert "a limit on the size of files" in str(error)
        assert [run.id for run in await store.list_active_runs("c1")] == kept
        applied(await lane.try_accept("later"))
        await check_conversation(store, "c1")
    async with SqliteStore(path) as store:
        assert [run.id for run in await store.list_active_runs("c1")] == [*kept, "later"]


async def test_a_full_database_loses_nothing(tmp_path: Path) -> None:
    """When no page is left the mutation gets `StoreFullError`, without effect, and works once there is room."""
    async with SqliteStore(tmp_path / "store.db") as store:
        lane = Lane(store)
        connection = store.driver.writer._connection
        pages = connection.pragma("page_count")
        connection.pragma("max_page_count", int(str(pages)) + 40)
        kept, error = await _accept_until_refused(lane)
        assert type(error) is StoreFullError
        assert error.retryable
        assert [run.id for run in await store.list_active_runs("c1")] == kept
        connection.pragma("max_page_count", 1 << 30)
        applied(await lane.try_accept("later"))
        await check_conversation(store, "c1")


async def test_one_that_finds_no_room_does_not_hurt_its_group(tmp_path: Path) -> None:
    """In a group, those that are refused are told, and those that were answered are there."""
    async with SqliteStore(tmp_path / "store.db") as store:
        connection = store.driver.writer._connection
        connection.pragma("max_page_count", int(str(connection.pragma("page_count"))) + 50)
        kept: list[str] = []
        refused: list[str] = []

        async def fill(name: str) -> None:
            try:
                applied(await Lane(store, name).try_accept("a", "x" * 20_000))
            except StoreFullError:
                refused.append(name)
            else:
                kept.append(name)

        async with anyio.create_task_group() as group:
            for index in range(20):
                group.start_soon(fill, f"c{index}")
        assert len(kept) + len(refused) == 20
        assert refused
        connection.pragma("max_page_count", 1 << 30)
        for name in kept:
            assert await Lane(store, name).message_ids() == ["a-in"]
        for name in refused:
            assert await Lane(store, name).version() == 0


async def test_a_file_that_became_read_only_is_a_typed_error(tmp_path: Path) -> None:
    """A write that SQLite refuses as read-only is `StoreUnavailableError`, without effect; reads go on."""
    async with SqliteStore(tmp_path / "store.db") as store:
        lane = Lane(store)
        await lane.accept("a")
        connection = store.driver.writer._connection
        connection.pragma("query_only", 1)
        with pytest.raises(StoreUnavailableError):
            await lane.try_accept("b")
        assert await lane.message_ids() == ["a-in"]
        connection.pragma("query_only", 0)
        await lane.accept("b")


def test_a_failed_commit_is_certain_only_if_writing_failed() -> None:
    """A commit whose frames could not be written is refused; one that could not be flushed is unknown."""

    def failure(kind: type[apsw.Error], code: int) -> StoreError:
        error = kind("failed")
        error.extendedresult = code  # type: ignore[attr-defined]
        return commit_failure(error, "store.db")

    assert type(failure(apsw.IOError, apsw.SQLITE_IOERR_WRITE)) is StoreUnavailableError
    assert type(failure(apsw.IOError, apsw.SQLITE_IOERR_FSYNC)) is StoreCommitUnknownError
    assert type(failure(apsw.FullError, apsw.SQLITE_FULL)) is StoreFullError
    assert type(store_error(apsw.SQLError("?"), "store.db")) is StoreError


async def test_too_many_waiting_mutations_are_refused(tmp_path: Path) -> None:
    """Beyond the limit a mutation is refused at once, without effect; the others are carried out."""
    async with SqliteStore(tmp_path / "store.db", options=SqliteOptions(max_waiting=5)) as store:
        refused: list[int] = []

        async def accept(index: int) -> None:
            try:
                applied(await Lane(store, f"c{index}").try_accept("a"))
            except StoreBusyError:
                refused.append(index)

        async with anyio.create_task_group() as group:
            for index in range(100):
                group.start_soon(accept, index)
        done = {item.conversation_id for item in (await store.scan_recoverable(limit=1000)).items}
        assert done == {f"c{index}" for index in range(100) if index not in refused}
        assert refused


async def test_misuse_in_a_group_takes_back_only_itself(tmp_path: Path) -> None:
    """A command under a taken id fails after it wrote; its neighbours in the same commit stay."""
    async with SqliteStore(tmp_path / "store.db") as store:
        lane = Lane(store)
        await store.append_event(conversation_id="c1", kind="state/set", payload={})
        outcomes: dict[str, object] = {}

        async def note(name: str, command_id: str) -> None:
            other = Lane(store, name)
            try:
                outcomes[name] = await other.store.accept_input(
                    idempotency_key="k", input=other.message("a-in"), run=other.proposal("a")
                )
            except UsageError as error:
                outcomes[name] = error
            assert command_id

        class Fixed:
            """Gives the first command of a conversation twice."""

            def new(self, kind: str, /) -> str:
                return f"{kind}-same"

        await lane.accept("a")
        store.ids = Fixed()
        async with anyio.create_task_group() as group:
            for name in ("c2", "c3"):
                group.start_soon(note, name, "x")
        assert all(isinstance(outcome, Applied) for outcome in outcomes.values())
        async with anyio.create_task_group() as group:
            group.start_soon(partial(lane.try_accept, "z", key="z"))
            group.start_soon(note, "c4", "x")
        with pytest.raises(UsageError):
            await lane.try_accept("y", key="y")
        assert isinstance(outcomes["c4"], Applied)
        await check_conversation(store, "c1")


# --- owners -------------------------------------------------------------------------------------------------------


async def test_a_lease_that_is_not_renewed_runs_out(tmp_path: Path, clock: type[FakeHost]) -> None:
    """An owner stops trusting its lease before others may take over; then every owned write conflicts by epoch."""
    path = tmp_path / "store.db"
    slow = SqliteOptions(lease_ttl=9.0, lease_beat=4.5)
    async with SqliteStore(path, options=slow) as one, SqliteStore(path, options=slow) as other:
        lane = Lane(one)
        await lane.accept("a")
        async with one.hold_lease("owner-a") as lease:
            old = await lane.start("a", "owner-a")
            one.driver._opened.keeper.remove(lease)  # type: ignore[union-attr, arg-type]
            clock.time += 5.0
            assert lease.held
            assert await other.sweep_owners() == ()
            clock.time += 2.0
            assert [lease.held] == [False]
            assert await other.sweep_owners() == ()
            clock.time += 3.0
            assert await other.sweep_owners() == ("owner-a",)
            assert isinstance(await lane.try_checkpoint("a", DraftPatch(), ownership=old), Conflict)
            applied(
                await other.recover_run(
                    conversation_id="c1", run_id="a", expected_revision=1, action="requeue", replay_safe=True
                )
            )
            with pytest.raises(LeaseLostError):
                await lane.try_acquire("a", "owner-a")
            async with other.hold_lease("owner-b"):
                theirs = Lane(other)
                new = await theirs.start("a", "owner-b")
                assert isinstance(await lane.try_end("a", ownership=old), Conflict)
                applied(await theirs.try_end("a", ownership=new))


def _renewed(lease: Lease, before: float) -> bool:
    return bool(lease._until > before)  # type: ignore[attr-defined]


async def test_a_lease_is_renewed_by_a_thread_of_its_own(tmp_path: Path, clock: type[FakeHost]) -> None:
    """While the event loop is blocked the keeper renews: the lease outlives its first end."""
    path = tmp_path / "store.db"
    options = SqliteOptions(lease_ttl=9.0, lease_beat=1.0)
    async with SqliteStore(path, options=options) as store, store.hold_lease("owner-a") as lease:
        keeper = store.driver._opened.keeper  # type: ignore[union-attr]
        for _ in range(20):
            clock.time += 1.5
            before = lease._until  # type: ignore[attr-defined]
            keeper._bell.ring()
            block_until(partial(_renewed, lease, before))
        assert lease.held
        await Lane(store).accept("a")
        assert await store.sweep_owners() == ()


def test_a_process_is_judged_by_what_is_certain() -> None:
    """Another boot, an ended process and a reused number are gone; another process namespace is only gone by time."""
    host = Host()
    own = (host.boot_id, host.pid_space, host.pid, host.started)
    later = host.now() + 100
    assert not host.is_gone(*own, later)
    assert host.is_gone(*own, host.now() - 1)
    assert host.is_gone("another boot", *own[1:], later)
    assert host.is_gone(host.boot_id, host.pid_space, host.pid, "1", later)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert host.is_gone(host.boot_id, host.pid_space, child, "123", later)
    os.waitpid(child, 0)
    assert host.is_gone(host.boot_id, host.pid_space, child, "123", later)
    assert not host.is_gone(host.boot_id, "pid:[elsewhere]", child, "123", later)


# --- purge --------------------------------------------------------------------------------------------------------


def _rows_that_mention(path: Path, *needles: str) -> list[tuple[str, object]]:
    """Return every row of every table in which one of these texts stands."""
    connection = apsw.Connection(str(path))
    found: list[tuple[str, object]] = []
    tables = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for table in tables:
        for row in connection.execute(f"SELECT * FROM {table}"):
            text = " ".join(
                value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in row
            )
            if any(needle in text for needle in needles):
                found.append((table, row))
    connection.close()
    return found


async def test_a_purge_leaves_exactly_the_tombstone(tmp_path: Path) -> None:
    """After a purge no row of any table holds the conversation's text or ids, but the one that reserves its id."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        lane, other = Lane(store, "doomed-conversation"), Lane(store, "kept")
        await lane.turn("doomed-a", "doomed-b")
        await store.seed_conversation(
            conversation_id=lane.id, seed_key="doomed-seed", inputs=[lane.message("doomed-s", "needle text")]
        )
        await store.append_event(conversation_id=lane.id, kind="state/set", payload={"secret": "needle text"})
        applied(await lane.try_compact("doomed-a-in", "doomed-a-out", summary="doomed-sum"))
        await lane.accept("doomed-c")
        await lane.start("doomed-c", "doomed-owner")
        await lane.say("doomed-c", "needle text")
        applied(await lane.try_end("doomed-c", "success", "needle text"))
        await other.turn("a")
    assert len(_rows_that_mention(path, "doomed", "needle")) > 20
    async with SqliteStore(path) as store:
        kept = await store.load_snapshot("kept")
        assert await store.purge_conversation("doomed-conversation") == Purged()
        assert await store.load_snapshot("kept") == kept
    left = _rows_that_mention(path, "doomed", "needle", "hello-doomed")
    assert [table for table, _ in left] == ["conversation"]


async def test_a_purge_that_fails_takes_everything_back(tmp_path: Path) -> None:
    """A purge stopped before its commit left no tombstone: a key is still answered, and a second purge finishes."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        lane = Lane(store)
        await lane.turn("a")

        def stop() -> None:
            raise StoreCommitUnknownError("stopped")

        store.driver.writer.probe.before_commit = stop
        with pytest.raises(StoreCommitUnknownError):
            await store.purge_conversation("c1")
    async with SqliteStore(path) as store:
        assert isinstance(await Lane(store).try_accept("a"), Duplicate)
        assert await store.purge_conversation("c1") == Purged()
    async with SqliteStore(path) as store:
        assert (await store.load_snapshot("c1")).messages == ()


# --- cost ---------------------------------------------------------------------------------------------------------


async def test_the_file_grows_with_what_is_said(tmp_path: Path) -> None:
    """400 turns of 2 KiB and one large attachment: the last hundred turns take as much room as the first."""
    path = tmp_path / "store.db"
    sizes: list[int] = []
    async with SqliteStore(path, durability="relaxed") as store:
        lane = Lane(store)
        applied(await lane.try_accept("big", "x" * (1 << 20)))
        await lane.start("big")
        applied(await lane.try_end("big"))
        connection = store.driver.writer._connection
        for index in range(400):
            if index % 100 == 0:
                sizes.append(int(str(connection.pragma("page_count"))))
            name = f"r{index}"
            applied(await lane.try_accept(name, "y" * 1024))
            await lane.start(name)
            applied(await lane.try_end(name, "success", "z" * 1024))
        sizes.append(int(str(connection.pragma("page_count"))))
    steps = [after - before for before, after in pairwise(sizes)]
    assert steps[3] <= 1.3 * steps[0]
    assert sizes[0] * 2048 < 1.5 * (1 << 20)
