"""Runs: one attempt to answer one or more committed inputs.

| terminal reason | run state | assistant status | may absorb |
|---|---|---|---|
| success, policy_stop, provider_stop | completed | completed | yes |
| interrupted | interrupted | interrupted | no |
| superseded | superseded | superseded | no |
| absorbed | superseded | no message | no |
| cancelled, shutdown | cancelled | interrupted | no |
| timeout | cancelled | failed | no |
| abandoned | abandoned | failed | no |
| provider_failure, context_overflow, storage_conflict, runtime_failure, output_rejected | failed | failed | no |
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import override

from runlane.records._base import (
    JsonObject,
    Record,
    RecordId,
    RecordVersion,
    SchemaVersion,
    Timestamp,
)
from runlane.records._message import Message, MessageStatus
from runlane.records._usage import Usage

__all__ = [
    "ACQUIRED_RUN_STATES",
    "ACTIVE_RUN_STATES",
    "COMPLETING_REASONS",
    "AdmissionReceipt",
    "ConversationHead",
    "Ownership",
    "QueuePriority",
    "Run",
    "RunOperation",
    "RunOperationKind",
    "RunOperationPhase",
    "RunState",
    "SeedReceipt",
    "Snapshot",
    "StoredRun",
    "TerminalReason",
    "message_status_for_terminal_reason",
    "run_state_for_terminal_reason",
]

RunState: TypeAlias = Literal[
    "queued",
    "running",
    "interrupt_requested",
    "completed",
    "interrupted",
    "superseded",
    "cancelled",
    "abandoned",
    "failed",
]

TerminalReason: TypeAlias = Literal[
    "success",
    "policy_stop",
    "provider_stop",
    "interrupted",
    "superseded",
    "absorbed",
    "cancelled",
    "shutdown",
    "timeout",
    "abandoned",
    "provider_failure",
    "context_overflow",
    "storage_conflict",
    "runtime_failure",
    "output_rejected",
]

QueuePriority: TypeAlias = Literal["interrupt-next"]
RunOperationKind: TypeAlias = Literal["model-request", "compaction"]
RunOperationPhase: TypeAlias = Literal["started", "first-output", "completed", "failed", "cancelled"]

ACTIVE_RUN_STATES: Final[frozenset[RunState]] = frozenset({"queued", "running", "interrupt_requested"})
ACQUIRED_RUN_STATES: Final[frozenset[RunState]] = frozenset({"running", "interrupt_requested"})
COMPLETING_REASONS: Final[frozenset[TerminalReason]] = frozenset({"success", "policy_stop", "provider_stop"})

_ENDINGS: Final[dict[TerminalReason, tuple[RunState, MessageStatus | None]]] = {
    "success": ("completed", "completed"),
    "policy_stop": ("completed", "completed"),
    "provider_stop": ("completed", "completed"),
    "interrupted": ("interrupted", "interrupted"),
    "superseded": ("superseded", "superseded"),
    "absorbed": ("superseded", None),
    "cancelled": ("cancelled", "interrupted"),
    "shutdown": ("cancelled", "interrupted"),
    "timeout": ("cancelled", "failed"),
    "abandoned": ("abandoned", "failed"),
    "provider_failure": ("failed", "failed"),
    "context_overflow": ("failed", "failed"),
    "storage_conflict": ("failed", "failed"),
    "runtime_failure": ("failed", "failed"),
    "output_rejected": ("failed", "failed"),
}


def run_state_for_terminal_reason(reason: TerminalReason, /) -> RunState:
    """Return the state a run has once it ended for this reason."""
    return _ENDINGS[reason][0]


def message_status_for_terminal_reason(reason: TerminalReason, /) -> MessageStatus | None:
    """Return the status of the answer of a run that ended for this reason; None for `absorbed`, which has none."""
    return _ENDINGS[reason][1]


class RunOperation(Record):
    """A provider call or a compaction, as far as it got.

    Attributes:
        operation_id: The same over all phases, different for each step.
        step: 0-based; given for `model-request`, absent for `compaction`.
        started_at, first_output_at, finished_at: Wall clock; not a duration, and not checked for order.
        code: Of a compaction that ended: what came of it, as a dotted code such as `compaction.applied`. Never the text
            of an error.
    """

    operation_id: RecordId
    kind: RunOperationKind
    phase: RunOperationPhase
    step: RecordVersion | None = None
    started_at: Timestamp
    first_output_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    code: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$", max_length=100)] | None = None

    # Not a validator of the model: that would be asked again for each copy of the run that has the operation.
    @override
    def model_post_init(self, context: object, /) -> None:
        ended = self.phase in {"completed", "failed", "cancelled"}
        wrong = (
            (
                (self.step is None) == (self.kind == "model-request"),
                "step is for model-request, and required there",
            ),
            (
                ended == (self.finished_at is None),
                "finished_at is for ended phases, and required there",
            ),
            (
                self.phase == "started" and self.first_output_at is not None,
                "a started operation has no first output",
            ),
            (
                self.phase == "first-output" and self.first_output_at is None,
                "first-output needs first_output_at",
            ),
            (
                self.phase == "first-output" and self.kind != "model-request",
                "first-output is for model-request",
            ),
        )
        for is_wrong, problem in wrong:
            if is_wrong:
                raise PydanticCustomError("run_operation", "{problem}", {"problem": problem})


class Run(SchemaVersion):
    """One attempt to answer one or more committed inputs.

    Attributes:
        input_message_ids: In admission order; grows by coalescing and by absorption.
        assistant_message_id: Reserved at admission, unique among runs and messages.
        revision: 0 at admission, +1 on every mutation of the run.
        execution_sequence: Set once, by the first acquisition, to the conversation version it produced.
        owner_id: Set at acquisition, removed by recovery, kept after an ordinary end.
        fencing_token: Previous + 1 at every acquisition, the first is 1; never reset.
        absorbed_into_run_id: Present exactly when the reason is `absorbed`.
        request: An opaque JSON object kept with the run for whoever executes it.
    """

    id: RecordId
    conversation_id: RecordId
    input_message_ids: Annotated[tuple[RecordId, ...], Field(min_length=1)]
    assistant_message_id: RecordId
    state: RunState
    revision: RecordVersion
    queue_priority: QueuePriority | None = None
    execution_sequence: RecordVersion | None = None
    owner_id: RecordId | None = None
    fencing_token: Annotated[int, Field(ge=1, strict=True)] | None = None
    terminal_reason: TerminalReason | None = None
    terminal_policy_name: Annotated[str, Field(min_length=1)] | None = None
    absorbed_into_run_id: RecordId | None = None
    usage: Usage | None = None
    last_operation: RunOperation | None = None
    request: JsonObject | None = None
    created_at: Timestamp
    updated_at: Timestamp

    @property
    def is_active(self) -> bool:
        """Whether the run is queued, running or asked to stop."""
        return self.state in ACTIVE_RUN_STATES

    @property
    def is_acquired(self) -> bool:
        """Whether an executor holds the run."""
        return self.state in ACQUIRED_RUN_STATES

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        reason = self.terminal_reason
        state = None if reason is None else run_state_for_terminal_reason(reason)
        absorbed = self.absorbed_into_run_id
        wrong = (
            (reason is None and not self.is_active, "an ended run needs a reason"),
            (state is not None and state != self.state, "the reason maps to another state"),
            (
                (reason == "policy_stop") != (self.terminal_policy_name is not None),
                "a policy name is for policy_stop",
            ),
            ((reason == "absorbed") != (absorbed is not None), "a pointer is for absorbed runs"),
            (absorbed == self.id, "a run cannot be absorbed into itself"),
        )
        for is_wrong, problem in wrong:
            if is_wrong:
                raise PydanticCustomError("run", "{problem}", {"problem": problem})
        return self


class Ownership(Record):
    """Who may write on behalf of an acquired run: passed whole, compared in one place.

    Attributes:
        owner: The executor's incarnation; names mean nothing, a restarted process is another owner.
        fencing_token: The run's token at acquisition; None is not compared.
        lane_epoch: The lane's epoch at acquisition, raised whenever the lane changes hands; None is not compared.
    """

    owner: RecordId
    fencing_token: Annotated[int, Field(ge=1, strict=True)] | None = None
    lane_epoch: RecordVersion | None = None


class ConversationHead(SchemaVersion):
    """The constant-size head of a conversation; an unknown one reads as version 0."""

    conversation_id: RecordId
    version: RecordVersion = 0


class Snapshot(SchemaVersion):
    """Everything active of a conversation, in causal order: for people and exports."""

    conversation_id: RecordId
    version: RecordVersion
    messages: tuple[Message, ...]
    runs: tuple[Run, ...]


class StoredRun(SchemaVersion):
    """A run with its answer, which survives compaction."""

    run: Run
    terminal_assistant: Message | None = None

    @model_validator(mode="after")
    def _answer_is_its_own(self) -> Self:
        answer = self.terminal_assistant
        if answer is not None and (self.run.terminal_reason is None or answer.id != self.run.assistant_message_id):
            raise PydanticCustomError("stored_run", "a retained answer belongs to an ended run and is its own")
        return self


class AdmissionReceipt(SchemaVersion):
    """Proof that an input was accepted; one per idempotency key, survives compaction.

    Attributes:
        input_sha256: SHA-256 of the input's stored bytes, lower-case hexadecimal.
    """

    conversation_id: RecordId
    idempotency_key: RecordId
    input: Message
    input_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    run_id: RecordId
    assistant_message_id: RecordId


class SeedReceipt(SchemaVersion):
    """Proof that a seed was placed; one per seed key, survives compaction."""

    conversation_id: RecordId
    seed_key: RecordId
    message_ids: Annotated[tuple[RecordId, ...], Field(min_length=1)]
