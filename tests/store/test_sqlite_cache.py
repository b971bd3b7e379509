"""What the writer of a SQLite store remembers between transactions."""

from pathlib import Path

import pytest

from runlane.errors import LeaseLostError
from runlane.store import NotFound
from runlane.store._rows import Head
from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.store.sqlite._owners import release
from runlane.testing._store_kit import Lane, duplicate

pytestmark = pytest.mark.anyio

_RELAXED = SqliteOptions(durability="relaxed")


async def test_runs_that_have_ended_are_not_remembered(tmp_path: Path) -> None:
    """Neither once they ended nor once a repeated key has had them read again."""
    async with SqliteStore(tmp_path / "store.db", options=_RELAXED) as store:
        lane = Lane(store)
        await lane.turn("a")
        duplicate(await lane.try_accept("a"))
        await lane.accept("b")
        numbers = store.driver.writer._cache.numbers
        assert set(numbers) == {("c1", "b")}


@pytest.mark.parametrize("between", ["nothing", "commit", "tidy"])
async def test_a_commit_of_somebody_else_is_never_missed(tmp_path: Path, between: str) -> None:
    """Heads are kept from commit to commit, and read again once another connection committed in between."""
    path = tmp_path / "store.db"
    async with SqliteStore(path, options=_RELAXED) as store, SqliteStore(path, options=_RELAXED) as other:
        writer = store.driver.writer
        lane, beside = Lane(store), Lane(store, "c2")
        await lane.accept("a")
        await beside.accept("x")
        known = writer._cache.heads["c1"]
        await beside.accept("y")
        assert writer._cache.heads["c1"] is known
        await Lane(other).accept("b")
        if between == "commit":
            await beside.accept("z")
            assert "c1" not in writer._cache.heads
        elif between == "tidy":
            writer._tidy()
        await lane.accept("c")
        assert await lane.version() == 3


async def test_a_conversation_that_somebody_else_begins_is_not_begun_twice(tmp_path: Path) -> None:
    """That there is no such conversation is known only as long as nobody else commits."""
    path = tmp_path / "store.db"
    async with SqliteStore(path, options=_RELAXED) as store, SqliteStore(path, options=_RELAXED) as other:
        mine = Lane(store)
        assert isinstance(await mine.try_acquire("a", revision=0), NotFound)
        assert store.driver.writer._cache.heads["c1"] == (0, Head())
        await Lane(other).accept("a")
        await mine.accept("b")
        assert await mine.version() == 2


@pytest.mark.parametrize("by", ["this store", "another"])
async def test_an_owner_that_was_released_acquires_nothing_more(tmp_path: Path, by: str) -> None:
    """That an owner lives is not read at each acquisition, and yet never believed for longer than it is so."""
    path = tmp_path / "store.db"
    async with SqliteStore(path, options=_RELAXED) as store, SqliteStore(path, options=_RELAXED) as other:
        lane, beside = Lane(store), Lane(store, "c2")
        await lane.accept("a")
        await beside.accept("b", "c")
        releasing = other if by == "another" else store
        async with store.hold_lease("o"):
            await lane.start("a", "o")
            assert set(store.driver.writer._cache.owners) == {"o"}
            await releasing.driver._change_owners(lambda rows: release(rows.cursor, "o"))
            with pytest.raises(LeaseLostError):
                await beside.try_acquire("b", "o", revision=0)
