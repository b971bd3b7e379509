"""How full a model's window was at the last completed step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from runlane.models import ResolvedModel
from runlane.records import Usage, UsageValue

__all__ = ["ContextUsage", "context_usage"]

_NOTHING_YET: Final = UsageValue(provenance="unavailable")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUsage:
    """What `prepare_step` and stop policies may know of the context window.

    Attributes:
        used_tokens: Input tokens of the *last* completed step, as its provider counted them: the size of the prompt
            it answered, never a sum over steps. `unavailable`, not 0, before the first step.
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
    used = _NOTHING_YET if last_step is None else last_step.input_tokens
    return ContextUsage(used_tokens=used, context_window=model.context_window)
