"""Handing events out: bounded, never waiting, honest about losses."""

from datetime import UTC, datetime

import anyio
import pytest

from runlane.delivery import AssistantDeltaEvent, EventHub, Gap, RunStateEvent, RuntimeEvent, Subscription
from runlane.store import MemoryStore

pytestmark = pytest.mark.anyio

_AT = datetime(2026, 1, 1, tzinfo=UTC)


def delta(sequence: int, *, run_id: str = "r", conversation_id: str = "c") -> AssistantDeltaEvent:
    """A transient event."""
    return AssistantDeltaEvent(
        conversation_id=conversation_id,
        run_id=run_id,
        emitted_at=_AT,
        runtime_epoch="e",
        sequence=sequence,
        text_delta=str(sequence),
    )


def state(version: int, *, run_id: str = "r") -> RunStateEvent:
    """A durable event."""
    return RunStateEvent(conversation_id="c", run_id=run_id, emitted_at=_AT, snapshot_version=version, state="running")


async def read(events: Subscription, count: int) -> list[RuntimeEvent | Gap]:
    """Read so many events."""
    with anyio.fail_after(5):
        return [await anext(events) for _ in range(count)]


async def test_every_listener_of_a_conversation_gets_every_event() -> None:
    """Two listeners of one conversation get the same events in order; another conversation's listener none."""
    hub = EventHub()
    async with MemoryStore() as store:
        one, two, other = (Subscription(store, hub, conversation) for conversation in ("c", "c", "d"))
        for number in range(3):
            hub.publish(delta(number))
        assert await read(one, 3) == await read(two, 3) == [delta(number) for number in range(3)]
        await other.aclose()
        assert [event async for event in other] == []


async def test_a_run_scoped_listener_gets_only_its_run() -> None:
    """Events of other runs are filtered before they take room."""
    hub = EventHub()
    async with MemoryStore() as store:
        events = Subscription(store, hub, "c", run_id="r2", capacity=1)
        for number in range(5):
            hub.publish(delta(number))
        hub.publish(delta(9, run_id="r2"))
        assert await read(events, 1) == [delta(9, run_id="r2")]


async def test_nobody_listens_after_the_last_one_left() -> None:
    """A closed subscription leaves nothing behind in the hub."""
    hub = EventHub()
    async with MemoryStore() as store:
        async with Subscription(store, hub, "c"), Subscription(store, hub, "c"):
            assert hub.listens("c") is True
        assert hub.listens("c") is False
        assert hub._mailboxes == {}


async def test_a_slow_listener_loses_transients_and_learns_of_it_while_others_notice_nothing() -> None:
    """Past its capacity a listener keeps what it has, then gets a gap, then live events again."""
    hub = EventHub()
    async with MemoryStore() as store:
        slow = Subscription(store, hub, "c", capacity=2)
        fast = Subscription(store, hub, "c", capacity=100)
        for number in range(10):
            hub.publish(delta(number))
        assert await read(slow, 3) == [delta(0), delta(1), Gap(conversation_id="c", reason="slow")]
        hub.publish(delta(10))
        assert await read(slow, 1) == [delta(10)]
        assert await read(fast, 11) == [delta(number) for number in range(11)]


async def test_publishing_never_waits() -> None:
    """Publishing to a full mailbox is an ordinary call: it returns, whatever listeners do."""
    hub = EventHub()
    async with MemoryStore() as store:
        events = Subscription(store, hub, "c", capacity=1)
        for number in range(1000):
            hub.publish(delta(number))
        assert len(events._mailbox._events) == 1


async def test_a_durable_event_is_delivered_once() -> None:
    """The same event published twice reaches a listener once; two events of one version both do."""
    hub = EventHub()
    async with MemoryStore() as store:
        events = Subscription(store, hub, "c")
        for event in (state(1), state(1), state(1, run_id="r2"), state(2), state(1), state(3)):
            hub.publish(event)
        assert await read(events, 4) == [state(1), state(1, run_id="r2"), state(2), state(3)]


async def test_a_waiting_listener_wakes_for_the_next_event() -> None:
    """A listener that waits gets an event as soon as it is published."""
    hub = EventHub()
    found: list[RuntimeEvent | Gap] = []
    async with MemoryStore() as store, anyio.create_task_group() as tasks:
        events = Subscription(store, hub, "c")

        async def listen() -> None:
            found.extend(await read(events, 1))

        tasks.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        hub.publish(delta(1))
    assert found == [delta(1)]


async def test_a_closed_hub_ends_its_listeners_once_they_have_read() -> None:
    """After close a listener reads what it has and then ends; a new one ends at once."""
    hub = EventHub()
    async with MemoryStore() as store:
        events = Subscription(store, hub, "c")
        hub.publish(delta(1))
        hub.close()
        assert [event async for event in events] == [delta(1)]
        assert [event async for event in Subscription(store, hub, "c")] == []
