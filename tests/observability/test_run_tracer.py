"""Durable runs as OpenTelemetry spans, with real runs on both loops."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind
from typing_extensions import override

from runlane.delivery import DurableEvent, RuntimeEvent, fold_events
from runlane.errors import ProviderError, ToolError
from runlane.models import FinishReport, FunctionCallDelta, ModelUsage, ResponseInfo, TextDelta, UsageReport
from runlane.observability import RunEvent
from runlane.observability._names import SCHEMA_URL, AttributeName, provider_name
from runlane.observability.otel import RunTracer
from runlane.runtime import DeliveryConfig, LoopConfig, RuntimeConfig
from runlane.store import ReadEvents
from runlane.testing import Hold, ScriptedModel, ScriptedStep
from runlane.tools import tool
from tests.delivery.telling import state, terminal
from tests.observability.spans import Collector, is_error, is_unset, said_by
from tests.runtime.scenes import CONVERSATION, Scene, opened

_CANARY = "canary-7f3a"

both_loops = pytest.mark.anyio


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"{_CANARY} {at}"


@tool
async def stumble() -> str:
    """Fail in a known way."""
    raise ToolError("stumble.stone", f"over {_CANARY}")


def calling(name: str, arguments: str = "{}") -> list[ScriptedStep]:
    """A reply that calls a tool."""
    return [
        ResponseInfo(response_id="resp_1", model="m-2026"),
        FunctionCallDelta(0, id="c1", name=name, arguments=arguments),
        UsageReport(ModelUsage(input_tokens=10, output_tokens=2, cache_read_tokens=4)),
        FinishReport("tool-calls"),
    ]


@dataclass(frozen=True)
class Traced:
    """A scene whose runs become spans."""

    scene: Scene
    collector: Collector
    tracer: RunTracer


@asynccontextmanager
async def traced(
    model: ScriptedModel, *, operators: bool = True, content: bool = False, loop: LoopConfig | None = None
) -> AsyncIterator[Traced]:
    """Open a runtime with a tracer."""
    collector = Collector()
    tracer = RunTracer(collector.provider, agent_name="support", capture_content=content)
    config = RuntimeConfig(
        delivery=DeliveryConfig(publisher=tracer.publish),
        observers=(tracer,) if operators else (),
        loop=loop or LoopConfig(),
    )
    async with opened(model, config=config, tools=(look, stumble)) as scene:
        yield Traced(scene, collector, tracer)
    assert tracer.open_runs == 0


async def one_run(model: ScriptedModel, *, operators: bool = True, content: bool = False) -> Collector:
    """Run one input to its end."""
    async with traced(model, operators=operators, content=content) as here:
        await here.scene.runtime.submit(CONVERSATION, f"{_CANARY} please").result
    return here.collector


def test_names_are_those_of_the_conventions() -> None:
    """Every `gen_ai` name exists in the semantic conventions, and stands in one table only."""
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    ours = {value for name, value in vars(AttributeName).items() if name.isupper()}
    assert {name for name in ours if name.startswith("gen_ai.")} <= known
    assert {name for name in ours if not name.startswith(("gen_ai.", "runlane."))} == {error_attributes.ERROR_TYPE}
    assert Schemas.V1_44_0.value == SCHEMA_URL


@pytest.mark.parametrize(
    ("protocol", "name"),
    [("openai-chat", "openai"), ("openai-responses", "openai"), ("anthropic", "anthropic"), ("google", "gcp.gemini")],
)
def test_each_wire_protocol_has_the_conventions_name_of_its_provider(protocol: str, name: str) -> None:
    """The names are well-known values of the conventions."""
    values = {value.value for value in gen_ai_attributes.GenAiProviderNameValues}
    assert provider_name(protocol) == name
    assert name in values


@both_loops
async def test_a_run_with_a_tool_is_a_tree_of_run_steps_calls_and_tool() -> None:
    """Run, two steps under it, a call of the model under each, the tool under the step that asked for it."""
    collector = await one_run(ScriptedModel(calling("look", '{"at":"sky"}'), "Blue."))
    assert sorted(collector.shape(), key=str) == sorted(
        [
            ("invoke_agent support", None),
            ("runlane.step", "invoke_agent support"),
            ("chat scripted-model", "runlane.step"),
            ("execute_tool look", "runlane.step"),
            ("runlane.step", "invoke_agent support"),
            ("chat scripted-model", "runlane.step"),
        ],
        key=str,
    )
    kinds = {span.name.split()[0]: span.kind for span in collector.spans}
    assert kinds == {
        "invoke_agent": SpanKind.INTERNAL,
        "runlane.step": SpanKind.INTERNAL,
        "chat": SpanKind.CLIENT,
        "execute_tool": SpanKind.INTERNAL,
    }
    first, _ = collector.named("runlane.step")
    tool_parent = collector.one("execute_tool look").parent
    assert tool_parent is not None
    assert first.context is not None
    assert tool_parent.span_id == first.context.span_id
    assert len({span.context.trace_id for span in collector.spans if span.context}) == 1


@both_loops
async def test_a_run_says_whose_it_is_and_how_it_ended() -> None:
    """Agent, conversation, run, reason and the totals; success has no status and no error."""
    collector = await one_run(ScriptedModel(calling("look", '{"at":"sky"}'), "Blue."))
    run = collector.one("invoke_agent support")
    said = said_by(run)
    assert said["gen_ai.operation.name"] == "invoke_agent"
    assert said["gen_ai.agent.name"] == "support"
    assert said["gen_ai.conversation.id"] == CONVERSATION
    assert str(said["runlane.run.id"]).startswith("run_")
    assert said["runlane.run.terminal_reason"] == "success"
    assert said["gen_ai.usage.input_tokens"] == 10
    assert said["runlane.usage.provenance"] == "computed"
    assert "error.type" not in said
    assert is_unset(run)


@both_loops
async def test_a_call_says_who_answered_and_what_was_reported() -> None:
    """Provider, models, response, finish reason and usage of the call alone, in the provider's own figures."""
    collector = await one_run(ScriptedModel(calling("look", '{"at":"sky"}'), "Blue."))
    said = said_by(collector.named("chat scripted-model")[0])
    said.pop("runlane.operation.id")  # type: ignore[attr-defined]
    assert said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.stream": True,
        "gen_ai.request.model": "scripted-model",
        "gen_ai.provider.name": "scripted",
        "gen_ai.response.id": "resp_1",
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.finish_reasons": ("tool-calls",),
        "gen_ai.response.time_to_first_chunk": 0.0,
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "runlane.usage.provenance": "provider-reported",
    }


@both_loops
async def test_usage_that_nobody_reported_is_not_there() -> None:
    """An unknown figure is no attribute; it is never 0."""
    collector = await one_run(ScriptedModel("Blue."))
    assert not any("usage" in name for span in collector.spans for name in said_by(span))


@both_loops
async def test_a_tool_says_what_was_called() -> None:
    """Name, id and type of the call; nothing of what went in or came out."""
    collector = await one_run(ScriptedModel(calling("look", '{"at":"sky"}'), "Blue."))
    span = collector.one("execute_tool look")
    assert said_by(span) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
    }
    assert is_unset(span)


@both_loops
async def test_a_failed_tool_is_an_error_with_its_code_and_the_run_is_none() -> None:
    """What the model can deal with is no failure of the run."""
    collector = await one_run(ScriptedModel(calling("stumble"), "Ouch."))
    span = collector.one("execute_tool stumble")
    assert is_error(span)
    assert said_by(span)["error.type"] == "stumble.stone"
    assert is_unset(collector.one("invoke_agent support"))


@both_loops
async def test_nothing_that_was_said_is_in_a_span_by_default() -> None:
    """Input, answer, arguments, results and error messages stay out: of attributes, names, events and statuses."""
    replies: list[list[ScriptedStep]] = [
        calling("look", f'{{"at":"{_CANARY}"}}'),
        calling("stumble"),
        [TextDelta(_CANARY), ProviderError(f"{_CANARY} broke", provider="p", status=500)],
    ]
    collector = await one_run(ScriptedModel(*replies))
    assert said_by(collector.one("invoke_agent support"))["error.type"] == "provider.failure"
    assert _CANARY not in collector.everything()


@both_loops
async def test_content_is_there_once_it_was_asked_for() -> None:
    """Input, answer, arguments and results become the conventions' own attributes."""
    collector = await one_run(ScriptedModel(calling("look", '{"at":"sky"}'), "Blue."), content=True)
    run, used = said_by(collector.one("invoke_agent support")), said_by(collector.one("execute_tool look"))
    assert run["gen_ai.input.messages"] == (
        '[{"role":"user","parts":[{"type":"text","content":"canary-7f3a please"}]}]'
    )
    assert '"content":"Blue."' in str(run["gen_ai.output.messages"])
    assert used["gen_ai.tool.call.arguments"] == '{"at":"sky"}'
    assert used["gen_ai.tool.call.result"] == '"canary-7f3a sky"'


@both_loops
async def test_an_interrupted_run_is_no_error() -> None:
    """Neither its span nor that of its call has an error; both say that they were cancelled."""
    hold = Hold()
    async with traced(ScriptedModel([TextDelta("a"), hold, FinishReport("stop")])) as here:
        ticket = here.scene.runtime.submit(CONVERSATION, "one")
        await hold.reached()
        await here.scene.runtime.interrupt(CONVERSATION, ticket.run_id)
        await ticket.result
    run, call = here.collector.one("invoke_agent support"), here.collector.one("chat scripted-model")
    assert is_unset(run)
    assert is_unset(call)
    assert said_by(run)["runlane.status"] == said_by(call)["runlane.status"] == "cancelled"
    assert "error.type" not in said_by(run) | said_by(call)  # type: ignore[operator]
    assert [event.name for event in run.events] == ["runlane.interrupt_requested"]


@both_loops
@pytest.mark.parametrize("operators", [True, False])
async def test_a_failed_run_and_its_call_are_errors(*, operators: bool) -> None:
    """With operator events the code of the error is named, without them the reason of the run."""
    model = ScriptedModel([TextDelta("a"), ProviderError("no", provider="p", status=500)])
    collector = await one_run(model, operators=operators)
    run = collector.one("invoke_agent support")
    (call,) = (span for span in collector.spans if span.name.startswith("chat"))
    assert is_error(run)
    assert is_error(call)
    assert said_by(run)["error.type"] == ("provider.failure" if operators else "provider_failure")
    assert said_by(call)["error.type"] == ("provider.failure" if operators else "_OTHER")


@both_loops
async def test_times_are_those_of_the_events() -> None:
    """A span starts and ends when what it stands for did, by the runtime's clock; the wait is said apart."""
    first, second = Hold(), Hold()
    model = ScriptedModel([first, TextDelta("a"), second, FinishReport("stop")])
    async with traced(model) as here:
        ticket = here.scene.runtime.submit(CONVERSATION, "one")
        await first.reached()
        here.scene.clock.tick(1)
        first.release()
        await second.reached()
        here.scene.clock.tick(2)
        second.release()
        await ticket.result
    call = here.collector.one("chat scripted-model")
    assert call.start_time is not None
    assert call.end_time is not None
    assert call.end_time - call.start_time == 3_000_000_000
    assert said_by(call)["gen_ai.response.time_to_first_chunk"] == 1.0


@both_loops
async def test_a_run_stands_under_the_trace_that_its_request_carries() -> None:
    """A `traceparent` given with the input becomes the parent of the run's span, whoever executes it."""
    async with traced(ScriptedModel("Blue.")) as here:
        parent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        await here.scene.runtime.submit(CONVERSATION, "one", request=parent).result
    run = here.collector.one("invoke_agent support")
    assert run.context is not None
    assert run.parent is not None
    assert f"{run.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{run.parent.span_id:016x}" == "b7ad6b7169203331"


@pytest.mark.parametrize("traceparent", ["nonsense", "", 7, None, "00-0-0-0"])
@both_loops
async def test_a_request_without_a_usable_trace_begins_one(traceparent: object) -> None:
    """What is no trace context is ignored."""
    async with traced(ScriptedModel("Blue.")) as here:
        await here.scene.runtime.submit(CONVERSATION, "one", request={"traceparent": traceparent}).result
    assert here.collector.one("invoke_agent support").parent is None


@both_loops
async def test_runs_of_a_conversation_are_traces_of_their_own() -> None:
    """Two runs, one after another, share nothing but the conversation."""
    async with traced(ScriptedModel("a", "b")) as here:
        for text in ("one", "two"):
            await here.scene.runtime.submit(CONVERSATION, text).result
    runs = here.collector.named("invoke_agent support")
    assert len({span.context.trace_id for span in runs if span.context}) == 2


@both_loops
async def test_a_repeated_key_makes_no_span() -> None:
    """The first admission told again is no execution."""
    async with traced(ScriptedModel("a")) as here:
        for _ in range(3):
            await here.scene.runtime.submit(CONVERSATION, "one", idempotency_key="k").result
    assert len(here.collector.named("invoke_agent support")) == 1


def _summary(spans: Sequence[ReadableSpan]) -> list[object]:
    """What spans say, without the ids that are drawn for them."""
    ordered = sorted(spans, key=lambda span: (span.start_time or 0, span.name))
    return [
        (
            span.name,
            span.kind,
            span.start_time,
            span.end_time,
            span.status.status_code,
            sorted((name, str(value)) for name, value in said_by(span).items()),
            [(event.name, event.timestamp) for event in span.events],
        )
        for span in ordered
    ]


@both_loops
async def test_the_ledger_folds_to_the_same_spans_as_the_live_durable_events() -> None:
    """Spans of durable events are facts of the record: told live or read back, they are the same."""
    live, read = Collector(), Collector()
    told: list[RuntimeEvent] = []
    tracer, again = RunTracer(live.provider), RunTracer(read.provider)
    model = ScriptedModel(calling("look", '{"at":"sky"}'), "Blue.", [TextDelta("x"), ProviderError("no", provider="p")])
    config = RuntimeConfig(delivery=DeliveryConfig(publisher=told.append))
    async with opened(model, config=config, tools=(look,)) as scene:
        for text in ("one", "two"):
            await scene.runtime.submit(CONVERSATION, text).result
            scene.clock.tick(1)
        page = await scene.store.read_events(ReadEvents(conversation_id=CONVERSATION, limit=500))
    for event in told:
        if isinstance(event, DurableEvent):
            tracer.publish(event)
    for entry in page.items:
        for event in fold_events(entry):
            again.publish(event)
    assert len(live.spans) == 8
    assert _summary(live.spans) == _summary(read.spans)


@both_loops
async def test_which_channel_speaks_first_makes_no_difference() -> None:
    """Delivery before operators or the other way round within a moment: the same spans with the same attributes."""
    told: list[tuple[str, RuntimeEvent | RunEvent]] = []

    class Both:
        def emit(self, event: RunEvent) -> None:
            told.append(("operators", event))

    config = RuntimeConfig(
        delivery=DeliveryConfig(publisher=lambda event: told.append(("delivery", event))), observers=(Both(),)
    )
    model = ScriptedModel(calling("look", '{"at":"sky"}'), "Blue.")
    async with opened(model, config=config, tools=(look,)) as scene:
        await scene.runtime.submit(CONVERSATION, "one").result
    expected = _summary(_folded(told).spans)
    pairs = [at for at in range(len(told) - 1) if told[at][0] != told[at + 1][0]]
    assert len(pairs) > 4
    for at in pairs:
        swapped = [*told[:at], told[at + 1], told[at], *told[at + 2 :]]
        assert _summary(_folded(swapped).spans) == expected


def _folded(told: Sequence[tuple[str, Any]]) -> Collector:
    collector = Collector()
    tracer = RunTracer(collector.provider)
    for channel, event in told:
        (tracer.emit if channel == "operators" else tracer.publish)(event)
    assert tracer.open_runs == 0
    return collector


def test_an_execution_that_was_taken_away_ends_its_span() -> None:
    """A run that goes back into the queue has no open span; the next execution has its own."""
    collector = Collector()
    tracer = RunTracer(collector.provider)
    for event in (state(2), replace(state(3), state="queued"), state(4), terminal(5)):
        tracer.publish(event)
    first, second = collector.spans
    assert said_by(first)["runlane.run.state"] == "queued"
    assert said_by(second)["runlane.run.terminal_reason"] == "success"
    assert tracer.open_runs == 0


def test_what_is_never_ended_is_bounded_and_can_be_closed() -> None:
    """A tracer that misses ends forgets the oldest run rather than grow, and ends everything when told."""
    collector = Collector()
    tracer = RunTracer(collector.provider, max_open=4)
    for number in range(7):
        tracer.publish(state(1, run_id=f"r{number}"))
    assert (tracer.open_runs, len(collector.spans)) == (4, 3)
    tracer.close(2_000_000_000_000_000_000)
    assert (tracer.open_runs, len(collector.spans)) == (0, 7)


class _Broken(SpanProcessor):
    """A processor that fails at the beginning and at the end of each span."""

    @override
    def on_start(self, span: object, parent_context: object = None) -> None:
        raise OSError("exporter")

    @override
    def on_end(self, span: object) -> None:
        raise OSError("exporter")


@both_loops
async def test_a_broken_span_processor_costs_a_run_nothing() -> None:
    """What tracing raises is reported as a failure of the publisher; the run ends as it would have."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(_Broken())
    tracer, failures = RunTracer(provider), list[Exception]()
    delivery = DeliveryConfig(publisher=tracer.publish, on_publish_error=lambda _, error: failures.append(error))
    async with opened(ScriptedModel("Blue."), config=RuntimeConfig(delivery=delivery, observers=(tracer,))) as scene:
        result = await scene.runtime.submit(CONVERSATION, "one").result
    assert result.reason == "success"
    assert {str(error) for error in failures} == {"exporter"}
