"""Turns, budget selection and compactable selection, slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from runlane.history import EvidencePolicy, is_assistant_evidence
from runlane.records import Message, TokenCount
from tests.oracles.projection import continues, has_ended


def compaction_turns(records: Sequence[Message]) -> list[list[int]]:
    """Turns of the records behind a leading summary: a user record opens one, everything else joins."""
    turns: list[list[int]] = []
    for index, record in enumerate(records):
        if index == 0 and record.role == "summary":
            continue
        opens = record.role == "user" and not continues(records, index)
        if opens or not turns:
            turns.append([])
        turns[-1].append(index)
    return turns


def budget_turns(records: Sequence[Message], policy: EvidencePolicy) -> list[list[int]]:
    """Turns of the spoken records; a system or summary record is one of its own."""
    turns: list[list[int]] = []
    closed = True
    for index, record in enumerate(records):
        if not is_spoken(record, policy):
            continue
        alone = record.role in {"system", "summary"}
        opens = record.role == "user" and not continues(records, index)
        if alone or opens or closed:
            turns.append([])
        turns[-1].append(index)
        closed = alone
    return turns


def is_spoken(record: Message, policy: EvidencePolicy) -> bool:
    """Whether the record is part of the history a model may see."""
    return record.role != "assistant" or is_assistant_evidence(record.status, policy)


def is_complete(  # noqa: C901, PLR0911, PLR0912 - the rule as the text has it
    records: Sequence[Message],
    turn: Sequence[int],
    policy: EvidencePolicy,
    active_runs: AbstractSet[str] = frozenset(),
    *,
    superseded_answer: bool = False,
) -> bool:
    """Whether the turn can stand or leave as a whole.

    Args:
        records: All records.
        turn: Indices into them.
        policy: What counts as evidence.
        active_runs: Runs that have not ended.
        superseded_answer: A superseded answer belongs to the turn though it is not among `turn`.
    """
    if not turn or records[turn[0]].role != "user":
        return False
    if any(records[i].role == "assistant" and records[i].run_id in active_runs for i in turn):
        return False
    drop = policy.superseded == "drop"
    answered = superseded_answer and drop
    calls: dict[str, str] = {}
    made_in: dict[str, int] = {}
    dead = 0
    approvals: dict[str, str] = {}
    unanswered: set[str] = set()
    for i in turn:
        record = records[i]
        if record.role == "assistant":
            answered = True
            if drop and record.status == "superseded":
                continue
            if not is_assistant_evidence(record.status, policy):
                return False
        for part in record.parts:
            match part.type:
                case "tool-call":
                    if (before := calls.get(part.call_id)) is not None:
                        is_over = before in {"called", "result"} and made_in[part.call_id] != i
                        if policy.dangling_calls != "close" or not is_over:
                            return False
                        dead += before == "called"
                    calls[part.call_id] = "called"
                    made_in[part.call_id] = i
                case "tool-approval-request":
                    if calls.get(part.call_id) != "called" or part.approval_id in approvals:
                        return False
                    approvals[part.approval_id] = part.call_id
                    calls[part.call_id] = "requested"
                    unanswered.add(part.approval_id)
                case "tool-approval-response":
                    if part.approval_id not in unanswered:
                        return False
                    unanswered.discard(part.approval_id)
                    calls[approvals[part.approval_id]] = "answered"
                case "tool-result":
                    if calls.get(part.call_id) not in {"called", "answered"}:
                        return False
                    calls[part.call_id] = "result"
                case _:
                    pass
    if not answered or unanswered:
        return False
    if not dead and all(phase == "result" for phase in calls.values()):
        return True
    return policy.dangling_calls == "close" and has_ended(records, turn[-1], active_runs)


@dataclass
class Selected:
    """What a budget selection says."""

    outcome: str
    kept: list[int]
    total: TokenCount
    decisions: list[tuple[str, str, str, TokenCount]]


UNAVAILABLE = TokenCount(provenance="unavailable")


def select(  # noqa: C901 - the steps of the text
    records: Sequence[Message],
    counts: Sequence[TokenCount],
    available: int,
    *,
    keep_recent_turns: int = 1,
    policy: EvidencePolicy | None = None,
    active_runs: AbstractSet[str] = frozenset(),
) -> Selected:
    """Select by steps, turn by turn, oldest first."""
    policy = policy or EvidencePolicy()
    spoken = [i for i, record in enumerate(records) if is_spoken(record, policy)]
    reasons: dict[int, str] = {
        i: "superseded" if record.status == "superseded" else "not-evidence"
        for i, record in enumerate(records)
        if i not in spoken
    }
    known: dict[int, TokenCount] = {}
    for i in spoken:
        if counts[i].value is None:
            decisions = [
                (record.id, "removed", reasons[i], UNAVAILABLE)
                if i in reasons
                else (record.id, "kept", "token-count-unavailable", known.get(i, UNAVAILABLE))
                for i, record in enumerate(records)
            ]
            return Selected("unavailable", spoken, UNAVAILABLE, decisions)
        known[i] = counts[i]

    turns = budget_turns(records, policy)
    system = [turn for turn in turns if records[turn[0]].role in {"system", "summary"}]
    complete = [
        turn
        for turn in turns
        if turn not in system
        and is_complete(records, turn, policy, active_runs, superseded_answer=_has_superseded_answer(records, turn))
    ]
    recent = complete[len(complete) - min(keep_recent_turns, len(complete)) :]
    total = sum(count.value or 0 for count in known.values())
    evicted = []
    for turn in complete:
        if total <= available:
            break
        if turn in recent:
            continue
        total -= sum(known[i].value or 0 for i in turn)
        evicted.append(turn)
    for turn in turns:
        if turn in evicted:
            reason = "oldest-eligible-turn"
        elif turn in system:
            reason = "protected-system"
        elif turn not in complete:
            reason = "protected-incomplete-turn"
        elif turn in recent:
            reason = "protected-recent-turn"
        else:
            reason = "within-budget"
        reasons.update(dict.fromkeys(turn, reason))
    estimated = any(count.provenance == "estimated" for count in known.values())
    removed = {"superseded", "not-evidence", "oldest-eligible-turn"}
    return Selected(
        "oversized" if total > available else "truncated" if evicted else "fits",
        [i for i in spoken if reasons[i] not in removed],
        TokenCount(value=total, provenance="estimated" if estimated else "computed"),
        [
            (record.id, "removed" if reasons[i] in removed else "kept", reasons[i], known.get(i, UNAVAILABLE))
            for i, record in enumerate(records)
        ],
    )


def _has_superseded_answer(records: Sequence[Message], turn: Sequence[int]) -> bool:
    """Whether a superseded answer follows the turn's records before anything of another turn."""
    after = turn[0] + 1
    while after < len(records):
        record = records[after]
        if record.role in {"system", "summary"} or (record.role == "user" and not continues(records, after)):
            return False
        if record.role == "assistant" and record.status == "superseded":
            return True
        after += 1
    return False


def compactable(
    records: Sequence[Message],
    keep_recent_turns: int,
    policy: EvidencePolicy,
    active_runs: AbstractSet[str] = frozenset(),
) -> tuple[int, int]:
    """Where the replaced range starts (behind a leading summary) and where it ends."""
    start = 1 if records and records[0].role == "summary" else 0
    turns = compaction_turns(records)
    units = []
    while turns:
        size = 1
        if not is_complete(records, turns[0], policy, active_runs):
            spanned = answered_within(records, turns) if policy.dangling_calls == "close" else None
            if spanned is None or not is_complete(records, joined(turns[:spanned]), policy, active_runs):
                break
            size = spanned
        units.append(joined(turns[:size]))
        turns = turns[size:]
    eligible = units[: max(0, len(units) - keep_recent_turns)]
    return start, eligible[-1][-1] + 1 if eligible else start


def joined(turns: Sequence[Sequence[int]]) -> list[int]:
    """Several turns as one."""
    return [index for turn in turns for index in turn]


def answered_within(records: Sequence[Message], turns: Sequence[Sequence[int]]) -> int | None:
    """How many turns it takes until what they ask for is answered; None if an approval still waits.

    As many as hold every answer and result that belongs to a call among them, and no more.
    """
    size = 1
    while True:
        inside = [part for i in joined(turns[:size]) for part in records[i].parts]
        later = [(n, part) for n, turn in enumerate(turns[size:], size) for i in turn for part in records[i].parts]
        calls = {p.call_id for p in inside if p.type == "tool-call"}
        calls -= {p.call_id for p in inside if p.type == "tool-result"}
        asked = {p.approval_id for p in inside if p.type == "tool-approval-request"}
        asked -= {p.approval_id for p in inside if p.type == "tool-approval-response"}
        if not calls:
            return size
        if not asked <= {p.approval_id for _, p in later if p.type == "tool-approval-response"}:
            return None
        needed = [
            n
            for n, p in later
            if (p.type == "tool-approval-response" and p.approval_id in asked)
            or (p.type == "tool-result" and p.call_id in calls)
        ]
        if not needed:
            return size
        size = max(needed) + 1
