"""What a recovery, and a run behind what was left behind, wait for: never without an end."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

from runlane.errors import RuntimeConflictError, RunUnsettledError, StoreUnavailableError
from runlane.runtime import RecoveryDecision, RecoveryInput, RecoveryOutcome, Requeue
from runlane.store import AcquireRun, MemoryStore, RecoverRun
from runlane.testing import FakeClock, Fault, FaultPlan, Hold, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, held_after, opened

pytestmark = pytest.mark.anyio


async def _left_queued(store: MemoryStore, count: int) -> list[str]:
    """Leave queued runs behind that no process will start; return their ids in order."""
    hold, model = held_after()
    async with opened(model, store=store) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        tickets = [scene.runtime.submit(CONVERSATION, f"left {number}") for number in range(count)]
        for ticket in tickets:
            await ticket.admission
        scene.store.kill()
    [run, *_] = await store.list_active_runs(CONVERSATION)
    async with opened(ScriptedModel("."), store=store) as scene:
        await scene.runtime.abandon(CONVERSATION, first.run_id, expected_revision=run.revision, stale_owner=True)
    return [ticket.run_id for ticket in tickets]


def _then(
    outcomes: list[RecoveryOutcome], work: Awaitable[list[RecoveryOutcome]]
) -> Callable[[], Coroutine[Any, Any, None]]:
    async def recover() -> None:
        outcomes.extend(await work)

    return recover


async def _advance(clock: FakeClock, seconds: int) -> None:
    for _ in range(seconds):
        await clock.advance(1.0)


async def test_a_recovery_does_not_wait_for_a_run_its_lane_has_lost() -> None:
    """A run that waited here was left alone; then the store refused it. What is behind it fails at once, and stays."""
    clock, outcomes = FakeClock(), list[RecoveryOutcome]()
    async with MemoryStore(clock=clock) as store:
        lost, behind = await _left_queued(store, 2)
        refused = {lost}

        def plan(call: StoreCall) -> Fault | None:
            touches = any(isinstance(one, AcquireRun | RecoverRun) and one.run_id in refused for one in call.commands)
            return Fault(error=StoreUnavailableError("away")) if touches else None

        async with opened(ScriptedModel("a", "b"), store=store, clock=clock, plan=plan) as scene:
            resumed = scene.runtime.resume(CONVERSATION, lost)
            await anyio.wait_all_tasks_blocked()
            entered, go = anyio.Event(), anyio.Event()

            async def decide(asked: RecoveryInput) -> RecoveryDecision:
                assert asked.run.id == behind
                entered.set()
                await go.wait()
                return "resume"

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_then(outcomes, scene.runtime.recover(decide=decide)))
                await entered.wait()
                await _advance(clock, 5)
                assert isinstance(resumed.result.error, RunUnsettledError)
                go.set()
                await anyio.wait_all_tasks_blocked()
                assert [outcome.action for outcome in outcomes] == ["skipped", "failed"]
            assert isinstance(outcomes[1].error, RunUnsettledError)
            refused.clear()
            again = await scene.runtime.recover()
            assert [(await one.result).text for one in again if one.result is not None] == ["a", "b"]


async def test_a_recovery_is_let_past_an_input_that_waits_for_it() -> None:
    """An input holds the lane and waits for what is ahead; the recovery comes to that behind a run ended meanwhile."""
    clock, outcomes = FakeClock(), list[RecoveryOutcome]()
    entered, go = anyio.Event(), anyio.Event()
    async with MemoryStore(clock=clock) as store:
        ended, ahead = await _left_queued(store, 2)

        async def decide(asked: RecoveryInput) -> RecoveryDecision:
            entered.set()
            await go.wait()
            return asked.default

        async with opened(ScriptedModel("a", "b"), store=store, clock=clock) as scene:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_then(outcomes, scene.runtime.recover(decide=decide)))
                await entered.wait()
                ticket = scene.runtime.submit(CONVERSATION, "new")
                await anyio.wait_all_tasks_blocked()
                async with opened(ScriptedModel("."), store=store, clock=clock) as other:
                    await other.runtime.cancel(CONVERSATION, ended)
                go.set()
                await anyio.wait_all_tasks_blocked()
                await _advance(clock, 3)
                assert [outcome.action for outcome in outcomes] == ["resumed", "resumed"]
            results = [(await one.result).run.id for one in outcomes if one.result is not None]
            assert (results, (await ticket.result).text) == ([ended, ahead], "b")


async def test_all_who_wait_for_a_run_that_nobody_starts_give_up_together() -> None:
    """Ten seconds in all, not ten for each of them."""
    clock = FakeClock()
    async with MemoryStore(clock=clock) as store:
        await _left_queued(store, 1)
        async with opened(ScriptedModel("."), store=store, clock=clock) as scene:
            tickets = [scene.runtime.submit(CONVERSATION, f"input {number}") for number in range(3)]
            await anyio.wait_all_tasks_blocked()
            await _advance(clock, 9)
            assert [ticket.result.done for ticket in tickets] == [False] * 3
            await _advance(clock, 3)
            assert [type(ticket.result.error) for ticket in tickets] == [RunUnsettledError] * 3


async def test_new_inputs_do_not_prolong_the_wait_for_a_run_that_nobody_starts() -> None:
    """The conversation moves, the run at its head does not: that is what counts."""
    clock = FakeClock()
    async with MemoryStore(clock=clock) as store:
        await _left_queued(store, 1)
        async with opened(ScriptedModel("."), store=store, clock=clock) as scene:
            first = scene.runtime.submit(CONVERSATION, "first")
            for number in range(4):
                await _advance(clock, 3)
                await scene.runtime.submit(CONVERSATION, f"input {number}").admission
            assert isinstance(first.result.error, RunUnsettledError)


async def test_of_two_recoveries_the_first_to_end_does_not_end_the_other() -> None:
    """An input waits for the run ahead as long as either of them has still to deal with it."""
    hold, model = held_after("half ")
    entered, go = anyio.Event(), anyio.Event()

    async def decide(asked: RecoveryInput) -> RecoveryDecision:
        assert asked.owner_alive is False
        entered.set()
        await go.wait()
        return Requeue(replay_safe=True)

    async with MemoryStore() as store:
        async with opened(model, store=store) as dying:
            dying.runtime.submit(CONVERSATION, "first")
            await hold.reached()
            dying.store.kill()
        answers = ScriptedModel("one", "two")
        async with opened(answers, store=store) as scene, anyio.create_task_group() as tasks:
            outcomes: list[RecoveryOutcome] = []
            tasks.start_soon(_then(outcomes, scene.runtime.recover(decide=decide)))
            await entered.wait()
            assert [one.action for one in await scene.runtime.recover(decide=lambda _: "skip")] == ["skipped"]
            second = scene.runtime.submit(CONVERSATION, "second")
            await anyio.wait_all_tasks_blocked()
            go.set()
            assert (await second.result).text == "two"
    assert [outcome.action for outcome in outcomes] == ["requeued"]


async def test_a_run_that_jumps_ahead_of_a_recovery_is_waited_for() -> None:
    """Somebody has just admitted it and will execute it: the recovery goes on behind it."""
    clock, outcomes = FakeClock(), list[RecoveryOutcome]()
    entered, go = anyio.Event(), anyio.Event()

    async def decide(asked: RecoveryInput) -> RecoveryDecision:
        entered.set()
        await go.wait()
        return asked.default

    async with MemoryStore(clock=clock) as store:
        await _left_queued(store, 1)
        async with opened(ScriptedModel("mine"), store=store, clock=clock) as scene:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_then(outcomes, scene.runtime.recover(decide=decide)))
                await entered.wait()
                urgent = await _admitted_urgently(store, clock)
                go.set()
                await anyio.wait_all_tasks_blocked()
                await _advance(clock, 5)
                assert outcomes == []
                async with opened(ScriptedModel("theirs"), store=store, clock=clock) as other:
                    assert (await other.runtime.resume(CONVERSATION, urgent).result).text == "theirs"
                await _advance(clock, 3)
            [outcome] = outcomes
            assert outcome.result is not None
            assert (outcome.action, (await outcome.result).text) == ("resumed", "mine")


async def _admitted_urgently(store: MemoryStore, clock: FakeClock) -> str:
    """Have another process admit an urgent input, and not execute it yet."""
    hold = Hold()
    plan = _holding(hold)
    async with opened(ScriptedModel("."), store=store, clock=clock, plan=plan, stepwise=True) as other:
        ticket = other.runtime.submit(CONVERSATION, "urgent", policy="interrupt-next")
        await ticket.admission
        await hold.reached()
        other.store.kill()
        hold.release()
    return ticket.run_id


def _holding(hold: Hold) -> FaultPlan:
    def plan(call: StoreCall) -> Fault | None:
        return Fault(hold=hold) if any(isinstance(one, AcquireRun) for one in call.commands) else None

    return plan


async def test_a_repeated_input_waits_for_no_recovery_of_another_run() -> None:
    """Its run was admitted elsewhere while others are recovered: it is told so at once, not when they are done."""
    outcomes = list[RecoveryOutcome]()
    entered, go = anyio.Event(), anyio.Event()

    async def decide(asked: RecoveryInput) -> RecoveryDecision:
        entered.set()
        await go.wait()
        return asked.default

    async with MemoryStore() as store:
        await _left_queued(store, 1)
        async with opened(ScriptedModel("."), store=store) as scene, anyio.create_task_group() as tasks:
            tasks.start_soon(_then(outcomes, scene.runtime.recover(decide=decide)))
            await entered.wait()
            async with opened(ScriptedModel("."), store=store) as other:
                theirs = other.runtime.submit(CONVERSATION, "theirs", idempotency_key="k")
                await theirs.admission
                again = scene.runtime.submit(CONVERSATION, "theirs", idempotency_key="k")
                with pytest.raises(RuntimeConflictError, match="was accepted before and"):
                    await again.result
                assert outcomes == []
            go.set()


async def test_a_repeated_input_is_told_once_its_run_was_passed() -> None:
    """The recovery leaves its run alone and still deals with another one: nothing more is to be waited for."""
    entered, go = anyio.Event(), anyio.Event()
    outcomes = list[RecoveryOutcome]()
    hold, model = held_after()

    async def decide(_: RecoveryInput) -> RecoveryDecision:
        entered.set()
        await go.wait()
        return "skip"

    async with MemoryStore() as store:
        async with opened(model, store=store) as dying:
            dying.runtime.submit(CONVERSATION, "first", idempotency_key="k")
            await hold.reached()
            dying.store.kill()
        async with opened(ScriptedModel("."), store=store) as scene, anyio.create_task_group() as tasks:
            tasks.start_soon(_then(outcomes, scene.runtime.recover(decide=decide)))
            await entered.wait()
            again = scene.runtime.submit(CONVERSATION, "first", idempotency_key="k")
            await again.admission
            await anyio.wait_all_tasks_blocked()
            assert not again.result.done
            go.set()
            with pytest.raises(RuntimeConflictError, match="executed by another"):
                await again.result
