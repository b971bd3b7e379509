"""Neutral messages as the body of a request to Anthropic's messages: pure, and the same bytes for the same input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from runlane.errors import InvalidValueError
from runlane.models._encoding import add_extra, dump, given
from runlane.models._messages import AnyModelMessage, ModelFunction, ModelMessage
from runlane.models._port import ModelOptions, ModelProviderContext
from runlane.models._rounds import settle_rounds
from runlane.models.anthropic._content import ContentWriter, container_in
from runlane.models.anthropic._facts import PROVIDER_ID
from runlane.records import JsonObject

__all__ = ["DEFAULT_MAX_TOKENS", "encode_request"]

DEFAULT_MAX_TOKENS: Final = 8_192
"""Anthropic wants a limit in every request; this one every current model accepts."""

_OWN_FIELDS: Final = ("messages", "stream", "model")
_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}


def encode_request(
    model: str,
    messages: Sequence[AnyModelMessage],
    context: ModelProviderContext,
    /,
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    stream: bool = True,
    now: datetime | None = None,
) -> bytes:
    """Write the body of a request.

    Instructions go to the `system` field, wherever they stand. Messages of one role that follow each other become one,
    so all results of a round stand together behind its calls. The wish for a JSON object has no form here and is left
    to the instructions; a schema is given by name, `extra={"output_config": {"format": ...}}`.

    Args:
        model: The provider's name of the model.
        messages: What it is told.
        context: Its options, tools and wishes. `options.extra` goes into the body by the provider's own names; its
            `tools` (those the provider runs itself) are added behind the functions.
        max_tokens: The limit of the output where `options` gives none.
        stream: Whether the answer comes as a stream or as one document.
        now: What time it is (aware). To a request with tools of the provider's own the container in which they last ran
            is named, within the turn they ran in and as long as it is known to live; `options.extra["container"]`
            names another, or, without an `id`, says what the same one holds.

    Raises:
        ModelProtocolError: A message holds something this protocol has no form for.
        InvalidValueError: An option has no form here, belongs to runlane, or is not JSON.
    """
    body: JsonObject = {
        "model": model,
        "stream": stream,
        "max_tokens": max_tokens,
        "messages": _messages(messages),
    }
    system = [message for message in messages if isinstance(message, ModelMessage) and message.role == "system"]
    blocks: list[JsonValue] = [
        {**message.provider_options(PROVIDER_ID), "type": "text", "text": message.text}
        for message in system
        if message.text.strip()
    ]
    if blocks:
        body["system"] = blocks
    container = container_in(messages, now) if _runs_tools_itself(context.options.extra) else None
    if container is not None:
        body["container"] = container
    body |= _options(context.options)
    if context.functions:
        body["tools"] = [_tool(function) for function in context.functions]
        if context.function_choice != "auto" or not context.allow_multiple_calls:
            body["tool_choice"] = _choice(context)
    add_extra(body, _with_container(container, context.options.extra), own=_OWN_FIELDS)
    return dump(body, "options.extra")


def _runs_tools_itself(extra: Mapping[str, object]) -> bool:
    """Whether a request offers tools that the provider runs: only to those a container means something."""
    tools = extra.get("tools")
    return bool(tools) and isinstance(tools, list | tuple)


def _with_container(container: str | None, extra: Mapping[str, object]) -> Mapping[str, object]:
    """Return the extra fields; what they say of a container without naming it is said of the one at hand."""
    given = extra.get("container")
    if container is None or not isinstance(given, Mapping) or given.get("id") is not None:
        return extra
    return {**extra, "container": {**given, "id": container}}


def _messages(messages: Sequence[AnyModelMessage]) -> list[JsonValue]:
    """Write the conversation, the messages of one role joined."""
    messages = settle_rounds(messages)
    writer = ContentWriter(messages)
    turns: list[tuple[str, list[JsonValue]]] = []
    for place, message in enumerate(messages):
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        content = writer.write(message, last=place == len(messages) - 1)
        if not content:
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(content)
        else:
            turns.append((role, content))
    return [{"role": role, "content": content} for role, content in turns]


def _options(options: ModelOptions) -> JsonObject:
    if options.seed is not None:
        raise InvalidValueError("has no form in Anthropic's messages; leave it out", argument="options.seed")
    return given(
        {
            "max_tokens": options.max_output_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
            "stop_sequences": None if options.stop is None else list(options.stop),
        }
    )


def _choice(context: ModelProviderContext) -> JsonObject:
    choice: JsonObject = {"type": _CHOICES[context.function_choice]}
    if not context.allow_multiple_calls and context.function_choice != "none":
        choice["disable_parallel_tool_use"] = True
    return choice


def _tool(function: ModelFunction) -> JsonObject:
    tool: JsonObject = {
        "name": function.name,
        "description": function.description,
        "input_schema": dict(function.parameters),  # type: ignore[arg-type]  # `dump` refuses what is not JSON
    }
    if function.strict:
        tool["strict"] = True
    return tool
