"""What a workflow may be made of: rules W1 to W11, W15, W36 to W39."""

# ruff: noqa: ANN401, ARG001, ARG002 - handlers and routes take a context of any app, also where they ignore it

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.contracts import Id
from runlane.errors import MissingEntryError, UsageError, WorkflowContractError
from runlane.flow import (
    AgentCoreEngine,
    AgentCoreEngineOptions,
    AgentWorkflow,
    ExtraRoutes,
    WorkflowExtension,
    WorkflowRoute,
    define_workflow,
    require_workflow_value,
)
from tests.flow.workflows import definition, node, passive, routes_between, way


class _AsyncCallable:
    async def __call__(self, context: object) -> bool:
        return True


async def _coroutine(context: object) -> bool:
    return True


def refusal(*args: Any, **options: Any) -> WorkflowContractError:
    """Return the error that refuses a definition."""
    with pytest.raises(WorkflowContractError) as caught:
        define_workflow(definition(*args, **options))
    return caught.value


def test_w1_a_workflow_has_a_node() -> None:
    """No nodes at all is refused."""
    with pytest.raises(WorkflowContractError) as caught:
        define_workflow(definition(start="a"))
    assert caught.value.rule == "node_id"


@pytest.mark.parametrize("node_id", ["", "x" * 129, "$step"])
def test_w1_a_node_id_is_valid(node_id: str) -> None:
    """An id is 1 to 128 characters and starts with no dollar sign."""
    assert refusal(node(node_id)).rule == "node_id"


def test_w1_node_ids_are_unique() -> None:
    """Two nodes of one id are refused, by that id."""
    error = refusal(node("a"), node("a"))
    assert (error.rule, error.node_id) == ("node_id", "a")


def test_w2_start_and_every_target_name_a_node() -> None:
    """A start, a route or a recovery route into nothing is refused."""
    assert refusal(node("a"), start="b").rule == "unknown_target"
    assert refusal(node("a", way("b"))).rule == "unknown_target"
    assert refusal(node("a", recover=[way("b")])).rule == "unknown_target"


def test_w3_a_route_has_exactly_one_goal() -> None:
    """Both a target and a completion, and neither, are refused."""
    assert refusal(node("a", way("a", complete="x", budget=1))).rule == "route_shape"
    assert refusal(node("a", way())).rule == "route_shape"


def test_w4_every_node_has_a_route() -> None:
    """A node without a way out is refused."""
    bare = definition(node("a"))
    lonely = type(bare.nodes[0])(id=bare.nodes[0].id, run=passive, routes=())
    assert refusal(lonely).rule == "no_routes"


@pytest.mark.parametrize(
    "function",
    [_coroutine, partial(_coroutine), _AsyncCallable(), partial(_AsyncCallable())],
    ids=["function", "partial of a function", "callable", "partial of a callable"],
)
def test_w5_predicates_and_completions_are_plain_functions(function: Any) -> None:
    """A coroutine function is refused, also within a partial or behind a callable object."""
    assert refusal(node("a", way(complete="x", when=function))).rule == "async_predicate"
    assert refusal(node("a", way(complete=function))).rule == "async_predicate"
    assert refusal(node("a", recover=[way(complete=function)])).rule == "async_predicate"


def test_w6_recovery_enters_failure_phases_only() -> None:
    """A recovery route to an ordinary node is refused, and so are two entries of one phase."""
    assert refusal(node("a", recover=[way("b")]), node("b")).rule == "failure_phase"
    twice = refusal(node("a"), node("b", failure_phase="p"), node("c", failure_phase="p"))
    assert twice.rule == "failure_phase"


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, 2**53, "2"])
def test_w7_budgets_and_visit_limits_are_at_least_one(limit: Any) -> None:
    """Anything but an integer of at least 1 is refused."""
    assert refusal(node("a", max_visits=limit)).rule == "budget"
    assert refusal(node("a", way(complete="x", budget=limit))).rule == "budget"
    assert refusal(node("a", recover=[way(complete="x", budget=limit)])).rule == "budget"


def test_w7_a_workflow_may_allow_no_calls() -> None:
    """`max_calls` of 0 is legal; a negative one is not."""
    assert define_workflow(definition(node("a"), max_calls=0)).definition.max_calls == 0
    assert refusal(node("a"), max_calls=-1).rule == "budget"


def test_w8_a_self_loop_is_a_cycle() -> None:
    """A node that leads to itself without a bound is refused."""
    error = refusal(node("a", way("a")))
    assert error.rule == "unbounded_cycle"
    assert "'a' -> 'a'" in str(error)


def test_w10_rounds_of_the_engine_bound_no_cycle() -> None:
    """However few rounds an engine has: a definition is judged before it meets one."""
    with pytest.raises(WorkflowContractError) as caught:
        engine: AgentCoreEngine[object] = AgentCoreEngine(AgentCoreEngineOptions(max_rounds=1))
        engine.bind_workflow(define_workflow(definition(node("a", way("a")))), None)
    assert caught.value.rule == "unbounded_cycle"


def test_w8_the_message_lists_a_cycle_in_order() -> None:
    """The nodes of the cycle stand in the order they follow each other."""
    error = refusal(node("x", way("a")), node("a", way("b")), node("b", way("c")), node("c", way("a")))
    assert "'a' -> 'b' -> 'c' -> 'a'" in str(error)


def test_w8_a_recovery_route_can_close_a_cycle() -> None:
    """Normal and recovery routes count alike."""
    recovering = [way("fix")]
    assert refusal(node("a", recover=recovering), node("fix", way("a"), failure_phase="p")).rule == "unbounded_cycle"


@pytest.mark.parametrize("bound", ["visits", "budget"])
def test_w8_a_bounded_cycle_is_legal(bound: str) -> None:
    """A visit limit on a node of it, or a budget on a route of it, bounds a cycle."""
    options: dict[str, Any] = {"max_visits": 3} if bound == "visits" else {}
    back = way("a", budget=3 if bound == "budget" else None)
    workflow = define_workflow(definition(node("a", way("b"), **options), node("b", back, way(complete="x"))))
    assert len(workflow) == 2


def _has_cycle(edges: Mapping[str, Sequence[str]]) -> bool:
    """Say the slow way: remove nodes that lead nowhere until none is left, or none leads nowhere."""
    left = {source: set(goals) for source, goals in edges.items()}
    while True:
        gone = {source for source, goals in left.items() if not goals}
        if not gone:
            return bool(left)
        left = {source: goals - gone for source, goals in left.items() if source not in gone}


_NAMES = ["a", "b", "c", "d", "e", "f"]


@given(st.fixed_dictionaries({name: st.lists(st.sampled_from(_NAMES), max_size=3) for name in _NAMES}))
def test_w8_exactly_the_graphs_with_a_cycle_are_refused(edges: dict[str, list[str]]) -> None:
    """Over random graphs without bounds, a workflow is refused exactly if some walk never ends."""
    if _has_cycle(edges):
        with pytest.raises(WorkflowContractError) as caught:
            define_workflow(routes_between(edges))
        assert caught.value.rule == "unbounded_cycle"
    else:
        assert len(define_workflow(routes_between(edges))) == len(edges)


def test_w8_a_graph_of_any_depth_is_walked() -> None:
    """A chain of 5,000 nodes needs no recursion."""
    chain = {f"n{index}": [f"n{index + 1}"] for index in range(5_000)} | {"n5000": []}
    assert len(define_workflow(routes_between(chain))) == 5_001


def test_w9_a_node_may_be_out_of_reach() -> None:
    """A node that no route leads to is allowed."""
    assert "b" in define_workflow(definition(node("a"), node("b")))


def test_the_first_breach_in_the_order_of_the_rules_is_reported_with_the_others() -> None:
    """A definition with several faults names the first by its rule and keeps the rest."""
    error = refusal(node("a", way("nowhere"), way(), max_visits=0), node("b", way("b")))
    assert error.rule == "unknown_target"
    assert [other.rule for other in error.others] == ["route_shape", "budget", "unbounded_cycle"]


def test_w11_a_workflow_keeps_a_copy() -> None:
    """Changing the lists and the metadata a workflow was made of changes nothing in it."""
    nodes, routes, metadata = [], [way(complete="x")], {"tags": ["one"]}
    nodes.append(node("a", metadata=metadata))
    object.__setattr__(nodes[0], "routes", routes)
    workflow = define_workflow(type(definition(node("a")))(id=Id("w"), start=Id("a"), nodes=nodes))
    before = workflow.graph()
    nodes.append(node("b"))
    routes.append(way("b"))
    metadata["tags"].append("two")
    assert workflow.graph() == before
    assert len(workflow) == 1


def test_w11_a_workflow_is_a_catalogue_of_its_nodes() -> None:
    """It is read like any catalogue, in the order of the definition, and cannot be written."""
    workflow = define_workflow(definition(node("b"), node("a")))
    assert [entry.id for entry in workflow] == ["b", "a"] == [entry.id for entry in workflow.list()]
    assert workflow.get("c") is None
    assert workflow.require(workflow.definition.start).id == "b"
    with pytest.raises(MissingEntryError):
        workflow.require("c")
    assert not hasattr(workflow, "__setitem__")


@pytest.mark.parametrize("value", [0, "", [], False])
def test_w15_a_value_is_present_unless_it_is_none(value: object) -> None:
    """Zero, an empty text, an empty list and False are values."""
    assert require_workflow_value({"field": value}, "field") is value


@pytest.mark.parametrize("state", [{}, {"field": None}])
def test_w15_a_missing_value_and_none_are_absent(state: dict[str, object]) -> None:
    """A missing key and None are refused, by the name of the field."""
    with pytest.raises(WorkflowContractError, match="'field'") as caught:
        require_workflow_value(state, "field")
    assert caught.value.rule == "missing_field"


def test_w36_an_extension_makes_a_new_workflow() -> None:
    """The base stays as it was, and both ways of extending give the same."""
    base = define_workflow(definition(node("a", way(complete="x"))))
    before = base.graph()
    extension = WorkflowExtension[Any](
        nodes=[node("b")], routes={base.definition.start: ExtraRoutes(before=[way("b", when=passive)])}
    )
    extended = base.extend(extension)
    assert base.graph() == before
    assert extended.graph() == define_workflow(base.definition, extension).graph()
    assert len(extended) == 2


def test_w37_an_extension_replaces_nothing() -> None:
    """A node id that is taken, and routes for a node that is not there, are refused."""
    base = define_workflow(definition(node("a")))
    with pytest.raises(WorkflowContractError) as taken:
        base.extend(WorkflowExtension(nodes=[node("a")]))
    with pytest.raises(WorkflowContractError) as unknown:
        base.extend(WorkflowExtension(routes={"z": ExtraRoutes(after=[way(complete="x")])}))
    assert (taken.value.rule, unknown.value.rule) == ("node_id", "unknown_target")


def test_w38_extra_routes_stand_around_the_nodes_own() -> None:
    """First what all extensions put before, then the node's own, then what they put after, each in their order."""

    def labelled(*labels: str) -> list[WorkflowRoute[Any]]:
        return [way(complete="x", label=label) for label in labels]

    base = define_workflow(definition(node("a", *labelled("own"), recover=labelled("own"))))
    extensions = [
        WorkflowExtension[Any](
            routes={
                base.definition.start: ExtraRoutes(
                    before=labelled(f"before {name}"),
                    after=labelled(f"after {name}"),
                    recover_before=labelled(f"before {name}"),
                    recover_after=labelled(f"after {name}"),
                )
            }
        )
        for name in ("1", "2")
    ]
    only = base.extend(*extensions).list()[0]
    expected = ["before 1", "before 2", "own", "after 1", "after 2"]
    assert [way.label for way in only.routes] == expected
    assert [way.label for way in only.recover] == expected


def test_w39_the_merged_graph_is_checked_as_a_whole() -> None:
    """An extension may close a cycle only if it bounds it."""
    base = define_workflow(definition(node("a", way("b")), node("b", way(complete="x"))))

    def closing(budget: int | None) -> WorkflowExtension[Any]:
        return WorkflowExtension(routes={base.list()[1].id: ExtraRoutes(before=[way("a", budget=budget)])})

    with pytest.raises(WorkflowContractError) as caught:
        base.extend(closing(None))
    assert caught.value.rule == "unbounded_cycle"
    assert len(base.extend(closing(2))) == 2


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: AgentWorkflow({"id": "w"}), "definition"),  # type: ignore[arg-type]
        (lambda: define_workflow(definition("a", start="a")), "nodes.0"),  # type: ignore[arg-type]
        (lambda: define_workflow(definition(node("a", "b"))), "nodes.0.routes.0"),  # type: ignore[arg-type]
        (lambda: define_workflow(definition(node("a", run=3))), "nodes.0.run"),  # type: ignore[arg-type]
        (lambda: define_workflow(definition(node("a", way(complete=3)))), "nodes.0.routes.0.complete"),
        (lambda: define_workflow(definition(node("a", way("a", when=3)))), "nodes.0.routes.0.when"),
        (lambda: define_workflow(definition(node("a", requires="text"))), "nodes.0.requires"),
    ],
)
def test_a_definition_made_of_something_else_is_refused_by_its_place(make: Any, argument: str) -> None:
    """What is no definition, node, route or callable is a misuse, and the error says where it stands."""
    with pytest.raises(UsageError) as caught:
        make()
    assert caught.value.argument == argument
