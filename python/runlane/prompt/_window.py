"""The arithmetic of a context window: what is left for the history, with its sign."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias

from runlane.errors import InvalidValueError, UsageError
from runlane.models import BYTE_BOUND, ModelFunction, TokenCounter, count_tool_schemas
from runlane.records import TokenCount

__all__ = [
    "ContextDecision",
    "OversizePolicy",
    "PromptBudget",
    "available_history_tokens",
    "decide_window",
    "sum_tokens",
]

ContextDecision: TypeAlias = Literal["fits", "requires-compaction", "oversized", "unavailable"]
"""Whether a request fits its window: `unavailable` when a figure that decides it is not known."""

OversizePolicy: TypeAlias = Literal["reject", "compact"]
"""What a history that is too large calls for: an end, or a compaction."""

_NONE: Final = TokenCount(value=0, provenance="computed")
_UNAVAILABLE: Final = TokenCount(provenance="unavailable")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBudget:
    """A model's window, and what of it is taken before the history: each reservation a line of its own.

    Attributes:
        context_window: Tokens of input and output together.
        reserved_output: Tokens kept free for the answer.
        tool_schemas: What the tools of the request count; see `runlane.models.count_tool_schemas`.
        attachments: What files and images count.
        provider_overhead: What the provider adds by itself.

    Raises:
        UsageError: A number is no int, or a count no `TokenCount`.
        InvalidValueError: A number is negative or above 2**53 - 1.
    """

    context_window: int
    reserved_output: int
    tool_schemas: TokenCount
    attachments: TokenCount
    provider_overhead: TokenCount

    def __post_init__(self) -> None:
        for name in ("context_window", "reserved_output"):
            _whole(getattr(self, name), name)
        for name in ("tool_schemas", "attachments", "provider_overhead"):
            if not isinstance(getattr(self, name), TokenCount):
                raise UsageError("must be a TokenCount", argument=name)

    @classmethod
    def for_request(
        cls,
        *,
        context_window: int,
        reserved_output: int,
        functions: Sequence[ModelFunction] = (),
        counter: TokenCounter = BYTE_BOUND,
        attachments: TokenCount = _NONE,
        provider_overhead: TokenCount = _NONE,
    ) -> Self:
        """Return the budget of a request whose tools are known, and which has no attachments unless they are given.

        Example:
            >>> PromptBudget.for_request(context_window=8_000, reserved_output=1_000).tool_schemas.value
            0
        """
        return cls(
            context_window=context_window,
            reserved_output=reserved_output,
            tool_schemas=count_tool_schemas(functions, counter),
            attachments=attachments,
            provider_overhead=provider_overhead,
        )


def sum_tokens(counts: Iterable[TokenCount], /) -> TokenCount:
    """Add counts: unknown if one is unknown, `estimated` if one was estimated, else `computed`; nothing adds up to 0.

    Example:
        >>> sum_tokens([]).value
        0
    """
    total, provenance = 0, _NONE.provenance
    for count in counts:
        if count.value is None:
            return _UNAVAILABLE
        total += count.value
        if count.provenance == "estimated":
            provenance = "estimated"
    return TokenCount(value=total, provenance=provenance)


def available_history_tokens(budget: PromptBudget | None, instruction_tokens: TokenCount, /) -> int | None:
    """Return what the window leaves for the history: negative if what is reserved alone is too much, None if unknown.

    Example:
        >>> budget = PromptBudget.for_request(context_window=100, reserved_output=101)
        >>> available_history_tokens(budget, TokenCount(value=0, provenance="computed"))
        -1
    """
    if budget is None:
        return None
    reserved = sum_tokens((budget.tool_schemas, budget.attachments, budget.provider_overhead, instruction_tokens))
    if reserved.value is None:
        return None
    return budget.context_window - budget.reserved_output - reserved.value


def decide_window(
    available: int | None, history_tokens: TokenCount | None, oversize_policy: OversizePolicy = "reject", /
) -> ContextDecision:
    """Say whether a history fits what is left for it.

    | first that holds | decision |
    |---|---|
    | one of both is unknown | `unavailable` |
    | less than nothing is left | `oversized`, whatever the policy: no compaction could help |
    | the history is not larger than what is left | `fits` |
    | the policy is `compact` | `requires-compaction` |
    | otherwise | `oversized` |
    """
    if available is None or history_tokens is None or history_tokens.value is None:
        return "unavailable"
    if available < 0:
        return "oversized"
    if history_tokens.value <= available:
        return "fits"
    return "requires-compaction" if oversize_policy == "compact" else "oversized"


def _whole(value: object, argument: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"must be an integer, not {type(value).__name__}", argument=argument)
    if not 0 <= value < 2**53:
        raise InvalidValueError(f"must be from 0 to 2**53 - 1, got {value}", argument=argument)
