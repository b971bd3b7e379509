"""What a driver keeps, as plain rows: the vocabulary between the reducer, which decides, and a driver, which stores.

A conversation is a head and, under it, runs, messages, receipts and ledger entries. Everything a transition may look
at is bounded by the turn: the head, the active runs and the rows its command names (`Names`); what it changes is a
list of rows (`Changes`). Neither ever holds the history.

Rows are named tuples: they are made by the thousand, and this is the cheapest immutable thing that Python makes.

Positions order the messages of a conversation (`runlane.store._order` explains how they are given).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import BaseModel

from runlane.records import Run

__all__ = [
    "MAX_POSITION",
    "QUEUED",
    "BranchRow",
    "Changes",
    "DraftChange",
    "DraftHead",
    "EventRow",
    "Head",
    "HistoryMutation",
    "MessagePlace",
    "MessageRow",
    "Names",
    "OwnerRow",
    "ReceiptRow",
    "RunRow",
    "SeedRow",
    "View",
    "changed_run",
    "checked_run",
]


QUEUED: Final = 1 << 62
"""Positions from here on are provisional: inputs that wait."""

MAX_POSITION: Final = (1 << 63) - 2


class Head(NamedTuple):
    """The constant-size row of a conversation.

    Attributes:
        version: +1 for every applied command but `AppendEvent`.
        seq: Sequence of the newest ledger entry.
        lane_epoch: Raised whenever the lane changes hands.
        lane_owner: Who acquired last, or None once it was taken away.
        purged: Whether only this tombstone is left.
        lowest: Lowest position given so far.
        next_place: First free position behind everything settled.
        gap: Where seeds of placement `after-settled` go while an acquired run is active.
        created_at, changed_at: First and newest mutation, as stored text.
        active_at: Newest admission, as stored text; orders listings.
    """

    version: int = 0
    seq: int = 0
    lane_epoch: int = 0
    lane_owner: str | None = None
    purged: bool | int = False
    lowest: int = 0
    next_place: int = 0
    gap: int = 0
    created_at: str = ""
    changed_at: str = ""
    active_at: str = ""


class DraftHead(NamedTuple):
    """What is known of a streaming answer without reading it.

    Attributes:
        kinds: One letter a part: `t` text, `r` reasoning, `.` anything else.
        patches: How many patch rows make it up.
        size: Total bytes of these rows.
        sha256: Chained digest over them.
    """

    kinds: str = ""
    patches: int = 0
    size: int = 0
    sha256: bytes = bytes(32)


class RunRow(NamedTuple):
    """A run and what the store keeps beside it.

    Attributes:
        arrival: Conversation version of its admission.
        version: Conversation version that last changed it.
        place: Position of its first input once it left the queue for the first time, else None.
        draft: Its answer so far, or None.
    """

    run: Run
    arrival: int
    version: int
    place: int | None = None
    draft: DraftHead | None = None


class MessageRow(NamedTuple):
    """A message; `removed_at` is the version at which compaction took it out of the active history.

    A row without a body reserves the id of an answer that does not exist yet; it has no position.
    """

    message_id: str
    position: int | None
    version: int
    run_id: str | None
    role: str
    status: str
    body: bytes | None
    removed_at: int | None = None


class MessagePlace(NamedTuple):
    """Where a known message id stands; `position` is None for a reserved answer."""

    message_id: str
    position: int | None
    removed_at: int | None


class ReceiptRow(NamedTuple):
    """One accepted idempotency key."""

    key: str
    run_id: str
    message_id: str
    sha256: bytes


class SeedRow(NamedTuple):
    """One placed seed key."""

    key: str
    message_ids: tuple[str, ...]


class EventRow(NamedTuple):
    """One ledger entry. `event_id` is unique in the conversation, and is the command's id unless the command says.

    `schema_version` is another than 1 only of an ignorable entry that came with an archive of a later release.
    """

    seq: int
    version: int
    event_id: str
    command_id: str
    kind: str
    occurred_at: str
    body: bytes
    ignorable: bool = False
    schema_version: int = 1


class BranchRow(NamedTuple):
    """What is kept of a branch, under its request key, which is unique in the whole store.

    Attributes:
        fingerprint: SHA-256 of what was asked for.
        source_id: None once that conversation was purged.
        source_seq, source_version, source_sha256: Of the source's ledger up to the boundary.
    """

    key: str
    fingerprint: bytes
    source_id: str | None
    destination_id: str
    source_seq: int
    source_version: int
    source_sha256: bytes
    created_at: str


class OwnerRow(NamedTuple):
    """An owner that registered a lease; `alive` is False once it was swept, expired or is provably gone."""

    owner_id: str
    alive: bool


class DraftChange(NamedTuple):
    """One step of a streaming answer: all rows dropped (`patch` 0), or one appended."""

    run_id: str
    patch: int
    body: bytes = b""


@dataclass(slots=True)
class Names:
    """The rows that some commands name.

    Attributes:
        runs: Run ids beyond the active ones.
        receipts: Idempotency keys.
        seeds: Seed keys.
        messages: Message ids, reserved answers included.
        span: Message ids between whose outermost positions the active messages are needed.
        drafts: Runs whose draft is needed whole.
        owners: Owners whose lease matters.
        lane: Whether the active runs matter as a whole; if not, a driver may load only the named ones.
    """

    runs: set[str] = field(default_factory=set)
    receipts: set[str] = field(default_factory=set)
    seeds: set[str] = field(default_factory=set)
    messages: set[str] = field(default_factory=set)
    span: tuple[str, ...] = ()
    drafts: set[str] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)
    lane: bool = False


@dataclass(slots=True)
class View:
    """What the reducer sees of a conversation: the head, the active runs and the rows that were named.

    Attributes:
        active: Active runs by id: all of them if the lane was asked for, else at least the named ones.
        ended: Named runs that have ended.
        messages: Named message ids that are known, compacted and reserved ones included.
        span: Active messages from the first to the last of the named span, by position; to the end of the queue if one
            of them waits in it. At most `span_limit` of them.
        swept: Named owners that are known to be gone.
    """

    conversation_id: str
    head: Head = field(default_factory=Head)
    active: dict[str, RunRow] = field(default_factory=dict)
    ended: dict[str, RunRow] = field(default_factory=dict)
    receipts: dict[str, ReceiptRow] = field(default_factory=dict)
    seeds: dict[str, SeedRow] = field(default_factory=dict)
    messages: dict[str, MessagePlace] = field(default_factory=dict)
    span: tuple[MessagePlace, ...] = ()
    drafts: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    swept: set[str] = field(default_factory=set)

    def span_bounds(self, names: Names, /) -> tuple[int, int] | None:
        """Return the inclusive positions that a span's messages lie between, or None if there is no span to load."""
        if not names.span:
            return None
        found = [place for name in names.span if (place := self.messages.get(name)) is not None]
        positions = [place.position for place in found if place.position is not None and place.removed_at is None]
        if not positions:
            return None
        highest = max(positions)
        return min(positions), highest if highest < QUEUED else MAX_POSITION

    def span_limit(self, names: Names, /) -> int:
        """Return how many messages of a span decide whether it is contiguous; more need not be loaded."""
        waiting = sum(len(row.run.input_message_ids) for row in self.active.values() if row.place is None)
        return len(names.span) + 1 + waiting

    def run(self, run_id: str, /) -> RunRow | None:
        """Return a run by id, active or ended."""
        return self.active.get(run_id) or self.ended.get(run_id)


@dataclass(slots=True)
class Changes:
    """What one transaction writes, in the order a driver writes it.

    Attributes:
        before: The head that was read; its version is what a compare-and-swap expects.
        head: The head afterwards.
        runs: By id: the row as it was (None: a new one) and as it is.
        messages: New rows, inputs, seeds, summaries and reserved answers alike; imported ones may be removed already.
        answers: Reserved answers that got their body and place.
        moved: Queued inputs that got their place, as (message id, position); their version is the head's.
        removed: Messages that compaction took out of the active history, as (message id, version): the one they were
            removed at, and theirs from then on.
        drafts: In order; whatever else a run's draft was stays until its rows are dropped.
        branch: The receipt of the branch that makes this conversation.
    """

    before: Head
    head: Head
    runs: dict[str, tuple[RunRow | None, RunRow]] = field(default_factory=dict)
    messages: list[MessageRow] = field(default_factory=list)
    answers: list[MessageRow] = field(default_factory=list)
    moved: list[tuple[str, int]] = field(default_factory=list)
    removed: list[tuple[str, int]] = field(default_factory=list)
    receipts: list[ReceiptRow] = field(default_factory=list)
    seeds: list[SeedRow] = field(default_factory=list)
    drafts: list[DraftChange] = field(default_factory=list)
    entries: list[EventRow] = field(default_factory=list)
    branch: BranchRow | None = None


HistoryMutation: TypeAlias = Changes
"""What a mutation does to the history: messages added, answered, moved and removed are lists of its `Changes`."""


_SLOTS: Final[dict[str, Any]] = {**vars(BaseModel)}
_SET_VALUES: Final[Callable[[Run, Any], None]] = _SLOTS["__dict__"].__set__
_SET_KNOWN: Final[Callable[[Run, Any], None]] = _SLOTS["__pydantic_fields_set__"].__set__
_SET_EXTRA: Final[Callable[[Run, Any], None]] = _SLOTS["__pydantic_extra__"].__set__
_SET_PRIVATE: Final[Callable[[Run, Any], None]] = _SLOTS["__pydantic_private__"].__set__
_NEW: Final = object.__new__


def changed_run(run: Run, fields: Mapping[str, object], /) -> Run:
    """Return a run with some fields changed, as `Run.model_copy` does, which is slow for what is made so often."""
    known = run.__pydantic_fields_set__
    # Records are frozen, so the set may be shared as long as nothing is new in it.
    return checked_run({**run.__dict__, **fields}, known if fields.keys() <= known else known | fields.keys())


def checked_run(values: dict[str, object], known: AbstractSet[str], /) -> Run:
    """Return a run made of values that are known to be valid: nothing is validated again.

    Args:
        values: A value for each field; it becomes part of the run.
        known: The fields that were set.
    """
    run = _NEW(Run)
    _SET_VALUES(run, values)
    _SET_KNOWN(run, known)
    _SET_EXTRA(run, None)
    _SET_PRIVATE(run, None)
    return run
