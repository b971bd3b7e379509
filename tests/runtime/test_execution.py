"""How a run is answered: steps, checkpoints, operations, spend."""

import json

import pytest

from runlane.delivery import (
    AssistantDeltaEvent,
    CheckpointEvent,
    RunOperationEvent,
    TerminalEvent,
    ToolStatusEvent,
    TransientEvent,
)
from runlane.errors import RuntimeConflictError, StoreUnavailableError, UnknownModelError
from runlane.models import (
    FinishReport,
    FunctionCallDelta,
    ModelAssistantToolMessage,
    ModelToolResultMessage,
    ModelUsage,
    ReasoningDelta,
    ResolvedModel,
    ResponseInfo,
    SourceOutput,
    TextDelta,
    UsageReport,
)
from runlane.records import ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from runlane.runtime import AgentRuntime, ModelRequest
from runlane.store import MemoryStore, RecordRunOperation, RecoverRun
from runlane.testing import Fault, ScriptedModel, ScriptedStep, StoreCall
from tests.runtime.scenes import CONVERSATION, heard, held_after, looped, names, opened, spending

pytestmark = pytest.mark.anyio

_CALL: list[ScriptedStep] = [
    TextDelta("Let me see."),
    FunctionCallDelta(0, id="call_1", name="look_up"),
    FunctionCallDelta(0, arguments='{"id": 25122920421'),
    FunctionCallDelta(0, arguments="21000001}"),
    FinishReport("tool-calls"),
]


def _words(*texts: str) -> list[ScriptedStep]:
    return [*(TextDelta(text) for text in texts), FinishReport("stop")]


async def test_forty_five_deltas_make_two_checkpoints() -> None:
    """With a batch of 20, 45 deltas in one step give the first commit, two checkpoints and the closing commit."""
    model = ScriptedModel(_words(*(f"{number} " for number in range(45))))
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Count")
        events = await heard(ticket)
        result = await ticket.result
        writes = [names(call.commands) for call in scene.store.applied]
    assert len(writes) == 4
    assert "CheckpointRunAssistant" in writes[1]
    assert writes[2] == ["CheckpointRunAssistant"]
    assert sum(isinstance(event, AssistantDeltaEvent) for event in events) == 45
    assert result.text == "".join(f"{number} " for number in range(45))


async def test_a_checkpoint_writes_only_what_is_new_and_its_event_shares_the_draft() -> None:
    """Patches hold what was gained; the event's draft is the whole answer so far, and metrics are partial."""
    model = ScriptedModel(_words(*["ab"] * 6))
    async with opened(model, config=looped(checkpoint_every_events=2)) as scene:
        events = await heard(scene.runtime.submit(CONVERSATION, "Go"))
    checkpoints = [event for event in events if isinstance(event, CheckpointEvent)]
    assert [event.draft.message.text for event in checkpoints if event.draft] == ["ab" * 2, "ab" * 4, "ab" * 6]
    patches = [event.patch for event in checkpoints if event.patch]
    assert patches[0].added == (TextPart(text="abab"),)
    assert [(patch.keep, patch.grown[0].suffix) for patch in patches[1:]] == [(1, "abab"), (1, "abab")]
    assert all(event.metrics.partial for event in checkpoints)


async def test_a_second_reader_sees_the_checkpointed_draft() -> None:
    """What was checkpointed can be read by anybody while the run goes on."""
    hold, model = held_after(*["x"] * 20)
    async with opened(model, config=looped(checkpoint_every_events=10)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go")
        await hold.reached()
        draft = await scene.store.inner.load_draft(CONVERSATION, ticket.run_id)
        assert draft is not None
        assert (draft.status, draft.text) == ("streaming", "x" * 20)
        hold.release()
        await ticket.result


async def test_checkpoints_can_be_spaced_in_time() -> None:
    """With a minimum interval longer than the stream no unstructured checkpoint is written."""
    model = ScriptedModel(_words(*["x"] * 100))
    async with opened(model, config=looped(checkpoint_min_interval=5.0)) as scene:
        await scene.runtime.submit(CONVERSATION, "Go").result
        assert len(scene.store.applied) == 2


async def test_the_request_is_durable_before_the_provider_is_called() -> None:
    """When the model is asked, the store already holds the run as running with a started operation."""
    seen: list[object] = []

    async with MemoryStore() as store:

        async def choose(_: ModelRequest[object]) -> ScriptedModel:
            return ScriptedModel(lambda call: _note(call.context.invocation_id))

        def _note(invocation: object) -> str:
            seen.append(invocation)
            return "Hello"

        async with AgentRuntime(store, model=choose) as runtime:
            ticket = runtime.submit(CONVERSATION, "Hi")
            events = await heard(ticket)
    operations = [event.operation for event in events if isinstance(event, RunOperationEvent)]
    assert [operation.phase for operation in operations] == ["started", "completed"]
    assert {operation.operation_id for operation in operations} == set(seen)
    assert operations[-1].first_output_at is not None


async def test_if_the_request_cannot_be_made_durable_the_provider_is_never_called() -> None:
    """A store that refuses the second step's request: no second call, and the run ends as a runtime failure."""
    model = ScriptedModel(_CALL, "never said")

    def plan(call: StoreCall) -> Fault | None:
        starts = any(
            isinstance(command, RecordRunOperation) and command.operation.step == 1 for command in call.commands
        )
        return Fault(error=StoreUnavailableError("gone")) if starts and call.apply_number > 1 else None

    async with opened(model, plan=plan) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(1.0)
        result = await ticket.result
    assert (len(model.calls), result.reason) == (1, "runtime_failure")
    assert isinstance(result.error, StoreUnavailableError)


async def test_first_output_is_recorded_with_the_first_checkpoint() -> None:
    """An answer long enough for a checkpoint passes through the phase `first-output`."""
    model = ScriptedModel(_words(*["x"] * 25))
    async with opened(model) as scene:
        events = await heard(scene.runtime.submit(CONVERSATION, "Go"))
    phases = [event.operation.phase for event in events if isinstance(event, RunOperationEvent)]
    assert phases == ["started", "first-output", "completed"]


async def test_spend_is_kept_at_checkpoints_and_computed_at_the_end() -> None:
    """A provider's figures are kept, unknown ones stay unavailable, and every final figure is `computed`."""
    model = ScriptedModel(spending("Hello", input_tokens=100, output_tokens=7, cost=0.5))
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        events = await heard(ticket)
        result = await ticket.result
        stored = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
    assert result.metrics is not None
    usage = result.metrics.usage
    assert (usage.input_tokens.value, usage.input_tokens.provenance) == (100, "computed")
    assert usage.reasoning_tokens is not None
    assert usage.reasoning_tokens.provenance == "unavailable"
    assert usage.cost is not None
    assert (usage.cost.value, usage.cost.currency, usage.cost.provenance) == (0.5, "USD", "computed")
    assert stored is not None
    assert stored.run.usage == usage
    assert isinstance(events[-1], TerminalEvent)
    assert (events[-1].metrics, result.metrics.partial) == (result.metrics, False)


async def test_reasoning_is_a_part_of_its_own() -> None:
    """Reasoning between its start and end is one part with the provider's envelope, beside the text."""
    model = ScriptedModel(
        [
            ReasoningDelta(phase="start"),
            ReasoningDelta("think "),
            ReasoningDelta("hard", provider_options={"signature": "s"}),
            ReasoningDelta(phase="end"),
            TextDelta("Yes."),
            FinishReport("stop"),
        ]
    )
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        events = await heard(ticket)
        result = await ticket.result
    reasoning = result.message.parts[0]
    assert isinstance(reasoning, ReasoningPart)
    assert (reasoning.text, reasoning.provider and reasoning.provider.data) == ("think hard", {"signature": "s"})
    assert [event.type for event in events if event.type.startswith("reasoning")] == [
        "reasoning-start",
        "reasoning-delta",
        "reasoning-delta",
        "reasoning-end",
    ]


async def test_transient_events_are_numbered_without_a_hole() -> None:
    """Sequences start at 1 and grow by one, whatever kinds of events there are."""
    model = ScriptedModel([ReasoningDelta("hm"), TextDelta(""), TextDelta("a"), TextDelta("b"), FinishReport("stop")])
    async with opened(model) as scene:
        events = await heard(scene.runtime.submit(CONVERSATION, "Hi"))
        epoch = scene.runtime.owner_id
    numbered = [(event.sequence, event.runtime_epoch) for event in events if isinstance(event, TransientEvent)]
    assert numbered == [(1, epoch), (2, epoch), (3, epoch)]


async def test_a_tool_nobody_mounted_is_answered_with_an_error_and_the_model_asked_again() -> None:
    """The call and an error result are recorded, given back to the model, and its next answer ends the run."""
    model = ScriptedModel(_CALL, "I cannot look that up.")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Look it up")
        events = await heard(ticket)
        result = await ticket.result
        commits = len(scene.store.applied)
    call, answer = result.message.parts[1:3]
    assert isinstance(call, ToolCallPart)
    assert (call.input, call.arguments) == ({"id": 2512292042121000001}, '{"id": 2512292042121000001}')
    assert isinstance(answer, ToolResultPart)
    assert (answer.outcome, json.dumps(answer.output)[:26]) == ("error", '{"error": "tool.unknown", ')
    assert (result.reason, result.message.parts[3]) == ("success", TextPart(text="I cannot look that up."))
    asked, told = model.calls[1].messages[-2:]
    assert isinstance(asked, ModelAssistantToolMessage)
    assert (asked.text, asked.tool_calls) == ("Let me see.", (call,))
    assert isinstance(told, ModelToolResultMessage)
    assert told.results == (answer,)
    assert [event.status for event in events if isinstance(event, ToolStatusEvent)] == ["started", "failed"]
    assert commits <= 6


async def test_max_steps_ends_a_run_that_never_stops_calling() -> None:
    """A model that calls for ever ends as `policy_stop` named `max-steps`, after that many calls."""
    model = ScriptedModel(lambda _: _CALL)
    async with opened(model, config=looped(max_steps=3)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go").result
    assert (result.reason, result.policy_name, len(model.calls)) == ("policy_stop", "max-steps", 3)
    assert result.run.terminal_policy_name == "max-steps"


async def test_a_call_cut_by_the_length_limit_is_recorded_and_not_run() -> None:
    """A call whose arguments are no JSON and whose answer was cut keeps its text, has no input, and ends the run."""
    model = ScriptedModel(
        [FunctionCallDelta(0, id="call_1", name="look_up", arguments='{"id": 2'), FinishReport("length", "length")]
    )
    async with opened(model) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go").result
    [call] = result.message.parts
    assert isinstance(call, ToolCallPart)
    assert (result.reason, call.arguments, call.has_input, len(model.calls)) == ("provider_stop", '{"id": 2', False, 1)


async def test_a_model_can_be_chosen_for_each_run() -> None:
    """The callable learns context, conversation, run and inputs, and its model answers."""
    asked: list[ModelRequest[object]] = []
    named = ScriptedModel("Hello")

    def choose(request: ModelRequest[object]) -> ResolvedModel:
        asked.append(request)
        return ResolvedModel(model="mine", provider=named)

    async with MemoryStore() as store, AgentRuntime(store, model=choose) as runtime:
        ticket = runtime.submit(CONVERSATION, "Hi", context={"user": 7}, metadata={"model": "x"})
        await ticket.result
    [request] = asked
    assert (request.context, request.conversation_id, request.run.id) == ({"user": 7}, CONVERSATION, ticket.run_id)
    assert [message.metadata for message in request.inputs] == [{"model": "x"}]


async def test_a_model_that_cannot_be_chosen_ends_the_run_without_a_call() -> None:
    """A failing model callable is a runtime failure; the run is acquired alone, then ended."""

    def choose(_: ModelRequest[object]) -> ScriptedModel:
        raise UnknownModelError("there is no such model", model="x")

    async with MemoryStore() as store, AgentRuntime(store, model=choose) as runtime:
        result = await runtime.submit(CONVERSATION, "Hi").result
        assert (result.reason, result.message.status, result.message.parts) == ("runtime_failure", "failed", ())
        assert isinstance(result.error, UnknownModelError)
        # The failure blocks nothing.
        assert (await runtime.submit(CONVERSATION, "Hi").result).reason == "runtime_failure"


async def test_a_run_taken_away_in_the_middle_writes_nothing_more() -> None:
    """An execution whose run was abandoned by somebody else rejects with a conflict and leaves the record alone."""
    hold, model = held_after("one")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        view = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
        assert view is not None
        other = await scene.runtime.abandon(
            CONVERSATION, ticket.run_id, expected_revision=view.run.revision, stale_owner=True
        )
        hold.release()
        result = await ticket.result
        after = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
    assert type(other).__name__ == "Applied"
    assert after is not None
    assert (after.run.terminal_reason, result.reason, result.metrics) == ("abandoned", "abandoned", None)


async def test_a_checkpoint_of_a_lost_run_stops_the_execution() -> None:
    """A conflict at a checkpoint of a run that was requeued elsewhere ends the execution with a conflict."""
    hold, model = held_after(*["x"] * 5)
    async with opened(model, config=looped(checkpoint_every_events=6)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        view = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
        assert view is not None
        taken = RecoverRun(
            command_id="take",
            at=scene.clock.now(),
            run_id=ticket.run_id,
            expected_revision=view.run.revision,
            action="requeue",
            replay_safe=True,
        )
        await scene.store.inner.apply(CONVERSATION, [taken])
        hold.release()
        with pytest.raises(RuntimeConflictError):
            await ticket.result
        after = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
    assert after is not None
    assert (after.run.state, after.run.revision) == ("queued", view.run.revision + 1)


@pytest.mark.parametrize(
    ("parts", "is_output"),
    [
        ([TextDelta("")], False),
        ([TextDelta("x")], True),
        ([ReasoningDelta(phase="start")], False),
        ([ReasoningDelta("hm")], True),
        (
            [FunctionCallDelta(0, id="c", name="look_up", arguments='{"a"'), FunctionCallDelta(0, arguments=": 1}")],
            True,
        ),
        ([FunctionCallDelta(0, id="c", name="look_up")], True),
        ([SourceOutput("s", "https://example.org")], False),
        ([UsageReport(ModelUsage(input_tokens=1))], False),
        ([ResponseInfo(response_id="r")], False),
    ],
    ids=[
        "empty-text",
        "text",
        "framing",
        "reasoning",
        "arguments",
        "call-without-arguments",
        "source",
        "usage",
        "info",
    ],
)
async def test_what_counts_as_first_output(parts: list[ScriptedStep], is_output: bool) -> None:  # noqa: FBT001
    """Text, reasoning, arguments of a call, or a whole call; framing, metadata, usage and sources do not."""
    model = ScriptedModel([*parts, FinishReport("length")])
    async with opened(model) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    operation = result.run.last_operation
    assert operation is not None
    assert (operation.phase, operation.first_output_at is not None) == ("completed", is_output)
    assert result.metrics is not None
    assert (result.metrics.ttft_ms is not None) is is_output
