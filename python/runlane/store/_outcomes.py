"""What a store answers.

A race is an outcome, misuse is an exception. Only `Applied` means that something was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from runlane.records import AdmissionReceipt, JsonObject, Message, Ownership, Run

__all__ = [
    "AlreadyPurged",
    "Applied",
    "CompareAndSwapResult",
    "Conflict",
    "Delta",
    "Duplicate",
    "EventEnvelope",
    "EventPage",
    "ImportResult",
    "MessagePage",
    "MutationResult",
    "NotFound",
    "Outcome",
    "OwnerState",
    "PurgeResult",
    "Purged",
    "RecoverableDescriptor",
    "RecoverablePage",
    "RunView",
    "StillActive",
    "StoredMessage",
]


class Delta(NamedTuple):
    """What one mutation changed, or what changed since a version a reader holds.

    A tuple, as `Applied` is, because every command of every turn makes one.

    Attributes:
        version: The conversation's version afterwards.
        seq: The sequence of the newest ledger entry afterwards.
        runs: Changed runs, in causal order.
        messages: Changed messages that are whole, in causal order; a checkpointed draft is not repeated here.
        removed: Ids of messages that left the active history (compacted).
    """

    version: int
    seq: int
    runs: tuple[Run, ...] = ()
    messages: tuple[Message, ...] = ()
    removed: tuple[str, ...] = ()


class Applied(NamedTuple):
    """The command was carried out (now, or before under the same `command_id`).

    Attributes:
        ownership: After `AcquireRun`: what the executor passes with every owned write.
    """

    delta: Delta
    ownership: Ownership | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The idempotency key was accepted before; nothing was written.

    Attributes:
        receipt: The first admission, with its input.
        run: The run that answers it, as it is now: after absorption, the absorbing one.
        assistant: The answer, if that run has ended.
        version: The conversation's version.
        input_matches: Whether the repeated input's role, parts and metadata equal the first one's.
    """

    receipt: AdmissionReceipt
    run: Run
    assistant: Message | None
    version: int
    input_matches: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Somebody else was first; nothing was written.

    Attributes:
        actual_version: The conversation's version for commands guarded by it (and for its purge), else the run's
            revision.
    """

    actual_version: int


@dataclass(frozen=True, slots=True)
class NotFound:
    """The conversation has no such run or message; nothing was written."""


Outcome: TypeAlias = Applied | Duplicate | Conflict | NotFound
MutationResult: TypeAlias = Outcome
CompareAndSwapResult: TypeAlias = Applied | Conflict | NotFound


@dataclass(frozen=True, slots=True)
class Purged:
    """Everything under the id is gone; only its tombstone stays."""


@dataclass(frozen=True, slots=True)
class AlreadyPurged:
    """The conversation was purged before; nothing is left to remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StillActive:
    """Runs are not ended; nothing was touched. End them, then purge again."""

    run_ids: tuple[str, ...]


PurgeResult: TypeAlias = Purged | AlreadyPurged | Conflict | StillActive


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What an import made: the conversation, and how many ledger entries it has."""

    conversation_id: str
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run as stored.

    Attributes:
        snapshot_version: The conversation's version at the read.
        assistant: The answer, only of an ended run; it survives compaction. A live draft is never here.
    """

    snapshot_version: int
    run: Run
    assistant: Message | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message as its stored bytes, for readers that do not need it parsed.

    Attributes:
        position: Orders the messages of a conversation causally; not contiguous, and a queued input's changes when
            its run is acquired.
        version: The conversation version that last changed it.
        body: The message as canonical JSON, UTF-8.
    """

    position: int
    version: int
    message_id: str
    run_id: str | None
    role: str
    status: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Messages newest first; `next_before` continues towards the beginning, None at it.

    It names what was read last, so that nothing is passed over if the queue has changed before the next page is read.
    """

    items: tuple[StoredMessage, ...]
    version: int
    next_before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerState:
    """What is known of an owner's process.

    Attributes:
        alive: True while its lease is held, False when it is provably gone or swept, None for an owner without lease.
    """

    owner_id: str
    alive: bool | None


class RecoverableDescriptor(NamedTuple):
    """An active run, and whether whoever holds it still lives (None: nobody holds it, or nobody knows).

    A tuple, because a backlog is listed by the thousand.
    """

    conversation_id: str
    run: Run
    owner_alive: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverablePage:
    """Active runs by (conversation id, run id); `next_cursor` is such a pair."""

    items: tuple[RecoverableDescriptor, ...]
    next_cursor: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventEnvelope:
    """One ledger entry.

    Attributes:
        seq: From 1, contiguous within the conversation.
        version: The conversation's version after it.
        command_id: The command that caused it.
        occurred_at: ISO-8601 text as stored.
        payload: A JSON object; bodies it refers to by id are joined in by the read.
    """

    schema_version: int
    event_id: str
    conversation_id: str
    seq: int
    version: int
    kind: str
    occurred_at: str
    payload: JsonObject
    command_id: str | None = None
    ignorable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Ledger entries ascending by `seq`; `next_seq` continues, None at the end of the range."""

    items: tuple[EventEnvelope, ...]
    next_seq: int | None = None
