"""OpenTelemetry spans of runs and of the core half; install the extra `otel`.

`RunTracer` makes spans of the durable runs of a runtime, `CoreTracer` of what diagnostics tell of workflows, model
calls and tools. Both name spans and attributes by the conventions for generative AI, and neither holds what people,
models or tools said unless it was asked to.
"""

from runlane.errors import MissingDependencyError

try:
    import opentelemetry.trace as _trace
except ImportError:
    raise MissingDependencyError(package="opentelemetry-api", extra="otel") from None
else:
    del _trace

from runlane.observability._core_spans import CoreTracer
from runlane.observability._run_spans import ParentOf, RunTracer

__all__ = ["CoreTracer", "ParentOf", "RunTracer"]
