"""Drivers that do what they must not: the run ends once, on record, and says which mistake it was."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from runlane.delivery import TerminalEvent
from runlane.errors import InvalidValueError, RunlaneError, UsageError
from runlane.models import ReasoningDelta, TextDelta
from runlane.records import (
    TextPart,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
)
from runlane.runtime import RuntimeConfig, Turn, TurnFinished, TurnStopped
from runlane.store import CommitRunTerminal
from runlane.testing import Fault, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, heard, opened

pytestmark = pytest.mark.anyio


class _Driver:
    """Drives by a function."""

    name = "d"

    def __init__(self, function: Callable[[Turn], Awaitable[Any]]) -> None:
        self.function = function

    async def drive(self, turn: Turn, /) -> Any:  # noqa: ANN401 - what is wrong with it
        """Do whatever the function does."""
        return await self.function(turn)


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


def _emits(*parts: Any) -> Callable[[Turn], Awaitable[Any]]:  # noqa: ANN401 - anything is given
    async def drive(turn: Turn) -> TurnFinished:
        for part in parts:
            await turn.emit(part)
        return TurnFinished("stop")

    return drive


def _answers(emitted: list[Any], *given: Any) -> Callable[[Turn], Awaitable[Any]]:  # noqa: ANN401 - as above
    async def drive(turn: Turn) -> TurnFinished:
        for part in emitted:
            await turn.emit(part)
        await turn.tools.answer(*given)
        return TurnFinished("stop")

    return drive


def _call(call_id: str = "k", arguments: str = "{}") -> ToolCallPart:
    return ToolCallPart(call_id=call_id, tool_name="work", arguments=arguments, input={})


def _result(**fields: str) -> ToolResultPart:
    return ToolResultPart.model_validate({"call_id": "k", "tool_name": "work", "outcome": "success", **fields})


_UNCHECKED = ToolCallPart.model_construct(**{**_call().to_json(), "call_id": 5})  # type: ignore[arg-type]
_ASKED = ToolApprovalRequestPart(approval_id="a", call_id="k")
_AGREED = ToolApprovalResponsePart(approval_id="a", approved=True)

_MISUSES: dict[str, tuple[Callable[[Any], Awaitable[object]], str, list[str]]] = {
    "a result without its call": (_emits(_result()), "part.call_id", []),
    "a result twice": (_emits(_call(), _result(), _result()), "part.call_id", ["tool-call", "tool-result"]),
    "a result of another tool": (_emits(_call(), _result(tool_name="other")), "part.tool_name", ["tool-call"]),
    "a call twice": (_emits(_call(), _call()), "part.call_id", ["tool-call"]),
    "a call after its result": (
        _emits(_call(), _result(), _call()),
        "part.call_id",
        ["tool-call", "tool-result"],
    ),
    "a call made around its checks": (_emits(_UNCHECKED), "part.call_id", []),
    "a request without its call": (_emits(_ASKED), "part.call_id", []),
    "a request after the result": (_emits(_call(), _result(), _ASKED), "part.call_id", ["tool-call", "tool-result"]),
    "a request twice": (_emits(_call(), _ASKED, _ASKED), "part.call_id", ["tool-call", "tool-approval-request"]),
    "a consent nobody asked for": (_emits(_call(), _AGREED), "part.approval_id", ["tool-call"]),
    "a consent twice": (
        _emits(_call(), _ASKED, _AGREED, _AGREED),
        "part.approval_id",
        ["tool-call", "tool-approval-request", "tool-approval-response"],
    ),
    "a part of a record": (_emits(TextPart(text="Hi")), "part", []),
    "a text": (_emits("Hi"), "part", []),
    "a delta of no text": (_emits(TextDelta(5)), "part", []),  # type: ignore[arg-type]
    "an answer to a call that was not emitted": (_answers([], [_call()]), "calls.0", []),
    "an answer to a call with other arguments": (
        _answers([_call()], [_call(arguments='{"x":1}')]),
        "calls.0",
        ["tool-call"],
    ),
    "an answer to one call twice": (_answers([_call()], [_call(), _call()]), "calls.1", ["tool-call"]),
    "an answer after the result": (
        _answers([_call(), _result()], [_call()]),
        "calls.0",
        ["tool-call", "tool-result"],
    ),
    "an answer to no list": (_answers([_call()], None), "calls", ["tool-call"]),
    "an answer to a text": (_answers([_call()], ["call"]), "calls.0", ["tool-call"]),
    "an answer by a list of names": (_answers([_call()], [_call()], ["work"]), "active", ["tool-call"]),
    "a step of a model's name": (
        lambda turn: turn.open_step(turn.messages, model="gpt").__aenter__(),
        "model",
        [],
    ),
    "a step of a text": (lambda turn: turn.open_step("Hi").__aenter__(), "messages", []),
    "a step of nothing": (lambda turn: turn.open_step(None).__aenter__(), "messages", []),
    "a step of texts": (lambda turn: turn.open_step(["Hi"]).__aenter__(), "messages.0", []),
    "a step of a mapping": (lambda turn: turn.open_step([*turn.messages, {}]).__aenter__(), "messages.1", []),
    "a step with a function": (
        lambda turn: turn.open_step(turn.messages, functions=[_emits]).__aenter__(),
        "functions.0",
        [],
    ),
    "a step with one function": (lambda turn: turn.open_step((), functions=_emits).__aenter__(), "functions", []),
    "a boundary of messages": (lambda turn: turn.boundary(turn.messages), "prompt", []),
    "a restart after no error": (lambda turn: turn.restart("no"), "error", []),
    "distinct calls of nothing": (lambda turn: turn.tools.distinct(None), "calls", []),
    "functions of one name": (lambda turn: turn.tools.functions("work"), "active", []),
}


@pytest.mark.parametrize("name", list(_MISUSES))
async def test_a_misuse_of_a_turn_is_refused_by_name(name: str) -> None:
    """The run ends with what was right so far, nobody is asked, no tool is entered, and the next run goes on."""
    entered: list[str] = []

    def work() -> str:
        """Work."""
        entered.append("work")
        return "done"

    drive, argument, parts = _MISUSES[name]
    model, driver = ScriptedModel("."), _Driver(drive)
    async with opened(model, config=RuntimeConfig(driver=driver), tools=[work]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        driver.function = _emits(TextDelta("fine"))
        following = await scene.runtime.submit(CONVERSATION, "And?").result
    assert isinstance(result.error, UsageError | InvalidValueError)
    assert (result.reason, result.error.argument) == ("runtime_failure", argument)
    assert [part.type for part in result.message.parts] == parts
    assert (following.reason, following.text) == ("success", "fine")
    assert (entered, model.calls) == ([], [])


async def test_a_call_that_is_carried_out_at_this_moment_is_not_carried_out_again() -> None:
    """Two tasks of a driver that answer one call enter its tool once."""
    entered: list[str] = []
    refused: list[InvalidValueError] = []

    async def work() -> str:
        """Work."""
        entered.append("work")
        await anyio.lowlevel.checkpoint()
        return "done"

    async def drive(turn: Turn) -> TurnFinished:
        await turn.emit(_call())

        async def answer() -> None:
            try:
                await turn.tools.answer([_call()])
            except InvalidValueError as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            tasks.start_soon(answer)
        return TurnFinished("stop")

    async with opened(ScriptedModel("."), config=_driven(drive), tools=[work]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (entered, [error.argument for error in refused]) == (["work"], ["calls.0"])
    assert [part.type for part in result.message.parts] == ["tool-call", "tool-result"]


async def test_a_call_that_cannot_be_stored_leaves_its_id_free() -> None:
    """A driver that mends its call may give it the same id; the refused one has left nothing."""

    async def drive(turn: Turn) -> TurnFinished:
        with pytest.raises(InvalidValueError, match=r"tool-call\.input"):
            await turn.emit(_call().model_copy(update={"input": 10**5000}))
        with pytest.raises(InvalidValueError, match=r"part\.call_id"):
            await turn.emit(_result())
        await turn.emit(_call())
        return TurnFinished("stop")

    async with opened(ScriptedModel("."), config=_driven(drive)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, [part.type for part in result.message.parts]) == ("success", ["tool-call"])
