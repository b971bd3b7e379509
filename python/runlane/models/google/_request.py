"""Neutral messages as the body of a request to Google's generateContent: pure, the same bytes for the same input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from runlane.errors import InvalidValueError
from runlane.models._encoding import add_extra, dump, given
from runlane.models._messages import AnyModelMessage, ModelFunction, ModelMessage
from runlane.models._port import ModelOptions, ModelProviderContext
from runlane.models._rounds import settle_rounds
from runlane.models.google._contents import ContentsWriter
from runlane.records import JsonObject

__all__ = ["encode_request"]

_OWN_FIELDS: Final = ("contents",)
_JOINED_FIELDS: Final = ("generationConfig", "toolConfig")
_MODES: Final = {"required": "ANY", "none": "NONE"}


def encode_request(model: str, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /) -> bytes:
    """Write the body of a request; the model, and whether the answer is streamed, stand in the address.

    The wish for one call at a time has no form here and is left to the model.

    Args:
        model: The provider's name of the model.
        messages: What it is told.
        context: Its options, tools and wishes. `options.extra` goes into the body by the provider's own names; its
            `tools` (those the provider runs itself) are added behind the functions, its `generationConfig` and
            `toolConfig` are joined with runlane's.

    Raises:
        ModelProtocolError: A message holds something this protocol has no form for.
        InvalidValueError: An option belongs to runlane, or is not JSON.
    """
    conversation = [message for message in settle_rounds(messages) if message.role != "system"]
    body: JsonObject = {"contents": ContentsWriter(conversation, model=model).write()}
    texts = [message.text for message in messages if isinstance(message, ModelMessage) and message.role == "system"]
    system: list[JsonValue] = [{"text": text} for text in texts if text]
    if system:
        body["systemInstruction"] = {"parts": system}
    config = _config(context)
    if config:
        body["generationConfig"] = config
    if context.functions:
        functions: list[JsonValue] = [_function(function) for function in context.functions]
        body["tools"] = [{"functionDeclarations": functions}]
        if context.function_choice != "auto":
            mode = _MODES[context.function_choice]
            body["toolConfig"] = {"functionCallingConfig": {"mode": mode}}
    add_extra(body, _joined(body, context.options.extra), own=_OWN_FIELDS)
    return dump(body, "options.extra")


def _joined(body: JsonObject, extra: Mapping[str, object]) -> dict[str, object]:
    """Return the extra fields, two of them joined with what the body has under their names."""
    fields = dict(extra)
    for name in _JOINED_FIELDS:
        if name in fields:
            further, own = fields[name], body.get(name)
            if not isinstance(further, Mapping):
                raise InvalidValueError("must be an object", argument=f"options.extra.{name}")
            fields[name] = {**(own if isinstance(own, dict) else {}), **further}
    return fields


def _config(context: ModelProviderContext) -> JsonObject:
    options: ModelOptions = context.options
    return given(
        {
            "maxOutputTokens": options.max_output_tokens,
            "temperature": options.temperature,
            "topP": options.top_p,
            "seed": options.seed,
            "stopSequences": None if options.stop is None else list(options.stop),
            "responseMimeType": "application/json" if context.response_format == "json_object" else None,
        }
    )


def _function(function: ModelFunction) -> JsonObject:
    return {
        "name": function.name,
        "description": function.description,
        "parametersJsonSchema": dict(function.parameters),  # type: ignore[arg-type]  # `dump` refuses what is not JSON
    }
