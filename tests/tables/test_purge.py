"""Purging a conversation: in which order, what comes late, and what it leaves alone."""

from pathlib import Path

import anyio
import pytest

from runlane.errors import ConversationPurgedError
from runlane.records import RunOperation
from runlane.store import DraftPatch, MemoryStore, Purged, StillActive, Store
from runlane.store.sqlite import SqliteStore
from runlane.testing._store_kit import Lane, applied
from tests.tables.test_records import store_of

pytestmark = pytest.mark.anyio

_KINDS = pytest.mark.parametrize("kind", ["memory", "sqlite"])


@_KINDS
async def test_every_store_of_this_package_can_purge(kind: str, tmp_path: Path) -> None:
    """There is no store without it, so nobody is told that it is unsupported: an abstract method must be there."""
    assert "purge" in Store.__abstractmethods__
    async with store_of(kind, tmp_path) as store:
        await Lane(store).turn("a")
        assert await store.purge_conversation("c1") == Purged()


@_KINDS
async def test_a_purged_conversation_is_in_no_scan_and_no_list(kind: str, tmp_path: Path) -> None:
    """An empty snapshot proves nothing, but nobody finds the conversation any more."""
    async with store_of(kind, tmp_path) as store:
        lane, other = Lane(store), Lane(store, "c2")
        await lane.turn("a")
        await other.accept("b")
        assert await store.purge_conversation("c1") == Purged()
        page = await store.scan_recoverable()
        assert [(item.conversation_id, item.run.id) for item in page.items] == [("c2", "b")]
        assert (await store.load_snapshot("c1")).version == 0
        assert (await store.load_run("c1", "a"), await store.list_active_runs("c1")) == (None, ())


@_KINDS
async def test_what_comes_late_to_a_purged_conversation_is_refused(kind: str, tmp_path: Path) -> None:
    """A checkpoint, an operation and an end of an executor that was slower than the end of its run and the purge."""
    async with store_of(kind, tmp_path) as store:
        lane = Lane(store)
        await lane.accept("a")
        ownership = await lane.start("a")
        revision = await lane.revision("a")
        applied(await lane.try_end("a"))
        assert await store.purge_conversation("c1") == Purged()
        operation = RunOperation(
            operation_id="o", kind="model-request", phase="started", step=0, started_at=store.clock.now()
        )
        late = [
            lane.try_checkpoint("a", DraftPatch(), ownership=ownership, revision=revision),
            store.record_run_operation(
                conversation_id="c1", run_id="a", expected_revision=revision, ownership=ownership, operation=operation
            ),
            lane.try_end("a", ownership=ownership, revision=revision),
        ]
        for attempt in late:
            with pytest.raises(ConversationPurgedError):
                await attempt
        assert (await store.load_snapshot("c1")).messages == ()


@_KINDS
async def test_purge_and_admission_go_in_the_order_of_their_calls(kind: str, tmp_path: Path) -> None:
    """Admitted first, the purge finds an active run; purged first, the admission is refused: never both, never none."""
    async with store_of(kind, tmp_path) as store:
        found: dict[str, object] = {}

        async def admit(lane: Lane) -> None:
            try:
                found["admission"] = applied(await lane.try_accept("a"))
            except ConversationPurgedError as error:
                found["admission"] = error

        async def purge(lane: Lane) -> None:
            found["purge"] = await store.purge_conversation(lane.id)

        for number in range(10):
            found.clear()
            lane = Lane(store, f"c{number}")
            async with anyio.create_task_group() as tasks:
                for call in (admit, purge) if number % 2 else (purge, admit):
                    tasks.start_soon(call, lane)
            active = await store.list_active_runs(lane.id)
            if isinstance(found["admission"], ConversationPurgedError):
                assert (found["purge"], active) == (Purged(), ())
            else:
                assert (found["purge"], [run.id for run in active]) == (StillActive(run_ids=("a",)), ["a"])


async def test_a_tombstone_survives_a_reopened_file(tmp_path: Path) -> None:
    """Whoever opens the file later is refused as well."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await Lane(store).turn("a")
        assert await store.purge_conversation("c1") == Purged()
    async with SqliteStore(path) as store:
        with pytest.raises(ConversationPurgedError):
            await Lane(store).try_accept("b")


async def test_a_tombstone_in_memory_lives_as_long_as_its_store() -> None:
    """Another store knows nothing of it."""
    async with MemoryStore() as store:
        assert await store.purge_conversation("c1") == Purged()
        with pytest.raises(ConversationPurgedError):
            await Lane(store).try_accept("a")
    async with MemoryStore() as store:
        await Lane(store).turn("a")


async def test_what_the_application_keeps_elsewhere_is_not_touched(tmp_path: Path) -> None:
    """A backup made before, for instance, still has the conversation: whoever made it has to delete it."""
    copy = tmp_path / "copy.db"
    async with SqliteStore(tmp_path / "store.db") as store:
        await Lane(store).turn("a")
        await store.backup(copy)
        assert await store.purge_conversation("c1") == Purged()
    async with SqliteStore(copy) as store:
        assert [message.id for message in (await store.load_snapshot("c1")).messages] == ["a-in", "a-out"]
