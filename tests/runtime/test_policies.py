"""What an input does to the run that executes when it comes in: a test for each policy and each rule about them."""

import anyio
import pytest

from runlane.delivery import RunStateEvent
from runlane.errors import InvalidValueError, UsageError
from runlane.records import ControlPart
from runlane.runtime import InputPolicy, RunsConfig, RunTicket, RuntimeConfig, SubmittedInput
from runlane.store import AcceptInput, MemoryStore
from runlane.testing import Fault, FaultPlan, Hold, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, Scene, asked, heard, held_after, opened

pytestmark = pytest.mark.anyio

_ABORTING: tuple[InputPolicy, ...] = ("interrupt", "interrupt-next", "supersede")


def _choosing(policy: object) -> RuntimeConfig:
    return RuntimeConfig(runs=RunsConfig(policy=policy))  # type: ignore[arg-type]


async def _after_half(scene: Scene, hold: Hold, policy: InputPolicy) -> tuple[RunTicket, RunTicket]:
    """Submit `first`, and `second` under a policy once the model has said half of the first answer; wait for both."""
    first = scene.runtime.submit(CONVERSATION, "first")
    await hold.reached()
    second = scene.runtime.submit(CONVERSATION, "second", policy=policy)
    await second.admission
    await anyio.wait_all_tasks_blocked()
    hold.release()
    await first.result
    await second.result
    return first, second


# --- the table of policies --------------------------------------------------------------------------------------------


async def test_queue_lets_the_executing_run_finish_and_goes_after_everything_before_it() -> None:
    """`queue`: the executing run ends as success with all of its text; the new input is answered after it."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        first, second = await _after_half(scene, hold, "queue")
    assert ((await first.result).reason, (await first.result).text) == ("success", "half .")
    assert (await second.result).reason == "success"
    assert asked(model, 1) == ["first", "half .", "second"]


async def test_inject_lets_the_executing_run_go_on_and_joins_it() -> None:
    """`inject`: the run goes on, and absorbs the new input's run if it comes to another boundary."""
    model = ScriptedModel("one answer")
    async with opened(model) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        second = scene.runtime.submit(CONVERSATION, "second", policy="inject")
        results = [await first.result, await second.result]
    assert [result.reason for result in results] == ["success", "success"]
    assert results[0].message == results[1].message


async def test_interrupt_stops_the_executing_run_and_keeps_its_output_with_a_mark() -> None:
    """`interrupt`: reason interrupted, text kept and marked; the new run has an ordinary place."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        first, second = await _after_half(scene, hold, "interrupt")
    result = await first.result
    assert (result.reason, result.text, result.run.state) == ("interrupted", "half ", "interrupted")
    assert result.message.parts[-1] == ControlPart(reason="run-interrupted")
    assert (await second.result).run.queue_priority is None
    assert asked(model, 1)[0] == "first"
    assert asked(model, 1)[1].startswith("half ")
    assert asked(model, 1)[1] != "half "


async def test_interrupt_next_stops_the_executing_run_and_marks_the_new_one_as_urgent() -> None:
    """`interrupt-next`: as interrupt, and the new run carries its priority in the store."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        first, second = await _after_half(scene, hold, "interrupt-next")
    assert (await first.result).reason == "interrupted"
    assert (await second.admission).run.queue_priority == "interrupt-next"


async def test_supersede_stops_the_executing_run_and_hides_its_answer() -> None:
    """`supersede`: reason, state and status superseded; both inputs reach the next prompt, the answer does not."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        first, second = await _after_half(scene, hold, "supersede")
    result = await first.result
    assert (result.reason, result.run.state, result.message.status) == ("superseded", "superseded", "superseded")
    assert result.text == "half "
    assert (await second.result).run.queue_priority is None
    assert asked(model, 1) == ["first", "second"]


# --- the rules about them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", _ABORTING)
async def test_a_policys_abort_is_process_local(policy: InputPolicy) -> None:
    """The run goes from running to its end without passing interrupt_requested."""
    hold, model = held_after("half ")
    async with opened(model) as scene, scene.runtime.subscribe(CONVERSATION) as events:
        await _after_half(scene, hold, policy)
        await scene.runtime.close()
        states = [event.state for event in await heard(events) if isinstance(event, RunStateEvent)]
    assert states == ["queued", "running", "queued", "running"]


@pytest.mark.parametrize("policy", _ABORTING)
async def test_the_abort_comes_after_the_new_input_is_durable(policy: InputPolicy) -> None:
    """While the admission of the new input is held up, the executing run is left alone."""
    admitting = Hold()
    hold, model = held_after("half ")
    async with opened(model, plan=_holding_second_accept(admitting)) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        second = scene.runtime.submit(CONVERSATION, "second", policy=policy)
        await admitting.reached()
        await anyio.wait_all_tasks_blocked()
        view = await scene.store.inner.load_run(CONVERSATION, first.run_id)
        assert view is not None
        assert (view.run.state, first.result.done) == ("running", False)
        admitting.release()
        assert (await first.result).reason in {"interrupted", "superseded"}
        assert (await second.result).reason == "success"


def _holding_second_accept(hold: Hold) -> FaultPlan:
    accepts = 0

    def plan(call: StoreCall) -> Fault | None:
        nonlocal accepts
        accepts += any(isinstance(command, AcceptInput) for command in call.commands)
        return Fault(hold=hold) if accepts == 2 and isinstance(call.commands[0], AcceptInput) else None

    return plan


async def test_urgent_runs_go_before_ordinary_ones_and_after_earlier_urgent_ones() -> None:
    """A executes, B waits; urgent C and D come: A, C, D, B. B keeps its run, and its key still answers."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        submit = scene.runtime.submit
        submit(CONVERSATION, "A")
        await hold.reached()
        waiting = submit(CONVERSATION, "B", idempotency_key="b")
        await waiting.admission
        urgent = [submit(CONVERSATION, text, policy="interrupt-next") for text in ("C", "D")]
        results = [await ticket.result for ticket in (*urgent, waiting)]
        again = submit(CONVERSATION, "B", idempotency_key="b")
        assert (await again.admission).run_id == waiting.run_id
    order = sorted(results, key=lambda result: result.run.execution_sequence or 0)
    assert [result.run.id for result in order] == [result.run.id for result in results]
    # C was stopped by D as A was by C: the newest urgent input wins, in a queue of its own.
    assert results[2].reason == "success"


async def test_an_urgent_runs_prompt_has_the_turn_before_it_but_not_what_waits() -> None:
    """C's prompt holds A's turn and not B's input; B's prompt holds C's turn."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        scene.runtime.submit(CONVERSATION, "A")
        await hold.reached()
        waiting = scene.runtime.submit(CONVERSATION, "B")
        await waiting.admission
        urgent = scene.runtime.submit(CONVERSATION, "C", policy="interrupt-next")
        await urgent.result
        await waiting.result
    assert (asked(model, 1)[0], asked(model, 1)[-1]) == ("A", "C")
    assert "B" not in asked(model, 1)
    assert asked(model, 2)[-3:] == ["C", "next answer", "B"]


async def test_the_order_of_urgent_runs_survives_a_restart() -> None:
    """Runs that wait when the processes end are resumed urgent ones first."""
    hold, model = held_after("half ")
    async with MemoryStore() as store:
        async with opened(model, store=store) as one, opened(model, store=store) as two:
            one.runtime.submit(CONVERSATION, "A")
            await hold.reached()
            await two.runtime.submit(CONVERSATION, "B").admission
            for text in ("C", "D"):
                await two.runtime.submit(CONVERSATION, text, policy="interrupt-next").admission
            one.store.kill()
            two.store.kill()
        after = ScriptedModel("ok")
        async with opened(after, store=store) as scene:
            for outcome in await scene.runtime.recover():
                assert outcome.result is not None
                await outcome.result
    assert [asked(after, call)[-1] for call in range(4)] == ["A", "C", "D", "B"]


@pytest.mark.parametrize("policy", ["inject", *_ABORTING])
async def test_with_nothing_executing_a_policy_only_queues(policy: InputPolicy) -> None:
    """In an idle conversation every policy is an ordinary turn."""
    model = ScriptedModel("ok")
    async with opened(model) as scene:
        result = await scene.runtime.submit(CONVERSATION, "only", policy=policy).result
    assert (result.reason, asked(model)) == ("success", ["only"])


@pytest.mark.parametrize("policy", _ABORTING)
async def test_a_run_that_waits_for_another_process_is_not_what_a_policy_stops(policy: InputPolicy) -> None:
    """What waits behind another process's run does not execute: it is neither stopped nor lost."""
    hold, model = held_after("half ")
    here = ScriptedModel("ok")
    async with MemoryStore() as store, opened(model, store=store) as one, opened(here, store=store) as two:
        first = one.runtime.submit(CONVERSATION, "A")
        await hold.reached()
        waiting = two.runtime.submit(CONVERSATION, "B")
        await waiting.admission
        await anyio.wait_all_tasks_blocked()
        third = two.runtime.submit(CONVERSATION, "C", policy=policy)
        await third.admission
        await anyio.wait_all_tasks_blocked()
        hold.release()
        with anyio.fail_after(10):
            reasons = [(await ticket.result).reason for ticket in (first, waiting, third)]
    assert reasons == ["success", "success", "success"]
    order = ["C", "B"] if policy == "interrupt-next" else ["B", "C"]
    assert [asked(here, call)[-1] for call in range(2)] == order


# --- who chooses ------------------------------------------------------------------------------------------------------


async def test_the_configured_policy_counts_unless_submit_says_otherwise() -> None:
    """`runs.policy` is the default of `submit(policy=...)`."""
    hold, model = held_after("half ")
    async with opened(model, config=_choosing("supersede")) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        second = scene.runtime.submit(CONVERSATION, "second", policy="queue")
        await second.admission
        hold.release()
        assert (await first.result).reason == "success"
        await second.result
    hold, model = held_after("half ")
    async with opened(model, config=_choosing("supersede")) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        scene.runtime.submit(CONVERSATION, "second")
        assert (await first.result).reason == "superseded"


async def test_a_policy_can_be_a_function_of_the_raw_input() -> None:
    """It gets the input and the raw context, before any store call."""
    seen: list[SubmittedInput] = []
    context = object()

    def choose(given: SubmittedInput) -> InputPolicy:
        seen.append(given)
        return "queue"

    async with opened(ScriptedModel("ok"), config=_choosing(choose)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi", context=context, idempotency_key="k")
        [given] = seen
        assert scene.store.calls == []
        await ticket.result
    assert (given.conversation_id, given.idempotency_key, given.input.parts[0].type) == (CONVERSATION, "k", "text")
    assert given.context is context


async def test_a_policy_function_that_fails_or_answers_nonsense_raises_from_submit() -> None:
    """Nothing is written, nothing is left underway, and the next input goes its way."""
    answers: list[object] = [ZeroDivisionError(), "sometimes", "queue"]

    def choose(_: SubmittedInput) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with opened(ScriptedModel("ok"), config=_choosing(choose)) as scene:
        with pytest.raises(ZeroDivisionError):
            scene.runtime.submit(CONVERSATION, "one", idempotency_key="k")
        with pytest.raises(InvalidValueError, match=r"runs\.policy"):
            scene.runtime.submit(CONVERSATION, "two", idempotency_key="k")
        assert scene.store.calls == []
        assert (await scene.runtime.submit(CONVERSATION, "three", idempotency_key="k").result).reason == "success"


@pytest.mark.parametrize("policy", ["sometimes", 7, ""])
async def test_an_unknown_policy_is_refused_by_name(policy: object) -> None:
    """In the configuration and in `submit`; nothing is written."""
    with pytest.raises(InvalidValueError, match=r"runs\.policy"):
        _choosing(policy)
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(InvalidValueError, match="policy"):
            scene.runtime.submit(CONVERSATION, "Hi", policy=policy)  # type: ignore[arg-type]
        assert scene.store.calls == []


# --- lanes that are coarser than conversations ------------------------------------------------------------------------


def _in_one_lane(*_: object) -> str:
    return "lane"


async def test_a_key_may_put_conversations_into_one_lane() -> None:
    """Runs of two conversations with one key never execute side by side, and each answers in its own conversation."""
    hold, model = held_after("half ")
    config = RuntimeConfig(runs=RunsConfig(key=_in_one_lane))
    async with opened(model, config=config) as scene:
        first = scene.runtime.submit("a", "in a")
        await hold.reached()
        second = scene.runtime.submit("b", "in b")
        await second.admission
        await anyio.wait_all_tasks_blocked()
        assert len(model.calls) == 1
        assert scene.runtime.stop("lane") is True
        assert (await first.result).reason == "interrupted"
        assert (await second.result).run.conversation_id == "b"
    assert asked(model, 1) == ["in b"]


async def test_a_key_that_splits_a_conversation_is_refused() -> None:
    """While anything of a conversation is underway it stays in its lane; afterwards it may have another."""
    hold, model = held_after("half ")
    config = RuntimeConfig(runs=RunsConfig(key=lambda _, context: str(context)))
    async with opened(model, config=config) as scene:
        first = scene.runtime.submit(CONVERSATION, "first", context="one")
        await hold.reached()
        writes = len(scene.store.applied)
        with pytest.raises(UsageError, match=r"runs\.key"):
            scene.runtime.submit(CONVERSATION, "second", context="two")
        assert len(scene.store.applied) == writes
        hold.release()
        await first.result
        assert (await scene.runtime.submit(CONVERSATION, "third", context="two").result).reason == "success"


async def test_a_key_that_is_no_name_is_refused() -> None:
    """`runs.key` must give a text; what it raises, `submit` raises."""
    config = RuntimeConfig(runs=RunsConfig(key=lambda *_: 7))  # type: ignore[arg-type]
    async with opened(ScriptedModel("ok"), config=config) as scene:
        with pytest.raises(UsageError, match=r"runs\.key"):
            scene.runtime.submit(CONVERSATION, "Hi")
        assert scene.store.calls == []


@pytest.mark.parametrize("options", [{"key": 7}, {"coalesce_pending": "yes"}])
def test_a_malformed_option_of_runs_is_refused_by_name(options: dict[str, object]) -> None:
    """Each option names itself."""
    with pytest.raises(UsageError, match=f"runs.{next(iter(options))}"):
        RunsConfig(**options)  # type: ignore[arg-type]
