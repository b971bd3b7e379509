"""What of a history may be replaced by a summary: the pure half of compaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from typing_extensions import Unpack

from runlane._native import HistoryLog
from runlane.history._bridge import log_of, require_count
from runlane.history._given import given_texts, require_names
from runlane.history._policy import BARE_EVIDENCE, EvidencePolicy, packed_policy
from runlane.history._spans import unit_ends
from runlane.records import Message

__all__ = [
    "CompactableHistory",
    "CompactableRange",
    "SelectCompactableHistoryOptions",
    "compactable_range",
    "compaction_turns",
    "is_complete_turn",
    "select_compactable_history",
]


class CompactableRange(NamedTuple):
    """Which records of a handle may be replaced: those from `start` to `end`, and a summary in front of them.

    Attributes:
        leading_summary: Whether record 0 is a summary, which is replaced too.
    """

    leading_summary: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactableHistory:
    """What may be replaced by a summary, and what stays.

    `compactable` and `retained` together are the input without its leading summary. No turn is split. Nothing eligible
    is an empty selection, not an error.

    Attributes:
        leading_summary: The summary at the head of the input; a caller replaces it together with `compactable`, so
            that summaries never pile up.
        compactable: The oldest complete turns.
        retained: Everything else, in order.
        summarised: What a summariser is shown of `compactable`: everything but superseded answers.
    """

    leading_summary: Message | None
    compactable: tuple[Message, ...]
    retained: tuple[Message, ...]
    summarised: tuple[Message, ...]


class SelectCompactableHistoryOptions(TypedDict, total=False):
    """Options of `select_compactable_history`.

    Attributes:
        evidence_policy: See `EvidencePolicy`; `BARE_EVIDENCE` by default.
        active_runs: Ids of the runs that have not ended; their turns are barriers.
    """

    evidence_policy: EvidencePolicy
    active_runs: AbstractSet[str]


def select_compactable_history(
    messages: Iterable[Message],
    keep_recent_turns: int,
    /,
    **options: Unpack[SelectCompactableHistoryOptions],
) -> CompactableHistory:
    """Select the oldest complete turns but the newest `keep_recent_turns` of them.

    The first turn that is not complete is a barrier: nothing behind it is eligible, whatever the policy. Under
    `dangling_calls="close"` an approval that a person answered some turns later is no barrier any more: the turns from
    its request to its answer count as one, and are replaced together or not at all.

    Raises:
        UsageError: `keep_recent_turns` is no int.
        InvalidValueError: It is negative or too large, or a message holds what is not JSON.
    """
    records = tuple(messages)
    leads, start, end = compactable_range(log_of(records), keep_recent_turns, options)
    compactable = records[start:end]
    return CompactableHistory(
        leading_summary=records[0] if leads else None,
        compactable=compactable,
        retained=records[end:],
        summarised=tuple(
            record for record in compactable if not (record.role == "assistant" and record.status == "superseded")
        ),
    )


def compactable_range(
    log: HistoryLog, keep_recent_turns: int, options: SelectCompactableHistoryOptions
) -> CompactableRange:
    """Select from a native handle."""
    keep = require_count(keep_recent_turns, "keep_recent_turns")
    evidence = options.get("evidence_policy", BARE_EVIDENCE)
    require_names(options, SelectCompactableHistoryOptions.__annotations__)
    policy, active = packed_policy(evidence), given_texts(options.get("active_runs", ()), "active_runs")
    leads, end = log.compactable(keep, policy, active)
    if evidence.dangling_calls == "close":
        _, barrier = log.compactable(0, policy, active)
        if barrier < len(log):
            ends = unit_ends(log, barrier, policy, active)
            eligible = ends[: max(0, len(ends) - keep)]
            end = eligible[-1] if eligible else int(leads)
    return CompactableRange(leads, int(leads), end)


def compaction_turns(messages: Iterable[Message], /) -> tuple[tuple[Message, ...], ...]:
    """Cut records into the turns of compaction, a leading summary left out.

    A user record opens a turn; users strictly behind each other share one; everything else joins the turn it stands
    in. (A token budget cuts otherwise: there a system or summary record is a turn of its own.)
    """
    records = tuple(messages)
    starts = log_of(records).compaction_turns()
    return tuple(records[start:end] for start, end in zip(starts, [*starts[1:], len(records)], strict=False))


def is_complete_turn(
    turn: Sequence[Message],
    evidence_policy: EvidencePolicy = BARE_EVIDENCE,
    /,
    *,
    active_runs: AbstractSet[str] = frozenset(),
) -> bool:
    """Whether the records of one turn can be removed or replaced as a whole.

    A complete turn starts with a user record, has an answer, every answer in it is evidence, and its calls, results
    and approvals add up; see `EvidencePolicy` for what else may be tolerated.
    """
    policy, active = packed_policy(evidence_policy), given_texts(active_runs, "active_runs")
    return log_of(turn).is_complete(0, len(turn), policy, active)
