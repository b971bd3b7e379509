"""Small workflows that several tests build on."""

# ruff: noqa: ANN401 - handlers and routes take a context of any app, also where they ignore it

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runlane.contracts import Id
from runlane.flow import AgentWorkflowDefinition, WorkflowNode, WorkflowRoute, route


def passive(context: Any) -> None:
    """Change nothing."""


def way(target: str | None = None, /, **options: Any) -> WorkflowRoute[Any]:
    """Write a route in short, for a context of any app, and wrong on purpose if a test wants that."""
    return route(target, **options)


def node(
    node_id: str,
    *routes: WorkflowRoute[Any],
    run: Callable[[Any], Any] = passive,
    recover: Sequence[WorkflowRoute[Any]] = (),
    **options: Any,
) -> WorkflowNode[Any]:
    """Write a node in short; without routes it ends the workflow with the field `value`."""
    ways = routes or (way(complete=lambda context: context.state.get("value")),)
    return WorkflowNode(id=Id(node_id), run=run, routes=ways, recover=recover, **options)


def definition(*nodes: WorkflowNode[Any], start: str | None = None, **options: Any) -> AgentWorkflowDefinition[Any]:
    """Write a definition that starts at its first node."""
    first = start if start is not None else nodes[0].id
    return AgentWorkflowDefinition(id=Id("w"), start=Id(first), nodes=nodes, **options)


def routes_between(edges: Mapping[str, Sequence[str]]) -> AgentWorkflowDefinition[Any]:
    """Write a definition with an unconditional route for each edge, and a completing one for each node."""
    return definition(
        *(node(source, *(way(goal) for goal in goals), way(complete=passive)) for source, goals in edges.items())
    )
