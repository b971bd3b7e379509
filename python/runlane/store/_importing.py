"""From an archive to the rows of a conversation: whatever would contradict itself in a store is refused before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from runlane.errors import ArchiveInvalidError, ConversationPurgedError, ImportTargetNotEmptyError, InvalidValueError
from runlane.records import message_status_for_terminal_reason
from runlane.store._bodies import digest, encode_json
from runlane.store._driver import Rows
from runlane.store._ledger import TRANSITION, MessageReference, TransitionRecord
from runlane.store._order import QUEUED
from runlane.store._outcomes import EventEnvelope
from runlane.store._rows import Changes, DraftChange, DraftHead, EventRow, Head, MessageRow, ReceiptRow, RunRow, SeedRow
from runlane.store._shape import check_id
from runlane.store._snapshot import Contents, head_of_archive

__all__ = ["changes_of", "import_rows"]

_OF_NO_RUN: Final = frozenset({"compact", "seed"})


def import_rows(rows: Rows, conversation_id: str, changes: Changes, /) -> None:
    """Write an archive's rows where there is nothing.

    Raises:
        ConversationPurgedError: The id was purged.
        ImportTargetNotEmptyError: The conversation exists.
    """
    head = rows.head(conversation_id)
    if head.purged:
        raise ConversationPurgedError(conversation_id=conversation_id)
    if head.version or head.seq:
        raise ImportTargetNotEmptyError(conversation_id=conversation_id)
    if changes.entries:
        rows.save(conversation_id, changes)


def changes_of(contents: Contents, /) -> Changes:
    """Return the rows of an archive. It takes a time that grows with the conversation, and no lock.

    The ledger decides: it must be contiguous, count versions as a store does, name every message with its hash and
    tell every revision of every run up to the one that is there. Receipts and placed seeds are made from it.

    Raises:
        ArchiveInvalidError: Something is not valid, or the parts do not agree; `field` says where.
    """
    told = _Told(contents)
    entries = _entries(contents)
    for index, event, record in contents.transitions:
        told.hear(f"events.{index}.payload", event, record)
    told.finish()
    _check_runs(contents)
    changes = Changes(before=Head(), head=head_of_archive(contents))
    changes.runs = {run_id: (None, row) for run_id, row in contents.runs.items()}
    changes.messages = [*contents.messages.values(), *_reserved(contents)]
    changes.receipts = list(told.receipts.values())
    changes.seeds = list(told.seeds.values())
    changes.drafts = [
        DraftChange(run_id, number, body)
        for run_id, bodies in contents.drafts.items()
        for number, body in enumerate(bodies, start=1)
    ]
    changes.entries = entries
    return changes


def _require(condition: object, field: str, problem: str) -> None:
    if not condition:
        raise ArchiveInvalidError(problem, field=field)


def _entries(contents: Contents) -> list[EventRow]:
    """Return the ledger's rows; sequences and versions must be those that a store gives."""
    version = 0
    found: list[EventRow] = []
    for index, event in enumerate(contents.archive.events):
        place = f"events.{index}"
        version += event.kind == TRANSITION
        _require(event.seq == index + 1, f"{place}.seq", f"the ledger must be contiguous; wanted {index + 1}")
        _require(event.version == version, f"{place}.version", f"wanted {version}, as the transitions before it count")
        command_id = event.event_id if event.command_id is None else event.command_id
        try:
            for name, value in (("event_id", event.event_id), ("command_id", command_id), ("kind", event.kind)):
                check_id(value, f"{place}.{name}")
            body = encode_json(event.payload, argument=f"{place}.payload")
        except InvalidValueError as error:
            raise ArchiveInvalidError(str(error), field=error.argument) from None
        found.append(
            EventRow(
                seq=event.seq,
                version=version,
                event_id=event.event_id,
                command_id=command_id,
                kind=event.kind,
                occurred_at=event.occurred_at,
                body=body,
                ignorable=event.ignorable,
                schema_version=event.schema_version,
            )
        )
    snapshot = contents.snapshot
    place = "projections.0" if contents.archive.projections else "projections"
    _require(snapshot.version == version, f"{place}.version", f"the ledger ends at version {version}")
    _require(snapshot.gap <= snapshot.next_place, "projections.0.gap", "it lies behind next_place")
    _require(snapshot.created_at or not found, "projections.0.created_at", "a conversation with events has begun")
    _require(snapshot.changed_at or not found, "projections.0.changed_at", "a conversation with events has changed")
    _require(snapshot.active_at or not found, "projections.0.active_at", "a conversation with events was active")
    return found


@dataclass(slots=True)
class _Told:
    """What the ledger tells, compared with what the snapshot holds.

    Attributes:
        named: Messages that some entry brought.
        removed: Messages that some compaction took out, with its version.
        history: Of each run the version, revision and state after every change.
        drafts: Of each run what its newest checkpoint says of the draft.
    """

    contents: Contents
    named: set[str] = field(default_factory=set)
    removed: dict[str, int] = field(default_factory=dict)
    history: dict[str, list[tuple[int, int | None, str | None]]] = field(default_factory=dict)
    drafts: dict[str, MessageReference | None] = field(default_factory=dict)
    receipts: dict[str, ReceiptRow] = field(default_factory=dict)
    seeds: dict[str, SeedRow] = field(default_factory=dict)

    def hear(self, place: str, event: EventEnvelope, record: TransitionRecord) -> None:
        """Take one transition in."""
        if record.type not in _OF_NO_RUN:
            self._change(place, event.version, record.run_id, record.revision, record.state)
        for absorbed in record.absorbed or ():
            self._change(f"{place}.absorbed", event.version, absorbed.run_id, absorbed.revision, "superseded")
        if record.type == "checkpoint":
            self.drafts[str(record.run_id)] = record.message
            return
        for reference in record.brought:
            self._bring(place, reference)
        if record.type == "accept":
            self._accept(place, record)
        elif record.type == "compact":
            self.removed |= dict.fromkeys(record.removed or (), event.version)
        elif record.type == "seed":
            self._seed(place, record)

    def _change(self, place: str, version: int, run_id: str | None, revision: int | None, state: str | None) -> None:
        _require(run_id in self.contents.runs, f"{place}.run_id", f"run {run_id!r} is not in the snapshot")
        self.history.setdefault(str(run_id), []).append((version, revision, state))

    def _bring(self, place: str, reference: MessageReference) -> None:
        row = self.contents.messages.get(reference.id)
        agrees = row is not None and digest(row.body or b"").hex() == reference.sha256
        _require(agrees, f"{place}.message", f"message {reference.id!r} is not the one in the snapshot")
        _require(reference.id not in self.named, f"{place}.message", f"message {reference.id!r} was there before")
        self.named.add(reference.id)

    def _accept(self, place: str, record: TransitionRecord) -> None:
        key, message, count = record.idempotency_key, record.message, record.inputs or 0
        inputs = self.contents.runs[str(record.run_id)].run.input_message_ids
        assigned = message is not None and 0 < count <= len(inputs) and inputs[count - 1] == message.id
        if message is None or not assigned:
            raise ArchiveInvalidError("no run has the input that was accepted", field=f"{place}.message")
        if not key or key in self.receipts:
            raise ArchiveInvalidError(f"{key!r} is empty, or was accepted before", field=f"{place}.idempotency_key")
        self.receipts[key] = ReceiptRow(key, str(record.run_id), message.id, bytes.fromhex(message.sha256))

    def _seed(self, place: str, record: TransitionRecord) -> None:
        key = record.seed_key
        if not key or key in self.seeds or not record.messages:
            raise ArchiveInvalidError(
                f"{key!r} is empty, places nothing, or was placed before", field=f"{place}.seed_key"
            )
        self.seeds[key] = SeedRow(key, tuple(reference.id for reference in record.messages))

    def finish(self) -> None:
        """Compare what was told in all."""
        for index, row in enumerate(self.contents.messages.values()):
            place = f"projections.0.messages.{index}"
            _require(row.message_id in self.named, place, f"no entry brings message {row.message_id!r}")
            told = self.removed.pop(row.message_id, None)
            _require(row.removed_at == told, f"{place}.removed_at", f"the ledger says {told}")
            _require(row.version <= self.contents.snapshot.version, f"{place}.version", "it is yet to come")
        _require(not self.removed, "projections.0.messages", f"compacted messages are missing: {sorted(self.removed)}")
        for index, (run_id, run) in enumerate(self.contents.runs.items()):
            self._finish_run(f"projections.0.runs.{index}", run, self.history.get(run_id, []))

    def _finish_run(self, place: str, row: RunRow, history: list[tuple[int, int | None, str | None]]) -> None:
        run = row.run
        revisions = [revision for _, revision, _ in history]
        _require(revisions == list(range(run.revision + 1)), f"{place}.run.revision", "the ledger tells of others")
        _require(history[-1][2] == run.state, f"{place}.run.state", f"the ledger says {history[-1][2]}")
        times = (history[0][0], history[-1][0])
        _require((row.arrival, row.version) == times, f"{place}.version", f"the ledger says {times}")
        reference = self.drafts.get(run.id) if run.is_active else None
        _require((row.draft is None) == (reference is None), f"{place}.draft", "the ledger says otherwise")
        if row.draft is not None and reference is not None:
            _check_draft(f"{place}.draft", row.draft, reference)


def _check_draft(place: str, draft: DraftHead, reference: MessageReference) -> None:
    told = (reference.sha256, reference.parts, reference.size)
    _require((draft.sha256.hex(), len(draft.kinds), draft.size) == told, place, "it is not the one of the ledger")


# --- runs and their messages --------------------------------------------------------------------------------------


def _check_runs(contents: Contents) -> None:
    answers: set[str] = set()
    acquired = 0
    for index, row in enumerate(contents.runs.values()):
        place = f"projections.0.runs.{index}"
        answer = row.run.assistant_message_id
        _require(answer not in answers, f"{place}.run.assistant_message_id", f"{answer!r} belongs to two runs")
        answers.add(answer)
        acquired += row.run.is_acquired
        _require(acquired <= 1, f"{place}.run.state", "two runs are executed at once")
        _check_answer(contents, f"{place}.run.assistant_message_id", row)
        _check_inputs(contents, place, row)
    for index, message in enumerate(contents.messages.values()):
        owner = message.run_id is None or message.message_id in answers
        _require(owner, f"projections.0.messages.{index}.message.run_id", "the message is not the answer of its run")


def _check_answer(contents: Contents, place: str, row: RunRow) -> None:
    run = row.run
    answer = contents.messages.get(run.assistant_message_id)
    if run.is_active or run.terminal_reason == "absorbed":
        _require(answer is None, place, f"run {run.id!r} has an answer and must not have one")
        return
    _require(answer is not None and answer.run_id == run.id, place, f"the answer of run {run.id!r} is missing")
    wanted = None if run.terminal_reason is None else message_status_for_terminal_reason(run.terminal_reason)
    _require(answer is not None and answer.status == wanted, place, f"the answer of run {run.id!r} is not {wanted}")


def _check_inputs(contents: Contents, place: str, row: RunRow) -> None:
    run = row.run
    waits = run.state == "queued" and run.execution_sequence is None
    _require((row.place is None) == waits, f"{place}.place", "only a run that was never acquired has none")
    if run.absorbed_into_run_id is not None:
        other = contents.runs.get(run.absorbed_into_run_id)
        absorbed = other is not None and set(run.input_message_ids) <= set(other.run.input_message_ids)
        _require(absorbed, f"{place}.run.absorbed_into_run_id", "that run does not have its inputs")
    for message_id in run.input_message_ids:
        message = contents.messages.get(message_id)
        known = message is not None and message.run_id is None and message.position is not None
        _require(known, f"{place}.run.input_message_ids", f"input {message_id!r} is missing")
        placed = message is not None and message.position is not None and (message.position >= QUEUED) == waits
        _require(placed, f"{place}.run.input_message_ids", f"input {message_id!r} stands in the wrong place")


def _reserved(contents: Contents) -> list[MessageRow]:
    """Return the rows that reserve answers which do not exist."""
    return [
        MessageRow(row.run.assistant_message_id, None, row.arrival, run_id, "assistant", "pending", None)
        for run_id, row in contents.runs.items()
        if row.run.assistant_message_id not in contents.messages
    ]
