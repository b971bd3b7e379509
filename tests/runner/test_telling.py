"""What a runner tells diagnostics of its calls."""

from typing import Any

import pytest

from runlane.contracts import CancelToken, ExecutionOptions, Id, error_contexts
from runlane.diagnostics import (
    CoreEvent,
    CreateDiagnosticsOptions,
    ModelFinished,
    create_diagnostics,
)
from runlane.errors import BudgetError
from runlane.models import ModelMessage, ModelUsage, TextDelta, UsageReport
from runlane.runner import (
    ModelCallTrace,
    ModelOutputEvent,
    ModelTransportRegistration,
    TransportKey,
    create_model_transport,
    native_function_interaction,
)
from tests.diagnostics.listening import Watcher
from tests.hostile import HostileError, broken, hostile_error, untouchable
from tests.runner.speaking import ASK, STOP, Speaker, calling, capabilities, runner, saying

pytestmark = pytest.mark.anyio


async def test_the_runner_tells_what_happened() -> None:
    """Prepared, started, finished, each with the call's own span; content only where it was accepted."""
    watcher = Watcher()
    scope = create_diagnostics(CreateDiagnosticsOptions(run_id=Id("run"), observer=watcher, accept_content=True))
    usage = ModelUsage(input_tokens=1, raw={"secret": 1})
    speaks = runner(Speaker(TextDelta("said"), UsageReport(usage), STOP), diagnostics=scope)
    result = await speaks.call(ASK)
    assert [event.name for event in watcher.events] == [
        "model.prepared",
        "model.started",
        "model.input",
        "model.output",
        "model.finished",
    ]
    call = watcher.events[1].identity
    assert (call.stage, call.invocation_id, call.parent_span_id) == (
        "draft",
        result.receipt.invocation_id,
        scope.identity.span_id,
    )
    assert (result.receipt.span_id, result.receipt.run_id) == (call.span_id, "run")
    finished = watcher.events[-1].payload
    assert isinstance(finished, ModelFinished)
    assert (finished.status, finished.finish_reason, finished.error) == ("succeeded", "stop", None)
    assert finished.usage == ModelUsage(input_tokens=1)


async def test_a_refused_budget_is_told() -> None:
    """Before any call; a failing observer does not hide the refusal."""
    seen: list[CoreEvent] = []

    def fail(event: CoreEvent) -> None:
        seen.append(event)
        if event.name == "budget.refused":
            raise KeyError("observer")

    scope = create_diagnostics(CreateDiagnosticsOptions(observer=Watcher(then=fail)))
    with pytest.raises(BudgetError):
        await runner(Speaker(), max_calls=0, diagnostics=scope).call(ASK)
    assert [event.name for event in seen] == ["model.prepared", "budget.refused"]


async def test_c4_an_observer_of_a_failed_call_hides_nothing() -> None:
    """The call's own error leaves; on a good call the observer's error does."""

    def fail(event: CoreEvent) -> None:
        if event.name == "model.finished":
            raise KeyError("observer")

    scope = create_diagnostics(CreateDiagnosticsOptions(observer=Watcher(then=fail)))
    with pytest.raises(OSError, match="down"):
        await runner(Speaker(OSError("down")), diagnostics=scope).call(ASK)
    good = runner(Speaker(*saying("x")), diagnostics=scope)
    with pytest.raises(KeyError):
        await good.call(ASK)
    assert len(good.journal) == 1


async def test_c2_a_runner_shows_what_its_ports_bring() -> None:
    """Signal and diagnostics are None unless the ports set them; options of a call win over the ports."""
    plain = runner(Speaker(*saying("x")))
    assert (plain.signal, plain.diagnostics) == (None, None)
    token, scope = CancelToken(), create_diagnostics()
    bound = runner(Speaker(*saying("x")), signal=token, diagnostics=scope)
    assert (bound.signal, bound.diagnostics) == (token, scope)
    mine = create_diagnostics(CreateDiagnosticsOptions(run_id=Id("mine")))
    result = await bound.call(ASK, options=ExecutionOptions(diagnostics=mine, invocation_id=Id("named")))
    assert (result.receipt.run_id, result.receipt.invocation_id) == ("mine", "named")


async def test_d1_an_observer_is_not_isolated() -> None:
    """What an observer or a sink raises, the observed call raises: the same object."""
    for place in ("on_trace", "output"):
        broken = KeyError(place)

        async def fail(_: object, broken: KeyError = broken) -> None:
            raise broken

        with pytest.raises(KeyError) as caught:
            await runner(Speaker(*saying("x")), **{place: fail}).call(ASK)
        assert caught.value is broken


async def test_d11_one_invocation_has_one_name() -> None:
    """Receipt, trace, events, sink and the provider's context carry the same id; so does the error of a failed call."""
    watcher = Watcher()
    traces: list[ModelCallTrace] = []
    heard: list[ModelOutputEvent] = []

    async def hear(event: ModelOutputEvent) -> None:
        heard.append(event)

    scope = create_diagnostics(CreateDiagnosticsOptions(observer=watcher))
    provider = Speaker(*saying("x"))
    speaks = runner(provider, diagnostics=scope, on_trace=traces.append, output=hear)
    receipt = (await speaks.call(ASK)).receipt
    names = {
        receipt.invocation_id,
        traces[0].invocation_id,
        heard[0].invocation_id,
        provider.contexts[0].invocation_id,
        *(event.identity.invocation_id for event in watcher.events if event.name != "model.prepared"),
    }
    assert names == {receipt.invocation_id}
    provider.parts = (OSError("down"),)
    with pytest.raises(OSError, match="down") as caught:
        await speaks.call(ASK)
    assert error_contexts(caught.value)[0].invocation_id == traces[1].invocation_id != receipt.invocation_id


async def test_m50_a_runner_adds_nothing_of_its_own() -> None:
    """The provider gets the request's own messages and options, once, whatever comes of it."""
    provider = Speaker(OSError("down"))
    speaks = runner(provider)
    prepared = await speaks.prepare(ASK)
    with pytest.raises(OSError, match="down"):
        await speaks.call(prepared)
    assert provider.told == [(ModelMessage.user("Hello?"),)]
    (context,) = provider.contexts
    assert (context.stage, context.options, context.functions) == ("draft", prepared.options, ())
    assert (context.function_choice, context.response_format) == ("none", "text")


async def test_a_hostile_error_leaves_as_it_came() -> None:
    """An exception that raises on every look is told as one that cannot be inspected, and is still annotated."""
    parts = dict.fromkeys(("__str__", "__repr__", "__setattr__"), broken)
    hostile = hostile_error(code=property(broken), retryable=property(broken), **parts)
    watcher = Watcher()
    traces: list[ModelCallTrace] = []
    scope = create_diagnostics(CreateDiagnosticsOptions(observer=watcher))
    speaks = runner(Speaker(hostile), diagnostics=scope, on_trace=traces.append)
    with pytest.raises(HostileError) as caught:
        await speaks.call(ASK)
    assert caught.value is hostile
    assert error_contexts(hostile)[0].stage == "draft"
    assert traces[0].error is not None
    assert (traces[0].status, traces[0].error.name) == ("failed", "UnknownError")
    finished = watcher.events[-1].payload
    assert isinstance(finished, ModelFinished)
    assert finished.error is not None
    assert (finished.status, finished.error.code) == ("failed", "error.unknown")
    assert not speaks.busy


async def test_d12_what_a_capability_resolves_to_is_handed_through() -> None:
    """A value nobody may look at comes out as the very object."""
    value = untouchable()
    choice: TransportKey[Any] = TransportKey("app:choice")
    transport = create_model_transport(
        ModelTransportRegistration(
            key=choice, interaction=native_function_interaction, source=capabilities(lambda _: value, "a")
        )
    )
    result = await runner(Speaker(*calling(("a", '{"n":1}'))), transport).call(ASK, transport=choice)
    assert result.value.value is value
