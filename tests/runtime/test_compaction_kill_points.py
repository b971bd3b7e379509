"""A turn that compacts, stopped before and after each of its commits, then recovered by a new runtime."""

from contextlib import suppress
from pathlib import Path

import pytest

from runlane.errors import RunlaneError
from runlane.runtime import AgentRuntime, HistoryConfig, RuntimeConfig
from runlane.store import DriverStore
from runlane.testing import Fault, FaultPlan, FaultyStore, ScriptedModel, StoreCall
from tests.runtime.compacting import LONG, STORES, Talk, compaction, opened

pytestmark = pytest.mark.anyio

# Accepted; acquired; compaction started; the range replaced; compaction closed; the request; the end.
_COMMITS = 7


def _config() -> RuntimeConfig:
    compact = compaction(
        lambda request: f"{len(request.messages)} messages", due=lambda probe: probe.records > 6, max_attempts=2
    )
    return RuntimeConfig(history=HistoryConfig(compact=compact))


def _dying_at(number: int, when: str) -> FaultPlan:
    def plan(call: StoreCall) -> Fault | None:
        return Fault(when=when, kills=True) if call.apply_number == number else None  # type: ignore[arg-type]

    return plan


async def _ask(store: DriverStore, plan: FaultPlan | None, *, recover: bool = False) -> FaultyStore:
    """Submit the question under a fixed key, and wait for what comes of it."""
    faulty = FaultyStore(store, plan)
    model = ScriptedModel("answer")
    async with AgentRuntime(faulty, model=model, config=_config(), recover_on_start=recover) as runtime:
        ticket = runtime.submit("c", "question", idempotency_key="question")
        with suppress(RunlaneError):
            await ticket.result
    return faulty


async def _talked(store: DriverStore) -> Talk:
    talk = Talk(store, "c")
    await talk.say_turn("a", "b", "d")
    return talk


async def test_the_turn_has_that_many_commits(tmp_path: Path) -> None:
    """So that every one of them is stopped at below."""
    async with opened("memory", tmp_path) as store:
        await _talked(store)
        assert len((await _ask(store, None)).applied) == _COMMITS


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, _COMMITS + 1))
async def test_whatever_commit_it_dies_at_nothing_is_lost_and_one_summary_is_there(
    kind: str, number: int, when: str, tmp_path: Path
) -> None:
    """Old turns are in the active history or behind its one summary; the question is stored and answered once."""
    async with opened(kind, tmp_path) as store:
        talk = await _talked(store)
        await _ask(store, _dying_at(number, when))
        await _ask(store, None, recover=True)
        everything, active = await talk.everything(), (await store.load_snapshot("c")).messages
        assert await store.list_active_runs("c") == ()
    said = [(message.role, message.text) for message in everything if message.role != "summary"]
    assert said == [*[("user", "hello"), ("assistant", LONG)] * 3, ("user", "question"), ("assistant", "answer")]
    summaries = [message for message in everything if message.role == "summary"]
    assert [message.text for message in summaries] == ["4 messages"]
    assert [message.id for message in active] == [
        summaries[0].id,
        "d-in",
        "d-out",
        *[message.id for message in everything[-2:]],
    ]
