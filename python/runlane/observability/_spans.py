"""Making spans: times, usage and statuses in the form OpenTelemetry takes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from runlane.observability._names import AttributeName as Name
from runlane.records import Usage, UsageValue

__all__ = ["Attribute", "OpenSpan", "nanoseconds", "usage_attributes"]

Attribute: TypeAlias = str | bool | int | float | list[str]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_TOKENS: Final = (
    ("input_tokens", Name.INPUT_TOKENS),
    ("output_tokens", Name.OUTPUT_TOKENS),
    ("cache_read_tokens", Name.CACHE_READ_TOKENS),
    ("cache_write_tokens", Name.CACHE_WRITE_TOKENS),
    ("reasoning_tokens", Name.REASONING_TOKENS),
)


def nanoseconds(moment: datetime, /) -> int:
    """Return an aware instant as Unix nanoseconds, exactly."""
    return (moment - _EPOCH) // _MICROSECOND * 1000


def usage_attributes(usage: Usage, /) -> dict[str, Attribute]:
    """Return the figures that are known; what nobody reported is left out, never 0."""
    said: dict[str, Attribute] = {}
    for field, name in _TOKENS:
        figure: UsageValue | None = getattr(usage, field)
        if figure is not None and figure.value is not None:
            said[name] = figure.value
    if usage.cost is not None and usage.cost.value is not None:
        said[Name.COST] = usage.cost.value
        if usage.cost.currency is not None:
            said[Name.CURRENCY] = usage.cost.currency
    if usage.input_tokens.value is not None:
        said[Name.PROVENANCE] = usage.input_tokens.provenance
    return said


class OpenSpan:
    """A span that has not ended, and what its children start from.

    Attributes:
        context: Has the span as its current one.
        span: The span itself.
    """

    __slots__ = ("_started", "context", "span")

    def __init__(
        self,
        tracer: Tracer,
        name: str,
        started: int,
        /,
        *,
        parent: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> None:
        """Start a span at a time in Unix nanoseconds; without a parent it begins a trace of its own."""
        self._started = started
        parent = Context() if parent is None else parent
        self.span: Span = tracer.start_span(name, parent, kind, attributes, start_time=started)
        self.context = set_span_in_context(self.span, parent)

    def say(self, attributes: Mapping[str, Attribute], /) -> None:
        """Add attributes."""
        for name, value in attributes.items():
            self.span.set_attribute(name, value)

    def happen(self, name: str, at: int, attributes: Mapping[str, Attribute] | None = None, /) -> None:
        """Add an event."""
        self.span.add_event(name, attributes, max(at, self._started))

    def fail(self, error_type: str, /) -> None:
        """Say that what the span stands for failed."""
        self.span.set_attribute(Name.ERROR, error_type)
        self.span.set_status(Status(StatusCode.ERROR))

    def end(self, at: int, /) -> None:
        """End the span; wall clocks may go backwards, spans may not."""
        self.span.end(max(at, self._started))
