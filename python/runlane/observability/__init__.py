"""What operators are told of runs, and where it goes. `runlane.observability.otel` makes OpenTelemetry spans of it."""

from runlane.observability._events import (
    RunEvent,
    RunStartedEvent,
    RunTerminalEvent,
    StepFinishedEvent,
    StepOutcome,
    read_run_event,
    span_id_of,
    stated_usage,
    trace_id_of,
)
from runlane.observability._sink import Observability, RunEventSink, RunSinkConfig, RunSinkDrop, RunSinkError

__all__ = [
    "Observability",
    "RunEvent",
    "RunEventSink",
    "RunSinkConfig",
    "RunSinkDrop",
    "RunSinkError",
    "RunStartedEvent",
    "RunTerminalEvent",
    "StepFinishedEvent",
    "StepOutcome",
    "read_run_event",
    "span_id_of",
    "stated_usage",
    "trace_id_of",
]
