"""From the bytes of a provider's stream to neutral parts, beside the typed streams of the official clients.

The streams have the shape of recorded ones: a few events around the answer, and an event for every few characters of
it. They are read whole and synchronously, so no network and no event loop is in the numbers. The official clients give
their own typed events, which is less: nothing is put together, and dialects are unknown to them.
"""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from benches._harness import Peer, Row, Work, at_least, at_most, bench, optional
from runlane.history import History
from runlane.models import AnyModelMessage, FinishReport, ModelMessage, ModelPart, ModelProviderContext
from runlane.models.anthropic import AnthropicDecoder
from runlane.models.anthropic import encode_request as encode_anthropic
from runlane.models.google import GoogleDecoder
from runlane.models.openai_chat import OpenAIChatDecoder
from runlane.models.openai_chat import encode_request as encode_chat
from runlane.models.openai_responses import OpenAIResponsesDecoder
from runlane.records import Message, TextPart
from runlane.sse import SseDecoder

WORDS = (" the", " quick", ' "brown"', " fox", "\n\n", " jümps", " over", ".")
PIECES = 60
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def body(events: Iterable[dict[str, Any]], *, named: bool = False) -> bytes:
    """Write events as a body."""
    texts = []
    for event in events:
        name = f"event: {event['type']}\n" if named else ""
        texts.append(f"{name}data: {json.dumps(event, ensure_ascii=False, separators=(',', ':'))}\n\n")
    return "".join(texts).encode()


def chat() -> bytes:
    """A chat completion."""
    head = {
        "id": "chatcmpl-C2OICn1CbpqxbWqJvEQJadV86H8q7",
        "object": "chat.completion.chunk",
        "created": 1_754_686_072,
        "model": "gpt-4o-2024-08-06",
        "service_tier": "default",
        "system_fingerprint": "fp_07871e2ad8",
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice], "usage": None, "obfuscation": "bEcAVepxT2N"}

    usage = {"prompt_tokens": 9, "completion_tokens": PIECES, "total_tokens": 9 + PIECES}
    texts = [chunk({"content": WORDS[n % 8]}) for n in range(PIECES)]
    first = chunk({"role": "assistant", "content": "", "refusal": None})
    return body([first, *texts, chunk({}, "stop"), {**head, "choices": [], "usage": usage}]) + b"data: [DONE]\n\n"


def responses() -> bytes:
    """A response of OpenAI's."""
    response: dict[str, Any] = {
        "id": "resp_0850765c843cca5300699cc47d93c0819089a181f5feeff8eb",
        "object": "response",
        "created_at": 1_771_881_597,
        "status": "in_progress",
        "model": "gpt-4o-2024-08-06",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }
    item: dict[str, Any] = {
        "id": "msg_0850765c843cca",
        "type": "message",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }
    text = "".join(WORDS[n % 8] for n in range(PIECES))
    piece = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    whole = {**item, "status": "completed", "content": [piece]}
    usage = {"input_tokens": 9, "output_tokens": PIECES, "total_tokens": 9 + PIECES}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.in_progress", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **place, "part": {**piece, "text": ""}},
        *(
            {"type": "response.output_text.delta", **place, "delta": WORDS[n % 8], "logprobs": [], "obfuscation": "x"}
            for n in range(PIECES)
        ),
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": piece},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [whole], "usage": usage},
        },
    ]
    return body([{**event, "sequence_number": number} for number, event in enumerate(events)], named=True)


def anthropic() -> bytes:
    """A message of Anthropic's, with a thought, text and a call."""
    usage = {"input_tokens": 25, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 10, "output_tokens": 1}
    message = {"id": "msg_01Xf6SmUVY1mDrSwFc5RsY3n", "type": "message", "role": "assistant", "model": "claude-sonnet"}
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                *({"type": "thinking_delta", "thinking": WORDS[n % 8]} for n in range(PIECES // 3)),
                {"type": "signature_delta", "signature": "c2ln" * 50},
            ],
        ),
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": WORDS[n % 8]} for n in range(PIECES // 3)]),
        (
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
            [{"type": "input_json_delta", "partial_json": "[1]"[n % 3]} for n in range(PIECES // 3)],
        ),
    ]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}}
    ]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": end, "usage": {**usage, "output_tokens": 60}},
        {"type": "message_stop"},
    ]
    return body(events, named=True)


def google() -> bytes:
    """A response of Google's."""
    events = [
        {
            "candidates": [{"content": {"parts": [{"text": WORDS[n % 8]}], "role": "model"}, "index": 0}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": n, "totalTokenCount": 9 + n},
            "modelVersion": "gemini-2.5-pro",
            "responseId": "6hkqaYC5BbGEz7IPwb3ggA8",
        }
        for n in range(PIECES)
    ]
    events[-1]["candidates"][0]["finishReason"] = "STOP"  # type: ignore[index]  # it is a list
    return body(events)


Maker = Callable[[], Any]


def decode(decoder: Maker, stream: bytes) -> Work:
    """Decode with runlane, and see that the answer is whole."""

    def work() -> None:
        reader = decoder()
        parts: list[ModelPart] = []
        for event in SseDecoder().feed(stream):
            parts += reader.feed(event.data, event.event)
        parts += reader.close()
        assert isinstance(parts[-1], FinishReport)

    return work


def official(package: str, event: str, stream: bytes) -> Work | None:
    """Decode with the typed stream of an official client."""
    module, httpx2 = optional(package), optional("httpx2")
    if module is None or httpx2 is None:
        return None
    place, _, name = event.rpartition(".")
    cast = getattr(optional(f"{package}.{place}"), name)
    client = (module.OpenAI if package == "openai" else module.Anthropic)(api_key="unused")
    request = httpx2.Request("POST", "http://localhost")

    def work() -> None:
        response = httpx2.Response(200, content=stream, request=request)
        for _ in module.Stream(cast_to=cast, response=response, client=client):
            pass

    return work


def parse_only(stream: bytes) -> Work:
    """Parse the payloads with the parser of pydantic: the floor, which gives no parts and checks nothing."""
    from pydantic_core import from_json  # noqa: PLC0415 - of this peer only

    lines = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: {")]
    return lambda: [from_json(line) for line in lines]


@bench
def bench_chat() -> Row:
    """A chat completion of 60 pieces, from bytes to neutral parts."""
    stream = chat()
    peer = official("openai", "types.chat.ChatCompletionChunk", stream)
    return Row(ours=decode(OpenAIChatDecoder, stream), peers=[Peer("openai", peer, at_least(30))])


@bench
def bench_responses() -> Row:
    """A response of OpenAI's of 60 pieces, from bytes to neutral parts."""
    stream = responses()
    peer = official("openai", "types.responses.ResponseStreamEvent", stream)
    return Row(ours=decode(OpenAIResponsesDecoder, stream), peers=[Peer("openai", peer, at_least(30))])


@bench
def bench_anthropic() -> Row:
    """A message of Anthropic's of 60 pieces, from bytes to neutral parts."""
    stream = anthropic()
    peer = official("anthropic", "types.RawMessageStreamEvent", stream)
    return Row(ours=decode(AnthropicDecoder, stream), peers=[Peer("anthropic", peer, at_least(6))])


@bench
def bench_google() -> Row:
    """A response of Google's of 60 pieces, from bytes to neutral parts."""
    stream = google()
    return Row(
        ours=decode(GoogleDecoder, stream), peers=[Peer("parsing the JSON alone", parse_only(stream), at_most(8))]
    )


@bench
def bench_anthropic_request() -> Row:
    """The body of a request to Anthropic with 2,000 messages, nothing cached."""
    messages: list[AnyModelMessage] = []
    for turn in range(1000):
        messages += [ModelMessage.user(f"Question {turn}?" * 10), ModelMessage.assistant("The quick brown fox. " * 10)]
    context = ModelProviderContext()
    plain = [
        {"role": message.role, "content": message.text} for message in messages if isinstance(message, ModelMessage)
    ]
    return Row(
        ours=lambda: encode_anthropic("m", messages, context),
        peers=[Peer("json.dumps of the texts", lambda: json.dumps(plain).encode(), at_most(12))],
    )


def record(number: int) -> bytes:
    """A stored record: questions and answers by turns."""
    role, status = (("user", "committed"), ("assistant", "completed"))[number % 2]
    message = Message(
        id=f"m{number}",
        conversation_id="c",
        role=role,  # type: ignore[arg-type]  # one of its words
        status=status,  # type: ignore[arg-type]  # one of its words
        parts=(TextPart(text="The quick brown fox jumps over the lazy dog. " * 5),),
        created_at=NOW,
        updated_at=NOW,
    )
    return message.model_dump_json(exclude_none=True).encode()


@bench
def bench_next_request() -> Row:
    """The next chat request of a conversation of 2,000 messages, one of them new."""
    history, context, count = History(map(record, range(2000))), ModelProviderContext(), iter(range(2000, 10**9))
    encode_chat("m", history.project().messages, context)
    messages = list(history.project().messages)

    def work() -> None:
        history.append(record(next(count)))
        encode_chat("m", history.project().messages, context)

    return Row(
        ours=work, peers=[Peer("writing every message", lambda: encode_chat("m", messages, context), at_least(5))]
    )
