"""Spans that were made, as tests read them."""

from collections.abc import Mapping

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode


class Collector:
    """Keeps the spans that ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans, in the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of a name, in the order of their starts."""
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        """The one span of a name."""
        (span,) = self.named(name)
        return span

    def parent(self, span: ReadableSpan) -> str | None:
        """The name of the span that a span stands under."""
        if span.parent is None:
            return None
        above = span.parent.span_id
        return next(other.name for other in self.spans if other.context is not None and other.context.span_id == above)

    def shape(self) -> list[tuple[str, str | None]]:
        """Each span with its parent, in the order of their starts."""
        ordered = sorted(self.spans, key=lambda span: span.start_time or 0)
        return [(span.name, self.parent(span)) for span in ordered]

    def everything(self) -> str:
        """Every text in every span."""
        said: list[str] = []
        for span in self.spans:
            said.extend((span.name, str(span.status.description), repr(said_by(span))))
            said.extend(repr((event.name, dict(event.attributes or {}))) for event in span.events)
        return "\n".join(said)


def said_by(span: ReadableSpan) -> Mapping[str, object]:
    """The attributes of a span."""
    return dict(span.attributes or {})


def is_error(span: ReadableSpan) -> bool:
    """Whether a span says that what it stands for failed."""
    return span.status.status_code is StatusCode.ERROR


def is_unset(span: ReadableSpan) -> bool:
    """Whether a span says nothing of success or failure."""
    return span.status.status_code is StatusCode.UNSET
