"""What it costs to turn the bytes of a chat completion into neutral parts, beside those who do the same.

`openai` reads the same bytes into its typed chunks; `orjson` only parses the payloads, which is the floor: it gives no
parts, checks nothing and knows no dialect. Bodies are whole and reading is synchronous, so no network and no event loop
is in the numbers.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import openai
import orjson
import pytest
from openai.types.chat import ChatCompletionChunk

from runlane.models import (
    AnyModelMessage,
    FinishReport,
    ModelAssistantToolMessage,
    ModelMessage,
    ModelPart,
    ModelProviderContext,
    ModelToolResultMessage,
)
from runlane.models.openai_chat import OpenAIChatDecoder, encode_request
from runlane.records import ToolCallPart, ToolResultPart
from runlane.sse import SseDecoder

_CHUNKS = 200
_WORDS = (" the", " quick", ' "brown"', " fox", "\n\n", " jümps", " over", ".")


def _body(deltas: Sequence[dict[str, object]]) -> bytes:
    """Write a stream as OpenAI sends it."""
    head = {
        "id": "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz012",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "gpt-4o-2024-08-06",
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
    }
    usage = {"prompt_tokens": 9, "completion_tokens": _CHUNKS, "total_tokens": 9 + _CHUNKS}
    ends: list[str | None] = [None] * len(deltas)
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}], "usage": None}
        for delta, end in [*zip(deltas, ends, strict=True), ({}, "stop")]
    ]
    events = [json.dumps(chunk, separators=(",", ":")) for chunk in [*chunks, {**head, "choices": [], "usage": usage}]]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


def _call(fragment: str, **extra: str) -> dict[str, object]:
    return {"tool_calls": [{"index": 0, **extra, "function": {"arguments": fragment}}]}


_TEXT: list[dict[str, object]] = [{"content": _WORDS[n % 8]} for n in range(_CHUNKS)]
_REASONING: list[dict[str, object]] = [{"content": None, "reasoning_content": _WORDS[n % 8]} for n in range(_CHUNKS)]
_CALL: list[dict[str, object]] = [
    {"tool_calls": [{"index": 0, "function": {"arguments": _WORDS[n % 8]}}]} for n in range(_CHUNKS)
]
_CALL_HEAD: dict[str, object] = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]}
_BODIES = {"text": _body(_TEXT), "reasoning": _body(_REASONING), "call": _body([_CALL_HEAD, *_CALL])}


def _runlane(body: bytes) -> list[ModelPart]:
    decoder = OpenAIChatDecoder()
    parts: list[ModelPart] = []
    for event in SseDecoder().feed(body):
        parts += decoder.feed(event.data, event.event)
    return parts + decoder.close()


_CLIENT = openai.OpenAI(api_key="unused")


def _openai(body: bytes) -> list[ChatCompletionChunk]:
    request = httpx2.Request("POST", "http://localhost")
    response = httpx2.Response(200, content=body, request=request)
    return list(openai.Stream(cast_to=ChatCompletionChunk, response=response, client=_CLIENT))


def _orjson(body: bytes) -> list[object]:
    return [orjson.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]


_READERS: dict[str, Callable[[bytes], Sequence[object]]] = {"runlane": _runlane, "openai": _openai, "orjson": _orjson}


@pytest.mark.parametrize("shape", _BODIES)
@pytest.mark.parametrize("reader", _READERS)
def bench_decode(benchmark: Any, reader: str, shape: str) -> None:  # noqa: ANN401 - the fixture has no public type
    """200 chunks, whole, from bytes to what the reader gives."""
    benchmark.group = f"decode a chat completion: {shape}"
    read = benchmark(_READERS[reader], _BODIES[shape])
    assert len(read) >= _CHUNKS
    assert reader != "runlane" or isinstance(read[-1], FinishReport)


def _conversation(turns: int) -> list[AnyModelMessage]:
    messages: list[AnyModelMessage] = [ModelMessage.system("Be brief.")]
    for turn in range(turns):
        call = ToolCallPart(call_id=f"c{turn}", tool_name="find", arguments='{"q": "fox"}', input={"q": "fox"})
        result = ToolResultPart(call_id=f"c{turn}", tool_name="find", outcome="success", output={"found": turn})
        messages += [
            ModelMessage.user(f"Question {turn}?" * 10),
            ModelAssistantToolMessage((call,)),
            ModelToolResultMessage((result,)),
            ModelMessage.assistant("The quick brown fox jumps over the lazy dog. " * 5),
        ]
    return messages


@pytest.mark.benchmark(group="encode a request")
@pytest.mark.parametrize("turns", [5, 500])
def bench_encode(benchmark: Any, turns: int) -> None:  # noqa: ANN401 - the fixture has no public type
    """The body of a request with 20 and with 2,000 messages, nothing cached."""
    messages, context = _conversation(turns), ModelProviderContext()
    assert benchmark(encode_request, "parrot-1", messages, context)
