"""Bounding what is recorded: a value never makes recording fail, it is cut to size instead."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields
from typing import Any, Final

from runlane.contracts import require_limit
from runlane.errors import InvalidValueError

__all__ = ["TRUNCATED", "UNSUPPORTED", "DiagnosticLimits", "bound_text", "bound_value", "is_bounded"]

TRUNCATED: Final = "[truncated]"
UNSUPPORTED: Final = "[unsupported]"

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MAX_INTEGER_BITS: Final = 8_192
"""Python refuses to print integers of more than 4,300 digits, about 14,000 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosticLimits:
    """How much of a value is recorded. A limit can be lowered, not raised: whoever reads back relies on them.

    Attributes:
        depth: Containers inside each other; a scalar has depth 0.
        items: Members or items of one container; the rest is dropped.
        string_chars: Characters of one text; the rest is cut.
        key_chars: Characters of one key; the rest is cut.
        nodes: Values within one value; the rest becomes `[truncated]`.
        value_bytes: Bytes of one value as JSON; a larger one becomes `[truncated]` whole.
        entries: Writes and fixes carried by one event.

    Raises:
        InvalidValueError: A limit is no integer from 1 up to its default.
    """

    depth: int = 8
    items: int = 100
    string_chars: int = 2_000
    key_chars: int = 128
    nodes: int = 1_000
    value_bytes: int = 16_384
    entries: int = 200

    def __post_init__(self) -> None:
        for limit in fields(self):
            largest: Any = limit.default
            value = require_limit(getattr(self, limit.name), argument=f"limits.{limit.name}", minimum=1)
            if value > largest:
                raise InvalidValueError(f"can be at most {largest}", argument=f"limits.{limit.name}")


def bound_text(text: str | None, limits: DiagnosticLimits, /) -> tuple[str | None, bool]:
    """Cut a text and repair lone surrogates. Returns the text, and whether it changed."""
    if text is None:
        return None, False
    bounded = _text(text, limits.string_chars)
    return bounded, bounded != text


def bound_value(value: object, limits: DiagnosticLimits, /) -> tuple[Any, bool]:
    """Return a detached JSON value within the limits, and whether anything was lost.

    Never raises, whatever the value: no code of the value's own runs.
    """
    walk = _Walk(limits)
    bounded = walk.bound(value, 0)
    if isinstance(bounded, dict | list) and _encoded_bytes(bounded) > limits.value_bytes:
        return TRUNCATED, True
    return bounded, walk.lossy


def is_bounded(value: object, /) -> bool:
    """Whether a value read back is within the default limits."""
    bounded, lossy = bound_value(value, _DEFAULT)
    return not lossy and bounded == value


_DEFAULT: Final = DiagnosticLimits()


def _encoded_bytes(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _text(text: str, limit: int) -> str:
    cut = str.__getitem__(text, slice(limit))
    return cut if cut.isascii() else _LONE_SURROGATE.sub("\ufffd", cut)


class _Walk:
    """One walk through one value; types are looked at from outside, with the methods of the built-in ones."""

    __slots__ = ("_limits", "_nodes", "lossy")

    def __init__(self, limits: DiagnosticLimits) -> None:
        self._limits = limits
        self._nodes = 0
        self.lossy = False

    def bound(self, value: Any, level: int) -> Any:  # noqa: ANN401 - any value may come
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            return self._lost(TRUNCATED)
        kind = type(value)
        if value is None or kind is bool:
            return value
        if issubclass(kind, dict | list | tuple):
            return self._container(value, kind, level)
        return self._scalar(value, kind)

    def _scalar(self, value: Any, kind: type) -> Any:  # noqa: ANN401 - likewise
        if issubclass(kind, str):
            text = _text(value, self._limits.string_chars)
            self.lossy = self.lossy or not str.__eq__(text, value)
            return text
        if issubclass(kind, int) and int.bit_length(value) <= _MAX_INTEGER_BITS:
            return int.__int__(value)
        if kind is float and math.isfinite(value):
            return value
        return self._lost(UNSUPPORTED)

    def _container(self, value: Any, kind: type, level: int) -> Any:  # noqa: ANN401 - likewise
        if level >= self._limits.depth:
            return self._lost(TRUNCATED)
        if issubclass(kind, dict):
            return self._object(value, level)
        source = list.__iter__(value) if issubclass(kind, list) else tuple.__iter__(value)
        items: list[object] = []
        for item in source:
            if len(items) == self._limits.items:
                self.lossy = True
                break
            items.append(self.bound(item, level + 1))
        return items

    def _object(self, value: dict[object, object], level: int) -> dict[str, object]:
        members: dict[str, object] = {}
        for key, member in dict.items(value):
            if len(members) == self._limits.items:
                self.lossy = True
                break
            name = self._key(key)
            if name in members:
                self.lossy = True
                continue
            members[name] = self.bound(member, level + 1)
        return members

    def _key(self, key: Any) -> str:  # noqa: ANN401 - likewise
        if not issubclass(type(key), str):
            return self._lost(UNSUPPORTED)
        name = _text(key, self._limits.key_chars)
        self.lossy = self.lossy or not str.__eq__(name, key)
        return name

    def _lost(self, mark: str) -> str:
        self.lossy = True
        return mark
