"""Events: a whole turn, told type by type."""

from typing import Any, get_args

import pytest

from runlane.delivery import (
    AdmissionEvent,
    AssistantDeltaEvent,
    CheckpointEvent,
    DurableEvent,
    ReasoningDeltaEvent,
    ReasoningEndEvent,
    ReasoningStartEvent,
    RunOperationEvent,
    RunStateEvent,
    RuntimeEvent,
    TerminalEvent,
    ToolProgressEvent,
    ToolStatusEvent,
    TransientEvent,
)
from runlane.errors import ProviderError
from runlane.models import FinishReport, ReasoningDelta, RetryPolicy, TextDelta
from runlane.records import ToolResultPart
from runlane.testing import ScriptedModel
from runlane.tools import ToolExecutionContext, tool
from tests.runtime.scenes import CONVERSATION, heard, looped, opened
from tests.runtime.test_tools import called

pytestmark = pytest.mark.anyio


@tool
async def count(context: ToolExecutionContext[Any]) -> dict[str, object]:
    """Count, and say how far."""
    context.report_progress("half", 1, 2)
    return {"error": "no failure, only a word", "counted": 2}


async def test_a_turn_with_a_tool_tells_every_type_of_event() -> None:
    """All twelve types, with what their row names; durable ones grow in version, transient ones count from 1."""
    model = ScriptedModel(
        [TextDelta("lost"), ProviderError("busy", provider="p", reason="rate-limited", status=429, retryable=True)],
        [
            ReasoningDelta(phase="start"),
            ReasoningDelta("hm"),
            ReasoningDelta(phase="end"),
            TextDelta("I count."),
            *called(("c1", "count", "{}")),
        ],
        [TextDelta("Two."), FinishReport("stop")],
    )
    retry = RetryPolicy(max_attempts=2, delay=lambda _: 0.0)
    async with opened(model, tools=[count], config=looped(retry=retry, checkpoint_every_events=1)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Count.")
        events = await heard(ticket)
        result = await ticket.result
        owner = scene.runtime.owner_id
    assert {type(event) for event in events} == set(get_args(RuntimeEvent))
    admission = events[0]
    assert isinstance(admission, AdmissionEvent)
    assert (admission.input.text, admission.run.id, admission.assistant.id) == (
        "Count.",
        ticket.run_id,
        result.message.id,
    )
    assert [event.state for event in events if isinstance(event, RunStateEvent)] == ["queued", "running"]
    operations = [event.operation.phase for event in events if isinstance(event, RunOperationEvent)]
    assert (operations[0], operations[-1], operations.count("started")) == ("started", "completed", 3)
    assert all(event.metrics.partial for event in events if isinstance(event, CheckpointEvent))
    assert "".join(event.text_delta for event in events if isinstance(event, AssistantDeltaEvent)) == "lostI count.Two."
    thought = [e for e in events if isinstance(e, ReasoningStartEvent | ReasoningDeltaEvent | ReasoningEndEvent)]
    assert [event.type for event in thought] == ["reasoning-start", "reasoning-delta", "reasoning-end"]
    statuses = [event for event in events if isinstance(event, ToolStatusEvent)]
    assert [(event.call_id, event.tool_name, event.status) for event in statuses] == [
        ("c1", "count", "started"),
        ("c1", "count", "completed"),
    ]
    [progress] = [event for event in events if isinstance(event, ToolProgressEvent)]
    assert (progress.call_id, progress.message, progress.progress, progress.total) == ("c1", "half", 1, 2)
    last = events[-1]
    assert isinstance(last, TerminalEvent)
    assert (last.reason, last.message, last.metrics.partial) == ("success", result.message, False)
    durable = [event for event in events if isinstance(event, DurableEvent)]
    assert [event.snapshot_version for event in durable] == sorted(event.snapshot_version for event in durable)
    assert all(event.event_id.startswith(f"{ticket.run_id}:{event.type}:{event.snapshot_version}") for event in durable)
    transient = [event for event in events if isinstance(event, TransientEvent)]
    assert [event.sequence for event in transient] == list(range(1, len(transient) + 1))
    assert {event.runtime_epoch for event in transient} == {owner}


async def test_a_result_that_looks_like_a_failure_is_a_success() -> None:
    """What a tool returns under `error` is data: the status comes from how its execution ended."""
    model = ScriptedModel(called(("c1", "count", "{}")), "Two.")
    async with opened(model, tools=[count]) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Count.")
        events = await heard(ticket)
        result = await ticket.result
    assert [event.status for event in events if isinstance(event, ToolStatusEvent)] == ["started", "completed"]
    [found] = [part for part in result.message.parts if isinstance(part, ToolResultPart)]
    assert (found.outcome, found.output) == ("success", {"error": "no failure, only a word", "counted": 2})
