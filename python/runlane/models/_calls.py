"""Putting tool calls together from the fragments of a stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol, TypeAlias

from pydantic import JsonValue, ValidationError

from runlane.errors import CanonicalJsonError
from runlane.models._messages import model_protocol_error
from runlane.models._repair import parse_json, repair_text, repair_value
from runlane.models._stream import FunctionCallDelta
from runlane.records import JsonObject, ProviderEnvelope, ToolCallPart, stored_json

__all__ = [
    "NativeFunctionCall",
    "ToolCallCollector",
    "ToolCallFailure",
    "create_tool_call_collector",
    "parse_arguments",
]

ToolCallFailure: TypeAlias = Callable[[str, str], NoReturn]
"""Called with a code and a sentence when the stream breaks a rule; raises the error its caller wants to see."""

_MAX_CALLS: Final = 64
_MAX_ARGUMENTS_BYTES: Final = 1_048_576
_AROUND: Final = 6
"""How many containers lie around the input of a call in a stored record, at most."""


@dataclass(frozen=True, slots=True)
class NativeFunctionCall:
    """The open buffer of one call: id, name and arguments may be missing or half there. Never a receipt."""

    index: int
    id: str | None
    name: str | None
    arguments: str


class ToolCallCollector(Protocol):
    """Collects the call fragments of one response."""

    @property
    def calls(self) -> tuple[NativeFunctionCall, ...]:
        """The buffers so far, by ascending index."""
        ...

    def add(self, delta: FunctionCallDelta, /) -> None:
        """Take the next fragment."""
        ...

    def finish(self) -> tuple[ToolCallPart, ...]:
        """Return the whole calls, by ascending index. Call it only once the stream gave its finish report."""
        ...


def create_tool_call_collector(
    fail: ToolCallFailure | None = None,
    /,
    *,
    provider: str | None = None,
    max_calls: int = _MAX_CALLS,
    max_arguments_bytes: int = _MAX_ARGUMENTS_BYTES,
) -> ToolCallCollector:
    """Return a collector for one response.

    Fragments with one index are one call; argument fragments are joined as they arrive. The arguments text of a call
    stays exactly as streamed; its `input` is the parsed text with exact integers, `{}` for blank text, and absent when
    the text is not valid JSON.

    Args:
        fail: Decides the class of the error when a rule is broken; `model_protocol_error` by default.
        provider: The wire protocol's key, for the envelope of what the provider attached to a call.
        max_calls: Calls in one response.
        max_arguments_bytes: UTF-8 bytes of one call's arguments.

    Raises:
        ModelProtocolError: From `add` and `finish`, when `fail` did not raise something else: an id or name that
            changes, a negative index, too many calls, too long arguments, a call without id or name, two calls with
            one id, or use after the end.

    Example:
        >>> collector = create_tool_call_collector()
        >>> collector.add(FunctionCallDelta(0, id="c1", name="look_up", arguments='{"id":25122920421'))
        >>> collector.add(FunctionCallDelta(0, arguments="21000001}"))
        >>> collector.finish()[0].input
        {'id': 2512292042121000001}
    """
    return _Collector(fail, provider, max_calls, max_arguments_bytes)


def parse_arguments(text: str, /) -> JsonValue:
    """Parse the arguments of a call: exact integers, blank text as `{}`, lone surrogates repaired.

    Raises:
        ValueError: The text is not JSON, or JSON that no record can hold: a number without a JSON form or of more
            than 4,300 digits, or about 180 containers inside each other.
    """
    if not text.strip():
        return {}
    try:
        value, may_hold_surrogates = parse_json(text)
        if may_hold_surrogates:
            value = repair_value(value)
        stored_json(value, inside=_AROUND)
    except CanonicalJsonError as error:
        raise ValueError(error.problem) from error
    return value


class _Buffer:
    __slots__ = ("fragments", "id", "index", "name", "options", "size")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.name: str | None = None
        self.fragments: list[str] = []
        self.size = 0
        self.options: JsonObject = {}

    def snapshot(self) -> NativeFunctionCall:
        return NativeFunctionCall(self.index, self.id, self.name, "".join(self.fragments))


class _Collector:
    def __init__(
        self, fail: ToolCallFailure | None, provider: str | None, max_calls: int, max_arguments_bytes: int
    ) -> None:
        self._report = fail
        self._provider = provider
        self._max_calls = max_calls
        self._max_bytes = max_arguments_bytes
        self._buffers: dict[int, _Buffer] = {}
        self._over: str | None = None

    @property
    def calls(self) -> tuple[NativeFunctionCall, ...]:
        return tuple(buffer.snapshot() for buffer in self._ordered())

    def add(self, delta: FunctionCallDelta, /) -> None:
        self._check_open()
        buffer = self._buffers.get(delta.index) or self._open(delta.index)
        buffer.id = self._settle("id", buffer.id, delta.id, delta.index)
        buffer.name = self._settle("name", buffer.name, delta.name, delta.index)
        if delta.arguments:
            buffer.size += len(delta.arguments.encode("utf-8", "surrogatepass"))
            if buffer.size > self._max_bytes:
                self._fail(f"the arguments of call {delta.index} are longer than {self._max_bytes} bytes")
            buffer.fragments.append(delta.arguments)
        if delta.provider_options:
            buffer.options.update(delta.provider_options)

    def finish(self) -> tuple[ToolCallPart, ...]:
        self._check_open()
        calls = tuple(self._whole(buffer) for buffer in self._ordered())
        if len({call.call_id for call in calls}) != len(calls):
            self._fail("two calls of one response have the same id")
        self._over = "the response was already finished"
        return calls

    def _ordered(self) -> list[_Buffer]:
        return [self._buffers[index] for index in sorted(self._buffers)]

    def _open(self, index: int) -> _Buffer:
        if index < 0:
            self._fail(f"a call has the negative index {index}")
        if len(self._buffers) >= self._max_calls:
            self._fail(f"a response has more than {self._max_calls} calls")
        buffer = self._buffers[index] = _Buffer(index)
        return buffer

    def _settle(self, what: str, known: str | None, given: str | None, index: int) -> str | None:
        if not given or given == known:
            return known
        if known:
            self._fail(f"the {what} of call {index} changes from {known!r} to {given!r}")
        return given

    def _whole(self, buffer: _Buffer) -> ToolCallPart:
        if not buffer.id or not buffer.name:
            self._fail(f"call {buffer.index} has no {'name' if buffer.id else 'id'}")
        call = buffer.snapshot()
        arguments = repair_text(call.arguments)
        fields: dict[str, object] = {"call_id": call.id, "tool_name": call.name, "arguments": arguments}
        with suppress(ValueError):  # no input is how a call says that its arguments are not JSON
            fields["input"] = parse_arguments(arguments)
        if buffer.options and self._provider:
            fields["provider"] = ProviderEnvelope(provider=self._provider, data=buffer.options)
        try:
            return ToolCallPart.model_validate(fields)
        except ValidationError:
            self._fail(f"call {buffer.index} cannot be recorded: its id and name need 1 to 512 characters each")

    def _check_open(self) -> None:
        if self._over is not None:
            self._fail(self._over)

    def _fail(self, detail: str) -> NoReturn:
        self._over = detail
        if self._report is not None:
            self._report("model.protocol", detail)
        model_protocol_error(detail)
