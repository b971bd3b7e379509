"""A registry inside a durable run: the fence, the envelope, and what the model gets."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from socket import IPPROTO_TCP
from typing import Any

import anyio
import pytest
from typing_extensions import override

from runlane.contracts import CancelToken
from runlane.errors import ToolError, ToolFenceError, UsageError
from runlane.ids import RandomIds
from runlane.models import parse_arguments
from runlane.records import ToolCallPart, ToolResultPart
from runlane.testing import FakeClock
from runlane.tools import (
    TOOL_PROGRESS_MESSAGE_MAX,
    MountedTools,
    ToolAuthorization,
    ToolDefinition,
    ToolExecutionContext,
    ToolFenceConfig,
    ToolFenceContext,
    ToolFenceLifecycle,
    ToolRegistry,
    ToolRegistryPorts,
    ToolTurnFacts,
    error_envelope,
    mount_tools,
    tool,
)
from tests.tools.scenes import Journal, add, asking, registry_of

pytestmark = pytest.mark.anyio


class Fence:
    """A fence that a test shuts after a number of checks."""

    def __init__(self, open_for: int = 1_000) -> None:
        self.left = open_for
        self.checked: list[ToolFenceContext] = []
        self.settled: list[ToolFenceContext] = []

    def assert_current(self, context: ToolFenceContext) -> str | None:
        """Answer."""
        self.checked.append(context)
        self.left -= 1
        return None if self.left >= 0 else "stale_run"

    async def on_settled(self, context: ToolFenceContext) -> None:
        """Note it."""
        self.settled.append(context)

    def lifecycle(self) -> ToolFenceLifecycle:
        """Return the fence."""
        config = ToolFenceConfig(
            run_id="r1",
            assert_current=self.assert_current,
            on_settled=self.on_settled,
            context=ToolFenceContext(run_id="r1", fencing_token=3),
        )
        return ToolFenceLifecycle(config)


async def mounted(
    registry: ToolRegistry[Any] | None,
    fence: Fence | None = None,
    *,
    app: object = None,
    **facts: Any,  # noqa: ANN401 - fields of ToolTurnFacts
) -> MountedTools:
    """Mount a registry, sealed here."""
    if registry is not None:
        registry.seal()
    given: dict[str, Any] = {"signal": CancelToken(), "clock": FakeClock(), **facts}
    turn_facts = ToolTurnFacts(run_id="r1", fencing_token=3, ids=RandomIds(), **given)
    return await mount_tools(registry, fence=(fence or Fence()).lifecycle(), turn_facts=turn_facts, app=app)


def calling(name: str, arguments: str = "{}", call_id: str = "c1") -> ToolCallPart:
    """Return a model's call."""
    return ToolCallPart(call_id=call_id, tool_name=name, arguments=arguments, input=parse_arguments(arguments))


def outcome(result: ToolResultPart) -> tuple[str, object]:
    """Return outcome and error code, or output."""
    output = result.output
    return result.outcome, output["error"] if result.outcome == "error" and isinstance(output, dict) else output


async def test_b18_the_registry_must_be_sealed_and_may_be_mounted_by_many_runs() -> None:
    """An open registry is refused; mounts of a sealed one do not know of each other."""
    registry = registry_of(add)
    facts = ToolTurnFacts(run_id="r", fencing_token=1, signal=CancelToken(), clock=FakeClock(), ids=RandomIds())
    with pytest.raises(UsageError):
        await mount_tools(registry, fence=Fence().lifecycle(), turn_facts=facts, app=None)
    one, two = await mounted(registry), await mounted(registry)
    assert [shown.name for shown in one.functions] == [shown.name for shown in two.functions] == ["add"]


async def test_b19_visibility_is_asked_at_the_mount_and_again_at_each_call() -> None:
    """What was shown and is gone meanwhile is an unknown tool."""
    seen = {"add": True}
    ports: ToolRegistryPorts[object] = ToolRegistryPorts(visible=lambda entry, _: seen[entry.id])
    tools = await mounted(registry_of(add, ports=ports))
    seen["add"] = False
    assert [shown.name for shown in tools.functions] == ["add"]
    assert outcome(await tools.execute(calling("add", '{"left":1}'))) == ("error", "tool.unknown")


class _Loud(str):
    """Text of a kind of its own."""

    __slots__ = ()


_RETURNED: dict[str, object] = {
    "nothing": None,
    "text": "a\ud800b",
    "a text of its own kind": _Loud("hey"),
    "numbers": [2**70, -0.0, True, 1.5, IPPROTO_TCP],
    "a tuple in a mapping": {"a": (1, None), _Loud("b"): {_Loud("c"): datetime(2026, 1, 2, tzinfo=UTC)}},
    "what has no JSON": object(),
    "not a number": float("nan"),
}


@pytest.mark.parametrize("returned", _RETURNED.values(), ids=_RETURNED)
@pytest.mark.parametrize("fails", [False, True])
async def test_a_result_is_one_that_its_own_checks_would_have_made(
    returned: object,
    fails: bool,  # noqa: FBT001 - two cases of one sentence
) -> None:
    """Whatever a tool returns, or says of its failure: read back, the result is the same to the types of its values."""

    @tool
    async def give() -> object:
        """Give it."""
        if fails:
            raise ToolError("tool.mine", details={"found": returned}, hint="x")
        return returned

    tools = await mounted(registry_of(give))
    result = await tools.execute(calling("give"))
    checked = ToolResultPart.model_validate(result.__dict__)
    assert checked == result
    assert repr(checked.to_json()) == repr(result.to_json())
    assert _kinds(checked.output) == _kinds(result.output)
    assert ToolResultPart.model_validate_json(result.model_dump_json()) == result
    assert result.has_output


def _kinds(value: object) -> object:
    """Return the types of all values, and of all keys."""
    if isinstance(value, dict):
        return type(value), [(type(key), _kinds(item)) for key, item in value.items()]
    return (type(value), [_kinds(item) for item in value]) if isinstance(value, list) else type(value)


async def test_b20_the_order_around_one_call() -> None:
    """Parse, authorise, fence, journal start, handler, fence, settled, journal finish, result."""
    order: list[str] = []

    class Told:
        def start(self, _entry: object, /) -> None:
            order.append("start")

        def finish(self, _entry: object, /) -> None:
            order.append("finish")

    class Fenced(Fence):
        @override
        def assert_current(self, context: ToolFenceContext) -> str | None:
            order.append("fence")
            return super().assert_current(context)

        @override
        async def on_settled(self, context: ToolFenceContext) -> None:
            order.append("settled")
            await super().on_settled(context)

    @tool
    async def take() -> None:
        """Take."""
        order.append("handler")

    def authorize(*_: object) -> ToolAuthorization:
        order.append("authorize")
        return ToolAuthorization.allow()

    ports: ToolRegistryPorts[object] = ToolRegistryPorts(authorize=authorize, journal=lambda _: Told())
    await (await mounted(registry_of(take, ports=ports), Fenced())).execute(calling("take"))
    assert order == ["authorize", "fence", "start", "handler", "fence", "settled", "finish"]


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("none", "{}", "tool.unknown"),
        ("add", '{"left":"x"}', "tool.arguments_invalid"),
        ("typed", "{}", "card.declined"),
        ("untyped", "{}", "tool.internal"),
    ],
)
async def test_b21_failures_are_results_with_an_envelope(name: str, arguments: str, code: str) -> None:
    """Unknown tool, bad arguments, typed and untyped failures: error results, and the operator hears the cause."""
    failures: list[tuple[str, Exception]] = []

    @tool
    async def typed() -> None:
        """Fail."""
        raise ToolError("card.declined")

    @tool
    async def untyped() -> None:
        """Fail."""
        raise RuntimeError("a secret")

    tools = await mounted(
        registry_of(add, typed, untyped), on_failure=lambda call, error: failures.append((call.call_id, error))
    )
    result = await tools.execute(calling(name, arguments))
    assert outcome(result) == ("error", code)
    assert "secret" not in f"{result}"
    assert [call_id for call_id, _ in failures] == ["c1"]


async def test_b21_fence_errors_and_cancellation_end_the_turn() -> None:
    """A shut fence raises its own error; a tripped token its own reason; neither becomes a result."""
    tools = await mounted(registry_of(add), Fence(open_for=0))
    with pytest.raises(ToolFenceError) as lost:
        await tools.execute(calling("add", '{"left":1}'))
    assert lost.value.code == "stale_run"
    token = CancelToken()

    @tool
    async def trip() -> None:
        """Trip."""
        token.cancel("user-interrupt")
        await anyio.sleep_forever()

    with pytest.raises(Exception, match="user-interrupt") as ended:
        await (await mounted(registry_of(trip), signal=token)).execute(calling("trip"))
    assert ended.value is token.error()


@pytest.mark.parametrize("open_for", [0, 1, 2])
async def test_b22_a_lost_run_neither_starts_a_tool_nor_keeps_its_result(open_for: int) -> None:
    """Shut before: not entered. Shut after: entered, not settled, discarded, journalled as cancelled."""
    entered: list[int] = []
    journal, fence = Journal(), Fence(open_for)

    @tool
    async def take() -> int:
        """Take."""
        entered.append(1)
        return 1

    tools = await mounted(registry_of(take, ports=ToolRegistryPorts(journal=lambda _: journal)), fence)
    if open_for == 2:
        assert outcome(await tools.execute(calling("take"))) == ("success", 1)
        assert [context.call_id for context in fence.settled] == ["c1"]
        return
    with pytest.raises(ToolFenceError):
        await tools.execute(calling("take"))
    assert (len(entered), fence.settled) == (open_for, [])
    assert [entry.status for entry in journal.finishes] == ["cancelled"] * open_for


async def test_what_the_fence_itself_raises_ends_the_turn() -> None:
    """A fence that cannot answer is no failure of the tool: nobody may take its result."""

    class Broken(Fence):
        @override
        def assert_current(self, context: ToolFenceContext) -> str | None:
            raise OSError(f"store gone under {context.run_id}")

    with pytest.raises(OSError, match="store gone under r1"):
        await (await mounted(registry_of(add), Broken())).execute(calling("add", '{"left":1}'))


async def test_b23_a_call_has_one_key_and_many_invocations() -> None:
    """The invocation id is new for each attempt; the key is run and call, and the identity stands beside it."""
    seen: list[ToolExecutionContext[Any]] = []

    @tool
    async def look(context: ToolExecutionContext[Any]) -> None:
        """Look."""
        seen.append(context)

    fence = Fence()
    tools = await mounted(registry_of(look), fence)
    for _ in range(2):
        await tools.execute(calling("look"))
    assert seen[0].invocation_id != seen[1].invocation_id
    assert {context.idempotency_key for context in seen} == {"r1:c1"}
    assert {context.identity for context in seen} == {seen[0].identity}
    assert {(context.run_id, context.fencing_token, context.call_id) for context in seen} == {("r1", 3, "c1")}
    assert fence.checked[0] == ToolFenceContext(run_id="r1", call_id="c1", idempotency_key="r1:c1", fencing_token=3)


@dataclass
class Point:
    """Somewhere."""

    x: int


def _endless() -> Any:  # noqa: ANN401
    deep: list[Any] = []
    for _ in range(1_000):
        deep = [deep]
    return deep


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ({"a": [1, None, True]}, {"a": [1, None, True]}),
        (2512292042121000001, 2512292042121000001),
        (Point(1), {"x": 1}),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (None, None),
        ({"error": "is only a field"}, {"error": "is only a field"}),
        ("lone \ud835", "lone �"),
        ({"\ud835": 1}, {"�": 1}),
        ("nul \x00", "nul \x00"),
        ({1: "x", "a": (1, "\ud800")}, {"1": "x", "a": [1, "\ufffd"]}),
    ],
    ids=["object", "integer", "dataclass", "time", "none", "error field", "text", "key", "nul", "number as a key"],
)
async def test_b24_outputs_become_json(value: object, output: object) -> None:
    """Models and the like by their usual form, broken text repaired, a field named error stays a success."""

    @tool
    async def give() -> Any:  # noqa: ANN401
        """Give."""
        return value

    result = await (await mounted(registry_of(give))).execute(calling("give"))
    assert (result.outcome, result.output) == ("success", output)


@pytest.mark.parametrize(
    "value", [object(), float("nan"), {"a": object()}, _endless()], ids=["object", "nan", "inside", "deep"]
)
async def test_b24_what_is_no_json_becomes_a_placeholder(value: object) -> None:
    """Nothing of the value leaks, and the run goes on."""

    @tool
    async def give() -> Any:  # noqa: ANN401
        """Give."""
        return value

    result = await (await mounted(registry_of(give))).execute(calling("give"))
    assert (result.outcome, result.output) == ("success", {"message": "Non-JSON tool output omitted"})


async def test_b24_a_presenter_decides_what_the_model_reads() -> None:
    """The handler's own value stays in the process."""

    @tool(present=lambda point: f"x={point.x}")
    async def give() -> Point:
        """Give."""
        return Point(7)

    result = await (await mounted(registry_of(give))).execute(calling("give"))
    assert result.output == "x=7"


async def test_b25_outside_a_run_there_is_no_envelope() -> None:
    """The same registry raises what its tools raise."""

    @tool
    async def fail() -> None:
        """Fail."""
        raise RuntimeError("own")

    registry = registry_of(fail)
    assert outcome(await (await mounted(registry)).execute(calling("fail"))) == ("error", "tool.internal")
    with pytest.raises(RuntimeError, match="own"):
        await registry.invoke(asking("fail"))


async def test_arguments_that_are_no_json_go_back_to_the_model() -> None:
    """A call without parsed input runs nothing; of an unknown tool it is still unknown."""
    tools = await mounted(registry_of(add))
    for name, code in (("add", "tool.arguments_invalid"), ("none", "tool.unknown")):
        call = ToolCallPart(call_id="c1", tool_name=name, arguments='{"left":')
        assert outcome(await tools.execute(call)) == ("error", code)


async def test_without_a_registry_every_tool_is_unknown() -> None:
    """A run without tools answers calls all the same."""
    tools = await mounted(None)
    assert (tools.functions, outcome(await tools.execute(calling("add")))) == ((), ("error", "tool.unknown"))


async def test_a_call_that_would_need_consent_is_denied_where_nobody_can_be_asked() -> None:
    """`execute` runs from beginning to end, so it cannot wait for a person."""

    @tool(needs_approval=True)
    async def take() -> None:
        """Take."""

    assert outcome(await (await mounted(registry_of(take))).execute(calling("take"))) == ("error", "tool.denied")


# --- the envelope -----------------------------------------------------------------------------------------------------


def test_an_envelope_shows_a_typed_failure_and_nothing_of_any_other() -> None:
    """Code, retryable, details and hint; an untyped one is `tool.internal` of unknown retryability."""
    typed = ToolError("a.b", "the message", retryable=True, details={"n": 1}, hint="Try.")
    assert error_envelope(typed) == {"error": "a.b", "retryable": True, "details": {"n": 1}, "_hint": "Try."}
    assert error_envelope(KeyError("secret")) == {"error": "tool.internal", "retryable": None}


class _HostileError(ToolError):
    """Raises when it is looked at."""

    @property  # type: ignore[explicit-override]  # what a hostile class does
    @override
    def details(self) -> Any:
        """Raise."""
        raise RuntimeError("a secret")

    @details.setter
    def details(self, value: object) -> None: ...


@pytest.mark.parametrize(
    "error",
    [
        _HostileError("x"),
        ToolError("x" * 1_000),
        ToolError("ok", details={"a": object()}),
        ToolError("ok", hint=7),  # type: ignore[arg-type]
        ToolError("ok", details={"a": "\ud835"}, hint="\ud835"),
    ],
)
def test_an_envelope_is_always_json(error: ToolError) -> None:
    """Whatever a handler puts into its error, the model gets something that can be stored and sent."""
    assert "secret" not in json.dumps(error_envelope(error)).encode().decode()


# --- the fence alone --------------------------------------------------------------------------------------------------


async def test_a_fence_returns_the_handlers_object_unchanged() -> None:
    """Composed by hand around a handler: the very object comes back, and settles once."""
    fence, value = Fence(), object()

    async def handler() -> object:
        return value

    assert await fence.lifecycle().guard(handler, call_id="c9") is value
    assert [context.call_id for context in fence.settled] == ["c9"]
    with pytest.raises(ToolFenceError):
        await Fence(open_for=1).lifecycle().guard(handler)


# --- progress ---------------------------------------------------------------------------------------------------------


async def test_progress_is_cut_first_and_throttled_from_the_last_report_that_was_delivered() -> None:
    """At most 280 characters; within 250 ms of a delivered report everything is dropped, and after the end too."""
    clock = FakeClock()
    told: list[tuple[str, float | None, float | None]] = []
    kept: list[ToolExecutionContext[Any]] = []

    @tool
    async def work(context: ToolExecutionContext[Any]) -> None:
        """Work."""
        kept.append(context)
        context.report_progress("x" * 300, 1, 3)
        clock.tick(0.2)
        context.report_progress("dropped", 2, 3)
        clock.tick(0.05)
        context.report_progress("kept", float("nan"), None)

    tools = await mounted(registry_of(work), clock=clock, tell_progress=lambda _, *report: told.append(report))
    await tools.execute(calling("work"))
    clock.tick(10)
    kept[0].report_progress("too late")
    assert told == [("x" * TOOL_PROGRESS_MESSAGE_MAX, 1, 3), ("kept", None, None)]


async def test_progress_may_come_from_a_tools_own_thread() -> None:
    """A plain function reports as a coroutine function does."""
    told: list[str] = []

    @tool
    def work(context: ToolExecutionContext[Any]) -> None:
        """Work."""
        context.report_progress("from a thread")

    tools = await mounted(registry_of(work), tell_progress=lambda _, message, *__: told.append(message))
    await tools.execute(calling("work"))
    assert told == ["from a thread"]


def test_a_definition_is_one_type() -> None:
    """What the decorator gives is the definition a registry takes."""
    assert isinstance(add, ToolDefinition)
