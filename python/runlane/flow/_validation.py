"""The rules that a workflow keeps before any of its handlers can run.

`violations` finds every breach, in the order of the rules; a workflow is made only of a definition without any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runlane.contracts import is_async_callable
from runlane.errors import WorkflowContractError
from runlane.flow._definition import AgentWorkflowDefinition, WorkflowNode, WorkflowRoute

__all__ = ["Violation", "violations"]

MAX_NODE_ID_CHARACTERS: Final = 128
_LARGEST: Final = 2**53 - 1

_Node = WorkflowNode[Any]
_Definition = AgentWorkflowDefinition[Any]
_Route = WorkflowRoute[Any]


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a definition breaks.

    Attributes:
        rule: The rule, such as `unbounded_cycle`.
        node_id: The node at fault, if it is one node's.
        message: What is wrong and what to do.
    """

    rule: str
    node_id: str | None
    message: str

    def error(self, workflow_id: str, others: Sequence[Violation] = ()) -> WorkflowContractError:
        """Return the breach as the error that refuses the workflow, beside what else is wrong with it."""
        return WorkflowContractError(
            self.message,
            rule=self.rule,
            workflow_id=workflow_id,
            node_id=self.node_id,
            others=[other.error(workflow_id) for other in others],
        )


def violations(definition: _Definition, /) -> tuple[Violation, ...]:
    """Find every rule that a definition breaks, in the order of the rules."""
    found: list[Violation] = []
    for rule in _RULES:
        found += rule(definition)
    return tuple(found)


def _ids(definition: _Definition) -> Iterator[Violation]:
    if not definition.nodes:
        yield Violation("node_id", None, "a workflow has at least one node")
    counted = Counter(node.id for node in definition.nodes)
    for node in definition.nodes:
        node_id: object = node.id
        if not isinstance(node_id, str) or not 1 <= len(node_id) <= MAX_NODE_ID_CHARACTERS or node_id.startswith("$"):
            text = f"{node.id!r} is no node id: 1 to {MAX_NODE_ID_CHARACTERS} characters, the first not `$`"
            yield Violation("node_id", node.id, text)
    for node_id, count in counted.items():
        if count > 1:
            yield Violation("node_id", node_id, f"{count} nodes have the id {node_id!r}; give each its own")


def _targets(definition: _Definition) -> Iterator[Violation]:
    known = {node.id for node in definition.nodes}
    if definition.start not in known:
        yield Violation("unknown_target", None, f"start names no node: {definition.start!r}")
    for node, _, place, route in _all_routes(definition):
        if route.target_node_id is not None and route.target_node_id not in known:
            yield Violation("unknown_target", node.id, f"{place} leads to {route.target_node_id!r}, which is no node")


def _shapes(definition: _Definition) -> Iterator[Violation]:
    for node, _, place, route in _all_routes(definition):
        if (route.target_node_id is None) == (route.complete is None):
            has = "neither" if route.complete is None else "both"
            text = f"{place} has {has} of target_node_id and complete; a route has exactly one"
            yield Violation("route_shape", node.id, text)


def _ways_out(definition: _Definition) -> Iterator[Violation]:
    for node in definition.nodes:
        if not node.routes:
            text = f"node {node.id!r} has no routes; a last node ends with route(complete=...)"
            yield Violation("no_routes", node.id, text)


def _predicates(definition: _Definition) -> Iterator[Violation]:
    for node, _, place, route in _all_routes(definition):
        if is_async_callable(route.when):
            yield Violation(
                "async_predicate", node.id, f"{place}: when is a coroutine function; it must be a plain one"
            )
        if is_async_callable(route.complete):
            text = f"{place}: complete is a coroutine function; it must be a plain one"
            yield Violation("async_predicate", node.id, text)


def _phases(definition: _Definition) -> Iterator[Violation]:
    phases = {node.id: node.failure_phase for node in definition.nodes}
    for node, kind, place, route in _all_routes(definition):
        target = route.target_node_id
        if kind == "recovery" and target in phases and phases[target] is None:
            text = f"{place} leads to {target!r}, which has no failure_phase; recovery enters failure phases only"
            yield Violation("failure_phase", node.id, text)
    counted = Counter(node.failure_phase for node in definition.nodes if node.failure_phase is not None)
    for phase, count in counted.items():
        if count > 1:
            yield Violation("failure_phase", None, f"{count} nodes are the entry of the failure phase {phase!r}")


def _budgets(definition: _Definition) -> Iterator[Violation]:
    if not _counts(definition.max_calls, minimum=0):
        yield Violation("budget", None, f"max_calls is {definition.max_calls!r}; it must be an integer of at least 0")
    for node in definition.nodes:
        if node.max_visits is not None and not _counts(node.max_visits, minimum=1):
            text = f"max_visits of node {node.id!r} is {node.max_visits!r}; it must be an integer of at least 1"
            yield Violation("budget", node.id, text)
    for node, _, place, route in _all_routes(definition):
        if route.budget is not None and not _counts(route.budget, minimum=1):
            text = f"{place} has the budget {route.budget!r}; it must be an integer of at least 1"
            yield Violation("budget", node.id, text)


def _cycles(definition: _Definition) -> Iterator[Violation]:
    unbounded = {node.id: tuple(_free_targets(node)) for node in definition.nodes if node.max_visits is None}
    graph = {source: [goal for goal in goals if goal in unbounded] for source, goals in unbounded.items()}
    cycle = _find_cycle(graph)
    if cycle:
        text = " -> ".join(map(repr, (*cycle, cycle[0])))
        text = f"nothing bounds the cycle {text}; give a node of it max_visits or a route of it a budget"
        yield Violation("unbounded_cycle", cycle[0], text)


_RULES: Final[tuple[Callable[[_Definition], Iterator[Violation]], ...]] = (
    _ids,
    _targets,
    _shapes,
    _ways_out,
    _predicates,
    _phases,
    _budgets,
    _cycles,
)


def _all_routes(definition: _Definition) -> Iterator[tuple[_Node, str, str, _Route]]:
    """Give every route with its node, its kind, and what a message calls it."""
    for node in definition.nodes:
        for kind, routes in (("normal", node.routes), ("recovery", node.recover)):
            word = "route" if kind == "normal" else "recovery route"
            for index, route in enumerate(routes):
                yield node, kind, f"{word} {index} of node {node.id!r}", route


def _free_targets(node: _Node) -> Iterator[str]:
    for route in (*node.routes, *node.recover):
        if route.budget is None and route.target_node_id is not None:
            yield route.target_node_id


def _counts(value: object, *, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= _LARGEST


def _find_cycle(graph: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the nodes of one cycle in their order, or nothing; a walk without recursion, so any depth will do."""
    done: set[str] = set()
    for start in graph:
        path: dict[str, Iterator[str]] = {} if start in done else {start: iter(graph[start])}
        while path:
            node, goals = next(reversed(path.items()))
            goal = next((goal for goal in goals if goal not in done), None)
            if goal is None:
                done.add(node)
                del path[node]
            elif goal in path:
                names = list(path)
                return tuple(names[names.index(goal) :])
            else:
                path[goal] = iter(graph[goal])
    return ()
