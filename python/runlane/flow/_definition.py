"""What a workflow is made of, as its author writes it: nodes, the routes between them, and additions to both.

These are plain values. Nothing is checked until an `AgentWorkflow` is made of them, which reports what breaks a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from pydantic import JsonValue

from runlane.contracts import MaybeAwaitable
from runlane.errors import WorkflowContractError

if TYPE_CHECKING:
    from runlane.flow._context import WorkflowContext

__all__ = [
    "AgentWorkflowDefinition",
    "ExtraRoutes",
    "NodeResult",
    "WorkflowExtension",
    "WorkflowNode",
    "WorkflowRoute",
    "require_workflow_value",
    "route",
]

App = TypeVar("App")

NodeResult: TypeAlias = Mapping[str, object] | None
"""The fields of the state that a node changes; None changes nothing."""

_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class WorkflowRoute(Generic[App]):
    """One way out of a node: to another node, or to the end. Exactly one of the two.

    Attributes:
        when: Decides whether the route is taken; synchronous. None: always.
        target_node_id: The node to go to.
        complete: Ends the workflow with a value: the name of a field of the state, or a function, called once.
        budget: How often the route may be taken in one run, at least 1; then it counts as not matching. None: as
            often as it matches.
        label: What a drawing shows beside the arrow.
    """

    when: Callable[[WorkflowContext[App]], bool] | None = None
    target_node_id: str | None = None
    complete: str | Callable[[WorkflowContext[App]], object] | None = None
    budget: int | None = None
    label: str | None = None


def route(
    target: str | None = None,
    /,
    *,
    when: Callable[[WorkflowContext[App]], bool] | None = None,
    complete: str | Callable[[WorkflowContext[App]], object] | None = None,
    budget: int | None = None,
    label: str | None = None,
) -> WorkflowRoute[App]:
    """Write a `WorkflowRoute` in short.

    Example:
        >>> route("review", when=lambda context: context.state["ready"], budget=2).target_node_id
        'review'
        >>> route(complete="answer").complete
        'answer'
    """
    return WorkflowRoute(when=when, target_node_id=target, complete=complete, budget=budget, label=label)


@dataclass(frozen=True, kw_only=True)
class WorkflowNode(Generic[App]):
    """A step of a workflow.

    Attributes:
        id: 1 to 128 characters, not starting with `$`.
        run: The handler. It may be a plain function, which runs on the event loop and must not block. It reads the
            state and returns the fields it changes.
        routes: Ways out after success, at least one; the first that matches is taken.
        recover: Ways out after a failure, to nodes with a `failure_phase` or to the end.
        requires: Fields the state must have (None counts as missing) before the handler is called.
        failure_phase: Makes the node the entry of a failure phase of that name.
        max_visits: How often the node may be entered in one run.
        model: The name of a model in the engine's catalogue.
        cache_partition: Where the node's cache entries live.
        title: For people.
        metadata: For people and tools; JSON.
    """

    id: str
    run: Callable[[WorkflowContext[App]], MaybeAwaitable[NodeResult]]
    routes: Sequence[WorkflowRoute[App]]
    recover: Sequence[WorkflowRoute[App]] = ()
    requires: Sequence[str] = ()
    failure_phase: str | None = None
    max_visits: int | None = None
    model: str | None = None
    cache_partition: str = "default"
    title: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, kw_only=True)
class AgentWorkflowDefinition(Generic[App]):
    """A workflow as written: where it starts, its nodes, and what one run may spend.

    Attributes:
        id: Names it in errors and records.
        start: The node entered first.
        nodes: At least one.
        max_calls: Model and tool calls of one run together; 64 by default.
    """

    id: str
    start: str
    nodes: Sequence[WorkflowNode[App]]
    max_calls: int = 64
    title: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, kw_only=True)
class ExtraRoutes(Generic[App]):
    """Routes an extension puts around those a node has.

    Attributes:
        before: Tried before the node's own routes.
        after: Tried after them; behind a route without a condition they are never reached.
        recover_before: The same for recovery routes.
        recover_after: The same for recovery routes.
    """

    before: Sequence[WorkflowRoute[App]] = ()
    after: Sequence[WorkflowRoute[App]] = ()
    recover_before: Sequence[WorkflowRoute[App]] = ()
    recover_after: Sequence[WorkflowRoute[App]] = ()


@dataclass(frozen=True, kw_only=True)
class WorkflowExtension(Generic[App]):
    """Nodes and routes to add to a workflow. Nothing it has can be replaced, changed or removed.

    Attributes:
        nodes: New nodes, with ids of their own.
        routes: Extra routes by the id of the node they leave.
    """

    nodes: Sequence[WorkflowNode[App]] = ()
    routes: Mapping[str, ExtraRoutes[App]] = field(default_factory=lambda: _NOTHING)


def require_workflow_value(state: Mapping[str, object], field_name: str, /) -> object:
    """Return a field of the state; zero, an empty text and an empty list are values, None is not.

    Example:
        >>> require_workflow_value({"count": 0}, "count")
        0

    Raises:
        WorkflowContractError: The field is missing or None (`rule` is `missing_field`).
    """
    value = state.get(field_name)
    if value is None:
        raise WorkflowContractError(f"the state has no field {field_name!r}", rule="missing_field")
    return value
