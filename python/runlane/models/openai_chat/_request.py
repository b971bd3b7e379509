"""Neutral messages as the body of a chat-completions request: pure, and the same bytes for the same input.

Annotations, citations and opaque pieces of an answer stay here: no message of a request has a place for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import JsonValue

from runlane.models._encoding import add_extra, attached_text, data_url, dump, encode_data, given, output_text
from runlane.models._messages import (
    AnyModelMessage,
    FileItem,
    MessageChain,
    ModelAssistantToolMessage,
    ModelFunction,
    ModelImage,
    ModelMessage,
    ModelToolResultMessage,
    StoredMessages,
    model_protocol_error,
)
from runlane.models._port import ModelOptions, ModelProviderContext
from runlane.models._rounds import settle_rounds
from runlane.models.openai_chat._facts import PROVIDER_ID
from runlane.records import JsonObject, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

__all__ = ["OpenAIChatDialect", "encode_message", "encode_request"]

_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_OWN_FIELDS: Final = ("messages", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIChatDialect:
    """Where endpoints that speak chat completions differ in what they accept.

    Attributes:
        include_usage: Ask for usage at the end of the stream (`stream_options`); some old servers refuse the field.
        max_tokens_field: The name of the output limit; OpenAI's reasoning models refuse `max_tokens`, most other
            servers know nothing else.
        system_role: The role of instructions.
        send_reasoning: Whether reasoning a provider sent is given back to it. `tool-calls`, the default, does so beside
            the calls it led to, which DeepSeek and OpenRouter ask for; `never` leaves it out.
    """

    include_usage: bool = True
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    send_reasoning: Literal["tool-calls", "never"] = "tool-calls"


def encode_request(
    model: str,
    messages: Sequence[AnyModelMessage],
    context: ModelProviderContext,
    dialect: OpenAIChatDialect | None = None,
    /,
    *,
    stream: bool = True,
) -> bytes:
    """Write the body of a request.

    A stored history within the messages (what `History.project` gives, alone or in a `MessageChain`) is written
    straight from its records, and only what is new since the last request is written anew. Only a request that brings
    the late result of a stored call writes all of them anew, for that result belongs directly behind its call.

    Args:
        model: The provider's name of the model.
        messages: What it is told.
        context: Its options, tools and wishes.
        dialect: What the endpoint accepts; OpenAI's own form by default.
        stream: Whether the answer comes as a stream or as one document.

    Raises:
        ModelProtocolError: A message holds something this protocol has no form for.
        InvalidValueError: `options.extra` sets a field that belongs to runlane, or holds what is not JSON.
    """
    dialect = dialect or OpenAIChatDialect()
    pieces = MessageChain(messages).pieces
    if any(map(_brings_results, pieces)):
        pieces = (tuple(messages),)
    fragments = [_encode_piece(piece, dialect) for piece in pieces]
    return join_request(_head(model, dialect, stream=stream), fragments, _fields(context, dialect))


def _brings_results(piece: Sequence[AnyModelMessage]) -> bool:
    """Whether messages hold a result whose call stands in an earlier piece; a stored history never does."""
    if isinstance(piece, StoredMessages):
        return False
    known: set[str] = set()
    for message in piece:
        if isinstance(message, ModelAssistantToolMessage):
            known.update(call.call_id for call in message.tool_calls)
        elif isinstance(message, ModelToolResultMessage) and any(
            result.call_id not in known for result in message.results
        ):
            return True
    return False


def _encode_piece(piece: Sequence[AnyModelMessage], dialect: OpenAIChatDialect) -> bytes:
    """Write messages one behind the other; a stored history writes itself."""
    if isinstance(piece, StoredMessages):
        sends = dialect.send_reasoning == "tool-calls"
        return piece.openai_chat_fragments(_encode_file, send_reasoning=sends)
    return b",".join(filter(None, (encode_message(message, dialect) for message in settle_rounds(piece))))


def _encode_file(file: FileItem | ModelImage) -> bytes:
    if isinstance(file, ModelImage):
        return dump(_image(file.media_type, file.data, file.url, file.detail), "messages")
    return dump(_file(file), "messages")


def join_request(head: bytes, fragments: Iterable[bytes], fields: bytes) -> bytes:
    """Put a body together from its encoded pieces; an empty one stands for a message without a form here."""
    return b'%b,"messages":[%b]%b}' % (head, b",".join(filter(None, fragments)), fields)


def encode_message(message: AnyModelMessage, dialect: OpenAIChatDialect | None = None, /) -> bytes:
    """Write one neutral message: one JSON object, or several joined by commas for several tool results.

    Answers to approvals have no form in chat completions: a tool message of nothing else is written as nothing. So is
    an answer without text and calls, which endpoints refuse.

    Raises:
        ModelProtocolError: It holds something this protocol has no form for.
    """
    dialect = dialect or OpenAIChatDialect()
    return b",".join(dump(wire, "messages") for wire in _wire_messages(message, dialect))


def _wire_messages(message: AnyModelMessage, dialect: OpenAIChatDialect) -> list[JsonObject]:
    if isinstance(message, ModelToolResultMessage):
        return [_tool_result(result) for result in message.results]
    if isinstance(message, ModelAssistantToolMessage):
        return [_assistant_with_calls(message, dialect)] if message.text or message.tool_calls else []
    if message.role == "user":
        return [{"role": "user", "content": _user_content(message)}]
    if message.role == "system":
        own = message.provider_options(PROVIDER_ID)
        pieces: JsonValue = [{**own, "type": "text", "text": message.text}] if own else message.text
        return [{"role": dialect.system_role, "content": pieces}]
    return [{"role": "assistant", "content": message.text}] if message.text else []


def _assistant_with_calls(message: ModelAssistantToolMessage, dialect: OpenAIChatDialect) -> JsonObject:
    wire: JsonObject = {"role": "assistant", "content": message.text or None}
    if dialect.send_reasoning == "tool-calls":
        _add_reasoning(wire, [item for item in message.items if isinstance(item, ReasoningPart)])
    calls: list[JsonValue] = [_tool_call(call) for call in message.tool_calls]
    if calls:
        wire["tool_calls"] = calls
    return wire


def _add_reasoning(wire: JsonObject, blocks: list[ReasoningPart]) -> None:
    """Give a provider its own reasoning back, in the field it used; other providers' stays out."""
    details: list[JsonValue] = []
    for block in blocks:
        if block.provider is None or block.provider.provider != PROVIDER_ID:
            continue
        field, own = block.provider.data.get("field"), block.provider.data.get("reasoning_details")
        if isinstance(field, str) and field not in ("role", "content", "tool_calls"):
            wire[field] = f"{wire.get(field, '')}{block.text}"
        if isinstance(own, list):
            details.extend(own)
    if details:
        wire["reasoning_details"] = details


def _tool_call(call: ToolCallPart) -> JsonObject:
    arguments = call.arguments if call.arguments.strip() else "{}"
    wire: JsonObject = {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.tool_name, "arguments": arguments},
    }
    if call.provider is not None and call.provider.provider == PROVIDER_ID:
        for key, value in call.provider.data.items():
            wire.setdefault(key, value)
    return wire


def _tool_result(result: ToolResultPart) -> JsonObject:
    return {"role": "tool", "tool_call_id": result.call_id, "content": output_text(result)}


def _user_content(message: ModelMessage) -> JsonValue:
    texts = [item.text for item in message.items if isinstance(item, TextPart)]
    if len(texts) == len(message.items):
        return "\n".join(texts)
    pieces: list[JsonValue] = []
    for item in message.items:
        if isinstance(item, TextPart):
            pieces.append({"type": "text", "text": item.text})
        elif isinstance(item, ModelImage):
            pieces.append(_image(item.media_type, item.data, item.url, item.detail))
        elif isinstance(item, FileItem):
            pieces.append(_file(item))
    return pieces


def _image(media_type: str, data: bytes | None, url: str | None, detail: str | None = None) -> JsonObject:
    image: JsonObject = {"url": url if data is None else data_url(media_type, data)}
    if detail is not None:
        image["detail"] = detail
    return {"type": "image_url", "image_url": image}


def _file(item: FileItem) -> JsonObject:
    if item.text is not None:
        return {"type": "text", "text": attached_text(item)}
    if item.provider_file is not None:
        return {"type": "file", "file": {"file_id": item.provider_file}}
    if item.media_type.startswith("image/"):
        return _image(item.media_type, item.data, item.url)
    if item.data is None:
        model_protocol_error(f"{PROVIDER_ID} takes no file by URL ({item.media_type}); fetch it and pass its data")
    if item.media_type in _AUDIO:
        audio: JsonObject = {"data": encode_data(item.data), "format": _AUDIO[item.media_type]}
        return {"type": "input_audio", "input_audio": audio}
    file: JsonObject = {"file_data": data_url(item.media_type, item.data), "filename": item.filename or "file"}
    return {"type": "file", "file": file}


def _head(model: str, dialect: OpenAIChatDialect, *, stream: bool) -> bytes:
    head: JsonObject = {"model": model, "stream": stream}
    if stream and dialect.include_usage:
        head["stream_options"] = {"include_usage": True}
    return dump(head, "model")[:-1]


def _fields(context: ModelProviderContext, dialect: OpenAIChatDialect) -> bytes:
    """Write everything after the messages, with a comma in front unless there is nothing."""
    body = _options(context.options, dialect)
    if context.functions:
        body["tools"] = [_function(function) for function in context.functions]
        if context.function_choice != "auto":
            body["tool_choice"] = context.function_choice
        if not context.allow_multiple_calls:
            body["parallel_tool_calls"] = False
    if context.response_format == "json_object":
        body["response_format"] = {"type": "json_object"}
    add_extra(body, context.options.extra, own=_OWN_FIELDS)
    return b"," + dump(body, "options.extra")[1:-1] if body else b""


def _options(options: ModelOptions, dialect: OpenAIChatDialect) -> JsonObject:
    return given(
        {
            dialect.max_tokens_field: options.max_output_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
            "seed": options.seed,
            "stop": None if options.stop is None else list(options.stop),
        }
    )


def _function(function: ModelFunction) -> JsonObject:
    wire: JsonObject = {
        "name": function.name,
        "description": function.description,
        "parameters": dict(function.parameters),  # type: ignore[arg-type]  # `dump` refuses what is not JSON
    }
    if function.strict:
        wire["strict"] = True
    return {"type": "function", "function": wire}
