"""A text turn from its input to its answer."""

import pytest

from runlane.delivery import AssistantDeltaEvent, Gap, RuntimeEvent
from runlane.models import ModelMessage
from runlane.runtime import AgentRuntime, RunTicket
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel

pytestmark = pytest.mark.anyio


async def _events(ticket: RunTicket) -> list[RuntimeEvent]:
    return [event async for event in ticket.events() if not isinstance(event, Gap)]


async def test_an_input_is_streamed_and_answered() -> None:
    """A submitted text is answered by the model, streamed word by word, and ends in one terminal event."""
    model = ScriptedModel("Hello there, friend!")
    async with MemoryStore() as store, AgentRuntime(store, model=model) as runtime:
        ticket = runtime.submit("c", "Hi")
        events = await _events(ticket)
        result = await ticket.result
    assert [event.type for event in events] == [
        "admission",
        "run-state",
        "run-state",
        "run-operation",
        *["assistant-delta"] * 3,
        "run-operation",
        "terminal",
    ]
    streamed = "".join(event.text_delta for event in events if isinstance(event, AssistantDeltaEvent))
    assert (result.reason, result.text, streamed) == ("success", "Hello there, friend!", "Hello there, friend!")


async def test_the_next_turn_sees_the_one_before() -> None:
    """The model is told the instructions, what was said before, and the new input."""
    model = ScriptedModel("One.", "Two.")
    async with (
        MemoryStore() as store,
        AgentRuntime(store, model=model, instructions="Be brief.") as runtime,
    ):
        await runtime.submit("c", "First?").result
        await runtime.submit("c", "Second?").result
    assert model.calls[1].messages == (
        ModelMessage.system("Be brief."),
        ModelMessage.user("First?"),
        ModelMessage.assistant("One."),
        ModelMessage.user("Second?"),
    )


async def test_a_conversation_goes_on_in_a_new_runtime() -> None:
    """A runtime that never saw a conversation reads its history from the store."""
    async with MemoryStore() as store:
        async with AgentRuntime(store, model=ScriptedModel("One.")) as runtime:
            await runtime.submit("c", "First?").result
        model = ScriptedModel("Two.")
        async with AgentRuntime(store, model=model) as runtime:
            await runtime.submit("c", "Second?").result
    assert [message.role for message in model.calls[0].messages] == ["user", "assistant", "user"]
