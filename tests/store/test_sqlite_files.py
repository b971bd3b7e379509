"""Which files a SQLite store takes, which it refuses, and what it leaves on the disk."""

import os
import stat
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from runlane.errors import (
    InvalidValueError,
    StoreClosedError,
    StoreDamagedError,
    StoreError,
    StoreForeignError,
    StoreTooNewError,
    StoreUnavailableError,
    UsageError,
)
from runlane.store import ReadEvents
from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.store.sqlite._schema import APPLICATION_ID, SCHEMA_VERSION, definitions
from runlane.testing._store_kit import Lane

pytestmark = pytest.mark.anyio


async def _fill(path: Path) -> None:
    async with SqliteStore(path) as store:
        await Lane(store).turn("a")


async def _error_of_opening(path: Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        async with SqliteStore(path):
            pass
    return caught.value


def _names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def _write(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        connection = apsw.Connection(str(path))
        connection.execute(statement)
        connection.close()

    return change


async def test_a_store_outlives_its_program(tmp_path: Path) -> None:
    """What was committed is there when the file is opened again."""
    path = tmp_path / "deep" / "folder" / "store.db"
    await _fill(path)
    async with SqliteStore(path) as store:
        lane = Lane(store)
        assert await lane.message_ids() == ["a-in", "a-out"]
        await lane.turn("b")
        assert await lane.version() == 6


async def test_files_belong_to_the_owner_alone(tmp_path: Path) -> None:
    """The database and all its companions have mode 0600, a folder made for them 0700."""
    folder = tmp_path / "made"
    async with SqliteStore(folder / "store.db") as store:
        await Lane(store).accept("a")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert {"store.db", "store.db-wal", "store.db-shm"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [b"x", b"not a database\n" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_what_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    """A file that is not a SQLite database is refused as foreign, byte for byte as it was."""
    path = tmp_path / "file"
    path.write_bytes(content)
    assert isinstance(await _error_of_opening(path), StoreForeignError)
    assert path.read_bytes() == content


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    """A database with tables of somebody else is refused as foreign, and gets no table of ours."""
    path = tmp_path / "file.db"
    _write("CREATE TABLE theirs (x)")(path)
    before = path.read_bytes()
    assert isinstance(await _error_of_opening(path), StoreForeignError)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        (f"PRAGMA user_version = {SCHEMA_VERSION + 1}", StoreTooNewError),
        ("PRAGMA user_version = 0", StoreDamagedError),
        ("DROP TABLE receipt", StoreDamagedError),
        ("DROP INDEX event_by_id", StoreDamagedError),
        ("ALTER TABLE message RENAME COLUMN status TO state", StoreDamagedError),
        ("ALTER TABLE run ADD COLUMN more TEXT", StoreDamagedError),
        ("CREATE TRIGGER t AFTER INSERT ON message BEGIN DELETE FROM receipt; END", StoreDamagedError),
        ("CREATE VIEW v AS SELECT * FROM message", StoreDamagedError),
        ("PRAGMA application_id = 7", StoreForeignError),
    ],
)
async def test_a_store_that_does_not_fit_is_refused(tmp_path: Path, statement: str, kind: type[StoreError]) -> None:
    """A newer, unversioned or partial schema, or another program's mark, is refused with its reason, unrepaired."""
    path = tmp_path / "store.db"
    await _fill(path)
    _write(statement)(path)
    first = await _error_of_opening(path)
    assert type(first) is kind
    assert str(path) in str(first)
    assert type(await _error_of_opening(path)) is kind


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """A file whose pages are overwritten is reported as damaged, by opening or by the first read."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await Lane(store).turn(*(f"r{index}" for index in range(30)))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    with pytest.raises(StoreDamagedError):
        async with SqliteStore(path) as store:
            await store.load_snapshot("c1")


async def test_a_definition_that_is_not_unicode_is_damage(tmp_path: Path) -> None:
    """A definition with bytes that are no UTF-8 is reported as damage, and the file keeps them."""
    path = tmp_path / "store.db"
    await _fill(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"lane_epoch INTEGER", b"lane_\xffpoch INTEGER"))
    assert path.read_bytes() != whole
    assert isinstance(await _error_of_opening(path), StoreDamagedError)
    assert b"lane_\xffpoch" in path.read_bytes()


async def test_a_link_and_an_open_folder_are_refused(tmp_path: Path) -> None:
    """A symbolic link is not followed, and a folder that everybody may write to is not trusted."""
    (tmp_path / "link.db").symlink_to(tmp_path / "target.db")
    assert isinstance(await _error_of_opening(tmp_path / "link.db"), StoreUnavailableError)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert isinstance(await _error_of_opening(shared / "store.db"), StoreUnavailableError)
    assert not (tmp_path / "target.db").exists()


async def test_a_folder_in_the_way_is_refused(tmp_path: Path) -> None:
    """A path that is a folder, or below a file, cannot be opened and says so."""
    (tmp_path / "folder").mkdir()
    assert isinstance(await _error_of_opening(tmp_path / "folder"), StoreUnavailableError)
    (tmp_path / "file").write_bytes(b"")
    assert isinstance(await _error_of_opening(tmp_path / "file" / "store.db"), StoreUnavailableError)


async def test_a_failed_migration_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that fails halfway is rolled back whole; the next opening starts from the beginning."""
    path = tmp_path / "store.db"
    broken = (("CREATE TABLE meta (key TEXT)", "CREATE TABLE half (x)", "CREATE TABLE half (x)"),)
    with monkeypatch.context() as patch:
        patch.setattr("runlane.store.sqlite._open.STATEMENTS", broken)
        assert isinstance(await _error_of_opening(path), StoreError)
    await _fill(path)
    connection = apsw.Connection(str(path))
    made = {name: sql for name, sql in connection.execute("SELECT name, sql FROM sqlite_schema") if sql is not None}
    assert made == definitions()
    assert connection.pragma("application_id") == APPLICATION_ID
    connection.close()


async def test_the_durability_that_was_asked_for_is_set(tmp_path: Path) -> None:
    """`full` flushes every commit, `relaxed` does not; both keep a write-ahead log."""
    for durability, level in (("full", 2), ("relaxed", 1)):
        options = SqliteOptions(durability="full" if durability == "full" else "relaxed")
        async with SqliteStore(tmp_path / f"{durability}.db", options=options) as store:
            connection = store.driver.writer._connection
            assert connection.pragma("synchronous") == level
            assert connection.pragma("journal_mode") == "wal"


async def test_a_copy_is_whole_and_has_its_own_identity(tmp_path: Path) -> None:
    """A backup of a store in use holds all that was committed, under another store id, and never overwrites."""
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with SqliteStore(path) as store:
        await Lane(store).turn("a", "b")
        await store.backup(copy)
        await Lane(store).turn("c")
        with pytest.raises(StoreUnavailableError):
            await store.backup(copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    async with SqliteStore(copy) as store:
        assert await Lane(store).message_ids() == ["a-in", "a-out", "b-in", "b-out"]
    ids = set()
    for file in (path, copy):
        connection = apsw.Connection(str(file))
        ids.add(connection.execute("SELECT value FROM meta WHERE key = 'store_id'").fetchall()[0][0])
        connection.close()
    assert len(ids) == 2


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """Before and after its block a store refuses every use; closing twice is harmless; opening twice is misuse."""
    store = SqliteStore(tmp_path / "store.db")
    with pytest.raises(StoreClosedError):
        await store.load_head("c1")
    async with store:
        with pytest.raises(UsageError):
            await store.__aenter__()
        await Lane(store).accept("a")
    with pytest.raises(StoreClosedError):
        await store.load_head("c1")
    await store.__aexit__(None, None, None)
    async with store:
        assert await Lane(store).version() == 1


async def test_an_orderly_close_leaves_one_file(tmp_path: Path) -> None:
    """After closing, the log is folded into the database and no thread is left."""
    path = tmp_path / "store.db"
    before = set(threading.enumerate())
    await _fill(path)
    left = {thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("runlane")}
    assert left == set()
    assert _names_in(tmp_path) == ["store.db", "store.db.init", "store.db.users"]


async def test_a_forked_child_cannot_use_the_parents_store(tmp_path: Path) -> None:
    """After a fork every use in the child raises; the parent's store goes on."""
    async with SqliteStore(tmp_path / "store.db") as store:
        await Lane(store).accept("a")
        own = os.getpid()
        opened = store.driver._opened
        assert opened is not None
        object.__setattr__(opened, "pid", own + 1)
        with pytest.raises(StoreClosedError):
            await store.load_head("c1")
        object.__setattr__(opened, "pid", own)
        assert await Lane(store).version() == 1


@pytest.mark.parametrize("path", ["", ":memory:"])
async def test_a_path_names_a_file(path: str) -> None:
    """A path that is no file is refused where it is given."""
    with pytest.raises(InvalidValueError):
        SqliteStore(path)


@pytest.mark.parametrize(
    "options", [{"busy_timeout": 0}, {"readers": 0}, {"durability": "none"}, {"lease_ttl": 1.0, "lease_beat": 0.9}]
)
async def test_options_are_checked_when_they_are_given(options: dict[str, object]) -> None:
    """An option out of range is refused by name."""
    with pytest.raises(InvalidValueError):
        SqliteOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, "x", True, float("nan"), float("inf"), -1, 2**70])
@pytest.mark.parametrize("name", [field.name for field in fields(SqliteOptions)])
async def test_an_option_of_another_kind_is_refused(name: str, value: object) -> None:
    """What is no number, or none that a thread, a timer or a disk can have, is refused by name where it is given."""
    with pytest.raises(InvalidValueError) as error:
        SqliteOptions(**cast("dict[str, Any]", {name: value}))
    assert error.value.argument == name


@pytest.mark.parametrize("options", [{}, {"disk_reserve": 1}, [], 0, "relaxed", SqliteOptions])
async def test_options_are_of_their_own_kind(options: object) -> None:
    """What is false is not taken for none."""
    with pytest.raises(UsageError) as error:
        SqliteStore("store.db", options=cast("Any", options))
    assert error.value.argument == "options"


async def test_a_durability_holds_beside_options() -> None:
    """Whatever the options say of it; without it they decide, and a wrong one is refused all the same."""
    options = SqliteOptions(readers=2)
    relaxed = SqliteStore("store.db", durability="relaxed", options=options).driver.options
    assert (relaxed.durability, relaxed.readers) == ("relaxed", 2)
    assert SqliteStore("store.db", options=SqliteOptions(durability="relaxed")).driver.options.durability == "relaxed"
    assert SqliteStore("store.db").driver.options == SqliteOptions(durability="full")
    with pytest.raises(InvalidValueError) as error:
        SqliteStore("store.db", durability=cast("Any", "none"), options=options)
    assert error.value.argument == "durability"


async def test_many_events_are_read_by_one_lookup(tmp_path: Path) -> None:
    """Appending once and finding once in a long ledger reads no more rows than they answer with."""
    async with SqliteStore(tmp_path / "store.db", durability="relaxed") as store:
        for index in range(300):
            await store.append_event(conversation_id="c1", kind="state/set", payload={"n": index, "pad": "x" * 2000})
        plan = store.driver.writer._connection.execute(
            "EXPLAIN QUERY PLAN SELECT 1 FROM event WHERE id = 'x' AND conversation = 1"
        ).fetchall()
        assert "event_by_id (id=? AND conversation=?)" in str(plan[0][3])
        page = await store.read_events(ReadEvents(conversation_id="c1", from_seq=299))
        assert [event.payload["n"] for event in page.items] == [298, 299]
