"""What a runtime tells its listeners.

A *durable* event follows a committed write: it carries the conversation version of that write and can be rebuilt from
the store. A *transient* event exists only while it streams: it carries the runtime's epoch and a per-run sequence that
starts at 1 and has no holes, so that a listener knows when it missed something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal, TypeAlias

from pydantic import JsonValue

from runlane.records import (
    AssistantPlaceholder,
    Message,
    ProviderEnvelope,
    Run,
    RunMetrics,
    RunOperation,
    RunState,
    TerminalReason,
)
from runlane.store import DraftPatch

__all__ = [
    "AdmissionEvent",
    "AssistantDeltaEvent",
    "AttemptResetEvent",
    "CheckpointEvent",
    "DraftView",
    "DurableEvent",
    "Gap",
    "ReasoningDeltaEvent",
    "ReasoningEndEvent",
    "ReasoningStartEvent",
    "RunOperationEvent",
    "RunStateEvent",
    "RuntimeEvent",
    "TerminalEvent",
    "ToolProgressEvent",
    "ToolStatusEvent",
    "TransientEvent",
    "durable_event_id",
]


def durable_event_id(run_id: str, event_type: str, snapshot_version: int, /) -> str:
    """Return the id of a durable event: the same every time the same write is reported.

    Example:
        >>> durable_event_id("run_1", "terminal", 7)
        'run_1:terminal:7'
    """
    return f"{run_id}:{event_type}:{snapshot_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Durable:
    """Common to durable events.

    Attributes:
        snapshot_version: The conversation version the write produced; versions of consecutive events may be far apart.
        emitted_at: Wall time of the write.
    """

    conversation_id: str
    run_id: str
    emitted_at: datetime
    snapshot_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionEvent(_Durable):
    """An input is durable and belongs to a run (also for a repeated idempotency key)."""

    type: ClassVar[Literal["admission"]] = "admission"
    input: Message
    run: Run
    assistant: AssistantPlaceholder | Message

    @property
    def event_id(self) -> str:
        """Unique within the conversation, the same on replay."""
        return durable_event_id(self.run_id, self.type, self.snapshot_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStateEvent(_Durable):
    """A run entered a state."""

    type: ClassVar[Literal["run-state"]] = "run-state"
    state: RunState

    @property
    def event_id(self) -> str:
        """Unique within the conversation, the same on replay."""
        return durable_event_id(self.run_id, self.type, self.snapshot_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOperationEvent(_Durable):
    """A provider call or a compaction reached a phase."""

    type: ClassVar[Literal["run-operation"]] = "run-operation"
    operation: RunOperation

    @property
    def event_id(self) -> str:
        """Unique within the conversation, the same on replay."""
        return durable_event_id(self.run_id, self.type, self.snapshot_version)


class DraftView:
    """A shared look at the answer as checkpointed; reading it costs what the answer has grown to, so read it rarely."""

    __slots__ = ("_make", "_message")

    def __init__(self, make: Callable[[], Message], /) -> None:
        """Keep how to put the draft together; nothing is put together before somebody looks."""
        self._make = make
        self._message: Message | None = None

    @property
    def message(self) -> Message:
        """The whole draft, status `streaming`; put together once, for all listeners."""
        if self._message is None:
            self._message = self._make()
        return self._message


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEvent(_Durable):
    """What had streamed of an answer is durable.

    Attributes:
        patch: What was appended since the checkpoint before; None when the event was rebuilt from the store, where
            earlier drafts no longer exist.
        draft: The whole draft, shared by all listeners; None when the event was rebuilt.
        metrics: Spend so far; `partial` is True.
    """

    type: ClassVar[Literal["assistant-checkpoint"]] = "assistant-checkpoint"
    patch: DraftPatch | None
    draft: DraftView | None
    metrics: RunMetrics

    @property
    def event_id(self) -> str:
        """Unique within the conversation, the same on replay."""
        return durable_event_id(self.run_id, self.type, self.snapshot_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalEvent(_Durable):
    """A run has ended; the last event of the run."""

    type: ClassVar[Literal["terminal"]] = "terminal"
    reason: TerminalReason
    policy_name: str | None = None
    message: Message
    metrics: RunMetrics

    @property
    def event_id(self) -> str:
        """Unique within the conversation, the same on replay."""
        return durable_event_id(self.run_id, self.type, self.snapshot_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transient:
    """Common to transient events; whether an event is one costs less to ask than which of them it is.

    Attributes:
        runtime_epoch: The runtime that streams; another epoch starts its own sequence.
        sequence: Per run, from 1, +1 for each published transient event.
    """

    conversation_id: str
    run_id: str
    emitted_at: datetime
    runtime_epoch: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantDeltaEvent(Transient):
    """More visible text."""

    type: ClassVar[Literal["assistant-delta"]] = "assistant-delta"
    text_delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningStartEvent(Transient):
    """The model begins to think."""

    type: ClassVar[Literal["reasoning-start"]] = "reasoning-start"
    provider: ProviderEnvelope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDeltaEvent(Transient):
    """More of what the model thinks."""

    type: ClassVar[Literal["reasoning-delta"]] = "reasoning-delta"
    text_delta: str
    provider: ProviderEnvelope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningEndEvent(Transient):
    """The model stops thinking."""

    type: ClassVar[Literal["reasoning-end"]] = "reasoning-end"
    provider: ProviderEnvelope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStatusEvent(Transient):
    """A tool call started or ended.

    Attributes:
        input: On `started`.
        output: On the other three.
    """

    type: ClassVar[Literal["tool-status"]] = "tool-status"
    call_id: str
    tool_name: str
    status: Literal["started", "completed", "failed", "interrupted"]
    input: JsonValue = None
    output: JsonValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgressEvent(Transient):
    """A running tool reports how far it is; never part of a prompt or of the history."""

    type: ClassVar[Literal["tool-progress"]] = "tool-progress"
    call_id: str
    tool_name: str
    message: str
    progress: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResetEvent(Transient):
    """What streamed since the previous attempt began is withdrawn; the provider is asked again.

    Attributes:
        attempt: The attempt that begins, 2 for the first retry.
    """

    type: ClassVar[Literal["attempt-reset"]] = "attempt-reset"
    attempt: int


DurableEvent: TypeAlias = AdmissionEvent | RunStateEvent | RunOperationEvent | CheckpointEvent | TerminalEvent
TransientEvent: TypeAlias = (
    AssistantDeltaEvent
    | ReasoningStartEvent
    | ReasoningDeltaEvent
    | ReasoningEndEvent
    | ToolStatusEvent
    | ToolProgressEvent
    | AttemptResetEvent
)
RuntimeEvent: TypeAlias = DurableEvent | TransientEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Events were lost between the last one a listener got and the next one it will get.

    Load a snapshot of the conversation, or read the ledger from `first_available`.

    Attributes:
        reason: `slow` (the listener fell behind), `retention` (the cursor is older than what is kept) or `ahead` (the
            cursor is newer than the store).
        first_available: The oldest conversation version that can still be replayed, if known.
    """

    type: ClassVar[Literal["gap"]] = "gap"
    conversation_id: str
    reason: Literal["slow", "retention", "ahead"]
    first_available: int | None = None
