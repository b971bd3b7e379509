"""The output items of a response, each from the event that adds it to the one that completes it."""

from __future__ import annotations

import base64
from typing import Final

from pydantic import JsonValue

from runlane.models._repair import SurrogateMender
from runlane.models._stream import FileOutput
from runlane.records import JsonObject

__all__ = ["CALLS", "Item", "call_options", "image_of", "phase_of", "pieces_of", "reasoning_options", "source_of"]

CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""The field of a call's text, by the type of the item."""

_CALL_KEYS: Final = frozenset({"type", "id", "call_id", "name", "arguments", "input", "status"})
_REASONING_KEYS: Final = frozenset({"type", "status"})


class Item:
    """An output item.

    Attributes:
        kind: The provider's type.
        data: The item as it was added, later as it was completed.
        call: The index of the call, in an item that is one.
        is_done: Whether nothing more can come.
        place: Which of its texts is being told.
    """

    __slots__ = ("call", "call_id", "data", "is_done", "kind", "mender", "name", "place", "told")

    def __init__(self, kind: str, data: JsonObject) -> None:
        self.kind = kind
        self.data = data
        self.call = -1
        self.call_id: str | None = None
        self.name: str | None = None
        self.is_done = False
        self.place: tuple[str, int] | None = None
        self.mender = SurrogateMender()
        self.told: dict[tuple[str, int], list[str]] = {}

    def tell(self, place: tuple[str, int], text: str) -> None:
        """Remember that a piece of one of its texts was told."""
        told = self.told.get(place)
        if told is None:
            self.told[place] = [text]
        else:
            told.append(text)

    def rest(self, place: tuple[str, int], whole: str) -> str | None:
        """Return what of a whole text was not told yet; None if something else was told."""
        told = "".join(self.told.get(place, ()))
        if whole.startswith(told):
            return whole[len(told) :]
        return "" if told.startswith(whole) else None


def call_options(data: JsonObject) -> JsonObject | None:
    """Return what the provider attached to a call; a call with free text says that it is one."""
    options: JsonObject = {key: value for key, value in data.items() if key not in _CALL_KEYS and value is not None}
    if data.get("type") == "custom_tool_call":
        options["type"] = "custom_tool_call"
    return options or None


def reasoning_options(data: JsonObject) -> JsonObject:
    """Return the reasoning item as the provider wants to see it again."""
    options: JsonObject = {
        key: value for key, value in data.items() if key not in _REASONING_KEYS and value is not None
    }
    return options if options.get("id") or options.get("encrypted_content") else {}


def phase_of(item: Item, data: JsonObject) -> JsonObject | None:
    """Return the mark behind the text of a message that has a phase, which the provider wants to see again."""
    phase = _text(data.get("phase"))
    if phase is None:
        return None
    told = "".join(text for pieces in item.told.values() for text in pieces)
    # Halves of a character that came apart are one by now.
    length = len(told.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return {"type": "message", "phase": phase, "length": length} if length else None


def pieces_of(data: JsonObject, field: str) -> list[tuple[int, JsonObject]]:
    """Return the pieces of an item's content or summary with their places."""
    pieces = data.get(field)
    return [
        (place, piece)
        for place, piece in enumerate(pieces if isinstance(pieces, list) else ())
        if isinstance(piece, dict)
    ]


def source_of(annotation: JsonValue) -> tuple[str, str | None, str | None] | None:
    """Read an annotation: what names the source, its address, and its title; None if it names nothing."""
    if not isinstance(annotation, dict):
        return None
    inner = annotation.get("url_citation")
    if isinstance(inner, dict):  # endpoints that speak chat completions as well
        annotation = inner
    url, file = _text(annotation.get("url")), _text(annotation.get("file_id"))
    title = _text(annotation.get("title")) or _text(annotation.get("filename"))
    name = url or file or title
    return None if name is None else (name, url, title)


def image_of(data: JsonObject) -> FileOutput | None:
    """Return the image a model made, or None if the item holds none."""
    encoded, form = data.get("result"), data.get("output_format")
    if not isinstance(encoded, str) or not encoded:
        return None
    try:
        image = base64.b64decode(encoded, validate=True)
    except ValueError:  # not base64, or not even ASCII
        return None
    return FileOutput(f"image/{form if form in ('jpeg', 'webp') else 'png'}", image)


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
