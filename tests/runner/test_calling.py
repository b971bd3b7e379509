"""Making a call: charged before I/O, one at a time, closed before it returns, told exactly once."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from runlane.contracts import CancelToken, ExecutionOptions, Id, error_contexts
from runlane.diagnostics import (
    CreateDiagnosticsOptions,
    create_diagnostics,
)
from runlane.errors import (
    AbortedError,
    BudgetError,
    ModelCallTimeoutError,
    ModelProtocolError,
    PreparedCallError,
    ProviderStreamCutError,
    RunnerBusyError,
    UnknownTransportError,
    UsageError,
)
from runlane.models import FunctionCallDelta, ModelPart, ModelUsage, ReasoningDelta, TextDelta, UsageReport
from runlane.runner import (
    ModelCallTrace,
    ModelOutputEvent,
    ModelRunner,
    ModelTransportRegistration,
    PreparedModelTransport,
    TransportKey,
    create_model_transport,
    native_function_interaction,
)
from runlane.testing import FakeClock
from tests.diagnostics.listening import Watcher
from tests.runner.speaking import ASK, SILENCE, STOP, Resolved, Speaker, calling, capabilities, runner, saying

pytestmark = pytest.mark.anyio


def _choice() -> Any:  # noqa: ANN401 - a transport
    return create_model_transport(
        ModelTransportRegistration(
            key=TransportKey("app:choice"),
            interaction=native_function_interaction,
            source=capabilities(Resolved(), "a", "b"),
        )
    )


class Sink:
    """Keeps what it gets, then does what the test wants."""

    def __init__(self, then: Callable[[ModelOutputEvent], Awaitable[None] | None] = lambda _: None) -> None:
        self.events: list[ModelOutputEvent] = []
        self._then = then

    async def __call__(self, event: ModelOutputEvent) -> None:
        """Keep it."""
        self.events.append(event)
        waiting = self._then(event)
        if waiting is not None:
            await waiting


def _raiser(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


async def test_m41_one_call_is_in_flight() -> None:
    """Of two at once one is made and one refused at once; the provider is opened once."""
    provider = Speaker(*saying("x"))
    speaks = runner(provider)
    prepared = [await speaks.prepare(ASK) for _ in range(2)]
    ends: list[object] = []

    async def ask(call: Any) -> None:  # noqa: ANN401 - a prepared call or a request
        try:
            ends.append((await speaks.call(call)).value)
        except RunnerBusyError as error:
            ends.append(error_contexts(error)[0].stage)

    async with anyio.create_task_group() as tasks:
        for call in prepared:
            tasks.start_soon(ask, call)
    assert sorted(map(str, ends)) == ["draft", "x"]
    assert sorted(call.spent for call in prepared) == [False, True]
    assert (len(provider.contexts), speaks.call_count) == (1, 1)


async def test_m41_a_call_from_within_a_call_is_refused() -> None:
    """A sink that calls the same runner gets the refusal, and the call under way is unharmed."""
    refused: list[Exception] = []

    async def again(_: ModelOutputEvent) -> None:
        try:
            await speaks.call(ASK)
        except RunnerBusyError as error:
            refused.append(error)

    speaks = runner(Speaker(*saying("x")), output=Sink(again))
    assert (await speaks.call(ASK)).value == "x"
    assert len(refused) == 1
    assert (await speaks.call(ASK)).value == "x"


async def test_m42_the_spend_shows_before_the_provider_is_asked() -> None:
    """A provider that reads the budget on opening sees it spent; nothing is refunded, whatever happens."""
    seen: list[int] = []
    provider = Speaker(OSError("down"), before=lambda _: seen.append(speaks.budget.available))
    speaks = runner(provider, max_calls=2)
    for _ in range(2):
        with pytest.raises(OSError, match="down"):
            await speaks.call(ASK)
    assert seen == [1, 0]
    with pytest.raises(BudgetError) as caught:
        await speaks.call(ASK)
    assert (caught.value.allowance, caught.value.limit) == ("model_calls", 2)
    assert (speaks.call_count, speaks.journal) == (2, ())


async def test_m44_the_journal_holds_receipts_of_success() -> None:
    """A failed call counts and leaves none; the receipt says what was measured and reported."""
    usage = ModelUsage(input_tokens=3, raw={"x": 1})
    provider = Speaker(TextDelta("ab"), UsageReport(ModelUsage(input_tokens=1)), UsageReport(usage), STOP)
    speaks = runner(provider)
    result = await speaks.call(ASK)
    provider.parts = (OSError("down"),)
    with pytest.raises(OSError, match="down"):
        await speaks.call(ASK)
    assert speaks.journal == (result.receipt,)
    receipt = result.receipt
    assert (receipt.call_number, receipt.stage, receipt.transport) == (1, "draft", "core:plain-text")
    assert (receipt.model_id, receipt.finish_reason, receipt.usage) == ("speaker-1", "stop", usage)
    assert (receipt.input_chars, receipt.output_chars) == (len("Hello?"), 2)
    assert (speaks.call_count, speaks.total_call_count) == (2, 2)
    assert [context.call_number for context in provider.contexts] == [1, 2]


Ending = tuple[str, Callable[[], ModelRunner], type[Exception], bool]


def _said() -> Speaker:
    return Speaker(*saying("some words"))


ENDINGS: list[Ending] = [
    ("too large", lambda: runner(_said(), max_input_chars=1), BudgetError, False),
    ("budget spent", lambda: runner(_said(), max_calls=0), BudgetError, False),
    ("cut", lambda: runner(Speaker(TextDelta("x"))), ProviderStreamCutError, True),
    ("fails", lambda: runner(Speaker(TextDelta("x"), OSError("down"))), OSError, True),
    ("fails on opening", lambda: runner(Speaker(before=_raiser(OSError("no")))), OSError, True),
    ("sink raises", lambda: runner(_said(), output=Sink(_raiser(ZeroDivisionError()))), ZeroDivisionError, True),
    ("too long", lambda: runner(_said(), max_output_chars=3), BudgetError, True),
    ("a call in plain text", lambda: runner(Speaker(*calling(("a", "{}")))), ModelProtocolError, True),
    ("a part behind the end", lambda: runner(Speaker(STOP, TextDelta("x"))), ModelProtocolError, True),
    ("two ends", lambda: runner(Speaker(STOP, STOP)), ModelProtocolError, True),
]


@pytest.mark.parametrize(("make", "kind", "charged"), [row[1:] for row in ENDINGS], ids=[row[0] for row in ENDINGS])
async def test_the_table_of_ends(make: Callable[[], ModelRunner], kind: type[Exception], charged: object) -> None:
    """Each end charges or not, spends the prepared call or not, traces once or not, and is annotated once."""
    options = make()._options
    traces: list[ModelCallTrace] = []
    speaks = ModelRunner(replace(options, ports=replace(options.ports, on_trace=traces.append)))
    prepared = await speaks.prepare(ASK)
    with pytest.raises(kind) as caught:
        await speaks.call(prepared)
    assert prepared.spent is charged
    assert speaks.call_count == int(bool(charged))
    assert [trace.status for trace in traces] == (["failed"] if charged else [])
    (context,) = error_contexts(caught.value)
    assert (context.operation, context.stage, context.transport) == ("model", "draft", "core:plain-text")
    assert context.invocation_id is not None
    assert not speaks.busy
    provider: Any = options.provider
    assert provider.closed == len(provider.contexts) or kind is OSError
    if traces:
        (trace,) = traces
        assert trace.error is not None
        assert (trace.error.message, trace.error.name) == ("", kind.__name__)
        assert trace.invocation_id == context.invocation_id


async def test_a_prepared_call_is_made_once_by_its_own_runner() -> None:
    """Spent and foreign calls are refused and charge nothing."""
    provider = Speaker(*saying("x"))
    speaks, other = runner(provider), runner(Speaker())
    prepared = await speaks.prepare(ASK)
    with pytest.raises(PreparedCallError) as foreign:
        await other.call(prepared)
    assert (await speaks.call(prepared)).value == "x"
    with pytest.raises(PreparedCallError) as spent:
        await speaks.call(prepared)
    assert (foreign.value.problem, spent.value.problem) == ("foreign", "spent")
    assert (speaks.call_count, other.call_count) == (1, 0)
    with pytest.raises(UsageError):
        await speaks.call(await speaks.prepare(ASK), transport="core:plain-text")  # type: ignore[call-overload]


async def test_a_transport_that_is_not_there_charges_nothing() -> None:
    """Nor does a request that is none."""
    provider = Speaker(*saying("x"))
    speaks = runner(provider)
    with pytest.raises(UnknownTransportError):
        await speaks.call(ASK, transport="app:none")
    with pytest.raises(UsageError):
        await speaks.call("Hello?")  # type: ignore[call-overload]
    assert (speaks.call_count, provider.contexts) == (0, [])


async def test_m46_the_sink_is_served_in_order_and_sets_the_pace() -> None:
    """Words, thoughts and calls, each awaited before the next part is pulled."""
    provider = Speaker(
        TextDelta("a"), UsageReport(ModelUsage()), ReasoningDelta("b"), FunctionCallDelta(0, id="c", name="n"), STOP
    )
    pulled: list[int] = []

    async def slow(_: ModelOutputEvent) -> None:
        for _turn in range(3):
            await checkpoint()
        pulled.append(provider.read)

    sink = Sink(slow)
    with pytest.raises(ModelProtocolError) as caught:
        await runner(provider, output=sink).call(ASK)
    assert caught.value.code == "model.unexpected_call"
    assert pulled == [1, 3, 4]
    assert [event.sequence for event in sink.events] == [1, 2, 3]
    assert [event.part for event in sink.events] == [provider.parts[0], provider.parts[2], provider.parts[3]]
    assert {(event.stage, event.transport) for event in sink.events} == {("draft", "core:plain-text")}


async def test_m46_what_the_sink_saw_may_be_refused() -> None:
    """Both calls of a rejected answer were delivered."""
    sink = Sink()
    speaks = runner(Speaker(*calling(("a", "{}"), ("b", "{}"))), _choice(), output=sink)
    with pytest.raises(ModelProtocolError) as caught:
        await speaks.call(ASK, transport="app:choice")
    assert caught.value.code == "model.multiple_calls"
    assert len(sink.events) == 2


async def test_m47_the_stream_is_closed_before_the_call_returns() -> None:
    """Also when closing waits, fails or takes too long: the outcome stands."""
    for after in (checkpoint, _raiser(OSError("close")), anyio.sleep_forever):
        provider = Speaker(*saying("x"), after=after)
        assert (await runner(provider, close_timeout=0.01).call(ASK)).value == "x"
        assert provider.closed == 1
    broken = Speaker(OSError("stream"), after=_raiser(KeyError("close")))
    with pytest.raises(OSError, match="stream"):
        await runner(broken).call(ASK)


async def test_m47_a_stream_is_closed_before_its_choice_is_resolved() -> None:
    """Resolving may take long; no connection waits for it."""
    provider = Speaker(*calling(("a", '{"n":1}')))
    closed: list[int] = []
    transport = create_model_transport(
        ModelTransportRegistration(
            key=TransportKey("app:choice"),
            interaction=native_function_interaction,
            source=capabilities(lambda _: closed.append(provider.closed), "a"),
        )
    )
    await runner(provider, transport).call(ASK, transport="app:choice")
    assert closed == [1]


async def test_m48_a_trace_is_made_once_per_charged_call() -> None:
    """Its figures come from the runner's clock; what the observer raises reaches a call that succeeded."""
    clock = FakeClock()
    traces: list[ModelCallTrace] = []

    def tick(event: ModelOutputEvent) -> None:
        clock.tick(0.25 if event.sequence == 1 else 1)

    provider = Speaker(*saying("two words"), before=lambda _: clock.tick(0.5))
    speaks = runner(provider, clock=clock, on_trace=traces.append, output=Sink(tick))
    result = await speaks.call(ASK)
    (trace,) = traces
    assert (trace.status, trace.error, trace.parts, trace.output_chars) == ("succeeded", None, 3, 8)
    assert (trace.first_output_ms, trace.duration_ms) == (500, 1_750)
    assert (trace.invocation_id, trace.duration_ms) == (result.receipt.invocation_id, result.receipt.duration_ms)
    assert trace.measurement.text_chars == 6
    broken = runner(Speaker(*saying("x")), on_trace=_raiser(KeyError("trace")))
    with pytest.raises(KeyError):
        await broken.call(ASK)
    assert (broken.call_count, len(broken.journal), broken.busy) == (1, 1, False)


async def test_m48_on_a_failed_call_its_own_error_wins() -> None:
    """An observer that raises does not hide what happened; an asynchronous one is awaited."""
    with pytest.raises(OSError, match="down"):
        await runner(Speaker(OSError("down")), on_trace=_raiser(KeyError("trace"))).call(ASK)
    seen: list[ModelCallTrace] = []

    async def observe(trace: ModelCallTrace) -> None:
        await checkpoint()
        seen.append(trace)

    await runner(Speaker(*saying("x")), on_trace=observe).call(ASK)
    assert len(seen) == 1


async def test_m49_plain_text_is_the_text() -> None:
    """Joined as it came; empty text is a result."""
    assert (await runner(Speaker(TextDelta("a "), TextDelta("b"), STOP)).call(ASK)).value == "a b"
    assert (await runner(Speaker(STOP)).call(ASK)).value == ""


async def test_the_time_limit_ends_a_call() -> None:
    """By the runner's clock; the shorter of the setting and the option; the call is charged and failed."""
    for setting, option in ((2.0, None), (None, 2.0), (5.0, 2.0)):
        clock = FakeClock()
        traces: list[ModelCallTrace] = []
        provider = Speaker(before=lambda _: anyio.sleep_forever())
        speaks = runner(provider, clock=clock, call_timeout=setting, on_trace=traces.append)
        ends: list[ModelCallTimeoutError] = []

        async def ask(speaks: ModelRunner = speaks, option: float | None = option, ends: list[Any] = ends) -> None:
            with pytest.raises(ModelCallTimeoutError) as caught:
                await speaks.call(ASK, options=ExecutionOptions(timeout=option))
            ends.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            await clock.advance(1.9)
            assert ends == []
            await clock.advance(0.2)
        assert [(error.timeout, error.code, error.retryable) for error in ends] == [(2.0, "model.call_timeout", True)]
        assert [trace.status for trace in traces] == ["failed"]
        assert not speaks.busy


async def test_a_call_within_its_time_limit_leaves_no_timer() -> None:
    """The value is the value, and nothing of the limit remains."""
    clock = FakeClock()
    speaks = runner(Speaker(*saying("x")), clock=clock, call_timeout=5.0)
    assert (await speaks.call(ASK)).value == "x"
    with pytest.raises(OSError, match="down"):
        await runner(Speaker(OSError("down")), clock=clock, call_timeout=5.0).call(ASK)


async def test_a_token_tripped_before_the_charge_charges_nothing() -> None:
    """The reason itself leaves, unannotated; the prepared call can be made later."""
    provider = Speaker(*saying("x"))
    speaks = runner(provider)
    prepared = await speaks.prepare(ASK)
    reason = KeyError("stop")
    token = CancelToken()
    token.cancel(reason)
    with pytest.raises(KeyError) as caught:
        await speaks.call(prepared, options=ExecutionOptions(signal=token))
    assert caught.value is reason
    assert error_contexts(reason) == ()
    assert (prepared.spent, speaks.call_count, provider.contexts) == (False, 0, [])
    assert (await speaks.call(prepared)).value == "x"


@pytest.mark.parametrize("via", ["ports", "options"])
async def test_c3_a_token_ends_a_call_with_its_reason(via: str) -> None:
    """Wherever the call waits; it is cancelled, not failed; the stream is closed; the reason is untouched."""
    for wait in ("opening", "stream", "sink"):
        token, gate = CancelToken(), anyio.Event()
        traces: list[ModelCallTrace] = []
        before = (lambda _, gate=gate: gate.wait()) if wait == "opening" else (lambda _: None)
        held = (lambda _, gate=gate: gate.wait()) if wait == "sink" else (lambda _: None)
        provider = Speaker(*saying("x"), before=before)
        if wait == "stream":
            provider.parts = (*provider.parts[:1], SILENCE)
        ports = {"signal": token} if via == "ports" else {}
        speaks = runner(provider, on_trace=traces.append, output=Sink(held), **ports)
        reason = ValueError("stop")
        options = ExecutionOptions(signal=token) if via == "options" else None

        async def ask(
            speaks: ModelRunner = speaks, options: ExecutionOptions | None = options, reason: Exception = reason
        ) -> None:
            with pytest.raises(ValueError, match="stop") as caught:
                await speaks.call(ASK, options=options)
            assert caught.value is reason

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            token.cancel(reason)
        assert [trace.status for trace in traces] == ["cancelled"]
        assert (reason.__cause__, reason.__context__, error_contexts(reason)) == (None, None, ())
        assert (speaks.call_count, speaks.journal, speaks.busy) == (1, (), False)
        assert provider.closed == (0 if wait == "opening" else 1)


async def test_a_value_that_came_too_late_is_dropped() -> None:
    """If the token is tripped when control returns, the reason leaves although the work was finished."""
    token = CancelToken()
    provider = Speaker(*saying("x"), after=lambda: token.cancel("stop"))  # type: ignore[arg-type,return-value]
    traces: list[ModelCallTrace] = []
    speaks = runner(provider, signal=token, on_trace=traces.append)
    with pytest.raises(AbortedError):
        await speaks.call(ASK)
    assert [trace.status for trace in traces] == ["cancelled"]
    assert speaks.journal == ()


async def test_c8_a_look_alike_is_a_failure() -> None:
    """A provider that raises its own abort error failed; only the token's own error is a cancellation."""
    traces: list[ModelCallTrace] = []
    speaks = runner(Speaker(AbortedError()), on_trace=traces.append, signal=CancelToken())
    with pytest.raises(AbortedError):
        await speaks.call(ASK)
    assert [trace.status for trace in traces] == ["failed"]


async def test_cancelled_at_every_await_the_state_stays_right() -> None:
    """Cancelled by the loop after any number of steps: one trace if charged, closed, not busy, usable again."""
    for steps in range(40):
        traces: list[ModelCallTrace] = []
        provider = Speaker(*saying("some more words"), before=lambda _: checkpoint(), after=checkpoint)
        watcher = Watcher(then=lambda _: checkpoint())
        speaks = runner(
            provider,
            on_trace=traces.append,
            output=Sink(lambda _: checkpoint()),
            diagnostics=create_diagnostics(CreateDiagnosticsOptions(observer=watcher, accept_content=True)),
            call_timeout=60.0,
        )
        prepared = await speaks.prepare(ASK)
        done: list[str] = []

        async def ask(scope: anyio.CancelScope, prepared: Any = prepared, done: list[str] = done) -> None:  # noqa: ANN401
            with scope:
                done.append((await speaks.call(prepared)).value)  # noqa: B023 - awaited within the turn

        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()
            tasks.start_soon(ask, scope)
            for _ in range(steps):
                await checkpoint()
            scope.cancel()
        assert len(traces) == speaks.call_count == int(prepared.spent)
        assert speaks.budget.available == 32 - speaks.call_count
        assert provider.closed == len(provider.contexts) or provider.read == 0
        assert not speaks.busy
        if done:
            assert [trace.status for trace in traces] == ["succeeded"]
        ends = [event for event in watcher.events if event.name == "model.finished"]
        assert len(ends) == speaks.call_count
        assert len(speaks.journal) == sum(trace.status == "succeeded" for trace in traces)
        assert (await speaks.call(ASK)).value == "somemorewords"


@pytest.mark.parametrize(
    ("limits", "parts"),
    [
        ({"max_tool_calls": 1}, calling(("a", "{}"), ("b", "{}"))),
        ({"max_arguments_bytes": 4}, calling(("a", "{'é'}"))),
    ],
    ids=["calls", "bytes"],
)
async def test_a_response_has_limits(limits: dict[str, int], parts: tuple[ModelPart, ...]) -> None:
    """Calls of one response and the arguments of one call are held to the runner's settings."""
    session: TransportKey[Any] = TransportKey("app:session")
    transport = create_model_transport(
        ModelTransportRegistration(
            key=session,
            interaction=native_function_interaction,
            source=capabilities(Resolved(), "a", "b"),
            mode="session",
        )
    )
    with pytest.raises(ModelProtocolError) as caught:
        await runner(Speaker(*parts), transport, **limits).call(ASK, transport=session)
    assert caught.value.code == "model.protocol"


async def test_a_collector_must_be_synchronous() -> None:
    """A coroutine from `add` is closed and the call fails."""

    class Collector:
        async def add(self, part: ModelPart, /) -> None:
            """Never runs."""

        async def finish(self) -> str:
            return "x"

    class Wrong:
        key: TransportKey[str] = TransportKey("app:wrong")

        async def prepare(self, _stage: Id, /) -> Any:  # noqa: ANN401 - of the wrong shape
            return PreparedModelTransport(create_collector=Collector)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match="awaitable"):
        await runner(Speaker(*saying("x")), Wrong()).call(ASK, transport="app:wrong")
