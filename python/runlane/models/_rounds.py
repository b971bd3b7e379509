"""Calls and their results in the order every provider asks for: a round's results directly behind its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runlane.models._messages import AnyModelMessage, ModelAssistantToolMessage, ModelToolResultMessage
from runlane.records import ToolApprovalRequestPart, ToolCallPart, ToolResultPart

__all__ = ["settle_rounds"]

_WAITS: Final = "not run yet: the call waits for approval"
_MISSING: Final = "no result is known"


def settle_rounds(messages: Sequence[AnyModelMessage], /) -> list[AnyModelMessage]:
    """Return the messages with the results of each round in one message directly behind its calls.

    Providers refuse a call whose result is missing or stands elsewhere. A result that came late, after an approval,
    is moved to its call; a call without one is given a result that says so, in the request only. A result whose call
    is unknown stays where it is.
    """
    settled: list[AnyModelMessage | _Round] = []
    waiting: dict[str, _Round] = {}
    for message in messages:
        if isinstance(message, ModelToolResultMessage):
            unknown = tuple(result for result in message.results if not _deliver(result, waiting))
            if unknown:
                settled.append(ModelToolResultMessage(unknown))
            continue
        settled.append(message)
        if isinstance(message, ModelAssistantToolMessage) and message.tool_calls:
            found = _Round(message)
            settled.append(found)
            waiting.update(dict.fromkeys((call.call_id for call in message.tool_calls), found))
    return [item.close() if isinstance(item, _Round) else item for item in settled]


def _deliver(result: ToolResultPart, waiting: dict[str, _Round]) -> bool:
    round_ = waiting.pop(result.call_id, None)
    if round_ is not None:
        round_.results.append(result)
    return round_ is not None


class _Round:
    """The calls of one message, and the results that came for them."""

    def __init__(self, message: ModelAssistantToolMessage) -> None:
        self._message = message
        self.results: list[ToolResultPart] = []

    def close(self) -> ModelToolResultMessage:
        known = {result.call_id for result in self.results}
        if len(known) == len(self._message.tool_calls):
            return ModelToolResultMessage(tuple(self.results))
        asked = {item.call_id for item in self._message.items if isinstance(item, ToolApprovalRequestPart)}
        missing = (call for call in self._message.tool_calls if call.call_id not in known)
        return ModelToolResultMessage((*self.results, *(_substitute(call, asked) for call in missing)))


def _substitute(call: ToolCallPart, asked: set[str]) -> ToolResultPart:
    said = _WAITS if call.call_id in asked else _MISSING
    return ToolResultPart(
        call_id=call.call_id, tool_name=call.tool_name, outcome="interrupted", output={"message": said}
    )
