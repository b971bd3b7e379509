"""Every policy on a SQLite file, and what a later process finds there."""

from pathlib import Path

import pytest

from runlane.models import FinishReport
from runlane.runtime import AgentRuntime, RunsConfig, RuntimeConfig
from runlane.store.sqlite import SqliteStore
from runlane.testing import Hold, ScriptedModel
from tests.runtime.injecting import tool_call
from tests.runtime.scenes import CONVERSATION, asked, held_after

pytestmark = pytest.mark.anyio

_SHARING = RuntimeConfig(runs=RunsConfig(coalesce_pending=True))


async def test_an_absorbed_input_is_answered_for_every_later_process(tmp_path: Path) -> None:
    """Its key gives the absorbing run's answer after a restart, and both inputs stand before it in the history."""
    hold = Hold()
    model = ScriptedModel([*tool_call(), hold, FinishReport("tool-calls")], "both answered")
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store, AgentRuntime(store, model=model) as runtime:
        first = runtime.submit(CONVERSATION, "first", idempotency_key="1")
        await hold.reached()
        second = runtime.submit(CONVERSATION, "second", idempotency_key="2", policy="inject")
        await second.accepted
        hold.release()
        answered = [await first.result, await second.result]
    later = ScriptedModel("later")
    async with SqliteStore(path) as store, AgentRuntime(store, model=later, recover_on_start=True) as runtime:
        again = await runtime.submit(CONVERSATION, "second", idempotency_key="2").result
        await runtime.submit(CONVERSATION, "third").result
    assert answered[0].message == answered[1].message == again.message
    said = asked(later)
    assert (said[:2], said[-1]) == (["first", "second"], "third")


async def test_a_shared_successor_that_supersedes_is_read_back_as_it_was(tmp_path: Path) -> None:
    """Three inputs under one run, the run before them superseded; a later process shows the inputs, not the answer."""
    hold, model = held_after("half ")
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store, AgentRuntime(store, model=model, config=_SHARING) as runtime:
        first = runtime.submit(CONVERSATION, "first")
        await hold.reached()
        others = [runtime.submit(CONVERSATION, text) for text in ("second", "third")]
        others.append(runtime.submit(CONVERSATION, "fourth", policy="supersede"))
        results = [await ticket.result for ticket in others]
        assert (await first.result).reason == "superseded"
    assert {len(result.run.input_message_ids) for result in results} == {3}
    later = ScriptedModel("later")
    async with SqliteStore(path) as store, AgentRuntime(store, model=later) as runtime:
        await runtime.submit(CONVERSATION, "fifth").result
    assert asked(later) == ["first", "second", "third", "fourth", "next answer", "fifth"]
