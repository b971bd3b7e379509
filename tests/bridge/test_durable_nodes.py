"""What visits of a workflow returned is on record: rule B11 and ruling C7."""

# ruff: noqa: ANN401 - handlers take a context of any app

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import anyio
import pytest

from runlane.bridge import WorkflowTurnDriver
from runlane.contracts import Id
from runlane.errors import (
    FormatError,
    RunlaneError,
    StepResultDecodeError,
    StepResultNotSerializableError,
)
from runlane.flow import WorkflowNode, define_workflow
from runlane.models import FinishReport, TextDelta
from runlane.records import TextPart, ToolCallPart
from runlane.runner import ModelCallRequest
from runlane.runtime import RunResult, RuntimeConfig
from runlane.store import EventKind, MemoryStore, ReadEvents
from runlane.testing import Fault, FaultPlan, Hold, ScriptedModel, StoreCall
from runlane.tools import tool
from tests.bridge.test_workflow_turns import texts
from tests.flow.workflows import definition, node, way
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio


def remembering(*nodes: WorkflowNode[Any], **options: Any) -> RuntimeConfig:
    """Return a configuration whose runs are answered by a workflow with durable nodes."""
    workflow = define_workflow(definition(*nodes))
    return RuntimeConfig(driver=WorkflowTurnDriver(workflow, None, durable_nodes=True, **options))


async def recorded(store: MemoryStore) -> list[str]:
    """Return the names of the steps on record."""
    page = await store.read_events(ReadEvents(conversation_id=CONVERSATION, limit=10_000))
    return [str(event.payload["step_name"]) for event in page.items if event.kind == "durability/step"]


class Entries:
    """Counts which handlers are entered, in which visit."""

    def __init__(self) -> None:
        """Nothing was entered."""
        self.count: Counter[str] = Counter()

    def node(self, name: str, *routes: Any, **options: Any) -> WorkflowNode[Any]:
        """Return a node whose handler leaves its mark and appends to the state."""

        async def run(context: Any) -> dict[str, object]:
            self.count[f"flow:{name}:{context.visit}"] += 1
            await anyio.lowlevel.checkpoint()
            return {"value": [*context.state.get("value", ()), f"{name}{context.visit}"]}

        return node(name, *routes, run=run, **options)


def looping(entries: Entries) -> tuple[WorkflowNode[Any], ...]:
    """Return a workflow that visits `a`, `b`, `a`, `b`, `c`."""
    return (
        entries.node("a", way("b")),
        entries.node("b", way("a", budget=1), way("c")),
        entries.node("c"),
    )


_ALL = ["flow:a:1", "flow:b:1", "flow:a:2", "flow:b:2", "flow:c:1"]


def dying_at(number: int, when: str) -> FaultPlan:
    """Return a plan by which the process dies around a commit."""

    def plan(call: StoreCall) -> Fault | None:
        return Fault(when=when, kills=True) if call.apply_number == number else None  # type: ignore[arg-type]

    return plan


async def killed_and_recovered(
    store: MemoryStore, plan: FaultPlan, configs: tuple[RuntimeConfig, RuntimeConfig], **options: Any
) -> tuple[list[str], RunResult]:
    """Answer an input with a process that dies, then with another; return the steps on record between the two."""
    tools = options.pop("tools", ())
    async with opened(ScriptedModel("-"), store=store, plan=plan, config=configs[0], tools=tools) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go", idempotency_key="only")
        with suppress(RunlaneError):
            await ticket.result
    between = await recorded(store)
    async with opened(ScriptedModel("-"), store=store, config=configs[1], tools=tools, recover_on_start=True) as scene:
        return between, await scene.runtime.submit(CONVERSATION, "Go", idempotency_key="only").result


async def test_b11_each_visit_is_a_step_that_holds_what_it_returned() -> None:
    """They are named by node and visit, in order, and the values a route sees are the recorded ones."""
    entries = Entries()
    async with MemoryStore() as store:
        async with opened(ScriptedModel("-"), store=store, config=remembering(*looping(entries))) as scene:
            result = await scene.runtime.submit(CONVERSATION, "Go").result
        assert await recorded(store) == _ALL
    assert texts(result) == ['["a1","b1","a2","b2","c1"]']


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 9))
async def test_b11_finished_visits_are_not_made_again_wherever_the_process_dies(number: int, when: str) -> None:
    """What is on record when the process dies is never entered again; what is not, is; the answer is the same."""
    entries = Entries()
    async with MemoryStore() as store:
        config = remembering(*looping(entries))
        between, result = await killed_and_recovered(store, dying_at(number, when), (config, config))
        assert await recorded(store) == _ALL
    assert (result.reason, texts(result)) == ("success", ['["a1","b1","a2","b2","c1"]'])
    assert between == _ALL[: len(between)]
    assert all(entries.count[name] == 1 for name in between)
    again = [name for name in _ALL if entries.count[name] == 2]
    assert again in ([], _ALL[len(between) : len(between) + 1])


async def test_b11_equal_calls_of_different_visits_are_told_apart() -> None:
    """A replayed visit keeps the results of its own calls: the next visit's call, alike in everything, is made."""
    sent: list[str] = []
    hold = anyio.Event()

    @tool(id="send")
    async def send(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return f"sent {len(sent)}"

    def sending(name: str, *routes: Any, stops: bool = False, call_id: str | None = None) -> WorkflowNode[Any]:
        async def run(context: Any) -> dict[str, object]:
            if stops:
                hold.set()
                await anyio.sleep_forever()
            result = await context.model.invoke_tool("send", {"to": "x"}, call_id=call_id)
            return {"value": [*context.state.get("value", ()), result.value]}

        return node(name, *routes, run=run)

    def config(*, stops: bool) -> RuntimeConfig:
        return remembering(
            sending("a", way("b")),
            sending("b", way("c"), call_id="mine"),
            sending("c", way("d"), stops=stops),
            sending("d", call_id="mine"),
        )

    async with MemoryStore() as store:
        async with anyio.create_task_group() as tasks:

            async def die() -> None:
                config_ = config(stops=True)
                async with opened(ScriptedModel("-"), store=store, config=config_, tools=[send]) as scene:
                    scene.runtime.submit(CONVERSATION, "Go", idempotency_key="only")
                    await hold.wait()
                    scene.store.kill()
                    tasks.cancel_scope.cancel()

            tasks.start_soon(die)
        assert await recorded(store) == ["flow:a:1", "flow:b:1"]
        async with opened(
            ScriptedModel("-"), store=store, config=config(stops=False), tools=[send], recover_on_start=True
        ) as scene:
            result = await scene.runtime.submit(CONVERSATION, "Go", idempotency_key="only").result
    assert texts(result) == ['["sent 1","sent 2","sent 3","sent 4"]']
    ids = [part.call_id for part in result.message.parts if isinstance(part, ToolCallPart)]
    assert ids == ["flow-1", "mine", "flow-3", "mine~2"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(2, 10))
async def test_b5_b11_streamed_text_is_in_the_answer_once(number: int, when: str) -> None:
    """Text that a finished visit streamed is not lost with the process that died, and not said twice."""

    def asking(name: str, *routes: Any) -> WorkflowNode[Any]:
        async def run(context: Any) -> dict[str, object]:
            await context.model.call(ModelCallRequest(stage=Id("said"), prompt=name))
            await context.model.invoke_tool("mark", {})
            return {"value": "not added"}

        return node(name, *routes, run=run)

    @tool(id="mark")
    async def mark() -> str:
        """Leave a part of another kind between the texts."""
        return "x"

    def model() -> ScriptedModel:
        return ScriptedModel(
            lambda call: [TextDelta(f"{call.messages[-1].text}!"), FinishReport("stop")]  # type: ignore[union-attr]
        )

    config = remembering(asking("a", way("b")), asking("b", way("c")), node("c"), stream_stages=["said"])
    async with MemoryStore() as store:
        async with opened(model(), store=store, plan=dying_at(number, when), config=config, tools=[mark]) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Go", idempotency_key="only")
            with suppress(RunlaneError):
                await ticket.result
        between = await recorded(store)
        async with opened(model(), store=store, config=config, tools=[mark], recover_on_start=True) as scene:
            result = await scene.runtime.submit(CONVERSATION, "Go", idempotency_key="only").result
    said = "".join(part.text for part in result.message.parts if isinstance(part, TextPart))
    if result.reason == "success":
        finished = [name.split(":")[1] for name in between if name != "flow:c:1"]
        assert [said.count(f"{name}!") for name in finished] == [1] * len(finished)


async def test_c7_only_the_outermost_workflow_is_made_of_steps() -> None:
    """Visits of a nested workflow are part of the visit that runs it, also of the same workflow."""
    inner = define_workflow(definition(node("x", way(complete=lambda _: 7))))

    async def nesting(context: Any) -> dict[str, object]:
        return {"value": await context.run_workflow(inner, {})}

    async with MemoryStore() as store:
        async with opened(ScriptedModel("-"), store=store, config=remembering(node("a", run=nesting))) as scene:
            result = await scene.runtime.submit(CONVERSATION, "Go").result
        assert await recorded(store) == ["flow:a:1"]
    assert texts(result) == ["7"]


async def test_b11_a_visit_that_raised_is_not_on_record() -> None:
    """Recovery goes on as ever, and what it visits is."""

    def failing(_: Any) -> None:
        raise KeyError("x")

    nodes = [node("a", run=failing, recover=[way("b")]), node("b", failure_phase="sorry", run=lambda _: {"value": 1})]
    async with MemoryStore() as store:
        async with opened(ScriptedModel("-"), store=store, config=remembering(*nodes)) as scene:
            result = await scene.runtime.submit(CONVERSATION, "Go").result
        assert await recorded(store) == ["flow:b:1"]
    assert texts(result) == ["1"]


@pytest.mark.parametrize("value", [(1,), float("nan"), object(), {1: 2}])
async def test_b11_what_is_no_lossless_json_ends_the_run(value: object) -> None:
    """Whatever recovery there is: the handler ran, and would run again."""
    nodes = [
        node("a", run=lambda _: {"value": value}, recover=[way("b")]),
        node("b", failure_phase="sorry", run=lambda _: {"value": "recovered"}),
    ]
    async with MemoryStore() as store:
        async with opened(ScriptedModel("-"), store=store, config=remembering(*nodes)) as scene:
            result = await scene.runtime.submit(CONVERSATION, "Go").result
        assert await recorded(store) == []
    assert result.reason == "runtime_failure"
    assert isinstance(result.error, StepResultNotSerializableError)


async def test_b11_a_result_that_is_no_state_is_the_engines_to_refuse() -> None:
    """It is no step, and the error is the one of any workflow."""
    async with MemoryStore() as store:
        config = remembering(node("a", run=lambda _: [1]))
        async with opened(ScriptedModel("-"), store=store, config=config) as scene:
            result = await scene.runtime.submit(CONVERSATION, "Go").result
        assert await recorded(store) == []
    assert getattr(result.error, "rule", None) == "node_result"


@pytest.mark.parametrize(("encoded", "expected"), [("{", StepResultDecodeError), ('{"fields":1}', FormatError)])
async def test_b11_a_damaged_record_is_no_leave_to_run_anything(encoded: str, expected: type[Exception]) -> None:
    """The run fails, no handler is entered, and no recovery hides it."""
    entries = Entries()
    hold = Hold()

    async def first(context: Any) -> dict[str, object]:
        await context.model.call(ModelCallRequest(stage=Id("s"), prompt="x"))
        return {}

    nodes = [
        node("z", way("a"), run=first),
        entries.node("a", recover=[way("b")]),
        entries.node("b", failure_phase="x"),
    ]
    async with MemoryStore() as store:
        model = ScriptedModel([hold, FinishReport("stop")])
        async with opened(model, store=store, config=remembering(*nodes)) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Go")
            await hold.reached()
            kind: EventKind = "durability/step"
            facts: Any = {"run_id": ticket.run_id, "step_name": "flow:a:1", "encoded": encoded}
            await store.append_event(conversation_id=CONVERSATION, kind=kind, payload=facts)
            hold.release()
            result = await ticket.result
    assert result.reason == "runtime_failure"
    assert isinstance(result.error, expected)
    assert not entries.count


async def test_an_interrupt_between_durable_nodes_is_an_interrupt() -> None:
    """A tripped token ends the run with its reason, and the finished visits stay on record."""
    started = anyio.Event()

    async def waiting(_: Any) -> None:
        started.set()
        await anyio.sleep_forever()

    async with MemoryStore() as store:
        config = remembering(node("a", way("b")), node("b", run=waiting))
        async with opened(ScriptedModel("-"), store=store, config=config) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Go")
            await started.wait()
            await scene.runtime.interrupt(CONVERSATION, ticket.run_id)
            result = await ticket.result
        assert await recorded(store) == ["flow:a:1"]
    assert result.reason == "interrupted"
