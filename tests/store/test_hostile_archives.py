"""An export of rows that somebody tampered with is refused: no archive is made that could not be imported."""

from pathlib import Path

import apsw
import pytest

from runlane.errors import RecordCorruptError
from runlane.store import BranchConversation
from runlane.store.sqlite import SqliteStore
from runlane.testing._store_kit import Lane

pytestmark = pytest.mark.anyio

REQUEST = BranchConversation(request_key="k", destination_id="c2", source_id="c1", run_id="a")

STATEMENTS = [
    "UPDATE body SET content = CAST('{}' AS BLOB)",
    "UPDATE body SET content = CAST(replace(CAST(content AS TEXT), 'answer', 'lie') AS BLOB)",
    "UPDATE message SET role = 'user' WHERE id = 'a-out'",
    "UPDATE message SET position = position + 1 WHERE id = 'a-out'",
    "UPDATE message SET removed_at = 1, version = 1 WHERE id = 'a-in'",
    "DELETE FROM message WHERE id = 'a-in'",
    "DELETE FROM body WHERE no = (SELECT no FROM message WHERE id = 'a-out')",
    "UPDATE run SET revision = revision + 1 WHERE id = 'b'",
    "UPDATE run SET fencing_token = 7 WHERE id = 'a'",
    "UPDATE run SET arrival = arrival + 1 WHERE id = 'a'",
    "DELETE FROM run WHERE id = 'a'",
    "DELETE FROM draft",
    "UPDATE draft SET body = CAST('[]' AS BLOB)",
    "DELETE FROM event WHERE seq = 2",
    "DELETE FROM event WHERE seq = 6",
    "UPDATE event SET version = 9 WHERE seq = 2",
    'UPDATE event SET body = CAST(\'"type":"accept"\' AS BLOB) WHERE seq = 1',
    'UPDATE event SET body = CAST(\'[{"type":"accept"}]\' AS BLOB) WHERE seq = 1',
    'UPDATE event SET body = CAST(\'{"type":"accept"}\' AS BLOB) WHERE seq = 1',
    "UPDATE event SET occurred_at = 'yesterday'",
    "UPDATE event SET kind = 'unheard/of' WHERE seq = 2",
    "UPDATE event SET kind = 'unheard/of' WHERE kind = 'state/set'",
    "UPDATE event SET schema_version = 2 WHERE seq = 2",
    "UPDATE conversation SET version = version - 1",
    "UPDATE conversation SET next_place = gap",
    "UPDATE conversation SET created_at = ''",
    "UPDATE conversation SET created_at = 'yesterday'",
]


async def _fill(path: Path) -> None:
    async with SqliteStore(path, durability="relaxed") as store:
        lane = Lane(store)
        await lane.turn("a")
        await lane.accept("b")
        await lane.start("b")
        await lane.say("b", "so far")
        await store.append_event(conversation_id="c1", kind="state/set", payload={})


def _change(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    assert connection.changes() > 0
    connection.close()


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_rows_that_contradict_each_other_make_no_archive(tmp_path: Path, statement: str) -> None:
    """Export and branch of a conversation whose rows were changed are refused by type, and write nothing."""
    path = tmp_path / "store.db"
    await _fill(path)
    _change(path, statement)
    async with SqliteStore(path, durability="relaxed") as store:
        with pytest.raises(RecordCorruptError):
            await store.export_conversation("c1")
        with pytest.raises(RecordCorruptError):
            await store.branch_conversation(REQUEST)
        assert (await store.load_head("c2")).version == 0


@pytest.mark.parametrize(
    "change", ["created_at = 'yesterday'", "source_seq = -1", "source_sha256 = x'00'", "destination = ''"]
)
async def test_a_receipt_that_was_changed_is_refused(tmp_path: Path, change: str) -> None:
    """A receipt of a branch that is none is refused, and no second branch is made under its key."""
    path = tmp_path / "store.db"
    await _fill(path)
    async with SqliteStore(path, durability="relaxed") as store:
        await store.branch_conversation(REQUEST)
    _change(path, f"UPDATE branch SET {change}")
    async with SqliteStore(path, durability="relaxed") as store:
        with pytest.raises(RecordCorruptError):
            await store.branch_conversation(REQUEST)
