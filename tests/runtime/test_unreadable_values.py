"""Values no record can hold, from a model and from a tool: told as that, and the conversation stays readable."""

from typing import Any

import pytest

from runlane.records import ToolCallPart, ToolResultPart
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel
from runlane.tools import tool
from tests.runtime.scenes import CONVERSATION, opened
from tests.runtime.test_tools import called

pytestmark = pytest.mark.anyio


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param('{"value":' + "[" * 200 + "]" * 200 + "}", id="deep"),
        pytest.param('{"value":' + "[" * 250 + "]" * 250 + "}", id="deeper"),
        pytest.param('{"value":' + "9" * 4_301 + "}", id="a long integer"),
    ],
)
async def test_arguments_no_record_can_hold_go_back_to_the_model(arguments: str) -> None:
    """They are kept as text without an input; no tool runs, and the conversation can be read and goes on."""
    seen: list[object] = []

    @tool
    async def take(value: Any) -> str:  # noqa: ANN401 - whatever the model says
        """Take anything."""
        seen.append(value)
        return "taken"

    model = ScriptedModel(called(("c1", "take", arguments)), "Sorry.", "Bye.")
    async with MemoryStore() as store:
        async with opened(model, store=store, tools=[take]) as scene:
            result = await scene.runtime.submit(CONVERSATION, "Take it.").result
        async with opened(model, store=store, tools=[take]) as scene:
            again = await scene.runtime.submit(CONVERSATION, "Bye.").result
        snapshot = await store.load_snapshot(CONVERSATION)
    assert (result.text, again.text, seen) == ("Sorry.", "Bye.", [])
    call, refused, _ = snapshot.messages[1].parts
    assert isinstance(call, ToolCallPart)
    assert (call.arguments, call.input) == (arguments, None)
    assert isinstance(refused, ToolResultPart)
    assert refused.outcome == "error"


@pytest.mark.parametrize("depth", [186, 187, 250])
async def test_an_output_no_record_can_hold_is_told_as_that(depth: int) -> None:
    """What a tool returns is on record as it is, or as a placeholder; the conversation can be read and goes on."""

    @tool
    async def give() -> Any:  # noqa: ANN401 - nested as deep as is asked
        """Give something deep."""
        return _nested(depth)

    model = ScriptedModel(called(("c1", "give", "{}")), "Thanks.", "Bye.")
    async with MemoryStore() as store:
        async with opened(model, store=store, tools=[give]) as scene:
            assert (await scene.runtime.submit(CONVERSATION, "Give.").result).text == "Thanks."
        async with opened(model, store=store, tools=[give]) as scene:
            assert (await scene.runtime.submit(CONVERSATION, "Bye.").result).text == "Bye."
        given = (await store.load_snapshot(CONVERSATION)).messages[1].parts[1]
    assert isinstance(given, ToolResultPart)
    assert given.output == (_nested(depth) if depth == 186 else {"message": "Non-JSON tool output omitted"})
