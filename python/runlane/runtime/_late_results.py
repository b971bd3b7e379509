"""Calls whose results come late, in a form every provider takes: a call is answered at once, or its place is held.

A call that waits for consent has no result while the conversation goes on, and gets one when others have spoken since.
No wire protocol has a form for either. So such a call is answered at its place by a note that it waits, and the real
result stands where it came, as a message that says which call it belongs to. What was said before stays as it was, so
a provider's cache of it stays good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runlane.canonical import canonical_record_json
from runlane.models import AnyModelMessage, ModelAssistantToolMessage, ModelMessage, ModelToolResultMessage
from runlane.records import ToolApprovalResponsePart, ToolCallPart, ToolResultPart

__all__ = ["with_late_results"]

_WAITS: Final = "This call waits for somebody's consent. Its result will follow in a later message."


def with_late_results(messages: Sequence[AnyModelMessage], /) -> tuple[AnyModelMessage, ...]:
    """Return messages in which every call has exactly one result, directly after it.

    Messages without such calls are returned as they are.
    """
    placed: list[AnyModelMessage] = []
    open_calls: dict[str, ToolCallPart] = {}
    for message in messages:
        if isinstance(message, ModelToolResultMessage):
            placed.extend(_answers(message, open_calls))
            continue
        placed.extend(_notes(open_calls))
        placed.append(message)
        if isinstance(message, ModelAssistantToolMessage):
            open_calls.update({call.call_id: call for call in message.tool_calls})
    placed.extend(_notes(open_calls))
    return tuple(placed)


def _answers(message: ModelToolResultMessage, open_calls: dict[str, ToolCallPart]) -> list[AnyModelMessage]:
    """Return what answers open calls as it is, and what comes too late for that as messages of their own."""
    kept: list[ToolResultPart | ToolApprovalResponsePart] = []
    late: list[ToolResultPart] = []
    for item in message.items:
        if isinstance(item, ToolResultPart) and item.call_id not in open_calls:
            late.append(item)
            continue
        if isinstance(item, ToolResultPart):
            del open_calls[item.call_id]
        kept.append(item)
    if not late:
        return [message]
    told: list[AnyModelMessage] = [ModelToolResultMessage(tuple(kept))] if kept else []
    return [*told, *_notes(open_calls), *(_told(result) for result in late)]


def _notes(open_calls: dict[str, ToolCallPart]) -> list[AnyModelMessage]:
    """Return what holds the places of calls that are still open, and close them."""
    notes = tuple(
        ToolResultPart(
            call_id=call.call_id, tool_name=call.tool_name, outcome="interrupted", output={"message": _WAITS}
        )
        for call in open_calls.values()
    )
    open_calls.clear()
    return [ModelToolResultMessage(notes)] if notes else []


def _told(result: ToolResultPart) -> ModelMessage:
    facts = {"call_id": result.call_id, "tool": result.tool_name, "outcome": result.outcome, "output": result.output}
    return ModelMessage.user(f"[late tool result] {canonical_record_json(facts).decode()}")
