"""The event ledger: its vocabulary, its entries, and how a reader meets what it does not know.

Every applied command leaves one entry, in the same transaction as its rows. Entries of kind `runtime/transition` are
the store's own and follow `TransitionRecord`; all other kinds are appended by the layers above.

A stored payload never holds a message: it names it by id and SHA-256, and a read puts the body beside these, from the
one row that keeps it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import AwareDatetime, Field, JsonValue, TypeAdapter, ValidationError

from runlane.errors import CanonicalJsonError, FormatError, InvalidValueError
from runlane.records import (
    JsonObject,
    Message,
    Record,
    RecordId,
    RecordVersion,
    Run,
    RunMetrics,
    RunOperation,
    RunState,
    TerminalReason,
    Usage,
    stored_json,
)
from runlane.store._outcomes import EventEnvelope

__all__ = [
    "ENVELOPE_VERSION",
    "EVENT_KINDS",
    "TRANSITION",
    "DecodedEvent",
    "EventDecodeResult",
    "EventDraft",
    "EventKind",
    "IgnoredEvent",
    "MessageReference",
    "Transition",
    "TransitionRecord",
    "decode_event",
    "is_once",
    "once_event_id",
]

EventKind: TypeAlias = Literal[
    "runtime/baseline",
    "runtime/transition",
    "invocation/started",
    "invocation/finished",
    "provider/payload",
    "provider/request",
    "provider/response",
    "provider/message",
    "state/set",
    "spill/created",
    "spill/deleted",
    "schedule/set",
    "schedule/fired",
    "schedule/cancelled",
    "schedule/late",
    "schedule/failed",
    "child/spawned",
    "child/state",
    "retry/scheduled",
    "retry/started",
    "sandbox/probed",
    "approval/response-rejected",
    "durability/step",
    "durability/park",
    "durability/event",
    "durability/effect",
]
"""What a ledger entry can be about; closed for appending, open for reading."""

EVENT_KINDS: Final[frozenset[str]] = frozenset(get_args(EventKind))
TRANSITION: Final = "runtime/transition"
ENVELOPE_VERSION: Final = 1
_ONCE: Final = "by_key_"

Transition: TypeAlias = Literal[
    "accept",
    "acquire",
    "checkpoint",
    "operation",
    "interrupt",
    "cancel",
    "recover",
    "terminal",
    "compact",
    "seed",
]
"""Which command an entry of kind `runtime/transition` records."""


class MessageReference(Record):
    """A message, by identity.

    Attributes:
        sha256: Of the stored bytes; for a checkpointed draft, chained over its patches.
        parts, size: Only of a draft: how many parts, and how many bytes its patches take.
        body: Put there by a read; never stored in the ledger, never there for a draft.
    """

    id: RecordId
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    parts: RecordVersion | None = None
    size: RecordVersion | None = None
    body: Message | None = None


class AbsorbedRun(Record):
    """A queued run that another run's answer ended."""

    run_id: RecordId
    revision: RecordVersion


class TransitionRecord(Record):
    """The payload of a `runtime/transition` entry: enough to rebuild the event that followed the commit.

    Attributes:
        run_id, revision, state: The changed run afterwards; absent for `compact` and `seed`.
        run: Only of `accept`, put there by a read: the run as it was then.
        message: `accept`: the input. `checkpoint`: the draft. `terminal`, `cancel`, abandoning `recover`: the answer.
            `compact`: the summary.
        inputs: Only of `accept`: how many inputs the run had afterwards.
        usage: `checkpoint`: the spend so far, if it was given. `terminal`: the run's spend.
        absorbed: Runs the answer also ended.
        removed: Only of `compact`: ids that left the active history.
        messages: Only of `seed`.
    """

    type: Transition
    run_id: RecordId | None = None
    revision: RecordVersion | None = None
    state: RunState | None = None
    run: Run | None = None
    message: MessageReference | None = None
    idempotency_key: str | None = None
    inputs: RecordVersion | None = None
    owner_id: RecordId | None = None
    fencing_token: RecordVersion | None = None
    lane_epoch: RecordVersion | None = None
    execution_sequence: RecordVersion | None = None
    operation: RunOperation | None = None
    action: Literal["requeue", "abandon"] | None = None
    evidence: JsonObject | None = None
    reason: TerminalReason | None = None
    policy_name: str | None = None
    usage: Usage | None = None
    metrics: RunMetrics | None = None
    absorbed: tuple[AbsorbedRun, ...] | None = None
    removed: tuple[RecordId, ...] | None = None
    seed_key: str | None = None
    placement: Literal["lead", "after-settled"] | None = None
    messages: tuple[MessageReference, ...] | None = None

    @property
    def brought(self) -> tuple[MessageReference, ...]:
        """The whole messages it names; a checkpointed draft is none."""
        one = () if self.message is None or self.type == "checkpoint" else (self.message,)
        return (*one, *(self.messages or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDraft:
    """An entry that was not appended yet; the store assigns its sequence."""

    kind: str
    payload: JsonObject
    event_id: str
    occurred_at: str
    ignorable: bool = False


@dataclass(frozen=True, slots=True)
class DecodedEvent:
    """An entry this program understands."""

    event: EventEnvelope


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredEvent:
    """An entry this program does not know, and may skip because its writer said so."""

    event_id: str
    conversation_id: str
    seq: int
    schema_version: int
    kind: str


EventDecodeResult: TypeAlias = DecodedEvent | IgnoredEvent


_MOST: Final = 2**53 - 1
"""The largest integer that every reader of JSON can tell from its neighbours."""


class _Envelope(Record):
    """An entry in JSON, strictly."""

    schema_version: Annotated[int, Field(ge=1, strict=True)]
    event_id: Annotated[str, Field(min_length=1)]
    conversation_id: Annotated[str, Field(min_length=1)]
    seq: Annotated[int, Field(ge=1, le=_MOST, strict=True)]
    version: RecordVersion = 0
    kind: Annotated[str, Field(min_length=1)]
    occurred_at: str
    payload: JsonValue
    command_id: str | None = None
    ignorable: Literal[True] | None = None


_MOMENT = TypeAdapter(AwareDatetime)


def decode_event(value: Mapping[str, object], /) -> EventDecodeResult:
    """Read a ledger entry that may come from another release.

    Args:
        value: The entry as JSON values, with exactly the fields of `EventEnvelope`. `version`, `command_id` and
            `ignorable` may be absent; `ignorable` is never false.

    Returns:
        The entry, or what may be said of one that its writer marked ignorable.

    Raises:
        FormatError: The envelope is not valid, or the entry is unknown and not ignorable. A reader stops there.
    """
    if not isinstance(value, Mapping):
        raise FormatError(f"a ledger entry must be an object, not {type(value).__name__}")
    try:
        envelope = _Envelope.model_validate(dict(value))
        _MOMENT.validate_python(envelope.occurred_at)
        stored_json(envelope.payload)
    except CanonicalJsonError as error:
        raise FormatError(f"a ledger entry is not valid at payload{error.path}: {error.problem}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = ".".join(str(step) for step in first["loc"]) or "occurred_at"
        raise FormatError(f"a ledger entry is not valid at {path}: {first['msg']}") from None
    known = envelope.schema_version == ENVELOPE_VERSION and envelope.kind in EVENT_KINDS
    if known and isinstance(envelope.payload, dict):
        return DecodedEvent(_event(envelope, envelope.payload))
    if envelope.ignorable:
        return IgnoredEvent(
            event_id=envelope.event_id,
            conversation_id=envelope.conversation_id,
            seq=envelope.seq,
            schema_version=envelope.schema_version,
            kind=envelope.kind,
        )
    raise FormatError(
        f"conversation {envelope.conversation_id!r}, seq {envelope.seq}: ledger entry {envelope.event_id!r} "
        f"has version {envelope.schema_version} and kind {envelope.kind!r}, which this program does not know"
    )


def _event(envelope: _Envelope, payload: JsonObject) -> EventEnvelope:
    return EventEnvelope(
        schema_version=envelope.schema_version,
        event_id=envelope.event_id,
        conversation_id=envelope.conversation_id,
        seq=envelope.seq,
        version=envelope.version,
        kind=envelope.kind,
        occurred_at=envelope.occurred_at,
        payload=payload,
        command_id=envelope.command_id,
        ignorable=bool(envelope.ignorable),
    )


def once_event_id(kind: str, key: str, /) -> str:
    """Return the event id of a once-only entry: a function of kind and key, so that finding it is one look-up.

    It sorts before the ids of commands: these come in the order of time and are appended to an index that has them at
    its end.

    Raises:
        InvalidValueError: One of them is empty, or no text.
    """
    for argument, value in (("kind", kind), ("key", key)):
        if type(value) is not str or not value:
            raise InvalidValueError("must be a text that is not empty", argument=argument)
    text = f"{len(kind)}:{kind}{key}".encode("utf-8", "surrogatepass")
    return f"{_ONCE}{hashlib.sha256(text).hexdigest()[:40]}"


def is_once(event_id: str, /) -> bool:
    """Whether an id is that of a once-only entry."""
    return event_id.startswith(_ONCE)
