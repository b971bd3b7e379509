"""The conversation in the form of input items.

What the provider wants to see again goes back: its reasoning items, the tools it ran itself, and the phase of what it
said. Annotations stay here: they tell readers what a text rests on, and the model has the tool's own item for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from runlane.models._encoding import attached_text, cut_off, data_url, output_text
from runlane.models._messages import AnyModelMessage, FileItem, ModelImage, ModelMessage, ModelToolResultMessage
from runlane.models.openai_responses._facts import PROVIDER_ID
from runlane.records import JsonObject, ProviderPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

__all__ = ["InputWriter"]

_CUSTOM: Final = "custom_tool_call"
_NO_ITEMS: Final = frozenset({"message", "message_piece"})
"""What the decoder tells beside items: the phase of a text, and pieces of a message without a neutral form."""


_AWAITED: Final = {
    **{f"{kind}_call": f"{kind}_call_output" for kind in ("apply_patch", "computer", "local_shell", "shell")},
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""Items that wait for an answer, and the answers: the provider refuses one without the other."""


class InputWriter:
    """Writes the messages of one request.

    An item of the provider that waits for an answer of the application is given back only where the answer is.
    """

    def __init__(self) -> None:
        self._custom: set[str] = set()
        self._asked: set[tuple[str, str]] = set()
        self._answered: set[tuple[str, str]] = set()

    def write(self, messages: Sequence[AnyModelMessage]) -> list[JsonValue]:
        """Write user, assistant and tool messages in order."""
        items: list[JsonValue] = []
        for message in messages:
            self._look(message)
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
        texts: list[str] = []
        for part in parts:
            if isinstance(part, TextPart):
                texts.append(part.text)
                continue
            phased = _phased(part, texts)
            items += _said(texts)
            texts.clear()
            written = self._item(part) if phased is None else [phased]
            if not written and (_own(part) or {}).get("type") not in {None, *_NO_ITEMS}:
                _drop_reasoning(items)  # it led to the item that is left out
            items += written
        items += _said(texts)
        _drop_reasoning(items)
        return list(items)

    def _item(self, part: object) -> list[JsonObject]:
        if isinstance(part, ToolCallPart):
            return [self._call(part)]
        if isinstance(part, ReasoningPart):
            return _reasoning(part)
        return self._opaque(part) if isinstance(part, ProviderPart) else []

    def _look(self, message: AnyModelMessage) -> None:
        for item in message.items if message.role == "assistant" else ():
            data = _own(item)
            kind = None if data is None else data.get("type")
            if data is None or not isinstance(kind, str):
                continue
            if kind in _AWAITED:
                self._asked.add((_AWAITED[kind], _asking(data)))
            elif kind in _AWAITED.values():
                self._answered.add((kind, _asking(data, answers=True)))

    def _opaque(self, part: ProviderPart) -> list[JsonObject]:
        data = _own(part)
        kind = None if data is None else data.get("type")
        if data is None or not isinstance(kind, str) or kind in _NO_ITEMS:
            return []
        if kind == "image_generation_call" and not data.get("result"):
            return []
        if kind in _AWAITED and (_AWAITED[kind], _asking(data)) not in self._answered:
            return []
        if kind in _AWAITED.values() and (kind, _asking(data, answers=True)) not in self._asked:
            return []
        return [data]

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


def _drop_reasoning(items: list[JsonObject]) -> None:
    while items and items[-1].get("type") == "reasoning":
        items.pop()


def _said(texts: Sequence[str]) -> list[JsonObject]:
    return [{"role": "assistant", "content": text} for text in texts if text]


def _phased(part: object, texts: list[str]) -> JsonObject | None:
    """Return the text that a mark stands behind with its phase, and take it off; None without one."""
    data = _own(part)
    if data is None or data.get("type") != "message":
        return None
    said = cut_off(texts, data.get("length"))
    return {"role": "assistant", "content": said, "phase": data.get("phase")} if said else None


def _reasoning(part: ReasoningPart) -> list[JsonObject]:
    """Give the provider its own reasoning item back; the text alone has no form."""
    if part.provider is None or part.provider.provider != PROVIDER_ID:
        return []
    summary: list[JsonValue] = []
    return [{"summary": summary, **part.provider.data, "type": "reasoning"}]


def _own(item: object) -> JsonObject | None:
    """Return what this protocol's provider gave, or None for anything else."""
    if not isinstance(item, ProviderPart) or item.envelope.provider != PROVIDER_ID:
        return None
    return item.envelope.data


def _asking(data: JsonObject, *, answers: bool = False) -> str:
    """Return what an item that waits and its answer have in common; nothing where the provider answers itself."""
    if str(data.get("type")).startswith("mcp_"):
        name = data.get("approval_request_id" if answers else "id")
    else:
        name = data.get("call_id") or (data.get("id") if data.get("type") == "local_shell_call_output" else None)
    return name if isinstance(name, str) else ""


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
