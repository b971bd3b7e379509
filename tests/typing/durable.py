"""What the type checkers say of durable work and of drivers; never executed, only checked."""

from __future__ import annotations

from typing import assert_type

from pydantic import JsonValue

from runlane.bridge import WorkflowTurnDriver
from runlane.durability import Effect, EffectOutcome, StepDurability, StepRunOptions
from runlane.flow import AgentWorkflow
from runlane.runtime import ManagedLoopDriver, RunContext, RuntimeConfig, Turn, TurnDriver
from runlane.store import Store


async def charge() -> dict[str, JsonValue]:
    """Have an effect."""
    return {"id": 1}


def plain() -> None:
    """Have none."""


async def typed_durability(store: Store, turn: Turn) -> None:
    """Any store will do; bodies may be plain or coroutines."""
    assert_type(turn.durability, StepDurability)
    durability = StepDurability(store, "conversation", "run")
    await durability.step("a", charge)
    await durability.step("b", plain, StepRunOptions())
    assert_type(await durability.has_recorded_step("a"), bool)
    assert_type(await durability.effect("c", Effect(run=charge, reconcile=plain)), EffectOutcome)
    await durability.effect("d", charge)  # type: ignore[arg-type]
    await durability.deliver("event", "id", {"a": [1, None]})


def choose(context: RunContext[str]) -> TurnDriver:
    """Choose by the run."""
    assert_type(context.context, str)
    return ManagedLoopDriver()


async def too_late(context: RunContext[str]) -> TurnDriver:
    """Choose when it is too late."""
    return choose(context)


def typed_drivers(workflow: AgentWorkflow[None]) -> None:
    """A driver, or a plain function that chooses one."""
    RuntimeConfig(driver=WorkflowTurnDriver(workflow, None, durable_nodes=True))
    RuntimeConfig(driver=choose)
    RuntimeConfig(driver=too_late)  # type: ignore[arg-type]
    RuntimeConfig(driver="loop")  # type: ignore[arg-type]
