"""Taking up what dead executors left behind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from typing_extensions import override

from runlane.contracts import CancelToken
from runlane.delivery import CheckpointEvent, RunStateEvent, fold_events
from runlane.errors import (
    InvalidValueError,
    RuntimeClosedError,
    RuntimeConflictError,
    RunUnsettledError,
    UsageError,
)
from runlane.models import ModelUsage, UsageReport
from runlane.records import ControlPart
from runlane.runtime import (
    Abandon,
    RecoveryConfig,
    RecoveryDecision,
    RecoveryInput,
    RecoveryOutcome,
    Requeue,
    RuntimeConfig,
)
from runlane.store import AcquireRun, MemoryStore, ReadEvents
from runlane.testing import FakeClock, Fault, Hold, ScriptedModel, StoreCall
from runlane.tools import tool
from tests.runtime.scenes import CONVERSATION, Scene, heard, held_after, looped, opened, spending
from tests.runtime.test_tools import called

pytestmark = pytest.mark.anyio


async def _orphan(
    store: MemoryStore, *, conversation_id: str = CONVERSATION, also: tuple[str, ...] = (), said: int = 0
) -> list[str]:
    """Leave a running run (that said something) and some queued ones behind; return their ids in order."""
    hold, model = held_after(*["x"] * said)
    async with opened(model, store=store, config=looped(checkpoint_every_events=1)) as scene:
        tickets = [scene.runtime.submit(conversation_id, "first", context="lost", request={"agent": "x"})]
        await hold.reached()
        for text in also:
            tickets.append(scene.runtime.submit(conversation_id, text))
            await tickets[-1].admission
        scene.store.kill()
    return [ticket.run_id for ticket in tickets]


async def _results(outcomes: list[RecoveryOutcome]) -> list[str]:
    return [(await outcome.result).reason for outcome in outcomes if outcome.result is not None]


async def test_entering_a_runtime_recovers_nothing() -> None:
    """Without being asked, a runtime leaves what others left behind alone."""
    async with MemoryStore() as store:
        [run_id] = await _orphan(store)
        async with opened(ScriptedModel("Hello"), store=store):
            await anyio.wait_all_tasks_blocked()
            [run] = await store.list_active_runs(CONVERSATION)
    assert (run.id, run.state) == (run_id, "running")


async def test_a_run_of_a_dead_owner_is_requeued_and_answered() -> None:
    """E1: a model request was open; the run is requeued, what it said is dropped, and it is answered once."""
    model = ScriptedModel("Hello")
    async with MemoryStore() as store:
        [run_id] = await _orphan(store, said=3)
        async with opened(model, store=store) as scene:
            [outcome] = await scene.runtime.recover()
            assert outcome.result is not None
            result = await outcome.result
    assert (outcome.action, outcome.run_id) == ("requeued", run_id)
    assert (result.reason, result.text, result.run.fencing_token) == ("success", "Hello", 2)
    assert len(model.calls) == 1


async def test_queued_runs_are_resumed_behind_their_predecessor_in_order() -> None:
    """The default resumes queued runs; a successor is reported once its predecessor has ended."""
    model = ScriptedModel("ok")
    async with MemoryStore() as store:
        ids = await _orphan(store, also=("second", "third"))
        async with opened(model, store=store) as scene:
            outcomes = await scene.runtime.recover()
            assert await _results(outcomes) == ["success"] * 3
    assert [outcome.run_id for outcome in outcomes] == ids
    assert [outcome.action for outcome in outcomes] == ["requeued", "resumed", "resumed"]
    assert [call.messages[-1].text for call in model.calls] == ["first", "second", "third"]  # type: ignore[union-attr]


@pytest.mark.parametrize("page_size", [1, 2, 100])
async def test_page_boundaries_never_change_the_order(page_size: int) -> None:
    """Runs of three conversations come out alike, whatever the page size."""
    async with MemoryStore() as store:
        expected = {
            conversation: await _orphan(store, conversation_id=conversation, also=("second",))
            for conversation in ("a", "b", "c")
        }
        async with opened(ScriptedModel("ok"), store=store) as scene:
            outcomes = await scene.runtime.recover(page_size=page_size)
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.conversation_id, []).append(outcome.run_id)
    assert found == expected


async def test_a_living_owners_run_is_skipped_with_everything_behind_it() -> None:
    """A run executed by a living runtime is left alone, and so is what waits behind it."""
    hold, model = held_after("one")
    async with MemoryStore() as store, opened(model, store=store) as living:
        first = living.runtime.submit(CONVERSATION, "first")
        second = living.runtime.submit(CONVERSATION, "second")
        await second.admission
        await hold.reached()
        async with opened(ScriptedModel("never"), store=store) as other:
            outcomes = await other.runtime.recover()
        assert [outcome.action for outcome in outcomes] == ["skipped", "skipped"]
        own = await living.runtime.recover()
        assert [outcome.action for outcome in own] == ["skipped", "skipped"]
        hold.release()
        assert ((await first.result).text, (await second.result).reason) == ("one.", "success")


async def test_a_run_that_was_asked_to_stop_is_settled_with_what_it_said() -> None:
    """Class I: the run ends interrupted with its draft and the mark; no model is asked."""
    model = ScriptedModel("never")
    async with MemoryStore() as store:
        hold, saying = held_after("Once ", "upon ")
        async with opened(saying, store=store, config=looped(checkpoint_every_events=1)) as dying:
            ticket = dying.runtime.submit(CONVERSATION, "A tale")
            await hold.reached()
            async with opened(model, store=store) as other:
                await other.runtime.interrupt(CONVERSATION, ticket.run_id)
            dying.store.kill()
        async with opened(model, store=store) as scene:
            [outcome] = await scene.runtime.recover()
        view = await store.load_run(CONVERSATION, ticket.run_id)
    assert view is not None
    assert view.assistant is not None
    assert (outcome.action, view.run.terminal_reason, view.assistant.text) == ("settled", "interrupted", "Once upon ")
    assert view.assistant.parts[-1] == ControlPart(reason="run-interrupted")
    assert model.calls == []


async def test_a_run_taken_over_too_often_is_abandoned() -> None:
    """X: after `max_takeovers` takeovers the next recovery abandons the run."""
    config = RuntimeConfig(recovery=RecoveryConfig(max_takeovers=2))
    async with MemoryStore() as store:
        await _orphan(store)
        for _ in range(2):
            hold, model = held_after()
            async with opened(model, store=store, config=config) as dying:
                [outcome] = await dying.runtime.recover()
                assert outcome.action == "requeued"
                await hold.reached()
                dying.store.kill()
        async with opened(ScriptedModel("never"), store=store, config=config) as scene:
            [outcome] = await scene.runtime.recover()
            assert (await store.list_active_runs(CONVERSATION)) == ()
    assert outcome.action == "abandoned"


async def test_spend_of_the_dead_execution_is_kept() -> None:
    """A requeued run continues from the persisted usage: totals add up."""
    async with MemoryStore() as store:
        hold = Hold()
        steps = [*spending("Hello", input_tokens=100, output_tokens=5)[:-1], hold]
        async with opened(ScriptedModel(steps), store=store, config=looped(checkpoint_every_events=1)) as dying:
            dying.runtime.submit(CONVERSATION, "Hi")
            await hold.reached()
            dying.store.kill()
        model = ScriptedModel(spending("Hello", input_tokens=10, output_tokens=5))
        async with opened(model, store=store) as scene:
            [outcome] = await scene.runtime.recover()
            assert outcome.result is not None
            result = await outcome.result
    assert result.metrics is not None
    assert result.metrics.usage.input_tokens.value == 110


async def test_every_checkpoint_of_a_later_execution_says_what_earlier_ones_spent() -> None:
    """Also the one that takes over what is kept: whoever replays it is told the spend that live listeners were told."""
    hold = Hold()

    @tool(idempotent=True)
    async def look() -> str:
        """Look."""
        await hold.stand()
        return "seen"

    spent = UsageReport(ModelUsage(output_tokens=5))
    model = ScriptedModel([spent, *called(("c1", "look", "{}"))], "Seen.")
    async with MemoryStore() as store:
        async with opened(model, store=store, tools=[look]) as dying:
            dying.runtime.submit(CONVERSATION, "Hi")
            await hold.reached()
            dying.store.kill()
        hold.release()
        async with opened(model, store=store, tools=[look]) as scene, scene.runtime.subscribe(CONVERSATION) as live:
            await _results(await scene.runtime.recover())
            await scene.runtime.close()
            told = {event.event_id: event for event in await heard(live) if isinstance(event, CheckpointEvent)}
        page = await store.read_events(ReadEvents(conversation_id=CONVERSATION))
    replayed = [event for entry in page.items for event in fold_events(entry) if event.event_id in told]
    assert replayed
    for event in replayed:
        assert isinstance(event, CheckpointEvent)
        assert event.metrics.usage == told[event.event_id].metrics.usage


async def _decided(decision: RecoveryDecision, **kinds: object) -> tuple[list[RecoveryOutcome], list[RecoveryInput]]:
    asked: list[RecoveryInput] = []

    async def decide(given: RecoveryInput) -> RecoveryDecision:
        asked.append(given)
        return decision

    async with MemoryStore() as store:
        await _orphan(store, also=("second",))
        async with opened(ScriptedModel("Hello"), store=store) as scene:
            outcomes = await scene.runtime.recover(decide=decide, **kinds)  # type: ignore[arg-type]
            await _results(outcomes)
    return outcomes, asked


async def test_decide_skip_leaves_the_run_and_does_not_ask_for_what_is_behind_it() -> None:
    """A skipped run is skipped, its successor too, without being asked about."""
    outcomes, asked = await _decided("skip")
    assert [outcome.action for outcome in outcomes] == ["skipped", "skipped"]
    assert [given.owner_alive for given in asked] == [False]


async def test_decide_abandon_ends_the_run() -> None:
    """An abandoned run frees the lane: its successor is decided on as well."""
    outcomes, asked = await _decided(Abandon(stale_owner=True))
    assert [outcome.action for outcome in outcomes] == ["abandoned", "abandoned"]
    assert [given.default for given in asked] == [Requeue(replay_safe=True), "resume"]


async def test_decide_resume_of_an_acquired_run_fails_and_others_go_on() -> None:
    """Only queued runs can be resumed: the outcome of the other is `failed` with the error."""
    outcomes, _ = await _decided("resume")
    assert [outcome.action for outcome in outcomes] == ["failed", "skipped"]
    assert isinstance(outcomes[0].error, UsageError)


@pytest.mark.parametrize("kind", [Requeue, Abandon])
def test_evidence_must_be_given(kind: type[Requeue] | type[Abandon]) -> None:
    """A requeue promises that a replay is safe, an abandon states that the owner is gone."""
    with pytest.raises(UsageError):
        kind(False)  # noqa: FBT003 - the refused value


async def test_one_failing_conversation_does_not_stop_the_others() -> None:
    """A run whose acquisition is lost to somebody else is `failed` and still queued or held; other items continue."""
    async with MemoryStore() as store:
        await _orphan(store, conversation_id="a")
        await _orphan(store, conversation_id="b")

        def plan(call: StoreCall) -> Fault | None:
            acquires = any(isinstance(command, AcquireRun) for command in call.commands)
            return Fault(hold=_Taking(store, call)) if acquires and call.conversation_id == "a" else None

        async with opened(ScriptedModel("Hello"), store=store, plan=plan) as scene:
            outcomes = {outcome.conversation_id: outcome for outcome in await scene.runtime.recover()}
            assert await _results(list(outcomes.values())) == ["success"]
    assert (outcomes["a"].action, outcomes["b"].action) == ("failed", "requeued")
    assert isinstance(outcomes["a"].error, RuntimeConflictError)


class _Taking(Hold):
    """Takes the run for another owner just before it is acquired."""

    def __init__(self, store: MemoryStore, call: StoreCall) -> None:
        super().__init__()
        self._store = store
        self._call = call

    @override
    async def stand(self) -> None:
        own = self._call.commands[0]
        assert isinstance(own, AcquireRun)
        other = AcquireRun(
            command_id=f"taken {own.run_id}",
            at=own.at,
            run_id=own.run_id,
            expected_revision=own.expected_revision,
            owner_id="other",
        )
        await self._store.apply("a", [other])


async def test_the_context_of_a_recovered_run_is_its_request_unless_resolved() -> None:
    """By default the model callable gets the run's stored request; `resolve_context` gives another one."""
    contexts: list[object] = []

    async def recovered(**options: object) -> None:
        async with MemoryStore() as store:
            await _orphan(store)
            async with opened(ScriptedModel("Hello"), store=store) as scene:
                model = scene.runtime._core.model

                def choose(request: object) -> object:
                    contexts.append(request.context)  # type: ignore[attr-defined]
                    return model

                scene.runtime._core.model = choose  # type: ignore[assignment]
                await _results(await scene.runtime.recover(**options))  # type: ignore[arg-type]

    await recovered()
    await recovered(resolve_context=lambda given: {"run": given.run.state})
    assert contexts == [{"agent": "x"}, {"run": "running"}]


async def test_an_empty_store_gives_an_empty_list() -> None:
    """Nothing left behind: no outcomes."""
    async with opened(ScriptedModel("Hello")) as scene:
        assert await scene.runtime.recover() == []


async def test_leftovers_beyond_the_limit_or_the_signal_get_no_outcome() -> None:
    """`max_runs` bounds the pass, and a tripped signal ends the collecting."""
    async with MemoryStore() as store:
        for conversation in ("a", "b", "c"):
            await _orphan(store, conversation_id=conversation)
        async with opened(ScriptedModel("Hello"), store=store) as scene:
            assert len(await scene.runtime.recover(max_runs=2)) == 2
            stopped = CancelToken()
            stopped.cancel()
            assert await scene.runtime.recover(signal=stopped) == []
            assert len(await scene.runtime.recover()) == 1


@pytest.mark.parametrize("page_size", [1, 100])
async def test_a_recovery_can_be_of_one_conversation(page_size: int) -> None:
    """Runs of the others are left alone, whatever their ids are."""
    names = ("a", "b", "b0", "c")
    async with MemoryStore() as store:
        ids = {name: await _orphan(store, conversation_id=name, also=("second",)) for name in names}
        async with opened(ScriptedModel("Hello"), store=store) as scene:
            assert await scene.runtime.recover(conversation_id="nobody's", page_size=page_size) == []
            outcomes = await scene.runtime.recover(conversation_id="b", page_size=page_size)
            assert await _results(outcomes) == ["success", "success"]
            left = {name: len(await store.list_active_runs(name)) for name in names}
    assert [outcome.run_id for outcome in outcomes] == ids["b"]
    assert left == {"a": 2, "b": 0, "b0": 2, "c": 2}


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [("page_size", 0, InvalidValueError), ("page_size", 1001, InvalidValueError), ("max_runs", True, UsageError)],
)
async def test_limits_are_checked(option: str, value: int, error: type[Exception]) -> None:
    """A page size outside 1 to 1000 or a limit that is no integer is refused by name."""
    async with opened(ScriptedModel("Hello")) as scene:
        with pytest.raises(error, match=option):
            await scene.runtime.recover(**{option: value})  # type: ignore[arg-type]


async def test_a_closed_runtime_refuses_to_recover_and_to_resume() -> None:
    """After close `recover` raises and both promises of `resume` reject."""
    async with opened(ScriptedModel("Hello")) as scene:
        await scene.runtime.close()
        with pytest.raises(RuntimeClosedError):
            await scene.runtime.recover()
        resumed = scene.runtime.resume(CONVERSATION, "r")
        for promise in (resumed.accepted, resumed.result):
            with pytest.raises(RuntimeClosedError):
                await promise


async def test_a_close_during_a_decision_writes_nothing_afterwards() -> None:
    """When the runtime closes while `decide` thinks, the item fails and the run is untouched."""
    thinking = Hold()

    async def decide(_: RecoveryInput) -> RecoveryDecision:
        await thinking.stand()
        return Abandon(stale_owner=True)

    outcomes: list[RecoveryOutcome] = []
    async with MemoryStore() as store:
        [run_id] = await _orphan(store)
        async with opened(ScriptedModel("Hello"), store=store) as scene, anyio.create_task_group() as tasks:

            async def recover() -> None:
                outcomes.extend(await scene.runtime.recover(decide=decide))

            tasks.start_soon(recover)
            await thinking.reached()
            tasks.start_soon(scene.runtime.close)
            await anyio.wait_all_tasks_blocked()
            thinking.release()
        view = await store.load_run(CONVERSATION, run_id)
    assert view is not None
    assert ([outcome.action for outcome in outcomes], view.run.state) == (["failed"], "running")


async def test_a_close_does_not_wait_for_the_turn_of_what_is_being_recovered() -> None:
    """While a recovered run executes and its successor waits, close stops the one and leaves the other queued."""
    outcomes: list[RecoveryOutcome] = []
    async with MemoryStore() as store:
        ids = await _orphan(store, also=("second",))
        hold, model = held_after("one")
        async with opened(model, store=store) as scene, anyio.create_task_group() as tasks:

            async def recover() -> None:
                outcomes.extend(await scene.runtime.recover())

            tasks.start_soon(recover)
            await hold.reached()
            await anyio.wait_all_tasks_blocked()
            assert (await scene.runtime.close()).settled is True
        active = await store.list_active_runs(CONVERSATION)
    assert [outcome.action for outcome in outcomes] == ["requeued", "failed"]
    assert [(run.id, run.state) for run in active] == [(ids[1], "queued")]


@asynccontextmanager
async def _with_one_queued() -> AsyncIterator[tuple[Scene, str, ScriptedModel]]:
    """A runtime on a store where a dead process left one queued run."""
    async with MemoryStore() as store:

        def plan(call: StoreCall) -> Fault | None:
            return Fault(when="after", kills=True) if call.method == "apply" else None

        async with opened(ScriptedModel("Hello"), store=store, plan=plan, stepwise=True) as dying:
            ticket = dying.runtime.submit(CONVERSATION, "first")
            await ticket.admission.settled()
        model = ScriptedModel("ok")
        async with opened(model, store=store) as scene:
            yield scene, ticket.run_id, model


async def test_resume_executes_a_queued_run() -> None:
    """`accepted` settles once the run is held, `result` with its end."""
    async with _with_one_queued() as (scene, run_id, _):
        resumed = scene.runtime.resume(CONVERSATION, run_id)
        await resumed.accepted
        view = await scene.store.inner.load_run(CONVERSATION, run_id)
        assert view is not None
        assert view.run.owner_id == scene.runtime.owner_id
        assert (await resumed.result).reason == "success"


async def test_resume_of_a_missing_or_ended_run_is_a_conflict() -> None:
    """Only a queued run can be resumed."""
    async with _with_one_queued() as (scene, run_id, _):
        await scene.runtime.resume(CONVERSATION, run_id).result
        for other in (run_id, "nobody"):
            resumed = scene.runtime.resume(CONVERSATION, other)
            with pytest.raises(RuntimeConflictError, match="resume"):
                await resumed.accepted
            with pytest.raises(RuntimeConflictError, match="resume"):
                await resumed.result


async def test_resuming_a_run_twice_follows_the_one_execution() -> None:
    """Two resumes of one run: one execution, one answer for both."""
    async with _with_one_queued() as (scene, run_id, model):
        both = [scene.runtime.resume(CONVERSATION, run_id) for _ in range(2)]
        one, other = [await resumed.result for resumed in both]
    assert one is other
    assert len(model.calls) == 1


async def test_a_new_input_waits_for_the_recovery_of_what_is_before_it() -> None:
    """With `recover_on_start`, an input submitted at once is answered after the runs left behind, in order."""
    model = ScriptedModel("ok")
    async with MemoryStore() as store:
        await _orphan(store, also=("second",))
        async with opened(model, store=store, recover_on_start=True) as scene:
            assert (await scene.runtime.submit(CONVERSATION, "third").result).reason == "success"
    assert [call.messages[-1].text for call in model.calls] == ["first", "second", "third"]  # type: ignore[union-attr]


async def test_recovery_tells_what_it_does() -> None:
    """Listeners see a requeued run as queued, then running."""
    async with MemoryStore() as store:
        await _orphan(store)
        async with (
            opened(ScriptedModel("Hello"), store=store) as scene,
            scene.runtime.subscribe(CONVERSATION) as events,
        ):
            await _results(await scene.runtime.recover())
            await scene.runtime.close()
            states = [event.state async for event in events if isinstance(event, RunStateEvent)]
    assert states == ["queued", "running"]


async def test_a_recovery_does_not_wait_for_a_run_it_knows_nothing_of() -> None:
    """A run that jumped ahead meanwhile, and that nobody starts: the recovery says so after a while and comes back."""
    clock, decided = FakeClock(), anyio.Event()
    async with MemoryStore(clock=clock) as store:
        [_, queued] = await _orphan(store, also=("second",))

        async def decide(asked: RecoveryInput) -> RecoveryDecision:
            if asked.run.id != queued:
                return Abandon(stale_owner=True)
            async with opened(
                ScriptedModel("."), store=store, plan=_dies_acquiring, stepwise=True, clock=clock
            ) as other:
                await other.runtime.submit(CONVERSATION, "urgent", policy="interrupt-next").admission
                await anyio.wait_all_tasks_blocked()
            decided.set()
            return "resume"

        async with opened(ScriptedModel("."), store=store, clock=clock) as scene, anyio.create_task_group() as tasks:
            outcomes: list[RecoveryOutcome] = []

            async def recover() -> None:
                outcomes.extend(await scene.runtime.recover(decide=decide))

            tasks.start_soon(recover)
            await decided.wait()
            await anyio.wait_all_tasks_blocked()
            for _ in range(40):
                await clock.advance(1.0)
            assert [outcome.action for outcome in outcomes] == ["abandoned", "failed"]
            assert isinstance(outcomes[1].error, RunUnsettledError)


def _dies_acquiring(call: StoreCall) -> Fault | None:
    return Fault(kills=True) if any(isinstance(command, AcquireRun) for command in call.commands) else None
