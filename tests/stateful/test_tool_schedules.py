"""Tools under crash after crash: whatever a process was doing when it died, nothing is entered twice by itself."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runlane.errors import RunlaneError
from runlane.models import FinishReport, FunctionCallDelta, ModelToolResultMessage
from runlane.records import Message, Run, ToolApprovalRequestPart, ToolCallPart, ToolResultPart
from runlane.runtime import AgentRuntime, RunResult, RuntimeConfig, ToolsConfig
from runlane.store import MemoryStore
from runlane.testing import Fault, FaultPlan, FaultyStore, ScriptedCall, ScriptedModel, ScriptedStep, StoreCall
from runlane.tools import ToolDefinition, ToolExecutionContext, ToolRegistry, ToolRegistryOptions, approval_kind, tool

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"

_CONVERSATION = "c"
_PATIENCE = 600
_KINDS = ("task", "thread", "idempotent", "asks", "fails")

Kind = Literal["task", "thread", "idempotent", "asks", "fails"]


@dataclass(frozen=True)
class Death:
    """A process dies at its nth commit, before or after it; or inside the nth entry of a tool."""

    at: Literal["before", "after", "tool"]
    number: int


@dataclass
class World:
    """What happened outside: entries of tools, by idempotency key, and which kind each is."""

    rounds: list[list[Kind]]
    entries: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Kind] = field(default_factory=dict)
    dies_in_tool: int | None = None
    entered: int = 0
    kill: Callable[[], None] = lambda: None

    def enter(self, kind: Kind, context: ToolExecutionContext[Any]) -> None:
        """Note an entry, and die if it is time."""
        key = context.idempotency_key or ""
        self.entries[key] += 1
        self.kinds[key] = kind
        self.entered += 1
        if self.entered == self.dies_in_tool:
            self.kill()

    def reply(self, call: ScriptedCall) -> list[ScriptedStep] | str:
        """Make the calls of the next round; the state is in the messages."""
        done = sum(isinstance(message, ModelToolResultMessage) for message in call.messages)
        if done >= len(self.rounds):
            return "Done."
        deltas = [
            FunctionCallDelta(place, id=f"{done}-{place}", name=kind, arguments="{}")
            for place, kind in enumerate(self.rounds[done])
        ]
        return [*deltas, FinishReport("tool-calls")]

    @cached_property
    def registry(self) -> ToolRegistry[Any]:
        """Return the tools, one of each kind, with a single thread between them."""

        def made(kind: Kind, **options: Any) -> ToolDefinition[Any, Any, Any]:  # noqa: ANN401
            def plain(context: ToolExecutionContext[Any]) -> str:
                """Note the entry."""
                self.enter(kind, context)
                return kind

            async def later(context: ToolExecutionContext[Any]) -> str:
                """Note the entry."""
                self.enter(kind, context)
                await anyio.lowlevel.checkpoint()
                if kind == "fails":
                    raise KeyError(kind)
                return kind

            return tool(plain if kind == "thread" else later, id=kind, **options)

        tools = [
            made("task"),
            made("thread"),
            made("idempotent", idempotent=True),
            made("asks", needs_approval=True),
            made("fails"),
        ]
        registry: ToolRegistry[Any] = ToolRegistry(ToolRegistryOptions(tools=tools, max_blocking_threads=1))
        registry.seal()
        return registry


def _plan(death: Death) -> FaultPlan:
    def plan(call: StoreCall) -> Fault | None:
        is_time = call.apply_number == death.number and death.at != "tool"
        return Fault(when=death.at, kills=True) if is_time else None  # type: ignore[arg-type]

    return plan


async def _live(world: World, store: MemoryStore, death: Death | None, *, tells: bool) -> RunResult | None:
    """One process: recovers, submits the question, answers every request for approval, until it dies."""
    faulty = FaultyStore(store, None if death is None else _plan(death))
    world.kill, world.entered = faulty.kill, 0
    world.dies_in_tool = death.number if death is not None and death.at == "tool" else None
    config = RuntimeConfig(tools=ToolsConfig(unknown_effect="tell" if tells else "ask"))
    model = ScriptedModel(world.reply)
    try:
        async with AgentRuntime(
            faulty, model=model, tools=world.registry, config=config, recover_on_start=True
        ) as runtime:
            result = await runtime.submit(_CONVERSATION, "Go.", idempotency_key="only").result
            return await _agree(runtime, faulty, result)
    except RunlaneError:
        return None


async def _agree(runtime: AgentRuntime, store: FaultyStore, result: RunResult) -> RunResult:
    """Agree to everything that is asked, one by one, in whatever run it was asked."""
    while pending := await _settled(store):
        result = await runtime.respond_to_approval(_CONVERSATION, pending[0].approval_id, approved=True).result
    return result


async def _settled(store: FaultyStore) -> list[ToolApprovalRequestPart]:
    """Wait until nothing executes any more, and return what is asked; a process that died meanwhile waits no more."""
    for _ in range(_PATIENCE):
        if not await store.list_active_runs(_CONVERSATION):
            return await _pending(store)
        head = await store.load_head(_CONVERSATION)
        await store.wait_for_change(_CONVERSATION, head.version, max_wait=0.05)
    raise AssertionError(await store.list_active_runs(_CONVERSATION))


async def _pending(store: FaultyStore) -> list[ToolApprovalRequestPart]:
    messages = (await store.load_snapshot(_CONVERSATION)).messages
    answered = _answered(messages)
    return [request for _, request in _requests(messages) if request.approval_id not in answered]


def _answered(messages: Sequence[Message]) -> set[str]:
    """Return the ids of the requests somebody answered on record; the answer is always yes."""
    inputs = (message for message in messages if message.role == "tool")
    return {part.approval_id for message in inputs for part in message.parts}  # type: ignore[union-attr]


def _requests(messages: Sequence[Message]) -> list[tuple[str | None, ToolApprovalRequestPart]]:
    """Return what was asked, with the run that asked."""
    return [
        (message.run_id, part)
        for message in messages
        for part in message.parts
        if isinstance(part, ToolApprovalRequestPart)
    ]


def _check(world: World, runs: list[Run], messages: list[Message]) -> None:
    """Check the record against what really happened: everything was agreed to, so every call has come to its end."""
    assert {run.terminal_reason for run in runs} <= {"success", "provider_stop"}
    calls = {
        part.call_id: f"{message.run_id}:{part.call_id}"
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    }
    results = [part for message in messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert sorted(result.call_id for result in results) == sorted(calls)
    for result in results:
        if result.outcome == "success":
            assert world.entries[calls[result.call_id]] >= 1
    # An answer counts once it is on record, also if the process that gave it died before it heard of that.
    answered = _answered(messages)
    agreed = Counter(
        f"{run_id}:{request.call_id}"
        for run_id, request in _requests(messages)
        if request.approval_id in answered and approval_kind(request) == "effect-unknown"
    )
    for key, count in world.entries.items():
        if world.kinds[key] != "idempotent":
            assert count <= 1 + agreed[key], f"{key} was entered {count} times"


deaths = st.builds(Death, st.sampled_from(["before", "after", "tool"]), st.integers(1, 7))
rounds = st.lists(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=3), min_size=1, max_size=2)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=2_000 if DEEP else 20)
@given(plan=rounds, deaths=st.lists(deaths, max_size=3), tells=st.booleans())
def test_nothing_uncertain_is_run_twice_by_itself(
    backend: str, plan: list[list[Kind]], deaths: list[Death], *, tells: bool
) -> None:
    """Up to three processes die in a turn of parallel tools; the last one ends it, and the record agrees with all."""

    async def scenario() -> None:
        world = World(plan)
        async with MemoryStore() as store:
            for death in deaths:
                await _live(world, store, death, tells=tells)
            result = await _live(world, store, None, tells=tells)
            assert await store.list_active_runs(_CONVERSATION) == ()
            snapshot = await store.load_snapshot(_CONVERSATION)
        assert result is not None
        _check(world, list(snapshot.runs), list(snapshot.messages))

    anyio.run(scenario, backend=backend)
