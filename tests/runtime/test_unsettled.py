"""What becomes of a run when the store fails around it."""

import anyio
import pytest

from runlane.delivery import TransientEvent
from runlane.errors import RuntimeConflictError, RunUnsettledError, StoreCommitUnknownError, StoreUnavailableError
from runlane.runtime._store_calls import StoreCalls
from runlane.store import (
    AcceptInput,
    AcquireRun,
    Applied,
    Command,
    CommitRunTerminal,
    MemoryStore,
    Outcome,
    RecoverRun,
)
from runlane.testing import FakeClock, Fault, FaultPlan, FaultyStore, Hold, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, heard, held_after, opened

pytestmark = pytest.mark.anyio

_GONE = StoreUnavailableError("the disk is away")


def _failing(*kinds: type[Command], after: bool = False, times: int | None = None) -> FaultPlan:
    """Fail every commit that holds one of these commands (at most `times` of them)."""
    failed: list[StoreCall] = []

    def plan(call: StoreCall) -> Fault | None:
        if not any(isinstance(command, kinds) for command in call.commands):
            return None
        if times is not None and len(failed) >= times:
            return None
        failed.append(call)
        return Fault(when="after" if after else "before", error=_GONE)

    return plan


@pytest.mark.parametrize("kind", [AcceptInput, AcquireRun, CommitRunTerminal])
@pytest.mark.parametrize("after", [False, True], ids=["refused", "reply lost"])
async def test_a_store_that_fails_for_a_moment_is_not_noticed(kind: type[Command], *, after: bool) -> None:
    """A commit that throws four times, or whose reply is lost four times, is sent again and counts once."""
    model = ScriptedModel("Hello")
    async with opened(model, plan=_failing(kind, after=after, times=4)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(1.0)
        result = await ticket.result
        await scene.runtime.submit(CONVERSATION, "Again").result
        told = [[message.text for message in call.messages] for call in model.calls]  # type: ignore[union-attr]
        snapshot = await scene.store.inner.load_snapshot(CONVERSATION)
    assert (result.reason, result.text, len(snapshot.messages)) == ("success", "Hello", 4)
    assert told == [["Hi"], ["Hi", "Hello", "Again"]]
    assert snapshot.version == 12


async def test_an_acquisition_that_never_succeeds_ends_the_run_as_abandoned() -> None:
    """Acquiring, retries spent: the runtime closes the run, the result resolves as abandoned, and the next run goes."""
    async with opened(ScriptedModel("Hello"), plan=_failing(AcquireRun, times=6), stepwise=True) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(1.0)
        result = await ticket.result
        assert (await scene.runtime.submit(CONVERSATION, "Again").result).reason == "success"
    assert (result.reason, result.run.state, result.message.status) == ("abandoned", "abandoned", "failed")
    assert result.error is _GONE


async def test_an_acquisition_whose_reply_is_always_lost_ends_the_run_as_abandoned() -> None:
    """The run is held by this runtime, which knows nothing of it, closes it, and says so."""
    async with opened(ScriptedModel("Hello"), plan=_failing(AcquireRun, after=True)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(1.0)
        result = await ticket.result
        view = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
    assert view is not None
    assert (result.reason, view.run.terminal_reason) == ("abandoned", "abandoned")


async def test_a_conversation_that_cannot_be_read_ends_the_run_as_abandoned() -> None:
    """Reading, retries spent: the runtime closes the run, which answers nothing it does not know the past of."""
    failing = True

    def plan(call: StoreCall) -> Fault | None:
        return Fault(error=_GONE) if failing and call.method == "read_messages" else None

    async with MemoryStore() as store:
        async with opened(ScriptedModel("one"), store=store) as scene:
            await scene.runtime.submit(CONVERSATION, "first").result
        model = ScriptedModel("two")
        async with opened(model, store=store, plan=plan) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "second")
            await scene.clock.advance(2.0)
            result = await ticket.result
            assert (result.reason, result.error, model.calls) == ("abandoned", _GONE, [])
            failing = False
            assert (await scene.runtime.submit(CONVERSATION, "third").result).reason == "success"


async def test_a_closing_write_that_fails_too_leaves_the_run_unsettled() -> None:
    """Acquisition and the closing write, retries spent: `RunUnsettledError` with the run and this owner."""
    async with opened(ScriptedModel("Hello"), plan=_failing(AcquireRun, RecoverRun)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(3.0)
        with pytest.raises(RunUnsettledError) as caught:
            await ticket.result
        owner = scene.runtime.owner_id
    assert (caught.value.run.id, caught.value.owner_id) == (ticket.run_id, owner)


async def test_a_terminal_commit_that_never_succeeds_leaves_the_run_unsettled() -> None:
    """The terminal commit, retries spent: `RunUnsettledError`; the run is still held, and recover settles it."""
    async with opened(ScriptedModel("Hello"), plan=_failing(CommitRunTerminal, times=6)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(3.0)
        with pytest.raises(RunUnsettledError) as caught:
            await ticket.result
        view = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
        assert view is not None
        assert (view.run.state, view.run.owner_id) == ("running", caught.value.owner_id)
        # Nobody executes it here any more, so this runtime may take it up again.
        [outcome] = await scene.runtime.recover()
        assert outcome.result is not None
        assert (outcome.action, (await outcome.result).reason) == ("requeued", "success")


async def test_a_run_held_by_another_executor_rejects_and_is_left_alone() -> None:
    """A conflict with another executor rejects with a conflict; the record is untouched."""
    hold = Hold()

    def plan(call: StoreCall) -> Fault | None:
        return Fault(hold=hold) if any(isinstance(command, AcquireRun) for command in call.commands) else None

    async with opened(ScriptedModel("Hello"), plan=plan, stepwise=True) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        other = AcquireRun(
            command_id="other", at=scene.clock.now(), run_id=ticket.run_id, expected_revision=0, owner_id="other"
        )
        [taken] = await scene.store.inner.apply(CONVERSATION, [other])
        assert isinstance(taken, Applied)
        hold.release()
        with pytest.raises(RuntimeConflictError, match="other"):
            await ticket.result
        view = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
    assert view is not None
    assert view.run == taken.delta.runs[-1]


async def test_a_run_behind_one_of_a_dead_executor_rejects_as_unsettled_and_stays_queued() -> None:
    """A run queued behind an orphan rejects with the unsettled error; recover later runs both, in order."""
    hold, model = held_after("one")
    async with MemoryStore() as store:
        async with opened(model, store=store) as dying:
            first = dying.runtime.submit(CONVERSATION, "first")
            await hold.reached()
            dying.store.kill()
        model = ScriptedModel("ok")
        async with opened(model, store=store) as scene:
            second = scene.runtime.submit(CONVERSATION, "second")
            with pytest.raises(RunUnsettledError) as caught:
                await second.result
            assert caught.value.run.id == second.run_id
            active = await store.list_active_runs(CONVERSATION)
            assert [(run.id, run.state) for run in active] == [(first.run_id, "running"), (second.run_id, "queued")]
            outcomes = await scene.runtime.recover()
            assert [outcome.action for outcome in outcomes] == ["requeued", "resumed"]
            for outcome in outcomes:
                assert outcome.result is not None
                await outcome.result
    assert [call.messages[-1].text for call in model.calls] == ["first", "second"]  # type: ignore[union-attr]


async def test_a_run_behind_a_queued_one_nobody_starts_gives_up_after_a_while() -> None:
    """Ten seconds without progress ahead: unsettled; the run stays queued."""
    async with MemoryStore() as store:

        def plan(call: StoreCall) -> Fault | None:
            return Fault(when="after", kills=True) if call.method == "apply" else None

        async with opened(ScriptedModel("Hello"), store=store, plan=plan, stepwise=True) as dying:
            lost = dying.runtime.submit(CONVERSATION, "first")
            await lost.admission.settled()
        async with opened(ScriptedModel("Hello"), store=store) as scene:

            async def no_wait(*_: object, max_wait: float) -> bool:
                await scene.clock.sleep(max_wait)
                return False

            store.wait_for_change = no_wait  # type: ignore[method-assign]
            ticket = scene.runtime.submit(CONVERSATION, "second")
            await scene.clock.advance(9.0)
            assert ticket.result.done is False
            await scene.clock.advance(3.0)
            with pytest.raises(RunUnsettledError):
                await ticket.result


# --- the calls themselves ---------------------------------------------------------------------------------------


async def test_a_throwing_call_is_repeated_for_half_a_second() -> None:
    """Six attempts, after 20, 40, 80, 160 and 200 ms, with the very same commands."""
    clock = FakeClock()
    times: list[float] = []

    def plan(_: StoreCall) -> Fault | None:
        times.append(round(clock.monotonic(), 3))
        return Fault(error=_GONE)

    async with MemoryStore() as inner:
        store = FaultyStore(inner, plan)
        calls = StoreCalls(store, clock)
        failed: list[Exception] = []

        async def read() -> None:
            try:
                await calls.read(lambda opened: opened.load_head(CONVERSATION))
            except StoreUnavailableError as error:
                failed.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await clock.advance(1.0)
    assert times == [0.0, 0.02, 0.06, 0.14, 0.3, 0.5]
    assert failed == [_GONE]


async def test_a_mutation_that_hangs_is_of_unknown_outcome_when_its_shield_ends() -> None:
    """A cancelled caller still waits for its commit, but not for ever: then the outcome is unknown."""
    hold = Hold()
    async with MemoryStore() as inner:
        store = FaultyStore(inner, lambda call: Fault(hold=hold) if call.method == "apply" else None)
        calls = StoreCalls(store, FakeClock(), shield=0.05)
        with anyio.CancelScope() as scope:
            scope.cancel()
            with pytest.raises(StoreCommitUnknownError):
                await calls.apply(CONVERSATION, [])


async def test_a_mutation_in_flight_is_not_cancelled() -> None:
    """A commit begun before the cancellation is finished, and its outcome is known to the caller."""
    async with opened(ScriptedModel("Hello")) as scene:
        calls = StoreCalls(scene.store, scene.clock)
        await scene.runtime.submit(CONVERSATION, "Hi").result
        outcomes: tuple[Outcome, ...] = ()
        with anyio.CancelScope() as scope:
            scope.cancel()
            outcomes = await calls.apply(CONVERSATION, scene.store.applied[0].commands)
    assert {type(outcome) for outcome in outcomes} == {Applied}


@pytest.mark.parametrize("lapses", [False, True])
async def test_a_run_executed_here_again_goes_on_numbering_its_events(*, lapses: bool) -> None:
    """The same process takes its unsettled run up again: transient sequences have no repetition within an epoch.

    If its lease lapsed meanwhile it goes on as another owner, whose epoch begins at 1.
    """
    failing = True

    def plan(call: StoreCall) -> Fault | None:
        ends = any(isinstance(command, CommitRunTerminal) for command in call.commands)
        return Fault(error=StoreUnavailableError("gone")) if ends and failing else None

    async with opened(ScriptedModel("one two"), plan=plan) as scene, scene.runtime.subscribe(CONVERSATION) as events:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(2.0)
        with pytest.raises(RunUnsettledError):
            await ticket.result
        failing = False
        if lapses:
            scene.store.inner.driver.owners[scene.runtime.owner_id] = False  # type: ignore[attr-defined]
        [outcome] = await scene.runtime.recover()
        assert outcome.result is not None
        await outcome.result
        assert scene.runtime._core.spoken == {}
        await scene.runtime.close()
        told = [event.sequence for event in await heard(events) if isinstance(event, TransientEvent)]
    assert told == ([1, 2, 1, 2] if lapses else [1, 2, 3, 4])


async def test_a_run_that_is_ended_while_the_reply_of_its_acquisition_is_lost_asks_no_model() -> None:
    """The commit is sent again and found; meanwhile somebody abandoned the run: its result is what the record says."""
    model = ScriptedModel("never", "next")
    lost = anyio.Event()

    def plan(call: StoreCall) -> Fault | None:
        if lost.is_set() or not any(isinstance(command, AcquireRun) for command in call.commands):
            return None
        lost.set()
        return Fault(when="after", error=StoreUnavailableError("the reply was lost", store="s"))

    async with MemoryStore() as store, opened(model, store=store, plan=plan) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await lost.wait()
        await anyio.wait_all_tasks_blocked()
        [run] = await store.list_active_runs(CONVERSATION)
        async with opened(ScriptedModel("."), store=store) as other:
            await other.runtime.abandon(CONVERSATION, run.id, expected_revision=run.revision, stale_owner=True)
        await scene.clock.advance(1.0)
        assert (await ticket.result).reason == "abandoned"
        assert model.calls == []
        assert (await scene.runtime.submit(CONVERSATION, "Again").result).reason == "success"
