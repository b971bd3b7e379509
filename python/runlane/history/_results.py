"""What projection and selection answer with."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from runlane.records import TokenCount

__all__ = [
    "BudgetDecision",
    "BudgetOutcome",
    "BudgetReason",
    "ProjectionDecision",
    "ProjectionReason",
]

ProjectionReason: TypeAlias = Literal[
    "projected",
    "draft-or-failed",
    "empty",
    "leading-assistant",
    "incomplete-tool-turn",
    "interrupted",
    "superseded",
]

BudgetOutcome: TypeAlias = Literal["fits", "truncated", "oversized", "unavailable"]

BudgetReason: TypeAlias = Literal[
    "superseded",
    "not-evidence",
    "oldest-eligible-turn",
    "protected-system",
    "protected-incomplete-turn",
    "protected-recent-turn",
    "within-budget",
    "token-count-unavailable",
]


class ProjectionDecision(NamedTuple):
    """What became of one record in a projection.

    Attributes:
        omitted_parts: Of a projected record: its part types that nothing in the messages stands for, each once, in
            the order they first appear. Empty on an omitted record.
    """

    message_id: str
    action: Literal["projected", "omitted"]
    reason: ProjectionReason
    omitted_parts: tuple[str, ...] = ()


class BudgetDecision(NamedTuple):
    """What became of one record in a budget selection.

    Attributes:
        tokens: What the record counts; `unavailable` for one that was not counted.
    """

    message_id: str
    action: Literal["kept", "removed"]
    reason: BudgetReason
    tokens: TokenCount
