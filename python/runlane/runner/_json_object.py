"""Capabilities as one JSON object, for models without functions of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final, NoReturn, cast

from pydantic import JsonValue

from runlane.contracts import Id
from runlane.models import FunctionCallDelta, ModelPart, TextDelta, model_protocol_error, repair_value
from runlane.runner._capabilities import RegisteredModelTool, ToolProposal
from runlane.runner._transports import InteractionMode, PreparedModelInteraction

__all__ = ["json_object_interaction"]

_CHOICE: Final = frozenset({"tool", "arguments"})
_SESSION: Final = frozenset({"text", "calls"})

_ASK_SELECTION: Final = (
    "Choose exactly one of the capabilities below. Answer with one JSON object and nothing else, without a code fence: "
    '{"tool": "<id>", "arguments": {...}}, where the arguments follow the schema of the capability.'
)
_ASK_SESSION: Final = (
    "You may call any of the capabilities below, any number of times. Answer with one JSON object and nothing else, "
    'without a code fence: {"text": "<what you say>", "calls": [{"tool": "<id>", "arguments": {...}}]}, where the '
    "arguments of each call follow the schema of its capability. The list may be empty."
)


class _JsonObject:
    id: Final = "core:json-object"
    supports_strict_arguments: Final = False

    def prepare(
        self, tools: Sequence[RegisteredModelTool[Any]], /, *, stage: Id, strict: bool, mode: InteractionMode
    ) -> PreparedModelInteraction:
        del stage, strict  # neither changes what is said
        listed = [
            json.dumps({"id": tool.id, "description": tool.description, "schema": tool.json_schema}, ensure_ascii=False)
            for tool in tools
        ]
        ask = _ASK_SELECTION if mode == "selection" else _ASK_SESSION
        return PreparedModelInteraction(
            instruction="\n".join([ask, "", "Capabilities:", *listed]),
            function_choice="none",
            response_format="json_object",
            create_collector=lambda: _JsonCollector(mode),
        )


class _JsonCollector:
    def __init__(self, mode: InteractionMode) -> None:
        self._mode = mode
        self._pieces: list[str] = []
        self.text = ""

    def add(self, part: ModelPart, /) -> None:
        if isinstance(part, TextDelta):
            self._pieces.append(part.text)
        elif isinstance(part, FunctionCallDelta):
            model_protocol_error("a native call where a JSON object was asked for", code="model.unexpected_call")

    async def finish(self) -> tuple[ToolProposal, ...]:
        written = "".join(self._pieces).strip()
        if not written:
            if self._mode == "selection":
                model_protocol_error("the model said nothing", code="model.no_call")
            return ()
        answer = _parse(written)
        return self._session(answer) if self._mode == "session" else (_selection(answer),)

    def _session(self, answer: object) -> tuple[ToolProposal, ...]:
        said = _object(answer, _SESSION)
        text, calls = said["text"], said["calls"]
        if not isinstance(text, str) or not isinstance(calls, list):
            model_protocol_error("the answer needs a text under 'text' and a list under 'calls'")
        self.text = text
        return tuple(_proposal(call) for call in calls)


def _selection(answer: object) -> ToolProposal:
    if isinstance(answer, list) and len(answer) > 1 and all(_is_choice(item) for item in answer):
        model_protocol_error(f"{len(answer)} calls where one was asked for", code="model.multiple_calls")
    return _proposal(answer)


def _is_choice(item: object) -> bool:
    return isinstance(item, dict) and item.keys() == _CHOICE


def _proposal(value: object) -> ToolProposal:
    choice = _object(value, _CHOICE)
    tool_id, arguments = choice["tool"], choice["arguments"]
    if not isinstance(tool_id, str):
        model_protocol_error("the answer needs a text under 'tool'")
    # A text stands for JSON that is still to be parsed; this one was, and is no object.
    return ToolProposal(
        tool_id=Id(tool_id), arguments=json.dumps(arguments) if isinstance(arguments, str) else arguments
    )


def _object(value: object, keys: frozenset[str]) -> dict[str, JsonValue]:
    if not isinstance(value, dict) or value.keys() != keys:
        names = " and ".join(repr(key) for key in sorted(keys, reverse=True))
        model_protocol_error(f"the answer must be one JSON object with exactly {names}")
    return cast("dict[str, JsonValue]", value)


def _parse(written: str) -> object:
    try:
        value: JsonValue = json.loads(
            written, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant, parse_float=_finite
        )
        return repair_value(value)
    except (ValueError, RecursionError) as error:
        model_protocol_error("the answer is not one JSON value", cause=error)


def _without_duplicates(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    members = dict(pairs)
    if len(members) != len(pairs):
        message = "a key stands twice in one object"
        raise ValueError(message)
    return members


def _refuse_constant(constant: str) -> NoReturn:
    message = f"{constant} is not JSON"
    raise ValueError(message)


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        _refuse_constant(text)
    return value


json_object_interaction: Final = _JsonObject()
"""Capabilities are told in an instruction, and the whole answer is one JSON object that names the choice."""
