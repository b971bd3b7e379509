"""What is written down of an invocation: before its handler runs, and when it has ended."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from runlane.contracts import DurationMs, ErrorInfo, IdField, InvocationStatus, Record, TimestampMs

__all__ = ["ToolExecutionEvent", "ToolJournal", "ToolJournalFinish", "ToolJournalStart"]


class ToolJournalStart(Record):
    """A handler is about to run. A start without a finish means that the process died in between.

    Attributes:
        identity: What makes two calls the same.
        call_id: The model's own id of the call, if a model made it.
    """

    invocation_id: IdField
    tool_id: IdField
    identity: str
    call_id: IdField | None = None
    started_at: TimestampMs


class ToolJournalFinish(Record):
    """An invocation that was started has ended.

    Attributes:
        error: What went wrong; None of one that succeeded.
    """

    invocation_id: IdField
    tool_id: IdField
    status: InvocationStatus
    finished_at: TimestampMs
    duration_ms: DurationMs
    error: ErrorInfo | None = None


@runtime_checkable
class ToolJournal(Protocol):
    """Keeps the starts and finishes of one request; it sees neither input nor output.

    Both methods are called in the thread that runs the handler, at most once each for an invocation.
    """

    def start(self, entry: ToolJournalStart, /) -> None:
        """Write that a handler is about to run. If this raises, it does not run."""
        ...

    def finish(self, entry: ToolJournalFinish, /) -> None:
        """Write how it ended. What this raises never replaces a result or the handler's own failure."""
        ...


class ToolExecutionEvent(Record):
    """An invocation has settled; one for each that got past finding its tool.

    Attributes:
        error: Code, name and retryability of what went wrong; its message is left empty.
    """

    invocation_id: IdField
    tool_id: IdField
    call_id: IdField | None = None
    status: InvocationStatus
    duration_ms: DurationMs
    error: ErrorInfo | None = None
