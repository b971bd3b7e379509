"""What actually happened: rules W43 to W47, C5."""

# ruff: noqa: ANN401, ARG001 - handlers and routes take a context of any app, also where they ignore it

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runlane.contracts import Id
from runlane.diagnostics import CoreEvent, ReportedStep, SubFlowStepFix, SubFlowStepInput
from runlane.errors import CheckFailedError, UsageError
from runlane.flow import (
    WorkflowChain,
    WorkflowChainRequest,
    WorkflowNodeReport,
    build_workflow_chain,
    define_workflow,
    read_workflow_chain,
)
from tests.flow.engines import Listener, engine_of
from tests.flow.workflows import definition, node, way

pytestmark = pytest.mark.anyio

RUN = Id("run")


def _reporting(context: Any) -> None:
    log = context.reporting.sub_flow
    step = log.write(SubFlowStepInput(title="search", status="running"))
    log.fix(step.step_id, SubFlowStepFix(status="succeeded"))
    log.fix(step.step_id, SubFlowStepFix(detail={"found": 3}))
    context.reporting.report(ReportedStep(id="mine", title="own"))  # type: ignore[arg-type]
    context.report(WorkflowNodeReport(title="report", summary="all well"))


async def captured(*, accept_content: bool = True) -> list[CoreEvent]:
    """Run a loop with a failure, a recovery, a nested workflow and reports, and return what was told."""
    inner = define_workflow(definition(node("x"), start="x"))

    async def nested(context: Any) -> None:
        await context.run_workflow(inner, {})

    def failing(context: Any) -> None:
        raise ValueError("no")

    looping = definition(
        node("a", way("b"), run=_reporting),
        node("b", way("a", budget=1), way("c"), run=nested),
        node("c", run=failing, recover=[way("mend")]),
        node("mend", way(complete=str), failure_phase="repair"),
    )
    outer = type(looping)(id=Id("outer"), start=looping.start, nodes=looping.nodes)
    listener = Listener()
    await engine_of(outer, diagnostics=listener.scope(accept_content=accept_content)).run()
    return listener.events


def chain_of(records: list[Any], workflow_id: str | None = None) -> WorkflowChain:
    """Build the chain of the run."""
    return build_workflow_chain(records, run_id=RUN, workflow_id=None if workflow_id is None else Id(workflow_id))


async def test_w43_every_visit_is_an_entry_of_its_own() -> None:
    """In order of entry, told apart by their spans; nothing is merged by node."""
    chain = chain_of(await captured())
    assert chain.workflow_id == "outer"
    assert [(visit.node_id, visit.visit, visit.status) for visit in chain.nodes] == [
        ("a", 1, "succeeded"), ("b", 1, "succeeded"), ("a", 2, "succeeded"), ("b", 2, "succeeded"),
        ("c", 1, "failed"), ("mend", 1, "succeeded"),
    ]  # fmt: skip
    assert len({visit.span_id for visit in chain.nodes}) == 6


async def test_w43_a_visit_whose_entry_is_missing_is_not_invented() -> None:
    """It appears only if another fact carries its span, and then without a time of entry."""
    events = await captured()
    without_entry = [event for event in events if event.name != "node.entered"]
    assert all(visit.entered_at is None for visit in chain_of(without_entry).nodes)
    only_routes = [event for event in events if event.name in {"route.taken", "recovery.taken"}]
    assert chain_of(only_routes).nodes == ()
    assert len(chain_of(only_routes).transitions) == 6


async def test_w44_a_transition_is_a_captured_fact() -> None:
    """It names the visit it leads to, which need not have been captured."""
    events = await captured()
    chain = chain_of(events)
    assert [(step.kind, step.route_index, step.to_node_id, step.completes) for step in chain.transitions] == [
        ("normal", 0, "b", False), ("normal", 0, "a", False), ("normal", 0, "b", False), ("normal", 1, "c", False),
        ("recovery", 0, "mend", False), ("normal", 0, None, True),
    ]  # fmt: skip
    spans = [visit.span_id for visit in chain.nodes]
    assert [step.to_span_id for step in chain.transitions] == [*spans[1:], None]
    assert [step.from_span_id for step in chain.transitions] == spans
    gone = spans[3]
    partial = chain_of([event for event in events if event.identity.span_id != gone])
    assert gone not in {visit.span_id for visit in partial.nodes}
    assert gone in {step.to_span_id for step in partial.transitions}


async def test_w45_a_visits_steps_are_a_flat_history() -> None:
    """Every write and every single fix, in order; fixes are not folded in."""
    first = chain_of(await captured()).nodes[0]
    assert [(entry.entry, entry.title, entry.status, entry.revision) for entry in first.subflow] == [
        ("write", "search", "running", 1),
        ("fix", None, "succeeded", 2),
        ("fix", None, None, 3),
        ("write", "own", None, 1),
    ]
    assert first.subflow[2].detail == {"found": 3}
    assert [event.name for event in first.events] == ["node.report"]
    assert first.events[0].payload == {"title": "report", "summary": "all well"} | first.events[0].payload  # type: ignore[operator]


async def test_w45_old_records_that_lack_recorder_fields_are_accepted() -> None:
    """A step without id, sequence and text is taken as it is."""
    records = [event.to_record() for event in await captured()]
    finished = next(record for record in records if record["name"] == "node.finished")
    finished["sub_steps"] = [{"title": "old"}, {"status": "succeeded"}]
    assert [entry.title for entry in chain_of(records).nodes[0].subflow] == ["old", None]


async def test_w46_complete_says_nothing_of_content() -> None:
    """A capture without content can be complete; one with content and a gap is not."""
    bare = chain_of(await captured(accept_content=False)).coverage
    assert (bare.complete, bare.content_included) == (True, False)
    assert (bare.visits_expected, bare.visits_captured) == (6, 6)
    assert (bare.transitions_expected, bare.transitions_captured) == (6, 6)
    events = await captured()
    assert chain_of(events).coverage.content_included
    for name in ("workflow.started", "workflow.finished", "node.entered", "node.finished", "route.taken"):
        mine = [i for i, event in enumerate(events) if event.name == name and event.identity.workflow_id == "outer"]
        kept = [event for index, event in enumerate(events) if index != mine[-1 if name == "route.taken" else 0]]
        assert not chain_of(kept).coverage.complete
    unfinished = chain_of([event for event in events if event.name != "workflow.finished"]).coverage
    assert (unfinished.finished_seen, unfinished.visits_expected) == (False, None)


async def test_w47_order_repeats_and_other_runs_do_not_matter() -> None:
    """Any order and any repetition of the same records, stored or live, give the same chain."""
    events = await captured()
    expected = chain_of(events)
    stranger = events[3].to_record() | {"identity": {"run_id": "other", "span_id": "s"}, "event_id": "e"}
    mixed: list[Any] = [*events, *(json.loads(json.dumps(event.to_record())) for event in events), stranger]
    random.Random(1).shuffle(mixed)  # noqa: S311 - an order, not a secret
    assert chain_of(mixed) == expected


async def test_w47_a_workflow_is_chosen_by_its_id() -> None:
    """The nested workflow has chains of its own, and its visits are none of the outer one's."""
    nested = chain_of(await captured(), "w")
    assert [visit.node_id for visit in nested.nodes] == ["x", "x"]
    assert chain_of(await captured(), "unknown").nodes == ()


async def test_w47_a_source_is_asked_once_and_may_be_async() -> None:
    """It gets the request and gives records; nothing else is fetched."""
    events, asked = await captured(), []

    async def source(request: WorkflowChainRequest) -> list[CoreEvent]:
        asked.append(request)
        return events

    request = WorkflowChainRequest(run_id=RUN)
    assert await read_workflow_chain(source, request) == chain_of(events)
    assert await read_workflow_chain(lambda _: events, request) == chain_of(events)
    assert asked == [request]


@pytest.mark.parametrize("record", [{}, None, {"name": "node.entered"}, 3, [("a", 1)]])
async def test_w47_a_malformed_record_is_refused(record: object) -> None:
    """What is no diagnostic record ends in a typed error."""
    with pytest.raises(CheckFailedError):
        chain_of([record])


async def test_records_come_as_an_iterable() -> None:
    """A text or a number is refused by name."""
    for wrong in ("records", b"records", 3):
        with pytest.raises(UsageError, match="records"):
            chain_of(wrong)  # type: ignore[arg-type]


@settings(max_examples=25)
@given(payload=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists) | st.dictionaries(
    st.sampled_from(["route_index", "completes", "target_node_id", "target_span_id", "status", "visits"]),
    st.none() | st.booleans() | st.integers() | st.text(),
))  # fmt: skip
def test_payloads_are_not_trusted(payload: object) -> None:
    """Whatever a stored payload holds, a chain comes out, and what it lacks is unknown."""
    records = [
        {
            "version": 1, "event_id": f"e{index}", "name": name, "producer_id": "p", "sequence": index + 1,
            "occurred_at": 0, "identity": {"run_id": "run", "workflow_id": "w"} | more, "payload": payload,
        }
        for index, (name, more) in enumerate(
            (
                ("node.finished", {"span_id": "v", "parent_span_id": "s", "node_id": "a"}),
                ("route.taken", {"span_id": "v", "parent_span_id": "s", "node_id": "a"}),
                ("workflow.finished", {"span_id": "s"}),
            )
        )
    ]  # fmt: skip
    chain = chain_of(records)
    assert not chain.coverage.complete
    assert len(chain.transitions) == 1
