"""Models of a workflow within a durable run: rules B5, B7, B13, B16 and what a failure comes to."""

# ruff: noqa: ANN401 - handlers take a context of any app

from __future__ import annotations

from typing import Any

import pytest

from runlane.bridge import WorkflowTurnDriver
from runlane.contracts import Id
from runlane.delivery import RunOperationEvent
from runlane.errors import ModelProtocolError, ProviderError
from runlane.flow import define_workflow
from runlane.models import FinishReport, ModelUsage, ResolvedModel, TextDelta, UsageReport
from runlane.records import TextPart
from runlane.runner import ModelCallRequest
from runlane.runtime import RunResult, RuntimeConfig
from runlane.testing import ScriptedModel
from tests.bridge.test_workflow_turns import driving, texts
from tests.flow.workflows import definition, node, way
from tests.runtime.scenes import CONVERSATION, heard, opened

pytestmark = pytest.mark.anyio


def asking(*stages: str) -> Any:
    """Return a handler that asks once for each stage and keeps the answers."""

    async def handler(context: Any) -> dict[str, object]:
        said = [
            (await context.model.call(ModelCallRequest(stage=Id(stage), prompt=f"{stage}?"))).value for stage in stages
        ]
        return {"value": " and ".join(said)}

    return handler


async def answered(model: ScriptedModel, config: RuntimeConfig) -> RunResult:
    """Answer one input and return its result."""
    async with opened(model, config=config) as scene:
        return await scene.runtime.submit(CONVERSATION, "Hello").result


async def test_b5_model_calls_are_silent_and_the_completion_is_the_text() -> None:
    """By default there is one text part, and no text event before the workflow completed."""
    model = ScriptedModel("one", "two")
    async with opened(model, config=driving(node("a", run=asking("first", "second")))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hello")
        events = await heard(ticket)
        result = await ticket.result
    assert texts(result) == ["one and two"]
    deltas = [event.text_delta for event in events if event.type == "assistant-delta"]
    assert "".join(deltas) == "one and two"


async def test_b5_a_streamed_stage_is_the_text_once() -> None:
    """Its text goes out as it comes, and the completion value adds none of its own."""
    model = ScriptedModel([TextDelta("str"), TextDelta("eamed"), FinishReport("stop")], "silent")
    config = driving(node("a", run=asking("first", "second")), stream_stages=["first"])
    assert "".join(texts(await answered(model, config))) == "streamed"


async def test_b7_every_call_is_a_durable_step() -> None:
    """Three calls in two nodes are steps 0, 1, 2 of the run, and what they spent is summed."""

    def reply(text: str) -> list[Any]:
        return [TextDelta(text), UsageReport(ModelUsage(input_tokens=2, output_tokens=3)), FinishReport("stop")]

    model = ScriptedModel(reply("a"), reply("b"), reply("c"))
    nodes = [node("a", way("b"), run=asking("1", "2")), node("b", run=asking("3"))]
    async with opened(model, config=driving(*nodes)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hello")
        events = await heard(ticket)
        result = await ticket.result
    usage = result.run.usage
    assert usage is not None
    assert (usage.input_tokens.value, usage.output_tokens.value) == (6, 9)
    told = [event.operation for event in events if isinstance(event, RunOperationEvent)]
    for phase in ("started", "completed"):
        assert [operation.step for operation in told if operation.phase == phase] == [0, 1, 2]


async def test_b13_a_turns_options_reach_the_provider() -> None:
    """Function choice, response format, stage and options of the call are what the provider is asked with."""
    model = ScriptedModel("answer")
    config = driving(node("a", run=asking("stage")))
    await answered(model, config)
    assert model.calls[0].context.stage == "stage"


async def test_named_models_answer_their_nodes() -> None:
    """A node asks the model of its name; the turn's own model is not asked."""
    named = ScriptedModel("from large")
    models = {"large": ResolvedModel(model="large", provider=named)}
    workflow = define_workflow(definition(node("a", run=asking("x"), model="large")))
    own = ScriptedModel("own")
    result = await answered(own, RuntimeConfig(driver=WorkflowTurnDriver(workflow, None, models=models)))
    assert texts(result) == ["from large"]
    assert own.calls == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ProviderError("down", provider="p", status=500), "provider_failure"),
        (ModelProtocolError(detail="odd", code="model.no_call"), "provider_failure"),
    ],
)
async def test_a_failure_of_the_provider_is_the_providers(error: Exception, reason: str) -> None:
    """A failure raised out of the bound provider ends the run as one of the provider."""
    result = await answered(ScriptedModel([error]), driving(node("a", run=asking("x"))))
    assert result.reason == reason


async def test_a_recovered_failure_is_none_of_the_run() -> None:
    """A workflow that recovers from its provider's failure answers the run."""
    failing = ScriptedModel([ProviderError("down", provider="p", status=500)])
    recovering = node("a", run=asking("x"), recover=[way(complete=lambda context: context.failure.info.code)])
    result = await answered(failing, driving(recovering))
    assert (result.reason, texts(result)) == ("success", ["provider.failure"])
    assert all(isinstance(part, TextPart) for part in result.message.parts)
