"""A workflow answers durable runs: rules B1 to B9, B12."""

# ruff: noqa: ANN401, ARG001, ARG005 - handlers and routes take a context of any app, also where they ignore it

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest

from runlane.bridge import WorkflowTurnDriver
from runlane.diagnostics import CreateDiagnosticsOptions
from runlane.errors import CanonicalJsonError, RunlaneError, ToolError, UsageError
from runlane.flow import AgentCoreEngineOptions, WorkflowNode, build_workflow_chain, define_workflow
from runlane.records import TextPart, ToolApprovalRequestPart, ToolApprovalResponsePart, ToolCallPart, ToolResultPart
from runlane.runtime import RunResult, RuntimeConfig, RuntimeInput
from runlane.store import MemoryStore
from runlane.testing import Fault, FaultPlan, ScriptedModel, StoreCall
from runlane.tools import tool
from tests.flow.engines import Listener
from tests.flow.workflows import definition, node, way
from tests.runtime.scenes import CONVERSATION, opened
from tests.source_files import PACKAGE

pytestmark = pytest.mark.anyio


def driving(*nodes: WorkflowNode[Any], app: object = None, **options: Any) -> RuntimeConfig:
    """Return a configuration whose runs are answered by a workflow."""
    return RuntimeConfig(driver=WorkflowTurnDriver(define_workflow(definition(*nodes)), app, **options))


async def answered(config: RuntimeConfig, text: str = "Hello", **options: Any) -> RunResult:
    """Answer one input and return its result."""
    async with opened(ScriptedModel("never asked"), config=config, **options) as scene:
        return await scene.runtime.submit(CONVERSATION, text).result


def texts(result: RunResult) -> list[str]:
    """Return the texts of an answer."""
    return [part.text for part in result.message.parts if isinstance(part, TextPart)]


def test_b1_b2_a_driver_never_touches_the_store_and_the_halves_do_not_meet() -> None:
    """Nothing of the bridge imports a store; neither half imports the other."""
    for package, stranger in (("bridge", "store"), ("runtime", "flow"), ("runtime", "runner"), ("flow", "runtime")):
        for path in (PACKAGE / package).glob("*.py"):
            assert f"runlane.{stranger}" not in path.read_text(), path


async def test_b4_a_workflow_starts_from_the_runs_input() -> None:
    """The text of the inputs, the ids and the projected history are in its state."""
    states: list[dict[str, Any]] = []
    config = driving(node("a", run=lambda context: states.append(dict(context.state))))
    result = await answered(config, "Write a poem")
    assert states[0]["prompt"] == "Write a poem"
    assert (states[0]["conversation_id"], states[0]["run_id"]) == (CONVERSATION, result.run.id)
    assert [message.role for message in states[0]["messages"]] == ["user"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", ["text"]),
        ({"b": 1, "a": [2]}, ['{"a":[2],"b":1}']),
        (3, ["3"]),
        ("", []),
        ("a\ud800", ["a\ufffd"]),
        ({"\ud800": ["\udfff"]}, ['{"\ufffd":["\ufffd"]}']),
        (("\ud800", ("\udfff",)), ['["\ufffd",["\ufffd"]]']),
    ],
)
async def test_b4_the_completion_value_is_the_answer(value: object, expected: list[str]) -> None:
    """A text is one text part, other JSON one text part that holds it canonically; lone surrogates are repaired."""
    result = await answered(driving(node("a", way(complete=lambda context: value))))
    assert (texts(result), result.reason) == (expected, "success")


@pytest.mark.parametrize(
    "value",
    [{1: 2}, float("nan"), object(), b"x", [{"a": {2: "\ud800"}}]],
    ids=["key", "nan", "object", "bytes", "nested"],
)
async def test_b4_a_completion_value_that_is_no_json_is_refused_by_type(value: object) -> None:
    """Whatever is wrong with it, and wherever."""
    result = await answered(driving(node("a", way(complete=lambda context: value))))
    assert (texts(result), result.reason, type(result.error)) == ([], "runtime_failure", CanonicalJsonError)


async def test_b4_the_host_may_make_state_and_answer() -> None:
    """Its own functions are asked instead."""
    config = driving(
        node("a", way(complete="x")),
        input=lambda turn: {"x": turn.run.id},
        output=lambda value: [TextPart(text=f"run {value}")],
    )
    result = await answered(config)
    assert texts(result) == [f"run {result.run.id}"]


@pytest.mark.parametrize("limit", ["rounds", "visits", "calls"])
async def test_a_spent_budget_of_the_workflow_is_a_policy_stop(limit: str) -> None:
    """Rounds, visits and calls that are used up end the run by the policy `workflow-budget`."""

    async def calling(context: Any) -> None:
        if limit == "calls":
            await context.model.invoke_tool("none", {})

    again = node("a", way("a", budget=99), run=calling, max_visits=1 if limit == "visits" else None)
    workflow = define_workflow(definition(again, max_calls=0))
    options = AgentCoreEngineOptions(max_rounds=3)
    result = await answered(RuntimeConfig(driver=WorkflowTurnDriver(workflow, None, options=options)))
    assert (result.reason, result.policy_name) == ("policy_stop", "workflow-budget")


async def test_a_fault_of_the_definition_is_a_failure_of_the_runtime() -> None:
    """It is neither the provider's nor a stop."""
    result = await answered(driving(node("a", way(complete=str, when=lambda context: False))))
    assert result.reason == "runtime_failure"
    assert result.error is not None


async def test_b6_an_interrupt_reaches_the_workflow_with_its_reason() -> None:
    """The engine's token is the run's: the reason arrives unchanged and the run ends as interrupted."""
    started, reasons = anyio.Event(), []

    async def waiting(context: Any) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            reasons.append(context.signal.reason)

    async with opened(ScriptedModel("never"), config=driving(node("a", run=waiting))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hello")
        await started.wait()
        await scene.runtime.interrupt(CONVERSATION, ticket.run_id)
        result = await ticket.result
    assert (result.reason, reasons) == ("interrupted", ["user-interrupt"])


def mailer(sent: list[str], **options: Any) -> Any:
    """Return a tool that sends mail."""

    @tool(id="send", **options)
    async def send(to: str) -> dict[str, str]:
        """Send a mail."""
        sent.append(to)
        if to == "nobody":
            raise ToolError("mail.no_such_box", retryable=False, hint="Try another.")
        return {"sent": to}

    return send


def sending(*receivers: str) -> tuple[WorkflowNode[Any], ...]:
    """Return nodes that send one mail each and keep what came of it."""

    def handler(receiver: str) -> Any:
        async def send(context: Any) -> dict[str, object]:
            result = await context.model.invoke_tool("send", {"to": receiver})
            return {"value": [*context.state.get("value", ()), result.value["sent"]]}

        return send

    last = len(receivers) - 1
    return tuple(
        node(
            f"n{index}",
            *([way(f"n{index + 1}")] if index < last else []),
            run=handler(receiver),
        )
        for index, receiver in enumerate(receivers)
    )


async def test_b8_tools_are_the_runtimes() -> None:
    """Calls and results are in the record, in order, and the handler is entered once for each."""
    sent: list[str] = []
    result = await answered(driving(*sending("a", "b")), tools=[mailer(sent)])
    assert sent == ["a", "b"]
    assert texts(result) == ['["a","b"]']
    kinds = [part.type for part in result.message.parts]
    assert kinds == ["tool-call", "tool-result", "tool-call", "tool-result", "text"]


async def test_b8_a_failed_tool_raises_what_a_model_would_be_told() -> None:
    """An unknown tool, refused arguments and the tool's own error are typed, without their cause."""
    errors: list[ToolError] = []

    async def trying(context: Any) -> None:
        for name, given in (("nothing", {}), ("send", {"to": 3}), ("send", {"to": "nobody"})):
            try:
                await context.model.invoke_tool(name, given)
            except ToolError as error:
                errors.append(error)

    result = await answered(driving(node("a", run=trying)), tools=[mailer([])])
    assert [error.code for error in errors] == ["tool.unknown", "tool.arguments_invalid", "mail.no_such_box"]
    assert errors[2].retryable is False
    assert result.reason == "success"


async def test_b8_an_input_that_is_no_json_is_refused() -> None:
    """The error names the argument, and nothing is recorded."""

    async def wrong(context: Any) -> None:
        with pytest.raises(UsageError, match="tool_input"):
            await context.model.invoke_tool("send", {"to": object()})

    result = await answered(driving(node("a", run=wrong)), tools=[mailer([])])
    assert [part.type for part in result.message.parts if part.type != "text"] == []


async def test_b9_a_call_that_needs_consent_ends_the_turn_and_the_next_goes_on() -> None:
    """The turn ends with the call pending; with consent the workflow begins again and nothing is sent twice."""
    sent: list[str] = []
    resumed: list[object] = []

    async def first(context: Any) -> dict[str, object]:
        resumed.append(context.state.get("resumed_call"))
        await context.model.invoke_tool("note", {})
        return {}

    @tool(id="note")
    async def note() -> str:
        """Take a note."""
        sent.append("note")
        return "noted"

    config = driving(node("first", way("n0"), run=first), *sending("a"))
    tools = [note, mailer(sent, needs_approval=True)]
    async with opened(ScriptedModel("never"), config=config, tools=tools) as scene:
        asked = await scene.runtime.submit(CONVERSATION, "Send").result
        assert (asked.reason, sent) == ("provider_stop", ["note"])
        [request] = [part for part in asked.message.parts if isinstance(part, ToolApprovalRequestPart)]
        response = ToolApprovalResponsePart(approval_id=request.approval_id, approved=True)
        done = await scene.runtime.submit(CONVERSATION, RuntimeInput(role="tool", parts=(response,))).result
    assert sent == ["note", "a"]
    assert texts(done) == ['["a"]']
    assert resumed[0] is None
    assert resumed[1] == {"call_id": "flow-2", "tool_name": "send", "outcome": "success", "output": {"sent": "a"}}


async def test_b9_calls_in_flight_are_finished_before_a_turn_waits_for_consent() -> None:
    """Calls beside the one that waits get their results on record, and none of them is made again with the consent."""
    entered: list[str] = []
    is_asked, are_in_flight = anyio.Event(), anyio.Event()

    @tool(id="slow")
    async def slow(name: str) -> str:
        """Take longer than the question."""
        entered.append(name)
        if len(entered) == 2:
            are_in_flight.set()
        await is_asked.wait()
        await anyio.lowlevel.checkpoint()
        return name

    def asks(arguments: dict[str, Any], context: object) -> bool:
        is_asked.set()
        return True

    async def side_by_side(context: Any) -> dict[str, object]:
        found: dict[str, object] = {}

        async def one(name: str, given: dict[str, Any]) -> None:
            found[str(given)] = (await context.model.invoke_tool(name, given)).value

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "slow", {"name": "x"})
            tasks.start_soon(one, "slow", {"name": "y"})
            # An event loop may begin tasks in any order, and a question that comes first stops the others unbegun.
            await are_in_flight.wait()
            tasks.start_soon(one, "send", {"to": "a"})
        return {"out": [found[key] for key in sorted(found)]}

    config = driving(node("a", way(complete="out"), run=side_by_side))
    tools = [slow, mailer(entered, needs_approval=asks)]
    async with opened(ScriptedModel("never"), config=config, tools=tools) as scene:
        asked = await scene.runtime.submit(CONVERSATION, "Send").result
        assert sorted(entered) == ["x", "y"]
        [request] = asked.approvals
        done = await scene.runtime.respond_to_approval(CONVERSATION, request.approval_id, approved=True).result
    assert sorted(entered) == ["a", "x", "y"]
    assert texts(done) == ['["x","y",{"sent":"a"}]']


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (("", {}, None), "tool_id"),
        ((5, {}, None), "tool_id"),
        (("send", {"\ud800": 1}, None), "tool_input"),
        (("send", {}, "x" * 600), "call_id"),
        (("send", {}, 5), "call_id"),
    ],
)
async def test_b8_what_is_no_call_is_refused_by_name(given: tuple[Any, Any, Any], names: str) -> None:
    """A malformed call is misuse of the workflow's own, and nothing of it is on record."""
    tool_id, value, call_id = given

    async def wrong(context: Any) -> None:
        with pytest.raises(RunlaneError) as caught:
            await context.model.invoke_tool(tool_id, value, call_id=call_id)
        assert caught.value.argument == names  # type: ignore[attr-defined]

    result = await answered(driving(node("a", run=wrong)), tools=[mailer([])])
    assert result.reason == "success"
    assert [part.type for part in result.message.parts if part.type != "text"] == []


@pytest.mark.parametrize("option", ["input", "output"])
@pytest.mark.parametrize("value", [5, None, [5]])
async def test_what_a_host_makes_of_a_turn_is_checked(option: str, value: object) -> None:
    """A state that is no mapping and an answer without parts end the run as its own failure, by name."""
    result = await answered(driving(node("a"), **{option: lambda _: value}))
    assert result.reason == "runtime_failure"
    assert isinstance(result.error, UsageError)
    assert result.error.argument == option


def _dying_at(number: int, when: str) -> FaultPlan:
    def plan(call: StoreCall) -> Fault | None:
        return Fault(when=when, kills=True) if call.apply_number == number else None  # type: ignore[arg-type]

    return plan


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 8))
async def test_b12_a_workflow_that_died_begins_again_and_sends_nothing_twice(number: int, when: str) -> None:
    """Whatever commit the process dies at, each mail is sent at most once, and the run ends in one answer."""
    sent: list[str] = []
    config = driving(*sending("a", "b"))
    async with MemoryStore() as store:
        plan = _dying_at(number, when)
        async with opened(ScriptedModel("-"), store=store, plan=plan, config=config, tools=[mailer(sent)]) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Send", idempotency_key="only")
            with suppress(RunlaneError):
                await ticket.result
        async with opened(
            ScriptedModel("-"), store=store, config=config, tools=[mailer(sent)], recover_on_start=True
        ) as scene:
            result = await scene.runtime.submit(CONVERSATION, "Send", idempotency_key="only").result
    assert len(sent) == len(set(sent))
    if result.reason == "success":
        assert sent == ["a", "b"]
        assert texts(result) == ['["a","b"]']
    else:
        assert any(isinstance(part, ToolApprovalRequestPart) for part in result.message.parts)
    calls = [part.call_id for part in result.message.parts if isinstance(part, ToolCallPart)]
    results = [part.call_id for part in result.message.parts if isinstance(part, ToolResultPart)]
    assert len(calls) == len(set(calls))
    assert set(results) <= set(calls)


async def test_b26_a_run_is_recorded_under_its_durable_id() -> None:
    """The root scope of the workflow has the run's id, and its chain is complete."""
    listener = Listener()
    config = driving(node("a"), diagnostics=CreateDiagnosticsOptions(observer=listener))
    async with opened(ScriptedModel("-"), config=config) as scene:
        runs = [await scene.runtime.submit(CONVERSATION, text).result for text in ("one", "two")]
    for result in runs:
        chain = build_workflow_chain(listener.events, run_id=result.run.id)  # type: ignore[arg-type]
        assert chain.coverage.complete


async def test_a_driver_made_of_something_else_is_refused() -> None:
    """A definition is no workflow yet, and a coroutine function makes no state."""

    async def late(turn: object) -> dict[str, object]:
        return {}

    with pytest.raises(UsageError, match="workflow"):
        WorkflowTurnDriver(definition(node("a")), None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="input"):
        WorkflowTurnDriver(define_workflow(definition(node("a"))), None, input=late)  # type: ignore[arg-type]
