"""What all of runlane agrees on: identifiers and times, checks, receipts, contexts, registries, cancellation."""

from runlane.contracts._budget import AttemptBudget
from runlane.contracts._cancel import CancelToken, TokenBinding
from runlane.contracts._checks import CheckResult, SchemaAdapter, Verdict, require_passed, schema_for
from runlane.contracts._contexts import (
    ExecutionContext,
    ExecutionOptions,
    OperationContext,
    RecordingScope,
    SpanIdentity,
)
from runlane.contracts._error_views import ErrorContext, ErrorInfo, annotate_error, error_contexts, get_error_info
from runlane.contracts._issues import Issue
from runlane.contracts._kinds import (
    clock_or_system,
    ids_or_random,
    require_callable,
    require_kind,
    require_port,
)
from runlane.contracts._receipts import (
    InvocationMetadata,
    InvocationResult,
    ModelCallRecord,
    ModelResult,
    ToolCallRecord,
    ToolResult,
)
from runlane.contracts._record import JsonObject, ModelUsage, Record
from runlane.contracts._registry import OrderedRegistry, ProtocolRegistry, ReadonlyCatalog, Registry
from runlane.contracts._scalars import (
    AsyncSink,
    DurationMs,
    Id,
    IdField,
    InvocationStatus,
    JsonSchema,
    MaybeAwaitable,
    Observer,
    TimestampMs,
    elapsed_ms,
    is_async_callable,
    require_id,
    require_limit,
    require_seconds,
    require_sync,
    resolve,
    sync_result,
    timestamp_ms,
)
from runlane.contracts._search import SearchHit
from runlane.contracts._stray import stray_ends

__all__ = [
    "AsyncSink",
    "AttemptBudget",
    "CancelToken",
    "CheckResult",
    "DurationMs",
    "ErrorContext",
    "ErrorInfo",
    "ExecutionContext",
    "ExecutionOptions",
    "Id",
    "IdField",
    "InvocationMetadata",
    "InvocationResult",
    "InvocationStatus",
    "Issue",
    "JsonObject",
    "JsonSchema",
    "MaybeAwaitable",
    "ModelCallRecord",
    "ModelResult",
    "ModelUsage",
    "Observer",
    "OperationContext",
    "OrderedRegistry",
    "ProtocolRegistry",
    "ReadonlyCatalog",
    "Record",
    "RecordingScope",
    "Registry",
    "SchemaAdapter",
    "SearchHit",
    "SpanIdentity",
    "TimestampMs",
    "TokenBinding",
    "ToolCallRecord",
    "ToolResult",
    "Verdict",
    "annotate_error",
    "clock_or_system",
    "elapsed_ms",
    "error_contexts",
    "get_error_info",
    "ids_or_random",
    "is_async_callable",
    "require_callable",
    "require_id",
    "require_kind",
    "require_limit",
    "require_passed",
    "require_port",
    "require_seconds",
    "require_sync",
    "resolve",
    "schema_for",
    "stray_ends",
    "sync_result",
    "timestamp_ms",
]
