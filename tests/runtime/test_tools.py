"""Tools in a durable run: what the model is shown, what its calls become, and what a turn with them costs."""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from runlane.delivery import ToolStatusEvent
from runlane.errors import InvalidValueError, ToolError, UsageError
from runlane.models import FinishReport, FunctionCallDelta, ModelToolResultMessage
from runlane.records import ToolCallPart, ToolResultPart
from runlane.runtime import AgentRuntime, RuntimeConfig, ToolsConfig, Turn, TurnFinished, TurnOutcome
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel, ScriptedStep
from runlane.tools import ToolExecutionContext, ToolOptions, ToolRegistry, ToolRegistryOptions, ToolRegistryPorts, tool
from tests.runtime.scenes import CONVERSATION, heard, opened

pytestmark = pytest.mark.anyio


def called(*calls: tuple[str, str, str]) -> list[ScriptedStep]:
    """Return what a model streams that makes calls: id, name and arguments of each."""
    deltas = [FunctionCallDelta(at, id=call[0], name=call[1], arguments=call[2]) for at, call in enumerate(calls)]
    return [*deltas, FinishReport("tool-calls")]


def results_of(parts: Sequence[object]) -> list[tuple[str, str, object]]:
    """Return call id, outcome and output of the results among parts."""
    return [(part.call_id, part.outcome, part.output) for part in parts if isinstance(part, ToolResultPart)]


@tool
async def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


@tool
def double(number: int) -> int:
    """Double a number, in a thread."""
    return 2 * number


async def test_a_call_is_carried_out_and_given_back_to_the_model() -> None:
    """The model is shown the tools, its call runs with parsed arguments, and the next step gets the result."""
    model = ScriptedModel(called(("c1", "add", '{"left":1,"right":2}')), "Three.")
    async with opened(model, tools=[add]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "1 + 2?").result
    assert (result.reason, result.text) == ("success", "Three.")
    assert [shown.name for shown in model.calls[0].context.functions] == ["add"]
    assert model.calls[0].context.functions[0].parameters["required"] == ["left", "right"]
    answer = model.calls[1].messages[-1]
    assert isinstance(answer, ModelToolResultMessage)
    assert results_of(answer.items) == [("c1", "success", 3)]
    assert results_of(result.message.parts) == [("c1", "success", 3)]


async def test_a_turn_with_one_call_takes_four_commits() -> None:
    """Acceptance with the first request; the call; its result with the next request; the end: four commits."""
    model = ScriptedModel(called(("c1", "add", '{"left":1,"right":2}')), "Three.")
    async with opened(model, tools=[add]) as scene:
        await scene.runtime.submit(CONVERSATION, "1 + 2?").result
        assert len(scene.store.applied) == 4


async def test_plain_functions_run_in_threads() -> None:
    """A plain function is a tool as well."""
    model = ScriptedModel(called(("c1", "double", '{"number":4}')), "Eight.")
    async with opened(model, tools=[double]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "2 * 4?").result
    assert results_of(result.message.parts) == [("c1", "success", 8)]


async def test_parallel_calls_run_side_by_side_and_their_results_stand_in_the_order_of_the_calls() -> None:
    """Each of two calls waits for the other; the later call returns first, and the record has them in call order."""
    first, second = anyio.Event(), anyio.Event()

    @tool
    async def meet(name: str) -> str:
        """Wait for the other."""
        mine, other = (first, second) if name == "a" else (second, first)
        mine.set()
        await other.wait()
        if name == "a":
            await anyio.wait_all_tasks_blocked()
        return name

    model = ScriptedModel(called(("c1", "meet", '{"name":"a"}'), ("c2", "meet", '{"name":"b"}')), "Done.")
    async with opened(model, tools=[meet]) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Meet.")
        events = await heard(ticket)
        result = await ticket.result
    assert results_of(result.message.parts) == [("c1", "success", "a"), ("c2", "success", "b")]
    assert results_of(model.calls[1].messages[-1].items) == [("c1", "success", "a"), ("c2", "success", "b")]
    told = [(event.call_id, event.status) for event in events if isinstance(event, ToolStatusEvent)]
    assert told == [("c1", "started"), ("c2", "started"), ("c2", "completed"), ("c1", "completed")]


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("nothing", "{}", "tool.unknown"),
        ("add", '{"left":1', "tool.arguments_invalid"),
        ("add", '{"left":"1","right":2}', "tool.arguments_invalid"),
        ("add", "", "tool.arguments_invalid"),
    ],
)
async def test_a_call_that_cannot_be_made_goes_back_to_the_model(name: str, arguments: str, code: str) -> None:
    """An unknown tool, arguments that are no JSON and arguments that do not fit are error results; the run goes on."""
    model = ScriptedModel(called(("c1", name, arguments)), "Sorry.")
    async with opened(model, tools=[add]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "?").result
    assert (result.reason, result.text) == ("success", "Sorry.")
    [(_, outcome, output)] = results_of(result.message.parts)
    assert outcome == "error"
    assert isinstance(output, dict)
    assert (output["error"], output["retryable"]) == (code, False)


async def test_a_failing_tool_shows_only_what_it_means_to_show() -> None:
    """A `ToolError` shows code, details and hint; of any other failure neither type, text nor cause leaves the tool."""

    @tool
    async def pay(amount: int) -> None:
        """Pay."""
        if amount > 1:
            raise ToolError("card.declined", "of a secret card", retryable=False, details={"left": 1}, hint="Ask.")
        raise RuntimeError("a secret password")

    model = ScriptedModel(called(("c1", "pay", '{"amount":2}'), ("c2", "pay", '{"amount":1}')), "No.")
    async with opened(model, tools=[pay]) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Pay.")
        events = await heard(ticket)
        result = await ticket.result
    typed = {"error": "card.declined", "retryable": False, "details": {"left": 1}, "_hint": "Ask."}
    internal = {"error": "tool.internal", "retryable": None}
    assert results_of(result.message.parts) == [("c1", "error", typed), ("c2", "error", internal)]
    assert "secret" not in f"{events}{model.calls[1]}{result.message}"
    ended = [event for event in events if isinstance(event, ToolStatusEvent) and event.status != "started"]
    told = sorted(((event.call_id, event.status, event.output) for event in ended), key=lambda entry: entry[0])
    assert told == [("c1", "failed", typed), ("c2", "failed", internal)]


async def test_a_handler_knows_its_call() -> None:
    """The context carries run, call, idempotency key (run and call), fencing token and the submitted context."""
    seen: list[ToolExecutionContext[object]] = []

    @tool
    async def look(context: ToolExecutionContext[object]) -> None:
        """Look around."""
        seen.append(context)

    model = ScriptedModel(called(("c1", "look", "{}")), "Seen.")
    async with opened(model, tools=[look]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Look.", context={"tenant": 7}).result
    [context] = seen
    assert (context.run_id, context.call_id, context.tool_id) == (result.run.id, "c1", "look")
    assert context.idempotency_key == f"{result.run.id}:c1"
    assert context.fencing_token == 1
    assert context.app == {"tenant": 7}


async def test_a_registry_must_be_sealed_before_it_is_mounted() -> None:
    """A runtime refuses a registry that could still change."""
    registry: ToolRegistry[object] = ToolRegistry(ToolRegistryOptions(tools=[add]))
    with pytest.raises(UsageError, match="seal"):
        AgentRuntime(MemoryStore(), model=ScriptedModel("."), tools=registry)
    registry.seal()
    AgentRuntime(MemoryStore(), model=ScriptedModel("."), tools=registry)


async def test_the_call_is_durable_before_its_handler_is_entered() -> None:
    """When the handler runs, the record already holds the call."""
    found: list[str] = []
    async with MemoryStore() as store:

        @tool
        async def look(context: ToolExecutionContext[object]) -> None:
            """Look into the store."""
            draft = await store.load_draft(CONVERSATION, context.run_id)
            assert draft is not None
            found.extend(part.call_id for part in draft.parts if isinstance(part, ToolCallPart))

        model = ScriptedModel(called(("c1", "look", "{}")), "Seen.")
        async with opened(model, store=store, tools=[look]) as scene:
            await scene.runtime.submit(CONVERSATION, "Look.").result
    assert found == ["c1"]


async def test_a_driver_may_have_calls_answered_side_by_side() -> None:
    """A driver of one's own that asks for several answers at once loses none of them, and mixes none up."""
    both = anyio.Event()
    inside: list[str] = []

    @tool
    async def meet(name: str) -> str:
        """Wait until both are here."""
        inside.append(name)
        if len(inside) == 2:
            both.set()
        await both.wait()
        return name

    class Driver:
        name = "side-by-side"

        async def drive(self, turn: Turn, /) -> TurnOutcome:
            async def one(name: str) -> None:
                [call] = turn.tools.distinct(
                    [ToolCallPart(call_id="c", tool_name="meet", arguments="{}", input={"name": name})]
                )
                await turn.emit(call)
                results = await turn.tools.answer([call])
                assert results is not None
                assert [result.output for result in results] == [name]

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one, "a")
                tasks.start_soon(one, "b")
            return TurnFinished("stop")

    async with opened(ScriptedModel("."), tools=[meet], config=RuntimeConfig(driver=Driver())) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Meet.").result
    assert result.reason == "success"
    assert sorted(output for _, _, output in results_of(result.message.parts)) == ["a", "b"]  # type: ignore[type-var]


async def _late() -> int:
    return 1


def _gives_late(*_: object) -> Any:  # noqa: ANN401 - a callback that must not
    return _late()


async def _says_ok() -> Any:  # noqa: ANN401 - likewise
    return "ok"


async def _gives_late_once() -> Any:  # noqa: ANN401 - likewise
    return _late()


async def _fails() -> str:
    raise ValueError


_LATE: dict[str, tuple[Callable[[], Any], ToolOptions, dict[str, Any], ToolsConfig]] = {
    "present": (_says_ok, {"present": _gives_late}, {}, ToolsConfig()),
    "identity": (_says_ok, {"identity": _gives_late}, {}, ToolsConfig()),
    "on_error": (_fails, {}, {}, ToolsConfig(on_error=_gives_late)),
    "journal": (_says_ok, {}, {"journal": _gives_late}, ToolsConfig()),
    "its own result": (_gives_late_once, {}, {}, ToolsConfig()),
}


@pytest.mark.parametrize("name", list(_LATE))
async def test_what_must_not_be_awaited_is_closed_and_fails_the_call(name: str) -> None:
    """A coroutine where a plain value is needed is never left behind without being awaited, and is no result."""
    function, options, ports, config = _LATE[name]
    registry = ToolRegistry(
        ToolRegistryOptions(
            tools=[tool(function, id="t", description="d", **options)], ports=ToolRegistryPorts(**ports)
        )
    )
    registry.seal()
    model = ScriptedModel(called(("c1", "t", "{}")), "Done.")
    async with opened(model, tools=registry, config=RuntimeConfig(tools=config)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go.").result
        gc.collect()
    assert results_of(result.message.parts) == [("c1", "error", {"error": "tool.internal", "retryable": None})]


@pytest.mark.parametrize("size", [1_048_576, 1_048_577])
async def test_an_output_that_is_too_large_is_neither_kept_nor_shown(size: int) -> None:
    """One byte over the limit: the model is told the code, the size, the limit, and that the tool has run."""
    ran: list[int] = []

    @tool
    async def fetch() -> str:
        """Fetch."""
        ran.append(size)
        return "x" * (size - 2)

    model = ScriptedModel(called(("c1", "fetch", "{}")), "Done.")
    async with opened(model, tools=[fetch]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go.").result
    [(_, outcome, output)] = results_of(result.message.parts)
    assert (result.reason, ran) == ("success", [size])
    if size == 1_048_576:
        assert (outcome, len(str(output))) == ("success", size - 2)
    else:
        assert isinstance(output, dict)
        assert (outcome, output["error"], output["retryable"]) == ("error", "tool.output_too_large", False)
        assert output["details"] == {"bytes": size, "max_bytes": 1_048_576}
        assert "has run" in str(output["_hint"])


@pytest.mark.parametrize(("limit", "kept"), [(None, "success"), (100, "error")])
async def test_the_limit_of_an_output_is_an_option_and_holds_for_what_is_presented(
    limit: int | None, kept: str
) -> None:
    """What counts is what the model would read; with None everything is kept, and a failure is held to it, too."""

    @tool(present=lambda value: {"text": value * 1000})
    async def short() -> str:
        """Say little."""
        return "é"

    @tool
    async def fails() -> str:
        """Fail at length."""
        raise ToolError("app.no", details={"text": "x" * 1000}, hint="y" * 1000)

    config = RuntimeConfig(tools=ToolsConfig(max_output_bytes=limit))
    model = ScriptedModel(called(("c1", "short", "{}"), ("c2", "fails", "{}")), "Done.")
    async with opened(model, tools=[short, fails], config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go.").result
    first, second = results_of(result.message.parts)
    assert first[1] == kept
    assert isinstance(second[2], dict)
    assert set(second[2]) == ({"error", "retryable"} if limit else {"error", "retryable", "details", "_hint"})


@pytest.mark.parametrize("limit", [0, -1, True, "1"])
def test_a_limit_of_outputs_that_is_none_is_refused(limit: Any) -> None:  # noqa: ANN401 - what is wrong
    """It names the field."""
    with pytest.raises((UsageError, InvalidValueError)) as caught:
        ToolsConfig(max_output_bytes=limit)
    assert getattr(caught.value, "argument", None) == "tools.max_output_bytes"


async def test_whoever_is_only_told_of_a_call_does_not_take_its_result_back() -> None:
    """The observer raises after the tool has succeeded: its result stands, and only the operator learns of it."""
    told: list[object] = []

    async def observe(_: object) -> None:
        raise LookupError("observer")

    ports: ToolRegistryPorts[Any] = ToolRegistryPorts(observer=observe)
    registry = ToolRegistry(ToolRegistryOptions(tools=[add, double], ports=ports))
    registry.seal()
    config = RuntimeConfig(tools=ToolsConfig(on_error=lambda _, error: told.append(error)))
    model = ScriptedModel(
        called(("c1", "add", '{"left":1,"right":2}'), ("c2", "double", '{"number":4}'), ("c3", "add", '{"left":"x"}')),
        "Done.",
    )
    async with opened(model, tools=registry, config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go.").result
    assert results_of(result.message.parts)[:2] == [("c1", "success", 3), ("c2", "success", 8)]
    assert results_of(result.message.parts)[2][1] == "error"
    assert [type(error) for error in told].count(LookupError) == 2
