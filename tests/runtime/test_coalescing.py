"""Inputs that share one successor: a test for each rule of coalescing."""

import anyio
import pytest

from runlane.delivery import AdmissionEvent
from runlane.errors import RuntimeClosedError, StoreUnavailableError
from runlane.models import FinishReport, TextDelta
from runlane.runtime import InputPolicy, RunsConfig, RunTicket, RuntimeConfig
from runlane.store import AcceptInput, AcquireRun, MemoryStore
from runlane.testing import Fault, FaultPlan, Hold, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, Scene, asked, heard, held_after, opened

pytestmark = pytest.mark.anyio

_SHARING = RuntimeConfig(runs=RunsConfig(coalesce_pending=True))


async def _submit(scene: Scene, *texts: str, policy: InputPolicy | None = None) -> list[RunTicket]:
    tickets = [scene.runtime.submit(CONVERSATION, text, policy=policy, idempotency_key=text) for text in texts]
    for ticket in tickets:
        await ticket.accepted
    return tickets


def _accepts(call: StoreCall, text: str) -> bool:
    return any(isinstance(command, AcceptInput) and command.input.text == text for command in call.commands)


def _holding_accept_of(text: str, hold: Hold) -> FaultPlan:
    return lambda call: Fault(hold=hold) if _accepts(call, text) else None


async def test_inputs_behind_an_executing_run_share_one_successor() -> None:
    """Third, fourth and fifth input join the successor that the second began; the provider is asked once for all."""
    hold, model = held_after("one")
    async with opened(model, config=_SHARING) as scene:
        first = scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        others = await _submit(scene, "2", "3", "4", "5")
        active = await scene.store.inner.list_active_runs(CONVERSATION)
        hold.release()
        results = [await ticket.result for ticket in (first, *others)]
    assert [len(run.input_message_ids) for run in active] == [1, 4]
    assert (active[1].revision, active[1].state) == (3, "queued")
    assert len({result.run.id for result in results[1:]}) == 1
    assert (len(model.calls), asked(model, 1)) == (2, ["1", "one.", "2", "3", "4", "5"])


async def test_inputs_submitted_at_once_make_a_head_and_a_successor() -> None:
    """The first of many inputs has a run of its own, the rest share one, also when nothing was admitted yet."""
    model = ScriptedModel("ok")
    async with opened(model, config=_SHARING) as scene:
        tickets = [scene.runtime.submit(CONVERSATION, text) for text in "12345"]
        results = [await ticket.result for ticket in tickets]
    assert [len(result.run.input_message_ids) for result in results] == [1, 4, 4, 4, 4]
    assert asked(model, 1) == ["1", "ok", "2", "3", "4", "5"]


async def test_the_successors_inputs_keep_their_order_and_each_has_its_own_admission() -> None:
    """Inputs stand in acceptance order; a later admission has a higher version, the run grows by one revision each."""
    hold, model = held_after("one")
    async with opened(model, config=_SHARING) as scene:
        scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        others = await _submit(scene, "2", "3", "4")
        admissions = [await ticket.admission for ticket in others]
        hold.release()
        result = await others[0].result
    versions = [admission.snapshot_version for admission in admissions]
    assert versions == sorted(set(versions))
    assert [admission.run.revision for admission in admissions] == [0, 1, 2]
    assert result.run.input_message_ids == tuple(admission.input_message_id for admission in admissions)
    assert len({ticket.run_id for ticket in others}) == 1


async def test_every_ticket_of_a_batch_has_the_same_terminal_run() -> None:
    """All of them resolve to one result, with the metrics of the execution that wrote it."""
    hold, model = held_after("one")
    async with opened(model, config=_SHARING) as scene:
        scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        others = await _submit(scene, "2", "3")
        hold.release()
        results = [await ticket.result for ticket in others]
    assert results[0] is results[1]
    assert results[0].metrics is not None


async def test_each_joined_input_is_told_as_an_admission_of_the_shared_run() -> None:
    """`admission` events carry the run they joined, as it was then."""
    hold, model = held_after("one")
    async with opened(model, config=_SHARING) as scene, scene.runtime.subscribe(CONVERSATION) as events:
        scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        others = await _submit(scene, "2", "3")
        hold.release()
        await others[0].result
        await scene.runtime.close()
        told = [event for event in await heard(events) if isinstance(event, AdmissionEvent)]
    assert [event.input.text for event in told] == ["1", "2", "3"]
    assert [len(event.run.input_message_ids) for event in told] == [1, 1, 2]


async def test_the_executing_run_is_never_changed_by_coalescing() -> None:
    """Its inputs stay what they were."""
    hold, model = held_after("one")
    async with opened(model, config=_SHARING) as scene:
        first = scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        await _submit(scene, "2", "3")
        hold.release()
        assert len((await first.result).run.input_message_ids) == 1


async def test_the_successor_starts_only_after_every_acceptance_in_progress() -> None:
    """Inputs that are being written while the successor's turn comes are part of it: none is lost at the boundary."""
    hold, model = held_after("one")
    accepting = Hold()
    async with opened(model, config=_SHARING, plan=_holding_accept_of("3", accepting)) as scene:
        first = scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        [second] = await _submit(scene, "2")
        third, fourth = (scene.runtime.submit(CONVERSATION, text) for text in "34")
        await accepting.reached()
        hold.release()
        await anyio.wait_all_tasks_blocked()
        assert len(model.calls) == 1
        accepting.release()
        await first.result
        # The end of the first run was written before the fourth input: the successor's turn has come, and it waits.
        results = [await ticket.result for ticket in (second, third, fourth)]
    assert results[0].run == results[1].run == results[2].run
    assert asked(model, 1)[-3:] == ["2", "3", "4"]


async def test_an_input_that_comes_once_the_successor_starts_begins_the_next_one() -> None:
    """What is submitted while the successor is being acquired does not join it any more."""
    hold, model = held_after("one")
    acquiring, acquired = Hold(), list[StoreCall]()

    def plan(call: StoreCall) -> Fault | None:
        if any(isinstance(command, AcquireRun) for command in call.commands):
            acquired.append(call)
        return Fault(hold=acquiring) if len(acquired) == 2 and call is acquired[-1] else None

    async with opened(model, config=_SHARING, plan=plan) as scene:
        first = scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        second, third = await _submit(scene, "2", "3")
        hold.release()
        await acquiring.reached()
        fourth = scene.runtime.submit(CONVERSATION, "4")
        acquiring.release()
        results = [await ticket.result for ticket in (first, second, third, fourth)]
    assert [len(result.run.input_message_ids) for result in results] == [1, 2, 2, 1]
    assert asked(model, 2)[-1] == "4"


async def test_urgent_inputs_never_coalesce_in_either_direction() -> None:
    """`interrupt-next` inputs keep a run each, and nothing joins them."""
    hold, model = held_after("one")
    async with opened(model, config=_SHARING) as scene:
        first = scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        [ordinary] = await _submit(scene, "2")
        urgent = await _submit(scene, "3", "4", policy="interrupt-next")
        [late] = await _submit(scene, "5")
        results = [await ticket.result for ticket in (first, ordinary, *urgent, late)]
    assert [len(result.run.input_message_ids) for result in results] == [1, 2, 1, 1, 2]
    assert results[1].run == results[4].run


@pytest.mark.parametrize(("policy", "reason"), [("interrupt", "interrupted"), ("supersede", "superseded")])
async def test_an_aborting_input_joins_the_successor_and_still_aborts(policy: InputPolicy, reason: str) -> None:
    """It joins the successor, never the run being ended, and ends that run once it is durable."""
    hold, model = held_after("half ")
    async with opened(model, config=_SHARING) as scene:
        first = scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        [second] = await _submit(scene, "2")
        assert first.result.done is False
        [third] = await _submit(scene, "3", policy=policy)
        results = [await ticket.result for ticket in (first, second, third)]
    assert [result.reason for result in results] == [reason, "success", "success"]
    assert results[1].run == results[2].run
    assert len(results[0].run.input_message_ids) == 1


async def test_an_aborting_input_does_not_abort_the_successor_it_joins() -> None:
    """Joining while the successor's turn comes: the successor is its own run, and goes on."""
    hold, model = held_after("one")
    accepting = Hold()
    async with opened(model, config=_SHARING, plan=_holding_accept_of("3", accepting)) as scene:
        scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        [second] = await _submit(scene, "2")
        third = scene.runtime.submit(CONVERSATION, "3", policy="supersede")
        await accepting.reached()
        hold.release()
        await anyio.wait_all_tasks_blocked()
        accepting.release()
        assert [(await ticket.result).reason for ticket in (second, third)] == ["success", "success"]


async def test_a_repeated_key_of_a_joined_input_names_the_shared_run() -> None:
    """While it waits and after it ended; the input is the one that joined."""
    hold, model = held_after("one")
    async with opened(model, config=_SHARING) as scene:
        scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        others = await _submit(scene, "2", "3")
        assert scene.runtime.submit(CONVERSATION, "3", idempotency_key="3") is others[1]
        hold.release()
        await others[1].result
        again = scene.runtime.submit(CONVERSATION, "3", idempotency_key="3")
        admission, result = await again.admission, await again.result
    assert (admission.run_id, admission.input.text, admission.is_duplicate) == (others[0].run_id, "3", True)
    assert result.run.id == others[0].run_id


async def test_a_successor_that_was_cancelled_is_joined_by_nobody() -> None:
    """After a cancel the next input begins another successor."""
    hold, model = held_after("one")
    async with opened(model, config=_SHARING) as scene:
        scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        [second] = await _submit(scene, "2")
        await scene.runtime.cancel(CONVERSATION, second.run_id)
        [third] = await _submit(scene, "3")
        hold.release()
        reasons = [(await ticket.result).reason for ticket in (second, third)]
    assert reasons == ["cancelled", "success"]
    assert second.run_id != third.run_id


async def test_an_input_whose_successor_vanished_while_it_was_written_has_a_run_of_its_own() -> None:
    """The store refuses to join a run that another process has taken; the input is neither lost nor refused."""
    hold, model = held_after("one")
    accepting = Hold()
    async with (
        MemoryStore() as store,
        opened(model, store=store, config=_SHARING, plan=_holding_accept_of("3", accepting)) as scene,
        opened(ScriptedModel("x"), store=store) as other,
    ):
        scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        [second] = await _submit(scene, "2")
        third = scene.runtime.submit(CONVERSATION, "3")
        await accepting.reached()
        await other.runtime.cancel(CONVERSATION, second.run_id)
        accepting.release()
        await third.accepted
        hold.release()
        with anyio.fail_after(10):
            results = [await second.result, await third.result]
    assert [result.reason for result in results] == ["cancelled", "success"]
    assert third.run_id != second.run_id


async def test_a_successor_whose_first_input_was_refused_begins_with_the_next() -> None:
    """The input that was to begin it could not be written: the next one begins it."""
    hold, model = held_after("one")
    writing = Hold()

    def plan(call: StoreCall) -> Fault | None:
        return Fault(hold=writing, error=StoreUnavailableError("gone")) if _accepts(call, "2") else None

    async with opened(model, config=_SHARING, plan=plan) as scene:
        first = scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        second = scene.runtime.submit(CONVERSATION, "2")
        await writing.reached()
        others = [scene.runtime.submit(CONVERSATION, text) for text in "34"]
        writing.release()
        await scene.clock.advance(1.0)
        with pytest.raises(StoreUnavailableError):
            await second.admission
        hold.release()
        results = [await ticket.result for ticket in (first, *others)]
    assert [len(result.run.input_message_ids) for result in results] == [1, 2, 2]


async def test_a_close_rejects_what_was_about_to_join_and_leaves_the_successor_queued() -> None:
    """Closing while an input is being written: it is admitted or refused, and the successor waits with what it has."""
    hold, model = held_after("one")
    accepting = Hold()
    async with opened(model, config=_SHARING, plan=_holding_accept_of("3", accepting)) as scene:
        scene.runtime.submit(CONVERSATION, "1")
        await hold.reached()
        [second] = await _submit(scene, "2")
        third, fourth = (scene.runtime.submit(CONVERSATION, text) for text in "34")
        await accepting.reached()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.runtime.close)
            await anyio.wait_all_tasks_blocked()
            accepting.release()
        [queued] = await scene.store.inner.list_active_runs(CONVERSATION)
        assert (await third.admission).run_id == queued.id == second.run_id
        for promise in (second.result, third.result, fourth.admission):
            with pytest.raises(RuntimeClosedError):
                await promise
    assert len(queued.input_message_ids) == 2


async def test_on_a_coarser_lane_each_conversation_has_its_own_successor() -> None:
    """Coalescing joins only runs of one conversation."""
    hold = Hold()
    model = ScriptedModel([TextDelta("one"), hold, FinishReport("stop")], "ok")
    config = RuntimeConfig(runs=RunsConfig(coalesce_pending=True, key=lambda *_: "lane"))
    async with opened(model, config=config) as scene:
        scene.runtime.submit("a", "a1")
        await hold.reached()
        tickets = [scene.runtime.submit(text[0], text) for text in ("b1", "a2", "b2", "a3", "b3")]
        for ticket in tickets:
            await ticket.accepted
        hold.release()
        results = {
            text: await ticket.result for text, ticket in zip(("b1", "a2", "b2", "a3", "b3"), tickets, strict=True)
        }
    assert {text: len(result.run.input_message_ids) for text, result in results.items()} == {
        "b1": 1,
        "a2": 2,
        "b2": 2,
        "a3": 2,
        "b3": 2,
    }


async def test_without_the_option_every_input_has_its_own_run() -> None:
    """Nothing coalesces by default."""
    model = ScriptedModel("ok")
    async with opened(model) as scene:
        tickets = [scene.runtime.submit(CONVERSATION, text) for text in "123"]
        results = [await ticket.result for ticket in tickets]
    assert [len(result.run.input_message_ids) for result in results] == [1, 1, 1]
