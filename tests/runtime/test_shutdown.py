"""Closing a runtime, in all four budget shapes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from runlane.errors import InvalidValueError, RuntimeClosedError, UsageError
from runlane.models import FinishReport, TextDelta
from runlane.records import ControlPart
from runlane.runtime import (
    AgentRuntime,
    CloseConfig,
    CloseResult,
    LaneCoordinator,
    RunTicket,
    RuntimeConfig,
    Turn,
    TurnFinished,
    TurnOutcome,
)
from runlane.store import AcceptInput, Lease, MemoryStore
from runlane.testing import Fault, FaultPlan, FaultyStore, Hold, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, Scene, held_after, opened

pytestmark = pytest.mark.anyio

_SETTLED = CloseResult(settled=True, timed_out=False, remaining=0)
_ONE_LEFT = CloseResult(settled=False, timed_out=True, remaining=1)


class _Deaf:
    """A driver that ignores its signal and its cancellation until the test lets it go."""

    name = "deaf"

    def __init__(self) -> None:
        self.hold = Hold()

    async def drive(self, turn: Turn, /) -> TurnOutcome:
        await turn.emit(TextDelta("half"))
        with anyio.CancelScope(shield=True):
            await self.hold.stand()
        return TurnFinished("stop")


async def _closing(scene: Scene, into: list[CloseResult], **budgets: float) -> None:
    into.append(await scene.runtime.close(**budgets))


async def test_neither_budget_aborts_now_and_waits() -> None:
    """The run ends with reason shutdown, keeps its text and the mark; close says settled."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        assert await scene.runtime.close() == _SETTLED
        result = await ticket.result
    assert (result.reason, result.run.state, result.message.status) == ("shutdown", "cancelled", "interrupted")
    assert (result.text, result.message.parts[-1]) == ("half ", ControlPart(reason="run-interrupted"))


async def test_neither_budget_waits_without_bound_for_what_ignores_it() -> None:
    """A run that ignores its abort holds an unbounded close for as long as it takes."""
    deaf, closed = _Deaf(), list[CloseResult]()
    async with (
        opened(ScriptedModel("x"), config=RuntimeConfig(driver=deaf)) as scene,
        anyio.create_task_group() as tasks,
    ):
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await deaf.hold.reached()
        tasks.start_soon(lambda: _closing(scene, closed))
        await scene.clock.advance(1000.0)
        assert closed == []
        deaf.hold.release()
        assert (await ticket.result).reason == "shutdown"
    assert closed == [_SETTLED]


async def test_a_run_that_settles_within_the_grace_is_not_aborted() -> None:
    """`grace` lets a run finish; its reason is unaffected."""
    hold, model = held_after("half ")
    closed = list[CloseResult]()
    async with opened(model) as scene, anyio.create_task_group() as tasks:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        tasks.start_soon(lambda: _closing(scene, closed, grace=5.0))
        await scene.clock.advance(4.0)
        hold.release()
        assert (await ticket.result).reason == "success"
    assert closed == [_SETTLED]


async def test_a_run_that_outlasts_the_grace_is_aborted() -> None:
    """After `grace` the run is stopped and waited for."""
    hold, model = held_after("half ")
    closed = list[CloseResult]()
    async with opened(model) as scene, anyio.create_task_group() as tasks:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        tasks.start_soon(lambda: _closing(scene, closed, grace=5.0))
        await scene.clock.advance(5.5)
        assert (await ticket.result).reason == "shutdown"
    assert closed == [_SETTLED]


@pytest.mark.parametrize(
    ("budgets", "waits"), [({"force": 2.0}, 2.0), ({"grace": 3.0, "force": 2.0}, 5.0), ({"force": 0.0}, 0.0)]
)
async def test_force_bounds_the_wait_after_the_abort_and_counts_what_is_left(
    budgets: dict[str, float], waits: float
) -> None:
    """A run that ignores its abort is counted once `force` seconds passed after the abort."""
    deaf, closed = _Deaf(), list[CloseResult]()
    async with (
        opened(ScriptedModel("x"), config=RuntimeConfig(driver=deaf)) as scene,
        anyio.create_task_group() as tasks,
    ):
        scene.runtime.submit(CONVERSATION, "Hi")
        await deaf.hold.reached()
        tasks.start_soon(lambda: _closing(scene, closed, **budgets))
        if waits:
            await scene.clock.advance(waits - 0.1)
            assert closed == []
        await scene.clock.advance(0.2)
        assert closed == [_ONE_LEFT]
        deaf.hold.release()


async def test_grace_zero_aborts_at_once_and_still_waits() -> None:
    """A grace of 0 is no grace, but an unbounded wait."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        assert await scene.runtime.close(grace=0) == _SETTLED
        assert (await ticket.result).reason == "shutdown"


@pytest.mark.parametrize("name", ["grace", "force"])
@pytest.mark.parametrize(
    ("budget", "error"),
    [(-0.1, InvalidValueError), (float("nan"), InvalidValueError), ("1", UsageError), (True, UsageError)],
)
async def test_a_bad_budget_changes_nothing(name: str, budget: object, error: type[Exception]) -> None:
    """A budget that is no non-negative number is refused by name, and the runtime still admits."""
    async with opened(ScriptedModel("Hello")) as scene:
        with pytest.raises(error, match=name):
            await scene.runtime.close(**{name: budget})  # type: ignore[arg-type]
        assert (await scene.runtime.submit(CONVERSATION, "Hi").result).reason == "success"


async def test_waiting_runs_stay_queued_and_can_be_recovered() -> None:
    """Waiting items reject; their durable runs stay queued."""
    hold, model = held_after("half ")
    async with MemoryStore() as store:
        async with opened(model, store=store) as scene:
            scene.runtime.submit(CONVERSATION, "first")
            second = scene.runtime.submit(CONVERSATION, "second")
            await second.admission
            await hold.reached()
            await scene.runtime.close()
            with pytest.raises(RuntimeClosedError):
                await second.result
            [run] = await store.list_active_runs(CONVERSATION)
            assert (run.id, run.state) == (second.run_id, "queued")
        async with opened(ScriptedModel("ok"), store=store) as scene:
            [outcome] = await scene.runtime.recover()
            assert outcome.result is not None
            assert (outcome.action, (await outcome.result).reason) == ("resumed", "success")


def _holding_accept(hold: Hold, number: int = 1) -> FaultPlan:
    def plan(call: StoreCall) -> Fault | None:
        accepts = any(isinstance(command, AcceptInput) for command in call.commands)
        return Fault(hold=hold) if accepts and call.apply_number == number else None

    return plan


async def test_close_waits_for_an_admission_inside_and_nothing_is_stranded() -> None:
    """A close during a durable write does not return before it; the admitted input is executed or stays queued."""
    hold, closed = Hold(), list[CloseResult]()
    async with opened(ScriptedModel("Hello"), plan=_holding_accept(hold)) as scene, anyio.create_task_group() as tasks:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        behind = scene.runtime.submit(CONVERSATION, "behind")
        await hold.reached()
        tasks.start_soon(lambda: _closing(scene, closed))
        await anyio.wait_all_tasks_blocked()
        assert closed == []
        hold.release()
        admission = await ticket.admission
        with pytest.raises(RuntimeClosedError):
            await behind.admission
        await ticket.result.settled()
        view = await scene.store.inner.load_run(CONVERSATION, admission.run_id)
    assert closed == [_SETTLED]
    assert view is not None
    assert view.run.state in {"queued", "cancelled", "completed"}


async def test_time_spent_on_admissions_is_taken_off_both_budgets() -> None:
    """An admission that does not come back within `force` is counted; the budgets are not paid twice."""
    hold, closed = Hold(), list[CloseResult]()
    async with opened(ScriptedModel("Hello"), plan=_holding_accept(hold)) as scene, anyio.create_task_group() as tasks:
        scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        tasks.start_soon(lambda: _closing(scene, closed, grace=10.0, force=2.0))
        await scene.clock.advance(1.9)
        assert closed == []
        await scene.clock.advance(0.2)
        assert closed == [_ONE_LEFT]
        hold.release()


async def test_a_later_submit_leaves_the_store_unchanged() -> None:
    """The closed flag is set before anything is waited for."""
    deaf, closed = _Deaf(), list[CloseResult]()
    async with (
        opened(ScriptedModel("x"), config=RuntimeConfig(driver=deaf)) as scene,
        anyio.create_task_group() as tasks,
    ):
        scene.runtime.submit(CONVERSATION, "Hi")
        await deaf.hold.reached()
        tasks.start_soon(lambda: _closing(scene, closed))
        await anyio.wait_all_tasks_blocked()
        writes = len(scene.store.applied)
        late = scene.runtime.submit(CONVERSATION, "late")
        with pytest.raises(RuntimeClosedError):
            await late.admission
        assert len(scene.store.applied) == writes
        deaf.hold.release()


async def test_leaving_the_context_ends_runs_in_order() -> None:
    """Leaving `async with` stops what executes with reason shutdown and waits for it."""
    hold, model = held_after("half ")
    tickets: list[RunTicket] = []
    async with opened(model) as scene:
        tickets.append(scene.runtime.submit(CONVERSATION, "Hi"))
        await hold.reached()
    assert (await tickets[0].result).reason == "shutdown"


async def test_leaving_the_context_can_let_runs_finish() -> None:
    """With `close.grace` a run that is nearly done is not cut off."""
    hold, model = held_after("half ")
    config = RuntimeConfig(close=CloseConfig(grace=5.0))
    async with opened(model, config=config) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        hold.release()
    assert (await ticket.result).reason == "success"


async def test_a_cancelled_host_still_ends_its_runs_properly() -> None:
    """Cancelling the scope around a runtime: the host stops at once, runs end as shutdown and are recorded."""
    hold, model = held_after("half ")
    async with MemoryStore() as store:
        with anyio.CancelScope() as scope:
            async with AgentRuntime(store, model=model) as runtime:
                ticket = runtime.submit(CONVERSATION, "Hi")
                await hold.reached()
                scope.cancel()
                await anyio.sleep_forever()
        view = await store.load_run(CONVERSATION, ticket.run_id)
    assert scope.cancelled_caught
    assert view is not None
    assert view.run.terminal_reason == "shutdown"


async def test_an_error_in_the_host_goes_on_as_it_is() -> None:
    """What the body raises is not wrapped in a group, and the run is ended before it leaves."""
    hold, model = held_after("half ")
    async with MemoryStore() as store:
        with pytest.raises(ZeroDivisionError):
            async with AgentRuntime(store, model=model) as runtime:
                runtime.submit(CONVERSATION, "Hi")
                await hold.reached()
                raise ZeroDivisionError
        assert await store.list_active_runs(CONVERSATION) == ()


async def test_events_end_when_the_runtime_closes() -> None:
    """A subscription reads what it has and then ends."""
    async with opened(ScriptedModel("Hello")) as scene:
        events = scene.runtime.subscribe(CONVERSATION)
        await scene.runtime.submit(CONVERSATION, "Hi").result
        await scene.runtime.close()
        found = [event async for event in events]
    assert getattr(found[-1], "type", None) == "terminal"


async def test_a_runtime_is_entered_once() -> None:
    """Entering again is misuse."""
    async with MemoryStore() as store:
        runtime = AgentRuntime(store, model=ScriptedModel([TextDelta("x"), FinishReport("stop")]))
        async with runtime:
            pass
        with pytest.raises(UsageError):
            async with runtime:
                pass


class _SlowToLease(FaultyStore):
    """A store whose leases take until they are let go."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.hold = Hold()

    @override
    @asynccontextmanager
    async def hold_lease(self, owner_id: str, /) -> AsyncIterator[Lease]:
        await self.hold.stand()
        async with self.inner.hold_lease(owner_id) as lease:
            yield lease


async def test_a_runtime_that_is_entered_when_everything_is_cancelled_already_ends_at_once() -> None:
    """It neither hangs nor leaves anything behind, and neither does a coordinator of lanes."""
    for manager in (AgentRuntime(MemoryStore(), model=ScriptedModel("never")), LaneCoordinator()):
        with anyio.fail_after(5), anyio.CancelScope() as scope:
            scope.cancel()
            async with manager:
                await anyio.lowlevel.checkpoint()
        assert scope.cancelled_caught


async def test_a_runtime_whose_entering_is_cancelled_ends_once_its_lease_is_known() -> None:
    """The lease that was asked for is given back, and nothing waits for ever."""
    async with MemoryStore() as inner:
        store = _SlowToLease(inner)
        async with anyio.create_task_group() as tasks:

            async def enter() -> None:
                async with AgentRuntime(store, model=ScriptedModel("never")):
                    await anyio.sleep_forever()

            tasks.start_soon(enter)
            await store.hold.reached()
            tasks.cancel_scope.cancel()
            store.hold.release()
