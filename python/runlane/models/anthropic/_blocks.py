"""The content blocks of a message, each from its start to its stop."""

from __future__ import annotations

import json
from typing import Final

from pydantic import JsonValue

from runlane.models._repair import SurrogateMender, parse_json
from runlane.records import JsonObject

__all__ = ["Block", "call_options", "cited_text", "container_of", "source_of", "thinking_options"]

_CALL_KEYS: Final = frozenset({"type", "id", "name", "input"})


class Block:
    """A block that is open.

    Attributes:
        kind: The provider's type.
        data: The block as it began; what its deltas add to a block without a neutral form is added here.
        call: The index of the call, in a block that is one.
        mender: Mends the argument text of a call.
        said: Whether any argument text was given.
        length: How many characters of text were told.
        cited: What was cited for that text.
    """

    __slots__ = ("call", "cited", "data", "kind", "length", "mender", "pieces", "said", "signature")

    def __init__(self, kind: str, data: JsonObject) -> None:
        self.kind = kind
        self.data = data
        self.call = -1
        self.mender = SurrogateMender()
        self.pieces: list[str] = []
        self.said = False
        self.length = 0
        self.cited: list[JsonValue] = []
        self.signature = data.get("signature")

    @property
    def grows(self) -> bool:
        """Whether deltas may still add to a block without a neutral form."""
        return "input" in self.data or self.kind == "compaction"

    def add(self, delta: JsonObject) -> None:
        """Add a delta to a block without a neutral form; unknown ones are left out."""
        fragment = delta.get("partial_json")
        if isinstance(fragment, str):
            self.pieces.append(fragment)
        elif delta.get("type") == "compaction_delta":
            self.data.update({name: value for name, value in delta.items() if name != "type" and value is not None})

    def whole(self) -> JsonObject:
        """Return a block without a neutral form as the provider wants to see it again."""
        text = "".join(self.pieces)
        if text.strip():
            try:
                value, _ = parse_json(text)
            except ValueError:
                return self.data
            return {**self.data, "input": value}
        return self.data

    def start_input(self) -> str:
        """Return the arguments a call began with, as text; empty if it brought none."""
        given = self.data.get("input")
        return json.dumps(given, ensure_ascii=False) if isinstance(given, dict) else ""


def call_options(block: JsonObject) -> JsonObject | None:
    """Return what the provider attached to a call, such as who calls."""
    return {key: value for key, value in block.items() if key not in _CALL_KEYS} or None


def thinking_options(block: Block) -> JsonObject:
    """Return what the provider wants to see again with its reasoning."""
    return {"signature": block.signature} if isinstance(block.signature, str) and block.signature else {}


def cited_text(block: Block) -> JsonObject | None:
    """Return the mark behind text whose citations the provider wants to see again; None if it wants none of them.

    Those are the ones with an index that only the provider can read, of its own searches. A citation of a document says
    where that stood in a request, which another request need not have.
    """
    wanted = [cited for cited in block.cited if isinstance(cited, dict) and cited.get("encrypted_index")]
    if not wanted or not block.length:
        return None
    return {"type": "text", "citations": list[JsonValue](wanted), "length": block.length}


def container_of(message: JsonObject) -> JsonObject | None:
    """Return the mark that tells in which container the provider's tools ran; None if a message tells none."""
    container = message.get("container")
    if not isinstance(container, dict) or not _text(container.get("id")):
        return None
    return {"type": "message", "container": container}


def source_of(citation: JsonValue) -> tuple[str, str | None, str | None] | None:
    """Read a citation: what names the source, its address, and its title; None if it names nothing."""
    if not isinstance(citation, dict):
        return None
    url = _text(citation.get("url")) or _text(citation.get("source"))
    title = _text(citation.get("title")) or _text(citation.get("document_title"))
    name = url or _text(citation.get("file_id")) or title
    if name is None and isinstance(citation.get("document_index"), int):
        name = f"document-{citation['document_index']}"
    return None if name is None else (name, url, title)


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
