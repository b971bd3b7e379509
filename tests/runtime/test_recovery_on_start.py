"""Recovery on start does not give up while it is the store that fails."""

import anyio
import pytest

from runlane.errors import StoreUnavailableError
from runlane.runtime import RuntimeConfig
from runlane.store import AcquireRun, CommitRunTerminal, MemoryStore
from runlane.testing import FakeClock, Fault, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, held_after, opened

pytestmark = pytest.mark.anyio

_ITEMS = 50
_GONE = StoreUnavailableError("connections are refused")


async def _leave(store: MemoryStore, conversations: list[str]) -> None:
    for conversation_id in conversations:
        hold, model = held_after("half ")
        async with opened(model, store=store) as scene:
            scene.runtime.submit(conversation_id, "first")
            await hold.reached()
            scene.store.kill()


async def test_a_store_that_is_away_for_two_seconds_strands_nothing() -> None:
    """Fifty runs left behind, and a store that refuses for two seconds from the first takeover on: all fifty end."""
    conversations = [f"c{number}" for number in range(_ITEMS)]
    clock, away = FakeClock(), list[float]()
    held: set[str] = set()
    twice: list[str] = []

    def plan(call: StoreCall) -> Fault | None:
        if call.method != "apply":
            return None
        if not away:
            away.append(clock.monotonic() + 2.0)
        if clock.monotonic() < away[0]:
            return Fault(error=_GONE)
        kinds = {type(command) for command in call.commands}
        if AcquireRun in kinds and call.conversation_id in held:
            twice.append(str(call.conversation_id))
        if AcquireRun in kinds:
            held.add(str(call.conversation_id))
        return None

    async with MemoryStore() as store:
        await _leave(store, conversations)
        model = ScriptedModel("ok")
        async with opened(model, store=store, plan=plan, clock=clock, recover_on_start=True):
            for _ in range(40):
                await clock.advance(0.5)
            left = [name for name in conversations if await store.list_active_runs(name)]
        reasons = {run.terminal_reason for name in conversations for run in (await store.load_snapshot(name)).runs}
    assert (left, twice) == ([], [])
    assert reasons == {"success"}
    assert len(model.calls) == _ITEMS


async def test_a_recovered_run_that_could_not_be_ended_is_taken_up_again() -> None:
    """Its terminal commit never lands while the store is away: the run is recovered once more, and ends."""
    clock, failures = FakeClock(), 8

    def plan(call: StoreCall) -> Fault | None:
        nonlocal failures
        if failures and call.commands and isinstance(call.commands[-1], CommitRunTerminal):
            failures -= 1
            return Fault(error=_GONE)
        return None

    async with MemoryStore() as store:
        await _leave(store, [CONVERSATION])
        async with opened(ScriptedModel("ok"), store=store, plan=plan, clock=clock, recover_on_start=True):
            for _ in range(20):
                await clock.advance(0.5)
            snapshot = await store.load_snapshot(CONVERSATION)
    assert [run.terminal_reason for run in snapshot.runs] == ["success"]


async def test_a_close_ends_the_trying() -> None:
    """With the store away for good the runtime still closes, and nothing is written."""
    clock = FakeClock()

    def plan(call: StoreCall) -> Fault | None:
        return Fault(error=_GONE) if call.method == "apply" else None

    async with MemoryStore() as store:
        await _leave(store, [CONVERSATION])
        async with opened(
            ScriptedModel("ok"), store=store, plan=plan, clock=clock, recover_on_start=True, config=RuntimeConfig()
        ) as scene:
            for _ in range(5):
                await clock.advance(0.5)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(scene.runtime.close)
                for _ in range(30):
                    await clock.advance(0.5)
        [run] = await store.list_active_runs(CONVERSATION)
    assert run.state == "running"
