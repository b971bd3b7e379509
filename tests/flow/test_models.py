"""Models and tools within a workflow: rules F1 to F4, F10, C2, W31 to W34."""

# ruff: noqa: ANN401 - handlers and routes take a context of any app, also where they ignore it

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from runlane.contracts import CancelToken, Id
from runlane.diagnostics import CreateDiagnosticsOptions, create_diagnostics
from runlane.errors import BudgetError, EngineBindingError, UsageError, WorkflowContractError
from runlane.flow import (
    AgentCoreEngine,
    AgentCoreEngineOptions,
    AgentCoreEngineSetup,
    AgentModelBinding,
    StepComplete,
    WorkflowNode,
    define_workflow,
)
from runlane.runner import (
    ModelCallRequest,
    ModelRunner,
    ModelRunnerOptions,
    ModelRunnerPorts,
    ModelRunnerSettings,
)
from runlane.testing import ScriptedModel
from runlane.tools import ToolRegistry, ToolRegistryOptions, tool
from tests.flow.engines import Listener
from tests.flow.workflows import definition, node, way

pytestmark = pytest.mark.anyio

ASK = ModelCallRequest(stage=Id("ask"), prompt="Well?")


def engine(
    *nodes: WorkflowNode[Any],
    model: ScriptedModel | None = None,
    models: Mapping[str, AgentModelBinding] | None = None,
    tools: Any = None,
    max_calls: int = 64,
    **options: Any,
) -> AgentCoreEngine[Any]:
    """Return an engine with a model, or a catalogue of them, and a workflow of these nodes."""
    binding = AgentModelBinding(provider=model or ScriptedModel(*["answer"] * 9)) if models is None else None
    workflow = define_workflow(definition(*nodes, max_calls=max_calls))
    return AgentCoreEngine(
        AgentCoreEngineSetup(model=binding, models=models, tools=tools, workflow=workflow, app=None, **options)
    )


def asking(times: int = 1) -> Any:
    """Return a handler that asks the model."""

    async def handler(context: Any) -> dict[str, object]:
        return {"value": [(await context.model.call(ASK)).value for _ in range(times)]}

    return handler


def counting(entered: list[int]) -> ToolRegistry[Any]:
    """Return a registry with a tool that notes that it was entered."""

    @tool(id="count")
    async def count() -> int:
        """Count."""
        entered.append(1)
        return len(entered)

    return ToolRegistry(ToolRegistryOptions(tools=[count]))


async def test_a_node_asks_its_model_and_its_tools() -> None:
    """Both answer with a value and a receipt."""

    async def handler(context: Any) -> dict[str, object]:
        said = await context.model.call(ASK)
        counted = await context.model.invoke_tool("count", {})
        assert said.receipt.stage == "ask"
        assert counted.receipt.tool_id == "count"
        return {"value": (said.value, counted.value)}

    result = await engine(node("a", run=handler), tools=counting([])).run()
    assert result.value == ("answer", 1)


async def test_w31_every_call_takes_one_of_the_runs_shared_allowance() -> None:
    """Over all nodes and both kinds; refused, neither provider nor tool is touched."""
    entered: list[int] = []
    model = ScriptedModel(*["answer"] * 9)

    async def both(context: Any) -> None:
        await context.model.call(ASK)
        await context.model.invoke_tool("count", {})

    nodes = [node("a", way("b"), run=both), node("b", run=both)]
    await engine(*nodes, model=model, tools=counting(entered), max_calls=4).run()
    assert (len(model.calls), len(entered)) == (2, 2)
    for limit, expected in ((3, (4, 3)), (2, (5, 4))):
        with pytest.raises(BudgetError) as caught:
            await engine(*nodes, model=model, tools=counting(entered), max_calls=limit).run()
        assert (caught.value.allowance, caught.value.limit) == ("workflow_calls", limit)
        assert (len(model.calls), len(entered)) == expected


async def test_w32_preparing_and_measuring_take_nothing() -> None:
    """A prepared call is paid for when it is made."""

    async def handler(context: Any) -> dict[str, object]:
        prepared = [await context.model.prepare(ASK) for _ in range(5)]
        await prepared[0].measure()
        return {"value": (await context.model.call(prepared[0])).value}

    assert (await engine(node("a", run=handler), max_calls=1).run()).value == "answer"


async def test_w33_an_attempt_the_runner_refuses_stays_spent() -> None:
    """The shared allowance is taken first."""
    tight = ModelRunnerSettings(max_calls=1)

    async def handler(context: Any) -> dict[str, object]:
        refused = []
        for _ in range(3):
            try:
                await context.model.call(ASK)
            except BudgetError as error:
                refused.append(error.allowance)
        return {"value": refused}

    binding = AgentModelBinding(provider=ScriptedModel("answer"), settings=tight)
    workflow = define_workflow(definition(node("a", run=handler), max_calls=2))
    result = await AgentCoreEngine(AgentCoreEngineSetup(model=binding, workflow=workflow, app=None)).run()
    assert result.value == ["model_calls", "workflow_calls"]


async def test_w34_a_node_gets_the_model_of_its_name() -> None:
    """With a catalogue and no name, using the model is refused."""
    models = {name: AgentModelBinding(provider=ScriptedModel(f"from {name}")) for name in ("small", "large")}
    result = await engine(node("a", run=asking(), model="large"), models=models).run()
    assert result.value == ["from large"]
    with pytest.raises(WorkflowContractError, match="small") as caught:
        await engine(node("a", run=asking()), models=models).run()
    assert caught.value.rule == "unknown_model"


async def test_f4_model_names_are_checked_before_any_handler() -> None:
    """An unknown name, or a name where there is one model, is refused when both are known."""
    models = {"small": AgentModelBinding(provider=ScriptedModel("answer"))}
    with pytest.raises(WorkflowContractError) as caught:
        engine(node("a", run=asking(), model="huge"), models=models)
    assert (caught.value.rule, caught.value.node_id) == ("unknown_model", "a")
    with pytest.raises(WorkflowContractError):
        engine(node("a", run=asking(), model="huge"))
    later: AgentCoreEngine[Any] = AgentCoreEngine(AgentCoreEngineOptions())
    later.bind_workflow(define_workflow(definition(node("a", model="huge"))), None)
    with pytest.raises(WorkflowContractError):
        later.bind_models(models)
    nested = define_workflow(definition(node("x", model="huge")))
    entered: list[int] = []

    async def handler(context: Any) -> None:
        entered.append(1)
        await context.run_workflow(nested, {})

    with pytest.raises(WorkflowContractError):
        await engine(node("a", run=handler)).run()
    assert entered == [1]


async def test_f1_the_model_slot_has_one_shape() -> None:
    """Once bound, neither shape can be bound again."""
    bound: AgentCoreEngine[Any] = AgentCoreEngine(AgentCoreEngineOptions())
    binding = AgentModelBinding(provider=ScriptedModel("answer"))
    bound.bind_model(binding)
    with pytest.raises(EngineBindingError) as caught:
        bound.bind_model(binding)
    assert caught.value.slot == "model"
    with pytest.raises(EngineBindingError) as caught:
        bound.bind_models({"a": binding})
    assert caught.value.slot == "model"
    with pytest.raises(UsageError, match="models"):
        AgentCoreEngine[Any](AgentCoreEngineOptions()).bind_models({})


def _runner(**ports: Any) -> ModelRunner:
    return ModelRunner(ModelRunnerOptions(provider=ScriptedModel("a", "b"), ports=ModelRunnerPorts(**ports)))


async def test_f3_c2_a_binding_brings_no_scope_of_its_own() -> None:
    """A ready runtime with a token or diagnostics is refused; one without is used as it is."""
    for ports in ({"signal": CancelToken()}, {"diagnostics": create_diagnostics(CreateDiagnosticsOptions())}):
        with pytest.raises(EngineBindingError) as caught:
            AgentModelBinding(runtime=_runner(**ports))
        assert caught.value.slot == "model"
    wrongs: list[dict[str, Any]] = [{}, {"provider": ScriptedModel("a"), "runtime": _runner()}]
    for wrong in wrongs:
        with pytest.raises(UsageError, match="binding"):
            AgentModelBinding(**wrong)
    runner = _runner()
    workflow = define_workflow(definition(node("a", run=asking(2))))
    setup = AgentCoreEngineSetup(model=AgentModelBinding(runtime=runner), workflow=workflow, app=None)
    assert (await AgentCoreEngine(setup).run()).value == ["a", "b"]
    assert runner.call_count == 2


async def test_f10_every_run_has_model_budgets_of_its_own() -> None:
    """A runner's own limit of one call holds per run."""
    binding = AgentModelBinding(provider=ScriptedModel("a", "b"), settings=ModelRunnerSettings(max_calls=1))
    workflow = define_workflow(definition(node("a", run=asking())))
    bound: AgentCoreEngine[Any] = AgentCoreEngine(AgentCoreEngineSetup(model=binding, workflow=workflow, app=None))
    assert [(await bound.run()).value, (await bound.run()).value] == [["a"], ["b"]]


async def test_f15_a_step_reaches_its_models() -> None:
    """The one model, or those of the catalogue by name; calls of a step are the model's own affair."""

    async def one(context: Any) -> StepComplete:
        return StepComplete((await context.model.call(ASK)).value)

    async def named(context: Any) -> StepComplete:
        return StepComplete([(name, (await context.models[name].call(ASK)).value) for name in context.models])

    single: AgentCoreEngine[Any] = AgentCoreEngine(AgentCoreEngineOptions())
    single.bind_model(AgentModelBinding(provider=ScriptedModel("answer")))
    assert (await single.run(one)).value == "answer"
    catalogue: AgentCoreEngine[Any] = AgentCoreEngine(AgentCoreEngineOptions())
    catalogue.bind_models({name: AgentModelBinding(provider=ScriptedModel(name)) for name in ("x", "y")})
    assert (await catalogue.run(named)).value == [("x", "x"), ("y", "y")]


async def test_facts_of_models_and_tools_stand_under_the_visit() -> None:
    """Their spans are children of the visit's, and their content is told only where it is accepted."""
    listener = Listener()

    async def handler(context: Any) -> None:
        await context.model.call(ASK)
        await context.model.invoke_tool("count", {})

    scope = listener.scope(accept_content=False)
    await engine(node("a", run=handler), tools=counting([]), diagnostics=scope).run()
    [visit] = listener.named("node.entered")
    for event in listener.named("model.started", "model.finished", "tool.started", "tool.finished"):
        assert event.identity.parent_span_id == visit.identity.span_id
        assert event.identity.node_id == "a"
    assert len(listener.named("model.finished", "tool.finished")) == 2
    assert listener.named("model.input", "model.output", "tool.input", "tool.output") == []
