"""What diagnostics are told of an invocation; nothing, and at no cost, while nobody listens."""

from __future__ import annotations

from typing import Final

from runlane.diagnostics import (
    DiagnosticContext,
    ErrorFacts,
    JournalFailed,
    NodeReportingContext,
    ToolFinished,
    ToolInput,
    ToolOutput,
    ToolStarted,
)
from runlane.tools._course import Course

__all__ = ["Trace"]

_STARTED: Final = ToolStarted()


class Trace:
    """Tells of one invocation, in a span of its own.

    Attributes:
        reporting: How the handlers report what they do, until the invocation has settled.
    """

    __slots__ = ("_has_started", "_scope", "reporting")

    def __init__(self, scope: DiagnosticContext, /) -> None:
        """Tell in the given span."""
        self._scope = scope
        self._has_started = False
        self.reporting: NodeReportingContext = scope.reporting()

    async def start(self, value: object) -> None:
        """Tell that the handlers are about to run, and with what.

        Raises:
            Exception: Whatever the observer raised; then they do not run.
        """
        self._has_started = True
        if self._scope.enabled:
            await self._scope.emit("tool.started", _STARTED)
            await self._scope.emit("tool.input", lambda: ToolInput(value=value))

    async def succeed(self, output: object) -> None:
        """Tell what came of it."""
        if self._scope.enabled:
            await self._scope.emit("tool.output", lambda: ToolOutput(value=output))

    async def finish(self, course: Course) -> None:
        """Tell how it ended, with the steps that were reported; nothing if it never started."""
        self.reporting.close()
        if not self._has_started or not self._scope.enabled:
            return
        failure = course.journal_error
        if failure is not None:
            await self._scope.emit("journal.failed", JournalFailed(error=ErrorFacts.of(failure)))
        error = None if course.error is None else ErrorFacts.of(course.error)
        payload = ToolFinished(status=course.status or "cancelled", duration_ms=course.duration_ms, error=error)
        await self._scope.emit("tool.finished", payload, sub_steps=self.reporting.sub_flow)
