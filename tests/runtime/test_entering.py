"""An input that comes into an idle lane: admitted, acquired and asked in one commit, or admitted like any other."""

import anyio
import pytest
from typing_extensions import override

from runlane.delivery import AdmissionEvent, RunOperationEvent, RunStateEvent
from runlane.errors import LeaseLostError, StoreUnavailableError, UsageError
from runlane.history import ByteBound
from runlane.records import Message, Run, TextPart
from runlane.runtime import HistoryConfig, RecordIds, RunsConfig, RuntimeConfig
from runlane.store import AcceptInput, AcquireRun, Command, MemoryStore
from runlane.testing import FakeClock, Fault, FaultPlan, Hold, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, Scene, asked, heard, held_after, names, opened

pytestmark = pytest.mark.anyio

_ENTRY = ["AcceptInput", "AcquireRun", "CheckpointRunAssistant", "AppendEvent", "RecordRunOperation"]


class _Foreign(Hold):
    """Somebody else admits an input of their own just before the commit."""

    def __init__(self, store: MemoryStore, *, acquires: bool = False) -> None:
        super().__init__()
        self._store = store
        self._acquires = acquires

    @override
    async def stand(self) -> None:
        if await self._store.load_run(CONVERSATION, "foreign run") is not None:
            return
        now = FakeClock().now()
        message = Message(
            id="foreign input",
            conversation_id=CONVERSATION,
            role="user",
            status="committed",
            parts=(TextPart(text="foreign"),),
            created_at=now,
            updated_at=now,
        )
        run = Run(
            id="foreign run",
            conversation_id=CONVERSATION,
            input_message_ids=(message.id,),
            assistant_message_id="foreign answer",
            state="queued",
            revision=0,
            created_at=now,
            updated_at=now,
        )
        commands: list[Command] = [
            AcceptInput(command_id="foreign accept", at=now, idempotency_key="foreign", input=message, run=run),
            AcquireRun(command_id="foreign acquire", at=now, run_id=run.id, expected_revision=0, owner_id="nobody"),
        ]
        await self._store.apply(CONVERSATION, commands if self._acquires else commands[:1])


def _at(number: int, fault: Fault) -> FaultPlan:
    return lambda call: fault if call.apply_number == number else None


def _committed(scene: Scene) -> list[list[str]]:
    return [names(call.commands) for call in scene.store.applied]


async def test_an_idle_lane_is_entered_in_one_commit_and_tells_what_four_would() -> None:
    """Admission, queued, running and the started request are told in order; `accepted` and the result follow."""
    async with opened(ScriptedModel("Hello")) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        events = await heard(ticket)
        admission = await ticket.accepted
        assert (await ticket.result).text == "Hello"
        assert _committed(scene)[0] == _ENTRY
    told = [event for event in events if isinstance(event, AdmissionEvent | RunStateEvent | RunOperationEvent)][:4]
    assert [event.type for event in told] == ["admission", "run-state", "run-state", "run-operation"]
    assert [event.state for event in told if isinstance(event, RunStateEvent)] == ["queued", "running"]
    assert [event.snapshot_version for event in told] == [1, 1, 2, 4]
    assert (admission.run.state, admission.snapshot_version) == ("queued", 1)


async def test_a_known_conversation_is_entered_at_the_version_that_is_known() -> None:
    """The second turn is one commit at its beginning too, reads nothing, and is told of the first."""
    model = ScriptedModel("one", "two")
    async with opened(model) as scene:
        await scene.runtime.submit(CONVERSATION, "first").result
        await scene.runtime.submit(CONVERSATION, "second").result
        assert _committed(scene)[2] == _ENTRY
        entry = scene.store.applied[2].commands[0]
        assert isinstance(entry, AcceptInput)
        assert entry.expected_version == 6
        assert {call.method for call in scene.store.calls} == {"apply"}
    assert asked(model, 1) == ["first", "one", "second"]


async def test_a_conversation_that_is_not_at_hand_is_not_taken_for_a_new_one() -> None:
    """A process that never saw the conversation writes nothing on its guess, and reads it."""
    async with MemoryStore() as store:
        async with opened(ScriptedModel("one"), store=store) as scene:
            await scene.runtime.submit(CONVERSATION, "first").result
        model = ScriptedModel("two")
        async with opened(model, store=store) as scene:
            result = await scene.runtime.submit(CONVERSATION, "second").result
            assert [commit[0] for commit in _committed(scene)][:3] == ["AcceptInput", "AcceptInput", "AcquireRun"]
        snapshot = await store.load_snapshot(CONVERSATION)
    assert (result.reason, asked(model)) == ("success", ["first", "one", "second"])
    assert [message.text for message in snapshot.messages] == ["first", "one", "second", "two"]


@pytest.mark.parametrize("known", [False, True])
async def test_an_input_of_somebody_else_just_before_the_commit_goes_first(*, known: bool) -> None:
    """Another process admits an input meanwhile: nothing of the commit is written, and the order of admission holds."""
    model = ScriptedModel("one", "two", "three")
    async with MemoryStore() as store, opened(model, store=store, plan=None) as scene:
        if known:
            await scene.runtime.submit(CONVERSATION, "known").result
        number = len(scene.store.applied) + 1
        scene.store.plan = _at(number, Fault(hold=_Foreign(store)))
        ticket = scene.runtime.submit(CONVERSATION, "mine")
        await ticket.accepted
        active = await store.list_active_runs(CONVERSATION)
        resumed = scene.runtime.resume(CONVERSATION, "foreign run")
        await resumed.result
        await ticket.result
        snapshot = await store.load_snapshot(CONVERSATION)
    assert [run.id for run in active] == ["foreign run", ticket.run_id]
    said = [message.text for message in snapshot.messages if message.role == "user"]
    assert said == [*(["known"] if known else []), "foreign", "mine"]
    assert asked(model, 1 + known)[-1] == "mine"
    assert "foreign" in asked(model, 1 + known)


@pytest.mark.parametrize("after", [False, True], ids=["refused", "reply lost"])
@pytest.mark.parametrize("times", [1, 6])
async def test_a_commit_that_fails_loses_no_input_and_asks_once(*, after: bool, times: int) -> None:
    """Once: sent again. As often as it is tried: the input is admitted by itself, and its run ends in one way."""
    failed: list[StoreCall] = []

    def plan(call: StoreCall) -> Fault | None:
        if len(names(call.commands)) < len(_ENTRY) or len(failed) == times:
            return None
        failed.append(call)
        return Fault(when="after" if after else "before", error=StoreUnavailableError("gone"))

    model = ScriptedModel("Hello", "Again")
    async with opened(model, plan=plan) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(2.0)
        admission, result = await ticket.admission, await ticket.result
        snapshot = await scene.store.inner.load_snapshot(CONVERSATION)
        again = await scene.runtime.submit(CONVERSATION, "Again").result
    is_lost = after and times == 6
    assert (admission.is_duplicate, admission.run_id) == (False, result.run.id)
    assert result.reason == ("abandoned" if is_lost else "success")
    assert [message.text for message in snapshot.messages] == ["Hi", "" if is_lost else "Hello"]
    assert (again.reason, len(model.calls)) == ("success", 1 if is_lost else 2)


async def test_a_repeated_key_finds_its_run_and_leaves_the_lane() -> None:
    """A key of an earlier process answers with that run, and the lane is free for the next input."""
    async with MemoryStore() as store:
        async with opened(ScriptedModel("one"), store=store) as scene:
            first = await scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k").result
        model = ScriptedModel("two")
        async with opened(model, store=store) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k")
            assert (await ticket.admission).is_duplicate
            assert (await ticket.result).run == first.run
            assert scene.runtime.stop(CONVERSATION) is False
            assert (await scene.runtime.submit(CONVERSATION, "next").result).text == "two"
    assert asked(model) == ["Hi", "one", "next"]


async def test_a_lease_that_was_lost_costs_a_commit_and_nothing_else() -> None:
    """The store refuses the owner: the input is admitted, and its run acquired under a new one."""
    lapsed: list[str] = []

    def plan(call: StoreCall) -> Fault | None:
        acquires = any(isinstance(command, AcquireRun) and command.owner_id in lapsed for command in call.commands)
        return Fault(error=LeaseLostError(owner=lapsed[0])) if acquires else None

    async with opened(ScriptedModel("Hello"), plan=plan) as scene:
        lapsed.append(scene.runtime.owner_id)
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        assert (result.reason, result.run.owner_id) == ("success", scene.runtime.owner_id)
        assert scene.runtime.owner_id not in lapsed


async def test_a_place_that_is_kept_does_not_execute() -> None:
    """As long as the commit is underway nothing can be stopped; what comes meanwhile waits behind it."""
    hold = Hold()
    async with opened(ScriptedModel("one", "two"), plan=_at(1, Fault(hold=hold))) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        assert scene.runtime.stop(CONVERSATION) is False
        second = scene.runtime.submit(CONVERSATION, "second", policy="interrupt")
        hold.release()
        results = [await first.result, await second.result]
        snapshot = await scene.store.inner.load_snapshot(CONVERSATION)
    assert results[1].reason == "success"
    assert [message.text for message in snapshot.messages if message.role == "user"] == ["first", "second"]


async def test_a_lane_of_several_conversations_runs_one_of_them_at_a_time() -> None:
    """While another conversation executes on its lane an input is only admitted."""
    hold, model = held_after("one")
    config = RuntimeConfig(runs=RunsConfig(key=lambda *_: "lane"))
    async with opened(model, config=config) as scene:
        first = scene.runtime.submit("a", "first")
        await hold.reached()
        second = scene.runtime.submit("b", "second")
        await second.accepted
        await anyio.wait_all_tasks_blocked()
        assert (len(model.calls), _committed(scene)[-1]) == (1, ["AcceptInput"])
        hold.release()
        assert [(await ticket.result).reason for ticket in (first, second)] == ["success", "success"]


async def test_a_lane_held_elsewhere_is_not_entered() -> None:
    """A run of somebody else executes in a conversation that looked new: the input is admitted behind it."""
    async with MemoryStore() as store, store.hold_lease("nobody"):
        plan = _at(1, Fault(hold=_Foreign(store, acquires=True)))
        async with opened(ScriptedModel("Hello"), store=store, plan=plan) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "mine")
            admission = await ticket.accepted
            assert (admission.run.state, admission.snapshot_version) == ("queued", 3)
            active = await store.list_active_runs(CONVERSATION)
    assert [(run.id, run.state) for run in active] == [("foreign run", "running"), (ticket.run_id, "queued")]


async def test_a_prompt_that_cannot_be_foreseen_ends_the_run_and_not_the_input() -> None:
    """What fails while the prompt is made is the run's own failure: the input is durable, the run ends with it."""

    class Broken(ByteBound):
        @override
        def count(self, text: str, /) -> int:
            raise LookupError(text)

    config = RuntimeConfig(history=HistoryConfig(max_tokens=100, counter=Broken()))
    async with opened(ScriptedModel("Hello"), config=config) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        admission, result = await ticket.admission, await ticket.result
    assert (admission.run_id, result.reason) == (result.run.id, "runtime_failure")
    assert isinstance(result.error, LookupError)


async def test_an_id_that_is_taken_is_refused_and_the_lane_is_free() -> None:
    """A misuse rejects the ticket, whatever it came with; nothing is left of it."""
    model = ScriptedModel("one", "two")
    async with opened(model) as scene:
        first = await scene.runtime.submit(CONVERSATION, "first").result
        run = first.run
        ids = RecordIds(
            input_message_id=run.input_message_ids[0], run_id=run.id, assistant_message_id=run.assistant_message_id
        )
        ticket = scene.runtime.submit(CONVERSATION, "again", record_ids=ids)
        with pytest.raises(UsageError):
            await ticket.admission
        assert (await scene.runtime.submit(CONVERSATION, "second").result).text == "two"
    assert asked(model, 1) == ["first", "one", "second"]
