"""What can be asked of a store.

A command is plain data: it names what it expects to find and what it wants. The reducer decides, a driver carries out.
Every command has its own `command_id`, kept in the ledger entry it causes: a command found again under its own id
counts as applied, so the same command may safely be sent again when the outcome of a commit is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from runlane.records import (
    JsonObject,
    Message,
    Ownership,
    Part,
    ProviderEnvelope,
    Run,
    RunMetrics,
    RunOperation,
    TerminalReason,
    Usage,
)

__all__ = [
    "Absorption",
    "AcceptInput",
    "AcquireRun",
    "AppendEvent",
    "CancelRun",
    "CheckpointRunAssistant",
    "Command",
    "CommitRunTerminal",
    "DraftPatch",
    "GrownPart",
    "PurgeConversation",
    "ReadEvents",
    "RecordRunOperation",
    "RecoverRun",
    "ReplaceCompactedRange",
    "RequestRunInterrupt",
    "SeedConversation",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identified:
    """Attributes of every command.

    Attributes:
        command_id: Names this command for ever; two different commands never share one.
        at: When it was issued, an aware instant; becomes `updated_at` of what it changes.
    """

    command_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptInput(_Identified):
    """Commit an input and assign it to a run: a new one, or a queued one it joins.

    Attributes:
        input: A committed, unowned message of role `user` or `tool`.
        run: The proposed run: queued, revision 0, exactly this input, nothing else set but priority and request. When
            the input joins another run the proposal's own ids are ignored.
        expected_version: Conversation version that must still be current, or None.
        coalesce_into_run_id: The queued run to join, or None.
    """

    idempotency_key: str
    input: Message
    run: Run
    expected_version: int | None = None
    coalesce_into_run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireRun(_Identified):
    """Make `owner_id` the only executor of a queued run whose turn it is."""

    run_id: str
    expected_revision: int
    owner_id: str


@dataclass(frozen=True, slots=True)
class GrownPart:
    """A text or reasoning part that got longer.

    Attributes:
        index: Its position among the draft's parts.
        suffix: What came after the text it already had.
        provider: The envelope that replaces the one it had (reasoning only), or None to keep it.
    """

    index: int
    suffix: str
    provider: ProviderEnvelope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPatch:
    """What a streaming answer gained since its last checkpoint; its size follows the gain, not the answer.

    Attributes:
        keep: How many leading parts stay. Less than the draft has when a retried attempt is taken back.
        grown: Kept parts that got longer.
        added: New parts, after the kept ones.
    """

    keep: int = 0
    grown: tuple[GrownPart, ...] = ()
    added: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRunAssistant(_Identified):
    """Extend the draft of a running run's answer; the first checkpoint of an execution creates it.

    Attributes:
        patch: What is new. The first checkpoint after an acquisition may keep nothing: then an earlier execution's
            draft is dropped.
        usage: Spend so far, stated whole, or None to leave it as it is.
    """

    run_id: str
    expected_revision: int
    ownership: Ownership
    patch: DraftPatch
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRunOperation(_Identified):
    """Replace `last_operation` of an acquired run."""

    run_id: str
    expected_revision: int
    ownership: Ownership
    operation: RunOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRunInterrupt(_Identified):
    """Ask the executor of a running run, wherever it is, to stop."""

    run_id: str
    expected_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRun(_Identified):
    """End a queued run that was never acquired, with reason `cancelled` and an empty interrupted answer."""

    run_id: str
    expected_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverRun(_Identified):
    """Take a run away from an executor that is gone: back into the queue, or to an end.

    Attributes:
        replay_safe: Must be True to requeue an acquired run: the caller vouches that running it again is safe.
        evidence: Why, as a JSON object kept in the ledger.
    """

    run_id: str
    expected_revision: int
    action: Literal["requeue", "abandon"]
    replay_safe: bool = False
    evidence: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Absorption:
    """A queued run whose inputs the ending run has answered, all of them, in this order."""

    run_id: str
    input_message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRunTerminal(_Identified):
    """End an acquired run with its whole answer.

    Attributes:
        assistant: The answer; its status is the one that `reason` maps to.
        policy_name: The stop policy that fired; given exactly with reason `policy_stop`.
        usage: The run's spend, or None to keep what was checkpointed.
        metrics: How the run went; kept in the ledger only, for readers that missed the end.
        absorb: Only with a completing reason. Entries that no longer match are dropped, the end still commits.
    """

    run_id: str
    expected_revision: int
    ownership: Ownership
    assistant: Message
    reason: TerminalReason
    policy_name: str | None = None
    usage: Usage | None = None
    metrics: RunMetrics | None = None
    absorb: tuple[Absorption, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceCompactedRange(_Identified):
    """Replace contiguous messages by a summary, under the exact version they were read at."""

    expected_version: int
    replaced_message_ids: tuple[str, ...]
    summary: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedConversation(_Identified):
    """Put messages into a conversation once for ever, without a run.

    Attributes:
        placement: `lead` puts user messages ahead of everything; `after-settled` puts user and assistant messages
            after the settled history and before the first message of any active run.
    """

    seed_key: str
    inputs: tuple[Message, ...]
    placement: Literal["lead", "after-settled"] = "lead"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendEvent(_Identified):
    """Append a ledger entry without changing the conversation: the sequence grows, the version does not.

    Attributes:
        kind: A word of the ledger's vocabulary (`runlane.store.EventKind`).
        occurred_at: When it happened; None means `at`.
        ignorable: Readers that do not know the kind may skip it.
        event_id: The entry's identifier, unique in the conversation; None means the command's id.
    """

    kind: str
    payload: JsonObject
    occurred_at: datetime | None = None
    ignorable: bool = False
    event_id: str | None = None


Command: TypeAlias = (
    AcceptInput
    | AcquireRun
    | CheckpointRunAssistant
    | RecordRunOperation
    | RequestRunInterrupt
    | CancelRun
    | RecoverRun
    | CommitRunTerminal
    | ReplaceCompactedRange
    | SeedConversation
    | AppendEvent
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEvents:
    """Which ledger entries to read: inclusive bounds, ascending, at most `limit` (1 to 10,000).

    Attributes:
        after_version: Only entries of later versions; their place is looked up, whatever was appended in between.
    """

    conversation_id: str
    from_seq: int | None = None
    to_seq: int | None = None
    limit: int = 1000
    after_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeConversation:
    """Which conversation to remove, and the version it must still have (None: any)."""

    conversation_id: str
    expected_version: int | None = None
