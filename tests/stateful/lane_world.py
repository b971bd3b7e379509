"""A small world for schedules over lanes: two runtimes on one store, one model whose words are let out one by one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup, TaskStatus
from typing_extensions import override

from runlane.delivery import DurableEvent, Gap, RuntimeEvent, TerminalEvent, TransientEvent
from runlane.errors import RunlaneError, StoreUnavailableError
from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    FinishReport,
    ModelMessage,
    ModelPart,
    ModelProviderContext,
    TextDelta,
)
from runlane.runtime import AgentRuntime, LoopConfig, RunTicket, RuntimeConfig
from runlane.store import EventEnvelope, MemoryStore, ReadEvents
from runlane.testing import FakeClock, Fault, FaultyStore, StoreCall

CONVERSATIONS = ("a", "b")
WORDS = 5
_CONFIG = RuntimeConfig(loop=LoopConfig(checkpoint_every_events=2, idle_timeout=60.0))


async def settle() -> None:
    """Let every task act until it waits; quicker than asking the event loop, which polls."""
    for _ in range(60):
        await anyio.lowlevel.checkpoint()


class Tap(ChatProvider):
    """A model that says one word for each that was let out, or all of them once the tap is open."""

    provider_id = "tap"
    model_id = "tap"

    def __init__(self) -> None:
        self._left = 0
        self._open = False
        self._more = anyio.Event()
        self.prompts: list[tuple[AnyModelMessage, ...]] = []

    def let_out(self, words: int) -> None:
        """Allow so many more words, whoever says them."""
        self._left += words
        self._wake()

    def open(self) -> None:
        """Allow everything."""
        self._open = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = anyio.Event()

    async def _word(self) -> None:
        while not self._open and self._left == 0:
            await self._more.wait()
        self._left = max(0, self._left - 1)

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        self.prompts.append(tuple(messages))

        async def parts() -> AsyncGenerator[ModelPart, None]:
            for number in range(WORDS):
                await self._word()
                context.signal.raise_if_cancelled()
                yield TextDelta(f"{number} ")
            yield FinishReport("stop")

        async with aclosing(parts()) as stream:
            yield stream


@dataclass
class Seat:
    """One process: its runtime, its view of the store, and what its listeners heard."""

    runtime: AgentRuntime
    store: FaultyStore
    leave: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)
    fail_next: Fault | None = None


@dataclass
class World:
    """What a schedule acts on, and what is remembered to judge it by."""

    store: MemoryStore
    tasks: TaskGroup
    clock: FakeClock = field(default_factory=FakeClock)
    tap: Tap = field(default_factory=Tap)
    seats: list[Seat] = field(default_factory=list)
    tickets: dict[tuple[str, str], list[RunTicket]] = field(default_factory=dict)
    heard: list[RuntimeEvent] = field(default_factory=list)

    async def sit_down(self, place: int, *, recovers: bool) -> None:
        """Start a process on a place."""
        self.seats.insert(place, await self.tasks.start(self._live, recovers))

    async def _live(self, recovers: bool, *, task_status: TaskStatus[Seat]) -> None:  # noqa: FBT001 - started by position
        store = FaultyStore(self.store)
        runtime = AgentRuntime(store, model=self.tap, config=_CONFIG, clock=self.clock, recover_on_start=recovers)
        seat = Seat(runtime, store)
        store.plan = lambda call: _next_fault(seat, call)
        async with anyio.create_task_group() as listeners, runtime:
            for conversation_id in CONVERSATIONS:
                listeners.start_soon(self._listen, runtime, conversation_id)
            await settle()
            task_status.started(seat)
            await seat.leave.wait()
        seat.gone.set()

    async def _listen(self, runtime: AgentRuntime, conversation_id: str) -> None:
        async for event in runtime.subscribe(conversation_id):
            assert not isinstance(event, Gap)
            self.heard.append(event)

    async def pass_time(self, seconds: float) -> None:
        """Move the clock, in steps in which everybody acts."""
        steps = 12 if seconds > 0.1 else 1
        for _ in range(steps):
            self.clock.tick(seconds / steps)
            await settle()

    async def crash(self, place: int) -> None:
        """Kill the process on a place."""
        seat = self.seats.pop(place)
        seat.store.kill()
        seat.leave.set()
        await seat.gone.wait()

    def submit(self, place: int, conversation_id: str, key: str) -> None:
        """Submit the input that belongs to a key."""
        ticket = self.seats[place].runtime.submit(conversation_id, f"input {key}", idempotency_key=key)
        self.tickets.setdefault((conversation_id, key), []).append(ticket)

    async def run_of(self, conversation_id: str, *, state: str) -> str | None:
        """Return the id of the first active run in a state."""
        active = await self.store.list_active_runs(conversation_id)
        return next((run.id for run in active if run.state == state), None)

    async def finish(self) -> None:
        """Crash everybody, then let one last process answer everything that was admitted."""
        while self.seats:
            await self.crash(0)
        self.tap.open()
        await self.sit_down(0, recovers=True)
        admitted = [key for key, tickets in self.tickets.items() if any(map(_is_admitted, tickets))]
        with anyio.fail_after(20):
            for conversation_id, key in admitted:
                self.submit(0, conversation_id, key)
                await self.tickets[conversation_id, key][-1].result.settled()
            while any([await self.store.list_active_runs(conversation_id) for conversation_id in CONVERSATIONS]):
                await anyio.lowlevel.checkpoint()
        seat = self.seats.pop()
        seat.leave.set()
        await seat.gone.wait()


def _is_admitted(ticket: RunTicket) -> bool:
    return ticket.admission.done and ticket.admission.error is None


def _next_fault(seat: Seat, call: StoreCall) -> Fault | None:
    if call.method != "apply":
        return None
    fault, seat.fail_next = seat.fail_next, None
    return fault


def lost_reply() -> Fault:
    """The next commit of a process is carried out and its reply is lost."""
    return Fault(when="after", error=StoreUnavailableError("the reply was lost"))


async def check(world: World) -> None:
    """Judge a finished world.

    Every admitted input is in the store once, under one run; every run has ended once, with one answer; at most one
    run of a conversation was ever acquired at a time; events are unique, agree with the ledger and have no holes; every
    prompt ends with the input it is about, and holds no input twice.
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
        _check_admissions(world, conversation_id, inputs)
        _check_ledger(entries)
    _check_events(world)
    for prompt in world.tap.prompts:
        asked = [message.text for message in prompt if isinstance(message, ModelMessage) and message.role == "user"]
        assert prompt[-1].role == "user"
        assert len(asked) == len(set(asked))


def _check_admissions(world: World, conversation_id: str, inputs: list[str]) -> None:
    for (conversation, _), tickets in world.tickets.items():
        admitted = [ticket for ticket in tickets if _is_admitted(ticket)]
        if conversation != conversation_id or not admitted:
            continue
        assert len({ticket.run_id for ticket in admitted}) == 1
        assert tickets[-1].result.error is None or isinstance(tickets[-1].result.error, RunlaneError)
    texts = {key for (conversation, key), tickets in world.tickets.items() if conversation == conversation_id}
    assert len(inputs) <= len(texts)


def _check_ledger(entries: Sequence[EventEnvelope]) -> None:
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    held: object = None
    ended: set[object] = set()
    for entry in entries:
        kind, run_id = entry.payload["type"], entry.payload.get("run_id")
        if kind == "acquire":
            assert held is None
            held = run_id
        elif kind == "recover" and held == run_id:
            held = None
        if kind in {"terminal", "cancel"} or (kind == "recover" and entry.payload.get("action") == "abandon"):
            assert run_id not in ended
            ended.add(run_id)
            held = None if held == run_id else held


def _check_events(world: World) -> None:
    terminals = [event.run_id for event in world.heard if isinstance(event, TerminalEvent)]
    assert len(terminals) == len(set(terminals))
    sequences: dict[tuple[str, str], list[int]] = {}
    for event in world.heard:
        if isinstance(event, TransientEvent):
            sequences.setdefault((event.runtime_epoch, event.run_id), []).append(event.sequence)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in sequences.values())
    ids = [event.event_id for event in world.heard if isinstance(event, DurableEvent)]
    admissions = [event_id for event_id in ids if ":admission:" in event_id or ":run-state:" in event_id]
    assert len(ids) - len(admissions) == len(set(ids) - set(admissions))
