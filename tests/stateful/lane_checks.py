"""How a finished world of lanes is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from runlane.delivery import (
    AssistantDeltaEvent,
    AttemptResetEvent,
    DurableEvent,
    RunStateEvent,
    TerminalEvent,
    TransientEvent,
    fold_events,
)
from runlane.errors import RunlaneError
from runlane.models import ModelMessage
from runlane.records import COMPLETING_REASONS, Run
from runlane.store import EventEnvelope, ReadEvents
from tests.stateful.lane_world import CONVERSATIONS, World, is_admitted

__all__ = ["check"]


async def check(world: World) -> None:
    """Judge a finished world.

    Every admitted input is in the store once and answered by one run; every run has ended once, with one answer or
    absorbed by the run that has it; at most one run of a conversation was acquired at a time, urgent ones first; no
    tool was entered twice for one call; events are unique, agree with the ledger and the records and have no holes;
    the first prompt of an execution ends with an input, and none holds an input twice or a superseded answer.
    """
    for conversation_id in CONVERSATIONS:
        snapshot = await world.store.load_snapshot(conversation_id)
        entries = (await world.store.read_events(ReadEvents(conversation_id=conversation_id, limit=10_000))).items
        inputs = [message.id for message in snapshot.messages if message.role == "user"]
        answers = [message.run_id for message in snapshot.messages if message.role == "assistant"]
        owned = [message_id for run in snapshot.runs for message_id in run.input_message_ids]
        assert sorted(owned) == sorted(inputs)
        assert sorted(answers, key=str) == sorted(run.id for run in snapshot.runs)
        assert all(run.terminal_reason is not None for run in snapshot.runs)
        _check_order(snapshot.runs)
        _check_admissions(world, conversation_id, inputs)
        _Ledger().check(entries, {run.id for run in snapshot.runs})
        superseded = [message.text for message in snapshot.messages if message.status == "superseded" and message.text]
        _check_prompts(world, superseded)
    assert all(count == 1 for count in Counter(world.entered).values())
    await _check_events(world)
    await _check_listeners(world)


def _check_order(runs: Sequence[Run]) -> None:
    """Runs stand in the order in which they were first acquired; sequences grow."""
    sequences = [run.execution_sequence for run in runs if run.execution_sequence is not None]
    assert all(before < after for before, after in pairwise(sequences))


def _check_admissions(world: World, conversation_id: str, inputs: list[str]) -> None:
    for (conversation, _), tickets in world.tickets.items():
        admitted = [ticket for ticket in tickets if is_admitted(ticket)]
        if conversation != conversation_id or not admitted:
            continue
        assert len({ticket.admission._value.input.id for ticket in admitted if ticket.admission._value}) == 1
        error = tickets[-1].result.error
        assert error is None or isinstance(error, RunlaneError)
    texts = {key for (conversation, key), _ in world.tickets.items() if conversation == conversation_id}
    assert len(inputs) <= len(texts)


@dataclass
class _Ledger:
    """What the ledger says of one conversation, entry by entry."""

    held: object = None
    waiting: set[object] = field(default_factory=set)
    places: dict[object, tuple[bool, str, int]] = field(default_factory=dict)
    tokens: dict[object, object] = field(default_factory=dict)
    started: dict[object, int] = field(default_factory=dict)
    ended: set[object] = field(default_factory=set)

    def check(self, entries: Sequence[EventEnvelope], answered: set[str]) -> None:
        """Walk through the entries: each run is held by one executor at a time, in order, and ends once."""
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        for entry in entries:
            if isinstance(entry.payload.get("type"), str):
                self._take(entry)
        assert self.held is None
        assert self.waiting == set()
        assert answered <= self.ended

    def _take(self, entry: EventEnvelope) -> None:
        kind, run_id = entry.payload["type"], entry.payload.get("run_id")
        match kind:
            case "accept":
                self.waiting.add(run_id)
                self._place(entry)
            case "acquire":
                self._acquire(run_id, entry)
            case "recover" if entry.payload.get("action") == "requeue":
                assert run_id not in self.ended
                self.held = None if self.held == run_id else self.held
                self.waiting.add(run_id)
            case "terminal" | "cancel" | "recover":
                self._end(run_id)
                for other in entry.payload.get("absorbed") or ():  # type: ignore[union-attr]
                    self._end(other["run_id"])  # type: ignore[index, call-overload]
            case _:
                pass

    def _place(self, entry: EventEnvelope) -> None:
        """Note where a new run stands in the queue: urgent ones first, then by their time, then as they came."""
        run = entry.payload["run"]
        assert isinstance(run, dict)
        is_ordinary = run.get("queue_priority") != "interrupt-next"
        self.places.setdefault(run["id"], (is_ordinary, str(run["created_at"]), entry.seq))

    def _acquire(self, run_id: object, entry: EventEnvelope) -> None:
        """Nobody holds a run; those that had begun go before all others, in their order, and others by their place."""
        assert self.held is None
        assert run_id in self.waiting
        others = self.waiting - {run_id}
        begun = [self.started[other] for other in others if other in self.started]
        if run_id in self.started:
            assert all(self.started[run_id] < other for other in begun)
        else:
            assert not begun
            assert all(self.places[run_id] < self.places[other] for other in others)
            self.started[run_id] = entry.seq
        assert entry.payload["fencing_token"] == self.tokens.get(run_id, 0) + 1  # type: ignore[operator]
        self.tokens[run_id] = entry.payload["fencing_token"]
        self.held = run_id
        self.waiting.discard(run_id)

    def _end(self, run_id: object) -> None:
        assert run_id not in self.ended
        self.ended.add(run_id)
        self.waiting.discard(run_id)
        self.held = None if self.held == run_id else self.held


def _check_prompts(world: World, superseded: list[str]) -> None:
    for asked in world.tap.asked:
        said = [message for message in asked.messages if isinstance(message, ModelMessage)]
        inputs = [message.text for message in said if message.role == "user"]
        assert len(inputs) == len(set(inputs))
        if asked.call_number > 1:
            continue
        assert said[-1].role == "user"
        assert not any(text in message.text for text in superseded for message in said if message.role == "assistant")


async def _check_events(world: World) -> None:
    terminals = [event for event in world.heard if isinstance(event, TerminalEvent)]
    assert len({event.run_id for event in terminals}) == len(terminals)
    for end in terminals:
        view = await world.store.load_run(end.conversation_id, end.run_id)
        assert view is not None
        assert (end.reason, end.message) == (view.run.terminal_reason, view.assistant)
        # An attempt that is about to be repeated has taken back what it said; a run stopped just then says nothing.
        is_taken_back = end.reason not in COMPLETING_REASONS and not end.message.text
        assert is_taken_back or end.message.text.endswith(_said(world, view.run))
    for event in world.heard:
        if isinstance(event, RunStateEvent) and event.state == "superseded":
            view = await world.store.load_run(event.conversation_id, event.run_id)
            assert view is not None
            # Of an absorbed run, or told again of a superseded one whose key was repeated.
            assert view.run.terminal_reason in {"absorbed", "superseded"}
    sequences: dict[tuple[str, str], list[int]] = {}
    for event in world.heard:
        if isinstance(event, TransientEvent):
            sequences.setdefault((event.runtime_epoch, event.run_id), []).append(event.sequence)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in sequences.values())
    ids = [event.event_id for event in world.heard if isinstance(event, DurableEvent)]
    repeated = [event_id for event_id in ids if ":admission:" in event_id or ":run-state:" in event_id]
    assert len(ids) - len(repeated) == len(set(ids) - set(repeated))


async def _check_listeners(world: World) -> None:
    """From the first commit a listener heard of to the last one: every durable event, in order, once."""
    for heard in world.listeners:
        durable = [event for event in heard if isinstance(event, DurableEvent)]
        if not durable:
            continue
        versions = [event.snapshot_version for event in durable]
        assert versions == sorted(versions)
        ids = [event.event_id for event in durable]
        assert len(ids) == len(set(ids))
        page = await world.store.read_events(
            ReadEvents(conversation_id=durable[0].conversation_id, after_version=versions[0] - 1, limit=10_000)
        )
        recorded = [event for entry in page.items for event in fold_events(entry)]
        between = [event.event_id for event in recorded if versions[0] < event.snapshot_version < versions[-1]]
        assert set(between) <= set(ids)
        # A repeated key is told the first admission and the state of its run again, which is no entry of the ledger.
        unrecorded = set(ids) - {event.event_id for event in recorded}
        assert all(":admission:" in event_id or ":run-state:" in event_id for event_id in unrecorded)


def _said(world: World, run: Run) -> str:
    """Return what listeners heard of the attempt that ended a run."""
    said = ""
    for event in world.heard:
        if isinstance(event, TransientEvent) and (event.run_id, event.runtime_epoch) == (run.id, run.owner_id):
            if isinstance(event, AttemptResetEvent):
                said = ""
            elif isinstance(event, AssistantDeltaEvent):
                said += event.text_delta
    return said
