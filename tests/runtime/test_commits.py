"""How many commits a turn costs, and what is in them."""

import pytest

from runlane.models import FinishReport, FunctionCallDelta, ModelToolResultMessage, TextDelta
from runlane.runtime import AgentRuntime, LoopConfig, RunsConfig, RuntimeConfig
from runlane.store import MemoryStore, ReadEvents
from runlane.testing import Fault, FaultyStore, Hold, ScriptedCall, ScriptedModel, ScriptedStep
from tests.runtime.scenes import CONVERSATION, names

pytestmark = pytest.mark.anyio

_WORDS = 10


async def weather(city: str) -> str:
    """Say what the weather is like."""
    return f"rain in {city}"


def _reply(call: ScriptedCall) -> list[ScriptedStep]:
    if any(isinstance(message, ModelToolResultMessage) for message in call.messages):
        return [*(TextDelta("word ") for _ in range(_WORDS)), FinishReport("stop")]
    arguments = '{"city": "Paris"}'
    return [
        FunctionCallDelta(0, id="call_1", name="weather", arguments=arguments),
        FinishReport("tool-calls"),
    ]


async def _commits(model: ScriptedModel, config: RuntimeConfig | None = None) -> list[list[str]]:
    async with MemoryStore() as inner:
        store = FaultyStore(inner)
        async with AgentRuntime(store, model=model, tools=[weather], config=config) as runtime:
            result = await runtime.submit(CONVERSATION, "Hi").result
        assert result.reason == "success"
        return [names(call.commands) for call in store.applied]


async def test_a_text_turn_takes_two_commits() -> None:
    """Accepted and acquired with its draft and its first request; ended with the operation that answered it."""
    assert await _commits(ScriptedModel("Hello there")) == [
        ["AcceptInput", "AcquireRun", "CheckpointRunAssistant", "AppendEvent", "RecordRunOperation"],
        ["AppendEvent", "RecordRunOperation", "CommitRunTerminal"],
    ]


async def test_an_input_that_was_checked_first_takes_no_commit_more() -> None:
    """Its lane is looked at once a preflight let it in."""
    checked = RuntimeConfig(runs=RunsConfig(preflight=lambda _: None))
    assert await _commits(ScriptedModel("Hello there"), checked) == await _commits(ScriptedModel("Hello there"))


async def test_a_turn_with_one_tool_takes_four_commits() -> None:
    """The call and the intent to carry it out are one commit, its result and the next request another."""
    assert await _commits(ScriptedModel(_reply)) == [
        ["AcceptInput", "AcquireRun", "CheckpointRunAssistant", "AppendEvent", "RecordRunOperation"],
        ["AppendEvent", "AppendEvent", "CheckpointRunAssistant", "RecordRunOperation"],
        ["AppendEvent", "CheckpointRunAssistant", "RecordRunOperation"],
        ["AppendEvent", "RecordRunOperation", "CommitRunTerminal"],
    ]


async def test_a_turn_with_one_tool_and_a_checkpoint_takes_five_commits() -> None:
    """A second answer that is long enough for a checkpoint of its own stays within the bound."""
    commits = await _commits(ScriptedModel(_reply), RuntimeConfig(loop=LoopConfig(checkpoint_every_events=_WORDS)))
    assert len(commits) == 5


async def test_the_bound_holds_with_a_step_that_is_prepared() -> None:
    """`prepare_step` costs the commit in which its first request is recorded."""
    commits = await _commits(ScriptedModel(_reply), RuntimeConfig(loop=LoopConfig(prepare_step=lambda _: None)))
    assert len(commits) == 5


async def test_forty_five_deltas_take_two_checkpoints_on_their_way() -> None:
    """With a checkpoint every twenty events the draft is written twice before the end of the step."""
    model = ScriptedModel([*(TextDelta("x") for _ in range(45)), FinishReport("stop")])
    commits = await _commits(model)
    checkpoints = [commit for commit in commits if commit[0] == "CheckpointRunAssistant"]
    assert (len(commits), len(checkpoints)) == (4, 2)


async def test_writes_that_yield_never_get_in_each_others_way() -> None:
    """With a checkpoint at every event, parallel tools and a store that always yields, no command is ever refused."""
    calls: list[ScriptedStep] = [
        FunctionCallDelta(place, id=f"call_{place}", name="weather", arguments='{"city": "Paris"}')
        for place in range(3)
    ]
    model = ScriptedModel(
        [TextDelta("Let me see"), *calls, FinishReport("tool-calls")],
        [*(TextDelta("word ") for _ in range(_WORDS)), FinishReport("stop")],
    )
    open_door = Hold()
    open_door.release()
    async with MemoryStore() as inner:
        store = FaultyStore(inner, lambda _: Fault(hold=open_door))
        config = RuntimeConfig(loop=LoopConfig(checkpoint_every_events=1))
        async with AgentRuntime(store, model=model, tools=[weather], config=config) as runtime:
            result = await runtime.submit(CONVERSATION, "Hi").result
        sent = sum(len(call.commands) for call in store.applied)
        entries = (await inner.read_events(ReadEvents(conversation_id=CONVERSATION))).items
    assert (result.reason, len(model.calls)) == ("success", 2)
    assert sent == len(entries)
