"""What the tests of the runtime share: a runtime over a store that counts and fails, and ways to read events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from runlane.delivery import DurableEvent, Gap, RuntimeEvent, Subscription
from runlane.models import FinishReport, ModelUsage, TextDelta, UsageReport
from runlane.runtime import AgentRuntime, LoopConfig, RunTicket, RuntimeConfig, ToolSource
from runlane.store import Command, MemoryStore
from runlane.testing import FakeClock, FaultPlan, FaultyStore, Hold, ScriptedModel, ScriptedStep

CONVERSATION = "c"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One runtime, its store and its clock."""

    runtime: AgentRuntime
    store: FaultyStore
    clock: FakeClock


@asynccontextmanager
async def opened(  # noqa: PLR0913 - each is a fact of the scene
    model: ScriptedModel,
    *,
    plan: FaultPlan | None = None,
    store: MemoryStore | None = None,
    config: RuntimeConfig | None = None,
    recover_on_start: bool = False,
    clock: FakeClock | None = None,
    tools: ToolSource = (),
    stepwise: bool = False,
) -> AsyncIterator[Scene]:
    """Open a runtime on a faulty store over a new memory store, or over the given open one.

    With `stepwise` the model is chosen run by run, so that an input is admitted before its run is acquired.
    """
    clock = clock or FakeClock()
    inner = store or MemoryStore()
    faulty = FaultyStore(inner, plan)
    runtime = AgentRuntime(
        faulty,
        model=(lambda _: model) if stepwise else model,
        tools=tools,
        config=config,
        clock=clock,
        recover_on_start=recover_on_start,
    )
    if store is not None:
        async with runtime:
            yield Scene(runtime=runtime, store=faulty, clock=clock)
        return
    async with inner, runtime:
        yield Scene(runtime=runtime, store=faulty, clock=clock)


def held_after(*texts: str) -> tuple[Hold, ScriptedModel]:
    """Return a model that says some texts and then stands at a hold; let go, it says `.` and stops."""
    hold = Hold()
    steps: list[ScriptedStep] = [*(TextDelta(text) for text in texts), hold, TextDelta("."), FinishReport("stop")]
    return hold, ScriptedModel(steps, "next answer")


def asked(model: ScriptedModel, call: int = 0) -> list[str]:
    """Return the texts of a call's messages; results of tools have none."""
    return [getattr(message, "text", "") for message in model.calls[call].messages]


def spending(text: str, *, input_tokens: int, output_tokens: int, cost: float | None = None) -> list[ScriptedStep]:
    """Return a reply that reports usage."""
    usage = ModelUsage(
        input_tokens=input_tokens, output_tokens=output_tokens, cost=cost, currency=None if cost is None else "USD"
    )
    return [TextDelta(text), UsageReport(usage), FinishReport("stop")]


def looped(**options: object) -> RuntimeConfig:
    """Return a configuration with some loop options."""
    return RuntimeConfig(loop=LoopConfig(**options))  # type: ignore[arg-type]


def names(commands: tuple[Command, ...]) -> list[str]:
    """Return what kinds of commands these are."""
    return [type(command).__name__ for command in commands]


async def heard(source: RunTicket | Subscription) -> list[RuntimeEvent]:
    """Return every event until the source ends; a gap fails the test."""
    events = source.events() if isinstance(source, RunTicket) else source
    found: list[RuntimeEvent] = []
    async for event in events:
        assert not isinstance(event, Gap)
        found.append(event)
    return found


def durable(events: list[RuntimeEvent]) -> list[tuple[str, int]]:
    """Return type and version of the durable events."""
    return [(event.type, event.snapshot_version) for event in events if isinstance(event, DurableEvent)]
