"""Ending a run while its tools run: from here, from elsewhere, by losing it, by closing."""

import threading
from typing import Any

import anyio
import pytest

from runlane.delivery import ToolProgressEvent, ToolStatusEvent
from runlane.errors import RunlaneError, ToolError
from runlane.models import ModelToolResultMessage
from runlane.records import ControlPart
from runlane.runtime import CloseConfig, DeliveryConfig, LoopConfig, RuntimeConfig, ToolsConfig
from runlane.store import Applied, MemoryStore
from runlane.testing import FakeClock, Fault, Hold, ScriptedModel, StoreCall
from runlane.tools import ToolExecutionContext, ToolRegistry, ToolRegistryOptions, tool
from tests.runtime.scenes import CONVERSATION, heard, looped, opened
from tests.runtime.test_tools import add, called, results_of

pytestmark = pytest.mark.anyio


class Stand:
    """A tool that stands until it is let go, in the task or in a thread."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()
        self.signals: list[bool] = []

    def blocking(self) -> Any:  # noqa: ANN401 - a definition
        """Return it as a plain function."""

        @tool(id="stand")
        def stand(name: str, context: ToolExecutionContext[object]) -> str:
            """Stand."""
            self.entered.set()
            self.released.wait(30)
            self.signals.append(context.signal.cancelled)
            return name

        return stand

    def task(self) -> Any:  # noqa: ANN401 - a definition
        """Return it as a coroutine function."""

        @tool(id="stand")
        async def stand(name: str, context: ToolExecutionContext[object]) -> str:
            """Stand."""
            self.entered.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.signals.append(context.signal.cancelled)
            return name

        return stand


async def _take_over(store: MemoryStore) -> None:
    """Take the active run away from its executor, as a recovery elsewhere would."""
    [run] = await store.list_active_runs(CONVERSATION)
    await store.recover_run(
        conversation_id=CONVERSATION,
        run_id=run.id,
        expected_revision=run.revision,
        action="requeue",
        replay_safe=True,
    )


def _standing(*call_ids: str) -> ScriptedModel:
    calls = [(call_id, "stand", f'{{"name":"{call_id}"}}') for call_id in call_ids]
    return ScriptedModel(called(*calls), "Next.")


@pytest.mark.parametrize("kind", ["blocking", "task"])
async def test_an_interrupt_ends_running_calls(kind: str) -> None:
    """The tool's signal trips, a task is cancelled, a thread left alone; the call is told as `interrupted`."""
    stand = Stand()
    async with opened(_standing("c1"), tools=[getattr(stand, kind)()]) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Stand.")
        async with anyio.create_task_group() as tasks:
            events: list[object] = []

            async def listen() -> None:
                events.extend(await heard(ticket))

            tasks.start_soon(listen)
            await anyio.to_thread.run_sync(stand.entered.wait)
            assert scene.runtime.stop(CONVERSATION)
        result = await ticket.result
        stand.released.set()
    told = [(event.call_id, event.status) for event in events if isinstance(event, ToolStatusEvent)]
    assert (result.reason, result.message.status) == ("interrupted", "interrupted")
    assert told == [("c1", "started"), ("c1", "interrupted")]
    assert [part.type for part in result.message.parts] == ["tool-call", "control"]
    if kind == "task":
        assert stand.signals == [True]


async def test_what_is_known_of_interrupted_calls_is_told_to_the_model() -> None:
    """One call was running and is closed as interrupted, one never began; the conversation goes on, cold as well."""
    stand = Stand()
    registry: ToolRegistry[object] = ToolRegistry(ToolRegistryOptions(tools=[stand.blocking()], max_blocking_threads=1))
    registry.seal()
    async with MemoryStore() as store:
        model = _standing("c1", "c2")
        async with opened(model, store=store, tools=registry) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Stand.")
            await anyio.to_thread.run_sync(stand.entered.wait)
            await anyio.wait_all_tasks_blocked()
            scene.runtime.stop(CONVERSATION)
            assert (await ticket.result).reason == "interrupted"
            await scene.runtime.submit(CONVERSATION, "And now?").result
            stand.released.set()
        cold = ScriptedModel("Still.")
        async with opened(cold, store=store, tools=registry) as scene:
            await scene.runtime.submit(CONVERSATION, "Later?").result
    for call in (model.calls[1], cold.calls[0]):
        closed = next(message for message in call.messages if isinstance(message, ModelToolResultMessage))
        known = {result.call_id: result.output for result in closed.results}
        assert known == {"c1": {"message": "interrupted"}, "c2": {"message": "not started"}}


async def test_a_durable_interrupt_from_elsewhere_is_noticed_after_the_tool() -> None:
    """Another process asks the run to stop while a tool runs: the fence sees it, and the late result is discarded."""
    async with MemoryStore() as store:

        @tool
        async def work(context: ToolExecutionContext[object]) -> str:
            """Have somebody else interrupt the run."""
            runs = await store.list_active_runs(CONVERSATION)
            outcome = await store.request_run_interrupt(
                conversation_id=CONVERSATION, run_id=context.run_id, expected_revision=runs[0].revision
            )
            assert isinstance(outcome, Applied)
            return "late"

        model = ScriptedModel(called(("c1", "work", "{}")), "Never.")
        async with opened(model, store=store, tools=[work]) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Work.")
            events = await heard(ticket)
            result = await ticket.result
    assert (result.reason, results_of(result.message.parts), len(model.calls)) == ("interrupted", [], 1)
    assert [event.status for event in events if isinstance(event, ToolStatusEvent)] == ["started", "interrupted"]


async def test_a_run_that_was_lost_before_its_tool_never_enters_it() -> None:
    """Somebody took the run over between the model's call and its commit: the handler is not entered."""
    entered: list[int] = []

    @tool
    async def work() -> None:
        """Work."""
        entered.append(1)

    hold = Hold()

    def plan(call: StoreCall) -> Fault | None:
        return Fault(hold=hold) if call.apply_number == 2 else None

    async with MemoryStore() as store:
        model = ScriptedModel(called(("c1", "work", "{}")), "Never.")
        async with opened(model, store=store, tools=[work], plan=plan) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Work.")
            await hold.reached()
            await _take_over(store)
            hold.release()
            with pytest.raises(RunlaneError):
                await ticket.result
    assert entered == []


async def test_a_run_that_was_lost_during_its_tool_keeps_nothing_of_it() -> None:
    """Taken over while the tool ran: its result is refused, and the record is the other executor's business."""
    async with MemoryStore() as store:

        @tool
        async def work() -> str:
            """Lose the run."""
            await _take_over(store)
            return "late"

        model = ScriptedModel(called(("c1", "work", "{}")), "Never.")
        async with opened(model, store=store, tools=[work]) as scene:
            with pytest.raises(RunlaneError):
                await scene.runtime.submit(CONVERSATION, "Work.").result
        [run] = await store.list_active_runs(CONVERSATION)
        draft = await store.load_draft(CONVERSATION, run.id)
    assert (run.state, len(model.calls)) == ("queued", 1)
    assert draft is not None
    assert results_of(draft.parts) == []


async def test_a_tools_own_time_out_is_its_failure_and_the_idle_limit_does_not_count() -> None:
    """A tool may take longer than the model may be silent; its own limit gives the model an error result."""
    clock = FakeClock()

    @tool(timeout=100)
    async def slow() -> None:
        """Be slow."""
        await clock.sleep(1_000)

    model = ScriptedModel(called(("c1", "slow", "{}")), "Too slow.", clock=clock)
    async with opened(model, tools=[slow], config=looped(idle_timeout=5.0), clock=clock) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Be slow.")
        await clock.advance(100)
        result = await ticket.result
    [(_, outcome, output)] = results_of(result.message.parts)
    assert isinstance(output, dict)
    assert (result.reason, outcome, output["error"]) == ("success", "error", "tool.timeout")


async def test_progress_reaches_listeners_and_a_slow_publisher_in_order() -> None:
    """Progress events carry the run's sequence; a publisher that takes time keeps the tool from nothing."""
    published: list[object] = []
    clock = FakeClock()

    async def publish(event: object) -> None:
        await anyio.lowlevel.checkpoint()
        published.append(event)

    @tool
    async def work(context: ToolExecutionContext[object]) -> None:
        """Work."""
        context.report_progress("one", 1, 2)
        clock.tick(1)
        context.report_progress("two", 2, 2)

    config = RuntimeConfig(delivery=DeliveryConfig(publisher=publish))
    model = ScriptedModel(called(("c1", "work", "{}")), "Done.")
    async with opened(model, tools=[work], config=config, clock=clock) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Work.")
        events = await heard(ticket)
        await ticket.result
    for found in (events, published):
        reports = [event for event in found if isinstance(event, ToolProgressEvent)]
        assert [(event.message, event.progress, event.total) for event in reports] == [("one", 1, 2), ("two", 2, 2)]
    sequences = [event.sequence for event in events if hasattr(event, "sequence")]
    assert sequences == list(range(1, len(sequences) + 1))


@pytest.mark.parametrize("kind", ["blocking", "task"])
async def test_closing_does_not_wait_for_a_thread(kind: str) -> None:
    """A tool that ignores everything does not keep a runtime from closing; its run ends as `shutdown`."""
    stand = Stand()
    config = RuntimeConfig(close=CloseConfig(grace=0, force=10))
    async with MemoryStore() as store:
        async with opened(_standing("c1"), store=store, tools=[getattr(stand, kind)()], config=config) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Stand.")
            await anyio.to_thread.run_sync(stand.entered.wait)
        result = await ticket.result
        stand.released.set()
    assert result.reason == "shutdown"
    assert ControlPart(reason="run-interrupted") in result.message.parts


async def test_ids_a_provider_repeats_are_made_distinct() -> None:
    """A provider that counts its calls anew in each response does not make the record ambiguous."""
    script = called(("call_0", "add", '{"left":1,"right":2}'))
    model = ScriptedModel(script, script, "Done.")
    async with opened(model, tools=[add], config=RuntimeConfig(loop=LoopConfig(max_steps=5))) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Twice.").result
    assert results_of(result.message.parts) == [("call_0", "success", 3), ("call_0~2", "success", 3)]


async def test_the_operator_learns_the_cause() -> None:
    """`tools.on_error` is called with the call and what was really raised; what it raises itself is swallowed."""
    causes: list[tuple[str, Exception]] = []
    error = ToolError("a.b")

    @tool
    async def fail() -> None:
        """Fail."""
        raise error

    def note(call: Any, cause: Exception) -> None:  # noqa: ANN401
        causes.append((call.call_id, cause))
        raise RuntimeError("a bad hook")

    model = ScriptedModel(called(("c1", "fail", "{}")), "Done.")
    config = RuntimeConfig(tools=ToolsConfig(on_error=note))
    async with opened(model, tools=[fail], config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Fail.").result
    assert (result.reason, causes) == ("success", [("c1", error)])
