"""Neutral messages and wishes in the form of pydantic-ai."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from runlane.models._encoding import attached_text
from runlane.models._messages import (
    AnyModelMessage,
    FileItem,
    ModelImage,
    ModelToolResultMessage,
    model_protocol_error,
)
from runlane.models._port import ModelProviderContext
from runlane.models._rounds import settle_rounds
from runlane.models.pydantic_ai._package import messages as theirs
from runlane.models.pydantic_ai._package import models, settings, tools
from runlane.records import JsonObject, ProviderPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

__all__ = ["PROVIDER_ID", "RESPONSE_PART", "request_messages", "request_parameters", "request_settings"]

PROVIDER_ID: Final = "pydantic-ai"
RESPONSE_PART: Final[TypeAdapter[theirs.ModelResponsePart]] = TypeAdapter(theirs.ModelResponsePart)

_OUTCOMES: Final[dict[str, Literal["success", "failed", "interrupted"]]] = {
    "success": "success",
    "error": "failed",
    "interrupted": "interrupted",
}


def request_messages(messages: Sequence[AnyModelMessage]) -> list[theirs.ModelMessage]:
    """Return a conversation: one request for all that stands between two answers.

    Raises:
        ModelProtocolError: A message holds something pydantic-ai has no form for.
    """
    written: list[theirs.ModelMessage] = []
    asked: list[theirs.ModelRequestPart] = []
    for message in settle_rounds(messages):
        if isinstance(message, ModelToolResultMessage):
            asked += [_result(result) for result in message.results]
        elif message.role == "system":
            asked += [theirs.SystemPromptPart(item.text) for item in message.items if isinstance(item, TextPart)]
        elif message.role == "user":
            asked.append(theirs.UserPromptPart(_user_content(message.items)))
        else:
            if asked:
                written.append(theirs.ModelRequest(parts=asked))
                asked = []
            parts = [part for item in message.items if (part := _response_part(item)) is not None]
            if parts:
                written.append(theirs.ModelResponse(parts=parts))
    if asked:
        written.append(theirs.ModelRequest(parts=asked))
    return written


def request_settings(context: ModelProviderContext) -> settings.ModelSettings:
    """Return the options by pydantic-ai's names; `options.extra` holds further ones."""
    options = context.options
    given: dict[str, object] = {
        "max_tokens": options.max_output_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "seed": options.seed,
        "stop_sequences": None if options.stop is None else list(options.stop),
    }
    if context.functions:
        given["parallel_tool_calls"] = None if context.allow_multiple_calls else False
        given["tool_choice"] = None if context.function_choice == "auto" else context.function_choice
    chosen = {name: value for name, value in given.items() if value is not None} | dict(options.extra)
    result: settings.ModelSettings = {}
    result.update(chosen)  # type: ignore[typeddict-item]  # each model knows further settings of its own
    return result


def request_parameters(context: ModelProviderContext) -> models.ModelRequestParameters:
    """Return the functions a model may call."""
    return models.ModelRequestParameters(
        function_tools=[
            tools.ToolDefinition(
                name=function.name,
                description=function.description,
                parameters_json_schema=dict(function.parameters),
                strict=function.strict or None,
            )
            for function in context.functions
        ]
    )


def _result(result: ToolResultPart) -> theirs.ToolReturnPart:
    output = result.output if result.has_output or result.outcome == "success" else result.outcome
    return theirs.ToolReturnPart(
        tool_name=result.tool_name,
        content=output,
        tool_call_id=result.call_id,
        outcome=_OUTCOMES[result.outcome],
    )


def _response_part(item: object) -> theirs.ModelResponsePart | None:
    if isinstance(item, TextPart):
        return theirs.TextPart(item.text) if item.text else None
    if isinstance(item, ToolCallPart):
        arguments = item.arguments if item.arguments.strip() else "{}"
        call = theirs.ToolCallPart(item.tool_name, arguments, item.call_id)
        return replace(call, **_attached(item))
    if isinstance(item, ReasoningPart):
        attached = _attached(item)
        return replace(theirs.ThinkingPart(item.text), **attached) if attached else None
    if isinstance(item, ProviderPart) and item.envelope.provider == PROVIDER_ID:
        try:
            return RESPONSE_PART.validate_python(item.envelope.data)
        except ValidationError:  # of another version of pydantic-ai
            return None
    return None


def _attached(part: ToolCallPart | ReasoningPart) -> dict[str, Any]:
    """Return what pydantic-ai attached to reasoning or a call."""
    if part.provider is None or part.provider.provider != PROVIDER_ID:
        return {}
    data: JsonObject = part.provider.data
    names = ("id", "provider_name", "provider_details") + (("signature",) if isinstance(part, ReasoningPart) else ())
    return {name: data[name] for name in names if data.get(name) is not None}


def _user_content(items: Sequence[object]) -> str | list[theirs.UserContent]:
    content = [piece for item in items if (piece := _user_piece(item)) is not None]
    if len(content) == 1 and isinstance(content[0], str):
        return content[0]
    return content


def _user_piece(item: object) -> theirs.UserContent | None:
    if isinstance(item, TextPart):
        return item.text
    if isinstance(item, ModelImage):
        return _binary(item.media_type, item.data, item.url)
    if isinstance(item, FileItem):
        if item.text is not None:
            return attached_text(item)
        if item.provider_file is not None:
            model_protocol_error("a provider's own file cannot be sent through pydantic-ai without naming its provider")
        return _binary(item.media_type, item.data, item.url)
    return None


def _binary(media_type: str, data: bytes | None, url: str | None) -> theirs.UserContent:
    if data is not None:
        return theirs.BinaryContent(data, media_type=media_type)
    kind = media_type.partition("/")[0]
    if kind == "image":
        return theirs.ImageUrl(url or "", media_type=media_type)
    if kind == "audio":
        return theirs.AudioUrl(url or "", media_type=media_type)
    if kind == "video":
        return theirs.VideoUrl(url or "", media_type=media_type)
    return theirs.DocumentUrl(url or "", media_type=media_type)
