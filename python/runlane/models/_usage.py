"""What a call cost: reading a provider's figures, and adding them up without pretending to know more."""

from __future__ import annotations

from math import isfinite
from typing import Final, TypeVar

from runlane.models._stream import ModelUsage
from runlane.records import CostValue, Usage, UsageValue

__all__ = ["add_usage", "merge_usage", "read_count", "read_money", "stated_usage", "usage_from_model"]

_LARGEST: Final = 2**53 - 1
"""The largest integer every JSON reader holds exactly (RFC 8259, section 6)."""

_LABEL_LENGTH: Final = 3

_Fact = TypeVar("_Fact")

_UNKNOWN: Final = UsageValue(provenance="unavailable")
_NO_COST: Final = CostValue(provenance="unavailable")


def read_count(figure: object, /) -> int | None:
    """Read a provider's token count: a non-negative integer a JSON reader holds exactly, or None for anything else.

    Example:
        >>> read_count(12), read_count(12.0), read_count(12.5), read_count(-1), read_count(True)
        (12, 12, None, None, None)
    """
    if type(figure) is int:  # what nearly every figure is
        return figure if 0 <= figure <= _LARGEST else None
    if figure is None or isinstance(figure, bool) or not isinstance(figure, int | float):
        return None
    if not 0 <= figure <= _LARGEST or figure != int(figure):
        return None
    return int(figure)


def read_money(figure: object, /) -> float | None:
    """Read an amount of money: a finite non-negative number, or None for anything else."""
    if isinstance(figure, bool) or not isinstance(figure, int | float):
        return None
    try:
        amount = float(figure)
    except OverflowError:
        return None
    return amount if isfinite(amount) and amount >= 0 else None


def merge_usage(earlier: ModelUsage | None, later: ModelUsage, /) -> ModelUsage:
    """Replace the figures of an earlier report by those of a later one of the same response.

    A figure the later report leaves out keeps its earlier value; nothing is added.
    """
    if earlier is None:
        return later
    return ModelUsage(
        input_tokens=_later(earlier.input_tokens, later.input_tokens),
        output_tokens=_later(earlier.output_tokens, later.output_tokens),
        reasoning_tokens=_later(earlier.reasoning_tokens, later.reasoning_tokens),
        cache_read_tokens=_later(earlier.cache_read_tokens, later.cache_read_tokens),
        cache_write_tokens=_later(earlier.cache_write_tokens, later.cache_write_tokens),
        cost=_later(earlier.cost, later.cost),
        currency=_later(earlier.currency, later.currency),
        raw=_later(earlier.raw, later.raw),
    )


def usage_from_model(usage: ModelUsage | None, /) -> Usage:
    """State a call's usage: a figure the provider gave is `provider-reported`, any other `unavailable`.

    Args:
        usage: What the provider reported, or None if it reported nothing.
    """
    if usage is None:
        return Usage.unknown()
    cost = read_money(usage.cost)
    currency = usage.currency
    return Usage(
        input_tokens=_reported(usage.input_tokens),
        output_tokens=_reported(usage.output_tokens),
        reasoning_tokens=_reported(usage.reasoning_tokens),
        cache_read_tokens=_reported(usage.cache_read_tokens),
        cache_write_tokens=_reported(usage.cache_write_tokens),
        cost=_NO_COST
        if cost is None
        else CostValue(value=cost, currency=_currency(currency), provenance="provider-reported"),
    )


def stated_usage(usage: Usage, /) -> Usage:
    """Return usage with all six figures; one that is absent is `unavailable`. What is stored or told is stated."""
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens or _UNKNOWN,
        cache_read_tokens=usage.cache_read_tokens or _UNKNOWN,
        cache_write_tokens=usage.cache_write_tokens or _UNKNOWN,
        cost=usage.cost or _NO_COST,
    )


def add_usage(total: Usage | None, step: Usage, /) -> Usage:
    """Add what one step spent to a total.

    Tokens: both known gives their sum, one known gives that one as a lower bound, both `computed`; none known stays
    `unavailable`. Cost: unless both are known and carry the same label, the result is `unavailable`, and stays so.

    Args:
        total: The sum so far; None before the first step, which is then returned as it is.
        step: What to add.
    """
    if total is None:
        return step
    return Usage(
        input_tokens=_sum(total.input_tokens, step.input_tokens),
        output_tokens=_sum(total.output_tokens, step.output_tokens),
        reasoning_tokens=_sum(total.reasoning_tokens, step.reasoning_tokens),
        cache_read_tokens=_sum(total.cache_read_tokens, step.cache_read_tokens),
        cache_write_tokens=_sum(total.cache_write_tokens, step.cache_write_tokens),
        cost=_cost_sum(total.cost, step.cost),
    )


def _later(earlier: _Fact | None, later: _Fact | None) -> _Fact | None:
    return earlier if later is None else later


def _reported(figure: int | None) -> UsageValue:
    count = read_count(figure)
    return _UNKNOWN if count is None else UsageValue(value=count, provenance="provider-reported")


def _currency(label: str | None) -> str | None:
    plain = (
        label is not None and len(label) == _LABEL_LENGTH and label.isascii() and label.isalpha() and label.isupper()
    )
    return label if plain else None


def _sum(left: UsageValue | None, right: UsageValue | None) -> UsageValue:
    known = [figure.value for figure in (left, right) if figure is not None and figure.value is not None]
    return UsageValue(value=sum(known), provenance="computed") if known else _UNKNOWN


def _cost_sum(left: CostValue | None, right: CostValue | None) -> CostValue:
    if left is None or right is None or left.value is None or right.value is None:
        return _NO_COST
    if left.currency != right.currency:
        return _NO_COST
    total = left.value + right.value
    if not isfinite(total):
        return _NO_COST
    return CostValue(value=total, currency=left.currency, provenance="computed")
