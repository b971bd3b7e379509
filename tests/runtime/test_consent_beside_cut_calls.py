"""Consent that comes after the run that asked was cut off: it is carried out, and nothing that was said is lost."""

from typing import Any, Literal

import anyio
import pytest

from runlane.models import AnyModelMessage, ModelAssistantToolMessage, ModelMessage, validate_messages
from runlane.records import ToolApprovalRequestPart, ToolApprovalResponsePart, ToolCallPart
from runlane.runtime import RunResult, RuntimeInput
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel
from runlane.tools import ToolDefinition, tool
from tests.runtime.scenes import CONVERSATION, Scene, opened
from tests.runtime.test_tool_approvals import told
from tests.runtime.test_tools import called

pytestmark = pytest.mark.anyio

_BOTH = called(("c1", "send", '{"to":"a"}'), ("c2", "stand", "{}"))


class Bench:
    """A tool that needs consent, one that stands until its run ends, and one that just answers."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.entered = anyio.Event()

    def tools(self) -> list[ToolDefinition[Any, Any, Any]]:
        """Return all three."""

        @tool(needs_approval=True)
        async def send(to: str) -> str:
            """Send a mail."""
            self.sent.append(to)
            return f"sent to {to}"

        @tool
        async def stand() -> None:
            """Stand."""
            self.entered.set()
            await anyio.sleep_forever()

        @tool
        async def look() -> str:
            """Look."""
            return "seen"

        return [send, stand, look]


async def cut_off(scene: Scene, bench: Bench, reason: Literal["user-interrupt", "timeout"]) -> tuple[RunResult, str]:
    """Have a run ask for consent and be cut off beside it; return its result and the approval's id."""
    ticket = scene.runtime.submit(CONVERSATION, "Write to a, and stand.")
    await bench.entered.wait()
    assert scene.runtime.stop(CONVERSATION, reason=reason)
    result = await ticket.result
    [request] = [part for part in result.message.parts if isinstance(part, ToolApprovalRequestPart)]
    assert (request.call_id, bench.sent) == ("c1", [])
    return result, request.approval_id


def answer(approval_id: str, *, approved: bool) -> RuntimeInput:
    """Return somebody's answer."""
    return RuntimeInput(role="tool", parts=(ToolApprovalResponsePart(approval_id=approval_id, approved=approved),))


def calls_of(messages: tuple[AnyModelMessage, ...]) -> list[list[str]]:
    """Return the ids of the calls of each message that makes some."""
    return [
        [part.call_id for part in message.items if isinstance(part, ToolCallPart)]
        for message in messages
        if isinstance(message, ModelAssistantToolMessage)
    ]


def late(messages: tuple[AnyModelMessage, ...]) -> list[str]:
    """Return the late results that are told as messages."""
    texts = (message.text for message in messages if isinstance(message, ModelMessage) and message.role == "user")
    return [said for said in texts if said.startswith("[late tool result]")]


@pytest.mark.parametrize(("reason", "status"), [("user-interrupt", "interrupted"), ("timeout", "failed")])
@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("is_cold", [False, True])
async def test_the_continuation_is_told_of_the_asking_answer_and_of_both_calls(
    *, reason: Literal["user-interrupt", "timeout"], status: str, approved: bool, is_cold: bool
) -> None:
    """The prompt holds the answer that asked, the end of the call that was cut, and what became of the other."""
    bench = Bench()
    model = ScriptedModel(_BOTH, called(("c3", "look", "{}")), "Done.", "Bye.")
    async with MemoryStore() as store:
        async with opened(model, store=store, tools=bench.tools()) as scene:
            asked, approval_id = await cut_off(scene, bench, reason)
            assert asked.message.status == status
            then: list[str | RuntimeInput] = [answer(approval_id, approved=approved), "Bye."]
            results = [] if is_cold else [await scene.runtime.submit(CONVERSATION, said).result for said in then]
        for said in then if is_cold else []:
            async with opened(model, store=store, tools=bench.tools()) as scene:
                results.append(await scene.runtime.submit(CONVERSATION, said).result)
    assert [(result.reason, result.text) for result in results] == [("success", "Done."), ("success", "Bye.")]
    assert bench.sent == (["a"] if approved else [])
    for call in model.calls[1:]:
        validate_messages(call.messages)
        assert calls_of(call.messages)[0] == ["c1", "c2"]
        assert ("c2", "interrupted") in [(call_id, outcome) for call_id, outcome, _ in told(call.messages)]
        [came] = late(call.messages)
        assert '"call_id":"c1"' in came
        assert ("sent to a" in came) == approved
    assert calls_of(model.calls[3].messages) == [["c1", "c2"], ["c3"]]
    assert model.calls[3].messages[: len(model.calls[2].messages)] == model.calls[2].messages


async def test_what_is_said_while_a_call_waits_is_remembered_with_its_tools() -> None:
    """A call that waits keeps no later answer out of the history, also if that repeats an id; consent still works."""
    bench = Bench()
    first = called(("c1", "send", '{"to":"a"}'), ("c2", "look", "{}"))
    second = called(("c2", "look", "{}"))
    model = ScriptedModel(first, second, "Seen.", "Again.", second, "Sent.", "Bye.")
    async with opened(model, tools=bench.tools()) as scene:
        asked = await scene.runtime.submit(CONVERSATION, "Write to a, and look.").result
        await scene.runtime.submit(CONVERSATION, "Look.").result
        await scene.runtime.submit(CONVERSATION, "And?").result
        approval_id = asked.approvals[0].approval_id
        result = await scene.runtime.submit(CONVERSATION, answer(approval_id, approved=True)).result
        await scene.runtime.submit(CONVERSATION, "Bye.").result
    assert (result.text, bench.sent) == ("Sent.", ["a"])
    for call in model.calls:
        validate_messages(call.messages)
    assert calls_of(model.calls[3].messages) == [["c1", "c2"], ["c2"]]
    assert calls_of(model.calls[6].messages) == [["c1", "c2"], ["c2"], ["c2"]]
    assert len(late(model.calls[6].messages)) == 1
    for earlier, later in [(2, 3), (3, 4), (5, 6)]:
        before = model.calls[earlier].messages
        assert model.calls[later].messages[: len(before)] == before


async def test_an_agreed_call_whose_run_died_is_closed_before_the_next_answer_is_carried_out() -> None:
    """Two calls wait; the run that carries one out is cut off; the run of the other is told what is known of it."""
    sent: list[str] = []
    entered = anyio.Event()

    @tool(needs_approval=True)
    async def send(to: str) -> str:
        """Send a mail; to b it takes for ever."""
        sent.append(to)
        if to == "b":
            entered.set()
            await anyio.sleep_forever()
        return f"sent to {to}"

    script = called(("c1", "send", '{"to":"a"}'), ("c2", "send", '{"to":"b"}'))
    model = ScriptedModel(script, "Done.")
    async with opened(model, tools=[send]) as scene:
        asked = await scene.runtime.submit(CONVERSATION, "Write to both.").result
        one, two = asked.approvals
        ticket = scene.runtime.submit(CONVERSATION, answer(two.approval_id, approved=True))
        await entered.wait()
        scene.runtime.stop(CONVERSATION)
        assert (await ticket.result).reason == "interrupted"
        result = await scene.runtime.submit(CONVERSATION, answer(one.approval_id, approved=True)).result
    assert (result.text, sent) == ("Done.", ["b", "a"])
    prompt = model.calls[1].messages
    validate_messages(prompt)
    known = {call_id: output for call_id, _, output in told(prompt)}
    assert known["c2"] == {"message": "unknown: may have run"}
