"""What is written on the way to an answer, and what is told meanwhile."""

import anyio
import pytest

from runlane.delivery import AssistantDeltaEvent
from runlane.models import FinishReport, TextDelta
from runlane.records import ToolCallPart, ToolResultPart
from runlane.runtime import AgentRuntime
from runlane.store import MemoryStore
from runlane.testing import Hold, ScriptedModel
from tests.runtime.scenes import CONVERSATION, heard, opened
from tests.runtime.test_tools import add, called

pytestmark = pytest.mark.anyio


async def test_a_second_reader_sees_call_and_result_before_the_end() -> None:
    """Call, result and end of a step are written at once, long before a batch is full: another store object reads."""
    hold = Hold()
    model = ScriptedModel(
        called(("c1", "add", '{"left":1,"right":2}')), [hold, TextDelta("Three."), FinishReport("stop")]
    )
    async with MemoryStore() as store, AgentRuntime(store, model=model, tools=[add]) as runtime:
        ticket = runtime.submit(CONVERSATION, "1 + 2?")
        await hold.reached()
        draft = await store.load_draft(CONVERSATION, ticket.run_id)
        assert draft is not None
        assert [type(part) for part in draft.parts] == [ToolCallPart, ToolResultPart]
        hold.release()
        await ticket.result


async def test_deltas_are_told_one_by_one() -> None:
    """45 pieces of text are 45 events, each told before the next piece is there."""
    told: list[str] = []
    holds = [Hold() for _ in range(45)]
    steps = [step for number, hold in enumerate(holds) for step in (TextDelta(f"{number} "), hold)]
    async with opened(ScriptedModel([*steps, FinishReport("stop")])) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go")

        async def listen() -> None:
            told.extend(event.text_delta for event in await heard(ticket) if isinstance(event, AssistantDeltaEvent))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            async with scene.runtime.subscribe(CONVERSATION) as events:
                for number, hold in enumerate(holds):
                    await hold.reached()
                    event = await anext(events)
                    while not isinstance(event, AssistantDeltaEvent):
                        event = await anext(events)
                    assert event.text_delta == f"{number} "
                    hold.release()
    assert told == [f"{number} " for number in range(45)]
