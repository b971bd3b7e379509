"""Compaction inside a run: an operation of its own, recorded before and after the callback."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

import anyio

from runlane.clock import Clock
from runlane.contracts import require_callable, require_id, require_kind, require_port
from runlane.errors import RunlaneError, UsageError
from runlane.history import History
from runlane.ids import IdSource
from runlane.models import add_usage
from runlane.records import RunOperation, RunOperationPhase, Usage
from runlane.runtime._compaction_values import Compact, CompactionContext, CompactionResult
from runlane.store import Store

__all__ = ["compact_in_run", "compaction_is_due"]

Record = Callable[[RunOperation], Awaitable[object]]
"""Makes an operation record of the run durable; raises if the run is not held any more."""

_FAILED: Final = "compaction.failed"
_STOPPED: Final = "aborted"
_FAILURES: Final = frozenset({"empty", "not-smaller"})


def compaction_is_due(compact: Compact | None, conversation_id: str, history: History, store: Store, /) -> bool:
    """Ask the cheap probe of a configured compaction, if it has one; nothing is loaded or recorded.

    Args:
        compact: What is configured, or None for no compaction at all.
        conversation_id: Whose history it is.
        history: The records at hand.
        store: Where the conversation is.
    """
    require_callable(compact, argument="compact")
    if compact is None:
        return False
    require_id(conversation_id, argument="conversation_id")
    require_kind(history, History, argument="history")
    require_kind(store, Store, argument="store")
    probe: Callable[[str, History, Store], bool] | None = getattr(compact, "is_due", None)
    return probe is None or probe(conversation_id, history, store)


async def compact_in_run(
    compact: Compact,
    context: CompactionContext,
    record: Record,
    spend: Callable[[Usage], object],
    /,
    *,
    ids: IdSource,
    clock: Clock,
) -> CompactionResult:
    """Call a configured compaction at the start of a turn, between the two records of its operation.

    The operation says that it was called, also when it then found nothing to do; its code says what came of it. Its
    phase is `completed`, `failed` when it raised or its summary was refused, `cancelled` when the run was told to stop.
    If the first record cannot be written, nothing is called.

    Args:
        compact: What is configured; ask `compaction_is_due` first.
        context: For this run. Its `report_usage` is still called.
        record: Makes an operation record durable.
        spend: Told once what it spent, if it spent anything, however it ends.
        ids: Names the operation.
        clock: Dates it.

    Raises:
        UsageError: An argument of the wrong kind; nothing was called.
        Exception: What `compact` raised; the run fails. What `record` raised.
    """
    for name, function in (("compact", compact), ("record", record), ("spend", spend)):
        if not callable(function):
            raise UsageError(f"must be callable, not {type(function).__name__}", argument=name)
    require_kind(context, CompactionContext, argument="context")
    require_port(ids, IdSource, argument="ids")
    require_port(clock, Clock, argument="clock")
    started = RunOperation(
        operation_id=ids.new("operation"), kind="compaction", phase="started", started_at=clock.now()
    )
    reported: list[Usage] = []
    await record(started)
    try:
        result = await compact(_listening(context, reported))
    except BaseException as error:
        _spend_once(spend, None, reported)
        stopped = context.signal.cancelled or not isinstance(error, Exception)
        code = error.code if isinstance(error, RunlaneError) else _STOPPED if stopped else _FAILED
        with anyio.CancelScope(shield=True), suppress(Exception):
            await record(_ended(started, "cancelled" if stopped else "failed", code, clock))
        raise
    _spend_once(spend, result.usage, reported)
    phase: RunOperationPhase = "failed" if result.refusal in _FAILURES else "completed"
    await record(_ended(started, phase, result.code, clock))
    return result


def _listening(context: CompactionContext, reported: list[Usage]) -> CompactionContext:
    """Return the context with a listener in front of its own."""

    def listen(usage: Usage) -> None:
        reported.append(usage)
        if context.report_usage is not None:
            context.report_usage(usage)

    return replace(context, report_usage=listen)


def _spend_once(spend: Callable[[Usage], object], usage: Usage | None, reported: list[Usage]) -> None:
    """Tell what was spent: the result's own figure, or the sum of what was reported on the way."""
    total = usage
    if total is None:
        for step in reported:
            total = add_usage(total, step)
    if total is not None:
        spend(total)


def _ended(started: RunOperation, phase: RunOperationPhase, code: str, clock: Clock) -> RunOperation:
    return started.model_copy(update={"phase": phase, "finished_at": clock.now(), "code": code})
