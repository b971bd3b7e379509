"""A small world for schedules over lanes: two runtimes on one store, one model whose words are let out one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup, TaskStatus
from typing_extensions import override

from runlane.delivery import DurableEvent, EventCursor, Gap, RuntimeEvent
from runlane.errors import RunlaneError, StoreUnavailableError
from runlane.models import RetryPolicy
from runlane.observability import RunEvent
from runlane.runtime import (
    AgentRuntime,
    HistoryConfig,
    InputPolicy,
    LoopConfig,
    RunsConfig,
    RunTicket,
    RuntimeConfig,
    SeedPlacement,
    TurnDriver,
)
from runlane.store import Applied, Command, DriverStore, MemoryDriver
from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.testing import FakeClock, Fault, FaultyStore, StoreCall
from runlane.tools import ToolDefinition, ToolExecutionContext, tool
from tests.stateful.lane_model import DRIVERS, Facts, Tap, compaction
from tests.stateful.lane_reads import requests

T = TypeVar("T")

CONVERSATIONS = ("a", "b")
LAST = "last"
"""The key of the input that ends every conversation."""


async def settle() -> None:
    """Let every task act until it waits; quicker than asking the event loop, which polls."""
    for _ in range(60):
        await anyio.lowlevel.checkpoint()


class WatchedStore(FaultyStore):
    """A process's view of the store.

    Attributes:
        busy: How many of its calls are on their way; waiting for others is none.
    """

    busy = 0

    @override
    async def _call(
        self,
        method: str,
        call: Callable[[], Awaitable[T]],
        conversation_id: str | None = None,
        commands: Sequence[Command] = (),
    ) -> T:
        counts = method != "wait_for_change"
        self.busy += counts
        try:
            return await super()._call(method, call, conversation_id, commands)
        finally:
            self.busy -= counts


@dataclass
class Seat:
    """One process: its runtime, and its view of the store."""

    runtime: AgentRuntime
    store: WatchedStore
    tasks: TaskGroup
    listeners: TaskGroup
    killed: bool = False
    leave: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)
    commits: deque[Fault] = field(default_factory=deque)
    reads: deque[Fault] = field(default_factory=deque)

    def begin(self, work: Callable[[], Awaitable[object]]) -> None:
        """Have the process do something, as long as it lives; races it loses are no failure."""

        async def do() -> None:
            with suppress(RunlaneError):
                await work()

        self.tasks.start_soon(do)


@dataclass(eq=False)
class Listener:
    """Somebody who listens in a process.

    Attributes:
        run_id: The run listened to; None for all of the conversation.
        after: Where the listening began; None for what happens from then on.
        ended: Whether everything was heard that there was to hear, and not only what the process lived to tell.
    """

    conversation_id: str
    run_id: str | None = None
    after: int | EventCursor | None = None
    events: list[RuntimeEvent] = field(default_factory=list)
    ended: bool = False

    def cursor(self, place: int = -1) -> EventCursor | None:
        """Return how far the durable events that were heard go, up to the one at a place; None before the first."""
        durable = [event for event in self.events if isinstance(event, DurableEvent)]
        if not durable:
            return None
        seen = durable[: place % len(durable) + 1]
        version = seen[-1].snapshot_version
        ids = frozenset(event.event_id for event in seen if event.snapshot_version == version)
        return EventCursor(snapshot_version=version, durable_event_ids=ids)


@dataclass
class World:
    """What a schedule acts on, and what is remembered to judge it by.

    Attributes:
        path: The file that every process opens by itself; None if all share `store`.
        inputs: The text of each ticket's input, as it was submitted for the first time.
        answers: The tickets of every answer to a request for consent, by conversation and request, with the answer.
        seeds: The texts of each seed that was placed, by conversation and key.
        early: The calls that were carried out without durable consent.
        heard: What happened, told by whoever heard of it first.
        listeners: Everybody who listens, or did.
        told: What the observers of all processes were told.
        first: Who heard of a commit first.
        entered: The idempotency key of every call whose handler was entered.
    """

    store: DriverStore
    clock: FakeClock
    tasks: TaskGroup
    facts: Facts = field(default_factory=Facts)
    path: Path | None = None
    tap: Tap = field(init=False)
    driver: TurnDriver = field(init=False)
    inputs: dict[RunTicket, str] = field(default_factory=dict)
    answers: dict[tuple[str, str], list[tuple[bool, RunTicket]]] = field(default_factory=dict)
    seeds: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    early: list[str] = field(default_factory=list)
    seats: list[Seat] = field(default_factory=list)
    tickets: dict[tuple[str, str], list[RunTicket]] = field(default_factory=dict)
    heard: list[RuntimeEvent] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    told: list[RunEvent] = field(default_factory=list)
    first: dict[str, Listener] = field(default_factory=dict)
    entered: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tap = Tap(asks=self.facts.asks)
        self.driver = DRIVERS[self.facts.driver](self.facts)

    def _tools(self) -> list[ToolDefinition[Any, Any, Any]]:
        @tool
        async def note(context: ToolExecutionContext[Any]) -> str:
            """Take a note."""
            self.entered.append(str(context.idempotency_key))
            await self.tap.word()
            return "noted"

        @tool(needs_approval=True)
        async def send(context: ToolExecutionContext[Any]) -> str:
            """Send a mail."""
            key = str(context.idempotency_key)
            self.entered.append(key)
            if not await self._is_agreed(key):
                self.early.append(key)
            await self.tap.word()
            return "sent"

        return [note, send]

    async def _is_agreed(self, key: str) -> bool:
        """Whether a durable yes to the call of this key is in the store."""
        for conversation_id in CONVERSATIONS:
            for asked in await requests(self.store, conversation_id):
                if f"{asked.run_id}:{asked.request.call_id}" == key and asked.approved:
                    return True
        return False

    async def sit_down(self, place: int, *, recovers: bool) -> None:
        """Start a process on a place."""
        self.seats.insert(place, await self.tasks.start(self._live, recovers))

    async def _live(self, recovers: bool, *, task_status: TaskStatus[Seat]) -> None:  # noqa: FBT001 - started by position
        own = self.store if self.path is None else open_file(self.path, self.clock)
        store = WatchedStore(own)
        config = RuntimeConfig(
            driver=self.driver,
            observers=(self,),
            key_reuse=self.facts.reuse,
            runs=RunsConfig(coalesce_pending=self.facts.shares),
            history=HistoryConfig(compact=compaction() if self.facts.compacts else None),
            loop=LoopConfig(
                checkpoint_every_events=2,
                idle_timeout=60.0,
                retry=RetryPolicy(max_attempts=3, delay=lambda _: 0.0),
            ),
        )
        runtime = AgentRuntime(
            store, model=self.tap, tools=self._tools(), config=config, clock=self.clock, recover_on_start=recovers
        )
        async with (
            nullcontext() if own is self.store else own,
            anyio.create_task_group() as listeners,
            runtime,
            anyio.create_task_group() as tasks,
        ):
            seat = Seat(runtime, store, tasks, listeners)
            store.plan = lambda call: _next_fault(seat, call)
            for conversation_id in CONVERSATIONS:
                seat.listeners.start_soon(self._listen, seat, Listener(conversation_id))
            await self.settle()
            task_status.started(seat)
            await seat.leave.wait()
            tasks.cancel_scope.cancel()
        seat.gone.set()

    def emit(self, event: RunEvent, /) -> None:
        """Note what an observer is told."""
        self.told.append(event)

    def listen(self, place: int, listener: Listener) -> None:
        """Have somebody listen in a process."""
        seat = self.seats[place]
        seat.listeners.start_soon(self._listen, seat, listener)

    async def _listen(self, seat: Seat, listener: Listener) -> None:
        self.listeners.append(listener)
        lane, run_id, after = listener.conversation_id, listener.run_id, listener.after
        subscription = seat.runtime.subscribe(lane, run_id=run_id, after=after)
        while not listener.ended and not seat.killed:
            try:
                async for event in subscription:
                    assert not isinstance(event, Gap)
                    self._hear(listener, event)
                listener.ended = not seat.killed
            except StoreUnavailableError:
                # The next call tries again; what is transient has waited, and a new one would not have heard it.
                continue
            except RunlaneError:
                return

    def _hear(self, listener: Listener, event: RuntimeEvent) -> None:
        listener.events.append(event)
        if listener.run_id is not None or listener.after is not None:
            return
        # Every process hears of every commit; here each counts as heard by the first that did.
        first = self.first.setdefault(event.event_id, listener) if isinstance(event, DurableEvent) else listener
        if first is listener:
            self.heard.append(event)

    async def settle(self) -> None:
        """Let every task act until it waits for time, for the model, or for another process."""
        await settle()
        while any(seat.store.busy for seat in self.seats):
            await settle()

    async def pass_time(self, seconds: float) -> None:
        """Move the clock, in steps in which everybody acts: of milliseconds, which are what is kept of a time."""
        steps = 12 if seconds > 0.1 else 1
        for _ in range(steps):
            self.clock.tick(round(seconds / steps, 3))
            await self.settle()

    async def crash(self, place: int) -> None:
        """Kill the process on a place."""
        await self._see_off(self.seats.pop(place), killed=True)

    async def _see_off(self, seat: Seat, *, killed: bool) -> None:
        if killed:
            seat.killed = True
            seat.store.kill()
        seat.leave.set()
        await self.settle()
        # Who is about to repeat a commit waits for the clock, or else for the real seconds of its shield.
        while not seat.gone.is_set():
            await self.pass_time(0.1)

    def lapse(self, place: int) -> None:
        """Let the lease of a process lapse while it goes on: it was stopped for too long, and does not know it yet."""
        if not isinstance(self.store.driver, MemoryDriver):
            return
        owners: dict[str, bool] = self.store.driver.owners
        owners[self.seats[place].runtime.owner_id] = False

    def submit(
        self, place: int, conversation_id: str, key: str, policy: InputPolicy = "queue", *, text: str | None = None
    ) -> None:
        """Submit the input that belongs to a key, or another one under it."""
        said = text or f"input {key} of {conversation_id}"
        ticket = self.seats[place].runtime.submit(conversation_id, said, idempotency_key=key, policy=policy)
        self.inputs.setdefault(ticket, said)
        self.tickets.setdefault((conversation_id, key), []).append(ticket)

    async def answer(self, place: int, conversation_id: str, *, newest: bool, approved: bool) -> None:
        """Answer the newest or the oldest request for consent, whether or not it was answered before."""
        if asked := await requests(self.store, conversation_id):
            approval_id = asked[-1 if newest else 0].request.approval_id
            ticket = self.seats[place].runtime.respond_to_approval(conversation_id, approval_id, approved=approved)
            self.answers.setdefault((conversation_id, approval_id), []).append((approved, ticket))

    async def seed(self, place: int, conversation_id: str, key: str, placement: SeedPlacement) -> None:
        """Put messages into a conversation, or try to do so again."""
        texts = tuple(f"seed {key} {number}" for number in range(2))
        outcome = await self.seats[place].runtime.seed(conversation_id, texts, seed_key=key, placement=placement)
        assert isinstance(outcome, Applied)
        self.seeds[conversation_id, key] = texts

    async def run_of(self, conversation_id: str, *, state: str | None = None) -> tuple[str, int] | None:
        """Return id and revision of the first active run, or of the first in a state."""
        active = await self.store.list_active_runs(conversation_id)
        return next(((run.id, run.revision) for run in active if state in {run.state, None}), None)

    async def begin(self) -> None:
        """Start two processes; one of them has answered what lies in the past."""
        for place in range(2):
            await self.sit_down(place, recovers=False)
        self.tap.open()
        for number in range(self.facts.past):
            for conversation_id in CONVERSATIONS:
                self.submit(0, conversation_id, f"past {number}")
            await self.settle()
            while not all(tickets[-1].result.done for tickets in self.tickets.values()):
                await self.pass_time(0.05)
        self.tap.close()

    async def finish(self) -> None:
        """Crash everybody, then let one last process answer everything that was admitted."""
        while self.seats:
            await self.crash(0)
        self.tap.open()
        await self.sit_down(0, recovers=True)
        admitted = [key for key, tickets in self.tickets.items() if any(map(is_admitted, tickets))]
        with anyio.fail_after(60):
            self._listen_again()
            for conversation_id, key in [*admitted, *((each, LAST) for each in CONVERSATIONS)]:
                self.submit(0, conversation_id, key)
                while not self.tickets[conversation_id, key][-1].result.done:
                    await self.pass_time(0.05)
            while any([await self.store.list_active_runs(conversation_id) for conversation_id in CONVERSATIONS]):
                await self.pass_time(0.05)
        await self._see_off(self.seats.pop(), killed=False)

    def _listen_again(self) -> None:
        """Have everybody go on who listened to a process that is gone, and some begin from the beginning."""
        for number, old in enumerate(self.listeners[: 2 * len(CONVERSATIONS)]):
            cursor = old.cursor(number)
            self.listen(0, Listener(old.conversation_id, after=0 if cursor is None else cursor))
            self.listen(0, Listener(old.conversation_id, after=0 if cursor is None else cursor.snapshot_version))
        for (conversation_id, _), tickets in self.tickets.items():
            if is_admitted(tickets[0]):
                self.listen(0, Listener(conversation_id, run_id=tickets[0].run_id, after=0))


def open_file(path: Path, clock: FakeClock) -> SqliteStore:
    """Return a store on a file, not open yet."""
    return SqliteStore(path, clock=clock, options=SqliteOptions(durability="relaxed", readers=1))


def is_admitted(ticket: RunTicket) -> bool:
    """Whether the input of a ticket is known to be durable."""
    return ticket.admission.done and ticket.admission.error is None


def _next_fault(seat: Seat, call: StoreCall) -> Fault | None:
    faults = seat.commits if call.method == "apply" else seat.reads
    return faults.popleft() if faults else None
