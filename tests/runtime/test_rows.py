"""Rows of the tables of a run's life that no other file is about: reads, refused admissions, races, recovery, purge."""

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest
from typing_extensions import override

from runlane.delivery import AdmissionEvent, RunStateEvent, TerminalEvent
from runlane.errors import ConversationPurgedError, RuntimeClosedError, RuntimeConflictError
from runlane.models import FinishReport, TextDelta
from runlane.records import TerminalReason
from runlane.runtime import (
    Abandon,
    CloseResult,
    LoopConfig,
    RecordIds,
    RecoveryDecision,
    RecoveryInput,
    Requeue,
    RuntimeConfig,
    Turn,
    TurnFinished,
    TurnOutcome,
    TurnStopped,
)
from runlane.runtime._settling import result_from_view
from runlane.store import (
    AcceptInput,
    Applied,
    Command,
    CommitRunTerminal,
    Conflict,
    MemoryStore,
    NotFound,
    Outcome,
    RecoverRun,
    RequestRunInterrupt,
    RunView,
)
from runlane.testing import Fault, FaultyStore, Hold, ScriptedModel, StoreCall
from tests.runtime.injecting import tool_call
from tests.runtime.scenes import CONVERSATION, asked, heard, held_after, opened

pytestmark = pytest.mark.anyio


# --- reads ------------------------------------------------------------------------------------------------------------


async def test_no_turn_interrupt_or_terminal_conflict_loads_a_snapshot() -> None:
    """Turns, an interrupt, a supersede, a recovery and a lost terminal race: a counting store sees no snapshot."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        await scene.runtime.interrupt(CONVERSATION, first.run_id)
        await first.result
        second = scene.runtime.submit(CONVERSATION, "second", policy="supersede")
        await second.result
        await scene.runtime.recover()
        assert scene.store.count("load_snapshot") == 0


async def test_nothing_is_offered_under_other_policies() -> None:
    """A runtime that never injects keeps no offers and does nothing at a boundary."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        for policy in ("queue", "interrupt-next"):
            await scene.runtime.submit(CONVERSATION, policy, policy=policy).admission
        assert scene.runtime._core.conversations.entry(CONVERSATION).offers.take("nobody") == {}
        hold.release()


# --- refused admissions -----------------------------------------------------------------------------------------------


class _Refusing(FaultyStore):
    """A store that loses every race to admit."""

    outcome: Outcome = NotFound()

    @override
    async def apply(self, conversation_id: str, commands: Sequence[Command], /) -> tuple[Outcome, ...]:
        if any(isinstance(command, AcceptInput) for command in commands):
            return (self.outcome,)
        return await super().apply(conversation_id, commands)


@pytest.mark.parametrize("outcome", [Conflict(actual_version=7), NotFound()])
async def test_a_refused_admission_is_a_conflict_on_all_three_promises(outcome: Outcome) -> None:
    """Conflict and not-found alike; the runtime goes on."""
    async with MemoryStore() as inner, opened(ScriptedModel("ok"), store=inner) as scene:
        refusing = _Refusing(inner)
        refusing.outcome = outcome
        scene.runtime._core.calls.store = refusing
        ticket = scene.runtime.submit(CONVERSATION, "one")
        for promise in (ticket.admission, ticket.accepted, ticket.result):
            with pytest.raises(RuntimeConflictError, match="submit"):
                await promise
        scene.runtime._core.calls.store = inner
        assert (await scene.runtime.submit(CONVERSATION, "two").result).reason == "success"


async def test_a_duplicate_tells_its_admission_and_state_again_at_the_current_version() -> None:
    """Both events carry the version of now, with the first input and the run as it is."""
    async with opened(ScriptedModel("ok")) as scene:
        await scene.runtime.submit(CONVERSATION, "one", idempotency_key="k").result
        last = await scene.runtime.submit(CONVERSATION, "two").result
        async with scene.runtime.subscribe(CONVERSATION) as events:
            await scene.runtime.submit(CONVERSATION, "one", idempotency_key="k").result
            told = [await anext(events), await anext(events)]
    admission, state = told
    assert isinstance(admission, AdmissionEvent)
    assert isinstance(state, RunStateEvent)
    assert (admission.input.text, state.state) == ("one", "completed")
    assert {admission.snapshot_version, state.snapshot_version} == {last.snapshot_version}


# --- ends from outside ------------------------------------------------------------------------------------------------


async def test_a_stop_is_not_persisted() -> None:
    """A process that dies right after a stop leaves a running record behind."""
    hold, model = held_after("half ")
    async with MemoryStore() as store:
        async with opened(model, store=store) as scene:
            scene.runtime.submit(CONVERSATION, "one")
            await hold.reached()
            assert scene.runtime.stop(CONVERSATION) is True
            scene.store.kill()
        [run] = await store.list_active_runs(CONVERSATION)
    assert run.state == "running"


async def test_abandoning_a_run_without_a_draft_leaves_an_empty_failed_answer() -> None:
    """It is dated by the run's creation, and kept as its terminal answer."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        second = scene.runtime.submit(CONVERSATION, "second")
        run = (await second.admission).run
        outcome = await scene.runtime.abandon(CONVERSATION, run.id, expected_revision=0, stale_owner=True)
        result = await second.result
        hold.release()
    assert isinstance(outcome, Applied)
    assert (result.reason, result.message.status, result.message.parts) == ("abandoned", "failed", ())
    assert result.message.created_at == run.created_at


async def test_an_abandon_that_is_inside_is_waited_for_by_close() -> None:
    """It counts as an admission in flight: in the remaining work, and against the budget."""
    writing, closed = Hold(), list[CloseResult]()

    def plan(call: StoreCall) -> Fault | None:
        return Fault(hold=writing) if any(isinstance(command, RecoverRun) for command in call.commands) else None

    async with MemoryStore() as store:
        async with opened(ScriptedModel("x"), store=store) as scene:
            hold, model = held_after("half ")
            scene.runtime._core.model = model
            ticket = scene.runtime.submit(CONVERSATION, "one")
            await hold.reached()
            scene.store.kill()
        view = await store.load_run(CONVERSATION, ticket.run_id)
        assert view is not None
        revision = view.run.revision
        async with opened(ScriptedModel("x"), store=store, plan=plan) as scene, anyio.create_task_group() as tasks:

            async def abandon() -> None:
                await scene.runtime.abandon(CONVERSATION, ticket.run_id, expected_revision=revision, stale_owner=True)

            async def close() -> None:
                closed.append(await scene.runtime.close(force=2.0))

            tasks.start_soon(abandon)
            await writing.reached()
            tasks.start_soon(close)
            await scene.clock.advance(2.5)
            writing.release()
    assert closed == [CloseResult(settled=False, timed_out=True, remaining=1)]


# --- terminal races ---------------------------------------------------------------------------------------------------


class _Stopping:
    """A driver whose turn is ended by a stop policy after it spent something."""

    name = "stopping"

    async def drive(self, turn: Turn, /) -> TurnOutcome:
        await turn.emit(TextDelta("half"))
        return TurnStopped("enough")


async def test_an_interrupt_that_wins_drops_the_policy_name_and_keeps_the_text() -> None:
    """A policy name never stays on a run whose reason is another."""
    sent: list[CommitRunTerminal] = []

    async with MemoryStore() as store:

        class _Interrupting(Hold):
            @override
            async def stand(self) -> None:
                terminal = sent[-1]
                interrupt = RequestRunInterrupt(
                    command_id="interrupt",
                    at=terminal.at,
                    run_id=terminal.run_id,
                    expected_revision=terminal.expected_revision,
                )
                await store.apply(CONVERSATION, [interrupt])

        def plan(call: StoreCall) -> Fault | None:
            if not (call.commands and isinstance(call.commands[-1], CommitRunTerminal)):
                return None
            sent.append(call.commands[-1])
            return Fault(hold=_Interrupting()) if len(sent) == 1 else None

        config = RuntimeConfig(driver=_Stopping())
        async with opened(ScriptedModel("x"), store=store, config=config, plan=plan) as scene:
            result = await scene.runtime.submit(CONVERSATION, "one").result
    assert [(terminal.reason, terminal.policy_name) for terminal in sent] == [
        ("policy_stop", "enough"),
        ("interrupted", None),
    ]
    assert (result.reason, result.policy_name, result.run.terminal_policy_name) == ("interrupted", None, None)
    assert result.text == "half"


@pytest.mark.parametrize("damage", ["missing", "wrong status", "not ended"])
async def test_a_record_without_a_usable_answer_is_a_conflict(damage: str) -> None:
    """The answer is missing, or has another status than the reason maps to, or the run has not ended."""
    async with opened(ScriptedModel("ok")) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "one")
        await ticket.result
        view = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
        assert view is not None
        assert view.assistant is not None
        admitted = (await ticket.admission).run
    broken: dict[str, RunView] = {
        "missing": replace(view, assistant=None),
        "wrong status": replace(view, assistant=view.assistant.model_copy(update={"status": "failed"})),
        "not ended": replace(view, run=admitted),
    }
    with pytest.raises(RuntimeConflictError):
        result_from_view(broken[damage])


async def test_a_run_that_vanished_at_its_end_is_a_conflict() -> None:
    """The conversation was purged under the executor: the result rejects, nothing is revived."""
    hold = Hold()
    model = ScriptedModel([TextDelta("half"), hold, FinishReport("stop")])
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "one")
        await hold.reached()
        view = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
        assert view is not None
        abandon = RecoverRun(
            command_id="abandon",
            at=view.run.updated_at,
            run_id=view.run.id,
            expected_revision=view.run.revision,
            action="abandon",
        )
        await scene.store.inner.apply(CONVERSATION, [abandon])
        await scene.store.inner.purge_conversation(CONVERSATION)
        hold.release()
        with pytest.raises((ConversationPurgedError, RuntimeConflictError)):
            await ticket.result
        assert (await scene.store.inner.load_snapshot(CONVERSATION)).version == 0


@pytest.mark.parametrize("reason", ["success", "timeout", "interrupted"])
async def test_the_terminal_event_is_the_last_of_its_run(reason: TerminalReason) -> None:
    """Whatever the reason, nothing of the run is told after it."""
    hold, model = held_after("half ")
    config = RuntimeConfig(loop=LoopConfig(idle_timeout=5.0))
    async with opened(model, config=config) as scene, scene.runtime.subscribe(CONVERSATION) as events:
        ticket = scene.runtime.submit(CONVERSATION, "one")
        await hold.reached()
        if reason == "timeout":
            await scene.clock.advance(6.0)
        elif reason == "interrupted":
            scene.runtime.stop(CONVERSATION)
        else:
            hold.release()
        assert (await ticket.result).reason == reason
        await scene.runtime.close()
        told = await heard(events)
    assert [index for index, event in enumerate(told) if isinstance(event, TerminalEvent)] == [len(told) - 1]


# --- recovery ---------------------------------------------------------------------------------------------------------


async def _leave(store: MemoryStore, *texts: str) -> list[str]:
    """Leave a running run and queued ones behind, and return their ids, which are made of the texts."""
    hold, model = held_after("half ")
    async with opened(model, store=store) as scene:
        for text in texts:
            ids = RecordIds(input_message_id=f"in {text}", run_id=f"run {text}", assistant_message_id=f"out {text}")
            await scene.runtime.submit(CONVERSATION, text, record_ids=ids).admission
            await hold.reached()
        scene.store.kill()
    return [f"run {text}" for text in texts]


async def test_a_run_behind_one_that_was_not_listed_is_skipped_without_being_asked_about() -> None:
    """`max_runs` cut the earlier run off the list, which goes by ids: the later one, listed alone, waits."""
    decided: list[str] = []

    def decide(given: RecoveryInput) -> RecoveryDecision:
        decided.append(given.run.id)
        return given.default

    async with MemoryStore() as store:
        await _leave(store, "z", "a")
        async with opened(ScriptedModel("ok"), store=store) as scene:
            [outcome] = await scene.runtime.recover(max_runs=1, decide=decide)
    assert (outcome.run_id, outcome.action, decided) == ("run a", "skipped", [])


@pytest.mark.parametrize("decision", [Abandon(stale_owner=True), Requeue(replay_safe=True)])
async def test_a_decision_that_lost_its_race_is_failed(decision: Abandon | Requeue) -> None:
    """The run moved while it was decided on: `failed` with the conflict, and the record as the other left it."""
    async with MemoryStore() as store:
        [run_id] = await _leave(store, "first")

        async def decide(given: RecoveryInput) -> RecoveryDecision:
            run = given.run
            interrupt = RequestRunInterrupt(
                command_id="interrupt", at=run.updated_at, run_id=run.id, expected_revision=run.revision
            )
            await store.apply(CONVERSATION, [interrupt])
            return decision

        async with opened(ScriptedModel("ok"), store=store) as scene:
            [outcome] = await scene.runtime.recover(decide=decide)
        [run] = await store.list_active_runs(CONVERSATION)
    assert (outcome.action, type(outcome.error)) == ("failed", RuntimeConflictError)
    assert (run.id, run.state) == (run_id, "interrupt_requested")


@pytest.mark.parametrize("what", [Requeue(replay_safe=True), "resume"])
async def test_a_conversation_purged_during_a_decision_is_failed_and_never_executed(what: RecoveryDecision) -> None:
    """Abandoned and purged while it was decided on: `failed`, and no model is asked."""
    model = ScriptedModel("never")
    async with MemoryStore() as store:
        await _leave(store, "first")

        async def decide(given: RecoveryInput) -> RecoveryDecision:
            run = given.run
            abandon = RecoverRun(
                command_id="abandon",
                at=run.updated_at,
                run_id=run.id,
                expected_revision=run.revision,
                action="abandon",
            )
            await store.apply(CONVERSATION, [abandon])
            await store.purge_conversation(CONVERSATION)
            return what

        async with opened(model, store=store) as scene:
            [outcome] = await scene.runtime.recover(decide=decide)
    assert outcome.action == "failed"
    assert model.calls == []


async def test_a_successor_is_reported_after_its_predecessor_settled() -> None:
    """Resumed means acquired: the outcomes of one conversation come in the order of its turns."""
    hold, model = held_after("half ")
    async with MemoryStore() as store:
        await _leave(store, "first", "second")
        async with opened(model, store=store) as scene, anyio.create_task_group() as tasks:
            outcomes: list[str] = []

            async def recover() -> None:
                outcomes.extend(outcome.action for outcome in await scene.runtime.recover())

            tasks.start_soon(recover)
            await hold.reached()
            await anyio.wait_all_tasks_blocked()
            assert outcomes == []
            hold.release()
    assert outcomes == ["requeued", "resumed"]


async def test_an_abandon_by_recovery_tells_one_run_state_event() -> None:
    """The same event as `abandon()` tells."""
    async with MemoryStore() as store:
        await _leave(store, "first")
        async with opened(ScriptedModel("ok"), store=store) as scene, scene.runtime.subscribe(CONVERSATION) as events:
            await scene.runtime.recover(decide=lambda _: Abandon(stale_owner=True))
            await scene.runtime.close()
            states = [event.state for event in await heard(events) if isinstance(event, RunStateEvent)]
    assert states == ["abandoned"]


async def test_a_recovered_run_absorbs_what_is_injected_into_it() -> None:
    """Taken up after a crash it is a run like any other."""
    hold = Hold()
    model = ScriptedModel([*tool_call(), hold, FinishReport("tool-calls")], "done")
    async with MemoryStore() as store:
        [run_id] = await _leave(store, "first")
        async with opened(model, store=store) as scene:
            [outcome] = await scene.runtime.recover()
            assert outcome.result is not None
            await hold.reached()
            joined = scene.runtime.submit(CONVERSATION, "second", policy="inject")
            await joined.accepted
            hold.release()
            assert (await outcome.result).run == (await joined.result).run
    assert (await outcome.result).run.id == run_id
    assert asked(model, 1)[-1] == "second"


# --- close ------------------------------------------------------------------------------------------------------------


class _Waiting:
    """A driver that waits for the test."""

    name = "waiting"

    def __init__(self) -> None:
        self.hold = Hold()

    async def drive(self, turn: Turn, /) -> TurnOutcome:
        await self.hold.stand()
        await turn.checkpoint()
        return TurnFinished("stop")


async def test_submit_resume_recover_seed_and_abandon_refuse_once_closing_began() -> None:
    """The flag is set before anything is waited for."""
    driver = _Waiting()
    async with opened(ScriptedModel("x"), config=RuntimeConfig(driver=driver)) as scene:
        runtime = scene.runtime
        runtime.submit(CONVERSATION, "one")
        await driver.hold.reached()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: runtime.close(grace=10.0))
            await anyio.wait_all_tasks_blocked()
            writes = len(scene.store.applied)
            for promise in (runtime.submit(CONVERSATION, "two").admission, runtime.resume(CONVERSATION, "r").result):
                with pytest.raises(RuntimeClosedError):
                    await promise
            with pytest.raises(RuntimeClosedError):
                await runtime.recover()
            with pytest.raises(RuntimeClosedError):
                await runtime.seed(CONVERSATION, ["x"], seed_key="k")
            with pytest.raises(RuntimeClosedError):
                await runtime.abandon(CONVERSATION, "r", expected_revision=0, stale_owner=True)
            assert len(scene.store.applied) == writes
            driver.hold.release()
