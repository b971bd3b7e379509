"""A small world for schedules over lanes: two runtimes on one store, one model whose words are let out one by one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup, TaskStatus
from typing_extensions import override

from runlane.bridge import WorkflowTurnDriver
from runlane.contracts import Id
from runlane.delivery import DurableEvent, Gap, RuntimeEvent
from runlane.errors import ProviderError, RunlaneError, StoreUnavailableError
from runlane.flow import AgentWorkflowDefinition, WorkflowContext, WorkflowNode, WorkflowRoute, define_workflow, route
from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ModelProviderContext,
    RetryPolicy,
    TextDelta,
)
from runlane.runner import ModelCallRequest
from runlane.runtime import (
    AgentRuntime,
    InputPolicy,
    LoopConfig,
    ManagedLoopDriver,
    RunsConfig,
    RunTicket,
    RuntimeConfig,
    TurnDriver,
)
from runlane.store import MemoryStore
from runlane.testing import FakeClock, Fault, FaultyStore, StoreCall
from runlane.tools import ToolDefinition, ToolExecutionContext, tool

CONVERSATIONS = ("a", "b")
WORDS = 3
"""Words of one step of the model."""


async def settle() -> None:
    """Let every task act until it waits; quicker than asking the event loop, which polls."""
    for _ in range(60):
        await anyio.lowlevel.checkpoint()


@dataclass(frozen=True)
class Asked:
    """One call of the model.

    Attributes:
        call_number: From 1, in its execution.
    """

    messages: tuple[AnyModelMessage, ...]
    call_number: int


class Tap(ChatProvider):
    """A model that says one word for each that was let out, or all of them once the tap is open.

    Every third call is the last of its run at once; others call a tool first, once or twice. No two calls say the same.
    """

    provider_id = "tap"
    model_id = "tap"

    def __init__(self) -> None:
        self._left = 0
        self._open = False
        self._failures = 0
        self._more = anyio.Event()
        self.asked: list[Asked] = []

    def let_out(self, words: int) -> None:
        """Allow so many more words, whoever says them."""
        self._left += words
        self._wake()

    def open(self) -> None:
        """Allow everything, and fail no more."""
        self._open, self._failures = True, 0
        self._wake()

    def fail(self) -> None:
        """Fail instead of saying the next word."""
        self._failures = 1

    def _wake(self) -> None:
        self._more.set()
        self._more = anyio.Event()

    async def word(self) -> None:
        """Wait until another word may be said."""
        while not self._open and self._left == 0:
            await self._more.wait()
        self._left = max(0, self._left - 1)

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        number = len(self.asked)
        self.asked.append(Asked(tuple(messages), context.call_number))
        # Within a workflow it is the workflow that calls tools.
        calls_a_tool = bool(context.functions) and context.call_number <= number % 3

        async def parts() -> AsyncGenerator[ModelPart, None]:
            for word in range(WORDS):
                await self.word()
                context.signal.raise_if_cancelled()
                if self._failures:
                    self._failures = 0
                    raise ProviderError("busy", provider="tap", reason="rate-limited", status=429, retryable=True)
                yield TextDelta(f"<{number}.{word}>")
            if calls_a_tool:
                yield FunctionCallDelta(0, id=f"call-{number}", name="note", arguments="{}")
            yield FinishReport("tool-calls" if calls_a_tool else "stop")

        async with aclosing(parts()) as stream:
            yield stream


def _workflow_driver() -> TurnDriver:
    """Return a driver whose workflow says what the model says, with up to two notes taken on the way."""

    async def talk(context: WorkflowContext[Any]) -> dict[str, object]:
        messages: Sequence[AnyModelMessage] = context.state["messages"]  # type: ignore[assignment]
        said = (await context.model.call(ModelCallRequest(stage="talk", messages=messages))).value
        if context.visit <= int(said[1 : said.index(".")]) % 3:
            await context.model.invoke_tool("note", {})
            return {"again": True}
        return {"again": False}

    again: WorkflowRoute[Any] = route("talk", when=lambda context: bool(context.state["again"]), budget=9)
    node: WorkflowNode[Any] = WorkflowNode(id=Id("talk"), run=talk, routes=(again, route(complete=lambda _: "")))
    workflow = define_workflow(AgentWorkflowDefinition(id=Id("lanes"), start=Id("talk"), nodes=(node,)))
    return WorkflowTurnDriver(workflow, None, stream_stages=["talk"])


DRIVERS: dict[str, Callable[[], TurnDriver]] = {"loop": ManagedLoopDriver, "workflow": _workflow_driver}
"""Who answers the runs of a world, by name."""


@dataclass
class Seat:
    """One process: its runtime, and its view of the store."""

    runtime: AgentRuntime
    store: FaultyStore
    tasks: TaskGroup
    leave: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)
    fail_next: Fault | None = None

    def begin(self, work: Callable[[], Awaitable[object]]) -> None:
        """Have the process do something, as long as it lives; races it loses are no failure."""

        async def do() -> None:
            with suppress(RunlaneError):
                await work()

        self.tasks.start_soon(do)


@dataclass
class World:
    """What a schedule acts on, and what is remembered to judge it by.

    Attributes:
        shares: Whether waiting inputs share a successor.
        driver: Who answers the runs.
        heard: What happened, told by whoever heard of it first.
        listeners: What each listener of each process heard.
        first: Who heard of a commit first.
        entered: The idempotency key of every call whose handler was entered.
    """

    store: MemoryStore
    clock: FakeClock
    tasks: TaskGroup
    shares: bool
    driver: TurnDriver
    tap: Tap = field(default_factory=Tap)
    seats: list[Seat] = field(default_factory=list)
    tickets: dict[tuple[str, str], list[RunTicket]] = field(default_factory=dict)
    heard: list[RuntimeEvent] = field(default_factory=list)
    listeners: list[list[RuntimeEvent]] = field(default_factory=list)
    first: dict[str, list[RuntimeEvent]] = field(default_factory=dict)
    entered: list[str | None] = field(default_factory=list)

    def _note(self) -> ToolDefinition[Any, Any, Any]:
        @tool
        async def note(context: ToolExecutionContext[Any]) -> str:
            """Take a note."""
            self.entered.append(context.idempotency_key)
            await self.tap.word()
            return "noted"

        return note

    async def sit_down(self, place: int, *, recovers: bool) -> None:
        """Start a process on a place."""
        self.seats.insert(place, await self.tasks.start(self._live, recovers))

    async def _live(self, recovers: bool, *, task_status: TaskStatus[Seat]) -> None:  # noqa: FBT001 - started by position
        store = FaultyStore(self.store)
        config = RuntimeConfig(
            driver=self.driver,
            runs=RunsConfig(coalesce_pending=self.shares),
            loop=LoopConfig(
                checkpoint_every_events=2,
                idle_timeout=60.0,
                retry=RetryPolicy(max_attempts=3, delay=lambda _: 0.0),
            ),
        )
        runtime = AgentRuntime(
            store, model=self.tap, tools=[self._note()], config=config, clock=self.clock, recover_on_start=recovers
        )
        async with anyio.create_task_group() as listeners, runtime, anyio.create_task_group() as tasks:
            seat = Seat(runtime, store, tasks)
            store.plan = lambda call: _next_fault(seat, call)
            for conversation_id in CONVERSATIONS:
                listeners.start_soon(self._listen, runtime, conversation_id)
            await settle()
            task_status.started(seat)
            await seat.leave.wait()
            tasks.cancel_scope.cancel()
        seat.gone.set()

    async def _listen(self, runtime: AgentRuntime, conversation_id: str) -> None:
        own: list[RuntimeEvent] = []
        self.listeners.append(own)
        async for event in runtime.subscribe(conversation_id):
            assert not isinstance(event, Gap)
            own.append(event)
            # Every process hears of every commit; here each counts as heard by the first that did.
            first = self.first.setdefault(event.event_id, own) if isinstance(event, DurableEvent) else own
            if first is own:
                self.heard.append(event)

    async def pass_time(self, seconds: float) -> None:
        """Move the clock, in steps in which everybody acts."""
        steps = 12 if seconds > 0.1 else 1
        for _ in range(steps):
            self.clock.tick(seconds / steps)
            await settle()

    async def crash(self, place: int) -> None:
        """Kill the process on a place."""
        await self._see_off(self.seats.pop(place), killed=True)

    async def _see_off(self, seat: Seat, *, killed: bool) -> None:
        if killed:
            seat.store.kill()
        seat.leave.set()
        await settle()
        # Who is about to repeat a commit waits for the clock, or else for the real seconds of its shield.
        while not seat.gone.is_set():
            await self.pass_time(0.1)

    def lapse(self, place: int) -> None:
        """Let the lease of a process lapse while it goes on: it was stopped for too long, and does not know it yet."""
        owners: dict[str, bool] = self.store.driver.owners  # type: ignore[attr-defined]
        owners[self.seats[place].runtime.owner_id] = False

    def submit(self, place: int, conversation_id: str, key: str, policy: InputPolicy = "queue") -> None:
        """Submit the input that belongs to a key."""
        ticket = self.seats[place].runtime.submit(conversation_id, f"input {key}", idempotency_key=key, policy=policy)
        self.tickets.setdefault((conversation_id, key), []).append(ticket)

    async def run_of(self, conversation_id: str, *, state: str) -> tuple[str, int] | None:
        """Return id and revision of the first active run in a state."""
        active = await self.store.list_active_runs(conversation_id)
        return next(((run.id, run.revision) for run in active if run.state == state), None)

    async def finish(self) -> None:
        """Crash everybody, then let one last process answer everything that was admitted."""
        while self.seats:
            await self.crash(0)
        self.tap.open()
        await self.sit_down(0, recovers=True)
        admitted = [key for key, tickets in self.tickets.items() if any(map(is_admitted, tickets))]
        with anyio.fail_after(60):
            for conversation_id, key in admitted:
                self.submit(0, conversation_id, key)
                while not self.tickets[conversation_id, key][-1].result.done:
                    await self.pass_time(0.05)
            while any([await self.store.list_active_runs(conversation_id) for conversation_id in CONVERSATIONS]):
                await self.pass_time(0.05)
        await self._see_off(self.seats.pop(), killed=False)


def is_admitted(ticket: RunTicket) -> bool:
    """Whether the input of a ticket is known to be durable."""
    return ticket.admission.done and ticket.admission.error is None


def _next_fault(seat: Seat, call: StoreCall) -> Fault | None:
    if call.method != "apply":
        return None
    fault, seat.fail_next = seat.fail_next, None
    return fault


def lost_reply() -> Fault:
    """The next commit of a process is carried out and its reply is lost."""
    return Fault(when="after", error=StoreUnavailableError("the reply was lost"))
