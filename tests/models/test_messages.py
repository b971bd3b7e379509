"""The message vocabulary: what each message may hold, and what a request must add up to."""

# ruff: noqa: ANN401 - wrong on purpose

from __future__ import annotations

from typing import Any

import pytest

from runlane.contracts import Id
from runlane.errors import ModelProtocolError
from runlane.models import (
    AnyModelMessage,
    ModelAssistantToolMessage,
    ModelFunction,
    ModelImage,
    ModelMessage,
    ModelOptions,
    ModelToolResultMessage,
    ModelUsage,
    validate_messages,
)
from runlane.records import ReasoningPart, TextPart, ToolApprovalRequestPart
from runlane.runner import ModelCallRequest, ModelRunner, ModelRunnerOptions, ModelRunnerSettings
from runlane.testing import ScriptedModel
from tests.models.messages import call, result

IMAGE = ModelImage(media_type="image/png", data=b"x")
TEXT = TextPart(text="x")


@pytest.mark.parametrize(
    ("role", "items"),
    [
        ("user", (ReasoningPart(text="x"),)),
        ("assistant", (IMAGE,)),
        ("system", (IMAGE,)),
        ("assistant", (call("1"),)),
        ("user", (result("1", "x"),)),
        ("tool", (TEXT,)),
        ("nobody", ()),
        (["user"], ()),
        (None, ()),
    ],
)
def test_m1_a_message_holds_what_its_role_may(role: Any, items: Any) -> None:
    """Anything else is refused by the constructor, with one kind of error."""
    with pytest.raises(ModelProtocolError):
        ModelMessage(role, items)


@pytest.mark.parametrize(
    "items", [(), (IMAGE,), (call("1"), call("1")), (result("1", "x"),), (call("1"), TEXT, call("2"), call("1"))]
)
def test_m1_an_assistant_with_calls_holds_no_image_and_no_id_twice(items: Any) -> None:
    """Nor a result, nor nothing."""
    with pytest.raises(ModelProtocolError):
        ModelAssistantToolMessage(items)


@pytest.mark.parametrize("items", [(), (TEXT,), (IMAGE,), (call("1"),)])
def test_m1_a_tool_turn_holds_results_only(items: Any) -> None:
    """No image, text or call, and not nothing."""
    with pytest.raises(ModelProtocolError):
        ModelToolResultMessage(items)


@pytest.mark.parametrize("given", [{}, {"data": b"x", "url": "https://x.org"}])
def test_m1_an_image_is_one_thing(given: Any) -> None:
    """Bytes or an address, of a type models see."""
    with pytest.raises(ModelProtocolError):
        ModelImage(media_type="image/png", **given)
    with pytest.raises(ModelProtocolError):
        ModelImage(media_type="image/tiff", data=b"x")


def asking(*ids: str) -> ModelAssistantToolMessage:
    """Return a message with calls."""
    return ModelAssistantToolMessage.of("", [call(one) for one in ids])


def answering(*ids: str) -> ModelToolResultMessage:
    """Return a message with results."""
    return ModelToolResultMessage(tuple(result(one, "x") for one in ids))


USER = ModelMessage.user("Hello")


@pytest.mark.parametrize(
    "messages",
    [
        [USER, answering("1")],
        [USER, asking("1"), answering("2")],
        [USER, asking("1"), answering("1", "1")],
        [USER, asking("1"), answering("1"), answering("1")],
        [USER, asking("1"), USER],
        [USER, asking("1", "2"), answering("1"), ModelMessage.assistant("x")],
        [USER, asking("1"), asking("2")],
    ],
)
def test_m2_tool_traffic_must_add_up(messages: list[AnyModelMessage]) -> None:
    """A result of a call nobody declared, a second one, a call still owed one when another turn follows."""
    with pytest.raises(ModelProtocolError):
        validate_messages(messages)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER, asking("1", "2"), answering("2"), answering("1"), USER],
        [USER, asking("1")],
        [
            USER,
            ModelAssistantToolMessage((call("1"), ToolApprovalRequestPart(approval_id="a", call_id="1"))),
            USER,
        ],
    ],
)
def test_m2_what_adds_up_passes(messages: list[AnyModelMessage]) -> None:
    """Results in any order and number of messages; the last calls may be open, and one that waits for consent."""
    validate_messages(messages)


@pytest.mark.anyio
async def test_m2_a_runner_refuses_such_messages_before_it_charges() -> None:
    """Nothing is spent and nobody is asked."""
    model = ScriptedModel("x")
    runner = ModelRunner(ModelRunnerOptions(provider=model))
    with pytest.raises(ModelProtocolError):
        await runner.call(ModelCallRequest(stage="s", messages=[USER, answering("1")]))
    assert (runner.call_count, model.calls) == (0, [])


@pytest.mark.anyio
async def test_m4_reported_usage_decides_nothing() -> None:
    """However much a provider says it spent, the next call is admitted as if it had said nothing."""
    from runlane.models import FinishReport, TextDelta, UsageReport  # noqa: PLC0415 - one use

    spent = UsageReport(ModelUsage(input_tokens=10**15, output_tokens=10**15))
    model = ScriptedModel([TextDelta("x"), spent, FinishReport("stop")])
    runner = ModelRunner(ModelRunnerOptions(provider=model, settings=ModelRunnerSettings(max_calls=2)))
    for _ in range(2):
        found = await runner.call(ModelCallRequest(stage="s", prompt="x"))
        assert found.receipt.usage == spent.usage
    assert runner.budget.available == 0


def test_m4_an_unreported_figure_is_absent() -> None:
    """It is None, not 0."""
    usage = ModelUsage(input_tokens=0)
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (0, None, None)


@pytest.mark.anyio
async def test_m5_options_are_passed_on_untouched() -> None:
    """No clamping, no range check, no renaming, extra fields included."""
    model = ScriptedModel("x")
    options = ModelOptions(temperature=7, top_p=-1, max_output_tokens=0, stop=("",), extra={"own_field": [1]})
    await ModelRunner(ModelRunnerOptions(provider=model)).call(ModelCallRequest(stage="s", prompt="x", options=options))
    assert model.calls[0].context.options == options
    assert model.calls[0].context.stage == Id("s")


def test_m6_a_function_is_a_description_only() -> None:
    """It has a name, words, a schema and a wish; nothing to run."""
    function = ModelFunction(name="f", description="Finds.", parameters={"type": "object"})
    assert {name for name in dir(function) if not name.startswith("_")} == {
        "description",
        "name",
        "parameters",
        "strict",
    }
    assert function.strict is False
