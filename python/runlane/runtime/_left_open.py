"""What a run finds open when it begins: calls of an execution that died, and calls that somebody has agreed to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from runlane.errors import ToolApprovalError
from runlane.models import (
    AnyModelMessage,
    ModelAssistantToolMessage,
    ModelMessage,
    ModelToolResultMessage,
)
from runlane.records import (
    JsonObject,
    Message,
    Part,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
)
from runlane.runtime._lane_records import LaneRecords
from runlane.tools import ApprovalSeal

__all__ = ["AnsweredCall", "Joined", "LeftOpen", "answered_calls", "kept_parts", "spoken_rounds"]

_TOOL_PARTS: Final = (ToolCallPart, ToolResultPart, ToolApprovalRequestPart, ToolApprovalResponsePart)
_ANSWERABLE: Final = frozenset({"committed", "completed", "interrupted", "failed"})
"""Answers whose questions stand: those a model is shown. A question nobody may answer would wait for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredCall:
    """A call that waited for consent, and the answer that an input of this run gives.

    Attributes:
        run_id: The run that asked; with the call's id it names the call for ever.
    """

    run_id: str
    call: ToolCallPart
    request: ToolApprovalRequestPart
    response: ToolApprovalResponsePart


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Inputs of another run that joined this one before it was cut off, and that what is kept was said after.

    Attributes:
        after: How many parts of the answer there were when they joined.
        run_id: The run they belong to.
    """

    after: int
    run_id: str
    messages: tuple[Message, ...]

    def to_json(self) -> JsonObject:
        """Return what the ledger keeps of it."""
        return {"after": self.after, "run_id": self.run_id, "message_ids": [message.id for message in self.messages]}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOpen:
    """What is to be dealt with before the model is asked.

    Attributes:
        kept: What an earlier execution of the run made durable and is gone on from: everything up to its last tool
            call or result. What it said after that is superseded by what is said now.
        answered: Calls that an input of the run answers.
        waits: Another call beside an answered one still has no answer: the model is not asked before it has one.
        asked_ids: Ids of calls of the conversation that waited, or wait, for consent: no other call may have one.
        joined: Inputs that the model saw before it said what is kept, in the order in which they joined.
    """

    kept: tuple[Part, ...] = ()
    answered: tuple[AnsweredCall, ...] = ()
    waits: bool = False
    asked_ids: frozenset[str] = frozenset()
    joined: tuple[Joined, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kept or self.answered)

    @property
    def open_calls(self) -> tuple[ToolCallPart, ...]:
        """The kept calls without a result, in order."""
        done = {part.call_id for part in self.kept if isinstance(part, ToolResultPart)}
        return tuple(part for part in self.kept if isinstance(part, ToolCallPart) and part.call_id not in done)

    @property
    def unanswered(self) -> tuple[AnsweredCall, ...]:
        """The answered calls that an earlier execution of this run has not carried out."""
        done = {part.call_id for part in self.kept if isinstance(part, ToolResultPart)}
        return tuple(entry for entry in self.answered if entry.call.call_id not in done)


def kept_parts(draft: Message | None, /) -> tuple[Part, ...]:
    """Return what of an earlier execution's draft is gone on from."""
    parts = () if draft is None else draft.parts
    last = max((index for index, part in enumerate(parts) if isinstance(part, _TOOL_PARTS)), default=-1)
    return parts[: last + 1]


def answered_calls(
    records: LaneRecords, seal: ApprovalSeal, conversation_id: str, /
) -> tuple[tuple[AnsweredCall, ...], bool]:
    """Find the calls that the inputs shown answer.

    Returns:
        The calls, and whether another call beside one of them still waits.

    Raises:
        ToolApprovalError: An answer fits no open request.
    """
    inputs = [message for message in records.shown if message.role == "tool"]
    own = {message.id for message in inputs}
    given: dict[str, ToolApprovalResponsePart] = {}
    for response in _responses(inputs):
        if response.approval_id in given:
            raise ToolApprovalError(approval_id=response.approval_id, problem="answered")
        given[response.approval_id] = response
    found: list[AnsweredCall] = []
    waits = False
    for response in given.values():
        asking, entry = _asked(records, seal, conversation_id, response, own)
        found.append(entry)
        waits = waits or any(_still_waits(records, request, given) for request in _requests(asking))
    return tuple(found), waits


def _responses(messages: Iterable[Message]) -> Iterable[ToolApprovalResponsePart]:
    return (part for message in messages for part in message.parts if isinstance(part, ToolApprovalResponsePart))


def _requests(message: Message) -> list[ToolApprovalRequestPart]:
    return [part for part in message.parts if isinstance(part, ToolApprovalRequestPart)]


def _asked(
    records: LaneRecords,
    seal: ApprovalSeal,
    conversation_id: str,
    response: ToolApprovalResponsePart,
    own: set[str],
) -> tuple[Message, AnsweredCall]:
    """Return the message that asked, and the call it asked about."""
    approval_id = response.approval_id
    asking: Message | None = None
    for message in records.mentioning(approval_id):
        if message.id not in own and any(part.approval_id == approval_id for part in _responses([message])):
            raise ToolApprovalError(approval_id=approval_id, problem="answered")
        if any(request.approval_id == approval_id for request in _requests(message)):
            asking = message
    if asking is None or asking.run_id is None or asking.status not in _ANSWERABLE:
        raise ToolApprovalError(approval_id=approval_id, problem="unknown")
    request = next(request for request in _requests(asking) if request.approval_id == approval_id)
    calls = (part for part in asking.parts if isinstance(part, ToolCallPart) and part.call_id == request.call_id)
    call = next(calls, None)
    if call is None or not seal.is_genuine(request, call, conversation_id=conversation_id, run_id=asking.run_id):
        raise ToolApprovalError(approval_id=approval_id, problem="forged")
    return asking, AnsweredCall(run_id=asking.run_id, call=call, request=request, response=response)


def _still_waits(
    records: LaneRecords, request: ToolApprovalRequestPart, given: dict[str, ToolApprovalResponsePart]
) -> bool:
    if request.approval_id in given:
        return False
    mentions = records.mentioning(request.approval_id)
    return not any(part.approval_id == request.approval_id for part in _responses(mentions))


def spoken_rounds(parts: Sequence[Part], /) -> tuple[AnyModelMessage, ...]:
    """Return an answer's parts as they are given back to the model that made them: rounds of calls and results."""
    messages: list[AnyModelMessage] = []
    said: list[TextPart | ReasoningPart | ProviderPart | ToolCallPart] = []
    results: list[ToolResultPart] = []

    def close() -> None:
        if said:
            has_calls = any(isinstance(part, ToolCallPart) for part in said)
            messages.append(ModelAssistantToolMessage(tuple(said)) if has_calls else _plain(said))
        if results:
            messages.append(ModelToolResultMessage(tuple(results)))
        said.clear()
        results.clear()

    for part in parts:
        if isinstance(part, ToolResultPart):
            results.append(part)
        elif isinstance(part, TextPart | ReasoningPart | ProviderPart | ToolCallPart):
            if results:
                close()
            said.append(part)
    close()
    return tuple(messages)


def _plain(said: Sequence[TextPart | ReasoningPart | ProviderPart | ToolCallPart]) -> ModelMessage:
    return ModelMessage("assistant", tuple(part for part in said if not isinstance(part, ToolCallPart)))
