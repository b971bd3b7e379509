"""A file of an earlier version becomes one of this version, whole or not at all."""

from pathlib import Path

import anyio
import apsw
import pytest

from runlane.errors import StoreDamagedError, StoreError
from runlane.store import BranchConversation, ReadEvents, encode_archive
from runlane.store.sqlite import SqliteStore
from runlane.store.sqlite._schema import APPLICATION_ID, SCHEMA_VERSION, STATEMENTS, definitions
from runlane.testing import check_conversation
from runlane.testing._store_kit import Lane

pytestmark = pytest.mark.anyio

TABLES = ("meta", "conversation", "run", "active_run", "message", "body", "draft", "receipt", "seed", "event", "owner")


async def _first_version(folder: Path) -> tuple[Path, bytes]:
    """Make a file as the first version wrote it, with a conversation that is under way; return its archive too."""
    newer, path = folder / "newer.db", folder / "store.db"
    async with SqliteStore(newer) as store:
        lane = Lane(store)
        await lane.turn("a", "b")
        await lane.accept("c")
        await lane.start("c")
        await lane.say("c", "so far")
        archive = encode_archive(await store.export_conversation("c1"))
    connection = apsw.Connection(str(path))
    connection.pragma("page_size", 2048)
    connection.pragma("journal_mode", "WAL")
    for statement in STATEMENTS[0]:
        connection.execute(statement)
    connection.execute("ATTACH ? AS newer", (str(newer),))
    for table in TABLES:
        columns = ", ".join(str(row[1]) for row in connection.execute(f"PRAGMA main.table_info({table})"))
        connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM newer.{table}")
    connection.execute("DETACH newer")
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", 1)
    connection.close()
    return path, archive


def _state(path: Path) -> tuple[object, dict[str, str]]:
    connection = apsw.Connection(str(path))
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    version = connection.pragma("user_version")
    connection.close()
    return version, {str(name): str(sql) for name, sql in found}


async def test_a_file_of_the_first_version_goes_on(tmp_path: Path) -> None:
    """Everything in an earlier file is there after it was opened, and what is new in this version works."""
    path, archive = await _first_version(tmp_path)
    assert _state(path)[0] == 1
    async with SqliteStore(path) as store:
        assert encode_archive(await store.export_conversation("c1")) == archive
        await Lane(store).accept("d")
        await check_conversation(store, "c1")
        request = BranchConversation(request_key="k", destination_id="c2", source_id="c1", run_id="b")
        assert (await store.branch_conversation(request)).outcome == "created"
    assert _state(path) == (SCHEMA_VERSION, definitions())
    async with SqliteStore(path) as store:
        assert (await store.branch_conversation(request)).outcome == "duplicate"


async def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that fails halfway is rolled back whole; the file is as it was, and the next opening carries it out."""
    path, archive = await _first_version(tmp_path)
    before = _state(path)
    broken = (STATEMENTS[0], (*STATEMENTS[1], "CREATE TABLE branch (x)"))
    with monkeypatch.context() as patch:
        patch.setattr("runlane.store.sqlite._open.STATEMENTS", broken)
        with pytest.raises(StoreError):
            async with SqliteStore(path):
                pass
    assert _state(path) == before
    async with SqliteStore(path) as store:
        assert encode_archive(await store.export_conversation("c1")) == archive


@pytest.mark.parametrize(
    "statement", ["DROP INDEX event_by_id", "CREATE TABLE branch (x)", "CREATE VIEW v AS SELECT 1"]
)
async def test_a_changed_file_is_not_migrated(tmp_path: Path, statement: str) -> None:
    """An earlier file whose tables are not as they were made is refused and left as it is."""
    path, _ = await _first_version(tmp_path)
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
    before = _state(path)
    with pytest.raises(StoreDamagedError if "branch" not in statement else StoreError):
        async with SqliteStore(path):
            pass
    assert _state(path) == before


async def test_several_stores_migrate_a_file_at_once(tmp_path: Path) -> None:
    """Stores that open an earlier file at the same time take turns; all find it whole."""
    path, archive = await _first_version(tmp_path)
    found: list[bytes] = []

    async def use() -> None:
        async with SqliteStore(path) as store:
            found.append(encode_archive(await store.export_conversation("c1")))

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(use)
    assert found == [archive] * 4
    assert _state(path) == (SCHEMA_VERSION, definitions())


async def test_a_program_of_the_first_version_may_go_on_writing(tmp_path: Path) -> None:
    """What an earlier program that still has the file open appends is read by this one as it meant it."""
    path, _ = await _first_version(tmp_path)
    async with SqliteStore(path) as store:
        connection = apsw.Connection(str(path))
        with connection:
            connection.execute("UPDATE conversation SET seq = seq + 1")
            connection.execute(
                "INSERT INTO event (conversation, seq, version, id, command_id, kind, occurred_at, ignorable, body)"
                " SELECT no, seq, version, 'e', NULL, 'state/set', created_at, 0, CAST('{}' AS BLOB) FROM conversation"
            )
        connection.close()
        events = (await store.read_events(ReadEvents(conversation_id="c1"))).items
        assert (events[-1].event_id, events[-1].schema_version) == ("e", 1)
        await check_conversation(store, "c1")
