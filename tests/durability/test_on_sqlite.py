"""Durable work on a file."""

from pathlib import Path

import pytest

from runlane.durability import StepDurability
from runlane.store.sqlite import SqliteStore
from tests.durability.scenes import CONVERSATION, Counting

pytestmark = pytest.mark.anyio


async def test_a_step_survives_the_file_being_closed(tmp_path: Path) -> None:
    """On SQLite, by another store object over the same file, with what was delivered and parked meanwhile."""
    body, path = Counting({"text": "é\0"}), tmp_path / "agents.db"
    async with SqliteStore(path) as store:
        first = StepDurability(store, CONVERSATION, "run")
        await first.step("s", body)
        await first.sleep(0, "n")
        await first.deliver("e", "i", [1])
    async with SqliteStore(path) as store:
        second = StepDurability(store, CONVERSATION, "run")
        assert await second.step("s", body) == {"text": "é\0"}
        assert await second.wait_for("e", "i") == [1]
        assert not await StepDurability(store, "another", "run").has_recorded_step("s")
    assert body.entered == 1
