"""Durable work is cancelled at every await it has: what is on record is not done again, and what is not, is."""

# ruff: noqa: ANN401 - as the scenes are

from __future__ import annotations

from typing import Any

import anyio
import pytest
from typing_extensions import override

from runlane.durability import Effect
from runlane.store import EventPage, MemoryStore, ReadEvents
from tests.cancelling import at_every_await
from tests.durability.scenes import Counting, durable, ledger

pytestmark = pytest.mark.anyio


class Slow(MemoryStore):
    """A store that waits before and after it does anything."""

    @override
    async def append_event(self, **facts: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        appended = await super().append_event(**facts)
        await anyio.lowlevel.checkpoint()
        return appended

    @override
    async def read_events(self, query: ReadEvents, /) -> EventPage:
        await anyio.lowlevel.checkpoint()
        page = await super().read_events(query)
        await anyio.lowlevel.checkpoint()
        return page


async def test_a_step_cancelled_at_any_await() -> None:
    """One that ran to its end is on record; the next caller gets the result, and the body is entered at most twice."""

    async def play(doing: Any) -> None:
        body = Counting()

        async def slowly() -> Any:
            await anyio.lowlevel.checkpoint()
            return await body()

        async with Slow() as store:
            with anyio.CancelScope() as scope:
                await doing(lambda: durable(store).step("s", slowly), scope.cancel)
            recorded = len(await ledger(store))
            assert recorded == body.entered
            assert await durable(store).step("s", slowly) == "done"
            assert body.entered == 1
            assert len(await ledger(store)) == 1

    assert await at_every_await(play) >= 3


async def test_an_effect_cancelled_at_any_await_happens_at_most_once() -> None:
    """What was begun is only looked at afterwards."""

    async def play(doing: Any) -> None:
        run, look = Counting("ran"), Counting("seen")

        async def slowly() -> Any:
            await anyio.lowlevel.checkpoint()
            return await run()

        effect = Effect(run=slowly, reconcile=look)
        async with Slow() as store:
            with anyio.CancelScope() as scope:
                await doing(lambda: durable(store).effect("e", effect), scope.cancel)
            was_begun = bool(await ledger(store))
            outcome = await durable(store).effect("e", effect)
            assert outcome.status == "accepted"
            assert run.entered <= 1
            assert look.entered <= was_begun

    assert await at_every_await(play) >= 3


async def test_a_wait_cancelled_at_any_await_still_gets_its_delivery() -> None:
    """It leaves no waiter behind, and at most one park."""

    async def play(doing: Any) -> None:
        async with Slow() as store:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:

                    async def deliver() -> None:
                        await anyio.wait_all_tasks_blocked()
                        await durable(store).deliver("e", "i", 7)

                    tasks.start_soon(deliver)
                    await doing(lambda: durable(store).wait_for("e", "i"), scope.cancel)
            await durable(store).deliver("e", "i", 8)
            expected = 8 if scope.cancelled_caught and len(await ledger(store)) < 2 else None
            found = await durable(store).wait_for("e", "i")
            assert found in {7, 8}
            assert expected in {None, found}
            parks = [payload for kind, payload in await ledger(store) if kind == "durability/park"]
            assert len(parks) <= 1

    assert await at_every_await(play) >= 2
