"""User instructions are seeded once per conversation, ahead of it, and never come back once they were replaced."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runlane.prompt import UserInstruction
from runlane.records import Message, TextPart
from runlane.runtime._seeding import inserted_by, seed_command
from runlane.store import Applied, MemoryStore, Store
from runlane.store.sqlite import SqliteStore

NOW = datetime(2026, 1, 2, tzinfo=UTC)
INSTRUCTIONS = [UserInstruction("house", "Rules."), UserInstruction("brief", "The brief.")]


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Store]:
    """Open a store of a kind."""
    store: Store = MemoryStore() if kind == "memory" else SqliteStore(folder / "seeds.sqlite")
    async with store:
        yield store


async def seed(store: Store) -> bool:
    """Seed once more; whether that inserted something."""
    command = seed_command(command_id=store.ids.new("command"), at=NOW, conversation_id="c", instructions=INSTRUCTIONS)
    (outcome,) = await store.apply("c", (command,))
    assert isinstance(outcome, Applied)
    return inserted_by(outcome)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.anyio
async def test_they_are_inserted_once(kind: str, tmp_path: Path) -> None:
    """A replay inserts nothing and says so."""
    async with opened(kind, tmp_path) as store:
        assert [await seed(store), await seed(store), await seed(store)] == [True, False, False]
        snapshot = await store.load_snapshot("c")
    assert [message.text for message in snapshot.messages] == ["Rules.", "The brief."]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.anyio
async def test_once_replaced_by_a_summary_they_do_not_come_back(kind: str, tmp_path: Path) -> None:
    """Compaction may absorb them; a later run's replay of the seed inserts nothing."""
    async with opened(kind, tmp_path) as store:
        await seed(store)
        before = await store.load_snapshot("c")
        summary = Message(
            id="s",
            conversation_id="c",
            role="summary",
            status="committed",
            parts=(TextPart(text="All of it."),),
            created_at=NOW,
            updated_at=NOW,
        )
        await store.replace_compacted_range(
            expected_version=before.version,
            replaced_message_ids=[message.id for message in before.messages],
            summary=summary,
        )
        assert await seed(store) is False
        after = await store.load_snapshot("c")
    assert [message.role for message in after.messages] == ["summary"]
