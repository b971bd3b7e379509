"""Plain JSON of what an event holds, for whoever keeps it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from pydantic import BaseModel

from runlane.diagnostics._bounds import TRUNCATED, UNSUPPORTED

__all__ = ["MAX_DEPTH", "MAX_NODES", "plain"]

MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def plain(value: object, /) -> Any:  # noqa: ANN401 - JSON
    """Return JSON of exact built-in types, never deeper or larger than can be read back.

    Records and dataclasses become objects without the fields that are None, binary data becomes its size, and what
    has no form is named so.
    """
    return _Walk().plain(value, 0)


class _Walk:
    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        self._nodes = 0

    def plain(self, value: Any, level: int) -> Any:  # noqa: ANN401 - any object may come
        self._nodes += 1
        if self._nodes > MAX_NODES:
            return TRUNCATED
        kind = type(value)
        if value is None or kind is bool:
            return value
        if issubclass(kind, str | int | float):
            return self._scalar(value, kind)
        if issubclass(kind, bytes):
            return {"bytes": len(value)}
        return self._container(value, kind, level)

    def _scalar(self, value: Any, kind: type) -> Any:  # noqa: ANN401 - likewise
        if issubclass(kind, str):
            return self._text(value)
        if issubclass(kind, int):
            return int.__int__(value)
        return float.__float__(value) if math.isfinite(value) else UNSUPPORTED

    def _container(self, value: Any, kind: type, level: int) -> Any:  # noqa: ANN401 - likewise
        if level >= MAX_DEPTH:
            return TRUNCATED
        if issubclass(kind, list | tuple):
            return [self.plain(item, level + 1) for item in value]
        if issubclass(kind, Mapping):
            return {self._text(key): self.plain(member, level + 1) for key, member in value.items()}
        if issubclass(kind, BaseModel):
            return self._fields(value, kind.model_fields, level)
        if is_dataclass(kind):
            return self._fields(value, [field.name for field in fields(kind)], level)
        return UNSUPPORTED

    def _fields(self, value: object, names: Any, level: int) -> dict[str, Any]:  # noqa: ANN401 - names of fields
        given = ((name, getattr(value, name)) for name in names)
        return {name: self.plain(member, level + 1) for name, member in given if member is not None}

    @staticmethod
    def _text(text: Any) -> str:  # noqa: ANN401 - likewise
        if not issubclass(type(text), str):
            return UNSUPPORTED
        exact: str = str.__str__(text)
        return exact if exact.isascii() else _LONE_SURROGATE.sub("\ufffd", exact)
