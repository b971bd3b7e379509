"""What the type checkers say of the workflow engine; never executed, only checked."""

from __future__ import annotations

from typing import Any, assert_type

from runlane.contracts import ModelResult, ToolResult
from runlane.flow import (
    AgentCoreEngine,
    AgentCoreEngineOptions,
    AgentWorkflow,
    AgentWorkflowDefinition,
    EngineResult,
    WorkflowContext,
    WorkflowNode,
    define_workflow,
    route,
)
from runlane.runner import ModelCallRequest, PreparedModelCall, TransportKey


class Desk:
    """A host's dependencies."""

    name = "desk"


def plain(context: WorkflowContext[Desk]) -> dict[str, object]:
    """Read the host's dependencies with their type."""
    assert_type(context.app, Desk)
    return {"name": context.app.name}


async def waiting(context: WorkflowContext[Desk]) -> None:
    """Change nothing, later."""
    assert_type(context.visit, int)


def typed_workflow() -> AgentWorkflow[Desk]:
    """Handlers may be plain or coroutines, ids plain text."""
    nodes = [
        WorkflowNode[Desk](id="a", run=plain, routes=[route("b", when=lambda context: context.app.name == "desk")]),
        WorkflowNode[Desk](id="b", run=waiting, routes=[route(complete="name")]),
    ]
    workflow = define_workflow(AgentWorkflowDefinition[Desk](id="w", start="a", nodes=nodes))
    assert_type(workflow, AgentWorkflow[Desk])
    return workflow


async def typed_run() -> None:
    """A workflow is bound with dependencies of its own type."""
    engine: AgentCoreEngine[Desk] = AgentCoreEngine(AgentCoreEngineOptions())
    engine.bind_workflow(typed_workflow(), Desk())
    engine.bind_workflow(typed_workflow(), "no desk")  # type: ignore[arg-type]
    assert_type(await engine.run(), EngineResult)


async def typed_calls(
    context: WorkflowContext[Desk],
    request: ModelCallRequest,
    prepared: PreparedModelCall[int],
    key: TransportKey[float],
    name: str,
) -> None:
    """What a call gives follows from how it was asked."""
    model = context.model
    assert_type(await model.call(prepared), ModelResult[int])
    assert_type(await model.call(request), ModelResult[str])
    assert_type(await model.call(request, transport=key), ModelResult[float])
    assert_type(await model.call(request, transport="core:plain-text"), ModelResult[str])
    assert_type(await model.call(request, transport=name), ModelResult[object])
    assert_type(await model.invoke_tool("tool", {}), ToolResult[object])
    assert_type(await model.prepare(request), PreparedModelCall[Any])
