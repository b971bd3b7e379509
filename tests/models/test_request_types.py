"""Requests built from projected histories are what the official SDKs' own request types describe."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from google.genai import types as google_types
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from runlane.history import CallEvidence, project_history_detailed
from runlane.models import (
    AnyModelMessage,
    FileItem,
    ModelAssistantToolMessage,
    ModelFunction,
    ModelImage,
    ModelMessage,
    ModelOptions,
    ModelProviderContext,
    ModelToolResultMessage,
    anthropic,
    google,
    openai_chat,
    openai_responses,
)
from runlane.records import (
    FilePart,
    JsonObject,
    Message,
    Part,
    ProviderEnvelope,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
)
from tests.history.records import ACTIVE, CALLS, OPTIONS, TEXTS, histories

_SIGNATURE = base64.b64encode(b"signed").decode()

# What each provider attaches to its reasoning and its calls, and what it gives that has no neutral form.
_REASONING: dict[str, list[JsonObject]] = {
    "anthropic": [{"signature": "c2ln"}, {"type": "redacted_thinking", "data": "b3A="}, {}],
    "openai-responses": [
        {"id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "ZW5j"},
        {"id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    ],
    "google": [{"thoughtSignature": _SIGNATURE, "thought": True}, {"thoughtSignature": _SIGNATURE}],
    "openai-chat": [{"field": "reasoning"}, {"field": "reasoning_content", "reasoning_details": [{"type": "x"}]}],
}
_CALLS: dict[str, list[JsonObject]] = {
    "anthropic": [{"caller": {"type": "direct"}}],
    "openai-responses": [{"namespace": "clock"}, {"type": "custom_tool_call"}],
    "google": [{"id": "a"}, {"thoughtSignature": _SIGNATURE}],
    "openai-chat": [{}],
}
_OPAQUE: dict[str, list[JsonObject]] = {
    "anthropic": [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "message", "container": {"id": "cntr_1", "expires_at": "2026-01-02T03:04:05Z"}},
        {
            "type": "text",
            "length": 2,
            "citations": [
                {
                    "type": "web_search_result_location",
                    "cited_text": "so",
                    "encrypted_index": "aWR4",
                    "title": None,
                    "url": "https://a.example",
                }
            ],
        },
    ],
    "openai-responses": [
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "compaction", "id": "cmp", "encrypted_content": "ZW5j"},
        {"type": "image_generation_call", "id": "ig", "status": "completed", "result": None},
        {"type": "message_piece", "piece": {}},
        {"type": "message", "phase": "commentary", "length": 2},
        {"type": "shell_call", "id": "sh", "call_id": "sc", "status": "completed", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "sc", "output": []},
    ],
    "google": [
        {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": _SIGNATURE},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"groundingMetadata": {}},
    ],
    "openai-chat": [{"type": "audio"}],
}
_PROVIDERS = sorted(_OPAQUE)

FILES: st.SearchStrategy[FileItem | ModelImage] = st.one_of(
    st.builds(ModelImage, media_type=st.just("image/png"), data=st.just(b"\x89")),
    st.builds(ModelImage, media_type=st.just("image/png"), url=st.just("https://a.example/b.png")),
    st.builds(FileItem, media_type=st.just("application/pdf"), data=st.just(b"%PDF"), filename=st.just("a.pdf")),
    st.builds(FileItem, media_type=st.just("text/plain"), text=TEXTS, filename=st.none() | st.just("n.txt")),
    st.builds(FileItem, media_type=st.just("application/pdf"), provider_file=st.just("file_1")),
)


_EFFECTS: st.SearchStrategy[dict[str, CallEvidence]] = st.dictionaries(
    CALLS, st.sampled_from(["interrupted", "not-started", "unknown"]), max_size=2
)


def _envelope(draw: st.DrawFn, kinds: dict[str, list[JsonObject]]) -> ProviderEnvelope:
    provider = draw(st.sampled_from(_PROVIDERS))
    return ProviderEnvelope(provider=provider, data=draw(st.sampled_from(kinds[provider])))


def _realistic(draw: st.DrawFn, part: Part) -> Part:
    """A part with what a real provider could have attached."""
    if isinstance(part, ProviderPart):
        return ProviderPart(envelope=_envelope(draw, _OPAQUE))
    if isinstance(part, ReasoningPart):
        return part.model_copy(update={"provider": _envelope(draw, _REASONING)})
    if isinstance(part, ToolCallPart):
        return part.model_copy(update={"provider": draw(st.none() | st.just(_envelope(draw, _CALLS)))})
    return part


@st.composite
def conversations(draw: st.DrawFn) -> list[AnyModelMessage]:
    """What a model is told of a history of any shape, files fetched, and the provider's own parts put back in."""
    history: list[Message] = [
        record.model_copy(update={"parts": tuple(_realistic(draw, part) for part in record.parts)})
        for record in draw(histories())
    ]
    files = {
        (record.id, place): draw(FILES)
        for record in history
        for place, part in enumerate(record.parts)
        if isinstance(part, FilePart)
    }
    projection = project_history_detailed(
        history,
        replace(draw(OPTIONS), provider=draw(st.none() | st.sampled_from(_PROVIDERS))),
        active_runs=draw(ACTIVE),
        effects=draw(_EFFECTS),
        files=draw(st.sampled_from([files, None])),
    )
    system = [ModelMessage.system(text) for text in projection.system]
    return [*system, *(_with_opaque(draw, message) for message in projection.messages)]


def _with_opaque(draw: st.DrawFn, message: AnyModelMessage) -> AnyModelMessage:
    """An answer with a part that has no neutral form at its head, sometimes; anything else as it is."""
    if isinstance(message, ModelToolResultMessage) or message.role != "assistant" or not draw(st.booleans()):
        return message
    opaque = ProviderPart(envelope=_envelope(draw, _OPAQUE))
    if isinstance(message, ModelAssistantToolMessage):
        return ModelAssistantToolMessage((opaque, *message.items))
    return ModelMessage("assistant", (opaque, *message.items))


CONTEXTS = st.builds(
    ModelProviderContext,
    functions=st.sampled_from(
        [
            (),
            (
                ModelFunction(
                    name="look", description="Looks.", parameters={"type": "object", "properties": {}}, strict=True
                ),
            ),
        ]
    ),
    function_choice=st.sampled_from(["auto", "required", "none"]),
    allow_multiple_calls=st.booleans(),
    response_format=st.sampled_from(["text", "json_object"]),
    options=st.builds(
        ModelOptions,
        max_output_tokens=st.none() | st.integers(1, 9),
        temperature=st.none() | st.just(0.5),
        top_p=st.none() | st.just(0.5),
    ),
)


def _told(value: Any) -> Any:  # noqa: ANN401 - any JSON, with lazy lists inside
    """A validated value with its lazy lists read, which is when they are validated."""
    if isinstance(value, dict):
        return {key: _told(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_told(item) for item in value]
    return value


def _check_typed(adapter: TypeAdapter[Any]) -> Callable[[dict[str, Any]], None]:
    def check(body: dict[str, Any]) -> None:
        # A typed dictionary leaves out what it does not know: nothing may be lost on the way through.
        assert _told(adapter.validate_python(body)) == body

    return check


def _check_google(body: dict[str, Any]) -> None:
    types: dict[str, Any] = {
        "contents": list[google_types.Content],
        "systemInstruction": google_types.Content,
        "tools": list[google_types.Tool],
        "toolConfig": google_types.ToolConfig,
        "generationConfig": google_types.GenerationConfig,
    }
    assert set(body) <= set(types)
    for name, value in body.items():
        TypeAdapter(types[name]).validate_json(json.dumps(value))  # an unknown field is refused


def _chat_body(messages: list[AnyModelMessage], context: ModelProviderContext) -> dict[str, Any]:
    """A chat request without the fields of dialects, which OpenAI's own types do not know."""
    dialect = openai_chat.OpenAIChatDialect(send_reasoning="never")
    body: dict[str, Any] = json.loads(openai_chat.encode_request("m", messages, context, dialect))
    return body


def _anthropic_body(messages: list[AnyModelMessage], context: ModelProviderContext) -> dict[str, Any]:
    """A request without the sampling options, which Anthropic's own types no longer know."""
    options = replace(context.options, temperature=None, top_p=None)
    body: dict[str, Any] = json.loads(anthropic.encode_request("m", messages, replace(context, options=options)))
    return body


_ENCODERS: dict[str, Callable[[list[AnyModelMessage], ModelProviderContext], dict[str, Any]]] = {
    "openai-chat": _chat_body,
    "openai-responses": lambda messages, context: json.loads(
        openai_responses.encode_request("gpt-5", messages, context)
    ),
    "anthropic": _anthropic_body,
    "google": lambda messages, context: json.loads(google.encode_request("gemini-3-pro", messages, context)),
}
_CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "openai-chat": _check_typed(TypeAdapter(CompletionCreateParamsStreaming)),
    "openai-responses": _check_typed(TypeAdapter(ResponseCreateParamsStreaming)),
    "anthropic": _check_typed(TypeAdapter(MessageCreateParamsStreaming)),
    "google": _check_google,
}


@given(messages=conversations(), context=CONTEXTS)
def test_a_request_is_what_the_official_types_describe(
    messages: list[AnyModelMessage], context: ModelProviderContext
) -> None:
    """For every shape a projection can have, the body fits the types of each provider's own client."""
    for protocol, check in _CHECKS.items():
        check(_ENCODERS[protocol](messages, context))


@given(messages=conversations())
def test_rounds_and_turns_are_in_the_order_that_providers_ask_for(messages: list[AnyModelMessage]) -> None:
    """Directly behind a round stand the results of all its calls, also where one waits for approval or came late.

    In Anthropic's form no two messages of one role follow each other, none is empty, and no text is blank.
    """
    turns = _ENCODERS["anthropic"](messages, ModelProviderContext())["messages"]
    assert all(one["role"] != other["role"] for one, other in pairwise(turns))
    assert all(turn["content"] for turn in turns)
    blocks = [block for turn in turns for block in turn["content"]]
    assert all(block["text"].strip() for block in blocks if block["type"] == "text")
    for turn, following in pairwise([*turns, {"content": []}]):
        called = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        answers = following["content"][: len(called)]
        assert sorted(block.get("tool_use_id") for block in answers) == sorted(called)
    turns = _ENCODERS["openai-chat"](messages, ModelProviderContext())["messages"]
    for place, turn in enumerate(turns):
        called = [call["id"] for call in turn.get("tool_calls", ())]
        answers = turns[place + 1 : place + 1 + len(called)]
        assert sorted(answer.get("tool_call_id") for answer in answers) == sorted(called)


def test_the_check_finds_what_does_not_fit() -> None:
    """A misspelt field, deep inside, is found in each protocol: the proof above can fail."""
    messages: list[AnyModelMessage] = [
        ModelMessage("user", (TextPart(text="Hi"), ModelImage(media_type="image/png", data=b"x")))
    ]
    for protocol, check in _CHECKS.items():
        body = _ENCODERS[protocol](messages, ModelProviderContext())
        check(body)
        turn = next(body[name] for name in ("messages", "input", "contents") if name in body)[0]
        (turn.get("content") or turn["parts"])[0]["textt"] = "Hi"
        with pytest.raises((AssertionError, ValueError)):
            check(body)
