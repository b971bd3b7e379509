"""How a finished world of lanes is judged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from runlane.delivery import (
    AssistantDeltaEvent,
    AttemptResetEvent,
    CheckpointEvent,
    DurableEvent,
    RunStateEvent,
    TerminalEvent,
    TransientEvent,
    fold_events,
)
from runlane.errors import RunlaneError
from runlane.models import AnyModelMessage, ModelMessage, validate_messages
from runlane.observability import RunTerminalEvent, StepFinishedEvent
from runlane.records import COMPLETING_REASONS, Message, Run, Usage
from runlane.store import EventEnvelope, ReadEvents
from runlane.testing import check_conversation
from runlane.tools import approval_kind
from tests.stateful.lane_reads import everything, requests
from tests.stateful.lane_world import CONVERSATIONS, LAST, Listener, World, is_admitted

__all__ = ["check"]


async def check(world: World) -> None:
    """Judge a finished world.

    Every admitted input is in the store once and answered by one run; every run has ended once, with one answer or
    absorbed by the run that has it; at most one run of a conversation was acquired at a time, urgent ones first; no
    tool was entered twice for one call, and none that needs consent without it; seeds are there once, in their order,
    and nothing that a summary stands for is gone; events are unique, agree with the ledger and the records and have no
    holes; every prompt is one a provider takes, the first of an execution ends with an input, and none holds an input
    twice or a superseded answer.
    """
    for conversation_id in CONVERSATIONS:
        await check_conversation(world.store, conversation_id)
        entries = (await world.store.read_events(ReadEvents(conversation_id=conversation_id, limit=10_000))).items
        runs = await _runs(world, conversation_id, entries)
        said = await everything(world.store, conversation_id)
        seeded = _check_seeds(world, conversation_id, said)
        inputs = [message.id for message in said if message.role in {"user", "tool"} and message.id not in seeded]
        answers = [message.run_id for message in said if message.role == "assistant"]
        owned = [
            message_id for run in runs if run.terminal_reason != "absorbed" for message_id in run.input_message_ids
        ]
        assert sorted(owned) == sorted(inputs)
        assert sorted(answers, key=str) == sorted(run.id for run in runs if run.terminal_reason != "absorbed")
        assert all(run.terminal_reason is not None for run in runs)
        snapshot = await world.store.load_snapshot(conversation_id)
        _check_order(snapshot.runs)
        _check_admissions(world, conversation_id, inputs)
        _Ledger().check(entries, {run.id for run in runs})
        await _check_consent(world, conversation_id)
        _check_last_prompts(world, conversation_id, snapshot.messages)
        superseded = [message.text for message in said if message.status == "superseded" and message.text]
        _check_prompts(world, superseded)
    assert not world.early
    await _check_events(world)
    await _check_listeners(world)
    await _check_spend(world)
    _check_growing_prompts(world)


async def _runs(world: World, conversation_id: str, entries: Sequence[EventEnvelope]) -> list[Run]:
    """Return every run that was ever admitted."""
    ids = dict.fromkeys(str(entry.payload["run_id"]) for entry in entries if entry.payload.get("type") == "accept")
    views = [await world.store.load_run(conversation_id, run_id) for run_id in ids]
    return [view.run for view in views if view is not None]


def _check_seeds(world: World, conversation_id: str, said: Sequence[Message]) -> set[str]:
    """Each seed is there once, its messages in order and side by side; return the ids of what was seeded."""
    # A summary stands beside the first message that it stands for.
    said = [message for message in said if message.role != "summary"]
    places = {message.text: place for place, message in enumerate(said) if message.text.startswith("seed ")}
    assert len(places) == sum(message.text.startswith("seed ") for message in said)
    for (conversation, _), texts in world.seeds.items():
        if conversation == conversation_id:
            assert [places[text] - places[texts[0]] for text in texts] == list(range(len(texts)))
    return {said[place].id for place in places.values()}


async def _check_consent(world: World, conversation_id: str) -> None:
    """No handler was entered again but for a durable yes to run an uncertain call again; refusals stand."""
    again: Counter[str] = Counter()
    for asked in await requests(world.store, conversation_id):
        key = f"{asked.run_id}:{asked.request.call_id}"
        again[key] += bool(asked.approved) and approval_kind(asked.request) == "effect-unknown"
        if approval_kind(asked.request) == "call" and asked.approved is not True:
            assert key not in world.entered
        for approved, ticket in world.answers.get((conversation_id, asked.request.approval_id), ()):
            if asked.approved is not None and approved != asked.approved:
                assert ticket.result.error is not None or not ticket.result.done
    for key, count in Counter(world.entered).items():
        if (await world.store.load_run(conversation_id, key.split(":", 1)[0])) is not None:
            assert count <= 1 + again[key]


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
        for ticket in admitted:
            admission = ticket.admission._value
            assert admission is not None
            if admission.input.text != world.inputs[ticket]:
                assert admission.is_duplicate
                assert not admission.input_matches
                assert world.facts.reuse == "return"
        error = tickets[-1].result.error
        assert error is None or isinstance(error, RunlaneError)
    texts = {key for (conversation, key), _ in world.tickets.items() if conversation == conversation_id}
    answers = [approval_id for conversation, approval_id in world.answers if conversation == conversation_id]
    assert len(inputs) <= len(texts) + len(answers)


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
        validate_messages(asked.messages)
        said = [message for message in asked.messages if isinstance(message, ModelMessage)]
        inputs = [message.text for message in said if message.role == "user"]
        assert len(inputs) == len(set(inputs))
        if asked.call_number > 1:
            continue
        assert said[-1].role == "user"
        assert not any(text in message.text for text in superseded for message in said if message.role == "assistant")


async def _check_spend(world: World) -> None:
    """What a run spent is what its calls did: all of them if one execution ended it, else what was saved of them."""
    steps: dict[str, list[int]] = {}
    for step in world.told:
        if isinstance(step, StepFinishedEvent) and step.usage.output_tokens.value is not None:
            steps.setdefault(step.run_id, []).append(step.usage.output_tokens.value)
    ends = [event for event in world.told if isinstance(event, RunTerminalEvent) and event.is_winner]
    assert len({end.run_id for end in ends}) == len(ends)
    for end in ends:
        view = await world.store.load_run(end.conversation_id, end.run_id)
        assert view is not None
        usage = view.run.usage or Usage.unknown()
        assert end.terminal_reason == view.run.terminal_reason
        assert end.usage == usage
        spent, known = usage.output_tokens.value or 0, sum(steps.get(end.run_id, ()))
        assert spent == known if view.run.fencing_token == 1 else spent <= known


def _check_growing_prompts(world: World) -> None:
    """Within one execution each prompt goes on from the one before: nothing that was told is told otherwise."""
    told: dict[tuple[str, str], list[tuple[AnyModelMessage, ...]]] = {}
    for event in world.heard:
        begins = re.match(r"<(\d+)\.0>", event.text_delta) if isinstance(event, AssistantDeltaEvent) else None
        if begins and isinstance(event, AssistantDeltaEvent):
            asked = world.tap.asked[int(begins[1])]
            told.setdefault((event.run_id, event.runtime_epoch), []).append(asked.messages)
    for prompts in told.values():
        assert all(after[: len(before)] == before for before, after in pairwise(prompts))


def _check_last_prompts(world: World, conversation_id: str, history: Sequence[Message]) -> None:
    """The last run of all was told the whole history as it is active, once, in its order."""
    last = f"input {LAST} of {conversation_id}"
    for asked in world.tap.asked:
        said = [message for message in asked.messages if isinstance(message, ModelMessage)]
        if asked.call_number > 1 or said[-1].text != last:
            continue
        texts = [message.text for message in said if message.role == "user" and not message.text.startswith("[late")]
        assert texts == [message.text for message in history if message.role == "user"]
        words = re.findall(
            r"<\d+\.\d+>", "".join(message.text for message in asked.messages if message.role == "assistant")
        )
        told = [message for message in history if message.role == "assistant" and message.status != "superseded"]
        assert words == re.findall(r"<\d+\.\d+>", "".join(message.text for message in told[:-1]))


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
    """Where a listener began to the end, or the last one its process told: every durable event, in order, once."""
    ledgers = {conversation_id: await _recorded(world, conversation_id) for conversation_id in CONVERSATIONS}
    for listener in world.listeners:
        durable = [event for event in listener.events if isinstance(event, DurableEvent)]
        versions = [event.snapshot_version for event in durable]
        assert versions == sorted(versions)
        ids = [event.event_id for event in durable]
        assert len(ids) == len(set(ids))
        recorded = {
            event.event_id: event
            for event in ledgers[listener.conversation_id]
            if listener.run_id in {None, event.run_id}
        }
        behind = [event for event in recorded.values() if _is_behind(event, listener)]
        last = versions[-1] if versions else 0
        assert {event.event_id for event in behind if listener.ended or event.snapshot_version < last} <= set(ids)
        known = [event for event in durable if event.event_id in recorded]
        assert [event.event_id for event in known] == [each for each in recorded if each in ids]
        assert all(_tells_the_same(event, recorded[event.event_id]) for event in known)
        assert listener.after is None or all(_is_behind(event, listener) for event in known)
        # A repeated key is told the first admission and the state of its run again, which is no entry of the ledger.
        unrecorded = set(ids) - set(recorded)
        assert all(":admission:" in event_id or ":run-state:" in event_id for event_id in unrecorded)


async def _recorded(world: World, conversation_id: str) -> list[DurableEvent]:
    page = await world.store.read_events(ReadEvents(conversation_id=conversation_id, limit=10_000))
    return [event for entry in page.items for event in fold_events(entry)]


def _is_behind(event: DurableEvent, listener: Listener) -> bool:
    """Whether an event comes after the place where a listener began; who named none began with what it heard first."""
    match listener.after:
        case None:
            first = next((event for event in listener.events if isinstance(event, DurableEvent)), None)
            return first is not None and event.snapshot_version > first.snapshot_version
        case int() as version:
            return event.snapshot_version > version
        case cursor:
            is_seen = event.event_id in cursor.durable_event_ids
            return event.snapshot_version >= (cursor.snapshot_version or 0) and not is_seen


def _tells_the_same(event: DurableEvent, recorded: DurableEvent) -> bool:
    """Whether an event says what the ledger says of it; the text of a checkpoint is not in the ledger."""
    if isinstance(event, CheckpointEvent) and isinstance(recorded, CheckpointEvent):
        return event.metrics.usage == recorded.metrics.usage
    return event == recorded


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
