"""A seed of messages that are there already."""

from pathlib import Path

import pytest

from runlane.store import Applied
from runlane.testing._store_kit import Lane, applied
from tests.tables.test_records import store_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("compacted", [False, True], ids=["active", "compacted"])
async def test_a_seed_whose_messages_are_all_there_only_leaves_its_receipt(
    kind: str, tmp_path: Path, *, compacted: bool
) -> None:
    """Under another key, active or compacted: no version, no message that comes back, and a receipt from then on."""
    async with store_of(kind, tmp_path) as store:
        lane = Lane(store)
        seeds = [lane.message("s1"), lane.message("s2")]
        applied(await store.seed_conversation(conversation_id="c1", seed_key="first", inputs=seeds))
        await lane.turn("a")
        if compacted:
            applied(await lane.try_compact("s1", "s2"))
        before = await store.load_snapshot("c1")
        for _ in range(2):
            outcome = await store.seed_conversation(conversation_id="c1", seed_key="second", inputs=seeds)
            assert isinstance(outcome, Applied)
            assert await store.load_snapshot("c1") == before
        other = [lane.message("s3")]
        outcome = await store.seed_conversation(conversation_id="c1", seed_key="second", inputs=other)
        assert isinstance(outcome, Applied)
        assert await store.load_snapshot("c1") == before
