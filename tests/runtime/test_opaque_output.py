"""What a provider said without a neutral form is recorded, and goes back to that provider's protocol alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from runlane.history import ProjectionOptions, project_history_detailed
from runlane.models import ChatProvider
from runlane.models.anthropic import Anthropic
from runlane.models.google import Google
from runlane.models.openai_chat import OpenAIChat
from runlane.models.openai_responses import OpenAIResponses
from runlane.records import Message
from runlane.runtime import AgentRuntime
from runlane.store import MemoryStore, Store
from runlane.testing import Answer, ReceivedRequest, ReplayServer, Reply
from tests.fixture_files import REPOSITORY

pytestmark = pytest.mark.anyio

_SSE = {"Content-Type": "text/event-stream"}
_SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "parrots"}}
_PAGE = {
    "type": "web_search_result",
    "url": "https://birds.example/parrot",
    "title": "Parrots",
    "encrypted_content": "ZW5j",
    "page_age": None,
}
_CITED = {
    "type": "web_search_result_location",
    "cited_text": "Parrots talk",
    "url": "https://birds.example/parrot",
    "title": "Parrots",
    "encrypted_index": "aWR4",
}


def _anthropic_answer(body: Any) -> object:  # noqa: ANN401 - JSON
    return body["messages"][1]["content"]


def _responses_answer(body: Any) -> object:  # noqa: ANN401 - JSON
    return body["input"][1:-1]


def _google_answer(body: Any) -> object:  # noqa: ANN401 - JSON
    return body["contents"][1]["parts"]


CASES: list[Any] = [
    pytest.param(
        Anthropic,
        "anthropic/provider-run-search",
        _anthropic_answer,
        [
            _SEARCH,
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [_PAGE]},
            {"type": "text", "text": "They talk.", "citations": [_CITED]},
        ],
        id="anthropic",
    ),
    pytest.param(
        OpenAIResponses,
        "openai_responses/provider-run-tools",
        _responses_answer,
        [
            {
                "id": "ws_1",
                "type": "web_search_call",
                "status": "completed",
                "action": {"type": "search", "query": "parrots"},
            },
            {
                "id": "ci_1",
                "type": "code_interpreter_call",
                "status": "completed",
                "code": "1+1",
                "container_id": "cntr_1",
                "outputs": [{"type": "logs", "logs": "2"}],
            },
            {
                "id": "mcp_1",
                "type": "mcp_call",
                "server_label": "wiki",
                "name": "ask",
                "arguments": "{}",
                "output": "One.",
                "error": None,
            },
            {"role": "assistant", "content": "They talk."},
        ],
        id="openai-responses",
    ),
    pytest.param(
        Google,
        "google/code-the-provider-ran",
        _google_answer,
        [
            {"executableCode": {"language": "PYTHON", "code": "print(1+1)"}, "thoughtSignature": "c2ln"},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2\n"}},
            {"text": "Two."},
        ],
        id="google",
    ),
]


class _Server:
    """Answers the first request with a recorded stream and the others with a text."""

    def __init__(self, stream: str) -> None:
        self._first = (REPOSITORY / "tests" / "data" / f"{stream}.sse").read_bytes()
        self._count = 0

    def __call__(self, request: ReceivedRequest, /) -> Reply:
        self._count += 1
        return Reply(self._first, headers=_SSE) if self._count == 1 else Answer("ok").reply(request)


async def _turn(store: Store, model: ChatProvider, text: str) -> Message:
    async with AgentRuntime(store, model=model) as runtime:
        result = await runtime.submit("c1", text).result
    await model.aclose()
    return result.message


@pytest.mark.parametrize(("make", "stream", "answer_of", "expected"), CASES)
async def test_the_next_request_brings_back_what_the_provider_ran(
    make: Callable[..., ChatProvider], stream: str, answer_of: Callable[[Any], object], expected: object
) -> None:
    """After a restart, in the order and form the provider gave it."""
    async with MemoryStore() as store, ReplayServer(_Server(stream)) as server:
        await _turn(store, make("any", base_url=server.base_url), "Hi")
        await _turn(store, make("any", base_url=server.base_url), "And?")
        assert answer_of(json.loads(server.requests[1].body)) == expected


@pytest.mark.parametrize(("make", "stream", "answer_of", "expected"), CASES)
async def test_another_protocol_is_told_the_text_alone(
    make: Callable[..., ChatProvider], stream: str, answer_of: Callable[[Any], object], expected: object
) -> None:
    """And the decision on the record says that something of it is left out."""
    del answer_of, expected
    async with MemoryStore() as store, ReplayServer(_Server(stream)) as server:
        said = await _turn(store, make("any", base_url=server.base_url), "Hi")
        await _turn(store, OpenAIChat("any", base_url=server.base_url), "And?")
        messages = json.loads(server.requests[1].body)["messages"]
        snapshot = await store.load_snapshot("c1")
    assert snapshot is not None
    assert messages[1] == {"role": "assistant", "content": said.text}
    own, key = make("any", base_url=server.base_url).provider_id, "openai-chat"
    for provider, omits in ((own, False), (key, True), (None, True)):
        decision = project_history_detailed(snapshot.messages, ProjectionOptions(provider=provider)).decisions[1]
        assert (decision.action, "provider" in decision.omitted_parts) == ("projected", omits)
