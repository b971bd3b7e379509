"""What a store keeps beside messages and runs, and how large it is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runlane.records import ConversationHead
from runlane.store import DraftPatch, MemoryStore, Store
from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.testing._store_kit import Lane, applied

pytestmark = pytest.mark.anyio

_KINDS = pytest.mark.parametrize("kind", ["memory", "sqlite"])


@asynccontextmanager
async def store_of(kind: str, folder: Path) -> AsyncIterator[Store]:
    """Open an empty store."""
    made: Store = MemoryStore()
    if kind == "sqlite":
        made = SqliteStore(folder / "store.db", options=SqliteOptions(durability="relaxed"))
    async with made as store:
        yield store


@_KINDS
async def test_an_unknown_conversation_reads_as_empty(kind: str, tmp_path: Path) -> None:
    """Version 0, no messages, no runs; reading it makes no conversation."""
    async with store_of(kind, tmp_path) as store:
        for _ in range(2):
            snapshot = await store.load_snapshot("nobody")
            assert (snapshot.version, snapshot.messages, snapshot.runs) == (0, (), ())
            assert await store.load_head("nobody") == ConversationHead(conversation_id="nobody", version=0)
            assert (await store.list_active_runs("nobody"), await store.load_run("nobody", "r")) == ((), None)


@_KINDS
async def test_a_head_is_as_large_for_a_long_conversation(kind: str, tmp_path: Path) -> None:
    """It holds the version and nothing that grows."""
    sizes = []
    async with store_of(kind, tmp_path) as store:
        lane = Lane(store)
        for number in range(4):
            await lane.turn(f"r{number}")
            sizes.append(len((await store.load_head("c1")).model_dump_json()) - len(str(await lane.version())))
    assert len(set(sizes)) == 1


@_KINDS
async def test_the_entry_of_a_checkpoint_holds_no_draft(kind: str, tmp_path: Path) -> None:
    """The ledger says which answer it was, its status, hash, parts and bytes; what was said is in the draft alone."""
    said = "what was said so far"
    async with store_of(kind, tmp_path) as store:
        lane = Lane(store)
        await lane.accept("a")
        await lane.start("a")
        applied(await lane.try_checkpoint("a", DraftPatch()))
        await lane.say("a", said)
        entries = await lane.ledger()
        draft = await store.load_draft("c1", "a")
    assert draft is not None
    assert draft.text == said
    assert said not in str(entries)
    assert entries[-1].keys() == {"type", "run_id", "state", "revision", "message"}
    assert isinstance(entries[-1]["message"], dict)
    assert entries[-1]["message"].keys() == {"id", "sha256", "parts", "size"}
    assert (entries[-1]["message"]["id"], entries[-1]["message"]["parts"]) == ("a-out", 1)
