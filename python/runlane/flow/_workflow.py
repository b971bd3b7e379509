"""A workflow that keeps its rules: an immutable catalogue of its nodes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from typing_extensions import override

from runlane.errors import MissingEntryError, UsageError
from runlane.flow._definition import (
    AgentWorkflowDefinition,
    ExtraRoutes,
    WorkflowExtension,
    WorkflowNode,
    WorkflowRoute,
)
from runlane.flow._graph import WorkflowGraph, graph_of
from runlane.flow._validation import Violation, violations

__all__ = ["AgentWorkflow", "define_workflow"]

App = TypeVar("App")


class AgentWorkflow(Generic[App]):
    """A checked workflow. It holds no state of any run, so many engines may run it at once.

    To readers it is a catalogue of its nodes, in the order of the definition.

    Args:
        definition: Copied; changing its lists later changes nothing.

    Raises:
        WorkflowContractError: A rule is broken; the first in the order of the rules, named by `rule`. Its `others`
            say what else is wrong.
        UsageError: Something in the definition is not what it should be made of.
    """

    __slots__ = ("_definition", "_nodes")

    def __init__(self, definition: AgentWorkflowDefinition[App], /) -> None:
        self._definition = _copied(definition)
        found = violations(self._definition)
        if found:
            raise found[0].error(definition.id, found[1:])
        self._nodes = {node.id: node for node in self._definition.nodes}

    @property
    def id(self) -> str:
        """The workflow's id."""
        return self._definition.id

    @property
    def definition(self) -> AgentWorkflowDefinition[App]:
        """What it was made of, as copied."""
        return self._definition

    def get(self, node_id: str, /) -> WorkflowNode[App] | None:
        """Return a node, or None."""
        return self._nodes.get(node_id)

    def require(self, node_id: str, /) -> WorkflowNode[App]:
        """Return a node.

        Raises:
            MissingEntryError: There is none; also a `KeyError`.
        """
        node = self._nodes.get(node_id)
        if node is None:
            raise MissingEntryError(argument=f"workflow {self.id}", key=node_id)
        return node

    def list(self) -> tuple[WorkflowNode[App], ...]:
        """Return all nodes, in the order of the definition."""
        return tuple(self._nodes.values())

    def __contains__(self, node_id: object, /) -> bool:
        return node_id in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[WorkflowNode[App]]:
        return iter(self.list())

    @override
    def __repr__(self) -> str:
        return f"<AgentWorkflow {self.id!r}, {len(self)} nodes>"

    def extend(self, *extensions: WorkflowExtension[App]) -> AgentWorkflow[App]:
        """Return a new workflow with more nodes and routes; this one stays as it is.

        Raises:
            WorkflowContractError: A node id is taken (`node_id`), extra routes name an unknown node
                (`unknown_target`), or the whole breaks a rule.
        """
        return define_workflow(self._definition, *extensions)

    def graph(self) -> WorkflowGraph:
        """Return the workflow as data: nodes and edges, no callables."""
        return graph_of(self._definition)


def define_workflow(
    definition: AgentWorkflowDefinition[App], /, *extensions: WorkflowExtension[App]
) -> AgentWorkflow[App]:
    """Check a definition, merged with extensions in their order, and make a workflow of it.

    Example:
        >>> done = WorkflowRoute(complete="text")
        >>> greet = WorkflowNode(id="greet", run=lambda context: {"text": "hi"}, routes=[done])
        >>> define_workflow(AgentWorkflowDefinition(id="hello", start="greet", nodes=[greet]))
        <AgentWorkflow 'hello', 1 nodes>

    Raises:
        WorkflowContractError: A rule is broken; the first in the order of the rules, named by `rule`.
    """
    return AgentWorkflow(_merged(definition, extensions) if extensions else definition)


def _merged(
    definition: AgentWorkflowDefinition[App], extensions: Sequence[WorkflowExtension[App]]
) -> AgentWorkflowDefinition[App]:
    nodes = [*definition.nodes, *(node for extension in extensions for node in extension.nodes)]
    known = {node.id for node in nodes}
    for extension in extensions:
        for node_id in extension.routes:
            if node_id not in known:
                text = f"an extension adds routes to {node_id!r}, which is no node"
                raise Violation("unknown_target", node_id, text).error(definition.id)
    extras = {
        node_id: [extension.routes[node_id] for extension in extensions if node_id in extension.routes]
        for node_id in known
    }
    return replace(definition, nodes=[_extended(node, extras[node.id]) for node in nodes])


def _extended(node: WorkflowNode[App], extras: Sequence[ExtraRoutes[App]]) -> WorkflowNode[App]:
    if not extras:
        return node
    routes = [*(r for e in extras for r in e.before), *node.routes, *(r for e in extras for r in e.after)]
    recover = [
        *(r for e in extras for r in e.recover_before),
        *node.recover,
        *(r for e in extras for r in e.recover_after),
    ]
    return replace(node, routes=routes, recover=recover)


def _copied(definition: AgentWorkflowDefinition[App]) -> AgentWorkflowDefinition[App]:
    _require(definition, AgentWorkflowDefinition, "definition")
    nodes = tuple(_copied_node(node, f"nodes.{index}") for index, node in enumerate(definition.nodes))
    return replace(definition, nodes=nodes, metadata=_copied_metadata(definition.metadata))


def _copied_node(node: WorkflowNode[App], place: str) -> WorkflowNode[App]:
    _require(node, WorkflowNode, place)
    if not callable(node.run):
        raise UsageError("a handler must be callable", argument=f"{place}.run")
    if isinstance(node.requires, str):
        raise UsageError("is a list of names, not one text", argument=f"{place}.requires")
    return replace(
        node,
        routes=_copied_routes(node.routes, f"{place}.routes"),
        recover=_copied_routes(node.recover, f"{place}.recover"),
        requires=tuple(node.requires),
        metadata=_copied_metadata(node.metadata),
    )


def _copied_routes(routes: Sequence[WorkflowRoute[App]], place: str) -> tuple[WorkflowRoute[App], ...]:
    kept = tuple(routes)
    for index, route in enumerate(kept):
        _require(route, WorkflowRoute, f"{place}.{index}")
        if route.when is not None and not callable(route.when):
            raise UsageError("must be callable", argument=f"{place}.{index}.when")
        if not (route.complete is None or isinstance(route.complete, str) or callable(route.complete)):
            raise UsageError("must be the name of a field or callable", argument=f"{place}.{index}.complete")
    return kept


def _copied_metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(copy.deepcopy(dict(metadata)))


def _require(value: object, kind: type, place: str) -> None:
    if not isinstance(value, kind):
        names = ", ".join(field.name for field in fields(kind))
        raise UsageError(f"must be a {kind.__name__} ({names}), not {type(value).__name__}", argument=place)
