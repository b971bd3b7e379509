"""Durable events from the ledger: the same that were told, without a hole, without a repetition."""

from collections.abc import Callable

import anyio
import pytest

from runlane.delivery import (
    AssistantDeltaEvent,
    CheckpointEvent,
    DurableEvent,
    EventHub,
    Gap,
    RuntimeEvent,
    Subscription,
    TerminalEvent,
)
from runlane.errors import UsageError
from runlane.runtime import DeliveryConfig, LoopConfig, RuntimeConfig
from runlane.store import AppendEvent, MemoryStore, ReadEvents
from runlane.testing import Fault, ScriptedModel
from tests.runtime.scenes import CONVERSATION, heard, held_after, opened

pytestmark = pytest.mark.anyio


async def _collected(events: Subscription, until: Callable[[RuntimeEvent], bool]) -> list[RuntimeEvent | Gap]:
    found: list[RuntimeEvent | Gap] = []
    with anyio.fail_after(10):
        async for event in events:
            found.append(event)
            if not isinstance(event, Gap) and until(event):
                break
    return found


def _is_end(event: RuntimeEvent) -> bool:
    return isinstance(event, TerminalEvent)


def _ids(events: list[RuntimeEvent | Gap]) -> list[str]:
    return [event.event_id for event in events if isinstance(event, DurableEvent)]


async def test_replayed_events_are_the_ones_that_were_told() -> None:
    """Every durable event of a turn comes back from the ledger with its id, in order; so do its contents."""
    config = RuntimeConfig(loop=LoopConfig(checkpoint_every_events=1))
    async with opened(ScriptedModel("Hello there"), config=config) as scene:
        told = [
            event for event in await heard(scene.runtime.submit(CONVERSATION, "Hi")) if isinstance(event, DurableEvent)
        ]
        again = await _collected(scene.runtime.subscribe(CONVERSATION, after=0), _is_end)
    assert _ids(again) == [event.event_id for event in told]
    for live, rebuilt in zip(told, again, strict=True):
        if isinstance(live, CheckpointEvent):
            assert isinstance(rebuilt, CheckpointEvent)
            assert (rebuilt.patch, rebuilt.draft) == (None, None)
        elif isinstance(live, TerminalEvent):
            assert isinstance(rebuilt, TerminalEvent)
            assert (rebuilt.message, rebuilt.reason) == (live.message, live.reason)
            assert rebuilt.metrics.usage == live.metrics.usage
        else:
            assert rebuilt == live


@pytest.mark.parametrize("after", range(7))
async def test_a_cursor_is_the_version_of_the_last_event_seen(after: int) -> None:
    """Subscribing after version v gives every durable event of later versions, exactly once."""
    async with opened(ScriptedModel("Hello")) as scene:
        told = [
            event for event in await heard(scene.runtime.submit(CONVERSATION, "Hi")) if isinstance(event, DurableEvent)
        ]
        await scene.runtime.submit(CONVERSATION, "Again").result
        second: list[str] = []

        def ends(event: RuntimeEvent) -> bool:
            second.append(event.run_id)
            return _is_end(event) and event.run_id != told[0].run_id

        found = await _collected(scene.runtime.subscribe(CONVERSATION, after=after), ends)
    first = [event.event_id for event in told if event.snapshot_version > after]
    assert _ids(found)[: len(first)] == first
    versions = [event.snapshot_version for event in found if isinstance(event, DurableEvent)]
    assert versions == sorted(versions)
    assert len(set(_ids(found))) == len(_ids(found))


async def test_events_between_replay_and_live_are_seen_exactly_once() -> None:
    """A subscription made in the middle of a run replays its past and goes on live, without hole or repetition."""
    hold, model = held_after("Once ", "upon ")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "A tale")
        whole = ticket.events()
        await hold.reached()
        late = scene.runtime.subscribe(CONVERSATION, after=0)
        hold.release()
        await ticket.result
        found = await _collected(late, _is_end)
        everything = await heard(whole)
    assert _ids(found) == [event.event_id for event in everything if isinstance(event, DurableEvent)]
    deltas = [event.sequence for event in found if isinstance(event, AssistantDeltaEvent)]
    assert deltas == [3]


async def test_a_slow_listener_loses_no_durable_event() -> None:
    """After a gap the durable events that did not fit are rebuilt; only transient ones are gone."""
    config = RuntimeConfig(delivery=DeliveryConfig(capacity=5))
    model = ScriptedModel(" ".join(str(number) for number in range(200)))
    async with opened(model, config=config) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Count")
        slow = ticket.events()
        result = await ticket.result
        found = await _collected(slow, _is_end)
        everything = await _collected(scene.runtime.subscribe(CONVERSATION, after=0), _is_end)
    assert sum(isinstance(event, Gap) for event in found) == 1
    assert _ids(found) == _ids(everything)
    last = found[-1]
    assert isinstance(last, TerminalEvent)
    assert last.message == result.message


async def test_a_cursor_ahead_of_the_store_is_an_explicit_gap() -> None:
    """A cursor from a store that knew more gets a gap of reason `ahead`, then live events."""
    async with opened(ScriptedModel("Hello")) as scene:
        events = scene.runtime.subscribe(CONVERSATION, after=99)
        gap = await anext(events)
        assert gap == Gap(conversation_id=CONVERSATION, reason="ahead", first_available=1)
        await scene.runtime.submit(CONVERSATION, "Hi").result
        assert len(await _collected(events, _is_end)) > 4


async def test_a_cursor_equal_to_the_head_gets_only_what_is_new() -> None:
    """Nothing is replayed and nothing is missed when the cursor is the newest version."""
    async with opened(ScriptedModel("Hello")) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        events = scene.runtime.subscribe(CONVERSATION, after=result.snapshot_version)
        again = await scene.runtime.submit(CONVERSATION, "Again").result
        found = await _collected(events, _is_end)
    assert {event.run_id for event in found if not isinstance(event, Gap)} == {again.run.id}


async def test_ledger_entries_of_others_are_passed_over() -> None:
    """Entries that are no transitions tell nothing and disturb nothing; many pages are read through."""
    async with MemoryStore() as store, opened(ScriptedModel("Hello"), store=store) as scene:
        await scene.runtime.submit(CONVERSATION, "Hi").result
        at = scene.clock.now()
        for number in range(600):
            note = AppendEvent(command_id=f"n{number}", at=at, kind="provider/request", payload={"n": number})
            await store.apply(CONVERSATION, [note])
        result = await scene.runtime.submit(CONVERSATION, "Again").result
        found = await _collected(scene.runtime.subscribe(CONVERSATION, run_id=result.run.id, after=0), _is_end)
        head = await store.read_events(ReadEvents(conversation_id=CONVERSATION, limit=1))
    assert {event.run_id for event in found if not isinstance(event, Gap)} == {result.run.id}
    assert head.items[0].seq == 1


async def test_a_listener_of_an_ended_run_gets_its_events_and_ends() -> None:
    """`subscribe` with a run id replays that run and ends after its terminal event."""
    async with opened(ScriptedModel("Hello")) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        result = await ticket.result
        found = [event async for event in scene.runtime.subscribe(CONVERSATION, run_id=result.run.id, after=0)]
        late = [event async for event in ticket.events()]
    assert _ids(found) == _ids(late)
    assert found[-1].type == "terminal"


@pytest.mark.parametrize("after", [-1, True, "1", 1.0])
async def test_a_bad_cursor_is_refused(after: object) -> None:
    """A cursor that is no version is misuse."""
    async with opened(ScriptedModel("Hello")) as scene:
        with pytest.raises(UsageError, match="after"):
            scene.runtime.subscribe(CONVERSATION, after=after)  # type: ignore[arg-type]


async def test_a_store_that_fails_during_a_replay_is_tried_again_by_the_next_read() -> None:
    """A failing ledger read raises from the iteration, which can go on afterwards."""
    async with MemoryStore() as store, opened(ScriptedModel("Hello"), store=store) as scene:
        await scene.runtime.submit(CONVERSATION, "Hi").result
        events = Subscription(scene.store, EventHub(), CONVERSATION, after=0)
        scene.store.plan = lambda call: _broken() if call.method == "read_events" else None
        with pytest.raises(OSError, match="away"):
            await anext(events)
        scene.store.plan = None
        assert len(await _collected(events, _is_end)) > 4


def _broken() -> Fault | None:
    raise OSError("away")
