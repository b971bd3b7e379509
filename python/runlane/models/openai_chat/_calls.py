"""Which call a fragment belongs to: providers disagree on indexes and ids, the port does not.

OpenAI numbers calls and gives the id once. Others leave the index out, number every parallel call 0, repeat the id in
each fragment, put a new id on each fragment, or give no id at all. The rules:

* an index continues its call, unless a fragment brings both a name and an id that is not the call's: that is a new
  call;
* without an index a known id continues its call, a new id or a name begins one, and neither continues the last one;
* an id repeated, or changed without a name, is dropped; a call that never got one is given one at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pydantic import JsonValue

from runlane.models._messages import model_protocol_error
from runlane.models._repair import SurrogateMender, repair_object, repair_text
from runlane.models._stream import FunctionCallDelta, ModelPart
from runlane.records import JsonObject

__all__ = ["CallTracker"]

_KNOWN = frozenset({"index", "id", "type", "function"})


class _Call:
    __slots__ = ("id", "index", "mender", "name")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.name: str | None = None
        self.mender = SurrogateMender()


class CallTracker:
    """Turns a provider's call fragments into `FunctionCallDelta`s with stable indexes."""

    __slots__ = ("_by_provider_index", "_calls", "_last", "_mended", "_new_id")

    def __init__(self, new_id: Callable[[], str]) -> None:
        """Start without calls; `new_id` names a call whose provider does not."""
        self._calls: dict[int, _Call] = {}
        self._by_provider_index: dict[int, _Call] = {}
        self._last: _Call | None = None
        self._mended = False
        self._new_id = new_id

    def __bool__(self) -> bool:
        """Whether a call began."""
        return bool(self._calls)

    @property
    def repaired(self) -> bool:
        """Whether a lone surrogate was replaced in some call."""
        return self._mended or (bool(self._calls) and any(call.mender.repaired for call in self._calls.values()))

    def read(self, entry: JsonValue, parts: list[ModelPart]) -> None:
        """Read one entry of `tool_calls`.

        Raises:
            ModelProtocolError: The entry has no shape a call fragment can have.
        """
        if not isinstance(entry, dict):
            model_protocol_error("a tool call is not an object")
        function = entry.get("function")
        if function is None:
            function = {}
        if not isinstance(function, dict):
            model_protocol_error("the function of a tool call is not an object")
        call_id, name = self._text(entry, "id"), self._text(function, "name")
        self._take(_index(entry), call_id, name, (_arguments(function), self._options(entry)), parts)

    def begin(self, index: int, call_id: str, name: str, arguments: str, parts: list[ModelPart]) -> bool:
        """Take a fragment with id and name, and nothing beside its arguments; always True."""
        self._take(index, call_id, name, (arguments, None), parts)
        return True

    def _take(
        self,
        index: int | None,
        call_id: str | None,
        name: str | None,
        brought: tuple[str, JsonObject | None],
        parts: list[ModelPart],
    ) -> None:
        began = len(self._calls)
        call = self._locate(index, call_id, name)
        new = len(self._calls) > began
        delta = FunctionCallDelta(
            call.index,
            None if call.id else call_id,
            None if name == call.name else name,
            call.mender.add(brought[0]) or None,
            brought[1],
        )
        call.id = call.id or call_id
        call.name = call.name or name
        self._last = call
        if new or delta.name or delta.id or delta.arguments or delta.provider_options:
            parts.append(delta)

    def add(self, index: int, arguments: str, parts: list[ModelPart]) -> bool:
        """Take more arguments of a call that began.

        Returns:
            False if it did not begin, or half a character of it is held back: then the fragment has to be read in full.
        """
        call = self._by_provider_index.get(index)
        if call is None or call.mender.holds:
            return False
        self._last = call
        if arguments:
            parts.append(FunctionCallDelta(call.index, arguments=arguments))
        return True

    def read_legacy(self, function: JsonValue, parts: list[ModelPart]) -> None:
        """Read `function_call`, from before calls could be parallel: there is one, and it has no id."""
        self.read({"index": 0, "function": function}, parts)

    def finish(self, parts: list[ModelPart]) -> None:
        """Say what is still to say about each call: a half character held back, an id nobody gave."""
        for call in self._calls.values():
            rest = call.mender.flush() or None
            call_id = None if call.id else self._new_id()
            if rest or call_id:
                parts.append(FunctionCallDelta(call.index, id=call_id, arguments=rest))

    def _text(self, holder: JsonObject, key: str) -> str | None:
        value = holder.get(key)
        if value is not None and not isinstance(value, str):
            model_protocol_error(f"the {key} of a tool call is not text")
        if not value:
            return None
        text = repair_text(value)
        self._mended = self._mended or text != value
        return text

    def _options(self, entry: JsonObject) -> JsonObject | None:
        """Return what the provider attached to a call."""
        if entry.keys() <= _KNOWN:
            return None
        given: JsonObject = {key: entry[key] for key in entry if key not in _KNOWN}
        options = repair_object(given)
        self._mended = self._mended or options != given
        return options

    def _locate(self, index: int | None, call_id: str | None, name: str | None) -> _Call:
        if index is not None:
            call = self._by_provider_index.get(index)
            reused = call is not None and name and call_id and call.id and call_id != call.id
            if call is None or reused:
                call = self._by_provider_index[index] = self._open(index)
            return call
        if call_id:
            for call in self._calls.values():
                if call.id == call_id:
                    return call
        if call_id or name:
            return self._open(len(self._calls))
        if self._last is None:
            model_protocol_error("a tool call fragment names no call")
        return self._last

    def _open(self, wished: int) -> _Call:
        index = wished if wished not in self._calls else max(self._calls) + 1
        call = self._calls[index] = _Call(index)
        return call


def _index(entry: JsonObject) -> int | None:
    index = entry.get("index")
    if index is None:
        return None
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        model_protocol_error(f"a tool call has the index {index!r}")
    return index


def _arguments(function: JsonObject) -> str:
    """Return the arguments fragment; a server that sends an object instead of its text gets it written out."""
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    if arguments is not None and not isinstance(arguments, str):
        model_protocol_error("the arguments of a tool call are not text")
    return arguments or ""
