"""Models of a workflow within a durable run: rules B5, B7, B13, B16 and what a failure comes to."""

# ruff: noqa: ANN401 - handlers take a context of any app

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import anyio
import pytest
from typing_extensions import override

from runlane.bridge import TurnProvider, WorkflowTurnDriver
from runlane.contracts import CancelToken, Id
from runlane.delivery import RunOperationEvent
from runlane.diagnostics import CreateDiagnosticsOptions
from runlane.errors import (
    AbortedError,
    BudgetError,
    ModelProtocolError,
    ProviderError,
    RunlaneError,
    StoreFullError,
    UsageError,
)
from runlane.flow import define_workflow
from runlane.models import FinishReport, ModelUsage, ResolvedModel, RetryPolicy, TextDelta, UsageReport
from runlane.records import TextPart
from runlane.runner import ModelCallRequest, ModelChildOptions, ModelOutputEvent, ModelRunner, ModelRunnerOptions
from runlane.runtime import (
    AgentProtocol,
    LoopConfig,
    ManagedLoopDriver,
    RunContext,
    RunResult,
    RuntimeConfig,
    Turn,
    TurnFinished,
    TurnOutcome,
)
from runlane.store import RecordRunOperation
from runlane.testing import FakeClock, Fault, Hold, ScriptedModel, StoreCall
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
async def test_b14_a_failure_of_the_provider_is_the_providers(error: Exception, reason: str) -> None:
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


async def test_b14_a_call_that_falls_silent_times_out_as_in_any_run() -> None:
    """The idle deadline of the runtime is armed around calls of nodes, and the run ends for that reason."""
    clock = FakeClock()
    hold = Hold()
    config = replace(driving(node("a", run=asking("x"))), loop=LoopConfig(idle_timeout=5))
    async with opened(ScriptedModel([hold, FinishReport("stop")]), config=config, clock=clock) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hello")
        await hold.reached()
        await anyio.wait_all_tasks_blocked()
        clock.tick(6)
        result = await ticket.result
    assert result.reason == "timeout"


async def test_b17_a_workflow_recovers_by_itself_and_nothing_is_tried_again_behind_it() -> None:
    """The retry of the runtime is the managed loop's (ruling 12): a node sees the failure of its first call."""
    model = ScriptedModel([ProviderError("down", provider="p", status=503, retryable=True)], "never")
    config = replace(driving(node("a", run=asking("x"))), loop=LoopConfig(retry=RetryPolicy(max_attempts=3)))
    result = await answered(model, config)
    assert (result.reason, len(model.calls)) == ("provider_failure", 1)


async def test_b3_acceptance_is_asked_about_a_workflows_answer() -> None:
    """An empty completion under a runtime that requires output is rejected, as for any driver."""
    config = replace(
        driving(node("a", way(complete=lambda _: ""))), protocol=AgentProtocol(terminal_acceptance="require-output")
    )
    assert (await answered(ScriptedModel("never"), config)).reason == "output_rejected"


async def test_b27_a_failing_output_changes_no_run() -> None:
    """Nothing durable depends on diagnostics: the output breaks on every event, and the answer is the answer."""

    class Broken:
        def accepts(self, _: object, /) -> bool:
            return True

        async def write(self, event: object, /) -> None:
            raise RuntimeError(event)

    config = driving(node("a", run=asking("x")), diagnostics=CreateDiagnosticsOptions(output=Broken()))
    assert texts(await answered(ScriptedModel("said"), config)) == ["said"]


class Asking:
    """A driver that asks its model as a host of the core would, whatever that is."""

    name = "asking"

    def __init__(self, ask: Any) -> None:
        """Ask with a runner over the turn's provider."""
        self._ask = ask

    async def drive(self, turn: Turn, /) -> TurnOutcome:
        """Ask, and answer with what was said."""
        runner = ModelRunner(ModelRunnerOptions(provider=TurnProvider(turn)))
        await turn.emit(TextDelta(await self._ask(runner)))
        return TurnFinished("stop")


async def test_b7_overlapping_calls_of_one_turn_are_steps_one_after_another() -> None:
    """Three children ask at once: the provider has one call open at a time, and each is a step of its own."""
    open_now, most = 0, 0

    class Watched(ScriptedModel):
        @override
        @asynccontextmanager
        async def open_stream(self, messages: Any, context: Any, /) -> AsyncIterator[Any]:
            nonlocal open_now, most
            async with super().open_stream(messages, context) as parts:
                open_now += 1
                most = max(most, open_now)
                await anyio.wait_all_tasks_blocked()
                yield parts
                open_now -= 1

    async def ask(runner: ModelRunner) -> str:
        said: list[str] = []

        async def one(child: ModelRunner, stage: str) -> None:
            said.append((await child.call(ModelCallRequest(stage=Id(stage), prompt=stage))).value)

        async with anyio.create_task_group() as tasks:
            for stage in ("a", "b"):
                tasks.start_soon(one, runner.child(), stage)
            tasks.start_soon(one, runner, "root")
        return ",".join(said)

    model = Watched("1", "2", "3")
    async with opened(model, config=RuntimeConfig(driver=Asking(ask))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hello")
        events = await heard(ticket)
        result = await ticket.result
    assert (texts(result), most) == (["1,2,3"], 1)
    told = [event.operation for event in events if isinstance(event, RunOperationEvent)]
    assert [operation.step for operation in told if operation.phase == "completed"] == [0, 1, 2]


async def test_b16_a_refused_budget_leaves_no_operation() -> None:
    """The runner charges first: what it refuses never reaches the turn."""

    async def ask(runner: ModelRunner) -> str:
        child = runner.child(ModelChildOptions(settings={"max_calls": 1}))
        first = await child.call(ModelCallRequest(stage="a", prompt="a"))
        with pytest.raises(BudgetError):
            await child.call(ModelCallRequest(stage="b", prompt="b"))
        return first.value

    async with opened(ScriptedModel("said"), config=RuntimeConfig(driver=Asking(ask))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hello")
        events = await heard(ticket)
        assert texts(await ticket.result) == ["said"]
    told = [event.operation.phase for event in events if isinstance(event, RunOperationEvent)]
    assert told.count("started") == 1


async def test_b13_b16_a_failed_admission_calls_nobody_and_leaves_the_charge_spent() -> None:
    """If the request cannot be put on record, the provider is not asked, and the runner's call is spent."""
    left: list[int] = []

    async def ask(runner: ModelRunner) -> str:
        before = runner.budget.available
        try:
            await runner.call(ModelCallRequest(stage="a", prompt="a"))
        finally:
            left.append(before - runner.budget.available)
        return "never"

    def plan(call: StoreCall) -> Fault | None:
        is_admission = any(isinstance(command, RecordRunOperation) for command in call.commands)
        return Fault(error=StoreFullError("full")) if is_admission else None

    model = ScriptedModel("never asked")
    async with opened(model, config=RuntimeConfig(driver=Asking(ask)), plan=plan) as scene:
        with suppress(RunlaneError):
            await scene.runtime.submit(CONVERSATION, "Hello").result
    assert (model.calls, left) == ([], [1])


async def test_a_call_that_waits_for_another_is_cancelled_alone() -> None:
    """Its own token ends its wait; it leaves no operation, and the open call goes on."""
    hold = Hold()

    async def ask(runner: ModelRunner) -> str:
        token, reasons = CancelToken(), []

        async def second() -> None:
            child = runner.child(ModelChildOptions(signal=token))
            try:
                await child.call(ModelCallRequest(stage=Id("b"), prompt="b"))
            except AbortedError as error:
                reasons.append(error.reason)
            hold.release()

        async with anyio.create_task_group() as tasks:

            async def stop() -> None:
                await hold.reached()
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(second)
                await anyio.wait_all_tasks_blocked()
                token.cancel("not needed")

            tasks.start_soon(stop)
            first = await runner.call(ModelCallRequest(stage=Id("a"), prompt="a"))
        return f"{first.value} {reasons}"

    model = ScriptedModel([hold, TextDelta("a"), FinishReport("stop")], "never")
    assert texts(await answered(model, RuntimeConfig(driver=Asking(ask)))) == ["a ['not needed']"]
    assert len(model.calls) == 1


async def test_a_call_from_within_the_reading_of_another_is_refused() -> None:
    """It would wait for itself for ever."""
    caught: list[BaseException] = []

    async def ask(runner: ModelRunner) -> str:
        inner = runner.child()

        async def sink(event: ModelOutputEvent) -> None:
            try:
                await inner.call(ModelCallRequest(stage=event.stage, prompt="x"))
            except UsageError as error:
                caught.append(error)

        outer = runner.child(ModelChildOptions(output=sink))
        return (await outer.call(ModelCallRequest(stage=Id("a"), prompt="a"))).value

    assert texts(await answered(ScriptedModel("yes"), RuntimeConfig(driver=Asking(ask)))) == ["yes"]
    assert len(caught) == 1


async def test_b2_a_driver_may_be_chosen_for_each_run() -> None:
    """The function gets the run's context; what it gives must be a driver."""

    async def ask(runner: ModelRunner) -> str:
        return (await runner.call(ModelCallRequest(stage=Id("a"), prompt="a"))).value + "!"

    def choose(context: RunContext[Any]) -> Any:
        return {"loop": ManagedLoopDriver(), "own": Asking(ask)}.get(context.context)

    async with opened(ScriptedModel("said"), config=RuntimeConfig(driver=choose)) as scene:
        results = [
            await scene.runtime.submit(CONVERSATION, "Hello", context=name).result for name in ("loop", "own", "none")
        ]
    assert [texts(result) for result in results] == [["said"], ["said!"], []]
    assert isinstance(results[2].error, UsageError)


async def test_b2_a_function_that_would_have_to_be_awaited_is_refused() -> None:
    """When it is configured, or when it gives an awaitable; nothing is left unawaited."""

    async def choose(context: RunContext[Any]) -> Any:
        return context

    def hidden(context: RunContext[Any]) -> Any:
        return choose(context)

    with pytest.raises(UsageError, match="driver"):
        RuntimeConfig(driver=choose)  # type: ignore[arg-type]
    result = await answered(ScriptedModel("x"), RuntimeConfig(driver=hidden))
    assert (result.reason, isinstance(result.error, UsageError)) == ("runtime_failure", True)
