"""The steps of one invocation, rule by rule."""

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from runlane.contracts import CancelToken, ErrorInfo, ExecutionOptions, Id, error_contexts
from runlane.errors import (
    CheckFailedError,
    ToolArgumentsError,
    ToolDeniedError,
    ToolError,
    ToolTimeoutError,
)
from runlane.testing import FakeClock
from runlane.tools import (
    ToolAuthorization,
    ToolDefinition,
    ToolExecutionContext,
    ToolExecutionEvent,
    ToolInvocationPorts,
    ToolInvocationRequest,
    ToolRegistryPorts,
    tool,
)
from tests.tools.scenes import Handler, Journal, add, asking, double, registry_of

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["task", "thread"])
def failing(request: pytest.FixtureRequest) -> Callable[[Exception], ToolDefinition[Any, Any, Any]]:
    """A tool that raises what it is given, in the task or in a thread."""

    def make(error: Exception) -> ToolDefinition[Any, Any, Any]:
        def plain() -> None:
            """Fail."""
            raise error

        async def later() -> None:
            """Fail."""
            raise error

        return tool(plain if request.param == "thread" else later, id="fail")

    return make


# --- identity ---------------------------------------------------------------------------------------------------------


async def test_l1_the_default_identity_is_a_hash_of_tool_and_input() -> None:
    """The same input of the same tool is the same call, whatever the order of its keys; another tool is another."""
    registry = registry_of(add, double)
    one = await registry.invoke(ToolInvocationRequest(tool_id="add", input={"left": 1, "right": 2}))
    two = await registry.invoke(ToolInvocationRequest(tool_id="add", input={"right": 2, "left": 1}))
    three = await registry.invoke(ToolInvocationRequest(tool_id="add", input={"left": 2, "right": 2}))
    assert one.receipt.identity == two.receipt.identity != three.receipt.identity
    assert one.receipt.invocation_id != two.receipt.invocation_id


async def test_l1_a_resolver_that_raises_fails_the_invocation_before_the_handler() -> None:
    """Its own exception leaves, the handler is not entered, and the failure is on the log."""
    entered: list[int] = []

    def broken(_: object) -> str:
        raise LookupError("no identity")

    @tool(identity=broken)
    async def take(number: int) -> None:
        """Take."""
        entered.append(number)

    registry = registry_of(take)
    with pytest.raises(LookupError):
        await registry.invoke(asking("take", number=1))
    assert entered == []
    assert [event.status for event in registry.call_log] == ["failed"]


async def test_c13_an_input_that_is_no_json_is_named_by_its_invocation() -> None:
    """With a parser that takes anything, the identity of such an input is the invocation's id."""

    class Anything:
        def __init__(self) -> None:
            self.json_schema: dict[str, object] = {}

        def parse(self, value: object, /) -> object:
            return value

    definition: Any = ToolDefinition(id="t", description="Take.", input=Anything(), run=lambda *_: None)
    result = await registry_of(definition).invoke(ToolInvocationRequest(tool_id="t", input=object()))
    assert result.receipt.identity == result.receipt.invocation_id


async def test_c13_the_invocation_id_is_the_same_everywhere() -> None:
    """Receipt, journal, event, context and error context carry the id that was given, or minted first."""
    seen: list[str] = []
    journal = Journal()

    @tool
    async def take(*, fails: bool, context: ToolExecutionContext[object]) -> None:
        """Take."""
        seen.append(context.invocation_id)
        if fails:
            raise ValueError("no")

    registry = registry_of(take, ports=ToolRegistryPorts(journal=lambda _: journal))
    given = ToolInvocationRequest(tool_id="take", input={"fails": False}, invocation_id=Id("i1"), call_id="c1")
    receipt = (await registry.invoke(given)).receipt
    with pytest.raises(ValueError, match="no") as failed:
        await registry.invoke(asking("take", fails=True), ExecutionOptions(invocation_id=Id("i2")))
    assert (receipt.invocation_id, receipt.call_id, receipt.tool_id) == ("i1", "c1", "take")
    assert seen == ["i1", "i2"]
    assert [entry.invocation_id for entry in journal.starts] == ["i1", "i2"]
    assert [entry.invocation_id for entry in journal.finishes] == ["i1", "i2"]
    assert [event.invocation_id for event in registry.call_log] == ["i1", "i2"]
    assert [(place.tool_id, place.invocation_id) for place in error_contexts(failed.value)] == [("take", "i2")]


# --- threads ----------------------------------------------------------------------------------------------------------


async def test_l3_plain_functions_never_run_on_the_event_loop() -> None:
    """A plain function runs in another thread, a coroutine function in this one."""

    @tool
    def plain() -> int:
        """Say where."""
        return threading.get_ident()

    @tool
    async def later() -> int:
        """Say where."""
        return threading.get_ident()

    registry = registry_of(plain, later)
    here = threading.get_ident()
    assert (await registry.invoke(asking("plain"))).value != here
    assert (await registry.invoke(asking("later"))).value == here


async def test_l16_invocations_overlap_and_only_threads_are_counted() -> None:
    """Tasks meet in the middle; of three threads two run, and the third begins when one of them ends."""
    release, running = threading.Event(), threading.Semaphore(0)
    inside: list[int] = []

    @tool
    def hold(number: int) -> int:
        """Hold."""
        inside.append(number)
        running.release()
        release.wait(30)
        return number

    registry = registry_of(hold, threads=2)
    results: list[object] = []

    async def call(number: int) -> None:
        results.append((await registry.invoke(asking("hold", number=number))).value)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(call, number)
        for _ in range(2):
            await anyio.to_thread.run_sync(running.acquire)
        await anyio.wait_all_tasks_blocked()
        assert len(inside) == 2
        release.set()
    assert sorted(results) == [0, 1, 2]  # type: ignore[type-var]


async def test_c15_an_abandoned_thread_keeps_its_slot() -> None:
    """A cancelled call returns at once; its thread still counts until it really ends."""
    release, entered = threading.Event(), threading.Event()

    @tool
    def hold() -> None:
        """Hold."""
        entered.set()
        release.wait(30)

    registry = registry_of(hold, double, threads=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(registry.invoke, asking("hold"))
        await anyio.to_thread.run_sync(entered.wait)
        tasks.cancel_scope.cancel()
    with anyio.move_on_after(0) as waited:
        await registry.invoke(asking("double", number=1))
    assert waited.cancelled_caught
    release.set()
    assert (await registry.invoke(asking("double", number=1))).value == 2
    assert [event.status for event in registry.call_log] == ["cancelled", "cancelled", "succeeded"]


# --- refusals before the handler --------------------------------------------------------------------------------------


async def test_step_2_the_input_is_parsed_once_and_nothing_behind_sees_it_raw() -> None:
    """Authorisation, handlers and tool get the parsed input; a refused input reaches none of them."""
    seen: list[object] = []

    def keep(value: object, _: object) -> None:
        seen.append(value)

    @tool(before=[Handler("first", keep)])
    async def take(number: int) -> None:
        """Take."""
        seen.append(number)

    def authorize(_entry: object, value: object, _app: object) -> ToolAuthorization:
        seen.append(value)
        return ToolAuthorization.allow()

    registry = registry_of(take, ports=ToolRegistryPorts(authorize=authorize))
    with pytest.raises(ToolArgumentsError) as refused:
        await registry.invoke(asking("take", number="1"))
    assert (seen, refused.value.code) == ([], "tool.arguments_invalid")
    await registry.invoke(asking("take", number=1))
    assert seen == [{"number": 1}, {"number": 1}, 1]
    assert [event.status for event in registry.call_log] == ["failed", "succeeded"]


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [(ToolAuthorization.deny("not you"), "not you"), (ToolAuthorization.ask(), "approval_required")],
)
async def test_step_3_a_call_that_is_not_allowed_does_not_run(verdict: ToolAuthorization, reason: str) -> None:
    """Denied, or to be asked about where nobody can wait for the answer: an error with the reason, on the log."""
    entered: list[int] = []

    @tool
    async def take() -> None:
        """Take."""
        entered.append(1)

    registry = registry_of(take, ports=ToolRegistryPorts(authorize=lambda *_: verdict))
    with pytest.raises(ToolDeniedError) as refused:
        await registry.invoke(asking("take"))
    assert (refused.value.reason, entered) == (reason, [])
    assert [event.error.code for event in registry.call_log if event.error] == ["tool.denied"]


async def test_step_3_a_tool_that_needs_approval_is_denied_outside_a_durable_run() -> None:
    """There is nobody to ask."""

    @tool(needs_approval=True)
    async def take() -> None:
        """Take."""

    with pytest.raises(ToolDeniedError, match="approval_required"):
        await registry_of(take).invoke(asking("take"))


async def test_step_5_a_journal_that_cannot_start_keeps_the_handler_from_running() -> None:
    """Its error leaves, the handler was not entered, and no finish is written."""
    entered: list[int] = []
    journal = Journal(start_error=OSError("full"))

    @tool
    async def take() -> None:
        """Take."""
        entered.append(1)

    registry = registry_of(take, ports=ToolRegistryPorts(journal=lambda _: journal))
    with pytest.raises(OSError, match="full"):
        await registry.invoke(asking("take"))
    assert (entered, journal.finishes) == ([], [])
    assert [event.status for event in registry.call_log] == ["failed"]


# --- handlers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [True, False])
async def test_step_6_handlers_run_in_order_around_the_tool(*, plain: bool) -> None:
    """`before` handlers pass the input on, `after` handlers the output; None keeps the value."""
    order: list[str] = []

    def step(name: str, change: Callable[[Any], Any]) -> Handler:
        def does(value: object, _: object) -> object:
            order.append(name)
            return change(value)

        return Handler(name, does)

    before = [step("b1", lambda value: {"number": value["number"] + 1}), step("b2", lambda _: None)]
    after = [step("a1", lambda value: value * 10), step("a2", lambda _: None)]

    def now(number: int) -> int:
        """Take."""
        order.append("run")
        return number

    async def later(number: int) -> int:
        """Take."""
        return now(number)

    definition = tool(now if plain else later, id="take", before=before, after=after)
    result = await registry_of(definition).invoke(asking("take", number=1))
    assert (result.value, order) == (20, ["b1", "b2", "run", "a1", "a2"])


async def test_a_tool_may_return_none() -> None:
    """Only handlers keep a value by returning None."""

    @tool
    async def nothing(number: int) -> None:
        """Give nothing."""

    assert (await registry_of(nothing).invoke(asking("nothing", number=1))).value is None


async def test_step_6_the_handlers_own_exception_leaves_annotated(
    failing: Callable[[Exception], ToolDefinition[Any, Any, Any]],
) -> None:
    """The same object, with the place it passed through; the event has its code and no message."""
    error = ToolError("card.declined", "a secret", retryable=True)
    registry = registry_of(failing(error))
    with pytest.raises(ToolError) as failed:
        await registry.invoke(asking("fail"))
    assert failed.value is error
    assert [place.tool_id for place in error_contexts(error)] == ["fail"]
    [event] = registry.call_log
    assert event.error == ErrorInfo(code="card.declined", name="ToolError", message="", retryable=True)


async def test_step_7_the_output_is_checked_if_it_has_a_type() -> None:
    """Output of another shape fails the invocation, after the handler ran; a good one is returned parsed."""
    journal = Journal()
    definition: Any = ToolDefinition(
        id="t", description="Give.", input=dict[str, Any], output=dict[str, int], run=lambda given, _: given
    )
    registry = registry_of(definition, ports=ToolRegistryPorts(journal=lambda _: journal))
    assert registry.require("t").output_schema is not None
    assert (await registry.invoke(ToolInvocationRequest(tool_id="t", input={"a": 1}))).value == {"a": 1}
    with pytest.raises(CheckFailedError):
        await registry.invoke(ToolInvocationRequest(tool_id="t", input={"a": "1"}))
    assert [entry.status for entry in journal.finishes] == ["succeeded", "failed"]


# --- journal ----------------------------------------------------------------------------------------------------------


async def test_l10_a_start_before_the_handler_and_one_finish_with_the_outcome(
    failing: Callable[[Exception], ToolDefinition[Any, Any, Any]],
) -> None:
    """The journal has the start when the handler runs, and afterwards exactly one finish."""
    journal = Journal()
    found: list[int] = []

    @tool
    async def look() -> None:
        """Look."""
        found.append(len(journal.starts))

    registry = registry_of(look, failing(KeyError("x")), ports=ToolRegistryPorts(journal=lambda _: journal))
    await registry.invoke(asking("look"))
    with pytest.raises(KeyError):
        await registry.invoke(asking("fail"))
    assert found == [1]
    assert [entry.status for entry in journal.finishes] == ["succeeded", "failed"]
    assert [entry.error.name for entry in journal.finishes if entry.error] == ["KeyError"]


async def test_l11_the_journal_sees_neither_input_nor_output() -> None:
    """Its entries hold identities and times only."""
    journal = Journal()

    @tool
    async def take(text: str) -> str:
        """Take."""
        return f"{text} and out"

    registry = registry_of(take, ports=ToolRegistryPorts(journal=lambda _: journal))
    await registry.invoke(asking("take", text="MARK"))
    assert "MARK" not in f"{journal}"


async def test_c14_the_journal_is_made_for_each_invocation_and_the_requests_own_wins() -> None:
    """The registry's function is called once per invocation with the host's context."""
    made: list[tuple[object, Journal]] = []

    def make(app: object) -> Journal:
        made.append((app, Journal()))
        return made[-1][1]

    registry = registry_of(add, ports=ToolRegistryPorts(journal=make))
    for app in ("one", "two"):
        await registry.invoke(ToolInvocationRequest(tool_id="add", input={"left": 1}, app=app))
    own = Journal()
    await registry.invoke(ToolInvocationRequest(tool_id="add", input={"left": 1}, journal=own))
    assert [(app, len(journal.finishes)) for app, journal in made] == [("one", 1), ("two", 1)]
    assert len(own.finishes) == 1


async def test_l12_a_finish_that_fails_after_a_success_leaves_the_result() -> None:
    """The result is returned; the handler's own failure wins over the journal's."""
    journal = Journal(finish_error=OSError("full"))

    @tool
    async def fail() -> None:
        """Fail."""
        raise KeyError("own")

    registry = registry_of(add, fail, ports=ToolRegistryPorts(journal=lambda _: journal))
    assert (await registry.invoke(asking("add", left=1))).value == 2
    with pytest.raises(KeyError):
        await registry.invoke(asking("fail"))
    assert len(journal.finishes) == 2


async def test_l13_one_event_per_settled_invocation_with_the_receipts_id() -> None:
    """The observer hears of each exactly once, after the log has it; what it raises reaches the caller."""
    told: list[ToolExecutionEvent] = []

    async def observe(event: ToolExecutionEvent) -> None:
        told.append(event)
        if len(told) == 2:
            raise LookupError("observer")

    registry = registry_of(add, ports=ToolRegistryPorts(observer=observe))
    receipt = (await registry.invoke(asking("add", left=1))).receipt
    assert [event.invocation_id for event in told] == [receipt.invocation_id]
    with pytest.raises(LookupError):
        await registry.invoke(asking("add", left=1))
    assert len(registry.call_log) == 2


# --- cancellation and time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [True, False])
async def test_l14_a_tripped_token_ends_the_call_with_its_reason(*, plain: bool) -> None:
    """Finish and event say cancelled, and the reason itself leaves, never a `ToolError`."""
    token, journal, reason = CancelToken(), Journal(), LookupError("enough")
    started, release = threading.Event(), threading.Event()

    @tool(id="hold")
    def held() -> None:
        """Hold."""
        started.set()
        release.wait(30)

    @tool(id="hold")
    async def holding() -> None:
        """Hold."""
        started.set()
        await anyio.sleep_forever()

    registry = registry_of(held if plain else holding, ports=ToolRegistryPorts(journal=lambda _: journal))
    caught: list[Exception] = []

    async def call() -> None:
        try:
            await registry.invoke(ToolInvocationRequest(tool_id="hold", input={}, signal=token))
        except LookupError as error:
            caught.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await anyio.to_thread.run_sync(started.wait)
        token.cancel(reason)
    release.set()
    assert caught == [reason]
    assert [entry.status for entry in journal.finishes] == ["cancelled"]
    assert [event.status for event in registry.call_log] == ["cancelled"]


async def test_l14_the_loops_cancellation_passes_unchanged() -> None:
    """An enclosing scope that is cancelled cancels the call; finish and event say so."""
    journal = Journal()

    @tool
    async def hold() -> None:
        """Hold."""
        await anyio.sleep_forever()

    registry = registry_of(hold, ports=ToolRegistryPorts(journal=lambda _: journal))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(registry.invoke, asking("hold"))
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert [entry.status for entry in journal.finishes] == ["cancelled"]
    assert [event.status for event in registry.call_log] == ["cancelled"]


async def test_l15_a_task_that_takes_too_long_is_cancelled() -> None:
    """The time-out is the tool's own or the caller's, whichever is less; the status is failed."""
    clock = FakeClock()

    @tool(timeout=2)
    async def hold() -> None:
        """Hold."""
        await anyio.sleep_forever()

    registry = registry_of(hold, ports=ToolRegistryPorts(clock=clock))
    for options, limit in ((ExecutionOptions(), 2), (ExecutionOptions(timeout=1), 1)):
        async with anyio.create_task_group() as tasks:

            async def call(options: ExecutionOptions = options, limit: float = limit) -> None:
                with pytest.raises(ToolTimeoutError) as late:
                    await registry.invoke(asking("hold"), options)
                assert late.value.timeout == limit

            tasks.start_soon(call)
            await clock.advance(limit)
    assert [event.status for event in registry.call_log] == ["failed", "failed"]


async def test_l15_a_thread_that_takes_too_long_is_left_alone_and_never_journalled_twice() -> None:
    """The call returns on time; the thread's late result is dropped."""
    clock, journal = FakeClock(), Journal()
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool(timeout=2)
    def hold() -> str:
        """Hold."""
        started.set()
        release.wait(30)
        ended.set()
        return "late"

    registry = registry_of(hold, ports=ToolRegistryPorts(clock=clock, journal=lambda _: journal))
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(ToolTimeoutError):
                await registry.invoke(asking("hold"))

        tasks.start_soon(call)
        await anyio.to_thread.run_sync(started.wait)
        await clock.advance(2)
    release.set()
    await anyio.to_thread.run_sync(ended.wait)
    assert [entry.status for entry in journal.finishes] == ["failed"]
    assert [event.status for event in registry.call_log] == ["failed"]


async def test_l6_what_a_request_leaves_out_comes_from_the_ports() -> None:
    """Without a token of its own a call ends by the registry's; with one, by that alone."""
    token = CancelToken()
    token.cancel("closed")
    seen: list[CancelToken] = []

    @tool
    async def look(context: ToolExecutionContext[object]) -> None:
        """Look."""
        seen.append(context.signal)

    registry = registry_of(look, ports=ToolRegistryPorts(signal=token))
    with pytest.raises(Exception, match="closed"):
        await registry.invoke(asking("look"))
    own = CancelToken()
    await registry.invoke(ToolInvocationRequest(tool_id="look", input={}, signal=own))
    await registry_of(look).invoke(asking("look"))
    assert seen[0] is own
    assert not seen[1].cancelled


async def test_helpers_come_from_the_request_or_are_made_once_per_invocation() -> None:
    """The host's function makes them from its context; absent ones are None."""
    made: list[object] = []
    seen: list[ToolInvocationPorts] = []

    def make(app: object) -> ToolInvocationPorts:
        made.append(app)
        return ToolInvocationPorts()

    @tool
    async def look(context: ToolExecutionContext[object]) -> None:
        """Look."""
        seen.append(context.ports)
        context.report_progress("nobody listens")

    registry = registry_of(look, ports=ToolRegistryPorts(invocation_ports=make))
    await registry.invoke(ToolInvocationRequest(tool_id="look", input={}, app="host"))
    own = ToolInvocationPorts()
    await registry.invoke(ToolInvocationRequest(tool_id="look", input={}, ports=own))
    assert made == ["host"]
    assert (seen[0].model, seen[1] is own) == (None, True)
