"""Events made by hand, for the tests of delivery."""

from datetime import UTC, datetime

from runlane.delivery import (
    AdmissionEvent,
    AssistantDeltaEvent,
    AttemptResetEvent,
    CheckpointEvent,
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
from runlane.records import Message, Run, RunMetrics, RunOperation, Snapshot, TextPart, Usage

AT = datetime(2026, 1, 1, tzinfo=UTC)


def run(run_id: str = "r") -> Run:
    """A queued run."""
    return Run(
        id=run_id,
        conversation_id="c",
        input_message_ids=(f"{run_id}-in",),
        assistant_message_id=f"{run_id}-out",
        state="queued",
        revision=0,
        created_at=AT,
        updated_at=AT,
    )


def message(role: str = "user", *, status: str = "committed", run_id: str | None = None) -> Message:
    """A message."""
    return Message.model_validate(
        {
            "id": "m",
            "conversation_id": "c",
            "run_id": run_id,
            "role": role,
            "status": status,
            "parts": (TextPart(text="Hello"),),
            "created_at": AT,
            "updated_at": AT,
        }
    )


def state(version: int, *, run_id: str = "r", conversation_id: str = "c") -> RunStateEvent:
    """A durable event."""
    return RunStateEvent(
        conversation_id=conversation_id, run_id=run_id, emitted_at=AT, snapshot_version=version, state="running"
    )


def terminal(version: int, *, run_id: str = "r") -> TerminalEvent:
    """The last event of a run."""
    return TerminalEvent(
        conversation_id="c",
        run_id=run_id,
        emitted_at=AT,
        snapshot_version=version,
        reason="success",
        message=message("assistant", status="completed", run_id=run_id),
        metrics=RunMetrics(partial=False, usage=Usage.unknown()),
    )


def delta(
    sequence: int, text: str = "x", *, run_id: str = "r", epoch: str = "e", conversation_id: str = "c"
) -> AssistantDeltaEvent:
    """A transient event with text."""
    return AssistantDeltaEvent(
        conversation_id=conversation_id,
        run_id=run_id,
        emitted_at=AT,
        runtime_epoch=epoch,
        sequence=sequence,
        text_delta=text,
    )


def tool_status(sequence: int, status: str, *, call_id: str = "t") -> ToolStatusEvent:
    """A call that started or ended."""
    return ToolStatusEvent(
        conversation_id="c",
        run_id="r",
        emitted_at=AT,
        runtime_epoch="e",
        sequence=sequence,
        call_id=call_id,
        tool_name="look",
        status=status,  # type: ignore[arg-type]
        input={"at": 1} if status == "started" else None,
        output=None if status == "started" else {"seen": 2},
    )


def progress(sequence: int, text: str, *, call_id: str = "t") -> ToolProgressEvent:
    """A call that reports."""
    return ToolProgressEvent(
        conversation_id="c",
        run_id="r",
        emitted_at=AT,
        runtime_epoch="e",
        sequence=sequence,
        call_id=call_id,
        tool_name="look",
        message=text,
    )


def snapshot(version: int) -> Snapshot:
    """A conversation as it was loaded."""
    return Snapshot(conversation_id="c", version=version, messages=(), runs=())


_DURABLE: dict[str, object] = {"conversation_id": "c", "run_id": "r", "emitted_at": AT, "snapshot_version": 3}
_TRANSIENT: dict[str, object] = {
    "conversation_id": "c",
    "run_id": "r",
    "emitted_at": AT,
    "runtime_epoch": "e",
    "sequence": 3,
}


def one_of_each() -> list[RuntimeEvent]:
    """One event of every type, the durable ones first."""
    operation = RunOperation(operation_id="o", kind="model-request", phase="started", step=0, started_at=AT)
    metrics = RunMetrics(partial=True, usage=Usage.unknown())
    durable: list[RuntimeEvent] = [
        AdmissionEvent(input=message(), run=run(), assistant=placeholder_for(run()), **_DURABLE),  # type: ignore[arg-type]
        RunStateEvent(state="running", **_DURABLE),  # type: ignore[arg-type]
        RunOperationEvent(operation=operation, **_DURABLE),  # type: ignore[arg-type]
        CheckpointEvent(patch=None, draft=None, metrics=metrics, **_DURABLE),  # type: ignore[arg-type]
        terminal(3),
    ]
    transient: list[RuntimeEvent] = [
        AssistantDeltaEvent(text_delta="x", **_TRANSIENT),  # type: ignore[arg-type]
        ReasoningStartEvent(**_TRANSIENT),  # type: ignore[arg-type]
        ReasoningDeltaEvent(text_delta="x", **_TRANSIENT),  # type: ignore[arg-type]
        ReasoningEndEvent(**_TRANSIENT),  # type: ignore[arg-type]
        tool_status(3, "started"),
        progress(3, "half"),
        AttemptResetEvent(attempt=2, **_TRANSIENT),  # type: ignore[arg-type]
    ]
    return [*durable, *transient]


def reasoning(sequence: int, text: str) -> ReasoningDeltaEvent:
    """A transient event with a thought."""
    return ReasoningDeltaEvent(
        conversation_id="c", run_id="r", emitted_at=AT, runtime_epoch="e", sequence=sequence, text_delta=text
    )


def reset(sequence: int) -> AttemptResetEvent:
    """What was said is taken back."""
    return AttemptResetEvent(
        conversation_id="c", run_id="r", emitted_at=AT, runtime_epoch="e", sequence=sequence, attempt=2
    )
