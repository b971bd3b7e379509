"""Which calls an answer has, and what each of them still may get.

| part | only |
|---|---|
| call | with an id no other call has |
| result | of a call without one, under its tool's name |
| request for consent | for a call without a result, once |
| consent | for a request without an answer |
| to be carried out | a call that was added by this turn as it is, without a result, once |

Whoever answers a turn may get these wrong; kept on record, no provider would take the conversation again.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from runlane.errors import InvalidValueError, UsageError
from runlane.records import (
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
    validated,
)
from runlane.runtime._draft import check_storable
from runlane.runtime._left_open import LeftOpen

__all__ = ["Pairing", "check_names", "check_tool_part"]

_ToolPart: TypeAlias = ToolCallPart | ToolResultPart | ToolApprovalRequestPart | ToolApprovalResponsePart

_TOOL_PARTS: Final = (ToolCallPart, ToolResultPart, ToolApprovalRequestPart, ToolApprovalResponsePart)

_LONGEST_ID: Final = 500
"""Characters of a call's id that are kept where it has to be told from another."""


def check_tool_part(part: object, /) -> None:
    """Refuse a part of tool traffic that has no stored form, or was made around its own checks.

    The latter could be written, and never read again.

    Raises:
        InvalidValueError: A field is malformed; names it.
    """
    if isinstance(part, _TOOL_PARTS):
        validated(type(part), part.__dict__, argument="part")
        check_storable(part, part.type)


class Pairing:
    """The calls of one answer."""

    def __init__(self, left: LeftOpen, /) -> None:
        """Begin with what an earlier execution left, and with the calls of other runs that this one is to answer."""
        self._known = set(left.asked_ids)
        self._open: dict[str, str] = {}
        self._startable: dict[str, ToolCallPart] = {}
        self._asked: set[str] = set()
        self._waiting: set[str] = set()
        if left:
            self._adopt(left)

    def _adopt(self, left: LeftOpen) -> None:
        for call in (*left.open_calls, *(entry.call for entry in left.unanswered)):
            self._open[call.call_id] = call.tool_name
        for part in left.kept:
            if isinstance(part, ToolCallPart):
                self._known.add(part.call_id)
            elif isinstance(part, ToolApprovalRequestPart):
                self._asked.add(part.call_id)
                self._waiting.add(part.approval_id)
            elif isinstance(part, ToolApprovalResponsePart):
                self._waiting.discard(part.approval_id)

    def take(self, part: _ToolPart, /) -> None:
        """Note what is about to be added.

        Raises:
            InvalidValueError: It fits nothing in the answer; names the field.
        """
        match part:
            case ToolCallPart():
                self._take_call(part)
            case ToolResultPart():
                name = self._name(part.call_id)
                if part.tool_name != name:
                    raise InvalidValueError(f"must be {name[:64]!r}, as in the call", argument="part.tool_name")
                del self._open[part.call_id]
                self._startable.pop(part.call_id, None)
            case ToolApprovalRequestPart():
                self._name(part.call_id)
                if part.call_id in self._asked:
                    raise InvalidValueError(
                        f"consent to the call {part.call_id[:64]!r} was asked for already", argument="part.call_id"
                    )
                self._asked.add(part.call_id)
                self._waiting.add(part.approval_id)
            case ToolApprovalResponsePart():
                if part.approval_id not in self._waiting:
                    raise InvalidValueError(
                        f"no request {part.approval_id[:64]!r} of this answer waits", argument="part.approval_id"
                    )
                self._waiting.discard(part.approval_id)

    def _take_call(self, call: ToolCallPart) -> None:
        if call.call_id in self._known:
            raise InvalidValueError(
                f"another call has the id {call.call_id[:64]!r}; take ids from `tools.distinct`",
                argument="part.call_id",
            )
        self._known.add(call.call_id)
        self._open[call.call_id] = call.tool_name
        self._startable[call.call_id] = call

    def start(self, calls: Sequence[ToolCallPart], /) -> None:
        """Note that calls are about to be carried out.

        Raises:
            UsageError: They are no calls.
            InvalidValueError: One was not added to the answer as it is, has its result, or is carried out already;
                then none of them is noted.
        """
        _check_calls(calls)
        taken: set[str] = set()
        for place, call in enumerate(calls):
            if call.call_id in taken or self._startable.get(call.call_id) != call:
                raise InvalidValueError(
                    f"the call {call.call_id[:64]!r} is none that was emitted in this turn and waits to be carried out",
                    argument=f"calls.{place}",
                )
            taken.add(call.call_id)
        for call_id in taken:
            del self._startable[call_id]

    def distinct(self, calls: Sequence[ToolCallPart], /) -> tuple[ToolCallPart, ...]:
        """Return calls with ids no earlier call of the run has; see `TurnTools.distinct`."""
        _check_calls(calls)
        known = self._known.copy()
        found: list[ToolCallPart] = []
        for call in calls:
            call_id, count = call.call_id, 1
            while call_id in known:
                count += 1
                call_id = f"{call.call_id[:_LONGEST_ID]}~{count}"
            known.add(call_id)
            found.append(call if call_id == call.call_id else call.model_copy(update={"call_id": call_id}))
        return tuple(found)

    def _name(self, call_id: str) -> str:
        """Return the tool of a call without a result."""
        name = self._open.get(call_id)
        if name is None:
            raise InvalidValueError(
                f"there is no call {call_id[:64]!r} without a result in the answer", argument="part.call_id"
            )
        return name


def _check_calls(calls: object, /) -> None:
    """Refuse what is no sequence of calls.

    Raises:
        UsageError: It is none.
    """
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise UsageError(f"must be a sequence of ToolCallParts, not {type(calls).__name__}", argument="calls")
    for place, call in enumerate(calls):
        if not isinstance(call, ToolCallPart):
            raise UsageError(f"must be a ToolCallPart, not {type(call).__name__}", argument=f"calls.{place}")


def check_names(active: object, /) -> None:
    """Refuse what is no set of tools' names.

    Raises:
        UsageError: It is none, nor None.
    """
    if active is not None and not (isinstance(active, AbstractSet) and all(isinstance(name, str) for name in active)):
        raise UsageError(f"must be a set of names or None, not {type(active).__name__}", argument="active")
