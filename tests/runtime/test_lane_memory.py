"""What a runtime keeps of a conversation, and for how long."""

import gc
import weakref
from collections.abc import Iterator

import anyio
import pytest
from typing_extensions import override

from runlane.models import FinishReport, FunctionCallDelta
from runlane.runtime import AgentRuntime, HistoryConfig, ManagedLoopDriver, RuntimeConfig, Turn, TurnOutcome
from runlane.store import MemoryStore, ReadEvents
from runlane.testing import ScriptedModel, ScriptedStep
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing is freed but by the last reference to it."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
async def test_a_turn_that_has_ended_is_freed_at_once() -> None:
    """Nothing of it leads back to itself, so that no garbage collector has to look for it: with calls and without."""
    turns: list[weakref.ref[Turn]] = []

    class Watched(ManagedLoopDriver):
        @override
        async def drive(self, turn: Turn, /) -> TurnOutcome:
            turns.append(weakref.ref(turn))
            return await super().drive(turn)

    async def weather(city: str) -> str:
        """Say what the weather is like."""
        return f"rain in {city}"

    call: list[ScriptedStep] = [FunctionCallDelta(0, id="1", name="weather", arguments='{"city": "Paris"}')]
    call.append(FinishReport("tool-calls"))
    config = RuntimeConfig(driver=Watched())
    async with MemoryStore() as store:
        model = ScriptedModel(call, "ok", "ok")
        async with AgentRuntime(store, model=model, tools=[weather], config=config) as runtime:
            for text in ("first", "second"):
                await runtime.submit(CONVERSATION, text).result
            await anyio.wait_all_tasks_blocked()
            assert [turn() for turn in turns] == [None, None]


def _remembering(**options: float) -> RuntimeConfig:
    return RuntimeConfig(history=HistoryConfig(**options))  # type: ignore[arg-type]


async def test_a_lane_without_work_sleeps_after_a_while() -> None:
    """After `history.idle` seconds the records are forgotten; the next turn reads them again, and answers as well."""
    model = ScriptedModel("ok")
    async with opened(model, config=_remembering(idle=60.0)) as scene:
        await scene.runtime.submit(CONVERSATION, "first").result
        await scene.clock.advance(59.0)
        assert len(scene.runtime._lanes) == 1
        await scene.clock.advance(2.0)
        assert len(scene.runtime._lanes) == 0
        await scene.runtime.submit(CONVERSATION, "second").result
        assert scene.store.count("read_messages") == 1
    assert len(model.calls[1].messages) == 3


async def test_only_so_many_lanes_rest() -> None:
    """Of many idle conversations the most recent ones are kept."""
    async with opened(ScriptedModel("ok"), config=_remembering(max_idle_lanes=2)) as scene:
        for number in range(5):
            await scene.runtime.submit(f"c{number}", "Hi").result
        await anyio.wait_all_tasks_blocked()
        assert len(scene.runtime._lanes) == 2
        await scene.runtime.submit("c4", "Hi").result
        assert scene.store.count("read_messages") == 0
        await scene.runtime.submit("c0", "Hi").result
        assert scene.store.count("read_messages") == 1


async def test_resting_lanes_are_bounded_by_their_bytes() -> None:
    """A lane larger than the allowance is not kept."""
    async with opened(ScriptedModel("ok"), config=_remembering(max_idle_bytes=1000)) as scene:
        await scene.runtime.submit(CONVERSATION, "x" * 2000).result
        await anyio.wait_all_tasks_blocked()
        assert len(scene.runtime._lanes) == 0


async def test_a_cold_conversation_is_read_from_its_end_up_to_the_limit() -> None:
    """A long conversation costs a bounded read, and the prompt begins with a user's message."""
    async with MemoryStore() as store:
        async with opened(ScriptedModel("ok"), store=store) as scene:
            for number in range(40):
                await scene.runtime.submit(CONVERSATION, f"q{number}").result
        model = ScriptedModel("ok")
        async with opened(model, store=store, config=_remembering(max_messages=10)) as scene:
            await scene.runtime.submit(CONVERSATION, "new").result
            assert scene.store.count("read_messages") == 1
    told = model.calls[0].messages
    assert told[0].role == "user"
    assert told[-1].text == "new"  # type: ignore[union-attr]


async def test_a_conversation_at_hand_is_read_anew_once_it_has_grown_too_large() -> None:
    """Past twice the limit the records are dropped and the newest read again."""
    model = ScriptedModel("ok")
    async with opened(model, config=_remembering(max_messages=4)) as scene:
        for number in range(12):
            await scene.runtime.submit(CONVERSATION, f"q{number}").result
        assert scene.store.count("read_messages") > 0
    assert all(len(call.messages) <= 10 for call in model.calls)


async def test_the_cost_of_a_turn_does_not_follow_the_conversation() -> None:
    """In a conversation of many turns a turn makes the same store calls, and writes as much, as the first one."""
    async with opened(ScriptedModel("ok")) as scene:
        sizes: list[int] = []
        for number in range(30):
            before = len(scene.store.calls)
            await scene.runtime.submit(CONVERSATION, f"q{number}").result
            sizes.append(len(scene.store.calls) - before)
        entries = (await scene.store.inner.read_events(ReadEvents(conversation_id=CONVERSATION, limit=1000))).items
    assert set(sizes) == {2}
    assert len(entries) == 30 * 8
