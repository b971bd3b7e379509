"""One invocation from its start to its end: what the journal and the receipt say of it, each once."""

from __future__ import annotations

import threading
from typing import Final

from runlane.clock import Clock
from runlane.contracts import (
    CancelToken,
    DurationMs,
    ErrorInfo,
    Id,
    InvocationStatus,
    ToolCallRecord,
    elapsed_ms,
    get_error_info,
    timestamp_ms,
)
from runlane.tools._journal import ToolExecutionEvent, ToolJournal, ToolJournalFinish, ToolJournalStart

__all__ = ["Course"]

_NONE: Final = DurationMs(0)


class Course:
    """Keeps the order of an invocation: started at most once, settled exactly once, closed after that.

    A handler in a thread and whoever waits for it may both want to settle it; the first one wins.

    Attributes:
        status: How it ended, once it has.
        error: With what, unless it succeeded.
        journal_error: What the journal's `finish` raised, if it did.
    """

    def __init__(self, *, tool_id: Id, invocation_id: Id, call_id: str | None, clock: Clock) -> None:
        """Begin now."""
        self.tool_id = tool_id
        self.invocation_id = invocation_id
        self.call_id = None if call_id is None else Id(call_id)
        self._clock = clock
        self._lock = threading.Lock()
        self._journal: ToolJournal | None = None
        self._begun = clock.monotonic()
        self._started_at = timestamp_ms(clock.now())
        self._closed = False
        self.duration_ms = _NONE
        self.status: InvocationStatus | None = None
        self.error: BaseException | None = None
        self.journal_error: Exception | None = None

    def start(self, journal: ToolJournal | None, identity: str, /) -> None:
        """Write into the journal that the handler is about to run.

        Raises:
            Exception: Whatever the journal raised; then the handler must not run, and nothing is to be finished.
        """
        if journal is None:
            return
        journal.start(
            ToolJournalStart(
                invocation_id=self.invocation_id,
                tool_id=self.tool_id,
                identity=identity,
                call_id=self.call_id,
                started_at=self._started_at,
            )
        )
        self._journal = journal

    def settle(self, status: InvocationStatus, error: BaseException | None = None) -> bool:
        """Fix how it ended; from any thread.

        Returns:
            Whether this call fixed it; False if that had happened before, which then stands.
        """
        with self._lock:
            if self.status is not None:
                return False
            self.status, self.error = status, error
            self.duration_ms = elapsed_ms(self._begun, self._clock.monotonic())
        return True

    def fail(self, error: BaseException, signal: CancelToken) -> bool:
        """Fix a failure: cancelled if it is what the tripped token raises, or the loop's own cancellation."""
        is_reason = signal.cancelled and error is signal.error()
        return self.settle("cancelled" if is_reason or not issubclass(type(error), Exception) else "failed", error)

    def discard(self, error: BaseException) -> None:
        """Take a success back: what was made belongs to nobody any more."""
        with self._lock:
            self.status, self.error = "cancelled", error

    def close(self) -> None:
        """Write how it ended into the journal, once, if its start was written."""
        if self._closed or self.status is None:
            return
        self._closed = True
        if self._journal is None:
            return
        try:
            self._journal.finish(
                ToolJournalFinish(
                    invocation_id=self.invocation_id,
                    tool_id=self.tool_id,
                    status=self.status,
                    finished_at=timestamp_ms(self._clock.now()),
                    duration_ms=self.duration_ms,
                    error=self._info(),
                )
            )
        except Exception as failure:  # noqa: BLE001 - told to diagnostics; the outcome stands
            self.journal_error = failure

    def receipt(self, *, identity: str, run_id: Id | None, span_id: Id | None = None) -> ToolCallRecord:
        """Return the receipt of an invocation that succeeded."""
        return ToolCallRecord(
            invocation_id=self.invocation_id,
            span_id=span_id,
            run_id=run_id,
            started_at=self._started_at,
            duration_ms=self.duration_ms,
            tool_id=self.tool_id,
            identity=identity,
            call_id=self.call_id,
        )

    def event(self) -> ToolExecutionEvent:
        """Return what the call log and the observer get of a settled invocation."""
        info = self._info()
        return ToolExecutionEvent(
            invocation_id=self.invocation_id,
            tool_id=self.tool_id,
            call_id=self.call_id,
            status=self.status or "cancelled",
            duration_ms=self.duration_ms,
            error=None
            if info is None
            else ErrorInfo(code=info.code, name=info.name, message="", retryable=info.retryable),
        )

    def _info(self) -> ErrorInfo | None:
        return None if self.error is None else get_error_info(self.error)
