"""Neutral messages as the body of a request to OpenAI's responses: pure, and the same bytes for the same input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from runlane.errors import InvalidValueError
from runlane.models._encoding import add_extra, dump, given
from runlane.models._messages import AnyModelMessage, ModelFunction, ModelMessage
from runlane.models._port import ModelOptions, ModelProviderContext
from runlane.models._rounds import settle_rounds
from runlane.models.openai_responses._input import InputWriter
from runlane.records import JsonObject

__all__ = ["OpenAIResponsesDialect", "encode_request"]

_OWN_FIELDS: Final = ("input", "stream", "model")
_REASONS: Final = re.compile(r"(^|[/.])(o\d|gpt-([5-9]|\d\d)|gpt-oss|codex)")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIResponsesDialect:
    """Where endpoints that speak OpenAI's responses differ in what they accept.

    Attributes:
        store: Whether the provider keeps the response. runlane keeps the history itself, so by default it does not;
            None leaves the field out.
        encrypted_reasoning: Whether to ask for reasoning in a form that can be given back without being stored. None
            asks models whose name says that they reason; others refuse the question.
    """

    store: bool | None = False
    encrypted_reasoning: bool | None = None


def encode_request(
    model: str,
    messages: Sequence[AnyModelMessage],
    context: ModelProviderContext,
    dialect: OpenAIResponsesDialect | None = None,
    /,
    *,
    stream: bool = True,
) -> bytes:
    """Write the body of a request.

    Args:
        model: The provider's name of the model.
        messages: What it is told.
        context: Its options, tools and wishes. `options.extra` goes into the body by the provider's own names; its
            `tools` (those the provider runs itself) are added behind the functions.
        dialect: What the endpoint accepts; OpenAI's own form by default.
        stream: Whether the answer comes as a stream or as one document.

    Raises:
        ModelProtocolError: A message holds something this protocol has no form for.
        InvalidValueError: An option has no form here, belongs to runlane, or is not JSON.
    """
    dialect = dialect or OpenAIResponsesDialect()
    conversation = [message for message in settle_rounds(messages) if message.role != "system"]
    body: JsonObject = {"model": model, "stream": stream, "input": InputWriter().write(conversation)}
    system = [message.text for message in messages if isinstance(message, ModelMessage) and message.role == "system"]
    if any(system):
        body["instructions"] = "\n\n".join(filter(None, system))
    if dialect.store is not None:
        body["store"] = dialect.store
    asks = dialect.encrypted_reasoning
    if _REASONS.search(model) is not None if asks is None else asks:
        body["include"] = ["reasoning.encrypted_content"]
    body |= _options(context.options) | _wishes(context)
    add_extra(body, _with_include(body, context), own=_OWN_FIELDS)
    return dump(body, "options.extra")


def _with_include(body: JsonObject, context: ModelProviderContext) -> dict[str, object]:
    """Return the extra fields, what they include joined with what is included already."""
    extra = dict(context.options.extra)
    wished, own = extra.get("include"), body.get("include")
    if isinstance(wished, list | tuple) and isinstance(own, list):
        extra["include"] = [*own, *(item for item in wished if item not in own)]
    return extra


def _options(options: ModelOptions) -> JsonObject:
    for name in ("seed", "stop"):
        if getattr(options, name) is not None:
            raise InvalidValueError("has no form in OpenAI's responses; leave it out", argument=f"options.{name}")
    return given(
        {
            "max_output_tokens": options.max_output_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
        }
    )


def _wishes(context: ModelProviderContext) -> JsonObject:
    wishes: JsonObject = {}
    if context.functions:
        tools: list[JsonValue] = [_tool(function) for function in context.functions]
        wishes["tools"] = tools
        if context.function_choice != "auto":
            wishes["tool_choice"] = context.function_choice
        if not context.allow_multiple_calls:
            wishes["parallel_tool_calls"] = False
    if context.response_format == "json_object":
        wishes["text"] = {"format": {"type": "json_object"}}
    return wishes


def _tool(function: ModelFunction) -> JsonObject:
    return {
        "type": "function",
        "name": function.name,
        "description": function.description,
        "parameters": dict(function.parameters),  # type: ignore[arg-type]  # `dump` refuses what is not JSON
        "strict": function.strict,
    }
