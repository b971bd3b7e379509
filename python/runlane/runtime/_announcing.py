"""What a run tells: durable events out of committed commands, transient ones as they happen.

Publishing follows the commit. Events go to the hub and to the configured publisher; neither is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypedDict, Unpack

from runlane.clock import Clock
from runlane.delivery import (
    AdmissionEvent,
    AssistantDeltaEvent,
    AttemptResetEvent,
    CheckpointEvent,
    DraftView,
    DurableEvent,
    EventHub,
    ReasoningDeltaEvent,
    ReasoningEndEvent,
    ReasoningStartEvent,
    RunOperationEvent,
    RunStateEvent,
    RuntimeEvent,
    TerminalEvent,
    ToolProgressEvent,
    ToolStatusEvent,
    placeholder_for,
)
from runlane.models import ReasoningDelta
from runlane.records import (
    Message,
    ProviderEnvelope,
    Run,
    RunMetrics,
    RunState,
    ToolCallPart,
    ToolOutcome,
    ToolResultPart,
    Usage,
)
from runlane.runtime._courier import Courier
from runlane.store import (
    AcceptInput,
    AcquireRun,
    Applied,
    CancelRun,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    Delta,
    Duplicate,
    RecordRunOperation,
    RecoverRun,
    RequestRunInterrupt,
)

__all__ = ["Publishing", "RunVoice", "duplicate_events", "durable_events"]

_TOOL_STATUS: Final[dict[ToolOutcome, Literal["completed", "failed", "interrupted"]]] = {
    "success": "completed",
    "error": "failed",
    "interrupted": "interrupted",
}

_MADE: Final[dict[type[Command], RunState]] = {
    AcceptInput: "queued",
    AcquireRun: "running",
    RequestRunInterrupt: "interrupt_requested",
    CancelRun: "cancelled",
    CommitRunTerminal: "superseded",
}
"""What a command makes of the runs it changes; of an ending one, of those that its run absorbed."""


class Extras(TypedDict, total=False):
    """What an event says beyond its commit: metrics, and the draft of a checkpoint."""

    metrics: RunMetrics
    draft: DraftView


class Publishing:
    """Where events go.

    Attributes:
        courier: Hands them to the configured publisher; None if there is none.
    """

    def __init__(self, hub: EventHub, courier: Courier | None = None) -> None:
        """Publish to a hub, and to a publisher if there is one."""
        self.hub = hub
        self.courier = courier

    def wanted(self, conversation_id: str, /) -> bool:
        """Whether events of a conversation reach anybody."""
        return self.courier is not None or self.hub.listens(conversation_id)

    def tell(self, event: RuntimeEvent, /) -> None:
        """Hand an event to the hub and to the publisher; never waits for either."""
        self.hub.publish(event)
        if self.courier is not None:
            self.courier.publish(event)

    def tell_all(self, events: Iterable[RuntimeEvent], /) -> None:
        """Hand events over in order, to the hub first."""
        told = list(events)
        for event in told:
            self.hub.publish(event)
        if self.courier is not None:
            for event in told:
                self.courier.publish(event)


def durable_events(
    conversation_id: str, command: Command, applied: Applied, /, **extras: Unpack[Extras]
) -> list[DurableEvent]:
    """Return what an applied command tells, in order.

    A command that was sent twice is answered with its runs as they are by now; what is told is what it made of them.
    """
    delta = applied.delta
    match command:
        case AcceptInput():
            return _admission(command, delta)
        case CheckpointRunAssistant():
            return _checkpoint(conversation_id, command, delta, extras)
        case RecordRunOperation():
            event = RunOperationEvent(
                conversation_id=conversation_id,
                run_id=command.run_id,
                emitted_at=command.at,
                snapshot_version=delta.version,
                operation=command.operation,
            )
            return [event]
        case CommitRunTerminal():
            absorbed = [run for run in delta.runs if run.id != command.run_id]
            return [*_states(command, absorbed, delta), *_terminal(command.run_id, delta, extras, command.assistant)]
        case CancelRun():
            return [*_states(command, delta.runs, delta), *_terminal(command.run_id, delta, extras)]
        case _:
            return _states(command, delta.runs, delta)


def duplicate_events(duplicate: Duplicate, /) -> list[DurableEvent]:
    """Return what a repeated idempotency key tells: the first admission, and the state of the run now."""
    run, version = duplicate.run, duplicate.version
    return [
        AdmissionEvent(
            conversation_id=run.conversation_id,
            run_id=run.id,
            emitted_at=run.updated_at,
            snapshot_version=version,
            input=duplicate.receipt.input,
            run=run,
            assistant=duplicate.assistant or placeholder_for(run),
        ),
        RunStateEvent(
            conversation_id=run.conversation_id,
            run_id=run.id,
            emitted_at=run.updated_at,
            snapshot_version=version,
            state=run.state,
        ),
    ]


def _admission(command: AcceptInput, delta: Delta) -> list[DurableEvent]:
    run = delta.runs[-1] if command.coalesce_into_run_id is not None else command.run
    event = AdmissionEvent(
        conversation_id=run.conversation_id,
        run_id=run.id,
        emitted_at=command.at,
        snapshot_version=delta.version,
        input=command.input,
        run=run,
        assistant=placeholder_for(run),
    )
    return [event, *_states(command, [run], delta)]


def _states(command: Command, runs: Iterable[Run], delta: Delta) -> list[DurableEvent]:
    """Return what a command made of runs, if it is one that changes their state."""
    state = _MADE.get(type(command))
    if isinstance(command, RecoverRun):
        state = "queued" if command.action == "requeue" else "abandoned"
    if state is None:
        return []
    return [
        RunStateEvent(
            conversation_id=run.conversation_id,
            run_id=run.id,
            emitted_at=command.at,
            snapshot_version=delta.version,
            state=state,
        )
        for run in runs
    ]


def _checkpoint(
    conversation_id: str, command: CheckpointRunAssistant, delta: Delta, extras: Extras
) -> list[DurableEvent]:
    patch = command.patch
    if not (patch.added or patch.grown or patch.keep):
        return []
    usage = next((run.usage for run in delta.runs if run.id == command.run_id), None)
    metrics = extras.get("metrics") or RunMetrics(partial=True, usage=usage or Usage.unknown())
    event = CheckpointEvent(
        conversation_id=conversation_id,
        run_id=command.run_id,
        emitted_at=command.at,
        snapshot_version=delta.version,
        patch=patch,
        draft=extras.get("draft"),
        metrics=metrics,
    )
    return [event]


def _terminal(run_id: str, delta: Delta, extras: Extras, sent: Message | None = None) -> list[DurableEvent]:
    """Return the terminal event; an answer that was compacted before its commit was sent twice is the one `sent`."""
    run = next(run for run in delta.runs if run.id == run_id)
    message = next((message for message in delta.messages if message.run_id == run_id), sent)
    if run.terminal_reason is None or message is None:
        return []
    metrics = extras.get("metrics") or RunMetrics(partial=True, usage=run.usage or Usage.unknown())
    event = TerminalEvent(
        conversation_id=run.conversation_id,
        run_id=run_id,
        emitted_at=run.updated_at,
        snapshot_version=delta.version,
        reason=run.terminal_reason,
        policy_name=run.terminal_policy_name,
        message=message,
        metrics=metrics,
    )
    return [event]


class RunVoice:
    """The transient events of one execution, numbered from 1 without a hole.

    The number grows also while nobody listens, so that whoever comes later can tell that something was said before.
    """

    __slots__ = ("_clock", "_conversation_id", "_epoch", "_publishing", "_run_id", "sequence")

    def __init__(self, publishing: Publishing, run: Run, epoch: str, clock: Clock, told: int = 0, /) -> None:
        """Speak for a run, of which so many events were told in this epoch before."""
        self._publishing = publishing
        self._conversation_id = run.conversation_id
        self._run_id = run.id
        self._epoch = epoch
        self._clock = clock
        self.sequence = told

    def text(self, text: str, /) -> None:
        """More visible text."""
        self.sequence += 1
        if not self._publishing.wanted(self._conversation_id):
            return
        self._publishing.tell(
            AssistantDeltaEvent(
                conversation_id=self._conversation_id,
                run_id=self._run_id,
                emitted_at=self._clock.now(),
                runtime_epoch=self._epoch,
                sequence=self.sequence,
                text_delta=text,
            )
        )

    def reasoning(self, delta: ReasoningDelta, envelope: ProviderEnvelope | None, /) -> None:
        """The model begins to think, thinks on, or stops."""
        self.sequence += 1
        if not self._publishing.wanted(self._conversation_id):
            return
        conversation_id, run_id, epoch, at = self._conversation_id, self._run_id, self._epoch, self._clock.now()
        event: RuntimeEvent
        if delta.phase == "delta":
            event = ReasoningDeltaEvent(
                conversation_id=conversation_id,
                run_id=run_id,
                emitted_at=at,
                runtime_epoch=epoch,
                sequence=self.sequence,
                text_delta=delta.text,
                provider=envelope,
            )
        else:
            kind = ReasoningStartEvent if delta.phase == "start" else ReasoningEndEvent
            event = kind(
                conversation_id=conversation_id,
                run_id=run_id,
                emitted_at=at,
                runtime_epoch=epoch,
                sequence=self.sequence,
                provider=envelope,
            )
        self._publishing.tell(event)

    def attempt_reset(self, attempt: int, /) -> None:
        """What was said since the last attempt began is taken back; the attempt of this number begins."""
        self.sequence += 1
        if not self._publishing.wanted(self._conversation_id):
            return
        event = AttemptResetEvent(
            conversation_id=self._conversation_id,
            run_id=self._run_id,
            emitted_at=self._clock.now(),
            runtime_epoch=self._epoch,
            sequence=self.sequence,
            attempt=attempt,
        )
        self._publishing.tell(event)

    def progress(self, call: ToolCallPart, message: str, progress: float | None, total: float | None, /) -> None:
        """A running call says how far it is."""
        self.sequence += 1
        if not self._publishing.wanted(self._conversation_id):
            return
        event = ToolProgressEvent(
            conversation_id=self._conversation_id,
            run_id=self._run_id,
            emitted_at=self._clock.now(),
            runtime_epoch=self._epoch,
            sequence=self.sequence,
            call_id=call.call_id,
            tool_name=call.tool_name,
            message=message,
            progress=progress,
            total=total,
        )
        self._publishing.tell(event)

    def tool(self, part: ToolCallPart | ToolResultPart, /) -> None:
        """A tool call started, or ended."""
        self.sequence += 1
        if not self._publishing.wanted(self._conversation_id):
            return
        event = ToolStatusEvent(
            conversation_id=self._conversation_id,
            run_id=self._run_id,
            emitted_at=self._clock.now(),
            runtime_epoch=self._epoch,
            sequence=self.sequence,
            call_id=part.call_id,
            tool_name=part.tool_name,
            status=_TOOL_STATUS[part.outcome] if isinstance(part, ToolResultPart) else "started",
            input=part.input if isinstance(part, ToolCallPart) else None,
            output=part.output if isinstance(part, ToolResultPart) else None,
        )
        self._publishing.tell(event)
