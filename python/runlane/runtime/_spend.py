"""What a run spends, and how long it takes."""

from __future__ import annotations

from typing import Final

from runlane.clock import Clock
from runlane.models import ModelUsage, ResolvedModel, add_usage
from runlane.records import CostValue, RunMetrics, Usage, UsageValue

__all__ = ["Spend", "computed"]

_UNKNOWN: Final = Usage.unknown()
_NO_TOKENS: Final = UsageValue(provenance="unavailable")
_NO_COST: Final = CostValue(provenance="unavailable")


def computed(usage: Usage | None, /) -> Usage:
    """State a run's total: every known figure is `computed`, every other `unavailable`."""
    if usage is None:
        return _UNKNOWN
    cost = usage.cost
    return Usage(
        input_tokens=_tokens(usage.input_tokens),
        output_tokens=_tokens(usage.output_tokens),
        reasoning_tokens=_tokens(usage.reasoning_tokens),
        cache_read_tokens=_tokens(usage.cache_read_tokens),
        cache_write_tokens=_tokens(usage.cache_write_tokens),
        cost=_NO_COST
        if cost is None or cost.value is None
        else CostValue(value=cost.value, currency=cost.currency, provenance="computed"),
    )


def _tokens(figure: UsageValue | None) -> UsageValue:
    if figure is None or figure.value is None:
        return _NO_TOKENS
    return UsageValue(value=figure.value, provenance="computed")


class Spend:
    """Usage and durations of one execution; starts from what earlier executions of the run spent.

    Attributes:
        last_step: What the last call that ended spent, with the provider's own provenance; None before it.
        finished: Whether the last call ended well.
    """

    def __init__(self, clock: Clock, before: Usage | None, /) -> None:
        """Start the clock: the run was just acquired."""
        self._clock = clock
        self._total = before
        self._model: ResolvedModel | None = None
        self._step: ModelUsage | None = None
        self._reported: Usage | None = None
        self._started = clock.monotonic()
        self._first_output: float | None = None
        self.last_step: Usage | None = None
        self.finished = False

    def begin_step(self, model: ResolvedModel, /) -> None:
        """Begin a call; its figures are read as its model's adapter reads them."""
        self._model = model

    def report(self, usage: ModelUsage, /) -> None:
        """Take what the provider says of the open call; it replaces what it said before."""
        self._step, self._reported = usage, None

    def first_output(self) -> bool:
        """Note output of the model; True for the first one of the run."""
        if self._first_output is not None:
            return False
        self._first_output = self._clock.monotonic()
        return True

    def end_step(self, *, finished: bool) -> None:
        """Add the call that just ended; one that was cut before anything was reported adds nothing, not even doubt."""
        if self._model is None:
            return
        self.finished = finished
        self.last_step = self._of_step(self._model)
        if finished or self._step is not None:
            self._total = add_usage(self._total, self.last_step)
        self._model = self._step = self._reported = None

    def add(self, usage: Usage, /) -> None:
        """Add what was spent beside the calls of the loop, by a summariser for instance."""
        self._total = add_usage(self._total, usage)

    @property
    def so_far(self) -> Usage | None:
        """The total with what the open call reported, or None while nothing was reported."""
        if self._step is None or self._model is None:
            return self._total
        return add_usage(self._total, self._of_step(self._model))

    def _of_step(self, model: ResolvedModel) -> Usage:
        """Return what the open call reported, read once."""
        if self._reported is None:
            self._reported = model.usage_of(self._step)
        return self._reported

    def metrics(self, *, partial: bool) -> RunMetrics:
        """Return the figures of an event: running ones, or with `partial` False final ones."""
        return self._metrics(self.so_far or _UNKNOWN, partial=partial)

    def final(self) -> RunMetrics:
        """Return the figures of the end."""
        return self._metrics(computed(self.so_far), partial=not self.finished)

    def _metrics(self, usage: Usage, *, partial: bool) -> RunMetrics:
        return RunMetrics(
            partial=partial,
            usage=usage,
            duration_ms=self._since(self._clock.monotonic()),
            ttft_ms=None if self._first_output is None else self._since(self._first_output),
        )

    def _since(self, moment: float) -> int:
        return max(0, int((moment - self._started) * 1000))
