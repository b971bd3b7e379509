"""What a SQLite store does for itself: it looks a file through, gives pages back, keeps room, and rings."""

import shutil
import socket
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

from runlane.errors import (
    InvalidValueError,
    StoreDamagedError,
    StoreForeignError,
    StoreFullError,
    StoreUnavailableError,
)
from runlane.records import Ownership
from runlane.store import DraftPatch, Purged
from runlane.store._driver import Rows
from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.store.sqlite._bell import Bell
from runlane.store.sqlite._presence import Presence
from runlane.testing import check_conversation
from runlane.testing._store_kit import Lane, applied
from tests.store.host import FakeHost, block_until

pytestmark = pytest.mark.anyio


# --- after a crash ------------------------------------------------------------------------------------------------


async def _crashed(folder: Path) -> Path:
    """Return a store as a process leaves it that was killed: with a log, and nobody there."""
    path, left = folder / "store.db", folder / "left.db"
    async with SqliteStore(path) as store:
        await Lane(store).turn(*(f"r{number}" for number in range(20)))
    async with SqliteStore(path) as store:
        await Lane(store, "c2").accept("a")
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{left}{suffix}")
    return left


def _damage(path: Path) -> None:
    """Overwrite the head of every page but the first two; the log still holds some of them."""
    with path.open("r+b") as file:
        for offset in range(2 * 2048, path.stat().st_size, 2048):
            file.seek(offset)
            file.write(b"\x0a" + b"\xff" * 20)


async def test_a_file_left_open_by_a_crash_is_looked_through(tmp_path: Path) -> None:
    """A store that nobody closed is checked page by page before it is used, and a damaged one is refused as it is."""
    left = await _crashed(tmp_path / "one")
    async with SqliteStore(left) as store:
        await check_conversation(store, "c1")
        assert await Lane(store, "c2").message_ids() == ["a-in"]
    left = await _crashed(tmp_path / "other")
    _damage(left)
    await _refused_as_it_is(left)


async def test_a_file_whose_first_pages_are_damaged_keeps_its_log(tmp_path: Path) -> None:
    """A store whose tables cannot even be listed is refused as it is: closing it folds no log into it."""
    left = await _crashed(tmp_path)
    with left.open("r+b") as file:
        file.seek(2048)
        file.write(b"\xff" * (left.stat().st_size - 2048))
    await _refused_as_it_is(left)


async def _refused_as_it_is(path: Path) -> None:
    files = [path, path.with_name(f"{path.name}-wal")]
    before = [file.read_bytes() for file in files]
    with pytest.raises(StoreDamagedError, match="corrupt"):
        async with SqliteStore(path):
            raise AssertionError("it was opened")
    assert [file.read_bytes() for file in files] == before


def test_the_first_to_come_is_alone(tmp_path: Path) -> None:
    """Who opens a file that somebody else has open is not alone; once all have left, the next one is."""
    path = tmp_path / "store.db"
    first = Presence(path)
    second, third = Presence(path), Presence(path)
    first.leave()
    fourth = Presence(path)
    assert (first.alone, second.alone, third.alone, fourth.alone) == (True, False, False, False)
    for presence in (second, third, fourth):
        presence.leave()
    last = Presence(path)
    assert last.alone
    last.leave()


async def test_a_file_of_somebody_else_keeps_its_log(tmp_path: Path) -> None:
    """A database of another program that has a log is refused, and neither of its files is changed."""
    other, path = tmp_path / "other.db", tmp_path / "store.db"
    connection = apsw.Connection(str(other))
    connection.pragma("journal_mode", "WAL")
    connection.execute("CREATE TABLE theirs (x)")
    for suffix in ("", "-wal"):
        shutil.copy(f"{other}{suffix}", f"{path}{suffix}")
    connection.close()
    before = [file.read_bytes() for file in (path, Path(f"{path}-wal"))]
    with pytest.raises(StoreForeignError):
        async with SqliteStore(path):
            raise AssertionError("it was opened")
    assert [file.read_bytes() for file in (path, Path(f"{path}-wal"))] == before


async def test_a_process_without_room_for_a_socket_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If what an open store needs cannot be had, opening says so, and leaves nothing open."""

    def none_left(*_kinds: object) -> None:
        raise OSError(24, "Too many open files")

    path = tmp_path / "store.db"
    with monkeypatch.context() as patch:
        patch.setattr("runlane.store.sqlite._bell.socket.socketpair", none_left)
        with pytest.raises(StoreUnavailableError, match="Too many open files"):
            async with SqliteStore(path):
                raise AssertionError("it was opened")
    presence = Presence(path)
    assert presence.alone
    presence.leave()
    async with SqliteStore(path) as store:
        await Lane(store).accept("a")


# --- reads that take too long -------------------------------------------------------------------------------------


async def test_a_read_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """A read may not hold its snapshot for ever: it is ended within a statement, or before its next one."""

    def endless(rows: Rows) -> None:
        cursor = rows.cursor  # type: ignore[attr-defined]
        cursor.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        ).fetchall()

    def again_and_again(rows: Rows) -> None:
        while True:
            rows.run("c1", "a")

    options = SqliteOptions(read_limit=0.05, readers=1)
    async with SqliteStore(tmp_path / "store.db", options=options) as store:
        await Lane(store).turn("a")
        for work in (endless, again_and_again):
            with pytest.raises(StoreUnavailableError, match=r"0\.05 s"):
                await store.driver.read(work)
            assert await store.driver.read(lambda rows: rows.head("c1").version) > 0


# --- free pages ---------------------------------------------------------------------------------------------------


async def test_free_pages_are_given_back_when_nothing_is_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a large conversation was purged the file shrinks, a few pages at a time, down to what drafts need."""
    monkeypatch.setattr("runlane.store.sqlite._writer._IDLE", 0.001)
    path = tmp_path / "store.db"
    async with SqliteStore(path, durability="relaxed") as store:
        lane = Lane(store)
        for number in range(30):
            applied(await lane.try_accept(f"r{number}", "x" * 100_000))
            await lane.start(f"r{number}")
            applied(await lane.try_end(f"r{number}"))
        await Lane(store, "c2").turn("a")
        connection = apsw.Connection(str(path))
        pages = int(str(connection.pragma("page_count")))
        assert pages > 1400
        assert isinstance(await store.purge_conversation("c1"), Purged)
        block_until(lambda: int(str(connection.pragma("freelist_count"))) <= 512)
        assert int(str(connection.pragma("page_count"))) < 800
        connection.close()
        await check_conversation(store, "c2")
    assert path.stat().st_size < 800 * 2048


# --- room set aside -----------------------------------------------------------------------------------------------


async def test_what_was_begun_can_end_on_a_full_disk(tmp_path: Path, clock: type[FakeHost]) -> None:
    """On a full disk the room set aside is given back: inputs are refused, and answers are written."""
    path, reserve = tmp_path / "store.db", tmp_path / "store.db.reserve"
    async with SqliteStore(path, options=SqliteOptions(disk_reserve=1 << 20)) as store:
        assert (reserve.stat().st_size, stat.S_IMODE(reserve.stat().st_mode)) == (1 << 20, 0o600)
        lane, other = Lane(store), Lane(store, "c2")
        await lane.accept("a")
        await lane.start("a")
        connection = store.driver.writer._connection
        pages = int(str(connection.pragma("page_count")))
        connection.pragma("max_page_count", pages)
        with pytest.raises(StoreFullError):
            await other.try_accept("b", "x" * 50_000)
        assert [store.is_full] == [True]
        assert reserve.stat().st_size == 0
        # What the file system would do once the reserve is gone.
        connection.pragma("max_page_count", pages + 200)
        with pytest.raises(StoreFullError, match="inputs are taken once there is room"):
            await other.try_accept("b")
        await lane.say("a", "an answer")
        applied(await lane.try_end("a"))
        clock.time += 2.0
        applied(await other.try_accept("b"))
        assert [store.is_full] == [False]
        assert reserve.stat().st_size == 1 << 20
        await check_conversation(store, "c1")
        await check_conversation(store, "c2")


async def test_all_processes_notice_that_the_room_was_given_back(tmp_path: Path, clock: type[FakeHost]) -> None:
    """What one store gave back is not taken by another one's inputs; once one set it aside again, both go on."""
    path, options = tmp_path / "store.db", SqliteOptions(disk_reserve=1 << 20)
    async with SqliteStore(path, options=options) as one, SqliteStore(path, options=options) as other:
        await Lane(other).accept("a")
        await Lane(other).start("a")
        one.driver._opened.keeper.found_full()  # type: ignore[union-attr]
        for store in (one, other):
            with pytest.raises(StoreFullError):
                await Lane(store, "c2").try_accept("b")
        applied(await Lane(other).try_checkpoint("a", DraftPatch(), ownership=Ownership(owner="owner-a")))
        clock.time += 2.0
        for name, store in (("c2", one), ("c3", other)):
            applied(await Lane(store, name).try_accept("b"))


async def test_a_store_that_finds_no_room_to_set_aside_opens_all_the_same(tmp_path: Path) -> None:
    """On a disk that is full from the beginning, the store can be read, and takes no inputs."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await Lane(store).turn("a")
    async with SqliteStore(path, options=SqliteOptions(disk_reserve=1 << 60)) as store:
        assert store.is_full
        assert await Lane(store).message_ids() == ["a-in", "a-out"]
        with pytest.raises(StoreFullError):
            await Lane(store).try_accept("b")


@pytest.mark.parametrize("options", [{"disk_reserve": -1}, {"disk_reserve": 1.5}, {"read_limit": 0}])
async def test_limits_are_checked_when_they_are_given(options: dict[str, object]) -> None:
    """A limit out of range is refused by name."""
    with pytest.raises(InvalidValueError):
        SqliteOptions(**options)  # type: ignore[arg-type]


# --- waking others ------------------------------------------------------------------------------------------------


@pytest.fixture
def _no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody notice a commit by looking."""
    monkeypatch.setattr("runlane.store.sqlite._keeper._POLL", 3600.0)
    monkeypatch.setattr("runlane.store.sqlite._keeper._POLL_HEARD", 3600.0)


async def _wait_and_commit(one: SqliteStore, other: SqliteStore) -> bool:
    """Let one store wait for what the other commits; whether it noticed."""
    woken: list[bool] = []

    async def wait() -> None:
        woken.append(await one.wait_for_change("c1", 0, max_wait=3600))

    with anyio.move_on_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            keeper = one.driver._opened.keeper  # type: ignore[union-attr]
            while not (keeper._watched and keeper._data_version >= 0):
                await anyio.lowlevel.checkpoint()
            await Lane(other).accept("a")
    return woken == [True]


@pytest.mark.parametrize("length", [1, 200])
@pytest.mark.usefixtures("_no_polling")
async def test_a_commit_rings_whoever_waits_elsewhere(tmp_path: Path, length: int) -> None:
    """A store that waits is woken by another one's commit, without looking again and again; nothing is left behind.

    That holds also where the path is longer than the address of a socket may be.
    """
    path = tmp_path / ("x" * length) / "store.db"
    path.parent.mkdir()
    async with SqliteStore(path) as one, SqliteStore(path) as other:
        folder = path.with_name("store.db.sock.d")
        await Lane(other, "c2").accept("a")
        assert not folder.exists()
        assert await _wait_and_commit(one, other)
        assert one.driver._opened.keeper._bell.is_heard_outside  # type: ignore[union-attr]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


@pytest.mark.usefixtures("_no_polling")
async def test_a_commit_between_two_waits_is_noticed(tmp_path: Path) -> None:
    """Who waits again at once learns of what others, or the store itself, committed meanwhile."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as one, SqliteStore(path) as other:
        assert await _wait_and_commit(one, other)
        lanes = {True: Lane(other), False: Lane(one)}
        for number, elsewhere in enumerate([True, False, True, True, False]):
            head = await one.load_head("c1")
            await lanes[elsewhere].accept(f"b{number}")
            with anyio.fail_after(20):
                assert await one.wait_for_change("c1", head.version, max_wait=3600)


async def test_who_waits_for_a_store_that_commits_itself_reads_nothing(tmp_path: Path) -> None:
    """The first wait reads how far the conversation is; from then on the store knows."""
    async with SqliteStore(tmp_path / "store.db") as store:
        lane = Lane(store)
        read, reads = store.driver.read, list[object]()

        async def counted(work: Callable[[Rows], Any], /) -> Any:  # noqa: ANN401 - what any read gives
            reads.append(work)
            return await read(work)

        store.driver.read = counted  # type: ignore[method-assign]  # counts, and reads all the same
        keeper = store.driver._opened.keeper  # type: ignore[union-attr]
        async with anyio.create_task_group() as tasks:
            # Somebody waits all the time: on a slow machine the conversation would be forgotten between two waits.
            tasks.start_soon(partial(store.wait_for_change, "c1", 1_000_000, max_wait=3600))
            with anyio.fail_after(20):
                while "c1" not in keeper._watched or keeper._watched["c1"].version is None:
                    await anyio.lowlevel.checkpoint()
            assert len(reads) == 1
            for number in range(3):
                version = applied(await lane.try_accept(f"a{number}")).delta.version
                before = len(reads)
                assert await store.wait_for_change("c1", version - 1, max_wait=0)
                assert not await store.wait_for_change("c1", version, max_wait=0)
                assert len(reads) == before
            tasks.cancel_scope.cancel()


async def test_a_conversation_nobody_waits_for_is_forgotten(tmp_path: Path) -> None:
    """What is known of a conversation stays for a moment after the last wait, then its commits cost nothing."""
    async with SqliteStore(tmp_path / "store.db") as store:
        assert not await store.wait_for_change("c1", 0, max_wait=0)
        keeper = store.driver._opened.keeper  # type: ignore[union-attr]
        with anyio.fail_after(20):
            while keeper._watched:
                keeper._bell.ring()
                await anyio.lowlevel.checkpoint()
        await Lane(store).accept("a")
        assert await store.wait_for_change("c1", 0, max_wait=0)


async def test_where_no_socket_can_be_others_are_noticed_by_looking(tmp_path: Path) -> None:
    """A folder that is none costs time and nothing else."""
    (tmp_path / "store.db.sock.d").write_text("in the way")
    async with SqliteStore(tmp_path / "store.db") as one, SqliteStore(tmp_path / "store.db") as other:
        assert await _wait_and_commit(one, other)
        assert not one.driver._opened.keeper._bell.is_heard_outside  # type: ignore[union-attr]


def test_the_socket_of_a_process_that_is_gone_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who rings finds sockets that nobody listens at any more, and removes them."""
    folder = tmp_path / "store.db.sock.d"
    folder.mkdir()
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with monkeypatch.context() as here:
        # The path may be longer than an address.
        here.chdir(folder)
        left.bind("1-0")
    left.close()
    bell, listening = Bell(tmp_path / "store.db"), Bell(tmp_path / "store.db")
    listening.listen()
    bell.ring_others()
    listening.wait(20)
    assert [entry.name.split("-")[1] for entry in folder.iterdir()] == ["0"]
    assert not (folder / "1-0").exists()
    listening.close()
    bell.close()
    assert not folder.exists()
