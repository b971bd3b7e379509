"""Whatever state a conversation is in, it can be carried from one store to another and is the same there."""

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runlane.store import BranchConversation, Changes, MemoryStore, Store, decode_archive, encode_archive
from runlane.store._importing import changes_of
from runlane.store._snapshot import Contents
from runlane.store.sqlite import SqliteStore
from runlane.testing import STORE_CHECKS, StoreCheck, check_conversation
from runlane.testing._store_kit import Lane

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
async def test_whatever_a_check_leaves_behind_survives(check: StoreCheck, tmp_path: Path) -> None:
    """Each conversation that a check leaves behind is exported, imported elsewhere, and exported again alike."""
    archives = 0

    @asynccontextmanager
    async def maker(conversation_ids: Sequence[str]) -> AsyncIterator[Store]:
        nonlocal archives
        async with MemoryStore() as store:
            yield store
            async with SqliteStore(tmp_path / "other.db", durability="relaxed") as other:
                for conversation_id in conversation_ids:
                    await _carry(store, other, conversation_id)
                    archives += 1

    await check(maker)
    assert archives > 0


async def test_what_grows_with_a_conversation_is_done_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archives are taken apart neither in the event loop's thread nor in the store's own, where others would wait."""
    threads: set[threading.Thread] = set()

    def noting(contents: Contents) -> Changes:
        threads.add(threading.current_thread())
        return changes_of(contents)

    monkeypatch.setattr("runlane.store._store.changes_of", noting)
    monkeypatch.setattr("runlane.store._branching.changes_of", noting)
    async with SqliteStore(tmp_path / "one.db") as store, SqliteStore(tmp_path / "two.db") as other:
        await Lane(store).turn("a")
        archive = await store.export_conversation("c1")
        await other.import_conversation(archive)
        await other.branch_conversation(BranchConversation(request_key="k", destination_id="c2", source_id="c1"))
    assert threads
    assert threading.current_thread() not in threads
    assert [thread.name for thread in threads if thread.name.startswith("runlane-")] == []


async def _carry(store: Store, other: Store, conversation_id: str) -> None:
    archive = await store.export_conversation(conversation_id)
    data = encode_archive(archive)
    assert decode_archive(data) == archive
    imported = await other.import_conversation(data)
    assert imported.events == len(archive.events)
    assert encode_archive(await other.export_conversation(conversation_id)) == data
    assert await other.load_snapshot(conversation_id) == await store.load_snapshot(conversation_id)
    await check_conversation(other, conversation_id)
