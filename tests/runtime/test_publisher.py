"""A publisher may be slow, hang or fail: a run notices nothing, and what it missed is told."""

import anyio
import pytest

from runlane.delivery import RuntimeEvent
from runlane.errors import BudgetError
from runlane.runtime import DeliveryConfig, RuntimeConfig
from runlane.testing import ScriptedModel
from tests.runtime.scenes import CONVERSATION, heard, opened

pytestmark = pytest.mark.anyio

_LONG = " ".join(str(number) for number in range(100))


async def test_a_run_ends_while_its_publisher_still_stands_at_the_first_event() -> None:
    """Admission, answer and result wait for no publisher; it gets every event in order once it goes on."""
    gate, published = anyio.Event(), list[RuntimeEvent]()

    async def publish(event: RuntimeEvent) -> None:
        await gate.wait()
        published.append(event)

    async with opened(ScriptedModel(_LONG), config=RuntimeConfig(delivery=DeliveryConfig(publisher=publish))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        events = ticket.events()
        with anyio.fail_after(10):
            result = await ticket.result
            told = await heard(events)
        assert (result.reason, published) == ("success", [])
        assert not ticket.accepted.done
        gate.set()
        await ticket.accepted
    assert published == told


async def test_a_publisher_that_hangs_does_not_keep_a_runtime_from_closing() -> None:
    """Leaving waits a moment for it, then goes; what it did not take is let go of without a warning."""

    async def publish(_: RuntimeEvent) -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(10):
        config = RuntimeConfig(delivery=DeliveryConfig(publisher=publish))
        async with opened(ScriptedModel("Hello"), config=config) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Hi")
            await ticket.result
        await ticket.accepted


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_publisher_that_is_too_far_behind_misses_events_and_is_told(*, awaited: bool) -> None:
    """Beyond `capacity` the new event is missed; the hook gets it with the reason, whether it is awaited or not."""
    gate, published, missed = anyio.Event(), list[RuntimeEvent](), list[RuntimeEvent]()

    async def publish(event: RuntimeEvent) -> None:
        await gate.wait()
        published.append(event)

    def note(event: RuntimeEvent, error: Exception) -> None:
        assert isinstance(error, BudgetError)
        assert (error.allowance, error.limit) == ("delivery.capacity", 5)
        missed.append(event)

    async def note_later(event: RuntimeEvent, error: Exception) -> None:
        await anyio.lowlevel.checkpoint()
        note(event, error)

    delivery = DeliveryConfig(publisher=publish, on_publish_error=note_later if awaited else note, capacity=5)
    async with opened(ScriptedModel("Hello there"), config=RuntimeConfig(delivery=delivery)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        assert result.reason == "success"
        gate.set()
    assert len(published) == 5
    assert [event.type for event in published[:2]] == ["admission", "run-state"]
    assert missed[-1].type == "terminal"


async def test_a_failing_publisher_is_reported_in_order_and_gets_the_next_event_all_the_same() -> None:
    """Each failure reaches the hook with its event; a hook that fails itself changes nothing."""
    failed: list[str] = []

    async def publish(event: RuntimeEvent) -> None:
        raise OSError(event.type)

    async def report(event: RuntimeEvent, error: Exception) -> None:
        failed.append(f"{event.type} {error}")
        raise ValueError("the hook")

    delivery = DeliveryConfig(publisher=publish, on_publish_error=report)
    async with opened(ScriptedModel("Hello"), config=RuntimeConfig(delivery=delivery)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        told = await heard(ticket.events())
    assert failed == [f"{event.type} {event.type}" for event in told]
