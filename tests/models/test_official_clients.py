"""The official clients and runlane read the same response out of the same connection."""

import json
from typing import Any

import anthropic
import openai
import pytest

from runlane.models import ModelMessage, ModelProviderContext, UsageReport
from runlane.testing import ReplayServer, Reply
from tests.models.protocols import Stream, handed_streams, name_of, own_streams, reading

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

_HEADERS = {"Content-Type": "text/event-stream"}
# Of the repository's own streams those that no dialect bends.
_PLAIN = {"text-with-usage", "parallel-calls", "big-integer", "empty-first-choices"}
# What the clients give up on and runlane reads: an error behind the finish reason, half the arguments of a call, an end
# without usage, and text that is no text.
_BEYOND = {
    "openrouter-stream-error-0",
    "error-after-finish",
    "limit-within-a-call",
    "interleaved-calls",
    "odds-and-ends",
}
_READABLE = [one for one in [*own_streams(), *handed_streams()] if not one.fails]


def of(api: str) -> list[Stream]:
    """The streams of a protocol that its official client can read."""
    own = [one for one in _READABLE if one.protocol.api == api and one.path.stem not in _BEYOND]
    return [one for one in own if api != "openai-chat" or one.path.stem in _PLAIN or one in _HANDED]


_HANDED = [one for one in handed_streams() if not one.fails]


async def ours(stream: Stream, server: ReplayServer) -> tuple[dict[str, Any], Any]:
    """What runlane reads, and the neutral figures."""
    base_url = server.base_url if stream.protocol.api == "anthropic-messages" else f"{server.base_url}/v1"
    provider = stream.protocol.provider(base_url)
    async with provider.open_stream([ModelMessage.user("Hi")], ModelProviderContext()) as opened:
        parts = [part async for part in opened]
    await provider.aclose()
    usages = [part.usage for part in parts if isinstance(part, UsageReport)]
    return reading(parts), usages[-1] if usages else None


def served(stream: Stream) -> ReplayServer:
    """A server that gives a stream twice."""
    return ReplayServer([Reply(stream.body, headers=_HEADERS, chunk_size=200)] * 2)


@pytest.mark.parametrize("stream", of("openai-chat"), ids=name_of)
async def test_the_openai_client_agrees_on_a_chat_completion(stream: Stream) -> None:
    """Text, calls, finish reason, usage and identity are the same."""
    text, finish, usage, calls = "", None, None, dict[int, list[str]]()
    async with served(stream) as server:
        async with openai.AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0) as client:
            chunks = await client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": "Hi"}], stream=True
            )
            async for chunk in chunks:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    finish = choice.finish_reason or finish
                    for call in choice.delta.tool_calls or ():
                        known = calls.setdefault(call.index, ["", "", ""])
                        told = (
                            call.id,
                            call.function and call.function.name,
                            call.function and call.function.arguments,
                        )
                        for place, piece in enumerate(told):
                            known[place] += piece or ""
        mine, figures = await ours(stream, server)
    assert (mine["text"], mine["finish_reason"]) == (text, finish)
    assert [[call["id"], call["name"], call["arguments"]] for call in mine["tool_calls"]] == list(calls.values())
    if usage is not None:
        assert (figures.input_tokens, figures.output_tokens) == (usage.prompt_tokens, usage.completion_tokens)


@pytest.mark.parametrize("stream", of("openai-responses"), ids=name_of)
async def test_the_openai_client_agrees_on_a_response(stream: Stream) -> None:
    """Text, calls, status, usage and identity are the same."""
    text, calls, response = "", dict[str, str](), None
    async with served(stream) as server:
        async with openai.AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0) as client:
            events = await client.responses.create(model="any", input="Hi", stream=True)
            async for event in events:
                if event.type in ("response.completed", "response.incomplete"):
                    response = event.response
                if event.type == "response.output_item.done" and event.item.type == "function_call":
                    calls[event.item.call_id] = event.item.arguments
                if event.type in ("response.output_text.delta", "response.refusal.delta"):
                    text += event.delta
        mine, figures = await ours(stream, server)
    assert response is not None
    if text:
        assert mine["text"] == text
    told = {call["id"]: call["arguments"] for call in mine["tool_calls"]}
    assert {call_id: told[call_id] for call_id in calls} == calls
    assert (mine["finish_reason"], mine["model"], mine["response_id"]) == (response.status, response.model, response.id)
    if response.usage is not None:
        assert (figures.input_tokens, figures.output_tokens) == (
            response.usage.input_tokens,
            response.usage.output_tokens,
        )


@pytest.mark.parametrize("stream", of("anthropic-messages"), ids=name_of)
async def test_the_anthropic_client_agrees_on_a_message(stream: Stream) -> None:
    """Text, thinking, calls, stop reason, usage and identity are the same."""
    async with served(stream) as server:
        async with (
            anthropic.AsyncAnthropic(base_url=server.base_url, api_key="x", max_retries=0) as client,
            client.messages.stream(model="any", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]) as events,
        ):
            message = await events.get_final_message()
        mine, figures = await ours(stream, server)
    blocks = message.content
    thoughts = [block.thinking for block in blocks if block.type == "thinking"]
    calls = [(block.id, block.name, block.input) for block in blocks if block.type == "tool_use"]
    assert mine["text"] == "".join(block.text for block in blocks if block.type == "text")
    assert mine["reasoning"] == "".join(thoughts)
    assert [(call["id"], call["name"], json.loads(call["arguments"])) for call in mine["tool_calls"]] == calls
    assert (mine["finish_reason"], mine["model"], mine["response_id"]) == (
        message.stop_reason,
        message.model,
        message.id,
    )
    assert (figures.input_tokens, figures.output_tokens) == (message.usage.input_tokens, message.usage.output_tokens)
