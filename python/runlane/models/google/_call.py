"""A function call, whole or put together from the fragments that some endpoints stream."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Final

from pydantic import JsonValue

from runlane.models._messages import model_protocol_error
from runlane.records import JsonObject

__all__ = ["StreamedCall"]

_STEP: Final = re.compile(r"""\.([^.\[\]'"]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_LONGEST_LIST: Final = 10_000
_DEEPEST: Final = 64


class StreamedCall:
    """One call.

    Attributes:
        index: Its index among the calls of the response.
        args: Its arguments so far.
    """

    __slots__ = ("_growing", "args", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        self.args: JsonObject = {}
        self._growing: set[str] = set()

    def add(self, data: JsonObject) -> None:
        """Take a fragment: whole arguments, or values by their paths.

        Raises:
            ModelProtocolError: A path or a value has no shape it can have.
        """
        args, partial = data.get("args"), data.get("partialArgs")
        if args is not None and not isinstance(args, dict):
            model_protocol_error("the arguments of a function call are not an object")
        if args:
            self.args = {**self.args, **args}
        for piece in partial if isinstance(partial, list) else ():
            if not isinstance(piece, dict):
                model_protocol_error("a fragment of a function call is not an object")
            self._put(piece)

    def whole(self) -> str:
        """Return the arguments as text."""
        return json.dumps(self.args, ensure_ascii=False)

    def half(self) -> str:
        """Return the arguments of a call that never ended: text that is no JSON, so that nothing runs on it."""
        return self.whole()[:-1]

    def _put(self, piece: JsonObject) -> None:
        path = piece.get("jsonPath")
        if not isinstance(path, str):
            model_protocol_error("a fragment of a function call has no path")
        steps = _steps_of(path)
        value = _value_of(piece)
        holder: JsonValue = self.args
        for step, following in pairwise(steps):
            holder = _enter(holder, step, [] if isinstance(following, int) else {})
        known = _enter(holder, steps[-1], None)
        if path in self._growing and isinstance(known, str) and isinstance(value, str):
            value = known + value
        _set(holder, steps[-1], value)
        if piece.get("willContinue") is True:
            self._growing.add(path)
        else:
            self._growing.discard(path)


def _value_of(piece: JsonObject) -> JsonValue:
    """Return the value of a fragment; a number that is whole is an integer."""
    for key in ("stringValue", "boolValue", "numberValue"):
        if key in piece:
            value = piece[key]
            return int(value) if isinstance(value, float) and value.is_integer() else value
    return None


def _steps_of(path: str) -> list[str | int]:
    """Read a path such as `$.a.b[0]` (RFC 9535, names and indexes only)."""
    steps: list[str | int] = []
    place = 1
    while place < len(path) and len(steps) <= _DEEPEST:
        step = _STEP.match(path, place)
        if step is None:
            break
        name, index, single, double = step.groups()
        steps.append(int(index) if index else next(text for text in (name, single, double) if text is not None))
        place = step.end()
    if not path.startswith("$") or not steps or place < len(path):
        model_protocol_error("a fragment of a function call has a path that cannot be followed")
    return steps


def _enter(holder: JsonValue, step: str | int, empty: JsonValue) -> JsonValue:
    """Return what a container holds under a step; if nothing, first put `empty` there."""
    if isinstance(holder, dict) and isinstance(step, str):
        return holder.setdefault(step, empty)
    if not isinstance(holder, list) or not isinstance(step, int) or step >= _LONGEST_LIST:
        model_protocol_error("a fragment of a function call has a path that cannot be followed")
    holder.extend([None] * (step + 1 - len(holder)))
    if holder[step] is None:
        holder[step] = empty
    return holder[step]


def _set(holder: JsonValue, step: str | int, value: JsonValue) -> None:
    if isinstance(holder, dict):
        holder[str(step)] = value
    elif isinstance(holder, list):
        holder[int(step)] = value
