"""What a step on OpenRouter spent, read from the provider's own object and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from runlane.models._stream import ModelUsage
from runlane.models._usage import read_count, read_money
from runlane.records import CostValue, Usage, UsageValue

__all__ = ["normalize_openrouter_usage"]

_UNKNOWN: Final = UsageValue(provenance="unavailable")


def normalize_openrouter_usage(
    usage: ModelUsage | None, provider_metadata: Mapping[str, object] | None = None, /
) -> Usage:
    """State what one step spent; all six figures are there, unknown ones `unavailable`. Never raises.

    | figure | where it is read |
    |---|---|
    | input tokens | `prompt_tokens` |
    | output tokens | `completion_tokens` |
    | reasoning tokens | `completion_tokens_details.reasoning_tokens` |
    | tokens read from a cache | `prompt_tokens_details.cached_tokens` |
    | tokens written to a cache | `prompt_tokens_details.cache_write_tokens` |
    | cost, in USD | `openrouter.cost` of the metadata, else its `openrouter.usage.cost`, else `cost` |

    Only the raw object is evidence: figures that somebody derived from it are not read, since an absent one may have
    been turned into 0. An explicit 0 is a figure. Cost is never worked out from prices.

    Args:
        usage: What the step reported; its `raw` is read.
        provider_metadata: What a library between here and OpenRouter passed on beside it.
    """
    raw = None if usage is None else usage.raw
    prompt, completion = _inside(raw, "prompt_tokens_details"), _inside(raw, "completion_tokens_details")
    return Usage(
        input_tokens=_count(raw, "prompt_tokens"),
        output_tokens=_count(raw, "completion_tokens"),
        reasoning_tokens=_count(completion, "reasoning_tokens"),
        cache_read_tokens=_count(prompt, "cached_tokens"),
        cache_write_tokens=_count(prompt, "cache_write_tokens"),
        cost=_cost(_inside(provider_metadata, "openrouter"), raw),
    )


def _inside(holder: object, key: str) -> Mapping[str, object] | None:
    value = holder.get(key) if isinstance(holder, Mapping) else None
    return value if isinstance(value, Mapping) else None


def _count(holder: Mapping[str, object] | None, key: str) -> UsageValue:
    count = None if holder is None else read_count(holder.get(key))
    return _UNKNOWN if count is None else UsageValue(value=count, provenance="provider-reported")


def _cost(metadata: Mapping[str, object] | None, raw: Mapping[str, object] | None) -> CostValue:
    for holder in (metadata, _inside(metadata, "usage"), raw):
        cost = None if holder is None else read_money(holder.get("cost"))
        if cost is not None:
            return CostValue(value=cost, currency="USD", provenance="provider-reported")
    return CostValue(provenance="unavailable")
