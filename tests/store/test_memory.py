"""What the store in memory keeps to itself: it cannot roll back, so nothing may fail once it has saved."""

import pytest

from runlane.errors import RecordCorruptError
from runlane.store import MemoryStore
from runlane.store._memory import MemoryDriver
from runlane.testing._store_kit import Lane

pytestmark = pytest.mark.anyio


async def test_a_mutation_that_meets_a_damaged_record_leaves_everything_as_it_was() -> None:
    """An acquisition answers with the input it shows; where that cannot be read, the run stays queued."""
    async with MemoryStore() as store:
        lane = Lane(store)
        await lane.accept("a")
        before = await lane.view("a")
        assert isinstance(store.driver, MemoryDriver)
        messages = store.driver.conversations["c1"].messages
        messages["a-in"] = messages["a-in"]._replace(body=b"{}")
        with pytest.raises(RecordCorruptError, match="a-in"):
            await lane.try_acquire("a", revision=before.run.revision)
        assert (await lane.view("a")).run == before.run
        events = await store.driver.read(lambda rows: rows.entries("c1", 1, 9, 9))
        assert len(events) == 1
