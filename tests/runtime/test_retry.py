"""Failures of the provider that are tried again."""

import pytest

from runlane.delivery import AssistantDeltaEvent, AttemptResetEvent, RunOperationEvent
from runlane.errors import ModelProtocolError, ProviderError, ProviderStreamCutError
from runlane.models import (
    FinishReport,
    FunctionCallDelta,
    ModelUsage,
    RetryPolicy,
    RetryRequest,
    TextDelta,
    UsageReport,
)
from runlane.store import AppendEvent, ReadEvents
from runlane.testing import Hold, ScriptedModel, ScriptedStep, StoreCall
from tests.runtime.scenes import CONVERSATION, heard, looped, opened, spending

pytestmark = pytest.mark.anyio

_BUSY = ProviderError("busy", provider="p", reason="rate-limited", status=429, retryable=True)


def _failing(text: str = "half a ", error: Exception = _BUSY, tokens: int = 7) -> list[ScriptedStep]:
    return [TextDelta(text), UsageReport(ModelUsage(input_tokens=tokens, output_tokens=1)), error]


def _policy(attempts: int = 2, delay: float = 0.0) -> RetryPolicy:
    return RetryPolicy(max_attempts=attempts, delay=lambda _: delay)


def _entries(call: StoreCall) -> list[AppendEvent]:
    """Return the ledger entries a commit appends beside its transitions."""
    return [command for command in call.commands if isinstance(command, AppendEvent)]


async def test_a_failed_attempt_is_taken_back_and_tried_again() -> None:
    """The answer holds only what the second attempt said; the spend of both counts; the reset stands in between."""
    model = ScriptedModel(_failing(), spending("Whole.", input_tokens=3, output_tokens=2))
    async with opened(model, config=looped(retry=_policy())) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        events = await heard(ticket)
        result = await ticket.result
        stored = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
    assert (result.reason, result.text, len(model.calls)) == ("success", "Whole.", 2)
    assert model.calls[0].messages == model.calls[1].messages
    assert result.metrics is not None
    assert (result.metrics.usage.input_tokens.value, result.metrics.usage.output_tokens.value) == (10, 3)
    assert stored is not None
    assert stored.assistant == result.message
    told = [event for event in events if isinstance(event, AssistantDeltaEvent | AttemptResetEvent)]
    assert [event.text_delta if isinstance(event, AssistantDeltaEvent) else event.attempt for event in told] == [
        "half a ",
        2,
        "Whole.",
    ]
    assert [event.sequence for event in told] == [1, 2, 3]


async def test_each_attempt_is_an_operation_of_its_own() -> None:
    """The first call is closed as failed, the second started under another id; both are step 0."""
    model = ScriptedModel(_failing(), "Whole.")
    async with opened(model, config=looped(retry=_policy())) as scene:
        events = await heard(scene.runtime.submit(CONVERSATION, "Hi"))
    operations = [event.operation for event in events if isinstance(event, RunOperationEvent)]
    assert [(operation.phase, operation.step) for operation in operations] == [
        ("started", 0),
        ("failed", 0),
        ("started", 0),
        ("completed", 0),
    ]
    assert len({operation.operation_id for operation in operations}) == 2
    assert [call.context.call_number for call in model.calls] == [1, 2]


async def test_the_durable_draft_holds_nothing_of_the_failed_attempt() -> None:
    """Text that was checkpointed before the failure is gone from the draft before the wait begins."""
    hold = Hold()
    first: list[ScriptedStep] = [*(TextDelta("x") for _ in range(25)), _BUSY]
    model = ScriptedModel(first, [hold, TextDelta("Whole."), FinishReport("stop")])
    async with opened(model, config=looped(retry=_policy(), checkpoint_every_events=10)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        draft = await scene.store.inner.load_draft(CONVERSATION, ticket.run_id)
        hold.release()
        assert (await ticket.result).text == "Whole."
    assert draft is not None
    assert draft.parts == ()


async def test_the_decision_is_recorded_before_the_wait_and_the_start_after_it() -> None:
    """`retry/scheduled` names the next attempt, the wait and the reason; `retry/started` comes once it is over."""
    asked: list[RetryRequest] = []

    def delay(request: RetryRequest) -> float:
        asked.append(request)
        return 2.0

    model = ScriptedModel(_failing(), "Whole.")
    config = looped(retry=RetryPolicy(max_attempts=3, delay=delay))
    async with opened(model, config=config) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(1.0)
        assert len(model.calls) == 1
        before = await scene.store.inner.read_events(ReadEvents(conversation_id=CONVERSATION))
        await scene.clock.advance(1.5)
        await ticket.result
        after = await scene.store.inner.read_events(ReadEvents(conversation_id=CONVERSATION))
        calls = scene.store.applied
    assert [(request.attempt, request.failure.reason) for request in asked] == [(1, "rate-limited")]
    scheduled = {"run_id": ticket.run_id, "attempt": 2, "delay_ms": 2000, "reason": "rate-limited"}
    assert [(event.kind, event.payload) for event in before.items if event.kind.startswith("retry/")] == [
        ("retry/scheduled", scheduled)
    ]
    assert [event.kind for event in after.items if event.kind.startswith("retry/")] == [
        "retry/scheduled",
        "retry/started",
    ]
    kinds = [[entry.kind for entry in _entries(call)] for call in calls]
    assert kinds == [
        ["provider/request"],
        ["provider/response", "retry/scheduled"],
        ["retry/started", "provider/request"],
        ["provider/response"],
    ]


@pytest.mark.parametrize(
    ("error", "attempts", "calls"),
    [
        (_BUSY, 3, 3),
        (_BUSY, 1, 1),
        (ProviderStreamCutError(), 2, 2),
        (ProviderError("no", provider="p", reason="unauthorized", status=401, retryable=False), 3, 1),
        (ModelProtocolError(detail="nonsense"), 3, 1),
    ],
)
async def test_only_what_could_work_is_repeated_and_only_so_often(error: Exception, attempts: int, calls: int) -> None:
    """The failure decides whether, the policy how often; the last failure ends the run as the provider's."""
    model = ScriptedModel(_failing(error=error))
    async with opened(model, config=looped(retry=_policy(attempts))) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, result.error, result.text, len(model.calls)) == ("provider_failure", error, "half a ", calls)
    assert result.metrics is not None
    assert result.metrics.usage.input_tokens.value == 7 * calls


async def test_a_refused_request_is_repeated_too() -> None:
    """A provider that refuses before it streams is tried again like one that fails in the middle."""
    replies = iter([_BUSY])

    def reply(_: object) -> str:
        error = next(replies, None)
        if error is not None:
            raise error
        return "Whole."

    async with opened(ScriptedModel(reply), config=looped(retry=_policy())) as scene:
        assert (await scene.runtime.submit(CONVERSATION, "Hi").result).text == "Whole."


async def test_a_half_call_does_not_keep_an_attempt_from_being_repeated() -> None:
    """A call whose arguments were cut off was never made."""
    first: list[ScriptedStep] = [FunctionCallDelta(0, id="c", name="look_up", arguments='{"a'), _BUSY]
    model = ScriptedModel(first, "Whole.")
    async with opened(model, config=looped(retry=_policy())) as scene:
        assert (await scene.runtime.submit(CONVERSATION, "Hi").result).text == "Whole."


async def test_an_attempt_that_made_a_tool_call_is_never_repeated() -> None:
    """A failure in the step after a call ends the run; nothing of a retry is recorded."""
    call: list[ScriptedStep] = [
        FunctionCallDelta(0, id="c", name="look_up", arguments="{}"),
        FinishReport("tool-calls"),
    ]
    model = ScriptedModel(call, _failing())
    async with opened(model, config=looped(retry=_policy(5))) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        entries = [c for call in scene.store.applied for c in _entries(call) if c.kind.startswith("retry/")]
    assert (result.reason, len(model.calls), entries) == ("provider_failure", 2, [])
    assert [part.type for part in result.message.parts] == ["tool-call", "tool-result", "text"]


async def test_a_run_told_to_stop_while_it_waits_is_interrupted() -> None:
    """The wait before another attempt can be cut short; the provider is not asked again."""
    model = ScriptedModel(_failing())
    async with opened(model, config=looped(retry=_policy(delay=60.0))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(1.0)
        assert scene.runtime.stop(CONVERSATION) is True
        result = await ticket.result
    assert (result.reason, result.text, len(model.calls)) == ("interrupted", "", 1)


async def test_silence_is_tried_again_too() -> None:
    """A provider that falls silent is cut off and asked again; without another attempt it is a `timeout`."""
    hold = Hold()
    model = ScriptedModel([TextDelta("half"), hold], "Whole.")
    async with opened(model, config=looped(retry=_policy(), idle_timeout=5.0)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        await scene.clock.advance(6.0)
        assert (await ticket.result).text == "Whole."


async def test_a_wait_that_is_no_time_ends_the_run_and_records_nothing() -> None:
    """A policy whose delay is negative is misuse: the run ends as a runtime failure before anything is written."""
    model = ScriptedModel(_failing())
    async with opened(model, config=looped(retry=_policy(delay=-1.0))) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        entries = [c for call in scene.store.applied for c in _entries(call) if c.kind.startswith("retry/")]
    assert (result.reason, result.text, entries) == ("runtime_failure", "half a ", [])
