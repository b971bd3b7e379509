"""Writing the end of a run, exactly once, whoever else tries to.

| the terminal commit | then |
|---|---|
| is applied | this execution won: it publishes, and its result has metrics; what it absorbed has the same answer |
| conflicts, and the run has ended | the result is read from the record |
| conflicts, and an interrupt was requested | the end becomes `interrupted` (`superseded` stays) and is tried again |
| conflicts, and the run is still held | tried again with the run's new revision |
| conflicts otherwise | the result rejects with `RuntimeConflictError` |
| is refused for good, because of what the turn made | ends as `runtime_failure`, with as much as can be written |
| throws, retries spent | the result rejects with `RunUnsettledError` |
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from runlane.errors import (
    ConversationPurgedError,
    InvalidValueError,
    RuntimeConflictError,
    RunUnsettledError,
    StoreError,
    UsageError,
)
from runlane.records import COMPLETING_REASONS, RunMetrics, message_status_for_terminal_reason
from runlane.runtime._core import RuntimeCore
from runlane.runtime._ending import Ending
from runlane.runtime._injection import Inbox
from runlane.runtime._lane import ConversationLane
from runlane.runtime._store_calls import StoreCalls
from runlane.runtime._tickets import RunResult
from runlane.runtime._turn_writer import TurnWriter, holds
from runlane.store import Absorption, Applied, Command, CommitRunTerminal, RecordRunOperation, RunView

__all__ = ["answering_view", "result_from_view", "settle"]

_ROUNDS: Final = 32


def result_from_view(view: RunView, /) -> RunResult:
    """Return the result of a run as its record tells it.

    Raises:
        RuntimeConflictError: The run has not ended, or its answer is missing or has another status than its reason.
    """
    run, message = view.run, view.assistant
    reason = run.terminal_reason
    if reason is None or message is None or message.status != message_status_for_terminal_reason(reason):
        raise RuntimeConflictError(f"run {run.id!r} has no usable terminal record", operation="settle")
    return RunResult(
        run=run,
        message=message,
        reason=reason,
        snapshot_version=view.snapshot_version,
        policy_name=run.terminal_policy_name,
    )


async def answering_view(calls: StoreCalls, conversation_id: str, run_id: str, /) -> RunView | None:
    """Return the run that answers a run: itself, or the one that absorbed it; None if it is not there.

    Raises:
        StoreError: It could not be read.
    """
    view = await calls.read(lambda store: store.load_run(conversation_id, run_id))
    by = None if view is None else view.run.absorbed_into_run_id
    if by is None:
        return view
    return await calls.read(lambda store: store.load_run(conversation_id, by))


async def settle(
    core: RuntimeCore, lane: ConversationLane, writer: TurnWriter, ending: Ending, inbox: Inbox, /
) -> RunResult:
    """End a run, and with it those it absorbs if it ends well.

    Raises:
        RuntimeConflictError: Somebody else holds the run.
        RunUnsettledError: The store did not carry it out; the run may still be held by this runtime's owner.
    """
    # What the store refuses for good is given up step by step: a run that cannot end would block its conversation.
    keeps = (writer.draft.size, writer.draft.saved, 0)
    for keep in keeps:
        try:
            return await _settle(core, lane, writer, ending, inbox)
        except (UsageError, InvalidValueError) as error:
            writer.give_up(keep)
            ending = Ending(reason="runtime_failure", error=error)
        except (ConversationPurgedError, RuntimeConflictError):
            raise
        except StoreError as error:
            raise RunUnsettledError(run=writer.run, owner_id=writer.ownership.owner) from error
    return await _settle(core, lane, writer, ending, inbox)


async def _settle(
    core: RuntimeCore, lane: ConversationLane, writer: TurnWriter, ending: Ending, inbox: Inbox
) -> RunResult:
    for _ in range(_ROUNDS):
        operations = _operations(core, writer)
        metrics = writer.spend.final()
        revision = writer.run.revision + len(operations)
        closing = _closing(core, writer, revision, ending, metrics, _absorptions(ending, inbox))
        commands: tuple[Command, ...] = (*writer.entries, *operations, closing)
        outcomes = await lane.commit(commands, metrics=metrics)
        last = outcomes[-1]
        if isinstance(last, Applied):
            result = _won(closing, last, ending, metrics)
            _settle_absorbed(core, closing, last, result)
            return result
        view = await core.calls.read(lambda store: store.load_run(lane.conversation_id, writer.run.id))
        if view is None:
            break
        if not view.run.is_active:
            return result_from_view(view)
        if not holds(writer.ownership, view.run):
            break
        writer.run = view.run
        if view.run.state == "interrupt_requested":
            ending = ending.interrupted()
    raise RuntimeConflictError(f"run {writer.run.id!r} is not held by this runtime any more", operation="settle")


def _absorptions(ending: Ending, inbox: Inbox) -> tuple[Absorption, ...]:
    """Return what is absorbed: only a completed answer answers for others."""
    return inbox.absorptions() if ending.reason in COMPLETING_REASONS else ()


def _settle_absorbed(core: RuntimeCore, closing: CommitRunTerminal, applied: Applied, result: RunResult) -> None:
    """Give the runs that were absorbed their answer; they wait in the lane here, where they were offered."""
    for run in applied.delta.runs:
        work = core.here.get((run.conversation_id, run.id))
        if run.absorbed_into_run_id == closing.run_id and work is not None and work.item is not None:
            core.lanes.withdraw(work.lane, work.item, replace(result, metrics=None, error=None))


def _operations(core: RuntimeCore, writer: TurnWriter) -> tuple[RecordRunOperation, ...]:
    """Return the commands that close what the execution left open."""
    at, run = core.clock.now(), writer.run
    operations = [
        RecordRunOperation(
            command_id=core.ids.new("command"),
            at=at,
            run_id=run.id,
            expected_revision=run.revision + index,
            ownership=writer.ownership,
            operation=operation,
        )
        for index, operation in enumerate(writer.closing())
    ]
    return tuple(operations)


def _closing(
    core: RuntimeCore,
    writer: TurnWriter,
    revision: int,
    ending: Ending,
    metrics: RunMetrics,
    absorb: tuple[Absorption, ...],
) -> CommitRunTerminal:
    at = core.clock.now()
    status = message_status_for_terminal_reason(ending.reason)
    return CommitRunTerminal(
        command_id=core.ids.new("command"),
        at=at,
        run_id=writer.run.id,
        expected_revision=revision,
        ownership=writer.ownership,
        assistant=writer.draft.message(status or "failed", at, control=ending.control),
        reason=ending.reason,
        policy_name=ending.policy_name,
        usage=metrics.usage,
        metrics=metrics,
        absorb=absorb,
    )


def _won(closing: CommitRunTerminal, applied: Applied, ending: Ending, metrics: RunMetrics) -> RunResult:
    """Return the result of the execution whose commit ended the run.

    A commit that was sent twice is answered without an answer that was compacted meanwhile.
    """
    ended = next(changed for changed in applied.delta.runs if changed.id == closing.run_id)
    written = (message for message in applied.delta.messages if message.run_id == closing.run_id)
    return RunResult(
        run=ended,
        message=next(written, closing.assistant),
        reason=ending.reason,
        snapshot_version=applied.delta.version,
        policy_name=ending.policy_name,
        metrics=metrics,
        error=ending.error,
    )
