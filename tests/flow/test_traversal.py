"""How a workflow is walked: rules W12 to W30 and W35."""

# ruff: noqa: ANN401, ARG001, ARG005 - handlers and routes take a context of any app, also where they ignore it

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from runlane.contracts import CancelToken, error_contexts
from runlane.diagnostics import SubFlowStepInput
from runlane.errors import AbortedError, BudgetError, OutOfTurnError, UsageError, WorkflowContractError
from runlane.flow import RequestRuntime, WorkflowNodeReport, define_workflow
from tests.flow.engines import Listener, Told, engine_of, run
from tests.flow.workflows import definition, node, way

pytestmark = pytest.mark.anyio


def setting(**fields: object) -> Any:
    """Return a handler that sets fields."""
    return lambda context: fields


def failing(error: Exception) -> Any:
    """Return a handler that raises."""

    def handler(context: Any) -> None:
        raise error

    return handler


async def test_w12_a_visit_is_a_round_and_visits_count_per_node() -> None:
    """Three visits of two nodes take three rounds; each node counts its own visits from 1."""
    seen: list[tuple[str, int, int]] = []

    def look(context: Any) -> None:
        seen.append((context.node_id, context.visit, context.round))

    back = way("a", when=lambda context: context.visit == 1 and context.node_id == "b", budget=1)
    result = await run(definition(node("a", way("b"), run=look), node("b", back, way(complete=str), run=look)))
    assert seen == [("a", 1, 1), ("b", 1, 2), ("a", 2, 3), ("b", 2, 4)]
    assert result.rounds == 4


async def test_w13_entering_goes_in_order() -> None:
    """A spent visit limit ends the run before the node is entered; a missing field ends it after, without a handler."""
    listener = Listener()
    loop = definition(node("a", way("a", budget=9), run=failing(AssertionError()), max_visits=1, requires=["x"]))
    with pytest.raises(WorkflowContractError):
        await run(loop, diagnostics=listener.scope())
    assert [event.name for event in listener.events][2:5] == ["round.started", "node.entered", "node.finished"]

    again = definition(node("a", way("a", budget=9), max_visits=2))
    listener = Listener()
    with pytest.raises(BudgetError) as caught:
        await run(again, diagnostics=listener.scope())
    assert (caught.value.allowance, caught.value.limit) == ("visits:a", 2)
    assert len(listener.named("node.entered")) == 2
    assert [event.payload.allowance for event in listener.named("budget.refused")] == ["visits:a"]  # type: ignore[union-attr]


@pytest.mark.parametrize("state", [{}, {"field": None}])
async def test_w14_a_required_field_is_there_before_the_handler_runs(state: Mapping[str, object]) -> None:
    """A missing key or None ends the run, naming node and field; the handler is not called."""
    with pytest.raises(WorkflowContractError, match=r"'field'.*'a'") as caught:
        await run(definition(node("a", run=failing(AssertionError()), requires=["field"])), state)
    assert (caught.value.rule, caught.value.node_id) == ("missing_field", "a")


async def test_w16_the_first_route_that_matches_wins() -> None:
    """Routes are tried in order after the merge, and predicates behind the winner are not called."""
    asked: list[str] = []

    def when(name: str, answer: object) -> Any:
        def predicate(context: Any) -> object:
            asked.append(f"{name}:{context.state['x']}")
            return answer

        return predicate

    routes = [way(complete="x", when=when(name, answer)) for name, answer in (("1", 0), ("2", "yes"), ("3", True))]
    assert (await run(definition(node("a", *routes, run=setting(x=5))))).value == 5
    assert asked == ["1:5", "2:5"]


async def test_w17_a_spent_route_counts_as_not_matching() -> None:
    """Twice again, then give up: two routes."""
    runs: list[int] = []
    looping = definition(
        node("a", way("a", budget=2), way(complete=lambda context: "gave up"), run=lambda c: runs.append(c.visit))
    )
    assert (await run(looping)).value == "gave up"
    assert runs == [1, 2, 3]


async def test_w18_no_matching_route_is_a_fault_of_the_definition() -> None:
    """It is not a completion."""
    with pytest.raises(WorkflowContractError) as caught:
        await run(definition(node("a", way(complete=str, when=lambda context: False))))
    assert (caught.value.rule, caught.value.node_id) == ("unmatched_route", "a")


async def test_w19_a_predicate_answers_at_once() -> None:
    """One that gives a coroutine, or a completion that does, is refused, and the coroutine is closed."""

    async def late() -> bool:
        return True

    for bad in (way(complete=str, when=lambda context: late()), way(complete=lambda context: late())):
        with pytest.raises(WorkflowContractError) as caught:
            await run(definition(node("a", bad)))
        assert caught.value.rule == "async_predicate"


async def test_w19_a_predicate_that_raises_fails_the_run() -> None:
    """Its error leaves as it is, and recovery is not asked."""
    wrong = ValueError("no")

    def when(context: Any) -> bool:
        raise wrong

    recovering = [way(complete=lambda context: "recovered")]
    with pytest.raises(ValueError, match="no") as caught:
        await run(definition(node("a", way(complete=str, when=when), recover=recovering)))
    assert caught.value is wrong


async def test_w20_a_route_completes_with_a_field_or_a_function() -> None:
    """A text names a field that must be there; a function is called once."""
    calls: list[int] = []

    def complete(context: Any) -> str:
        calls.append(1)
        return f"done {context.state['x']}"

    assert (await run(definition(node("a", way(complete=complete), run=setting(x=1))))).value == "done 1"
    assert calls == [1]
    with pytest.raises(WorkflowContractError, match="'y'") as caught:
        await run(definition(node("a", way(complete="y"))))
    assert (caught.value.rule, caught.value.node_id) == ("missing_field", "a")


async def test_w21_handlers_may_be_plain_or_async() -> None:
    """Both change the state; None changes nothing, and the state a handler sees is read-only."""

    async def waiting(context: Any) -> dict[str, int]:
        await anyio.lowlevel.checkpoint()
        with pytest.raises(TypeError):
            context.state["x"] = 1
        return {"x": context.state["x"] + 1}

    given = {"x": 1}
    two = definition(node("a", way("b"), run=waiting), node("b", way(complete="x")))
    assert (await run(two, given)).value == 2
    assert given == {"x": 1}


@pytest.mark.parametrize("result", [3, "text", [("x", 1)], {1: "x"}, StopIteration])
async def test_w22_a_handler_returns_fields_or_nothing(result: object) -> None:
    """Anything else ends the run."""
    with pytest.raises(WorkflowContractError) as caught:
        await run(definition(node("a", run=lambda context: result)))
    assert (caught.value.rule, caught.value.node_id) == ("node_result", "a")


async def test_w22_a_handler_is_awaited_once() -> None:
    """A coroutine that a coroutine gave is closed, and is no result."""

    async def late() -> None:
        """Never runs."""

    async def handler(context: Any) -> Any:
        return late()

    with pytest.raises(WorkflowContractError) as caught:
        await run(definition(node("a", run=handler)))
    gc.collect()
    assert caught.value.rule == "node_result"


async def test_w23_a_failure_is_offered_to_the_nodes_recovery_routes() -> None:
    """In order, the first that matches; the error carries where it passed."""
    wrong = ValueError("no")
    recover = [
        way("never", when=lambda context: isinstance(context.failure.error, KeyError)),
        way("mend", when=lambda context: context.failure.error is wrong),
    ]
    mended = await run(
        definition(
            node("a", run=failing(wrong), recover=recover),
            node("never", failure_phase="never"),
            node("mend", way(complete=lambda context: "mended"), failure_phase="mend"),
        )
    )
    assert mended.value == "mended"
    assert [(told.operation, told.node_id) for told in error_contexts(wrong)] == [("node", "a")]


async def test_w24_w25_a_failure_is_seen_only_while_its_phase_is_entered() -> None:
    """Predicates see it without a phase, the visit of the phase with it, and the visit after that not at all."""
    wrong = ValueError("no")
    seen: list[Any] = []

    def look(context: Any) -> None:
        seen.append(context.failure)

    def when(context: Any) -> bool:
        seen.append(context.failure)
        return True

    await run(
        definition(
            node("a", run=failing(wrong), recover=[way("mend", when=when)]),
            node("mend", way("after"), run=look, failure_phase="repair"),
            node("after", way(complete=str), run=look),
        )
    )
    asked, entered, after = seen
    assert (asked.phase, asked.node_id, asked.visit, asked.error) == (None, "a", 1, wrong)
    assert (entered.phase, entered.error, entered.info.message) == ("repair", wrong, "no")
    assert after is None


async def test_w26_without_a_matching_recovery_the_error_itself_leaves() -> None:
    """The same object, whether no route matches or there is none."""
    for recover in ([], [way(complete=str, when=lambda context: False)]):
        wrong = ValueError("no")
        with pytest.raises(ValueError, match="no") as caught:
            await run(definition(node("a", run=failing(wrong), recover=recover)))
        assert caught.value is wrong


async def test_w27_a_failure_phase_can_fail_anew() -> None:
    """It is a failure of that node, offered to its own recovery."""
    first, second = ValueError("first"), KeyError("second")
    seen: list[object] = []

    def when(context: Any) -> bool:
        seen.append(context.failure.error)
        return True

    result = await run(
        definition(
            node("a", run=failing(first), recover=[way("mend", when=when)]),
            node("mend", run=failing(second), failure_phase="p", recover=[way(complete=lambda c: "end", when=when)]),
        )
    )
    assert result.value == "end"
    assert seen == [first, second]


async def test_w28_a_failed_visit_changes_nothing() -> None:
    """What it would have returned is not merged, and the state stays as it was."""

    async def half(context: Any) -> dict[str, object]:
        raise ValueError({"x": 2})

    result = await run(definition(node("a", run=half, recover=[way(complete="x")])), {"x": 1})
    assert result.value == 1


async def test_w29_e3_faults_of_the_definition_and_spent_rounds_are_not_recovered() -> None:
    """Neither a contract error, nor the engine's own budgets, nor those of a nested workflow's rounds."""
    everything = [way(complete=lambda context: "recovered")]
    with pytest.raises(WorkflowContractError):
        await run(definition(node("a", run=lambda context: 3, recover=everything)))
    endless = definition(node("a", way("a", budget=99), recover=everything))
    with pytest.raises(BudgetError) as caught:
        await run(endless, max_rounds=3)
    assert (caught.value.allowance, caught.value.limit) == ("rounds", 3)
    inner = define_workflow(endless)

    async def nested(context: Any) -> None:
        await context.run_workflow(inner, {})

    with pytest.raises(BudgetError) as caught:
        await run(definition(node("outer", run=nested, recover=everything)), max_rounds=3)
    assert caught.value.allowance == "rounds"


async def test_w29_a_budget_error_of_a_handler_is_an_ordinary_failure() -> None:
    """Recovery is offered one that the handler itself raised."""
    recovering = [way(complete=lambda context: context.failure.info.code)]
    result = await run(definition(node("a", run=failing(BudgetError(allowance="mine")), recover=recovering)))
    assert result.value == "budget.exhausted"


async def test_w29_cancellation_is_not_recovered() -> None:
    """A token that trips in a visit ends the run with its reason, also if the handler fails while it unwinds."""
    token = CancelToken()

    async def stubborn(context: Any) -> None:
        token.cancel("enough")
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("while unwinding")

    async def quick(context: Any) -> None:
        token.cancel("enough")

    everything = [way(complete=lambda context: "recovered")]
    for handler in (stubborn, quick):
        token = CancelToken()
        told = Told()
        engine = engine_of(
            definition(node("a", run=handler, recover=everything)), on_workflow=told.on_workflow, on_loop=told.on_loop
        )
        with pytest.raises(AbortedError) as caught:
            await engine.run(request=RequestRuntime(signal=token))
        assert caught.value.reason == "enough"
        assert [event.decision for event in told.loop] == [None, "cancelled"]
        assert told.workflow[-1].status == "cancelled"


async def test_w30_a_recovery_route_may_complete() -> None:
    """Then the run succeeds with that value."""
    recovering = [way(complete=lambda context: str(context.failure.error))]
    assert (await run(definition(node("a", run=failing(ValueError("as told")), recover=recovering)))).value == "as told"


async def test_w35_a_nested_workflow_has_its_own_state_and_shares_the_rounds() -> None:
    """It starts from what it is given, its value comes back, and its rounds count against the engine."""
    inner = define_workflow(
        definition(node("x", way("y"), run=setting(v=1)), node("y", run=lambda context: {"value": dict(context.state)}))
    )

    async def nested(context: Any) -> dict[str, object]:
        return {"value": await context.run_workflow(inner, {"given": True})}

    outer = definition(node("a", run=nested))
    listener = Listener()
    result = await run(outer, {"secret": 1}, diagnostics=listener.scope())
    assert result.value == {"given": True, "v": 1}
    assert result.rounds == 3
    entered = {event.identity.node_id: event.identity for event in listener.named("node.entered")}
    starts = [event.identity for event in listener.named("workflow.started")]
    assert starts[1].parent_span_id == entered["a"].span_id  # type: ignore[index]
    with pytest.raises(BudgetError):
        await run(outer, max_rounds=2)


async def test_w35_a_nested_failure_is_the_handlers() -> None:
    """It is offered to the node's recovery, and a visit limit within is an ordinary failure too."""
    wrong = ValueError("inside")
    failed = define_workflow(definition(node("x", run=failing(wrong))))
    limited = define_workflow(definition(node("x", way("x", budget=9), max_visits=1)))
    for inner in (failed, limited):

        async def nested(context: Any, inner: Any = inner) -> None:
            await context.run_workflow(inner, {})

        recovering = [way(complete=lambda context: context.failure.info.code)]
        result = await run(definition(node("a", run=nested, recover=recovering)))
        assert result.value == ("error.unknown" if inner is failed else "budget.exhausted")


async def test_w35_what_is_no_workflow_is_refused() -> None:
    """A definition is not a workflow yet, and the error says so."""

    async def nested(context: Any) -> None:
        await context.run_workflow(definition(node("x")), {})

    with pytest.raises(UsageError, match="workflow"):
        await run(definition(node("a", run=nested)))


async def test_a_context_is_of_no_use_after_its_visit() -> None:
    """Reports, caches, the model and nested workflows are refused once the visit is over."""
    kept: list[Any] = []
    inner = define_workflow(definition(node("x")))
    await run(definition(node("a", run=kept.append)))
    context = kept[0]
    with pytest.raises(OutOfTurnError):
        context.report(WorkflowNodeReport(title="late"))
    with pytest.raises(OutOfTurnError):
        context.cache.memory.get("key")
    with pytest.raises(OutOfTurnError):
        await context.run_workflow(inner, {})
    with pytest.raises(OutOfTurnError):
        context.reporting.sub_flow.write(SubFlowStepInput(title="late"))


async def test_no_marker_of_the_state_shows_in_any_event() -> None:
    """Events of rounds, workflows and metadata hold no state, no result and no text of an error."""
    secret = "SECRET"  # noqa: S105 - a marker
    told, listener = Told(), Listener()

    def leaky(context: Any) -> None:
        raise ValueError(secret)

    leaking = definition(
        node("a", way("b"), run=setting(x=secret)),
        node("b", run=leaky, recover=[way(complete=lambda context: secret)]),
    )
    result = await run(
        leaking,
        {"given": secret},
        on_loop=told.on_loop,
        on_workflow=told.on_workflow,
        diagnostics=listener.scope(accept_content=False),
    )
    assert result.value == secret
    assert secret not in repr([told.loop, told.workflow, [event.to_record() for event in listener.events]])
    assert [event.type for event in told.workflow] == [
        "started", "node_entered", "node_finished", "route_taken",
        "node_entered", "node_finished", "recovery_taken", "finished",
    ]  # fmt: skip
    assert told.workflow[5].error_code == "error.unknown"
