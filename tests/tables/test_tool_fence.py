"""What the fence around a tool of a durable run reads, says and refuses."""

import pytest

from runlane.delivery import ToolStatusEvent
from runlane.errors import RunlaneError, ToolFenceError
from runlane.runtime import StepPreparation
from runlane.store import MemoryStore
from runlane.testing import FaultyStore, ScriptedModel
from runlane.tools import ToolFenceContext, ToolFenceLifecycle, tool
from tests.runtime.scenes import CONVERSATION, heard, looped, opened
from tests.runtime.test_tools import called, results_of

pytestmark = pytest.mark.anyio


async def _take_over(store: FaultyStore) -> None:
    [run] = await store.inner.list_active_runs(CONVERSATION)
    await store.inner.recover_run(
        conversation_id=CONVERSATION,
        run_id=run.id,
        expected_revision=run.revision,
        action="requeue",
        replay_safe=True,
    )


async def test_a_fence_reads_one_run_for_each_check() -> None:
    """Two calls are checked once each after their handlers, by one read of the run; their intents prove the start."""

    @tool
    async def look(name: str) -> str:
        """Look."""
        return name

    calls = called(("c1", "look", '{"name":"a"}'), ("c2", "look", '{"name":"b"}'))
    async with opened(ScriptedModel(calls, "Done."), tools=[look]) as scene:
        await scene.runtime.submit(CONVERSATION, "Look.").result
        methods = [call.method for call in scene.store.calls]
    assert methods.count("load_run") == 2
    assert "load_snapshot" not in methods


@pytest.mark.parametrize(("lost", "verdict"), [(True, "stale_run"), (False, "run_interrupted")])
async def test_a_verdict_is_raised_as_control_and_never_shown_to_the_model(verdict: str, *, lost: bool) -> None:
    """A run that was lost and one that was asked to stop: no result is recorded, and the model is asked no more."""
    raised: list[ToolFenceError] = []
    fences: list[ToolFenceLifecycle] = []

    def prepare(about: StepPreparation[object]) -> None:
        fences.append(about.context.tool_fence)

    async with MemoryStore() as store:

        @tool
        async def work() -> str:
            """Lose the run, or have it asked to stop, and look at the fence by hand."""
            [run] = await store.list_active_runs(CONVERSATION)
            if lost:
                await _take_over(scene.store)
            else:
                await store.request_run_interrupt(
                    conversation_id=CONVERSATION, run_id=run.id, expected_revision=run.revision
                )
            try:
                await fences[-1].check(ToolFenceContext(run_id=run.id))
            except ToolFenceError as error:
                raised.append(error)
            return "late"

        model = ScriptedModel(called(("c1", "work", "{}")), "Never.")
        async with opened(model, store=store, tools=[work], config=looped(prepare_step=prepare)) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Work.")
            if lost:
                with pytest.raises(RunlaneError):
                    await ticket.result
            else:
                statuses = [event.status for event in await heard(ticket) if isinstance(event, ToolStatusEvent)]
                assert statuses == ["started", "interrupted"]
                assert results_of((await ticket.result).message.parts) == []
    assert [(error.code, error.run_id) for error in raised] == [(verdict, ticket.run_id)]
    assert len(model.calls) == 1


async def test_a_fence_names_run_call_and_token() -> None:
    """What is asked before and after a handler says of which run, call and execution it is."""
    asked: list[ToolFenceContext] = []

    def prepare(about: StepPreparation[object]) -> None:
        asked.append(about.context.tool_fence.context(call_id="c", idempotency_key="k"))

    async with opened(ScriptedModel("Hello"), config=looped(prepare_step=prepare)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        result = await ticket.result
    [context] = asked
    assert (context.run_id, context.call_id, context.idempotency_key) == (ticket.run_id, "c", "k")
    assert context.fencing_token == result.run.fencing_token == 1
