"""A workflow as pure data: nodes and edges without callables, equal for equal definitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from runlane.contracts import JsonObject, Record
from runlane.flow._definition import AgentWorkflowDefinition, WorkflowNode, WorkflowRoute

__all__ = ["EdgeKind", "WorkflowGraph", "WorkflowGraphEdge", "WorkflowGraphNode", "WorkflowGraphRoute", "graph_of"]

NodeId: TypeAlias = Annotated[str, Field(min_length=1, max_length=512, strict=True)]
"""The id of a node or of a workflow."""

EdgeKind: TypeAlias = Literal["normal", "recovery"]
"""Whether routes are taken after success or after a failure."""


class WorkflowGraphRoute(Record):
    """A route as a drawing needs it.

    Attributes:
        index: Its position in the node's own list.
        conditional: Whether it has a condition.
        budget: How often it may be taken in one run.
    """

    index: int
    label: str | None = None
    conditional: bool
    budget: int | None = None


class WorkflowGraphEdge(Record):
    """All routes of one kind from one node to one target.

    Attributes:
        id: `<source>:<kind>:<target>`, the target of a completing edge being `$complete`; a `:` within an id is `%3A`.
        target: Absent if the routes complete the workflow.
        routes: In the order of declaration.
    """

    id: str
    kind: EdgeKind
    source: NodeId
    target: NodeId | None = None
    routes: tuple[WorkflowGraphRoute, ...]


class WorkflowGraphNode(Record):
    """A node as a drawing needs it.

    Attributes:
        incoming: Ids of the edges that lead to it.
        outgoing: Ids of the edges that leave it.
    """

    id: NodeId
    title: str | None = None
    metadata: JsonObject = Field(default_factory=dict)
    requires: tuple[str, ...] = ()
    failure_phase: str | None = None
    max_visits: int | None = None
    incoming: tuple[str, ...] = ()
    outgoing: tuple[str, ...] = ()


class WorkflowGraph(Record):
    """A workflow drawn out.

    Attributes:
        nodes: In the order of the definition.
        edges: By the order of their sources, normal before recovery, then by their first route.

    Example:
        >>> from runlane.flow import AgentWorkflowDefinition, WorkflowNode, define_workflow, route
        >>> node = WorkflowNode(id="say", run=lambda context: {"text": "hi"}, routes=[route(complete="text")])
        >>> define_workflow(AgentWorkflowDefinition(id="w", start="say", nodes=[node])).graph().edges[0].id
        'say:normal:$complete'
    """

    workflow_id: NodeId
    start: NodeId
    nodes: tuple[WorkflowGraphNode, ...]
    edges: tuple[WorkflowGraphEdge, ...]


def graph_of(definition: AgentWorkflowDefinition[Any], /) -> WorkflowGraph:
    """Return the graph of a valid definition."""
    edges = tuple(edge for node in definition.nodes for edge in _edges_of(node))
    return WorkflowGraph(
        workflow_id=definition.id,
        start=definition.start,
        nodes=tuple(_node_of(node, edges) for node in definition.nodes),
        edges=edges,
    )


def _node_of(node: WorkflowNode[Any], edges: Iterable[WorkflowGraphEdge]) -> WorkflowGraphNode:
    edges = tuple(edges)
    return WorkflowGraphNode(
        id=node.id,
        title=node.title,
        metadata=dict(node.metadata),
        requires=tuple(node.requires),
        failure_phase=node.failure_phase,
        max_visits=node.max_visits,
        incoming=tuple(edge.id for edge in edges if edge.target == node.id),
        outgoing=tuple(edge.id for edge in edges if edge.source == node.id),
    )


def _edges_of(node: WorkflowNode[Any]) -> list[WorkflowGraphEdge]:
    return [*_edges_of_kind(node, "normal", node.routes), *_edges_of_kind(node, "recovery", node.recover)]


def _edges_of_kind(
    node: WorkflowNode[Any], kind: EdgeKind, routes: Sequence[WorkflowRoute[Any]]
) -> Iterable[WorkflowGraphEdge]:
    by_target: dict[str | None, list[WorkflowGraphRoute]] = {}
    for index, route in enumerate(routes):
        told = WorkflowGraphRoute(
            index=index, label=route.label, conditional=route.when is not None, budget=route.budget
        )
        by_target.setdefault(route.target_node_id, []).append(told)
    for target, told_routes in by_target.items():
        goal = "$complete" if target is None else _escaped(target)
        yield WorkflowGraphEdge(
            id=f"{_escaped(node.id)}:{kind}:{goal}",
            kind=kind,
            source=node.id,
            target=target,
            routes=tuple(told_routes),
        )


def _escaped(node_id: str) -> str:
    return node_id.replace("%", "%25").replace(":", "%3A")
