"""Core diagnostics as OpenTelemetry spans: a test for each row, and whole workflows on both loops."""

import pytest
from opentelemetry.trace import SpanKind

from runlane.contracts import DurationMs, Id, ModelUsage
from runlane.diagnostics import (
    CORE_EVENT_CATALOG,
    BudgetRefused,
    CacheRead,
    CoreEventName,
    CoreEventPayload,
    CreateDiagnosticsOptions,
    DiagnosticContext,
    DiagnosticSpanFields,
    ErrorFacts,
    ModelFinished,
    ModelStarted,
    NodeEntered,
    NodeFinished,
    RoundFinished,
    RoundStarted,
    RouteTaken,
    RunFinished,
    RunStarted,
    ToolFinished,
    ToolInput,
    ToolStarted,
    WorkflowFinished,
    WorkflowStarted,
    create_diagnostics,
)
from runlane.observability.otel import CoreTracer, RunTracer
from runlane.testing import FakeClock
from tests.delivery.telling import state, terminal
from tests.observability.spans import Collector, is_error, is_unset, said_by

pytestmark = pytest.mark.anyio

_FAILED = ErrorFacts(code="node.broken", name="BrokenError")


def scope_over(tracer: CoreTracer, *, run_id: str = "run-1", content: bool = False) -> DiagnosticContext:
    """A root scope that a tracer listens to."""
    options = CreateDiagnosticsOptions(run_id=Id(run_id), output=tracer, accept_content=content, clock=FakeClock())
    return create_diagnostics(options)


_PAIRS: dict[str, tuple[CoreEventName, CoreEventPayload, CoreEventName, dict[str, object]]] = {
    "invoke_agent": ("run.started", RunStarted(kind="workflow", max_rounds=3), "run.finished", {"rounds": 1}),
    "invoke_workflow flow": (
        "workflow.started",
        WorkflowStarted(nodes=2, start=Id("a")),
        "workflow.finished",
        {"visits": 1, "transitions": 1},
    ),
    "runlane.node draft": ("node.entered", NodeEntered(), "node.finished", {}),
    "chat m-1": (
        "model.started",
        ModelStarted(transport="core:plain-text", call_number=2, provider_id="google", model_id="m-1"),
        "model.finished",
        {},
    ),
    "execute_tool look": ("tool.started", ToolStarted(), "tool.finished", {}),
}
_ENDS = {
    "run.finished": RunFinished,
    "workflow.finished": WorkflowFinished,
    "node.finished": NodeFinished,
    "model.finished": ModelFinished,
    "tool.finished": ToolFinished,
}
_FIELDS = DiagnosticSpanFields(
    workflow_id=Id("flow"),
    node_id=Id("draft"),
    visit=2,
    round=1,
    stage=Id("writing"),
    tool_id=Id("look"),
    invocation_id=Id("inv-1"),
)
_SAID: dict[str, dict[str, object]] = {
    "invoke_agent": {"gen_ai.operation.name": "invoke_agent", "runlane.run.id": "run-1"},
    "invoke_workflow flow": {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.agent.name": "flow",
        "runlane.workflow.id": "flow",
    },
    "runlane.node draft": {"runlane.node.id": "draft", "runlane.node.visit": 2, "runlane.round": 1},
    "chat m-1": {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m-1",
        "gen_ai.provider.name": "gcp.gemini",
        "runlane.stage": "writing",
        "runlane.transport": "core:plain-text",
        "runlane.call_number": 2,
        "runlane.invocation.id": "inv-1",
    },
    "execute_tool look": {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "runlane.invocation.id": "inv-1",
    },
}


@pytest.mark.parametrize("name", _PAIRS)
@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
async def test_b28_b29_a_started_and_a_finished_event_are_one_span(name: str, status: str) -> None:
    """Name, kind and attributes by the table; failed is an error with its code, cancelled is none."""
    collector = Collector()
    tracer = CoreTracer(collector.provider)
    scope = scope_over(tracer).child(_FIELDS)
    begin, payload, end, facts = _PAIRS[name]
    error = _FAILED if status == "failed" else None
    await scope.emit(begin, payload)
    assert (tracer.open_spans, collector.spans) == (1, [])
    await scope.emit(end, _ENDS[end](status=status, duration_ms=DurationMs(1), error=error, **facts))
    span = collector.one(name)
    expected: dict[str, object] = {**_SAID[name]}
    if status == "failed":
        expected["error.type"] = "node.broken"
    elif status == "cancelled":
        expected["runlane.status"] = "cancelled"
    assert said_by(span) == expected
    assert is_error(span) == (status == "failed")
    assert is_unset(span) == (status != "failed")
    assert span.kind is (SpanKind.CLIENT if name.startswith("chat") else SpanKind.INTERNAL)
    assert tracer.open_spans == 0


async def test_b29_only_reported_usage_is_said() -> None:
    """A figure the provider did not give is no attribute, never 0; a reported 0 is one."""
    collector = Collector()
    scope = scope_over(CoreTracer(collector.provider))
    await scope.emit("model.started", ModelStarted(transport="t", call_number=1))
    usage = ModelUsage(input_tokens=0, output_tokens=7)
    await scope.emit(
        "model.finished",
        ModelFinished(status="succeeded", duration_ms=DurationMs(1), usage=usage, finish_reason="stop"),
    )
    said = said_by(collector.one("chat"))
    assert {name: said[name] for name in said if "usage" in name} == {
        "gen_ai.usage.input_tokens": 0,
        "gen_ai.usage.output_tokens": 7,
    }
    assert said["gen_ai.response.finish_reasons"] == ("stop",)


async def test_spans_stand_under_each_other_and_a_round_has_none() -> None:
    """Run, workflow under it across the round between, node, model call; facts are events on the nearest span."""
    collector = Collector()
    root = scope_over(CoreTracer(collector.provider))
    await root.emit("run.started", RunStarted(kind="workflow", max_rounds=3))
    round_scope = root.child(DiagnosticSpanFields(round=1))
    await round_scope.emit("round.started", RoundStarted())
    flow = round_scope.child(DiagnosticSpanFields(workflow_id=Id("flow")))
    await flow.emit("workflow.started", WorkflowStarted(nodes=1, start=Id("draft")))
    node = flow.child(DiagnosticSpanFields(node_id=Id("draft"), visit=1))
    await node.emit("node.entered", NodeEntered())
    await node.emit("cache.read", CacheRead(tier="memory", partition="p", hit=False))
    call = node.child(DiagnosticSpanFields(stage=Id("writing")))
    await call.emit("budget.refused", BudgetRefused(allowance="model_calls", limit=3))
    await node.emit("node.finished", NodeFinished(status="succeeded", duration_ms=DurationMs(1)))
    await node.emit("route.taken", RouteTaken(route_index=0, completes=True))
    await flow.emit(
        "workflow.finished", WorkflowFinished(status="succeeded", visits=1, transitions=1, duration_ms=DurationMs(1))
    )
    await round_scope.emit("round.finished", RoundFinished(decision="complete", duration_ms=DurationMs(1)))
    await root.emit("run.finished", RunFinished(status="succeeded", rounds=1, duration_ms=DurationMs(1)))
    assert sorted(collector.shape(), key=str) == [
        ("invoke_agent", None),
        ("invoke_workflow flow", "invoke_agent"),
        ("runlane.node draft", "invoke_workflow flow"),
    ]
    told = {span.name: [event.name for event in span.events] for span in collector.spans}
    assert told == {
        "invoke_agent": [],
        "invoke_workflow flow": ["route.taken"],
        "runlane.node draft": ["cache.read", "budget.refused"],
    }
    (read, _) = collector.one("runlane.node draft").events
    assert dict(read.attributes or {}) == {"runlane.tier": "memory", "runlane.partition": "p", "runlane.hit": False}


@pytest.mark.parametrize(("captures", "accepts"), [(True, True), (True, False), (False, True), (False, False)])
async def test_b30_content_needs_two_yeses(*, captures: bool, accepts: bool) -> None:
    """A content event is a span event only if diagnostics accept content and the tracer captures it."""
    collector = Collector()
    scope = scope_over(CoreTracer(collector.provider, capture_content=captures), content=accepts)
    await scope.emit("tool.started", ToolStarted())
    await scope.emit("tool.input", lambda: ToolInput(value={"at": "canary"}))
    await scope.emit("tool.finished", ToolFinished(status="succeeded", duration_ms=DurationMs(1)))
    assert ("canary" in collector.everything()) == (captures and accepts)


def test_every_event_of_the_catalogue_has_a_place() -> None:
    """By default a tracer takes all metadata and no content."""
    tracer = CoreTracer(Collector().provider)
    for descriptor in CORE_EVENT_CATALOG.values():
        assert tracer.accepts(descriptor) is not descriptor.content


async def test_a_workflow_that_answers_a_durable_run_stands_under_it_and_tells_nothing_twice() -> None:
    """With the runs' tracer the workflow's spans belong to the run's trace; its calls are the run's own steps."""
    collector = Collector()
    runs = RunTracer(collector.provider)
    root = scope_over(CoreTracer(collector.provider, runs=runs), run_id="r")
    runs.publish(state(2))
    await root.emit("run.started", RunStarted(kind="workflow", max_rounds=3))
    call = root.child(DiagnosticSpanFields(stage=Id("writing")))
    await call.emit("model.started", ModelStarted(transport="t", call_number=1))
    await call.emit("model.finished", ModelFinished(status="succeeded", duration_ms=DurationMs(1)))
    await root.emit("run.finished", RunFinished(status="succeeded", rounds=1, duration_ms=DurationMs(1)))
    runs.publish(terminal(3))
    durable, core = collector.spans[1], collector.spans[0]
    assert len(collector.spans) == 2
    assert core.parent is not None
    assert durable.context is not None
    assert core.parent.span_id == durable.context.span_id


async def test_a_run_that_ended_leaves_nothing_behind() -> None:
    """Spans and what is known of their places are forgotten with the root, also those that never ended."""
    collector = Collector()
    tracer = CoreTracer(collector.provider)
    for number in range(20):
        root = scope_over(tracer, run_id=f"run-{number}")
        await root.emit("run.started", RunStarted(kind="step", max_rounds=1))
        lost = root.child(DiagnosticSpanFields(node_id=Id("lost")))
        await lost.emit("node.entered", NodeEntered())
        await root.emit("run.finished", RunFinished(status="cancelled", rounds=1, duration_ms=DurationMs(1)))
    assert tracer.open_spans == 0
    assert tracer._trees == {}
    assert len(collector.named("runlane.node lost")) == 20
