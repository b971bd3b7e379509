"""A turn stopped before and after each of its commits, then recovered by a new runtime."""

import pytest

from runlane.errors import RunlaneError
from runlane.models import FinishReport, TextDelta
from runlane.records import Message
from runlane.runtime import RuntimeConfig
from runlane.store import MemoryStore
from runlane.testing import Fault, FaultPlan, ScriptedModel, ScriptedStep, StoreCall
from tests.runtime.scenes import CONVERSATION, looped, opened

pytestmark = pytest.mark.anyio

_QUESTIONS = ("first", "second")
_ANSWER = "".join(f"{number} " for number in range(8))
# Two turns: accept, acquire, two checkpoints and an end each.
_COMMITS = 8


def _config() -> RuntimeConfig:
    return looped(checkpoint_every_events=3)


def _model() -> ScriptedModel:
    steps: list[ScriptedStep] = [TextDelta(f"{number} ") for number in range(8)]
    return ScriptedModel([*steps, FinishReport("stop")])


def _dying_at(number: int, when: str) -> FaultPlan:
    def plan(call: StoreCall) -> Fault | None:
        return Fault(when=when, kills=True) if call.apply_number == number else None  # type: ignore[arg-type]

    return plan


async def _ask(store: MemoryStore, plan: FaultPlan | None) -> list[str]:
    """Submit both questions under fixed keys, one after the other; return the runs that were admitted."""
    admitted: list[str] = []
    async with opened(_model(), store=store, config=_config(), plan=plan) as scene:
        for question in _QUESTIONS:
            ticket = scene.runtime.submit(CONVERSATION, question, idempotency_key=question)
            try:
                admitted.append((await ticket.admission).run_id)
                await ticket.result
            except RunlaneError:
                break
    return admitted


async def _finish(store: MemoryStore) -> list[Message]:
    """Recover, submit the same keys once more, and return the conversation."""
    model = _model()
    async with opened(model, store=store, config=_config(), recover_on_start=True) as scene:
        for question in _QUESTIONS:
            result = await scene.runtime.submit(CONVERSATION, question, idempotency_key=question).result
            assert (result.reason, result.text) == ("success", _ANSWER)
    snapshot = await store.load_snapshot(CONVERSATION)
    assert await store.list_active_runs(CONVERSATION) == ()
    return list(snapshot.messages)


async def test_the_scenario_has_that_many_commits() -> None:
    """The two turns make eight commits, so that every one of them is stopped at below."""
    async with MemoryStore() as store:
        numbers: list[int] = []

        def plan(call: StoreCall) -> Fault | None:
            if call.method == "apply":
                numbers.append(call.apply_number)
            return None

        assert len(await _ask(store, plan)) == 2
    assert len(numbers) == _COMMITS


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, _COMMITS + 1))
async def test_a_process_that_dies_at_a_commit_loses_nothing_and_answers_nothing_twice(number: int, when: str) -> None:
    """Whatever commit the process dies at: each question is stored once and answered once, by the admitted run."""
    async with MemoryStore() as store:
        admitted = await _ask(store, _dying_at(number, when))
        messages = await _finish(store)
        snapshot = await store.load_snapshot(CONVERSATION)
    assert [(message.role, message.text) for message in messages] == [
        ("user", "first"),
        ("assistant", _ANSWER),
        ("user", "second"),
        ("assistant", _ANSWER),
    ]
    assert [run.id for run in snapshot.runs][: len(admitted)] == admitted
    assert {run.terminal_reason for run in snapshot.runs} == {"success"}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 4))
async def test_a_recovery_that_dies_is_recovered_in_turn(number: int, when: str) -> None:
    """A process dies in the middle of its stream, its successor at each commit of the recovery, a third finishes."""
    async with MemoryStore() as store:
        await _ask(store, _dying_at(3, "after"))
        async with opened(_model(), store=store, config=_config(), plan=_dying_at(number, when)) as scene:
            for outcome in await scene.runtime.recover():
                if outcome.result is not None:
                    await outcome.result.settled()
        messages = await _finish(store)
    assert [message.text for message in messages] == ["first", _ANSWER, "second", _ANSWER]
