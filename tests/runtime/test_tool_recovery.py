"""Crashes around tools: nothing uncertain runs twice by itself, and nothing that was recorded is lost."""

import threading
from typing import Any

import anyio
import pytest

from runlane.delivery import ToolStatusEvent
from runlane.errors import RunlaneError, StoreUnavailableError
from runlane.records import ToolApprovalRequestPart, ToolApprovalResponsePart, ToolResultPart
from runlane.runtime import RunResult, RuntimeConfig, RuntimeInput, ToolsConfig
from runlane.store import MemoryStore, ReadEvents
from runlane.testing import Fault, FaultPlan, ScriptedModel, StoreCall
from runlane.tools import ToolDefinition, ToolExecutionContext, ToolRegistry, ToolRegistryOptions, approval_kind, tool
from tests.runtime.scenes import CONVERSATION, Scene, heard, opened
from tests.runtime.test_tools import called, results_of

pytestmark = pytest.mark.anyio

_COMMITS = 4
_TELLING = RuntimeConfig(tools=ToolsConfig(unknown_effect="tell"))


def _counter(entries: list[str], **options: Any) -> ToolDefinition[Any, Any, Any]:  # noqa: ANN401 - options of `tool`
    @tool(id="count", **options)
    async def count(name: str, context: ToolExecutionContext[object]) -> str:
        """Count."""
        entries.append(f"{name} {context.idempotency_key}")
        return name

    return count


def _script() -> ScriptedModel:
    """A model that calls `count` once in a turn, whatever execution of it asks."""
    return ScriptedModel(
        lambda call: called(("c1", "count", '{"name":"a"}')) if call.messages[-1].role == "user" else "Done."
    )


def _dying_at(number: int, when: str) -> FaultPlan:
    def plan(call: StoreCall) -> Fault | None:
        return Fault(when=when, kills=True) if call.apply_number == number else None  # type: ignore[arg-type]

    return plan


async def _attempt(scene: Scene) -> RunResult | None:
    ticket = scene.runtime.submit(CONVERSATION, "Count.", idempotency_key="only")
    try:
        return await ticket.result
    except RunlaneError:
        return None


async def _die(store: MemoryStore, entries: list[str], plan: FaultPlan | None, **options: Any) -> None:  # noqa: ANN401
    async with opened(_script(), store=store, plan=plan, tools=[_counter(entries, **options)]) as scene:
        await _attempt(scene)


def _question(result: RunResult) -> ToolApprovalRequestPart:
    [request] = [part for part in result.message.parts if isinstance(part, ToolApprovalRequestPart)]
    return request


def _answer(request: ToolApprovalRequestPart, *, approved: bool, reason: str | None = None) -> RuntimeInput:
    part = ToolApprovalResponsePart(approval_id=request.approval_id, approved=approved, reason=reason)
    return RuntimeInput(role="tool", parts=(part,))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, _COMMITS + 1))
async def test_a_process_that_dies_at_a_commit_never_runs_a_tool_twice(number: int, when: str) -> None:
    """Whatever commit it dies at: the tool is entered at most once, and the run ends, with its answer or a question."""
    entries: list[str] = []
    async with MemoryStore() as store:
        await _die(store, entries, _dying_at(number, when))
        async with opened(_script(), store=store, tools=[_counter(entries)], recover_on_start=True) as scene:
            result = await _attempt(scene)
        assert await store.list_active_runs(CONVERSATION) == ()
    assert result is not None
    assert len(entries) <= 1
    if result.reason == "success":
        assert entries == [f"a {result.run.id}:c1"]
        assert results_of(result.message.parts) == [("c1", "success", "a")]
    else:
        assert (result.reason, approval_kind(_question(result))) == ("provider_stop", "effect-unknown")
        assert (number, when) in {(2, "after"), (3, "before")}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, _COMMITS + 1))
async def test_an_idempotent_tool_is_entered_again_with_the_same_key(number: int, when: str) -> None:
    """A tool that says so is called again after a crash, under one key, and the run ends with its answer."""
    entries: list[str] = []
    async with MemoryStore() as store:
        await _die(store, entries, _dying_at(number, when), idempotent=True)
        tools = [_counter(entries, idempotent=True)]
        async with opened(_script(), store=store, tools=tools, recover_on_start=True) as scene:
            result = await _attempt(scene)
    assert result is not None
    assert (result.reason, result.text) == ("success", "Done.")
    assert set(entries) == {f"a {result.run.id}:c1"}


async def test_a_recorded_result_is_gone_on_from() -> None:
    """A process dies after the result was committed: the next one neither runs the tool nor asks for the call again."""
    entries: list[str] = []
    async with MemoryStore() as store:
        await _die(store, entries, _dying_at(3, "after"))
        model = _script()
        async with opened(model, store=store, tools=[_counter(entries)], recover_on_start=True) as scene:
            result = await _attempt(scene)
    assert result is not None
    assert [part.type for part in result.message.parts] == ["tool-call", "tool-result", "text"]
    assert (len(entries), len(model.calls)) == (1, 1)


async def test_an_unknown_effect_is_asked_about_and_run_again_only_if_somebody_agrees() -> None:
    """Agreed: it runs again, under the key of the first time. The ledger has intent, doubt and the second intent."""
    entries: list[str] = []
    async with MemoryStore() as store:
        await _die(store, entries, _dying_at(3, "before"))
        model = _script()
        async with opened(model, store=store, tools=[_counter(entries)], recover_on_start=True) as scene:
            asked = await _attempt(scene)
            assert asked is not None
            assert (asked.reason, len(model.calls), len(entries)) == ("provider_stop", 0, 1)
            answer = _answer(_question(asked), approved=True)
            result = await scene.runtime.submit(CONVERSATION, answer).result
        events = await store.read_events(ReadEvents(conversation_id=CONVERSATION))
    assert (result.reason, result.text) == ("success", "Done.")
    assert entries == [f"a {asked.run.id}:c1"] * 2
    effects = [event.payload for event in events.items if event.kind == "durability/effect"]
    assert [effect["phase"] for effect in effects] == ["intent", "uncertain", "intent"]
    assert {effect["effect_name"] for effect in effects} == {f"tool:{asked.run.id}:c1"}


async def test_an_unknown_effect_that_nobody_wants_again_is_told_to_the_model() -> None:
    """Refused: nothing runs, and the model learns that the call may have had its effect, and what the person said."""
    entries: list[str] = []
    async with MemoryStore() as store:
        await _die(store, entries, _dying_at(3, "before"))
        async with opened(_script(), store=store, tools=[_counter(entries)], recover_on_start=True) as scene:
            asked = await _attempt(scene)
            assert asked is not None
            answer = _answer(_question(asked), approved=False, reason="it was done")
            result = await scene.runtime.submit(CONVERSATION, answer).result
    [(_, outcome, output)] = results_of(result.message.parts)
    assert isinstance(output, dict)
    assert (outcome, output["error"], output["details"]) == (
        "error",
        "tool.outcome_unknown",
        {"reason": "it was done"},
    )
    assert (result.reason, len(entries)) == ("success", 1)


async def test_an_unknown_effect_may_be_told_to_the_model_at_once() -> None:
    """With `unknown_effect="tell"` the run goes on by itself: the model is told, the tool is not entered again."""
    entries: list[str] = []
    async with MemoryStore() as store:
        await _die(store, entries, _dying_at(3, "before"))
        tools = [_counter(entries)]
        async with opened(_script(), store=store, tools=tools, config=_TELLING, recover_on_start=True) as scene:
            result = await _attempt(scene)
    assert result is not None
    assert (result.reason, result.text, len(entries)) == ("success", "Done.", 1)
    [(_, outcome, output)] = results_of(result.message.parts)
    assert isinstance(output, dict)
    assert (outcome, output["error"]) == ("error", "tool.outcome_unknown")


async def test_of_three_parallel_calls_each_ends_as_far_as_it_had_come() -> None:
    """One finished keeps its result; one running is unknown and asked about; one not started is started normally."""
    entries: list[str] = []
    dead = threading.Event()

    @tool
    def work(name: str) -> str:
        """Work in a thread."""
        entries.append(name)
        if name == "b" and entries.count("b") == 1:
            dead.wait(30)
        return name

    @tool
    async def quick() -> str:
        """Work in the task."""
        return "quick"

    def registry() -> ToolRegistry[object]:
        made: ToolRegistry[object] = ToolRegistry(ToolRegistryOptions(tools=[work, quick], max_blocking_threads=1))
        made.seal()
        return made

    script = called(("c1", "quick", "{}"), ("c2", "work", '{"name":"b"}'), ("c3", "work", '{"name":"c"}'))
    async with MemoryStore() as store:
        model = ScriptedModel(script, "Done.")
        async with opened(model, store=store, tools=registry()) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "All.", idempotency_key="only")
            async for event in ticket.events():
                if isinstance(event, ToolStatusEvent) and event.status == "completed":
                    break
            await anyio.wait_all_tasks_blocked()
            scene.store.kill()
            dead.set()
            with pytest.raises(RunlaneError):
                await ticket.result
        model = ScriptedModel("Done.")
        async with opened(model, store=store, tools=registry(), recover_on_start=True) as scene:
            asked = await scene.runtime.submit(CONVERSATION, "All.", idempotency_key="only").result
            told = asked.message.parts
            request = _question(asked)
            result = await scene.runtime.submit(CONVERSATION, _answer(request, approved=True)).result
    assert results_of(told) == [("c1", "success", "quick"), ("c3", "success", "c")]
    assert (request.call_id, approval_kind(request)) == ("c2", "effect-unknown")
    assert (result.reason, entries) == ("success", ["b", "c", "b"])
    assert [part.call_id for part in result.message.parts if isinstance(part, ToolResultPart)] == ["c2"]


async def test_a_takeover_tells_nothing_again() -> None:
    """Whoever listens to the run that went on hears of no call that was told before."""
    entries: list[str] = []
    async with MemoryStore() as store:
        await _die(store, entries, _dying_at(3, "after"))
        async with opened(_script(), store=store, tools=[_counter(entries)]) as scene:
            runs = await store.list_active_runs(CONVERSATION)
            subscription = scene.runtime.subscribe(CONVERSATION, run_id=runs[0].id)
            async with subscription:
                await scene.runtime.recover()
                events = await heard(subscription)
    assert [event for event in events if isinstance(event, ToolStatusEvent)] == []


async def test_an_agreed_call_that_was_cut_off_is_not_asked_about_again() -> None:
    """A call has one request in its life: if its process dies in it, the model is told that nobody knows."""
    entries: list[str] = []
    tools = [_counter(entries, needs_approval=True)]
    async with MemoryStore() as store:
        async with opened(_script(), store=store, tools=tools) as scene:
            asked = await scene.runtime.submit(CONVERSATION, "Count.").result
        [request] = asked.approvals
        async with opened(_script(), store=store, tools=tools, plan=_dying_at(4, "before")) as scene:
            with pytest.raises(RunlaneError):
                await scene.runtime.respond_to_approval(CONVERSATION, request.approval_id, approved=True).result
        async with opened(_script(), store=store, tools=tools, recover_on_start=True) as scene:
            result = await scene.runtime.respond_to_approval(CONVERSATION, request.approval_id, approved=True).result
    [(call_id, outcome, output)] = results_of(result.message.parts)
    assert isinstance(output, dict)
    assert (call_id, outcome, output["error"]) == ("c1", "error", "tool.outcome_unknown")
    assert (result.reason, entries) == ("success", [f"a {asked.run.id}:c1"])


async def test_a_question_may_be_declined_and_the_conversation_goes_on() -> None:
    """While the question about an unknown effect is open, other inputs are answered, and nothing runs."""
    entries: list[str] = []
    async with MemoryStore() as store:
        await _die(store, entries, _dying_at(3, "before"))
        model = ScriptedModel("Fine.")
        async with opened(model, store=store, tools=[_counter(entries)], recover_on_start=True) as scene:
            asked = await _attempt(scene)
            other = await scene.runtime.submit(CONVERSATION, "Something else.").result
    assert asked is not None
    assert (asked.reason, other.reason, len(entries)) == ("provider_stop", "success", 1)


@pytest.mark.parametrize(
    ("number", "when", "idempotent", "kind"),
    [
        (1, "after", False, "E1"),
        (2, "before", False, "E1"),
        (2, "after", False, "E5"),
        (3, "before", False, "E5"),
        (3, "before", True, "E3"),
        (3, "after", False, "E6"),
        (4, "before", False, "E6"),
    ],
)
async def test_a_takeover_is_recorded_with_what_was_known(
    number: int, when: str, kind: str, *, idempotent: bool
) -> None:
    """The ledger says of each takeover how far the execution had come."""
    entries: list[str] = []
    async with MemoryStore() as store:
        await _die(store, entries, _dying_at(number, when), idempotent=idempotent)
        tools = [_counter(entries, idempotent=idempotent)]
        async with opened(_script(), store=store, tools=tools, recover_on_start=True) as scene:
            await _attempt(scene)
        events = await store.read_events(ReadEvents(conversation_id=CONVERSATION))
    evidence = [event.payload["evidence"] for event in events.items if event.payload.get("type") == "recover"]
    assert [found["class"] for found in evidence if isinstance(found, dict)] == [kind]


async def test_a_result_whose_write_fails_once_is_written_later() -> None:
    """The store refuses the result's commit at first: it is sent again, and the tool ran once."""
    entries: list[str] = []

    def plan(call: StoreCall) -> Fault | None:
        return Fault(error=StoreUnavailableError("gone for a moment", store="s")) if call.apply_number == 3 else None

    async with opened(_script(), plan=plan, tools=[_counter(entries)]) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Count.")
        async with anyio.create_task_group() as tasks:

            async def tick() -> None:
                while True:
                    await scene.clock.advance(0.1)

            tasks.start_soon(tick)
            result = await ticket.result
            tasks.cancel_scope.cancel()
    assert (result.reason, results_of(result.message.parts), len(entries)) == ("success", [("c1", "success", "a")], 1)
