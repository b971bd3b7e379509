"""The content of one message in the form of Anthropic's content blocks.

What the provider wants to see again goes back: its signed thinking, the tools it ran itself, who called a function, and
the citations of its own searches. Citations of documents stay here: they count the documents of the request that they
answer, and another request may have others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from runlane.models._encoding import attached_text, cut_off, encode_data, output_text
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

__all__ = ["ContentWriter", "container_in"]

_PDF: Final = "application/pdf"
_PLAIN: Final = "text/plain"
_PROVIDER_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_MARKS: Final = frozenset({"text", "message"})
"""What the decoder tells beside blocks: citations of the text before it, and the container."""


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
        blocks = self._assistant_blocks(message.items, last=last)
        if last and blocks:
            _trim(blocks)
        return blocks

    def _assistant_blocks(self, items: Iterable[object], *, last: bool) -> list[JsonValue]:
        blocks: list[JsonValue] = []
        texts: list[str] = []
        for item in items:
            if isinstance(item, TextPart):
                texts.append(item.text)
                continue
            cited = _cited(item, texts)
            blocks += filter(None, map(_text, texts))
            texts.clear()
            block = self._assistant_block(item, last=last) if cited is None else cited
            if block is not None:
                blocks.append(block)
        blocks += filter(None, map(_text, texts))
        return blocks

    def _assistant_block(self, item: object, *, last: bool) -> JsonObject | None:
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


def _own_data(item: object) -> JsonObject | None:
    """Return what this protocol's provider gave, or None for anything else."""
    if isinstance(item, ProviderPart) and item.envelope.provider == PROVIDER_ID:
        return item.envelope.data if isinstance(item.envelope.data.get("type"), str) else None
    return None


def _own_block(item: object) -> JsonObject | None:
    """Return the block this protocol's provider gave, or None for anything else, marks included."""
    data = _own_data(item)
    return None if data is None or data["type"] in _MARKS else data


def _cited(item: object, texts: list[str]) -> JsonObject | None:
    """Return the text that a mark stands behind as a block with its citations, and take it off; None without one."""
    data = _own_data(item)
    if data is None or data["type"] != "text":
        return None
    block = _text(cut_off(texts, data.get("length")))
    return None if block is None else {**block, "citations": data.get("citations")}


def container_in(messages: Sequence[AnyModelMessage], now: datetime | None) -> str | None:
    """Return the container to go on in: the last one a message tells, unless it is known, or has to be feared, gone.

    Args:
        messages: The conversation.
        now: What time it is; None if nobody knows. Within the turn of the container's own message it is taken to live,
            for the provider asks for it where a function was called from inside it.
    """
    turn_is_over = False
    for message in reversed(tuple(messages)):
        turn_is_over = turn_is_over or message.role == "user"
        for item in reversed(message.items if message.role == "assistant" else ()):
            data = _own_data(item)
            container = None if data is None or data["type"] != "message" else data.get("container")
            if isinstance(container, dict) and isinstance(container.get("id"), str):
                lives = not turn_is_over or _is_later(container.get("expires_at"), now)
                return str(container["id"]) if lives else None
    return None


def _is_later(expires_at: JsonValue, now: datetime | None) -> bool:
    if now is None or not isinstance(expires_at, str):
        return False
    try:
        expires = datetime.fromisoformat(expires_at)
    except ValueError:
        return False
    return expires.tzinfo is not None and expires > now


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
