"""Whether the ledger of an archive and its snapshot agree: every run is led, entry by entry, to what it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from runlane.errors import ArchiveInvalidError
from runlane.records import RunState, TerminalReason, message_status_for_terminal_reason
from runlane.store._bodies import digest
from runlane.store._ledger import AbsorbedRun, MessageReference, Transition, TransitionRecord
from runlane.store._order import BLOCK, GAP, QUEUED, answer_position
from runlane.store._outcomes import EventEnvelope
from runlane.store._reducer import TRANSITIONS, RunTransition
from runlane.store._rows import ReceiptRow, RunRow, SeedRow
from runlane.store._snapshot import Contents
from runlane.store._transaction import RECORDED_AS

__all__ = ["Told", "check_runs", "require"]

_RULES: Final[dict[Transition, RunTransition]] = {RECORDED_AS[kind]: rule for kind, rule in TRANSITIONS.items()}


def require(condition: object, field: str, problem: str, /) -> None:
    """Refuse an archive unless something holds.

    Raises:
        ArchiveInvalidError: It does not.
    """
    if not condition:
        raise ArchiveInvalidError(problem, field=field)


@dataclass(slots=True)
class _Life:
    """What the ledger says of one run so far.

    Attributes:
        inputs: How many inputs it was given, absorbed ones aside.
        arrival, version: Conversation versions of its admission and its newest change.
        draft: What its newest checkpoint says of its answer.
    """

    revision: int = -1
    state: RunState | None = None
    inputs: int = 0
    arrival: int = 0
    version: int = 0
    execution_sequence: int | None = None
    fencing_token: int | None = None
    owner_id: str | None = None
    terminal_reason: TerminalReason | None = None
    terminal_policy_name: str | None = None
    absorbed_into_run_id: str | None = None
    draft: MessageReference | None = None

    def change(self, place: str, version: int, record: TransitionRecord) -> None:
        """Take one transition of the run in."""
        require(record.revision == self.revision + 1, f"{place}.revision", f"wanted {self.revision + 1}")
        rule = _RULES.get(record.type)
        if rule is None:
            admitted, targets = self.state in {None, "queued"}, frozenset[RunState]({"queued"})
        else:
            admitted, targets = self.state in rule.sources, rule.targets
        allowed = admitted and record.state in (targets or {self.state})
        require(allowed, f"{place}.state", f"{record.type} does not lead from {self.state} to {record.state}")
        ends = record.state not in {"queued", "running", "interrupt_requested"}
        require((record.reason is not None) == ends, f"{place}.reason", "a reason is for the end of a run")
        if self.state is None:
            self.arrival = version
        self.revision, self.state, self.version = self.revision + 1, record.state, version
        if record.type == "acquire":
            self._acquire(place, version, record)
        elif record.type == "recover":
            self.owner_id = None
        elif record.type == "checkpoint":
            self._checkpoint(place, record.message)
        self.terminal_reason, self.terminal_policy_name = record.reason, record.policy_name

    def _acquire(self, place: str, version: int, record: TransitionRecord) -> None:
        self.fencing_token = (self.fencing_token or 0) + 1
        self.execution_sequence = self.execution_sequence or version
        self.owner_id = record.owner_id
        token, sequence = self.fencing_token, self.execution_sequence
        require(record.fencing_token == token, f"{place}.fencing_token", f"wanted {token}")
        require(record.execution_sequence == sequence, f"{place}.execution_sequence", f"wanted {sequence}")
        require(record.owner_id is not None, f"{place}.owner_id", "it is missing")

    def _checkpoint(self, place: str, reference: MessageReference | None) -> None:
        complete = reference is not None and reference.parts is not None and reference.size is not None
        require(complete, f"{place}.message", "a checkpoint says how long the draft is")
        self.draft = reference

    def absorb(self, place: str, version: int, absorbed: AbsorbedRun, into: str | None) -> None:
        """Take in that another run's end answered this one."""
        require(absorbed.revision == self.revision + 1, f"{place}.revision", f"wanted {self.revision + 1}")
        require(self.state == "queued", place, f"run {absorbed.run_id!r} did not wait")
        self.revision, self.state, self.version = absorbed.revision, "superseded", version
        self.terminal_reason, self.absorbed_into_run_id = "absorbed", into


_FACTS: Final = (
    "revision",
    "state",
    "execution_sequence",
    "fencing_token",
    "owner_id",
    "terminal_reason",
    "terminal_policy_name",
    "absorbed_into_run_id",
)
"""What the ledger knows of a run, by the names of both."""


@dataclass(slots=True)
class Told:
    """What the ledger tells, compared with what the snapshot holds.

    Attributes:
        receipts, seeds: By key: what was accepted and placed.
    """

    contents: Contents
    receipts: dict[str, ReceiptRow] = field(default_factory=dict)
    seeds: dict[str, SeedRow] = field(default_factory=dict)
    _named: set[str] = field(default_factory=set)
    _removed: dict[str, int] = field(default_factory=dict)
    _arrived: dict[str, int] = field(default_factory=dict)
    _lives: dict[str, _Life] = field(default_factory=dict)

    def hear(self, place: str, event: EventEnvelope, record: TransitionRecord, /) -> None:
        """Take one transition in; `place` is where its payload stands.

        Raises:
            ArchiveInvalidError: It cannot have happened after those before it, or to what is in the snapshot.
        """
        if record.type == "accept" or record.type in _RULES:
            self._life(place, record.run_id).change(place, event.version, record)
        for index, absorbed in enumerate(record.absorbed or ()):
            where = f"{place}.absorbed.{index}"
            self._life(where, absorbed.run_id).absorb(where, event.version, absorbed, record.run_id)
        for reference in record.brought:
            self._bring(place, reference)
        if record.type == "accept":
            self._accept(place, event.version, record)
        elif record.type == "compact":
            self._compact(place, event.version, record)
        elif record.type == "seed":
            self._seed(place, record)
        lane = (record.lane_epoch is not None) == (record.type == "acquire")
        known = lane and (record.lane_epoch or 0) <= self.contents.snapshot.lane_epoch
        require(known, f"{place}.lane_epoch", "the lane has not come so far")

    def _life(self, place: str, run_id: str | None) -> _Life:
        require(run_id in self.contents.runs, f"{place}.run_id", f"run {run_id!r} is not in the snapshot")
        return self._lives.setdefault(str(run_id), _Life())

    def _bring(self, place: str, reference: MessageReference) -> None:
        row = self.contents.messages.get(reference.id)
        agrees = row is not None and digest(row.body or b"").hex() == reference.sha256
        require(agrees, f"{place}.message", f"message {reference.id!r} is not the one in the snapshot")
        require(reference.id not in self._named, f"{place}.message", f"message {reference.id!r} was there before")
        self._named.add(reference.id)

    def _accept(self, place: str, version: int, record: TransitionRecord) -> None:
        key, message, life = record.idempotency_key, record.message, self._lives[str(record.run_id)]
        inputs = self.contents.runs[str(record.run_id)].run.input_message_ids
        life.inputs += 1
        assigned = message is not None and record.inputs == life.inputs <= len(inputs)
        if message is None or not assigned or inputs[life.inputs - 1] != message.id:
            raise ArchiveInvalidError("no run has the input that was accepted", field=f"{place}.message")
        if not key or key in self.receipts:
            raise ArchiveInvalidError(f"{key!r} is empty, or was accepted before", field=f"{place}.idempotency_key")
        self._arrived[message.id] = version
        self.receipts[key] = ReceiptRow(key, str(record.run_id), message.id, bytes.fromhex(message.sha256))

    def _compact(self, place: str, version: int, record: TransitionRecord) -> None:
        removed = record.removed or ()
        fresh = removed and self._named.issuperset(removed) and self._removed.keys().isdisjoint(removed)
        require(fresh, f"{place}.removed", "it names nothing, what is not there, or what was removed before")
        self._removed |= dict.fromkeys(removed, version)

    def _seed(self, place: str, record: TransitionRecord) -> None:
        key = record.seed_key
        if not key or key in self.seeds or not record.messages or record.placement is None:
            problem = f"{key!r} is empty, places nothing or nowhere, or was placed before"
            raise ArchiveInvalidError(problem, field=f"{place}.seed_key")
        self.seeds[key] = SeedRow(key, tuple(reference.id for reference in record.messages))

    def finish(self) -> None:
        """Compare what was told in all.

        Raises:
            ArchiveInvalidError: The snapshot holds something else.
        """
        for index, row in enumerate(self.contents.messages.values()):
            place = f"projections.0.messages.{index}"
            require(row.message_id in self._named, place, f"no entry brings message {row.message_id!r}")
            told = self._removed.get(row.message_id)
            require(row.removed_at == told, f"{place}.removed_at", f"the ledger says {told}")
            require(row.version <= self.contents.snapshot.version, f"{place}.version", "it is yet to come")
        for index, (run_id, run) in enumerate(self.contents.runs.items()):
            place = f"projections.0.runs.{index}"
            life = self._lives.get(run_id, _Life())
            for name in _FACTS:
                told = getattr(life, name)
                require(getattr(run.run, name) == told, f"{place}.run.{name}", f"the ledger says {told}")
            require(run.arrival == life.arrival, f"{place}.arrival", f"the ledger says {life.arrival}")
            require(run.version == life.version, f"{place}.version", f"the ledger says {life.version}")
            _check_draft(f"{place}.draft", run, life.draft)
            self._check_queued(f"{place}.run.input_message_ids", run)

    def _check_queued(self, place: str, row: RunRow) -> None:
        """An input that waits stands where it arrived."""
        if row.place is not None:
            return
        for message_id in row.run.input_message_ids:
            message, arrived = self.contents.messages.get(message_id), self._arrived.get(message_id)
            waits = message is not None and arrived is not None and message.position == QUEUED + arrived
            require(waits, place, f"input {message_id!r} stands in the wrong place")


def _check_draft(place: str, row: RunRow, reference: MessageReference | None) -> None:
    told = None if reference is None or not row.run.is_active else (reference.sha256, reference.parts, reference.size)
    draft = row.draft
    held = None if draft is None else (draft.sha256.hex(), len(draft.kinds), draft.size)
    require(held == told, place, "it is not the one of the ledger")


# --- runs and their messages --------------------------------------------------------------------------------------


def check_runs(contents: Contents, /) -> None:
    """Look whether runs and messages belong together and stand in their order.

    Raises:
        ArchiveInvalidError: They do not.
    """
    answers: set[str] = set()
    acquired = 0
    for index, row in enumerate(contents.runs.values()):
        place = f"projections.0.runs.{index}"
        answer = row.run.assistant_message_id
        require(answer not in answers, f"{place}.run.assistant_message_id", f"{answer!r} belongs to two runs")
        answers.add(answer)
        acquired += row.run.is_acquired
        require(acquired <= 1, f"{place}.run.state", "two runs are executed at once")
        _check_place(contents, place, row)
        _check_answer(contents, f"{place}.run.assistant_message_id", row)
        _check_inputs(contents, f"{place}.run.input_message_ids", row)
    for index, message in enumerate(contents.messages.values()):
        owner = message.run_id is None or message.message_id in answers
        require(owner, f"projections.0.messages.{index}.message.run_id", "the message is not the answer of its run")
    _check_blocks(contents)


def _check_place(contents: Contents, place: str, row: RunRow) -> None:
    run = row.run
    waits = run.state == "queued" and run.execution_sequence is None
    require((row.place is None) == waits, f"{place}.place", "only a run that was never acquired has none")
    if run.absorbed_into_run_id is not None:
        other = contents.runs.get(run.absorbed_into_run_id)
        inputs = () if other is None else other.run.input_message_ids
        absorbed = set(run.input_message_ids) <= set(inputs)
        require(absorbed, f"{place}.run.absorbed_into_run_id", "that run does not have its inputs")
        start = None if other is None else other.place
        inside = start is not None and row.place is not None and start < row.place <= start + len(inputs)
        require(inside, f"{place}.place", "it is not behind the inputs that were absorbed with it")


def _check_answer(contents: Contents, place: str, row: RunRow) -> None:
    run = row.run
    answer = contents.messages.get(run.assistant_message_id)
    if run.is_active or run.terminal_reason in {None, "absorbed"}:
        require(answer is None, place, f"run {run.id!r} has an answer and must not have one")
        return
    wanted = message_status_for_terminal_reason(run.terminal_reason)
    own = answer is not None and (answer.run_id, answer.status) == (run.id, wanted)
    require(own, place, f"the answer of run {run.id!r} is missing, or not {wanted}")
    placed = answer is not None and row.place is not None and answer.position == answer_position(row.place)
    require(placed, place, f"the answer of run {run.id!r} stands in the wrong place")


def _check_inputs(contents: Contents, place: str, row: RunRow) -> None:
    for index, message_id in enumerate(row.run.input_message_ids):
        message = contents.messages.get(message_id)
        require(message is not None and message.run_id is None, place, f"input {message_id!r} is missing")
        if message is None or row.place is None or row.run.terminal_reason == "absorbed":
            continue
        require(message.position == row.place + index, place, f"input {message_id!r} stands in the wrong place")


def _check_blocks(contents: Contents) -> None:
    """Blocks of positions follow each other, and what belongs to no run stands among them, not in the queue."""
    snapshot = contents.snapshot
    places = sorted(
        row.place for row in contents.runs.values() if row.place is not None and row.run.terminal_reason != "absorbed"
    )
    apart = all(after - before >= BLOCK + GAP for before, after in pairwise(places))
    inside = not places or (places[0] >= GAP and places[-1] + BLOCK <= snapshot.next_place)
    require(apart and inside, "projections.0.runs", "the places of two runs overlap, or lie beyond next_place")
    inputs = {message_id for row in contents.runs.values() for message_id in row.run.input_message_ids}
    for index, message in enumerate(contents.messages.values()):
        free = message.message_id not in inputs
        among = message.position is not None and snapshot.lowest <= message.position <= snapshot.next_place
        require(among or not free, f"projections.0.messages.{index}.position", "no message of no run stands there")
