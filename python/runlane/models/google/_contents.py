"""The conversation in the form of Google's contents.

What the provider wants to see again goes back: its signatures, code it ran and what that gave, its own tools. Grounding
and citations stay here: a content has no place for them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from runlane.models._encoding import attached_text, encode_data
from runlane.models._messages import (
    AnyModelMessage,
    FileItem,
    ModelImage,
    ModelToolResultMessage,
)
from runlane.models.google._facts import PROVIDER_ID
from runlane.records import JsonObject, ProviderPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

__all__ = ["ContentsWriter"]

_SIGNATURE: Final = "thoughtSignature"
_UNSIGNED: Final = "skip_thought_signature_validator"
"""What Google's documentation gives for a call that another model made, which has no signature."""

_SIGNING: Final = re.compile(r"gemini-([3-9]|\d\d)")
"""The models that refuse the first call of a round without a signature."""

_PART_KINDS: Final = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse", "fileData"})


class ContentsWriter:
    """Writes the messages of one request.

    All results of a round stand in one content, in the order of its calls: calls without an id of the provider's are
    matched by their order.

    Args:
        messages: User, assistant and tool messages in order.
        model: The provider's name of the model.
    """

    def __init__(self, messages: Sequence[AnyModelMessage], *, model: str) -> None:
        self._messages = messages
        self._wants_signatures = _SIGNING.search(model) is not None
        self._ids: dict[str, str] = {}
        self._order: dict[str, int] = {}

    def write(self) -> list[JsonValue]:
        """Write the contents.

        Raises:
            ModelProtocolError: A message holds something this protocol has no form for.
        """
        contents: list[JsonValue] = []
        results: list[ToolResultPart] = []
        for message in self._messages:
            if isinstance(message, ModelToolResultMessage):
                results += message.results
                continue
            contents += self._close_round(results)
            results = []
            role, write = ("model", self._answer) if message.role == "assistant" else ("user", _user_parts)
            parts = write(message.items)
            if parts:
                contents.append({"role": role, "parts": parts})
        return contents + self._close_round(results)

    def _close_round(self, results: list[ToolResultPart]) -> list[JsonValue]:
        ordered = sorted(results, key=lambda result: self._order.get(result.call_id, 0))
        parts: list[JsonValue] = [self._result(result) for result in ordered]
        return [{"role": "user", "parts": parts}] if parts else []

    def _answer(self, items: Sequence[object]) -> list[JsonValue]:
        parts: list[JsonValue] = []
        calls = 0
        for item in items:
            part = self._call(item, is_first=calls == 0) if isinstance(item, ToolCallPart) else _answer_part(item)
            calls += isinstance(item, ToolCallPart)
            if part is not None:
                parts.append(part)
        return parts

    def _call(self, call: ToolCallPart, *, is_first: bool) -> JsonObject:
        own = call.provider.data if call.provider is not None and call.provider.provider == PROVIDER_ID else None
        self._order[call.call_id] = len(self._order)
        # The protocol has no form for arguments that are no object: the error result says what was wrong.
        value = call.input if call.has_input and isinstance(call.input, dict) else {}
        written: JsonObject = {"name": call.tool_name, "args": value}
        if own is not None and own.get("id") == call.call_id:
            self._ids[call.call_id] = call.call_id
            written["id"] = call.call_id
        part: JsonObject = {"functionCall": written}
        if own is not None and own.get(_SIGNATURE):
            part[_SIGNATURE] = own[_SIGNATURE]
        elif is_first and self._wants_signatures:
            part[_SIGNATURE] = _UNSIGNED
        return part

    def _result(self, result: ToolResultPart) -> JsonObject:
        key = "output" if result.outcome == "success" else "error"
        output = result.output if result.has_output or result.outcome == "success" else result.outcome
        written: JsonObject = {"name": result.tool_name, "response": {key: output}}
        if result.call_id in self._ids:
            written["id"] = result.call_id
        return {"functionResponse": written}


def _answer_part(item: object) -> JsonObject | None:
    if isinstance(item, TextPart):
        return {"text": item.text} if item.text else None
    if isinstance(item, ReasoningPart):
        return _signed(item)
    if isinstance(item, ProviderPart) and item.envelope.provider == PROVIDER_ID:
        data = item.envelope.data
        return data if not _PART_KINDS.isdisjoint(data) else None
    return None


def _signed(item: ReasoningPart) -> JsonObject | None:
    """Give the provider its own signature back, with the thought it belongs to; thoughts without one stay here."""
    if item.provider is None or item.provider.provider != PROVIDER_ID or not item.provider.data.get(_SIGNATURE):
        return None
    part: JsonObject = {"text": item.text, _SIGNATURE: item.provider.data[_SIGNATURE]}
    if item.provider.data.get("thought") is True:
        part["thought"] = True
    return part


def _user_parts(items: Sequence[object]) -> list[JsonValue]:
    return [part for item in items if (part := _user_part(item)) is not None]


def _user_part(item: object) -> JsonObject | None:
    if isinstance(item, TextPart):
        return {"text": item.text} if item.text else None
    if isinstance(item, ModelImage):
        return _blob(item.media_type, item.data, item.url)
    if isinstance(item, FileItem):
        if item.text is not None:
            return {"text": attached_text(item)}
        return _blob(item.media_type, item.data, item.url or item.provider_file)
    return None


def _blob(media_type: str, data: bytes | None, uri: str | None) -> JsonObject:
    if data is None:
        return {"fileData": {"mimeType": media_type, "fileUri": uri}}
    return {"inlineData": {"mimeType": media_type, "data": encode_data(data)}}
