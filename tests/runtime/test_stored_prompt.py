"""A prompt's stored history goes to the provider as it is stored: a request costs what is new in it."""

import json

import pytest

from runlane.history import ProjectedMessages
from runlane.models.openai_chat import OpenAIChat
from runlane.runtime import AgentRuntime
from runlane.store import MemoryStore
from runlane.testing import Answer, ReceivedRequest, ReplayServer, Reply
from runlane.tools import tool

pytestmark = pytest.mark.anyio

_SSE = {"Content-Type": "text/event-stream"}
_CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"place":"sea"}'}}


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    return f"{place}: nothing"


def _calls_then_answers(request: ReceivedRequest) -> Reply:
    """Call the tool in the first step of each turn."""
    body = request.json()
    assert isinstance(body, dict)
    if body["messages"][-1]["role"] == "tool":
        return Answer("ok").reply(request)
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [_CALL]}, "finish_reason": "tool_calls"}]}
    return Reply(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode(), headers=_SSE)


async def test_no_message_of_the_history_is_made_for_a_chat_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the first step of a turn nor for the one after its tools; what is sent is the whole conversation."""
    made: list[ProjectedMessages] = []
    inner = ProjectedMessages._all

    def counted(self: ProjectedMessages) -> object:
        made.append(self)
        return inner(self)

    monkeypatch.setattr(ProjectedMessages, "_all", counted)
    async with MemoryStore() as store, ReplayServer(_calls_then_answers) as server:
        model = OpenAIChat("any", base_url=server.base_url)
        async with AgentRuntime(store, model=model, tools=[look], instructions="Be brief.") as runtime:
            for text in ("One?", "Two?", "Three?"):
                assert (await runtime.submit("c1", text).result).message.text == "ok"
        await model.aclose()
        bodies = [request.json() for request in server.requests]
    assert made == []
    roles = [[message["role"] for message in body["messages"]] for body in bodies if isinstance(body, dict)]
    turn = ["user", "assistant", "tool", "assistant"]
    assert roles[-2:] == [["system", *turn, *turn, "user"], ["system", *turn, *turn, "user", "assistant", "tool"]]
