"""Operations: what a run says of its calls of a model."""

import pytest

from runlane.delivery import RunOperationEvent
from runlane.errors import ProviderError
from runlane.models import FinishReport, TextDelta
from runlane.records import RunOperation
from runlane.testing import Hold, ScriptedModel, ScriptedStep
from tests.runtime.scenes import CONVERSATION, heard, looped, opened
from tests.runtime.test_tools import add, called

pytestmark = pytest.mark.anyio

_SECRET = "the key is sk-123"  # noqa: S105 - a text that must not get out


def _operations(events: list[object]) -> list[RunOperation]:
    return [event.operation for event in events if isinstance(event, RunOperationEvent)]


async def test_an_operation_keeps_its_identity_over_its_phases_and_each_step_has_its_own() -> None:
    """Two steps with checkpoints: two ids, each with one step, from started over first output to completed."""
    words: list[ScriptedStep] = [
        *(TextDelta("word ") for _ in range(5)),
        *called(("c1", "add", '{"left":1,"right":2}')),
    ]
    model = ScriptedModel(words, [*(TextDelta("word ") for _ in range(5)), FinishReport("stop")])
    async with opened(model, tools=[add], config=looped(checkpoint_every_events=2)) as scene:
        found = _operations([*await heard(scene.runtime.submit(CONVERSATION, "1 + 2?"))])
    phases: dict[str, list[str]] = {}
    for operation in found:
        phases.setdefault(operation.operation_id, []).append(operation.phase)
    assert list(phases.values()) == [["started", "first-output", "completed"]] * 2
    steps = {operation.operation_id: operation.step for operation in found}
    assert list(steps.values()) == [0, 1]
    assert len({(operation.operation_id, operation.step) for operation in found}) == 2


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
async def test_an_operation_is_closed_once_by_how_its_call_ended(how: str) -> None:
    """Completed by a finish, failed by an error, cancelled by an interrupt; never twice."""
    hold = Hold()
    ends: dict[str, list[ScriptedStep]] = {
        "completed": [FinishReport("stop")],
        "failed": [ProviderError("no", provider="p")],
        "cancelled": [hold, FinishReport("stop")],
    }
    async with opened(ScriptedModel([TextDelta("half"), *ends[how]])) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go")
        if how == "cancelled":
            await hold.reached()
            await scene.runtime.interrupt(CONVERSATION, ticket.run_id)
        found = _operations([*await heard(ticket)])
        result = await ticket.result
    assert [operation.phase for operation in found] == ["started", how]
    assert found[-1].finished_at is not None
    assert result.run.last_operation == found[-1]


async def test_no_text_of_an_error_is_in_an_operation_or_its_event() -> None:
    """What the provider said is for operators who ask for it; no record, event or answer holds it."""
    async with opened(ScriptedModel([TextDelta("half"), ProviderError(_SECRET, provider="p")])) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go")
        events = await heard(ticket)
        found = _operations([*events])
        result = await ticket.result
        snapshot = await scene.store.inner.load_snapshot(CONVERSATION)
    assert result.reason == "provider_failure"
    assert found[-1].phase == "failed"
    assert _SECRET not in f"{events} {result.run} {result.message} {snapshot}"


async def test_a_wall_clock_that_goes_backwards_disturbs_no_operation() -> None:
    """An operation may finish before it began by the clock; the run ends as it would, and both instants are kept."""
    hold = Hold()
    async with opened(ScriptedModel([TextDelta("half"), hold, FinishReport("stop")])) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go")
        await hold.reached()
        scene.clock.jump(-3600.0)
        hold.release()
        result = await ticket.result
        view = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
    operation = result.run.last_operation
    assert operation is not None
    assert operation.finished_at is not None
    assert operation.finished_at < operation.started_at
    assert view is not None
    assert (result.reason, view.run.last_operation) == ("success", operation)
