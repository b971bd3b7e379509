"""A run whose history is due for compaction compacts it first, as an operation of its own."""

import pytest

from runlane.delivery import RunOperationEvent
from runlane.history import History
from runlane.models import ModelMessage
from runlane.records import Usage, UsageValue
from runlane.runtime import (
    CompactionContext,
    CompactionResult,
    HistoryConfig,
    RuntimeConfig,
    StructuredCompaction,
    StructuredCompactionConfig,
    Summarised,
    SummaryRequest,
)
from runlane.store import Store
from runlane.testing import Hold, ScriptedModel
from tests.runtime.scenes import CONVERSATION, heard, names, opened, spending

pytestmark = pytest.mark.anyio

_SPENT = Usage.unknown().model_copy(update={"input_tokens": UsageValue(value=70, provenance="provider-reported")})


def _compacting(*, at: int = 6) -> RuntimeConfig:
    def summarize(request: SummaryRequest[str]) -> Summarised[str]:
        return Summarised(summary=f"{len(request.messages)} before", usage=_SPENT)

    config = StructuredCompactionConfig(schema=str, summarize=summarize, due=lambda probe: probe.records > at)
    return RuntimeConfig(history=HistoryConfig(compact=StructuredCompaction(config)))


async def test_what_is_due_is_compacted_before_the_model_is_asked() -> None:
    """The operation stands between acquisition and request; the model is told the summary; the spend is the run's."""
    model = ScriptedModel(
        "One, a long answer",
        "Two, a long answer",
        "Three, a long answer",
        spending("Four", input_tokens=5, output_tokens=1),
    )
    async with opened(model, config=_compacting()) as scene:
        for number in range(3):
            await scene.runtime.submit(CONVERSATION, f"Question {number}, at some length").result
        ticket = scene.runtime.submit(CONVERSATION, "The last question")
        events = await heard(ticket)
        result = await ticket.result
        messages = (await scene.store.inner.load_snapshot(CONVERSATION)).messages
    operations = [event.operation for event in events if isinstance(event, RunOperationEvent)]
    assert [(operation.kind, operation.phase) for operation in operations] == [
        ("compaction", "started"),
        ("compaction", "completed"),
        ("model-request", "started"),
        ("model-request", "completed"),
    ]
    assert result.metrics is not None
    assert result.metrics.usage.input_tokens == UsageValue(value=75, provenance="computed")
    assert [message.role for message in messages] == ["summary", "user", "assistant", "user", "assistant"]
    told = model.calls[3].messages
    assert told[0] == ModelMessage.system("4 before")
    assert [message.text for message in told[1:] if isinstance(message, ModelMessage)] == [
        "Question 2, at some length",
        "Three, a long answer",
        "The last question",
    ]


async def test_what_is_not_due_costs_and_records_nothing() -> None:
    """The probe says no: the turn takes three commits, and no compaction is on record."""
    async with opened(ScriptedModel("Hello"), config=_compacting(at=100)) as scene:
        events = await heard(scene.runtime.submit(CONVERSATION, "Hi"))
        assert len(scene.store.applied) == 3
    assert {event.operation.kind for event in events if isinstance(event, RunOperationEvent)} == {"model-request"}


async def test_a_compaction_without_a_probe_is_called_at_every_turn() -> None:
    """Also when it then finds nothing to do; the run is acquired before it is called."""
    called: list[CompactionContext] = []

    async def compact(context: CompactionContext) -> CompactionResult:
        called.append(context)
        return CompactionResult(outcome="not_needed")

    config = RuntimeConfig(history=HistoryConfig(compact=compact))
    async with opened(ScriptedModel("Hello"), config=config) as scene:
        assert (await scene.runtime.submit(CONVERSATION, "Hi").result).reason == "success"
        commits = [names(call.commands) for call in scene.store.applied]
    assert len(called) == 1
    assert commits[1] == ["AcquireRun", "CheckpointRunAssistant"]
    assert commits[2] == ["RecordRunOperation"]


async def test_a_compaction_that_raises_fails_the_run() -> None:
    """Its operation is closed as failed, the provider is not asked, and the next run goes on with the same history."""
    failing = iter([ZeroDivisionError()])

    async def compact(_: CompactionContext) -> CompactionResult:
        error = next(failing, None)
        if error is not None:
            raise error
        return CompactionResult(outcome="not_needed")

    model = ScriptedModel("Hello")
    async with opened(model, config=RuntimeConfig(history=HistoryConfig(compact=compact))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        events = await heard(ticket)
        result = await ticket.result
        assert (result.reason, type(result.error), len(model.calls)) == ("runtime_failure", ZeroDivisionError, 0)
        assert (await scene.runtime.submit(CONVERSATION, "Hi").result).reason == "success"
    phases = [event.operation.phase for event in events if isinstance(event, RunOperationEvent)]
    assert phases == ["started", "failed"]


async def test_a_run_told_to_stop_while_it_compacts_is_interrupted() -> None:
    """The operation is closed as cancelled, and nothing was replaced."""
    hold = Hold()

    async def compact(_: CompactionContext) -> CompactionResult:
        await hold.stand()
        return CompactionResult(outcome="not_needed")

    model = ScriptedModel("never asked")
    async with opened(model, config=RuntimeConfig(history=HistoryConfig(compact=compact))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        scene.runtime.stop(CONVERSATION)
        result = await ticket.result
        view = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
    assert (result.reason, len(model.calls)) == ("interrupted", 0)
    assert view is not None
    assert view.run.last_operation is not None
    assert (view.run.last_operation.kind, view.run.last_operation.phase) == ("compaction", "cancelled")


async def test_the_probe_gets_the_records_at_hand() -> None:
    """Something that compacts may look at the history before it is called."""
    seen: list[tuple[str, int]] = []

    class Own:
        def is_due(self, conversation_id: str, history: History, _: Store, /) -> bool:
            seen.append((conversation_id, len(history)))
            return False

        async def __call__(self, context: CompactionContext, /) -> CompactionResult:
            raise AssertionError(f"{context.conversation_id} was compacted")

    async with opened(ScriptedModel("Hello"), config=RuntimeConfig(history=HistoryConfig(compact=Own()))) as scene:
        for _ in range(2):
            await scene.runtime.submit(CONVERSATION, "Hi").result
    assert seen == [(CONVERSATION, 1), (CONVERSATION, 3)]
