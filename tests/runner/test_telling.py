"""What a runner tells diagnostics of its calls."""

import pytest

from runlane.contracts import CancelToken, ExecutionOptions, Id
from runlane.diagnostics import (
    CoreEvent,
    CreateDiagnosticsOptions,
    ModelFinished,
    create_diagnostics,
)
from runlane.errors import BudgetError
from runlane.models import ModelUsage, TextDelta, UsageReport
from tests.diagnostics.listening import Watcher
from tests.runner.speaking import ASK, STOP, Speaker, runner, saying

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
