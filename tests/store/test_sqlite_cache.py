"""What the writer of a SQLite store remembers between transactions."""

from pathlib import Path

import pytest

from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.testing._store_kit import Lane, duplicate

pytestmark = pytest.mark.anyio


async def test_runs_that_have_ended_are_not_remembered(tmp_path: Path) -> None:
    """Neither once they ended nor once a repeated key has had them read again."""
    async with SqliteStore(tmp_path / "store.db", options=SqliteOptions(durability="relaxed")) as store:
        lane = Lane(store)
        await lane.turn("a")
        duplicate(await lane.try_accept("a"))
        await lane.accept("b")
        numbers = store.driver.writer._cache.numbers
        assert set(numbers) == {("c1", "b")}
