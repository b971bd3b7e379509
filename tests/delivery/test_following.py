"""A subscription follows what others commit: another runtime on the store, another process on the file."""

import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from runlane.delivery import (
    CheckpointEvent,
    DurableEvent,
    EventHub,
    Gap,
    RuntimeEvent,
    Subscription,
    TerminalEvent,
    fold_events,
)
from runlane.models import TextDelta
from runlane.runtime import AgentRuntime
from runlane.store import MemoryStore, ReadEvents, Store
from runlane.store.sqlite import SqliteStore
from runlane.testing import Fault, ScriptedModel
from tests.runtime.scenes import CONVERSATION, held_after, looped, opened

pytestmark = pytest.mark.anyio


async def _until_ends(events: Subscription, count: int) -> list[RuntimeEvent]:
    """Read until so many runs have ended."""
    found: list[RuntimeEvent] = []
    with anyio.fail_after(30):
        while count:
            event = await anext(events)
            assert not isinstance(event, Gap)
            found.append(event)
            count -= isinstance(event, TerminalEvent)
    return found


def _ids(events: list[RuntimeEvent]) -> list[str]:
    return [event.event_id for event in events if isinstance(event, DurableEvent)]


async def _in_ledger(store: Store) -> list[str]:
    page = await store.read_events(ReadEvents(conversation_id=CONVERSATION, limit=1000))
    return [event.event_id for entry in page.items for event in fold_events(entry)]


@asynccontextmanager
async def _two_on(path: Path, *models: ScriptedModel) -> AsyncIterator[tuple[AgentRuntime, AgentRuntime, SqliteStore]]:
    """Two runtimes, each with a store object of its own, on one file."""
    async with (
        SqliteStore(path) as one,
        SqliteStore(path) as two,
        AgentRuntime(one, model=models[0]) as first,
        AgentRuntime(two, model=models[-1]) as second,
    ):
        yield first, second, one


async def test_a_listener_hears_the_whole_run_of_another_runtime(tmp_path: Path) -> None:
    """Every durable event of a run that executes elsewhere arrives live, once and in order, its answer at the end."""
    async with _two_on(tmp_path / "s.db", ScriptedModel("Hello!")) as (here, there, store):
        async with here.subscribe(CONVERSATION) as events:
            result = await there.submit(CONVERSATION, "Hi").result
            found = await _until_ends(events, 1)
        assert _ids(found) == await _in_ledger(store)
    assert isinstance(found[-1], TerminalEvent)
    assert found[-1].message == result.message


async def test_turns_of_two_runtimes_are_heard_in_one_order_by_both(tmp_path: Path) -> None:
    """Turns that alternate between two runtimes are heard in both, every durable event once and in order."""
    async with _two_on(tmp_path / "s.db", ScriptedModel("a"), ScriptedModel("b")) as (one, two, store):
        async with one.subscribe(CONVERSATION) as first, two.subscribe(CONVERSATION, after=0) as second:
            for number in range(3):
                await one.submit(CONVERSATION, f"a{number}").result
                await two.submit(CONVERSATION, f"b{number}").result
            heard_first, heard_second = await _until_ends(first, 6), await _until_ends(second, 6)
        ledger = await _in_ledger(store)
    assert _ids(heard_first) == ledger
    assert _ids(heard_second) == ledger


async def test_an_input_that_comes_in_elsewhere_is_heard_before_what_is_committed_here_after_it() -> None:
    """A commit here reveals what others committed before it: no event overtakes an earlier one."""
    hold, model = held_after("Once")
    async with MemoryStore() as store, opened(model, store=store) as one, opened(model, store=store) as two:
        async with one.runtime.subscribe(CONVERSATION) as events:
            ticket = one.runtime.submit(CONVERSATION, "first")
            own = ticket.events()
            await hold.reached()
            other = two.runtime.submit(CONVERSATION, "second")
            await other.admission
            hold.release()
            await other.result
            found = await _until_ends(events, 2)
        assert _ids(found) == await _in_ledger(store)
        # The listener to one run is shown that run only.
        assert {event.run_id for event in await _until_ends(own, 1)} == {ticket.run_id}


async def test_an_interrupt_from_elsewhere_is_told_to_who_listens_to_the_run() -> None:
    """The request another runtime wrote is among the run's events, before its end."""
    hold, model = held_after("half ")
    async with MemoryStore() as store, opened(model, store=store) as one, opened(model, store=store) as two:
        ticket = one.runtime.submit(CONVERSATION, "first")
        async with one.runtime.subscribe(CONVERSATION, run_id=ticket.run_id) as events:
            await hold.reached()
            await two.runtime.interrupt(CONVERSATION, ticket.run_id)
            states: list[str] = []
            with anyio.fail_after(10):
                async for event in events:
                    states.append(getattr(event, "state", event.type))
                    if "interrupt_requested" in states:
                        break
            hold.release()
            assert (await ticket.result).reason == "interrupted"


async def test_what_another_process_commits_is_heard(tmp_path: Path) -> None:
    """A child process answers an input in the same file; a listener here hears its admission and its answer."""
    path = tmp_path / "s.db"
    async with SqliteStore(path) as store, AgentRuntime(store, model=ScriptedModel("here")) as runtime:
        async with runtime.subscribe(CONVERSATION) as events:
            with anyio.fail_after(60):
                await anyio.run_process([sys.executable, "-c", _CHILD, str(path), CONVERSATION])
            found = await _until_ends(events, 1)
        assert _ids(found) == await _in_ledger(store)
    assert isinstance(found[-1], TerminalEvent)
    assert found[-1].message.text == "from the child"


_CHILD = """
import sys
from runlane import BlockingRuntime, SqliteStore
from runlane.testing import ScriptedModel

with BlockingRuntime(SqliteStore(sys.argv[1]), model=ScriptedModel("from the child")) as runtime:
    runtime.ask(sys.argv[2], "Hi")
"""


async def test_a_store_that_fails_for_a_while_costs_a_listener_nothing() -> None:
    """Looking is tried again: what was committed meanwhile is heard once the store answers."""
    async with MemoryStore() as store, opened(ScriptedModel("a"), store=store) as one:
        async with opened(ScriptedModel("b"), store=store) as two, one.runtime.subscribe(CONVERSATION) as events:
            one.store.plan = lambda call: Fault() if call.method == "load_head" else None
            await two.runtime.submit(CONVERSATION, "Hi").result
            await anyio.wait_all_tasks_blocked()
            one.store.plan = None
            await one.clock.advance(1.0)
            found = await _until_ends(events, 1)
        assert _ids(found) == await _in_ledger(store)


async def test_own_commits_cost_a_listener_no_reading_of_the_ledger() -> None:
    """What is told here is not looked up as well."""
    async with opened(ScriptedModel("a")) as scene, scene.runtime.subscribe(CONVERSATION) as events:
        for number in range(3):
            await scene.runtime.submit(CONVERSATION, str(number)).result
        await _until_ends(events, 3)
        assert scene.store.count("read_events") == 0


async def test_an_answer_that_commits_many_times_has_the_store_asked_a_few_times() -> None:
    """Who follows does not ask the store again behind each of 200 commits that were made here one after the other."""
    model = ScriptedModel([TextDelta("word ") for _ in range(200)])
    config = looped(checkpoint_every_events=1)
    async with opened(model, config=config) as scene, scene.runtime.subscribe(CONVERSATION) as events:
        await scene.runtime.submit(CONVERSATION, "Hi").result
        found = await _until_ends(events, 1)
        assert sum(isinstance(event, CheckpointEvent) for event in found) >= 200
        assert scene.store.count("wait_for_change") < 100


async def test_a_conversation_is_followed_by_one_task_until_its_last_listener_leaves() -> None:
    """Nothing of a subscription is left once it is closed, nor once the runtime is."""
    async with opened(ScriptedModel("a")) as scene:
        followers = scene.runtime._followers
        async with scene.runtime.subscribe(CONVERSATION), scene.runtime.subscribe(CONVERSATION):
            await anyio.wait_all_tasks_blocked()
            assert list(followers._followed) == [CONVERSATION]
        assert followers._followed == {}
        left_open = scene.runtime.subscribe(CONVERSATION)
        await anyio.wait_all_tasks_blocked()
    assert [event async for event in left_open] == []
    assert followers._followed == {}


async def test_a_listener_that_is_dropped_without_being_closed_leaves_no_mailbox() -> None:
    """Breaking out of the iteration and forgetting the subscription is enough."""
    hub = EventHub()
    async with MemoryStore() as store:
        events = Subscription(store, hub, CONVERSATION)
        assert hub.listens(CONVERSATION) is True
        del events
        gc.collect()
        assert hub.listens(CONVERSATION) is False


async def test_a_subscription_made_before_the_runtime_is_entered_follows_too() -> None:
    """Listening begins when it is made, following when the runtime starts."""
    async with MemoryStore() as store, opened(ScriptedModel("b"), store=store) as other:
        runtime = AgentRuntime(store, model=ScriptedModel("a"))
        events = runtime.subscribe(CONVERSATION, after=0)
        async with runtime:
            await other.runtime.submit(CONVERSATION, "Hi").result
            found = await _until_ends(events, 1)
        assert _ids(found) == await _in_ledger(store)
