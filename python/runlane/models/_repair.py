"""Text from a provider that is not text: lone surrogates become U+FFFD once, where they come in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn, TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from runlane.records import JsonObject

__all__ = ["SurrogateMender", "parse_json", "repair_object", "repair_text", "repair_value"]

_Container: TypeAlias = list[JsonValue] | JsonObject

_DEEPEST: Final = 600
_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def repair_text(text: str, /) -> str:
    r"""Join surrogate pairs and replace lone surrogates by U+FFFD.

    Example:
        >>> repair_text("a\ud835")
        'a\ufffd'
    """
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return _SURROGATE.sub("\ufffd", _PAIR.sub(_joined, text))


def repair_value(value: JsonValue, /) -> JsonValue:
    """Repair every text within a JSON value, keys included; the value itself is not changed.

    What lies deeper than any record may be nested is left as it is.
    """
    whole: list[JsonValue] = [value]
    layer: list[_Container] = [whole]
    for _ in range(_DEEPEST):
        if not layer:
            break
        layer = [fresh for holder in layer for fresh in _repair_items(holder)]
    return whole[0]


def repair_object(value: JsonObject, /) -> JsonObject:
    """Repair every text within a JSON object, keys included; see `repair_value`."""
    repaired = repair_value(value)
    return repaired if isinstance(repaired, dict) else value


def _repair_items(holder: _Container) -> Iterator[_Container]:
    """Repair the texts a container holds; give the copies of the containers it holds, whose items are still to do."""
    if isinstance(holder, dict):
        for key, item in holder.items():
            holder[key] = _fresh(item)
    else:
        holder[:] = map(_fresh, holder)
    for item in holder.values() if isinstance(holder, dict) else holder:
        if isinstance(item, list | dict):
            yield item


def _fresh(item: JsonValue) -> JsonValue:
    """Return a repaired text, a copy of a container with its keys repaired, or anything else as it is."""
    if isinstance(item, str):
        return repair_text(item)
    value: object = item
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, dict):
        # What is no JSON, like a number for a key, is for others to refuse, or to make JSON of.
        return {repair_text(key) if isinstance(key, str) else key: held for key, held in value.items()}
    return item


def parse_json(text: str, /) -> tuple[JsonValue, bool]:
    """Parse JSON text of a provider, total on any input.

    Integers are exact. Lone surrogates are left in the value, because the other half may still come.

    Returns:
        The value, and whether some text in it may hold a surrogate.

    Raises:
        ValueError: The text is not JSON, is nested too deeply, or has a number Python refuses to hold.
    """
    try:
        return from_json(text, allow_inf_nan=False), False
    except (ValueError, TypeError):
        pass
    # The fast parser refuses lone surrogates, escaped or not; only the slow one can show what the provider meant.
    try:
        return json.loads(text, parse_constant=_refuse), True
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


class SurrogateMender:
    """Mends text that arrives in pieces: a pair split over two pieces is joined, a lone half becomes U+FFFD.

    Attributes:
        holds: Half a character that waits for its other half, or nothing.
        repaired: Whether a lone half was replaced.
    """

    __slots__ = ("holds", "repaired")

    def __init__(self) -> None:
        """Start with nothing held back."""
        self.holds = ""
        self.repaired = False

    def add(self, piece: str, /) -> str:
        """Return what can be said of all pieces so far and was not said before."""
        if not self.holds and piece.isascii():
            return piece
        text = self.holds + piece
        self.holds = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self.holds = text[:-1], text[-1]
        return self._mended(text)

    def flush(self) -> str:
        """Return the replacement of a half that stayed alone, or nothing."""
        if not self.holds:
            return ""
        text, self.holds = self.holds, ""
        return self._mended(text)

    def _mended(self, text: str) -> str:
        mended = repair_text(text)
        if "\ufffd" in mended and mended.count("\ufffd") != text.count("\ufffd"):
            self.repaired = True
        return mended


def _joined(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16", "surrogatepass").decode("utf-16")


def _refuse(constant: str) -> NoReturn:
    message = f"{constant} is not JSON"
    raise ValueError(message)
