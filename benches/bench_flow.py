"""The workflow engine: what a visit of a node costs, beside other graph engines on the same graph.

The graph counts: one node that adds 1 and comes back to itself until it has done so `VISITS` times. All three keep
their state in memory; nothing is stored, no model is asked, so what is measured is the engine alone. Every contender
runs on an event loop that is running already.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypedDict

from benches._harness import Peer, Row, at_least, at_most, bench
from runlane.diagnostics import CoreEvent, CreateDiagnosticsOptions, DiagnosticContext, create_diagnostics
from runlane.flow import (
    AgentCoreEngine,
    AgentCoreEngineOptions,
    AgentWorkflowDefinition,
    WorkflowNode,
    define_workflow,
    route,
)

VISITS = 200


class Everything:
    """An observer that takes every event."""

    def accepts(self, descriptor: object, /) -> bool:
        """Want it."""
        del descriptor
        return True

    def on_event(self, event: CoreEvent, /) -> None:
        """Let it go."""


def looping(loop: asyncio.AbstractEventLoop, run: Callable[[], Coroutine[Any, Any, object]]) -> Callable[[], object]:
    """Return work that runs a coroutine to its end on a loop of its own."""
    return lambda: loop.run_until_complete(run())


def engine(diagnostics: DiagnosticContext | None = None) -> Callable[[], Coroutine[Any, Any, object]]:
    """Return a run of the counting workflow."""

    def add(context: Any) -> dict[str, object]:  # noqa: ANN401 - a context without an app
        return {"count": context.state["count"] + 1}

    def again(context: Any) -> bool:  # noqa: ANN401 - likewise
        return bool(context.state["count"] < VISITS)

    counting = WorkflowNode[None](
        id="add",
        run=add,
        routes=[
            route("add", when=again, budget=VISITS),
            route(complete="count"),
        ],
    )
    workflow = define_workflow(AgentWorkflowDefinition(id="count", start="add", nodes=[counting]))
    ours: AgentCoreEngine[None] = AgentCoreEngine(
        AgentCoreEngineOptions(max_rounds=VISITS + 1, diagnostics=diagnostics)
    )
    ours.bind_workflow(workflow, None)

    async def run() -> object:
        return (await ours.run(state={"count": 0})).value

    return run


def langgraph() -> Callable[[], Coroutine[Any, Any, object]]:
    """Return the same of LangGraph, without a checkpointer."""
    from langgraph.graph import END, START, StateGraph  # noqa: PLC0415 - a peer

    class State(TypedDict):
        count: int

    async def add(state: State) -> dict[str, int]:
        return {"count": state["count"] + 1}

    graph = StateGraph(State)
    graph.add_node("add", add)
    graph.add_edge(START, "add")
    graph.add_conditional_edges("add", lambda state: "add" if state["count"] < VISITS else END)
    compiled = graph.compile()

    async def run() -> object:
        return await compiled.ainvoke({"count": 0}, {"recursion_limit": VISITS + 10})

    return run


def pydantic_graph() -> Callable[[], Coroutine[Any, Any, object]]:
    """Return the same of pydantic-graph: a step, and a decision between going on and the end."""
    from pydantic_graph import GraphBuilder  # noqa: PLC0415 - a peer

    @dataclass
    class State:
        count: int = 0

    builder = GraphBuilder(state_type=State, output_type=int)

    async def add(ctx: Any) -> Any:  # noqa: ANN401 - the peer tells by the result
        ctx.state.count += 1
        return "again" if ctx.state.count < VISITS else ctx.state.count

    step = builder.step(add, node_id="add")
    decision = builder.decision().branch(builder.match(str).to(step)).branch(builder.match(int).to(builder.end_node))
    builder.add(builder.edge_from(builder.start_node).to(step), builder.edge_from(step).to(decision))
    graph = builder.build()

    async def run() -> object:
        return await graph.run(state=State())

    return run


def engines(loop: asyncio.AbstractEventLoop, factor: float) -> list[Peer]:
    """Return the peers that are installed, each to be so many times slower."""
    makers = (("LangGraph", "langgraph", langgraph), ("pydantic-graph", "pydantic_graph", pydantic_graph))
    return [
        Peer(name, looping(loop, make()) if importlib.util.find_spec(module) else None, at_least(factor))
        for name, module, make in makers
    ]


@bench
def bench_visit() -> Row:
    """A visit of a node, diagnostics off."""
    loop = asyncio.new_event_loop()
    return Row(looping(loop, engine()), engines(loop, 3), clean=loop.close)


@bench
def bench_visit_with_diagnostics() -> Row:
    """A visit of a node, every event of it taken."""
    loop = asyncio.new_event_loop()
    scope = create_diagnostics(CreateDiagnosticsOptions(observer=Everything(), accept_content=True))
    itself = Peer("itself without", looping(loop, engine()), at_most(2))
    return Row(looping(loop, engine(scope)), [itself, *engines(loop, 1)], clean=loop.close)
