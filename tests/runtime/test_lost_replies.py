"""What listeners are told of commits whose replies were lost: what the ledger says, as of any other commit."""

import anyio
import pytest

from runlane.delivery import AdmissionEvent, RunStateEvent, Subscription, fold_events
from runlane.errors import StoreUnavailableError
from runlane.runtime import RunTicket
from runlane.store import ReadEvents
from runlane.testing import Fault, ScriptedModel, StoreCall
from tests.runtime.injecting import inject_second, standing
from tests.runtime.scenes import CONVERSATION, Scene, durable, heard, opened
from tests.stateful.lane_world import settle

pytestmark = pytest.mark.anyio


class Losses:
    """While on, the first reply to every commit is lost."""

    def __init__(self) -> None:
        self.on = False
        self._seen: set[str] = set()

    def __call__(self, call: StoreCall) -> Fault | None:
        """Plan one call."""
        if not self.on or call.method != "apply" or call.commands[0].command_id in self._seen:
            return None
        self._seen.add(call.commands[0].command_id)
        return Fault(when="after", error=StoreUnavailableError("the reply was lost"))


async def _until(scene: Scene, *tickets: RunTicket) -> None:
    while not all(ticket.result.done for ticket in tickets):
        scene.clock.tick(0.1)
        await settle()


async def _told(scene: Scene, events: Subscription) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return what a listener was told, and what the ledger says."""
    await scene.runtime.close()
    told = durable(await heard(events))
    page = await scene.store.inner.read_events(ReadEvents(conversation_id=CONVERSATION))
    return told, durable([event for entry in page.items for event in fold_events(entry)])


async def test_the_end_of_a_run_and_of_what_it_absorbed_is_told() -> None:
    """The absorbed run's state and the terminal event, though the reply to the commit of both was lost."""
    hold, model = standing()
    losses = Losses()
    async with opened(model, plan=losses) as scene, scene.runtime.subscribe(CONVERSATION) as events:
        two = await inject_second(scene, hold)
        losses.on = True
        two.hold.release()
        await _until(scene, two.first, two.second)
        told, recorded = await _told(scene, events)
    assert told == recorded
    assert [kind for kind, _ in told[-2:]] == ["run-state", "terminal"]


async def test_the_end_of_a_cancelled_run_is_told() -> None:
    """Its state and its terminal event."""
    hold, model = standing(calls=False)
    losses = Losses()
    async with opened(model, plan=losses) as scene, scene.runtime.subscribe(CONVERSATION) as events:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        second = scene.runtime.submit(CONVERSATION, "second")
        run = (await second.accepted).run
        losses.on = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.runtime.cancel, CONVERSATION, run.id)
            await _until(scene, second)
        hold.release()
        await _until(scene, first)
        told, recorded = await _told(scene, events)
    assert told == recorded
    assert ("terminal", 6) in told


async def test_what_began_is_told_as_it_was_then() -> None:
    """Admission and acquisition are one commit; found again, its run is running, but it was admitted queued."""
    losses = Losses()
    losses.on = True
    async with opened(ScriptedModel("Hello"), plan=losses) as scene, scene.runtime.subscribe(CONVERSATION) as events:
        await _until(scene, scene.runtime.submit(CONVERSATION, "Hi"))
        await scene.runtime.close()
        told = [event for event in await heard(events) if isinstance(event, AdmissionEvent | RunStateEvent)]
        page = await scene.store.inner.read_events(ReadEvents(conversation_id=CONVERSATION))
    recorded = [event for entry in page.items for event in fold_events(entry)]
    assert told == [event for event in recorded if isinstance(event, AdmissionEvent | RunStateEvent)]
    assert [event.state for event in told if isinstance(event, RunStateEvent)] == ["queued", "running"]
