"""What becomes of an input that is to join a run: a test for each row of the table of cancel and edge cases."""

from collections.abc import Callable, Sequence

import anyio
import pytest
from typing_extensions import override

from runlane.errors import ProviderError, RuntimeClosedError, StoreUnavailableError
from runlane.models import FileItem, FinishReport, RetryPolicy, TextDelta
from runlane.records import FilePart, Message, TextPart
from runlane.runtime import (
    FilesConfig,
    InputPolicy,
    LoopConfig,
    RunResult,
    RunsConfig,
    RuntimeConfig,
    SubmittedInput,
    Turn,
    TurnFinished,
    TurnOutcome,
)
from runlane.store import (
    AcquireRun,
    AppendEvent,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    DraftPatch,
    MemoryStore,
    RecoverRun,
    RequestRunInterrupt,
)
from runlane.testing import Fault, Hold, ScriptedModel, StoreCall
from tests.runtime.injecting import Two, inject_second, ran_by_itself, standing, tool_call
from tests.runtime.scenes import CONVERSATION, Scene, asked, heard, opened

pytestmark = pytest.mark.anyio

_BUSY = ProviderError("busy", provider="p", reason="rate-limited", status=429, retryable=True)


async def test_a_run_that_ends_before_another_boundary_leaves_the_successor_to_itself() -> None:
    """No step follows: the successor runs by itself."""
    hold, model = standing(calls=False)
    async with opened(model) as scene:
        results = await (await inject_second(scene, hold)).results()
    assert ran_by_itself(results)
    assert asked(model, 1) == ["first", "half ", "second"]


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("interrupt", "interrupted"),
        ("supersede", "superseded"),
        ("stop", "interrupted"),
        ("time out", "timeout"),
        ("shut down", "shutdown"),
        ("fail", "provider_failure"),
    ],
)
async def test_a_run_that_is_stopped_or_fails_after_taking_absorbs_nothing(ending: str, reason: str) -> None:
    """It lists only its own input, and the successor runs, or stays queued when the runtime closes."""
    hold, second_step = Hold(), Hold()
    failing = [TextDelta("x"), second_step, *([ValueError("no")] if ending == "fail" else [FinishReport("stop")])]
    model = ScriptedModel([*tool_call(), hold, FinishReport("tool-calls")], failing, "answered by itself")
    config = RuntimeConfig(loop=LoopConfig(idle_timeout=30.0))
    async with opened(model, config=config) as scene:
        two = await inject_second(scene, hold)
        hold.release()
        await second_step.reached()
        assert asked(model, 1)[-1] == "second"
        await _end(ending, scene, two, second_step)
        first = await two.first.result
        assert (first.reason, len(first.run.input_message_ids)) == (reason, 1)
        if ending == "shut down":
            with pytest.raises(RuntimeClosedError):
                await two.second.result
            [queued] = await scene.store.inner.list_active_runs(CONVERSATION)
            assert (queued.id, queued.state) == (two.second.run_id, "queued")
        else:
            second = await two.second.result
            assert (second.text, second.run.id) == ("answered by itself", two.second.run_id)


async def _end(ending: str, scene: Scene, two: Two, second_step: Hold) -> None:
    match ending:
        case "interrupt":
            await scene.runtime.interrupt(CONVERSATION, two.first.run_id)
        case "supersede":
            scene.runtime.submit(CONVERSATION, "third", policy="supersede")
        case "stop":
            scene.runtime.stop(CONVERSATION)
        case "time out":
            await scene.clock.advance(31.0)
        case "shut down":
            await scene.runtime.close()
        case _:
            second_step.release()


class _Acting(Hold):
    """Instead of standing, sends commands to the real store."""

    def __init__(self, scene: Scene, commands: Sequence[Command]) -> None:
        super().__init__()
        self._scene = scene
        self._commands = commands

    @override
    async def stand(self) -> None:
        await self._scene.store.inner.apply(CONVERSATION, self._commands)


class _Racing:
    """Does something in the store each time a terminal commit is about to be sent."""

    def __init__(self, *makers: Callable[[CommitRunTerminal, int], Sequence[Command]]) -> None:
        self.makers = list(makers)
        self.scene: Scene | None = None
        self.sent: list[CommitRunTerminal] = []

    def plan(self, call: StoreCall) -> Fault | None:
        terminal = call.commands[-1] if call.commands else None
        if not isinstance(terminal, CommitRunTerminal) or self.scene is None:
            return None
        self.sent.append(terminal)
        if not self.makers:
            return None
        closing = next(command for command in call.commands if not isinstance(command, AppendEvent))
        revision = closing.expected_revision  # type: ignore[union-attr]
        return Fault(hold=_Acting(self.scene, self.makers.pop(0)(terminal, revision)))


async def _raced(*makers: Callable[[CommitRunTerminal, int], Sequence[Command]]) -> tuple[_Racing, list[RunResult]]:
    hold, model = standing(then=["done", "answered by itself"])
    racing = _Racing(*makers)
    async with opened(model, plan=racing.plan) as scene:
        racing.scene = scene
        results = await (await inject_second(scene, hold)).results()
    return racing, results


def _interrupting(terminal: CommitRunTerminal, revision: int) -> Sequence[Command]:
    return [
        RequestRunInterrupt(command_id="interrupt", at=terminal.at, run_id=terminal.run_id, expected_revision=revision)
    ]


def _touching(terminal: CommitRunTerminal, revision: int) -> Sequence[Command]:
    return [
        CheckpointRunAssistant(
            command_id="touch",
            at=terminal.at,
            run_id=terminal.run_id,
            expected_revision=revision,
            ownership=terminal.ownership,
            patch=DraftPatch(),
        )
    ]


def _cancelling_what_is_absorbed(terminal: CommitRunTerminal, _: int) -> Sequence[Command]:
    [entry] = terminal.absorb
    return [
        RecoverRun(command_id="abandon", at=terminal.at, run_id=entry.run_id, expected_revision=0, action="abandon")
    ]


async def test_a_durable_interrupt_that_wins_removes_the_absorption() -> None:
    """Between the last read and the commit: re-formed as interrupted, nothing absorbed, the successor runs."""
    racing, results = await _raced(_interrupting)
    assert [(terminal.reason, len(terminal.absorb)) for terminal in racing.sent[:2]] == [
        ("success", 1),
        ("interrupted", 0),
    ]
    assert results[0].reason == "interrupted"
    assert ran_by_itself(results)


async def test_an_unrelated_conflict_offers_the_absorption_again() -> None:
    """Still running: the retry carries the same entry, and the absorption happens."""
    racing, results = await _raced(_touching)
    assert [len(terminal.absorb) for terminal in racing.sent] == [1, 1]
    assert results[0].run == results[1].run


async def test_an_entry_that_no_longer_matches_is_dropped_and_the_end_still_commits() -> None:
    """The successor was ended by somebody else meanwhile: the run ends as success with its own input only."""
    racing, results = await _raced(_cancelling_what_is_absorbed)
    assert len(racing.sent) == 1
    assert [result.reason for result in results] == ["success", "abandoned"]
    assert len(results[0].run.input_message_ids) == 1


@pytest.mark.parametrize("dies", [False, True], ids=["the commit never lands", "the process dies"])
async def test_a_terminal_commit_that_never_lands_leaves_the_successor_queued(*, dies: bool) -> None:
    """The successor is an ordinary queued run, recoverable once the run ahead is released."""
    hold, model = standing()
    taken: list[str] = []

    def plan(call: StoreCall) -> Fault | None:
        if not (call.commands and isinstance(call.commands[-1], CommitRunTerminal)):
            return None
        taken.extend(entry.run_id for entry in call.commands[-1].absorb)
        return Fault(kills=True) if dies else Fault(error=StoreUnavailableError("gone"))

    async with MemoryStore() as store:
        async with opened(model, store=store, plan=plan) as scene:
            two = await inject_second(scene, hold)
            hold.release()
            await scene.clock.advance(2.0)
            await two.first.result.settled()
            states = [run.state for run in await store.list_active_runs(CONVERSATION)]
            assert (states, set(taken)) == (["running", "queued"], {two.second.run_id})
        after = ScriptedModel("after")
        async with opened(after, store=store) as scene:
            results = [await outcome.result for outcome in await scene.runtime.recover() if outcome.result]
    # The recovered run goes on from the call it had made; what was injected into it is gone with the process.
    assert [result.text for result in results] == ["Let me see. after", "after"]
    assert [len(result.run.input_message_ids) for result in results] == [1, 1]


async def test_a_successor_that_started_is_offered_no_more() -> None:
    """The offer is withdrawn when its turn comes, before any I/O: a later run cannot take it."""
    hold, model = standing(calls=False)
    acquiring = Hold()

    starts: list[StoreCall] = []

    def plan(call: StoreCall) -> Fault | None:
        if not any(isinstance(command, AcquireRun) for command in call.commands):
            return None
        starts.append(call)
        return Fault(hold=acquiring) if len(starts) == 2 else None

    async with opened(model, plan=plan) as scene:
        two = await inject_second(scene, hold)
        hold.release()
        await acquiring.reached()
        assert scene.runtime._core.conversations.entry(CONVERSATION).offers.take("anybody") == {}
        acquiring.release()
        assert ran_by_itself([await two.first.result, await two.second.result])


def _sharing(policy: InputPolicy | Callable[[SubmittedInput], InputPolicy] = "inject") -> RuntimeConfig:
    return RuntimeConfig(runs=RunsConfig(policy=policy, coalesce_pending=True))


async def test_a_successor_with_one_more_input_after_the_last_boundary_is_dropped_whole() -> None:
    """It answers all of its inputs itself: one input is answered twice, none never."""
    hold, last = Hold(), Hold()
    model = ScriptedModel(
        [*tool_call(), hold, FinishReport("tool-calls")], [TextDelta("x"), last, FinishReport("stop")], "both"
    )
    async with opened(model, config=_sharing()) as scene:
        two = await inject_second(scene, hold)
        hold.release()
        await last.reached()
        third = scene.runtime.submit(CONVERSATION, "third")
        await third.accepted
        last.release()
        results = [await ticket.result for ticket in (two.first, two.second, third)]
    assert [len(result.run.input_message_ids) for result in results] == [1, 2, 2]
    assert (results[1].run, asked(model, 2)[-2:]) == (results[2].run, ["second", "third"])


async def test_a_successor_of_several_injected_inputs_is_absorbed_whole() -> None:
    """Taken at different boundaries, in order of acceptance: one entry with all of them."""
    hold, again = Hold(), Hold()
    model = ScriptedModel(
        [*tool_call("a"), hold, FinishReport("tool-calls")],
        [*tool_call("b"), again, FinishReport("tool-calls")],
        "all three",
    )
    async with opened(model, config=_sharing()) as scene:
        two = await inject_second(scene, hold)
        hold.release()
        await again.reached()
        third = scene.runtime.submit(CONVERSATION, "third")
        await third.accepted
        again.release()
        results = [await ticket.result for ticket in (two.first, two.second, third)]
        assert await scene.store.inner.list_active_runs(CONVERSATION) == ()
    assert len({result.run.id for result in results}) == 1
    assert len(results[0].run.input_message_ids) == 3


async def test_a_successor_that_holds_an_input_of_another_policy_is_never_absorbed() -> None:
    """Its list of inputs is never the list that was taken."""

    def choose(given: SubmittedInput) -> InputPolicy:
        return given.context  # type: ignore[return-value]

    hold, model = standing(then=["done", "both"])
    async with opened(model, config=_sharing(choose)) as scene:
        first = scene.runtime.submit(CONVERSATION, "first", context="queue")
        await hold.reached()
        queued = scene.runtime.submit(CONVERSATION, "queued", context="queue")
        joined = scene.runtime.submit(CONVERSATION, "injected", context="inject")
        await joined.accepted
        hold.release()
        results = [await ticket.result for ticket in (first, queued, joined)]
    assert asked(model, 1)[-1] == "injected"
    assert [len(result.run.input_message_ids) for result in results] == [1, 2, 2]
    assert asked(model, 2)[-2:] == ["queued", "injected"]


async def test_an_input_that_comes_after_its_successor_was_absorbed_begins_a_run() -> None:
    """A batch that was absorbed while an input was about to join: that input has a run of its own."""
    hold, joining = Hold(), Hold()
    model = ScriptedModel([*tool_call(), hold, FinishReport("tool-calls")], "done", "by itself")

    def plan(call: StoreCall) -> Fault | None:
        texts = [getattr(getattr(command, "input", None), "text", None) for command in call.commands]
        return Fault(hold=joining) if texts == ["third"] and not joining._reached.is_set() else None

    async with opened(model, plan=plan, config=_sharing()) as scene:
        two = await inject_second(scene, hold)
        third = scene.runtime.submit(CONVERSATION, "third")
        await joining.reached()
        # The commit of the joining input holds the lane of commits: the end waits behind it.
        hold.release()
        await anyio.wait_all_tasks_blocked()
        joining.release()
        results = [await ticket.result for ticket in (two.first, two.second, third)]
        assert await scene.store.inner.list_active_runs(CONVERSATION) == ()
    answered = [message_id for result in results for message_id in result.run.input_message_ids]
    assert {result.reason for result in results} == {"success"}
    assert len(set(answered)) == 3


async def test_close_withdraws_every_offer_and_leaves_the_input_queued() -> None:
    """With a grace the run may finish and come to another boundary: it takes nothing any more."""
    hold, model = standing()
    async with opened(model) as scene:
        two = await inject_second(scene, hold)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: scene.runtime.close(grace=10.0))
            await anyio.wait_all_tasks_blocked()
            hold.release()
        first = await two.first.result
        [queued] = await scene.store.inner.list_active_runs(CONVERSATION)
    assert (first.reason, len(first.run.input_message_ids)) == ("success", 1)
    assert (queued.id, queued.state) == (two.second.run_id, "queued")
    assert "second" not in asked(model, 1)


async def test_a_retried_attempt_hands_back_what_it_took_and_takes_it_again() -> None:
    """The failed attempt's inputs are un-remembered; the next attempt's prompt has them once, and absorbs them."""
    failing = Hold()
    model = ScriptedModel([TextDelta("x"), failing, _BUSY], "done")
    config = RuntimeConfig(loop=LoopConfig(retry=RetryPolicy(max_attempts=3)))
    async with opened(model, config=config) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        second = scene.runtime.submit(CONVERSATION, "second", policy="inject")
        await failing.reached()
        failing.release()
        while not first.result.done:
            await scene.clock.advance(1.0)
        results = [await first.result, await second.result]
    assert asked(model, 0) == asked(model, 1) == ["first", "second"]
    assert results[0].run == results[1].run
    assert len(results[0].run.input_message_ids) == 2


async def test_what_was_cancelled_between_two_attempts_is_not_taken_again() -> None:
    """Handed back means offered again, and a cancelled run offers nothing."""
    failing = Hold()
    model = ScriptedModel([TextDelta("x"), failing, _BUSY], "done")
    config = RuntimeConfig(loop=LoopConfig(retry=RetryPolicy(max_attempts=3)))
    async with opened(model, config=config) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        second = scene.runtime.submit(CONVERSATION, "second", policy="inject")
        await failing.reached()
        await scene.runtime.cancel(CONVERSATION, second.run_id)
        failing.release()
        while not first.result.done:
            await scene.clock.advance(1.0)
        results = [await first.result, await second.result]
    assert (asked(model, 0), asked(model, 1)) == (["first", "second"], ["first"])
    assert [result.reason for result in results] == ["success", "cancelled"]
    assert len(results[0].run.input_message_ids) == 1


async def test_a_settled_submission_withdraws_its_offer() -> None:
    """A waiting run that was cancelled is not taken at the next boundary."""
    hold, model = standing()
    async with opened(model) as scene:
        two = await inject_second(scene, hold)
        await scene.runtime.cancel(CONVERSATION, two.second.run_id)
        results = await two.results()
    assert [result.reason for result in results] == ["success", "cancelled"]
    assert "second" not in asked(model, 1)


class _Workflow:
    """A driver that has no boundaries."""

    name = "workflow"

    def __init__(self) -> None:
        self.hold = Hold()

    async def drive(self, turn: Turn, /) -> TurnOutcome:
        await self.hold.stand()
        await turn.emit(TextDelta("done"))
        return TurnFinished("stop")


async def test_b10_a_driver_without_boundaries_treats_inject_as_queue() -> None:
    """Injections are taken by the managed loop at its boundary, nowhere else."""
    workflow = _Workflow()
    async with opened(ScriptedModel("x"), config=RuntimeConfig(driver=workflow)) as scene:
        results = await (await inject_second(scene, workflow.hold)).results()
    assert ran_by_itself(results)


async def test_conversations_of_one_lane_do_not_take_each_others_inputs() -> None:
    """On a coarser lane injection and absorption stay within their conversation."""
    hold, model = standing(then=["done", "other"])
    config = RuntimeConfig(runs=RunsConfig(key=lambda *_: "lane"))
    async with opened(model, config=config) as scene:
        first = scene.runtime.submit("a", "first")
        await hold.reached()
        second = scene.runtime.submit("b", "second", policy="inject")
        await second.accepted
        hold.release()
        results = [await first.result, await second.result]
    assert [result.run.conversation_id for result in results] == ["a", "b"]
    assert "second" not in asked(model, 1)


async def test_resuming_an_absorbed_run_resolves_it_from_the_record() -> None:
    """No acquisition, no events, no provider call: the answer is the absorbing run's."""
    hold, model = standing()
    async with MemoryStore() as store:
        async with opened(model, store=store) as scene:
            two = await inject_second(scene, hold)
            first, _ = await two.results()
        after = ScriptedModel("never")
        async with opened(after, store=store) as scene, scene.runtime.subscribe(CONVERSATION) as events:
            resumed = scene.runtime.resume(CONVERSATION, two.second.run_id)
            await resumed.accepted
            result = await resumed.result
            assert scene.store.applied == []
            await scene.runtime.close()
            assert await heard(events) == []
    assert (result.message, result.metrics, after.calls) == (first.message, None, [])


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_input_whose_file_is_missing_is_left_to_a_run_of_its_own(*, is_there: bool) -> None:
    """A file that resolves is shown with the input; one that does not never fails the run it was to join."""
    hold, model = standing(then=["done", "by itself"])

    async def resolve(file: FilePart, _: Message) -> FileItem | None:
        return FileItem(media_type=file.media_type, text="the notes", filename=None) if is_there else None

    files = FilesConfig(resolve=resolve, unresolved="error")
    async with opened(model, config=RuntimeConfig(files=files)) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        file = FilePart(media_type="text/plain", reference="notes")
        second = scene.runtime.submit(CONVERSATION, [TextPart(text="Read this"), file], policy="inject")
        await second.accepted
        hold.release()
        results = [await first.result, await second.result]
    assert results[0].reason == "success"
    assert (results[0].run == results[1].run) is is_there
    shown = [item for message in model.calls[1].messages for item in message.items if isinstance(item, FileItem)]
    assert len(shown) == int(is_there)
    assert results[1].reason == ("success" if is_there else "runtime_failure")
