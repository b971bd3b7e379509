"""Rows that somebody tampered with are refused loudly: never run, never repaired, never half read."""

import json
import pickle
import random
from pathlib import Path
from typing import cast

import apsw
import pytest
from typing_extensions import override

from runlane.errors import FormatError, RecordCorruptError, RecordTooNewError, StoreDamagedError, StoreError
from runlane.records import Ownership
from runlane.store import AcquireRun, ConversationReader, DraftPatch, GrownPart, ReadEvents, decode_event
from runlane.store.sqlite import SqliteStore
from runlane.testing._store_kit import START, Lane

pytestmark = pytest.mark.anyio


class _Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._marker,)


async def _read_everything(store: SqliteStore) -> None:
    reader = ConversationReader(store)
    lane = Lane(store)
    await store.load_snapshot("c1")
    await store.scan_recoverable()
    await store.load_changes("c1", 0)
    await store.read_events(ReadEvents(conversation_id="c1"))
    await reader.messages("c1", include_compacted=True)
    await reader.list()
    await store.load_run("c1", "a")
    await store.load_draft("c1", "b")
    await lane.try_accept("x", key="a-key")


async def _fill(path: Path) -> None:
    async with SqliteStore(path, durability="relaxed") as store:
        lane = Lane(store)
        await lane.turn("a")
        await store.seed_conversation(conversation_id="c1", seed_key="k", inputs=[lane.message("s")])
        await lane.accept("b", "c")
        await lane.start("b")
        await lane.say("b", "so far")
        await store.append_event(conversation_id="c1", kind="state/set", payload={"x": 1})
        await _read_everything(store)


def _change(path: Path, statement: str, *values: object) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement, values)
    assert connection.changes() > 0
    connection.close()


CHANGED_DRAFT = "UPDATE draft SET body = CAST(replace(CAST(body AS TEXT), 'far', 'bar') AS BLOB)"
OF_INPUT = "WHERE no = (SELECT no FROM message WHERE id = 'a-in')"

BLOBS = [
    ("body", "content"),
    ("run", "inputs"),
    ("run", "usage"),
    ("run", "last_operation"),
    ("run", "request"),
    ("event", "body"),
    ("draft", "body"),
]


@pytest.mark.parametrize("kind", ["pickle", "msgpack", "text", "list", "empty"])
@pytest.mark.parametrize(("table", "column"), BLOBS)
async def test_foreign_bytes_are_refused(tmp_path: Path, table: str, column: str, kind: str) -> None:
    """Pickle, MessagePack extensions, text or the wrong JSON in any blob column: a typed error, and nothing was run."""
    path, marker = tmp_path / "store.db", tmp_path / "marker"
    await _fill(path)
    content = {
        "pickle": pickle.dumps(_Bomb(marker)),
        "msgpack": b"\xc7\x05\x01pickl",
        "text": b"hello",
        "list": b"[1]",
        "empty": b"",
    }[kind]
    _change(path, f"UPDATE {table} SET {column} = ?", content)
    async with SqliteStore(path) as store:
        with pytest.raises(StoreError) as caught:
            await _read_everything(store)
    assert isinstance(caught.value, RecordCorruptError)
    assert not marker.exists()


@pytest.mark.parametrize(
    "change",
    [
        "state = 'completed'",
        "state = 'nonsense'",
        "terminal_reason = 'success'",
        "terminal_policy_name = 'p'",
        "absorbed_into = 'x'",
        "revision = -1",
        "fencing_token = 0",
        "created_at = 'yesterday'",
        "inputs = CAST('[]' AS BLOB)",
        "draft_patches = draft_patches + 1",
        "draft_kinds = 'ttt'",
    ],
)
async def test_a_contradicting_run_is_refused(tmp_path: Path, change: str) -> None:
    """A run whose columns contradict each other is refused by reads and by mutations, and stays as it is."""
    path = tmp_path / "store.db"
    await _fill(path)
    _change(path, f"UPDATE run SET {change} WHERE id = 'b'")
    before = path.read_bytes()
    async with SqliteStore(path) as store:
        with pytest.raises(RecordCorruptError):
            await store.load_draft("c1", "b")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM run WHERE id = 'c'",
        "UPDATE active_run SET run = 999 WHERE run_id = 'c'",
        "UPDATE active_run SET run = (SELECT no FROM run WHERE id = 'b') WHERE run_id = 'c'",
        "UPDATE active_run SET run = (SELECT no FROM run WHERE id = 'a'), run_id = 'a' WHERE run_id = 'c'",
        "UPDATE run SET state = 'completed', terminal_reason = 'success' WHERE id = 'c'",
    ],
)
async def test_a_backlog_that_contradicts_its_runs_is_refused(tmp_path: Path, statement: str) -> None:
    """A backlog that lists a run which is missing, ended or another one is refused, and hides nothing."""
    path = tmp_path / "store.db"
    await _fill(path)
    _change(path, statement)
    async with SqliteStore(path) as store:
        with pytest.raises(RecordCorruptError):
            await store.list_active_runs("c1")
        with pytest.raises(RecordCorruptError):
            await store.scan_recoverable()
        with pytest.raises(RecordCorruptError):
            await store.acquire_run(conversation_id="c1", run_id="c", expected_revision=0, owner_id="o")


@pytest.mark.parametrize(
    "change",
    [
        "version = -1",
        "version = seq + 1",
        "seq = 9223372036854775807",
        "version = 9223372036854775807, seq = 9223372036854775807",
        "lane_epoch = 9223372036854775807",
        "next_place = 9223372036854775807",
        "gap = next_place + 1",
        "lowest = 1",
    ],
)
async def test_a_head_that_counts_wrong_is_refused(tmp_path: Path, change: str) -> None:
    """A head whose numbers cannot have come about is refused by every read and write, and is never counted on."""
    await _fill(tmp_path / "store.db")
    _change(tmp_path / "store.db", f"UPDATE conversation SET {change}")
    async with SqliteStore(tmp_path / "store.db") as store:
        for attempt in (
            store.load_head("c1"),
            store.load_snapshot("c1"),
            store.read_messages("c1"),
            ConversationReader(store).list(),
            Lane(store).try_accept("d"),
        ):
            with pytest.raises(RecordCorruptError, match="the head of conversation 'c1'"):
                await attempt


@pytest.mark.parametrize(
    "change",
    [
        "draft_sha256 = NULL",
        "draft_sha256 = x'00'",
        "draft_size = NULL",
        "draft_size = 9223372036854775807",
        "draft_patches = draft_size + 1",
    ],
)
async def test_a_run_that_contradicts_its_draft_is_refused(tmp_path: Path, change: str) -> None:
    """What a run says of its draft is looked at before the draft grows."""
    await _fill(tmp_path / "store.db")
    _change(tmp_path / "store.db", f"UPDATE run SET {change} WHERE id = 'b'")
    async with SqliteStore(tmp_path / "store.db") as store:
        with pytest.raises(RecordCorruptError, match="run 'b'"):
            await store.load_run("c1", "b")
        with pytest.raises(RecordCorruptError, match="run 'b'"):
            await store.checkpoint_run_assistant(
                conversation_id="c1",
                run_id="b",
                expected_revision=2,
                ownership=Ownership(owner="owner-a"),
                patch=DraftPatch(keep=1, grown=(GrownPart(0, "more"),)),
            )


async def test_a_run_that_its_backlog_hides_is_not_begun(tmp_path: Path) -> None:
    """A queued run that the backlog does not list cannot be acquired: whether its turn has come is unknown."""
    path = tmp_path / "store.db"
    await _fill(path)
    _change(path, "DELETE FROM active_run WHERE run_id = 'c'")
    async with SqliteStore(path) as store:
        with pytest.raises(RecordCorruptError):
            await store.acquire_run(conversation_id="c1", run_id="c", expected_revision=0, owner_id="o")


async def test_whatever_byte_is_changed_nothing_untyped_comes_out(tmp_path: Path, anyio_backend: str) -> None:
    """A file with some bytes changed, anywhere, is read, or refused by an error of the store, and nothing else."""
    chance = random.Random(f"bytes {anyio_backend}")  # noqa: S311  not for secrets
    await _fill(tmp_path / "whole.db")
    whole = (tmp_path / "whole.db").read_bytes()
    refused = 0
    for number in range(60):
        changed = bytearray(whole)
        for _ in range(chance.choice((1, 1, 4, 30))):
            changed[chance.randrange(100, len(changed))] = chance.randrange(256)
        path = tmp_path / f"{number}.db"
        path.write_bytes(changed)
        try:
            async with SqliteStore(path, durability="relaxed") as store:
                await _read_everything(store)
                await store.purge_conversation("c9")
        except StoreError:
            refused += 1
    assert 0 < refused < 60


@pytest.mark.parametrize("change", ["role = 'user'", "status = 'failed'", "run_id = 'other'", "run_id = NULL"])
async def test_a_message_that_contradicts_its_row_is_refused(tmp_path: Path, change: str) -> None:
    """A message whose columns say something else than its body is refused."""
    path = tmp_path / "store.db"
    await _fill(path)
    _change(path, f"UPDATE message SET {change} WHERE id = 'a-out'")
    async with SqliteStore(path) as store:
        with pytest.raises(RecordCorruptError):
            await store.load_run("c1", "a")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE run SET assistant_message_id = CAST(x'ff61' AS TEXT)",
        "UPDATE message SET role = CAST(x'c0af' AS TEXT)",
        "UPDATE event SET kind = CAST(x'80' AS TEXT)",
        "UPDATE conversation SET changed_at = CAST(x'eda080' AS TEXT)",
    ],
)
async def test_a_text_that_is_not_unicode_is_damage(tmp_path: Path, statement: str) -> None:
    """A text column whose bytes are no UTF-8 is reported as a damaged file, not as an accident inside."""
    path = tmp_path / "store.db"
    await _fill(path)
    _change(path, statement)
    async with SqliteStore(path) as store:
        with pytest.raises(StoreDamagedError, match="not UTF-8"):
            await _read_everything(store)


async def test_a_changed_body_is_noticed_by_its_hash(tmp_path: Path) -> None:
    """An input or answer that was changed afterwards disagrees with its receipt and with the ledger."""
    path = tmp_path / "store.db"
    await _fill(path)
    changed = "CAST(replace(CAST(content AS TEXT), 'hello', 'hallo') AS BLOB)"
    _change(path, f"UPDATE body SET content = {changed} {OF_INPUT}")
    async with SqliteStore(path) as store:
        with pytest.raises(RecordCorruptError):
            await Lane(store).try_accept("x", key="a-key")
        with pytest.raises(RecordCorruptError):
            await store.read_events(ReadEvents(conversation_id="c1"))


@pytest.mark.parametrize("statement", ["DELETE FROM draft", CHANGED_DRAFT])
async def test_a_draft_that_was_changed_never_becomes_an_answer(tmp_path: Path, statement: str) -> None:
    """A draft that is not the one its run says is refused, also by the abandonment that would make it the answer."""
    path = tmp_path / "store.db"
    await _fill(path)
    _change(path, statement)
    async with SqliteStore(path) as store:
        lane = Lane(store)
        with pytest.raises(RecordCorruptError):
            await store.load_draft("c1", "b")
        with pytest.raises(RecordCorruptError):
            await store.recover_run(
                conversation_id="c1", run_id="b", expected_revision=await lane.revision("b"), action="abandon"
            )
        assert (await lane.view("b")).run.state == "running"


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "accept"},
        {"type": "accept", "run_id": "a", "revision": 0, "inputs": 9},
        {"type": "accept", "run_id": "a", "revision": True, "inputs": 1},
        {"type": "terminal", "message": {}},
        {"type": "terminal", "message": {"id": "a-in"}},
        {"type": "terminal", "message": {"id": ["a-in"], "sha256": 1}},
        {"type": "seed", "messages": [{"sha256": "x"}]},
    ],
)
async def test_an_entry_that_lacks_what_it_must_say_is_refused(tmp_path: Path, payload: dict[str, object]) -> None:
    """A transition in the ledger that is JSON but does not name what it must is corrupt, not an accident inside."""
    path = tmp_path / "store.db"
    await _fill(path)
    _change(path, "UPDATE event SET body = ? WHERE seq = 1", json.dumps(payload).encode())
    async with SqliteStore(path) as store:
        with pytest.raises(RecordCorruptError):
            await store.read_events(ReadEvents(conversation_id="c1"))


@pytest.mark.parametrize("seq", [1, 3, 8])
async def test_a_missing_entry_is_noticed(tmp_path: Path, seq: int) -> None:
    """A ledger with a hole is refused by whoever reads over it: a listener would take it for all that happened."""
    await _fill(tmp_path / "store.db")
    async with SqliteStore(tmp_path / "store.db") as store:
        last = (await store.read_events(ReadEvents(conversation_id="c1"))).items[-1].seq
    _change(tmp_path / "store.db", "DELETE FROM event WHERE seq = ?", seq)
    async with SqliteStore(tmp_path / "store.db") as store:
        for query in (ReadEvents(conversation_id="c1"), ReadEvents(conversation_id="c1", from_seq=seq, limit=1)):
            with pytest.raises(RecordCorruptError, match=f"entry {seq} "):
                await store.read_events(query)
        with pytest.raises(RecordCorruptError):
            await store.load_changes("c1", 0)
        after = await store.read_events(ReadEvents(conversation_id="c1", from_seq=seq + 1))
        assert [event.seq for event in after.items] == list(range(seq + 1, last + 1))


async def test_an_entry_that_does_not_say_who_acquired_answers_nobody(tmp_path: Path) -> None:
    """An acquisition sent again is not answered from an entry that lacks the ownership."""
    path = tmp_path / "store.db"
    await _fill(path)
    acquire = AcquireRun(command_id="again", at=START, run_id="c", expected_revision=0, owner_id="o")
    _change(path, "UPDATE event SET id = 'again', body = ? WHERE seq = 1", b'{"type":"acquire","run_id":"c"}')
    async with SqliteStore(path) as store:
        with pytest.raises(RecordCorruptError):
            await store.apply("c1", [acquire])


async def test_a_receipt_without_its_run_is_never_a_new_run(tmp_path: Path) -> None:
    """A receipt whose run or input is missing is an error, not a fresh admission."""
    for statement in ("DELETE FROM run WHERE id = 'a'", "DELETE FROM message WHERE id = 'a-in'"):
        path = tmp_path / f"{len(statement)}.db"
        await _fill(path)
        _change(path, statement)
        async with SqliteStore(path) as store:
            with pytest.raises(RecordCorruptError):
                await Lane(store).try_accept("x", key="a-key")


async def test_a_record_of_a_later_release_fails_closed(tmp_path: Path) -> None:
    """A message or run with a newer schema version stops its own conversation and no other."""
    path = tmp_path / "store.db"
    await _fill(path)
    async with SqliteStore(path) as store:
        await Lane(store, "c2").turn("a")
    newer = "replace(CAST(content AS TEXT), '\"schema_version\":1', '\"schema_version\":2')"
    of_answer = "WHERE no = (SELECT no FROM message WHERE id = 'a-out' AND conversation = 1)"
    _change(path, f"UPDATE body SET content = CAST({newer} AS BLOB) {of_answer}")
    _change(path, "UPDATE run SET schema_version = 2 WHERE id = 'b'")
    async with SqliteStore(path) as store:
        with pytest.raises(RecordTooNewError):
            await store.load_run("c1", "a")
        with pytest.raises(RecordTooNewError):
            await store.load_run("c1", "b")
        assert await Lane(store, "c2").message_ids() == ["a-in", "a-out"]


ENVELOPE: dict[str, object] = {
    "schema_version": 1,
    "event_id": "e",
    "conversation_id": "c",
    "seq": 1,
    "kind": "state/set",
    "occurred_at": "2026-01-01T00:00:00.000Z",
    "payload": {},
}


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1, "ignorable": True},
        {"schema_version": 0},
        {"schema_version": "1"},
        {"seq": 0},
        {"seq": 2**53},
        {"event_id": ""},
        {"payload": {"a": [float("nan")]}},
        {"payload": {"a": "\ud800"}},
        {"ignorable": False},
        {"occurred_at": "2026-01-01T00:00:00"},
        {"occurred_at": "soon"},
        {"kind": "future/thing"},
        {"schema_version": 2},
        {"payload": [1]},
    ],
)
async def test_an_entry_that_is_not_understood_stops_the_reader(change: dict[str, object]) -> None:
    """A malformed envelope, and an unknown kind or version that is not marked ignorable, is refused."""
    with pytest.raises(FormatError):
        decode_event({**ENVELOPE, **change})


@pytest.mark.parametrize("value", [None, "x", [], 5, b"{}"])
async def test_what_is_no_object_is_no_entry(value: object) -> None:
    """What a reader of files finds in the place of an entry is refused like any other that is not valid."""
    with pytest.raises(FormatError):
        decode_event(cast("dict[str, object]", value))


async def test_an_unknown_entry_may_be_skipped_if_its_writer_said_so() -> None:
    """An unknown kind or a later version marked ignorable is named without its payload; a known one is decoded."""
    for change in ({"kind": "future/thing"}, {"schema_version": 2}, {"schema_version": 9, "payload": [1]}):
        ignored = decode_event({**ENVELOPE, **change, "ignorable": True})
        assert type(ignored).__name__ == "IgnoredEvent"
        assert not hasattr(ignored, "payload")
    known = decode_event({**ENVELOPE, "ignorable": True})
    assert type(known).__name__ == "DecodedEvent"
