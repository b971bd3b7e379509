"""Misuse and bad values."""

import pytest

from runlane.errors import InvalidValueError, UsageError
from runlane.runtime import LoopConfig
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel
from runlane.testing._store_kit import Lane
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio


async def test_misuse_is_a_type_error_and_a_bad_value_a_value_error() -> None:
    """A bad assignment, a reserved identity, missing evidence, a wrong absorption, a bad budget and a bad limit."""
    assert issubclass(UsageError, TypeError)
    assert issubclass(InvalidValueError, ValueError)
    async with MemoryStore() as store:
        lane = Lane(store)
        await lane.accept("a")
        await lane.refused(lane.try_accept("a", key="other"))
        await lane.start("a")
        await lane.refused(lane.try_end("a", absorb=["a"]))
        attempt = store.recover_run(
            conversation_id="c1", run_id="a", expected_revision=await lane.revision("a"), action="requeue"
        )
        await lane.refused(attempt)
    async with opened(ScriptedModel("Hello")) as scene:
        with pytest.raises(UsageError, match="stale_owner"):
            await scene.runtime.abandon(CONVERSATION, "r", expected_revision=0, stale_owner=False)
        with pytest.raises(InvalidValueError, match="grace"):
            await scene.runtime.close(grace=-1.0)
        with pytest.raises(InvalidValueError, match="page_size"):
            await scene.runtime.recover(page_size=0)
    with pytest.raises(InvalidValueError, match="max_steps"):
        LoopConfig(max_steps=0)
