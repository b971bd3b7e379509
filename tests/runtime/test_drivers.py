"""Drivers that do what they must not: the run ends once, on record, and says which mistake it was."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runlane.delivery import TerminalEvent
from runlane.errors import InvalidValueError, RunlaneError, UsageError
from runlane.models import ReasoningDelta, TextDelta
from runlane.runtime import RuntimeConfig, Turn, TurnFinished, TurnStopped
from runlane.store import CommitRunTerminal
from runlane.testing import Fault, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, heard, opened

pytestmark = pytest.mark.anyio


class _Driver:
    """Drives by a function."""

    name = "d"

    def __init__(self, drive: Callable[[Turn], Awaitable[Any]]) -> None:
        self._drive = drive

    async def drive(self, turn: Turn, /) -> Any:  # noqa: ANN401 - what is wrong with it
        """Do whatever the function does."""
        return await self._drive(turn)


def _driven(drive: Callable[[Turn], Awaitable[Any]]) -> RuntimeConfig:
    return RuntimeConfig(driver=_Driver(drive))


_OUTCOMES: list[tuple[Any, str]] = [
    (None, "driver: must return TurnFinished or TurnStopped, not NoneType"),
    ("done", "not str"),
    (TurnFinished("done"), "driver: must finish with one of stop, .* not 'done'"),  # type: ignore[arg-type]
    (TurnFinished(None), "not 'None'"),  # type: ignore[arg-type]
    (TurnStopped(""), "driver.policy: must be a text that is not empty"),
    (TurnStopped(5), "driver.policy"),  # type: ignore[arg-type]
    (TurnStopped("\ud800"), "driver.policy"),
]


@pytest.mark.parametrize(("outcome", "says"), _OUTCOMES, ids=lambda given: repr(given)[:40])
async def test_an_outcome_that_is_none_fails_the_run(outcome: object, says: str) -> None:
    """The run is not left without an end."""

    async def drive(turn: Turn) -> object:
        await turn.emit(TextDelta("Hello"))
        return outcome

    async with opened(ScriptedModel("."), config=_driven(drive)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        assert await scene.store.list_active_runs(CONVERSATION) == ()
    assert (result.reason, result.text) == ("runtime_failure", "Hello")
    with pytest.raises(RunlaneError, match=says):
        raise result.error or AssertionError


async def test_nothing_is_added_to_an_answer_that_has_ended() -> None:
    """Whoever the driver left behind is refused, and the terminal event stays the last one of its run."""
    turns: list[Turn] = []

    async def drive(turn: Turn) -> TurnFinished:
        turns.append(turn)
        await turn.emit(TextDelta("now"))
        return TurnFinished("stop")

    async with (
        opened(ScriptedModel("."), config=_driven(drive)) as scene,
        scene.runtime.subscribe(CONVERSATION) as all_,
    ):
        await scene.runtime.submit(CONVERSATION, "Hi").result
        with pytest.raises(UsageError, match="the turn has ended; no TextDelta"):
            await turns[0].emit(TextDelta("late"))
        with pytest.raises(RunlaneError):
            await turns[0].checkpoint()
        await scene.runtime.close()
        events = await heard(all_)
        view = await scene.store.load_run(CONVERSATION, turns[0].run.id)
    assert isinstance(events[-1], TerminalEvent)
    assert view is not None
    assert view.assistant is not None
    assert view.assistant.text == "now"


@pytest.mark.parametrize(("refusals", "text"), [(1, "durable, new"), (2, "durable"), (3, "")])
async def test_an_end_that_the_store_refuses_for_good_is_given_up_step_by_step(refusals: int, text: str) -> None:
    """First what rides along, then what is not durable yet, then the text: a run that cannot end would block all."""
    refused = 0

    def plan(call: StoreCall) -> Fault | None:
        nonlocal refused
        if refused == refusals or not any(isinstance(command, CommitRunTerminal) for command in call.commands):
            return None
        refused += 1
        return Fault(error=InvalidValueError("cannot be stored", argument="assistant"))

    async def drive(turn: Turn) -> TurnFinished:
        await turn.emit(TextDelta("durable"))
        await turn.checkpoint()
        await turn.emit(ReasoningDelta("hm"))
        await turn.emit(TextDelta(", new"))
        return TurnFinished("stop")

    async with opened(ScriptedModel("."), plan=plan, config=_driven(drive)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        assert await scene.store.list_active_runs(CONVERSATION) == ()
        following = await scene.runtime.submit(CONVERSATION, "And?").result
    assert (result.reason, result.text, type(result.error)) == ("runtime_failure", text, InvalidValueError)
    assert (following.reason, following.text) == ("success", "durable, new")


@pytest.mark.parametrize(
    ("drive", "argument"),
    [
        (lambda turn: turn.open_step(turn.messages, model="gpt").__aenter__(), "model"),
        (lambda turn: turn.tools.answer(["call"]), "calls"),
    ],
)
async def test_arguments_of_a_turn_are_named(drive: Callable[[Any], Awaitable[object]], argument: str) -> None:
    """Not by what happened to be missing of them."""
    async with opened(ScriptedModel("."), config=_driven(drive)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert isinstance(result.error, UsageError)
    assert result.error.argument == argument
