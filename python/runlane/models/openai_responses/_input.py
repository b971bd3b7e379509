"""The conversation in the form of input items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from runlane.models._encoding import attached_text, data_url, output_text
from runlane.models._messages import AnyModelMessage, FileItem, ModelImage, ModelMessage, ModelToolResultMessage
from runlane.models.openai_responses._facts import PROVIDER_ID
from runlane.records import JsonObject, ProviderPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

__all__ = ["InputWriter"]

_CUSTOM: Final = "custom_tool_call"


class InputWriter:
    """Writes the messages of one request."""

    def __init__(self) -> None:
        self._custom: set[str] = set()

    def write(self, messages: Sequence[AnyModelMessage]) -> list[JsonValue]:
        """Write user, assistant and tool messages in order."""
        items: list[JsonValue] = []
        for message in messages:
            if isinstance(message, ModelToolResultMessage):
                items += [self._result(result) for result in message.results]
            elif message.role == "user":
                items.append({"role": "user", "content": _user_content(message)})
            else:
                items += self._answer(message.items)
        return items

    def _answer(self, parts: Sequence[object]) -> list[JsonValue]:
        """Write an answer; reasoning that led to nothing is left out, for the provider refuses it."""
        items: list[JsonObject] = []
        for part in parts:
            if isinstance(part, TextPart):
                if part.text:
                    items.append({"role": "assistant", "content": part.text})
            elif isinstance(part, ToolCallPart):
                items.append(self._call(part))
            elif isinstance(part, ReasoningPart):
                items += _reasoning(part)
            elif isinstance(part, ProviderPart):
                items += _opaque(part)
        while items and items[-1].get("type") == "reasoning":
            items.pop()
        return list(items)

    def _call(self, call: ToolCallPart) -> JsonObject:
        own = call.provider.data if call.provider is not None and call.provider.provider == PROVIDER_ID else {}
        if own.get("type") == _CUSTOM:
            self._custom.add(call.call_id)
            return {**own, "call_id": call.call_id, "name": call.tool_name, "input": call.arguments}
        return {
            **own,
            "type": "function_call",
            "call_id": call.call_id,
            "name": call.tool_name,
            "arguments": call.arguments if call.arguments.strip() else "{}",
        }

    def _result(self, result: ToolResultPart) -> JsonObject:
        kind = _CUSTOM if result.call_id in self._custom else "function_call"
        return {"type": f"{kind}_output", "call_id": result.call_id, "output": output_text(result)}


def _reasoning(part: ReasoningPart) -> list[JsonObject]:
    """Give the provider its own reasoning item back; the text alone has no form."""
    if part.provider is None or part.provider.provider != PROVIDER_ID:
        return []
    summary: list[JsonValue] = []
    return [{"summary": summary, **part.provider.data, "type": "reasoning"}]


def _opaque(part: ProviderPart) -> list[JsonObject]:
    data = part.envelope.data
    kind = data.get("type")
    if part.envelope.provider != PROVIDER_ID or not isinstance(kind, str) or kind == "message_piece":
        return []
    if kind == "image_generation_call" and not data.get("result"):
        return []
    return [data]


def _user_content(message: ModelMessage) -> JsonValue:
    if len(message.items) == 1 and isinstance(message.items[0], TextPart):
        return message.items[0].text
    return [piece for item in message.items if (piece := _piece(item)) is not None]


def _piece(item: object) -> JsonObject | None:
    if isinstance(item, TextPart):
        return {"type": "input_text", "text": item.text}
    if isinstance(item, ModelImage):
        return _image(item.media_type, item.data, item.url, item.detail)
    return _file(item) if isinstance(item, FileItem) else None


def _image(media_type: str, data: bytes | None, url: str | None, detail: str | None = None) -> JsonObject:
    address = url if data is None else data_url(media_type, data)
    return {"type": "input_image", "image_url": address, "detail": detail or "auto"}


def _file(item: FileItem) -> JsonObject:
    if item.text is not None:
        return {"type": "input_text", "text": attached_text(item)}
    is_image = item.media_type.startswith("image/")
    if item.provider_file is not None:
        if is_image:
            return {"type": "input_image", "file_id": item.provider_file, "detail": "auto"}
        return {"type": "input_file", "file_id": item.provider_file}
    if is_image:
        return _image(item.media_type, item.data, item.url)
    if item.data is None:
        return {"type": "input_file", "file_url": item.url}
    return {
        "type": "input_file",
        "filename": item.filename or "file",
        "file_data": data_url(item.media_type, item.data),
    }
