"""Telling operators how an execution began and how it ended, whichever way that was."""

from __future__ import annotations

from runlane.errors import RuntimeConflictError
from runlane.records import Ownership, RunMetrics, TerminalReason, Usage
from runlane.runtime._acquiring import Acquired
from runlane.runtime._core import RuntimeCore
from runlane.runtime._ending import Ending
from runlane.runtime._reporting import RunReport
from runlane.runtime._steps import StepPrompt
from runlane.runtime._tickets import RunResult
from runlane.runtime._turn_writer import TurnWriter

__all__ = ["report_begin", "report_end", "report_loss"]


def report_begin(core: RuntimeCore, acquired: Acquired | RunResult, /) -> None:
    """Tell that an execution holds its run; or that the run could not be acquired and was ended for that."""
    if isinstance(acquired, Acquired):
        prompt = acquired.prompt
        acquired.writer.report.started(acquired.writer.run, prompt.model if isinstance(prompt, StepPrompt) else None)
    elif acquired.error is not None:
        run = acquired.run
        report = RunReport(core.config.observers, core.clock, run, Ownership(owner=core.owner_id))
        metrics = RunMetrics(partial=True, usage=run.usage or Usage.unknown())
        version, error = acquired.snapshot_version, acquired.error
        report.ended(run, acquired.reason, metrics, version=version, is_winner=True, error=error)


def report_end(writer: TurnWriter, ending: Ending | None, result: RunResult, /) -> None:
    """Tell that an execution is over and its run has ended, by its own commit or by somebody else's."""
    error = result.error or (None if ending is None else ending.error)
    writer.report.ended(
        result.run,
        result.reason,
        result.metrics or writer.spend.final(),
        version=result.snapshot_version,
        is_winner=result.metrics is not None,
        error=error,
    )


def report_loss(writer: TurnWriter, ending: Ending | None, error: Exception, /) -> None:
    """Tell that an execution is over without having ended its run: what it spent is on no record."""
    reason: TerminalReason = "storage_conflict" if isinstance(error, RuntimeConflictError) else "runtime_failure"
    if ending is not None:
        reason = ending.reason
    metrics = writer.spend.final()
    writer.report.ended(writer.run, reason, metrics, version=None, is_winner=False, error=error)
