"""The content of one message in the form of Anthropic's content blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import JsonValue

from runlane.models._encoding import attached_text, encode_data, output_text
from runlane.models._messages import (
    AnyModelMessage,
    FileItem,
    ModelImage,
    ModelToolResultMessage,
    model_protocol_error,
)
from runlane.models.anthropic._facts import PROVIDER_ID
from runlane.records import (
    JsonObject,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

__all__ = ["ContentWriter"]

_PDF: Final = "application/pdf"
_PLAIN: Final = "text/plain"
_PROVIDER_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})


class ContentWriter:
    """Writes the messages of one request.

    A call the provider ran itself is given back only where what it gave is there too, or where the provider has yet to
    go on with it: the provider refuses one without the other.

    Args:
        messages: All of them.
    """

    def __init__(self, messages: Sequence[AnyModelMessage]) -> None:
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        for message in messages:
            if message.role == "assistant":
                self._look(message.items)

    def _look(self, items: Iterable[object]) -> None:
        for item in items:
            block = _own_block(item)
            if block is not None:
                begun, ended = _id(block, "id"), _id(block, "tool_use_id")
                self._begun |= {begun} if begun and block.get("type") in _PROVIDER_CALLS else set()
                self._ended |= {ended} if ended else set()
            elif isinstance(item, ToolCallPart):
                caller = _attached(item).get("caller")
                called_by = _id(caller, "tool_id") if isinstance(caller, dict) else None
                self._ended |= {called_by} if called_by else set()

    def write(self, message: AnyModelMessage, *, last: bool) -> list[JsonValue]:
        """Write one message; empty if nothing of it has a form here.

        Args:
            message: The message.
            last: Whether the provider answers right behind it.

        Raises:
            ModelProtocolError: It holds something this protocol has no form for.
        """
        if isinstance(message, ModelToolResultMessage):
            return [_result(result) for result in message.results]
        if message.role == "user":
            return [block for item in message.items if (block := _user_block(item)) is not None]
        written = (self._assistant_block(item, last=last) for item in message.items)
        blocks: list[JsonValue] = [block for block in written if block is not None]
        if last and blocks:
            _trim(blocks)
        return blocks

    def _assistant_block(self, item: object, *, last: bool) -> JsonObject | None:
        if isinstance(item, TextPart):
            return _text(item.text)
        if isinstance(item, ReasoningPart):
            return _thinking(item)
        if isinstance(item, ToolCallPart):
            return _call(item)
        block = _own_block(item)
        return block if block is not None and self._is_paired(block, last=last) else None

    def _is_paired(self, block: JsonObject, *, last: bool) -> bool:
        if block.get("type") in _PROVIDER_CALLS:
            return last or _id(block, "id") in self._ended
        ended = _id(block, "tool_use_id")
        return ended is None or ended in self._begun


def _own_block(item: object) -> JsonObject | None:
    """Return the block this protocol's provider gave, or None for anything else."""
    if isinstance(item, ProviderPart) and item.envelope.provider == PROVIDER_ID:
        return item.envelope.data if isinstance(item.envelope.data.get("type"), str) else None
    return None


def _attached(call: ToolCallPart) -> JsonObject:
    """Return what this protocol's provider attached to a call."""
    return call.provider.data if call.provider is not None and call.provider.provider == PROVIDER_ID else {}


def _id(holder: JsonObject, key: str) -> str | None:
    value = holder.get(key)
    return value if isinstance(value, str) else None


def _text(text: str) -> JsonObject | None:
    """Write text; the provider refuses blank text."""
    return {"type": "text", "text": text} if text.strip() else None


def _trim(blocks: list[JsonValue]) -> None:
    """Take white space off the end of an answer the model goes on with, which the provider refuses."""
    end = blocks[-1]
    if isinstance(end, dict) and end.get("type") == "text" and isinstance(end["text"], str):
        blocks[-1] = {**end, "text": end["text"].rstrip()}


def _thinking(part: ReasoningPart) -> JsonObject | None:
    """Give the provider its own reasoning back; any other has no signature and would be refused."""
    if part.provider is None or part.provider.provider != PROVIDER_ID:
        return None
    data = part.provider.data
    if data.get("type") == "redacted_thinking":
        return {"type": "redacted_thinking", "data": data.get("data", "")}
    signature = data.get("signature")
    if not isinstance(signature, str):
        return None
    return {"type": "thinking", "thinking": part.text, "signature": signature}


def _call(call: ToolCallPart) -> JsonObject:
    # The protocol has no form for arguments that are no object: the error result beside the call says what was wrong.
    value = call.input if call.has_input else None
    return {
        **_attached(call),
        "type": "tool_use",
        "id": call.call_id,
        "name": call.tool_name,
        "input": value if isinstance(value, dict) else {},
    }


def _result(result: ToolResultPart) -> JsonObject:
    block: JsonObject = {"type": "tool_result", "tool_use_id": result.call_id, "content": output_text(result)}
    if result.outcome != "success":
        block["is_error"] = True
    return block


def _user_block(item: object) -> JsonObject | None:
    if isinstance(item, TextPart):
        return _text(item.text)
    if isinstance(item, ModelImage):
        return {"type": "image", "source": _source(item.media_type, item.data, item.url)}
    return _file(item) if isinstance(item, FileItem) else None


def _source(media_type: str, data: bytes | None, url: str | None) -> JsonObject:
    if data is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": media_type, "data": encode_data(data)}


def _file(item: FileItem) -> JsonObject | None:
    if item.text is not None:
        return _text(attached_text(item))
    kind = "image" if item.media_type.startswith("image/") else "document"
    if item.provider_file is not None:
        source: JsonObject = {"type": "file", "file_id": item.provider_file}
    elif kind == "image" or item.media_type == _PDF:
        source = _source(item.media_type, item.data, item.url)
    elif item.data is not None and item.media_type.startswith("text/"):
        source = {"type": "text", "media_type": _PLAIN, "data": item.data.decode("utf-8", "replace")}
    else:
        model_protocol_error(f"Anthropic's messages have no form for a file of type {item.media_type!r}")
    block: JsonObject = {"type": kind, "source": source}
    if kind == "document" and item.filename:
        block["title"] = item.filename
    return block
