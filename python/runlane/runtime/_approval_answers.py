"""Answers to approvals before they are inputs: their keys, who may give them, and whether they agree.

| an answer | becomes |
|---|---|
| the first to a request | an input of role `tool` under the key `tool-approval:<approval id>` |
| the same decision again | the run of the first |
| another decision | `RuntimeConflictError`; the first one stands |
| of somebody who may not give it | `ApprovalRejectedError`, also in the ledger; the call still waits |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from runlane.contracts import resolve, stray_ends
from runlane.errors import ApprovalRejectedError, InvalidValueError, RuntimeConflictError, UsageError
from runlane.records import Message, Part, ToolApprovalRequestPart, ToolApprovalResponsePart, ToolCallPart
from runlane.runtime._core import RuntimeCore
from runlane.runtime._inputs import RuntimeInput
from runlane.runtime._lane import ConversationLane
from runlane.runtime._policies import SubmittedInput
from runlane.runtime._tools_config import ApprovalAnswer
from runlane.store import AppendEvent

__all__ = ["approval_key", "authorize_answers", "check_key", "refuse_other_decision"]

_PREFIX: Final = "tool-approval:"


def approval_key(approval_id: str, /) -> str:
    """Return the idempotency key of the answer to an approval."""
    return _PREFIX + approval_id


def check_key(key: str, given: RuntimeInput, /) -> None:
    """Refuse a key of an approval's answer for anything but that answer.

    Raises:
        InvalidValueError: The key is reserved.
    """
    if key.startswith(_PREFIX) and [key] != [approval_key(one.approval_id) for one in _responses(given.parts)]:
        raise InvalidValueError(
            f"keys that begin with {_PREFIX!r} belong to answers of approvals (respond_to_approval); choose another",
            argument="idempotency_key",
        )


def refuse_other_decision(first: Sequence[Part], given: RuntimeInput, /) -> None:
    """Refuse an answer that differs from the one that was given before under its key.

    Raises:
        RuntimeConflictError: They disagree.
    """
    before = {one.approval_id: one.approved for one in _responses(first)}
    for one in _responses(given.parts):
        if before.get(one.approval_id, one.approved) != one.approved:
            word = "denied" if one.approved else "approved"
            raise RuntimeConflictError(
                f"approval {one.approval_id!r} was {word} before, and the first answer stands", operation="submit"
            )


async def authorize_answers(core: RuntimeCore, lane: ConversationLane, given: SubmittedInput, /) -> None:
    """Ask whether the answers among an input may be given; a request that does not wait is not asked about.

    Raises:
        ApprovalRejectedError: One may not; that is on record, and nothing else was written.
        UsageError: `tools.authorize_answer` gave neither None nor a text.
    """
    ask = core.config.tools.authorize_answer
    if ask is None or given.input.role != "tool":
        return
    for response in _responses(given.input.parts):
        found = _pending(await lane.mentions(response.approval_id), response.approval_id)
        if found is None:
            continue
        request, call = found
        answer = ApprovalAnswer(
            conversation_id=given.conversation_id,
            request=request,
            call=call,
            approved=response.approved,
            reason=response.reason,
            context=given.context,
        )
        with stray_ends("tools.authorize_answer"):
            refusal: object = await resolve(ask(answer))
        if refusal is None:
            continue
        if not isinstance(refusal, str) or not refusal:
            raise UsageError("must give None, or a text that says why not", argument="tools.authorize_answer")
        await lane.commit([_rejection(core, answer, refusal)])
        raise ApprovalRejectedError(approval_id=response.approval_id, reason=refusal)


def _pending(messages: Iterable[Message], approval_id: str) -> tuple[ToolApprovalRequestPart, ToolCallPart] | None:
    """Return an open request and its call."""
    found: tuple[ToolApprovalRequestPart, ToolCallPart] | None = None
    for message in messages:
        if any(one.approval_id == approval_id for one in _responses(message.parts)):
            return None
        calls = {part.call_id: part for part in message.parts if isinstance(part, ToolCallPart)}
        for part in message.parts:
            if isinstance(part, ToolApprovalRequestPart) and part.approval_id == approval_id:
                call = calls.get(part.call_id)
                found = found if call is None else (part, call)
    return found


def _rejection(core: RuntimeCore, answer: ApprovalAnswer[Any], reason: str) -> AppendEvent:
    return AppendEvent(
        command_id=core.ids.new("command"),
        at=core.clock.now(),
        kind="approval/response-rejected",
        payload={
            "approval_id": answer.request.approval_id,
            "call_id": answer.call.call_id,
            "tool_name": answer.call.tool_name,
            "reason": reason,
        },
    )


def _responses(parts: Iterable[Part]) -> list[ToolApprovalResponsePart]:
    return [part for part in parts if isinstance(part, ToolApprovalResponsePart)]
