"""Whatever state a conversation is in, it can be carried from one store to another and is the same there."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runlane.store import MemoryStore, Store, decode_archive, encode_archive
from runlane.store.sqlite import SqliteStore
from runlane.testing import STORE_CHECKS, StoreCheck, check_conversation

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


async def _carry(store: Store, other: Store, conversation_id: str) -> None:
    archive = await store.export_conversation(conversation_id)
    data = encode_archive(archive)
    assert decode_archive(data) == archive
    imported = await other.import_conversation(data)
    assert imported.events == len(archive.events)
    assert encode_archive(await other.export_conversation(conversation_id)) == data
    assert await other.load_snapshot(conversation_id) == await store.load_snapshot(conversation_id)
    await check_conversation(other, conversation_id)
