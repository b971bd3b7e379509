"""Why compaction goes no further: the first turn that may not be replaced, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from typing_extensions import Unpack

from runlane.history._compaction import (
    SelectCompactableHistoryOptions,
    compaction_turns,
    select_compactable_history,
)
from runlane.history._policy import BARE_EVIDENCE, is_assistant_evidence
from runlane.records import (
    Message,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
)

__all__ = ["BarrierReason", "CompactionBarrier", "compaction_barrier"]

BarrierReason: TypeAlias = Literal[
    "no-user-input",
    "active-run",
    "pending-approval",
    "open-call",
    "unanswered-input",
    "not-evidence",
    "tool-chronology",
]


class CompactionBarrier(NamedTuple):
    """The first turn that compaction may not replace.

    Attributes:
        message_id: The turn's first message.
        reason: `no-user-input`: it does not begin with a user, such as a system text at the head. `active-run`: a run
            of it has not ended. `pending-approval`: a call waits for a person. `open-call`: a call never got a result
            and is not to be closed. `unanswered-input`: nobody answered. `not-evidence`: an answer failed, or was
            superseded, and the policy makes that a barrier. `tool-chronology`: its calls and results do not add up.
    """

    message_id: str
    reason: BarrierReason


def compaction_barrier(
    messages: Iterable[Message], /, **options: Unpack[SelectCompactableHistoryOptions]
) -> CompactionBarrier | None:
    """Return what stops compaction, or None if every turn is complete; for reports, it decides nothing.

    Args:
        messages: The records, oldest first.
        options: See `SelectCompactableHistoryOptions`.
    """
    retained = select_compactable_history(messages, 0, **options).retained
    if not retained:
        return None
    turn = compaction_turns(retained)[0]
    return CompactionBarrier(turn[0].id, _reason(turn, options))


def _reason(turn: Sequence[Message], options: SelectCompactableHistoryOptions) -> BarrierReason:
    active = options.get("active_runs", frozenset())
    policy = options.get("evidence_policy", BARE_EVIDENCE)
    answers = [record for record in turn if record.role == "assistant"]
    drops = policy.superseded == "drop"
    checks: tuple[tuple[bool, BarrierReason], ...] = (
        (turn[0].role != "user", "no-user-input"),
        (any(answer.run_id in active or answer.status == "streaming" for answer in answers), "active-run"),
        (_waits_for_approval(turn), "pending-approval"),
        (not answers, "unanswered-input"),
        (
            any(
                not is_assistant_evidence(answer.status, policy) and not (drops and answer.status == "superseded")
                for answer in answers
            ),
            "not-evidence",
        ),
        (_has_open_call(turn), "open-call"),
    )
    return next((reason for holds, reason in checks if holds), "tool-chronology")


def _waits_for_approval(turn: Sequence[Message]) -> bool:
    asked = {part.approval_id for record in turn for part in record.parts if isinstance(part, ToolApprovalRequestPart)}
    given = {part.approval_id for record in turn for part in record.parts if isinstance(part, ToolApprovalResponsePart)}
    return not asked <= given


def _has_open_call(turn: Sequence[Message]) -> bool:
    calls = {part.call_id for record in turn for part in record.parts if isinstance(part, ToolCallPart)}
    results = {part.call_id for record in turn for part in record.parts if isinstance(part, ToolResultPart)}
    return not calls <= results
