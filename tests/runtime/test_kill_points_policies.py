"""Turns with an injection, a shared successor and a supersede, stopped before and after each commit, then recovered."""

import anyio
import pytest

from runlane.errors import RunlaneError
from runlane.models import FinishReport, TextDelta
from runlane.records import Snapshot
from runlane.runtime import LoopConfig, RunsConfig, RunTicket, RuntimeConfig
from runlane.store import MemoryStore
from runlane.testing import Fault, FaultPlan, Hold, ScriptedCall, ScriptedModel, ScriptedStep, StoreCall
from tests.runtime.injecting import tool_call
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio

_CONFIG = RuntimeConfig(runs=RunsConfig(coalesce_pending=True), loop=LoopConfig(checkpoint_every_events=3))
_INPUTS = ("first", "second", "third", "fourth", "fifth", "sixth")
# Two accepts; acquire; the request anew, with what was injected; call; step; end with the absorption; accept; acquire;
# three accepts, the last of which supersedes; a checkpoint; the superseded end; acquire; end.
_COMMITS = 14


class _Scene:
    """A model that calls a tool in its first turn, and stands in its second one."""

    def __init__(self) -> None:
        self.hold = Hold()
        self.model = ScriptedModel(self._reply)

    def _reply(self, call: ScriptedCall) -> list[ScriptedStep]:
        said = [getattr(message, "text", "") for message in call.messages]
        if "third" not in said and len(said) <= 2:
            return [*tool_call(), FinishReport("tool-calls")]
        if said[-1] == "third":
            return [*(TextDelta(f"{number} ") for number in range(4)), self.hold, TextDelta("."), FinishReport("stop")]
        return [TextDelta("answered"), FinishReport("stop")]

    async def reached_or_settled(self, ticket: RunTicket) -> None:
        """Wait until the second turn stands, or has ended."""
        async with anyio.create_task_group() as tasks:

            async def first(wait: object) -> None:
                await wait()  # type: ignore[operator]
                tasks.cancel_scope.cancel()

            tasks.start_soon(first, self.hold.reached)
            tasks.start_soon(first, ticket.result.settled)


async def _live(store: MemoryStore, plan: FaultPlan | None) -> None:
    """Have everything happen once, as far as the process lives: `second` is absorbed, `third` superseded."""
    scene_model = _Scene()
    async with opened(scene_model.model, store=store, config=_CONFIG, plan=plan) as scene:
        try:
            submit = scene.runtime.submit
            first = submit(CONVERSATION, "first", idempotency_key="first")
            second = submit(CONVERSATION, "second", idempotency_key="second", policy="inject")
            await first.result
            await second.result
            third = submit(CONVERSATION, "third", idempotency_key="third")
            await scene_model.reached_or_settled(third)
            last = [submit(CONVERSATION, text, idempotency_key=text) for text in ("fourth", "fifth")]
            last.append(submit(CONVERSATION, "sixth", idempotency_key="sixth", policy="supersede"))
            for ticket in last:
                await ticket.admission
            for ticket in (third, *last):
                await ticket.result
        except RunlaneError:
            scene_model.hold.release()


async def _finish(store: MemoryStore) -> tuple[Snapshot, list[str]]:
    """Recover, submit every key once more; return the conversation and how each input ended."""
    again = _Scene()
    again.hold.release()
    async with opened(again.model, store=store, config=_CONFIG, recover_on_start=True) as scene:
        tickets = [scene.runtime.submit(CONVERSATION, text, idempotency_key=text) for text in _INPUTS]
        reasons = [(await ticket.result).reason for ticket in tickets]
    assert await store.list_active_runs(CONVERSATION) == ()
    return await store.load_snapshot(CONVERSATION), [str(reason) for reason in reasons]


async def test_the_scenario_has_that_many_commits() -> None:
    """One input is absorbed, three share a successor, one run is superseded; every commit is stopped at below."""
    numbers: list[int] = []

    def plan(call: StoreCall) -> Fault | None:
        if call.method == "apply":
            numbers.append(call.apply_number)
        return None

    async with MemoryStore() as store:
        await _live(store, plan)
        snapshot = await store.load_snapshot(CONVERSATION)
    assert [(run.terminal_reason, len(run.input_message_ids)) for run in snapshot.runs] == [
        ("success", 2),
        ("superseded", 1),
        ("success", 3),
    ]
    assert len(numbers) == _COMMITS


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, _COMMITS + 1))
async def test_a_process_that_dies_at_a_commit_loses_no_input_and_answers_none_twice(number: int, when: str) -> None:
    """Whatever commit it dies at: each input is stored once, belongs to one run, and is answered once."""

    def plan(call: StoreCall) -> Fault | None:
        return Fault(when=when, kills=True) if call.apply_number == number else None  # type: ignore[arg-type]

    async with MemoryStore() as store:
        await _live(store, plan)
        snapshot, reasons = await _finish(store)
    stored = [message for message in snapshot.messages if message.role == "user"]
    owned = [message_id for run in snapshot.runs for message_id in run.input_message_ids]
    answers = [message.run_id for message in snapshot.messages if message.role == "assistant"]
    assert sorted(message.text for message in stored) == sorted(_INPUTS)
    assert sorted(owned) == sorted(message.id for message in stored)
    assert sorted(answers, key=str) == sorted(run.id for run in snapshot.runs)
    assert reasons[2] in {"success", "superseded"}
    assert {*reasons[:2], *reasons[3:]} == {"success"}
