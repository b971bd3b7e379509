"""How a conversation is branched: the settled part of an archive, cut off and written anew under another id.

What comes along: the active history and the compacted messages up to the boundary, the runs that had ended there, and
the ledger entries about them, with what was accepted under which key, so that a retry of an old key is a duplicate in
the branch as well. Compactions after the boundary are undone. Sequences and versions are counted anew from 1, since
inputs that waited at the boundary, and what the entries below say of their source, stay behind. Entries and commands
get new ids; once-only entries keep theirs, which are functions of kind and key, and are found by their key as before:
an effect that happened before the branch is not repeated by it.

What stays with the source: a request for consent that nobody has answered, for what it allows must not happen twice (to
a model of the branch its call was cut off); and (`_STAYS`) schedules and children, which must not fire or report twice;
provider calls and invocations, whose evidence is bound to the source's ids and hashes and whose encrypted artefacts
cannot be opened under another id; spilled artefacts; how attempts were retried and sandboxes probed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pydantic_core import from_json

from runlane.canonical import canonical_record_hash
from runlane.errors import (
    BranchDestinationTakenError,
    ConversationActiveError,
    ConversationPurgedError,
    InvalidValueError,
    UsageError,
)
from runlane.ids import IdSource
from runlane.records import JsonObject
from runlane.store._archive import ConversationArchive, event_json
from runlane.store._bodies import digest, encode_json
from runlane.store._branch import BranchConversation, BranchResult, receipt
from runlane.store._driver import Rows
from runlane.store._importing import changes_of
from runlane.store._ledger import TransitionRecord, is_once
from runlane.store._outcomes import EventEnvelope
from runlane.store._rows import BranchRow, Changes, Head, MessageRow
from runlane.store._snapshot import Contents, snapshot_json, take_apart, transitions

__all__ = ["branch_changes", "branch_rows", "known_branch"]

_STAYS: Final = ("schedule/", "child/", "provider/", "invocation/", "spill/", "retry/", "sandbox/")
_PLACES: Final = frozenset({"acquire", "terminal", "cancel", "recover"})


def known_branch(rows: Rows, request: BranchConversation, asked: bytes, /) -> BranchResult | None:
    """Answer a request that was carried out before; if it was not, refuse what cannot become a branch.

    Raises:
        UsageError: The key was used for another request.
        ConversationPurgedError: The destination or the source was purged.
        BranchDestinationTakenError: The destination is not empty.
    """
    row = rows.branch(request.request_key)
    if row is not None:
        if row.fingerprint != asked:
            problem = f"{request.request_key!r} was used for another branch; choose a key of its own"
            raise UsageError(problem, argument="request_key")
        return BranchResult(outcome="duplicate", receipt=receipt(row))
    if request.source_id is not None and rows.head(request.source_id).purged:
        raise ConversationPurgedError(conversation_id=request.source_id)
    head = rows.head(request.destination_id)
    if head.purged:
        raise ConversationPurgedError(conversation_id=request.destination_id)
    if head.version or head.seq:
        raise BranchDestinationTakenError(conversation_id=request.destination_id)
    return None


def branch_rows(rows: Rows, request: BranchConversation, changes: Changes, row: BranchRow, /) -> BranchResult:
    """Write a branch and its receipt, unless somebody was faster under the same key."""
    known = known_branch(rows, request, row.fingerprint)
    if known is not None:
        return known
    if row.source_id is not None and rows.head(row.source_id).purged:  # an archive may be older than the purge
        row = row._replace(source_id=None)
    changes.branch = row
    rows.save(request.destination_id, changes)
    return BranchResult(outcome="created", receipt=receipt(row))


def branch_changes(
    source: ConversationArchive, request: BranchConversation, at: str, ids: IdSource, /
) -> tuple[Changes, tuple[int, int, bytes]]:
    """Return the rows of a branch, and the boundary: sequence, version and digest of the source's ledger up to there.

    It takes a time that grows with the source, and no lock.

    Raises:
        ArchiveInvalidError: The source is no valid archive.
        InvalidValueError: The source is empty, or has no such run.
        ConversationActiveError: The boundary lies inside a turn.
    """
    contents = take_apart(source)
    if request.archive is not None:
        changes_of(contents)
    if not source.events:
        argument = "archive" if request.source_id is None else "source_id"
        raise InvalidValueError(f"conversation {source.conversation_id!r} is empty", argument=argument)
    told = [(event, record) for _, event, record in transitions(source)]
    cut = _cut(contents, told, request.run_id)
    records = {event.seq: record for event, record in told}
    changes = changes_of(take_apart(_Rewriting(contents, records, cut, request.destination_id, at, ids).archive()))
    before = source.events[: cut.last]
    sha256 = bytes.fromhex(canonical_record_hash([event_json(event) for event in before]))
    return changes, (before[-1].seq, before[-1].version, sha256)


_Transitions: TypeAlias = Sequence[tuple[EventEnvelope, TransitionRecord]]


# --- the boundary -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cut:
    """A boundary: the last sequence before it, the runs that had ended there, and those that merely waited."""

    last: int
    ended: frozenset[str]
    waiting: frozenset[str]


def _cut(contents: Contents, told: _Transitions, run_id: str | None) -> _Cut:
    ends = _ends(told)
    last = len(contents.archive.events) if run_id is None else ends.get(run_id)
    if run_id is not None and run_id not in contents.runs:
        raise InvalidValueError(f"conversation {contents.archive.conversation_id!r} has no such run", argument="run_id")
    if last is None:
        raise ConversationActiveError(conversation_id=contents.archive.conversation_id, run_ids=(str(run_id),))
    before = [record for event, record in told if event.seq <= last]
    known = {record.run_id: None for record in before if record.run_id is not None}
    open_runs = [name for name in known if ends.get(name, last + 1) > last]
    begun = {record.run_id for record in before if record.type == "acquire"}
    unfinished = [name for name in open_runs if run_id is None or name in begun]
    if unfinished:
        raise ConversationActiveError(conversation_id=contents.archive.conversation_id, run_ids=unfinished)
    return _Cut(last, frozenset(known.keys() - set(open_runs)), frozenset(open_runs))


def _ends(told: _Transitions) -> dict[str, int]:
    """Return the sequence at which each ended run ended."""
    found: dict[str, int] = {}
    for event, record in told:
        if record.reason is not None and record.run_id is not None:
            found[record.run_id] = event.seq
        found |= {absorbed.run_id: event.seq for absorbed in record.absorbed or ()}
    return found


# --- writing it anew ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Rewriting:
    """Writes what lies before a boundary under another conversation id.

    Attributes:
        records: The source's transitions, by sequence.
        versions: The new version of each old one whose transition comes along.
        touched: The new version that last changed each message.
        removed: The new version at which each compacted message was compacted.
        bodies: The new body of each message that comes along.
        answered: The approvals that were answered before the boundary.
    """

    contents: Contents
    records: dict[int, TransitionRecord]
    cut: _Cut
    destination: str
    at: str
    ids: IdSource
    versions: dict[int, int] = field(default_factory=dict)
    touched: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    answered: frozenset[str] = frozenset()

    def archive(self) -> ConversationArchive:
        """Return the branch as an archive."""
        self.answered = self._answered()
        events: list[EventEnvelope] = []
        for event in self.contents.archive.events[: self.cut.last]:
            record = self.records.get(event.seq)
            if not self._stays(event, record):
                events.append(self._event(event, record, len(events) + 1))
        snapshot = self.contents.snapshot
        head = Head(
            version=len(self.versions),
            lane_epoch=snapshot.lane_epoch,
            lowest=snapshot.lowest,
            next_place=snapshot.next_place,
            gap=snapshot.gap,
            created_at=self.at,
            changed_at=self.at,
            active_at=self.at,
        )
        messages = [self._message(row) for row in self.contents.messages.values() if row.message_id in self.bodies]
        runs = [self._run(index) for index, archived in enumerate(snapshot.runs) if archived.run.id in self.cut.ended]
        projection = snapshot_json(self.destination, head, runs, messages)
        return ConversationArchive(conversation_id=self.destination, events=tuple(events), projections=(projection,))

    def _stays(self, event: EventEnvelope, record: TransitionRecord | None) -> bool:
        """Whether an entry does not come along."""
        if record is not None:
            return record.run_id in self.cut.waiting
        run_id = event.payload.get("run_id")
        return event.kind.startswith(_STAYS) or (isinstance(run_id, str) and run_id in self.cut.waiting)

    def _event(self, event: EventEnvelope, record: TransitionRecord | None, seq: int) -> EventEnvelope:
        payload = event.payload
        if record is not None:
            self.versions[event.version] = len(self.versions) + 1
            payload = self._payload(event, record)
        event_id = self.ids.new("command")
        return EventEnvelope(
            schema_version=event.schema_version,
            event_id=event.event_id if is_once(event.event_id) else event_id,
            conversation_id=self.destination,
            seq=seq,
            version=len(self.versions),
            kind=event.kind,
            occurred_at=event.occurred_at,
            payload=payload,
            command_id=event_id,
            ignorable=event.ignorable,
        )

    def _payload(self, event: EventEnvelope, record: TransitionRecord) -> JsonObject:
        version = self.versions[event.version]
        payload = dict(event.payload)
        if record.execution_sequence is not None:
            payload["execution_sequence"] = self.versions[record.execution_sequence]
        if record.type in _PLACES:
            ids = (record.run_id, *(absorbed.run_id for absorbed in record.absorbed or ()))
            self._touch((i for run_id in ids for i in self.contents.runs[str(run_id)].run.input_message_ids), version)
        if record.type == "compact":
            self._compact(record.removed or (), version)
        if record.message is not None and record.type != "checkpoint":
            payload["message"] = self._reference(record.message.id, version)
        if record.messages is not None:
            payload["messages"] = [self._reference(one.id, version) for one in record.messages]
        return payload

    def _reference(self, message_id: str, version: int) -> JsonObject:
        value: dict[str, Any] = from_json(self.contents.messages[message_id].body or b"")
        parts = [part for part in value["parts"] if not self._is_open_request(part)]
        body = encode_json({**value, "conversation_id": self.destination, "parts": parts}, argument="message")
        self.bodies[message_id] = body
        self._touch((message_id,), version)
        return {"id": message_id, "sha256": digest(body).hex()}

    def _answered(self) -> frozenset[str]:
        runs = (self.contents.runs[run_id].run for run_id in self.cut.ended)
        inputs = (self.contents.messages[message_id] for run in runs for message_id in run.input_message_ids)
        bodies = (row.body for row in inputs if row.role == "tool")
        parts = (part for body in bodies for part in from_json(body or b"")["parts"])
        return frozenset(part["approval_id"] for part in parts if part["type"] == "tool-approval-response")

    def _is_open_request(self, part: dict[str, Any]) -> bool:
        is_request = part["type"] == "tool-approval-request" and not part.get("is_automatic")
        return is_request and part["approval_id"] not in self.answered

    def _touch(self, message_ids: Iterable[str], version: int) -> None:
        self.touched |= dict.fromkeys(message_ids, version)

    def _compact(self, message_ids: tuple[str, ...], version: int) -> None:
        if not self.bodies.keys() >= set(message_ids):
            # A summary took in an input whose turn was yet to come.
            waiting = sorted(self.cut.waiting)
            raise ConversationActiveError(conversation_id=self.contents.archive.conversation_id, run_ids=waiting)
        self._touch(message_ids, version)
        self.removed |= dict.fromkeys(message_ids, version)

    def _message(self, row: MessageRow) -> JsonObject:
        name = row.message_id
        facts: JsonObject = {
            "message": from_json(self.bodies[name]),
            "position": row.position,
            "version": self.touched[name],
        }
        if name in self.removed:
            facts["removed_at"] = self.removed[name]
        return facts

    def _run(self, index: int) -> JsonObject:
        archived = self.contents.snapshot.runs[index]
        run = archived.run.to_json()
        run["conversation_id"] = self.destination
        if archived.run.execution_sequence is not None:
            run["execution_sequence"] = self.versions[archived.run.execution_sequence]
        facts: dict[str, Any] = {
            "run": run,
            "arrival": self.versions[archived.arrival],
            "version": self.versions[archived.version],
            "place": archived.place,
        }
        return facts
