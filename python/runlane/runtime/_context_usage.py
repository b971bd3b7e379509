"""How full a model's window was at the last completed step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from runlane.contracts import require_kind
from runlane.models import ResolvedModel
from runlane.records import Usage, UsageValue

__all__ = ["ContextUsage", "context_usage"]

_NOTHING_YET: Final = UsageValue(provenance="unavailable")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUsage:
    """What `prepare_step` and stop policies may know of the context window.

    Attributes:
        used_tokens: Input tokens of the *last* completed step, as its provider counted them: the size of the prompt
            it answered, never a sum over steps. `unavailable`, not 0, before the first step. Of a provider that counts
            tokens of its cache beside the input it is the sum of both, `computed`.
        context_window: Of the model that answers, or None if nobody said.
    """

    used_tokens: UsageValue
    context_window: int | None


def context_usage(model: ResolvedModel, last_step: Usage | None, /) -> ContextUsage:
    """Return the usage to show before a step.

    Args:
        model: The model that answers the next step.
        last_step: What the step before it spent (`ResolvedModel.usage_of`), handed over with that step, so that it
            does not depend on who reads the stream when; None before the first.
    """
    require_kind(model, ResolvedModel, argument="model")
    require_kind(last_step, Usage | None, argument="last_step")
    used = _NOTHING_YET if last_step is None else last_step.input_tokens
    if last_step is not None and not model.provider.input_includes_cache:
        used = _with_cache(last_step)
    return ContextUsage(used_tokens=used, context_window=model.context_window)


def _with_cache(step: Usage) -> UsageValue:
    """Return the input with what was read from and written to the cache; as it is if neither is known."""
    cached = [figure.value for figure in (step.cache_read_tokens, step.cache_write_tokens) if figure is not None]
    known = [value for value in cached if value is not None]
    if step.input_tokens.value is None or not known:
        return step.input_tokens
    return UsageValue(value=step.input_tokens.value + sum(known), provenance="computed")
