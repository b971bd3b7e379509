"""Why runs end, and what is kept of them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from typing_extensions import override

from runlane.contracts import CancelToken
from runlane.errors import (
    ContextOverflowError,
    ModelError,
    ModelIdleTimeoutError,
    ModelProtocolError,
    ProviderError,
    ProviderStreamCutError,
    RuntimeConflictError,
    StoreUnavailableError,
    ToolFenceError,
    UsageError,
)
from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ModelProviderContext,
    TextDelta,
)
from runlane.records import ControlPart, TextPart
from runlane.runtime import AgentRuntime, RuntimeConfig, Turn, TurnOutcome
from runlane.runtime._ending import ending_for_error, ending_for_signal, ending_under
from runlane.runtime._live_step import FailureOrigin
from runlane.store import MemoryStore
from runlane.testing import FakeClock, Hold, Pause, ScriptedModel, ScriptedStep
from tests.runtime.scenes import CONVERSATION, heard, held_after, looped, opened

pytestmark = pytest.mark.anyio

_CUT_OFF = ControlPart(reason="run-interrupted")


@pytest.mark.parametrize(
    ("signal", "reason"),
    [
        ("shutdown", "shutdown"),
        ("timeout", "timeout"),
        ("supersede", "superseded"),
        ("user-interrupt", "interrupted"),
        (object(), "interrupted"),
    ],
)
def test_an_abort_reason_maps_to_a_terminal_reason(signal: object, reason: str) -> None:
    """shutdown, timeout and supersede keep their meaning; anything else is an interrupt. All leave a mark."""
    token = CancelToken()
    token.cancel(signal)
    ending = ending_for_signal(token)
    assert (ending.reason, ending.control) == (reason, _CUT_OFF)


def test_an_abort_in_force_wins_over_a_policy() -> None:
    """A run whose token tripped ends by the token, even if its turn came back with a result."""
    token = CancelToken()
    policy = ending_for_error(ValueError("x"))
    assert ending_under(token, policy) is policy
    token.cancel("timeout")
    assert ending_under(token, policy).reason == "timeout"


_PROVIDERS = ProviderError("no", provider="openai-chat", status=500)
_MALFORMED = ModelProtocolError(detail="a call without a name")


@pytest.mark.parametrize(
    ("error", "origin", "reason"),
    [
        (_PROVIDERS, "provider", "provider_failure"),
        (_PROVIDERS, "run", "runtime_failure"),
        (ProviderError("413", provider="p", reason="context-overflow", status=413), "provider", "provider_failure"),
        (ContextOverflowError("too long"), "run", "context_overflow"),
        (ContextOverflowError("too long"), "prepare-step", "context_overflow"),
        (RuntimeConflictError("lost", operation="checkpoint"), "run", "storage_conflict"),
        (RuntimeConflictError("lost", operation="checkpoint"), "admission", "storage_conflict"),
        (ModelIdleTimeoutError(idle_timeout=1.0), "provider", "timeout"),
        (ModelIdleTimeoutError(idle_timeout=1.0), "run", "runtime_failure"),
        (_MALFORMED, "provider", "provider_failure"),
        (_MALFORMED, "run", "provider_failure"),
        (_MALFORMED, "request", "runtime_failure"),
        (UsageError("no", argument="messages"), "request", "runtime_failure"),
        (UsageError("no", argument="prepare_step"), "prepare-step", "runtime_failure"),
        (ValueError("bug"), "prepare-step", "provider_failure"),
        (OSError("disk"), "admission", "provider_failure"),
        (StoreUnavailableError("gone"), "admission", "runtime_failure"),
        (ValueError("bug"), "run", "runtime_failure"),
        (ValueError("provider failure: HTTP 500"), "run", "runtime_failure"),
    ],
)
def test_failures_are_told_apart_by_type_and_origin(error: Exception, origin: FailureOrigin, reason: str) -> None:
    """The same error means another thing from the provider than from the run; text decides nothing."""
    ending = ending_for_error(error, origin)
    assert (ending.reason, ending.error) == (reason, error)


@pytest.mark.parametrize(("code", "mark"), [("stale_run", "stale-run"), ("run_interrupted", "run-interrupted")])
def test_a_fence_that_refuses_interrupts_the_run(code: str, mark: str) -> None:
    """A run the tool fence finds stale or asked to stop ends as `interrupted` with the mark that says which."""
    ending = ending_for_error(ToolFenceError(code, run_id="r"))
    assert (ending.reason, ending.control and ending.control.reason) == ("interrupted", mark)


async def test_a_provider_that_fails_keeps_what_it_said() -> None:
    """The text before a provider's failure stays on the failed record, and the metrics are partial."""
    failure = ProviderError("overloaded", provider="openai-chat", status=503)
    async with opened(ScriptedModel([TextDelta("Well, "), TextDelta("you"), failure])) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        events = await heard(ticket)
        result = await ticket.result
    assert (result.reason, result.run.state, result.message.status) == ("provider_failure", "failed", "failed")
    assert (result.text, result.error) == ("Well, you", failure)
    assert result.metrics is not None
    assert result.metrics.partial is True
    operations = [event.operation.phase for event in events if event.type == "run-operation"]
    assert operations == ["started", "failed"]


async def test_a_call_that_makes_no_sense_is_a_provider_failure() -> None:
    """A stream that ends well but holds a call without a name is the provider's fault, and its text is kept."""
    script: list[ScriptedStep] = [
        TextDelta("Let me see"),
        FunctionCallDelta(0, id="c1", arguments="{}"),
        FinishReport("tool-calls"),
    ]
    async with opened(ScriptedModel(script)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, result.message.text) == ("provider_failure", "Let me see")
    assert isinstance(result.error, ModelProtocolError)


async def test_a_refused_request_is_a_provider_failure() -> None:
    """A provider that refuses to open a stream ends the run as `provider_failure` with an empty answer."""
    refused = ProviderError("bad key", provider="openai-chat", status=401, reason="unauthorized", retryable=False)

    def refuse(_: object) -> str:
        raise refused

    async with opened(ScriptedModel(refuse)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, result.message.parts, result.error) == ("provider_failure", (), refused)


@pytest.mark.parametrize("cut", [[TextDelta("half a sen")], [TextDelta("half a sen"), ProviderStreamCutError()]])
async def test_a_stream_without_a_finish_is_never_a_success(cut: list[TextDelta | ModelError]) -> None:
    """A stream that just ends, or says it was cut, is `provider_failure`; its text stays."""
    async with opened(ScriptedModel(cut)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, result.text) == ("provider_failure", "half a sen")
    assert isinstance(result.error, ProviderStreamCutError)


class _Mute(ChatProvider):
    """Breaks the port: its iteration ends without a finish report and raises nothing."""

    provider_id = "mute"
    model_id = "mute"

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        async def parts() -> AsyncIterator[ModelPart]:
            yield TextDelta("x")

        yield parts()


async def test_a_provider_that_ends_silently_is_cut_too() -> None:
    """A provider whose iteration just ends, raising nothing, is treated as cut."""
    async with MemoryStore() as store, AgentRuntime(store, model=_Mute()) as runtime:
        result = await runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, result.text, type(result.error)) == ("provider_failure", "x", ProviderStreamCutError)


@pytest.mark.parametrize(
    ("finish", "reason"), [("stop", "success"), ("length", "provider_stop"), ("other", "provider_stop")]
)
async def test_a_finish_other_than_stop_is_a_provider_stop(finish: str, reason: str) -> None:
    """`stop` is success; a length limit, a filter or any other cause is `provider_stop`, completed."""
    model = ScriptedModel([TextDelta("text"), FinishReport(finish)])  # type: ignore[arg-type]
    async with opened(model) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, result.run.state, result.message.status) == (reason, "completed", "completed")


async def test_a_silent_provider_times_out() -> None:
    """Silence longer than the idle timeout: reason `timeout`, state cancelled, message failed, text kept."""
    hold, model = held_after("one ")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        await scene.clock.advance(59.0)
        assert ticket.result.done is False
        await scene.clock.advance(1.5)
        result = await ticket.result
    assert (result.reason, result.run.state, result.message.status) == ("timeout", "cancelled", "failed")
    assert result.message.parts == (TextPart(text="one "), _CUT_OFF)
    assert result.run.last_operation is not None
    assert result.run.last_operation.phase == "cancelled"


async def test_a_provider_that_never_opens_its_stream_times_out() -> None:
    """The idle timeout runs from before the call is opened."""
    hold = Hold()
    async with opened(ScriptedModel([hold, FinishReport("stop")])) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        await scene.clock.advance(61.0)
        assert (await ticket.result).reason == "timeout"


async def test_each_part_restarts_the_idle_timeout() -> None:
    """A stream of three minutes whose parts come every forty seconds is fine; without a timeout so is silence."""
    clock = FakeClock()
    steps = [step for _ in range(5) for step in (Pause(40.0), TextDelta("x"))]
    model = ScriptedModel([*steps, FinishReport("stop")], clock=clock)
    async with opened(model, clock=clock) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await clock.advance(201.0)
        assert (await ticket.result).text == "xxxxx"
    hold, model = held_after("one")
    async with opened(model, config=looped(idle_timeout=None)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        await scene.clock.advance(10_000.0)
        assert ticket.result.done is False
        hold.release()
        await ticket.result


async def test_a_providers_own_idle_timeout_is_a_timeout() -> None:
    """A provider that notices the silence itself ends the run with the same reason."""
    silent = ModelIdleTimeoutError(idle_timeout=60.0)
    async with opened(ScriptedModel([TextDelta("x"), silent])) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, result.error) == ("timeout", silent)


async def test_a_provider_that_watches_its_connection_decides_what_silence_is() -> None:
    """No part for longer than the idle timeout is no time-out when the provider watches the silence itself."""
    hold, model = held_after("one")
    model.watches_silence = True
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        await scene.clock.advance(1000.0)
        assert ticket.result.done is False
        assert model.calls[0].context.idle_timeout == 60.0
        hold.release()
        assert (await ticket.result).reason == "success"


async def test_a_failed_turn_blocks_nothing_and_stays_in_the_prompt() -> None:
    """After a failure the next turn runs; the model sees the failed answer, marked."""
    failure = ProviderError("overloaded", provider="openai-chat", status=503)
    model = ScriptedModel([TextDelta("Well, "), failure], "Fine.")
    async with opened(model) as scene:
        await scene.runtime.submit(CONVERSATION, "Hi").result
        assert (await scene.runtime.submit(CONVERSATION, "Again").result).text == "Fine."
    told = [message.text for message in model.calls[1].messages]  # type: ignore[union-attr]
    assert (told[0], told[-1]) == ("Hi", "Again")
    assert told[1].startswith("Well, ")


async def test_an_interrupted_turn_reaches_the_next_prompt_with_a_cut_off_notice() -> None:
    """Partial text of an interrupted answer is shown to the model, marked as cut off."""
    hold, model = held_after("Once upon ")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "A tale")
        await hold.reached()
        assert scene.runtime.stop(CONVERSATION) is True
        interrupted = await ticket.result
        await scene.runtime.submit(CONVERSATION, "Go on").result
    assert (interrupted.reason, interrupted.message.parts[-1]) == ("interrupted", _CUT_OFF)
    told = model.calls[1].messages[1]
    assert told.role == "assistant"
    assert told.text.startswith("Once upon ")
    assert len(told.text) > len("Once upon ")


async def test_a_driver_that_breaks_ends_its_run_only() -> None:
    """An exception of the driver is a runtime failure; what it emitted stays, its open call is closed as failed."""

    class Broken:
        name = "broken"

        async def drive(self, turn: Turn, /) -> TurnOutcome:
            await turn.emit(TextDelta("partial"))
            async with turn.open_step(turn.messages) as parts:
                await anext(parts)
                raise ZeroDivisionError

    async with opened(ScriptedModel("Hello"), config=RuntimeConfig(driver=Broken())) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        with anyio.fail_after(5):
            await scene.runtime.submit("another", "Hi").result
    assert (result.reason, result.text) == ("runtime_failure", "partial")
    assert result.run.last_operation is not None
    assert result.run.last_operation.phase == "failed"
