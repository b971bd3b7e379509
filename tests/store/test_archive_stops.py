"""Imports and branches that are stopped before or after their commit, or whose reply is lost."""

from pathlib import Path

import pytest

from runlane.errors import ImportTargetNotEmptyError, StoreCommitUnknownError, StoreFullError
from runlane.store import BranchConversation, MemoryStore, ReadEvents, Store, encode_archive
from runlane.store.sqlite import SqliteStore
from runlane.testing import Fault, FaultyStore, check_conversation
from runlane.testing._store_kit import Lane

pytestmark = pytest.mark.anyio

REQUEST = BranchConversation(request_key="k", destination_id="c2", source_id="c1", run_id="b")


async def _fill(store: Store) -> bytes:
    lane = Lane(store)
    await lane.turn("a", "b")
    await lane.accept("c")
    await lane.start("c")
    await lane.say("c", "so far")
    return encode_archive(await store.export_conversation("c1"))


def _stop(store: SqliteStore, *, after: bool) -> None:
    """Stop the next commit that writes, once."""

    def stop() -> None:
        probe.before_commit = probe.after_commit = lambda: None
        raise StoreCommitUnknownError("stopped")

    probe = store.driver.writer.probe
    setattr(probe, "after_commit" if after else "before_commit", stop)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_an_import_that_is_stopped_is_whole_or_absent(tmp_path: Path, *, after: bool) -> None:
    """Before the commit nothing is there and the import may be repeated; after it all of it is, to be compared."""
    path = tmp_path / "store.db"
    async with MemoryStore() as other:
        data = await _fill(other)
    async with SqliteStore(path) as store:
        _stop(store, after=after)
        with pytest.raises(StoreCommitUnknownError):
            await store.import_conversation(data)
    async with SqliteStore(path) as store:
        if after:
            with pytest.raises(ImportTargetNotEmptyError):
                await store.import_conversation(data)
        else:
            assert (await store.load_head("c1")).version == 0
            await store.import_conversation(data)
        assert encode_archive(await store.export_conversation("c1")) == data
        await check_conversation(store, "c1")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_branch_that_is_stopped_is_found_by_asking_again(tmp_path: Path, *, after: bool) -> None:
    """The same request gives the branch, made now or then: one, with its receipt; the source is as it was."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        source = await _fill(store)
        _stop(store, after=after)
        with pytest.raises(StoreCommitUnknownError):
            await store.branch_conversation(REQUEST)
    async with SqliteStore(path) as store:
        first = await store.branch_conversation(REQUEST)
        assert first.outcome == ("duplicate" if after else "created")
        again = await store.branch_conversation(REQUEST)
        assert (again.outcome, again.receipt) == ("duplicate", first.receipt)
        assert await Lane(store, "c2").message_ids() == ["a-in", "a-out", "b-in", "b-out"]
        assert encode_archive(await store.export_conversation("c1")) == source
        await check_conversation(store, "c2")


async def test_a_stopped_import_leaves_the_store_working(tmp_path: Path) -> None:
    """A store whose import was stopped before its commit forgets all of it and takes inputs of that conversation."""
    async with MemoryStore() as other:
        data = await _fill(other)
    async with SqliteStore(tmp_path / "store.db") as store:
        _stop(store, after=False)
        with pytest.raises(StoreCommitUnknownError):
            await store.import_conversation(data)
        await Lane(store).turn("a")
        await check_conversation(store, "c1")
        assert len((await store.read_events(ReadEvents(conversation_id="c1"))).items) == 3


async def test_a_full_disk_refuses_imports_and_branches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk is full imports and branches are refused like inputs, and nothing of them is written."""
    async with MemoryStore() as other:
        data = await _fill(other)
    async with SqliteStore(tmp_path / "store.db") as store:
        await Lane(store, "c3").turn("a")
        with monkeypatch.context() as patch:
            patch.setattr(store.driver.writer._reserve, "is_spent", True)
            patch.setattr(store.driver.writer._reserve, "look", lambda: None)
            with pytest.raises(StoreFullError):
                await store.import_conversation(data)
            request = BranchConversation(request_key="k", destination_id="c2", source_id="c3")
            with pytest.raises(StoreFullError):
                await store.branch_conversation(request)
        await store.import_conversation(data)
        assert (await store.branch_conversation(request)).outcome == "created"


async def test_a_store_that_fails_where_a_test_says_carries_archives() -> None:
    """A wrapped store exports, imports and branches, and loses the reply of a branch if a plan says so."""

    def plan(call: object) -> Fault | None:
        lost = StoreCommitUnknownError("lost")
        first = getattr(call, "method", "") == "branch_conversation" and store.count("branch_conversation") == 1
        return Fault(when="after", error=lost) if first else None

    store = FaultyStore(MemoryStore(), plan)
    async with MemoryStore() as other, store:
        data = await _fill(other)
        await store.import_conversation(data)
        assert encode_archive(await store.export_conversation("c1")) == data
        with pytest.raises(StoreCommitUnknownError):
            await store.branch_conversation(REQUEST)
        assert (await store.branch_conversation(REQUEST)).outcome == "duplicate"
