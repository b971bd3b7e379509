"""Sleeps, waits and deliveries: moments and payloads that are on record."""

# ruff: noqa: ANN401 - payloads are any JSON

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from runlane.contracts import CancelToken
from runlane.durability import StepRunOptions
from runlane.errors import AbortedError, InvalidValueError, ParkAbortedError, UsageError
from runlane.store import MemoryStore
from runlane.testing import FakeClock
from tests.durability.scenes import durable, ledger, put

pytestmark = pytest.mark.anyio

START_MS = 1_767_225_600_000
"""Where the fake clock starts."""


async def test_a_sleep_waits_until_the_moment_on_record() -> None:
    """A process that died in the middle waits only the rest; one that comes late waits no more."""
    clock = FakeClock()
    async with MemoryStore() as store:
        async with anyio.create_task_group() as dying:
            dying.start_soon(durable(store, clock=clock).sleep, 10)
            await anyio.wait_all_tasks_blocked()
            dying.cancel_scope.cancel()
        assert await ledger(store) == [
            ("durability/park", {"run_id": "run", "kind": "sleep", "name": "sleep:10", "deadline": START_MS + 10_000})
        ]
        clock.tick(6)
        slept: list[float] = []

        async def sleep() -> None:
            await durable(store, clock=clock).sleep(10.0)
            slept.append(clock.monotonic())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleep)
            await anyio.wait_all_tasks_blocked()
            clock.tick(3.5)
            await anyio.wait_all_tasks_blocked()
            assert slept == []
            clock.tick(0.5)
        assert slept == [10]
        await durable(store, clock=clock).sleep(10)
        assert len(await ledger(store)) == 1


async def test_two_sleeps_of_equal_length_need_names() -> None:
    """Without one they are the same sleep."""
    async with MemoryStore() as store:
        durability = durable(store)
        for name in (None, None, "other"):
            await durability.sleep(0, name)
        assert [payload["name"] for _, payload in await ledger(store)] == ["sleep:0", "other"]


async def test_an_aborted_sleep_leaves_its_park() -> None:
    """Tripped before or during the wait: the moment is on record, and the reason is told."""
    token, clock = CancelToken(), FakeClock()
    async with MemoryStore() as store:
        caught: list[ParkAbortedError] = []

        async def sleep(name: str) -> None:
            try:
                await durable(store, signal=token, clock=clock).sleep(5, name)
            except ParkAbortedError as error:
                caught.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleep, "during")
            await anyio.wait_all_tasks_blocked()
            token.cancel("enough")
        await sleep("before")
        assert [(error.park_name, error.reason) for error in caught] == [("during", "enough"), ("before", "enough")]
        assert all(isinstance(error, AbortedError) for error in caught)
        assert [payload["name"] for _, payload in await ledger(store)] == ["during", "before"]


async def test_the_last_park_of_a_name_counts() -> None:
    """A later record of the same sleep moves its moment."""
    async with MemoryStore() as store:
        for deadline in (2**53 - 1, 0):
            await put(store, "durability/park", run_id="run", kind="sleep", name="n", deadline=deadline)
        await durable(store).sleep(100, "n")


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e300, 10**400, "5", None, True])
async def test_a_length_that_is_none_is_refused(seconds: Any) -> None:
    """At once, with nothing on record."""
    async with MemoryStore() as store:
        with pytest.raises((UsageError, InvalidValueError), match="seconds"):
            await durable(store).sleep(seconds, "n")
        assert await ledger(store) == []


async def test_a_delivery_may_come_first() -> None:
    """Who waits afterwards finds it, from whichever process; no park is written."""
    async with MemoryStore() as store:
        await durable(store).deliver("paid", "42", {"by": "card"})
        assert await durable(store).wait_for("paid", "42") == {"by": "card"}
        assert [kind for kind, _ in await ledger(store)] == ["durability/event"]


async def test_a_waiter_is_woken_by_its_own_delivery() -> None:
    """Another event, another id and another run wake nobody; the park is written once."""
    async with MemoryStore() as store:
        got: list[object] = []

        async def wait() -> None:
            got.append(await durable(store).wait_for("paid", "1"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await durable(store).deliver("paid", "2", "no")
            await durable(store).deliver("sent", "1", "no")
            await durable(store, "other").deliver("paid", "1", "no")
            await anyio.wait_all_tasks_blocked()
            assert got == []
            await durable(store).deliver("paid", "1", "yes")
        assert got == ["yes", "yes"]


async def test_the_first_delivery_stands() -> None:
    """A second one writes nothing, and of two records the first counts."""
    async with MemoryStore() as store:
        await durable(store).deliver("e", "i", "first")
        await durable(store).deliver("e", "i", "second")
        assert len(await ledger(store)) == 1
        await put(store, "durability/event", run_id="run", event="e", id="i", encoded='"third"')
        assert await durable(store).wait_for("e", "i") == "first"


async def test_an_absent_payload_is_null() -> None:
    """It is delivered as None."""
    async with MemoryStore() as store:
        await durable(store).deliver("e", "i")
        assert await durable(store).wait_for("e", "i") is None


@pytest.mark.parametrize("payload", [float("nan"), -0.0, (1,), {1: 1}, object()])
async def test_a_payload_that_is_no_lossless_json_is_refused(payload: Any) -> None:
    """Before anything is written."""
    async with MemoryStore() as store:
        with pytest.raises(UsageError, match="payload"):
            await durable(store).deliver("e", "i", payload)
        assert await ledger(store) == []


async def test_an_aborted_wait_writes_nothing_and_a_later_delivery_works() -> None:
    """Tripped beforehand there is no park; tripped while waiting there is one, and the event still arrives."""
    token = CancelToken()
    async with MemoryStore() as store:
        caught: list[object] = []

        async def wait() -> None:
            try:
                await durable(store).wait_for("e", "i", options=StepRunOptions(signal=token))
            except ParkAbortedError as error:
                caught.append(error.reason)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            token.cancel("enough")
        before = await ledger(store)
        await wait()
        assert caught == ["enough", "enough"]
        assert await ledger(store) == before
        await durable(store).deliver("e", "i", 1)
        assert await durable(store).wait_for("e", "i") == 1


async def test_what_another_process_delivers_is_noticed_by_subscription() -> None:
    """Whoever is subscribed reads again when told to, and ends its subscription."""
    told: list[Callable[[], None]] = []

    def subscribe(wake: Callable[[], None]) -> Callable[[], None]:
        told.append(wake)
        return lambda: told.remove(wake)

    async with MemoryStore() as store:
        got: list[object] = []

        async def wait() -> None:
            got.append(await durable(store, subscribe=subscribe).wait_for("e", "i"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            told[0]()
            await anyio.wait_all_tasks_blocked()
            await put(store, "durability/event", run_id="run", event="e", id="i", encoded="5")
            told[0]()
        assert (got, told) == ([5], [])
