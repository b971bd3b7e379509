"""Lanes without a store."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from runlane.contracts import CancelToken
from runlane.errors import InvalidValueError, RuntimeClosedError, UsageError
from runlane.records import QueuePriority
from runlane.runtime import CloseResult, CoordinatedRun, LaneCoordinator
from runlane.runtime._coordinator import LaneItem
from runlane.runtime._promise import Promise
from runlane.testing import FakeClock

pytestmark = pytest.mark.anyio


class _Stage:
    """Items that stand until the test lets them go, and what happened in which order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.tokens: dict[str, CancelToken] = {}
        self._gates: dict[str, anyio.Event] = {}

    def gate(self, name: str) -> anyio.Event:
        return self._gates.setdefault(name, anyio.Event())

    def submit(
        self, lanes: LaneCoordinator, key: str, name: str, priority: QueuePriority | None = None
    ) -> CoordinatedRun[str, str]:
        return lanes.submit(key, create=self.create(name), execute=self.execute(name), priority=priority)

    def create(self, name: str) -> Callable[[CancelToken], Awaitable[str]]:
        async def create(signal: CancelToken) -> str:
            self.tokens[name] = signal
            return f"{name} created"

        return create

    def execute(self, name: str) -> Callable[[str, CancelToken], Awaitable[str]]:
        async def execute(value: str, _: CancelToken) -> str:
            self.log.append(f"+{name}")
            await self.gate(name).wait()
            self.log.append(f"-{name}")
            return value

        return execute


async def test_one_item_of_a_key_executes_and_other_keys_run_beside_it() -> None:
    """At most one item per key executes; items of different keys run in parallel."""
    stage = _Stage()
    async with LaneCoordinator() as lanes:
        first = stage.submit(lanes, "k", "a")
        second = stage.submit(lanes, "k", "b")
        other = stage.submit(lanes, "other", "c")
        await anyio.wait_all_tasks_blocked()
        assert sorted(stage.log) == ["+a", "+c"]
        for name in "abc":
            stage.gate(name).set()
        assert [await first.result, await second.result, await other.result] == ["a created", "b created", "c created"]
    assert stage.log.index("-a") < stage.log.index("+b")


async def test_accepted_settles_when_the_turn_has_come_and_result_when_execution_settled() -> None:
    """`accepted` of a waiting item is open until its create step returned; `result` until it was executed."""
    stage = _Stage()
    async with LaneCoordinator() as lanes:
        first = stage.submit(lanes, "k", "a")
        second = stage.submit(lanes, "k", "b")
        assert await first.accepted == "a created"
        await anyio.wait_all_tasks_blocked()
        assert (first.result.done, second.accepted.done) == (False, False)
        stage.gate("a").set()
        await second.accepted
        assert (first.result.done, second.result.done) == (True, False)
        stage.gate("b").set()


@pytest.mark.parametrize("step", ["create", "execute"])
async def test_a_failing_step_rejects_its_item_and_frees_the_lane(step: str) -> None:
    """A raise in create or execute rejects that item, and the next one runs."""

    async def fail(*_: object) -> str:
        raise ZeroDivisionError

    stage = _Stage()
    stage.gate("b").set()
    async with LaneCoordinator() as lanes:
        broken = lanes.submit(
            "k",
            create=fail if step == "create" else stage.create("a"),
            execute=fail if step == "execute" else stage.execute("a"),
        )
        after = stage.submit(lanes, "k", "b")
        with pytest.raises(ZeroDivisionError):
            await broken.result
        assert await after.result == "b created"
    assert broken.accepted.error is None if step == "execute" else broken.accepted.error is not None


async def test_the_next_item_starts_after_real_settlement_never_on_an_abort() -> None:
    """A stopped item that goes on blocks its lane until it returns."""
    stage = _Stage()
    async with LaneCoordinator() as lanes:
        stage.submit(lanes, "k", "a")
        second = stage.submit(lanes, "k", "b")
        await anyio.wait_all_tasks_blocked()
        assert lanes.stop("k") is True
        await anyio.wait_all_tasks_blocked()
        assert stage.log == ["+a"]
        stage.gate("a").set()
        stage.gate("b").set()
        await second.result
    assert stage.log[:3] == ["+a", "-a", "+b"]


async def test_urgent_items_go_before_ordinary_ones_and_after_earlier_urgent_ones() -> None:
    """With A executing and B waiting, urgent C and D give A, C, D, B."""
    stage = _Stage()
    async with LaneCoordinator() as lanes:
        stage.submit(lanes, "k", "a")
        await anyio.wait_all_tasks_blocked()
        stage.submit(lanes, "k", "b")
        stage.submit(lanes, "k", "c", priority="interrupt-next")
        last = [stage.submit(lanes, "k", "d", priority="interrupt-next")]
        for name in "abcd":
            stage.gate(name).set()
        await last[0].result
        await anyio.wait_all_tasks_blocked()
    assert [entry for entry in stage.log if entry[0] == "+"] == ["+a", "+c", "+d", "+b"]


async def test_stop_aborts_only_the_executing_item_and_says_whether_there_was_one() -> None:
    """Waiting items are untouched by a stop, and a stop of an idle key is False."""
    stage = _Stage()
    async with LaneCoordinator() as lanes:
        assert lanes.stop("k") is False
        stage.submit(lanes, "k", "a")
        waiting = stage.submit(lanes, "k", "b")
        await anyio.wait_all_tasks_blocked()
        lanes.stop("k", "supersede")
        stage.gate("a").set()
        await waiting.accepted
        assert (stage.tokens["a"].reason, stage.tokens["b"].cancelled) == ("supersede", False)
        stage.gate("b").set()


async def test_after_close_every_submit_is_rejected() -> None:
    """A closed coordinator rejects `accepted` and `result`, and so does one that was not entered."""
    stage = _Stage()
    lanes = LaneCoordinator()
    early = stage.submit(lanes, "k", "a")
    async with lanes:
        await lanes.close()
        late = stage.submit(lanes, "k", "b")
    for item, says in ((early, "enter it first: async with LaneCoordinator"), (late, "is closed")):
        for promise in (item.accepted, item.result):
            with pytest.raises(RuntimeClosedError, match=says):
                await promise
    assert stage.log == []


async def test_close_rejects_what_waits_and_aborts_what_executes() -> None:
    """Without budgets, close rejects waiting items, aborts the executing one and waits until it has returned."""

    async def execute(_: str, signal: CancelToken) -> str:
        await signal.wait()
        return str(signal.reason)

    stage = _Stage()
    async with LaneCoordinator() as lanes:
        running = lanes.submit("k", create=stage.create("a"), execute=execute)
        waiting = stage.submit(lanes, "k", "b")
        await running.accepted
        closed = await lanes.close()
        assert (closed.settled, closed.timed_out, closed.remaining) == (True, False, 0)
        assert await running.result == "shutdown"
        with pytest.raises(RuntimeClosedError):
            await waiting.result


async def test_close_leaves_an_item_that_is_being_admitted_to_its_admission() -> None:
    """Closing does not reject it over the head of whoever admits it, who has an input to refuse with it."""

    async def create(_: CancelToken) -> str:
        raise LookupError("the input was refused")

    item = LaneItem(create, _Stage().execute("a"), Promise(), Promise(), keeps_place=True)
    async with LaneCoordinator() as lanes:
        lanes.put("k", item)
        assert (await lanes.close()).remaining == 0
        with pytest.raises(LookupError):
            await item.result


async def _close(lanes: LaneCoordinator, into: list[CloseResult], **budgets: float) -> None:
    into.append(await lanes.close(**budgets))


async def test_an_item_that_settles_within_the_grace_is_not_aborted() -> None:
    """Settling inside `grace` means no abort."""
    stage, clock = _Stage(), FakeClock()
    closed: list[CloseResult] = []
    async with LaneCoordinator(clock=clock) as lanes, anyio.create_task_group() as tasks:
        item = stage.submit(lanes, "k", "a")
        await item.accepted
        tasks.start_soon(lambda: _close(lanes, closed, grace=5.0))
        await clock.advance(4.0)
        assert (closed, stage.tokens["a"].cancelled) == ([], False)
        stage.gate("a").set()
        assert await item.result == "a created"
    assert stage.tokens["a"].cancelled is False


async def test_an_item_that_ignores_its_abort_is_counted_when_force_runs_out() -> None:
    """With both budgets close waits `grace`, aborts, waits `force` after that, and says what remains."""
    stage, clock = _Stage(), FakeClock()
    closed: list[CloseResult] = []
    async with LaneCoordinator(clock=clock) as lanes, anyio.create_task_group() as tasks:
        await stage.submit(lanes, "k", "a").accepted
        tasks.start_soon(lambda: _close(lanes, closed, grace=5.0, force=2.0))
        await clock.advance(5.0)
        assert (stage.tokens["a"].reason, closed) == ("shutdown", [])
        await clock.advance(1.9)
        assert closed == []
        await clock.advance(0.2)
        assert closed == [CloseResult(settled=False, timed_out=True, remaining=1)]
        stage.gate("a").set()


@pytest.mark.parametrize(("budget", "error"), [(-1, InvalidValueError), ("1", UsageError), (True, UsageError)])
async def test_a_bad_budget_is_refused_before_anything_changes(budget: object, error: type[Exception]) -> None:
    """A budget that is no non-negative number is refused, and the coordinator still admits."""
    stage = _Stage()
    stage.gate("a").set()
    async with LaneCoordinator() as lanes:
        with pytest.raises(error, match="force"):
            await lanes.close(force=budget)  # type: ignore[arg-type]
        assert await stage.submit(lanes, "k", "a").result == "a created"


async def test_a_cancelled_host_does_not_cancel_items_half_way() -> None:
    """Cancelling the scope around a coordinator aborts its items with a reason and waits for them."""
    reasons: list[object] = []

    async def execute(_: str, signal: CancelToken) -> str:
        await signal.wait()
        await anyio.lowlevel.checkpoint()
        reasons.append(signal.reason)
        return "clean"

    stage = _Stage()
    with anyio.CancelScope() as scope:
        async with LaneCoordinator() as lanes:
            await lanes.submit("k", create=stage.create("a"), execute=execute).accepted
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert reasons == ["shutdown"]
