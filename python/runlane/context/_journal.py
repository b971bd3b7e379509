"""What one request has done so far, as a projection of receipts.

A result enters only with its receipt: a failed or cancelled model call leaves nothing, and a failed tool shows as a
request without a result. The values are the host's: nothing here looks into them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from runlane.context._fragments import ContextFragment
from runlane.contracts import (
    Id,
    ModelCallRecord,
    ModelResult,
    ToolCallRecord,
    ToolResult,
    require_id,
    require_sync,
    sync_result,
)
from runlane.errors import InvalidValueError, UsageError

__all__ = ["ContextJournal", "ContextRecord", "ModelCallContext", "ToolRequestContext", "ToolResultContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallContext:
    """A model call that returned."""

    type: Literal["model_call"] = "model_call"
    receipt: ModelCallRecord
    value: object = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequestContext:
    """A tool was asked; whether it answered is another record."""

    type: Literal["tool_request"] = "tool_request"
    invocation_id: Id
    tool_id: Id
    input: object = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultContext:
    """A tool invocation that returned."""

    type: Literal["tool_result"] = "tool_result"
    receipt: ToolCallRecord
    value: object = field(repr=False, compare=False)


ContextRecord: TypeAlias = ModelCallContext | ToolRequestContext | ToolResultContext
"""One entry of a journal: a closed union on `type`."""


class ContextJournal:
    """Keeps one request's records in the order they came. In memory; it ends with the request.

    Example:
        >>> journal = ContextJournal()
        >>> journal.record_tool_request(Id("i-1"), Id("search"), {"query": "x"}).type
        'tool_request'
    """

    __slots__ = ("_answered", "_records", "_requested")

    def __init__(self) -> None:
        self._records: list[ContextRecord] = []
        self._requested: dict[Id, Id] = {}
        self._answered: set[Id] = set()

    @property
    def records(self) -> tuple[ContextRecord, ...]:
        """The records so far; later ones do not appear in it."""
        return tuple(self._records)

    def record_model(self, result: ModelResult[Any], /) -> ModelCallContext:
        """Note a model call by what it returned.

        Raises:
            UsageError: It has no receipt of a model call.
        """
        receipt = result.receipt
        if not isinstance(receipt, ModelCallRecord):
            raise UsageError(f"must be ModelCallRecord, not {type(receipt).__name__}", argument="result.receipt")
        record = ModelCallContext(receipt=receipt, value=result.value)
        self._records.append(record)
        return record

    def record_tool_request(self, invocation_id: Id, tool_id: Id, input: object, /) -> ToolRequestContext:  # noqa: A002 - what it is
        """Note that a tool is asked.

        Raises:
            InvalidValueError: The invocation was requested before.
        """
        require_id(invocation_id, argument="invocation_id")
        require_id(tool_id, argument="tool_id")
        if invocation_id in self._requested:
            raise InvalidValueError(f"{invocation_id!r} was requested before", argument="invocation_id")
        self._requested[invocation_id] = tool_id
        record = ToolRequestContext(invocation_id=invocation_id, tool_id=tool_id, input=input)
        self._records.append(record)
        return record

    def record_tool_result(self, result: ToolResult[Any], /) -> ToolResultContext:
        """Note what a requested invocation returned.

        Raises:
            InvalidValueError: The invocation was never requested, or of another tool, or has a result already.
            UsageError: It has no receipt of a tool invocation.
        """
        receipt = result.receipt
        if not isinstance(receipt, ToolCallRecord):
            raise UsageError(f"must be ToolCallRecord, not {type(receipt).__name__}", argument="result.receipt")
        invocation_id = receipt.invocation_id
        if self._requested.get(invocation_id) != receipt.tool_id:
            raise InvalidValueError(
                f"{invocation_id!r} was never requested of tool {receipt.tool_id!r}", argument="result.receipt"
            )
        if invocation_id in self._answered:
            raise InvalidValueError(f"{invocation_id!r} has a result already", argument="result.receipt")
        self._answered.add(invocation_id)
        record = ToolResultContext(receipt=receipt, value=result.value)
        self._records.append(record)
        return record

    def fragments(self, render: Callable[[ContextRecord], ContextFragment | None], /) -> tuple[ContextFragment, ...]:
        """Render the records in their order.

        Args:
            render: Makes a fragment of a record, or None to leave it out. A fragment that says nothing of its trust
                is `external`, the least trusted.

        Raises:
            UsageError: `render` is a coroutine function, or gave something else.
        """
        require_sync(render, argument="render")
        rendered = (sync_result(render(record), argument="render") for record in self.records)
        return tuple(_require_fragment(fragment) for fragment in rendered if fragment is not None)


def _require_fragment(value: object) -> ContextFragment:
    if not isinstance(value, ContextFragment):
        raise UsageError(f"gave {type(value).__name__}, not ContextFragment or None", argument="render")
    return value
