"""Schedules over lanes, in any order and under every policy.

Two runtimes on one store: crashes, stretches of commits whose reply is lost, that are refused or of which nobody knows,
reads that fail, leases that lapse under a living process, recoveries, resumptions, interrupts, cancels, abandons,
consent given and refused, seeds, keys used again, compaction, a provider that fails, time that passes and a wall clock
that jumps.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runlane.store import MemoryStore
from runlane.testing import FakeClock
from tests.stateful.lane_actions import ACTIONS, Action, Submit, act
from tests.stateful.lane_checks import check
from tests.stateful.lane_model import DRIVERS, Facts
from tests.stateful.lane_world import CONVERSATIONS, World, open_file

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"


async def _play(actions: list[Action], facts: Facts, path: Path | None = None) -> None:
    clock = FakeClock()
    opened = MemoryStore(clock=clock) if path is None else open_file(path, clock)
    async with opened as store, anyio.create_task_group() as tasks:
        world = World(store, clock, tasks, facts, path)
        await world.begin()
        for action in actions:
            await act(world, action)
        await world.finish()
        await check(world)


@pytest.mark.anyio
@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_world_in_which_nothing_happens_answers_with_texts_and_tools(driver: str) -> None:
    """Whoever answers: each input is answered by the model's own words, and tools are called on the way."""
    clock = FakeClock()
    async with MemoryStore(clock=clock) as store, anyio.create_task_group() as tasks:
        world = World(store, clock, tasks, Facts(driver=driver))
        await world.sit_down(0, recovers=False)
        for key in "pqrs":
            await act(world, Submit(0, CONVERSATIONS[0], key, "queue"))
        await world.finish()
        await check(world)
        said = (await store.load_snapshot(CONVERSATIONS[0])).messages
    assert [message.status for message in said if message.role == "assistant"] == ["completed"] * 5
    assert world.entered


def facts(driver: str) -> st.SearchStrategy[Facts]:
    """Return the worlds in which somebody answers the runs."""
    return st.builds(
        Facts,
        driver=st.just(driver),
        shares=st.booleans(),
        asks=st.booleans(),
        compacts=st.booleans(),
        reuse=st.sampled_from(["return", "refuse"]),
        past=st.integers(0, 3),
    )


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("driver", DRIVERS)
@given(data=st.data(), actions=st.lists(ACTIONS, max_size=25))
@settings(max_examples=2_500 if DEEP else 125)
def test_any_schedule_ends_with_every_input_answered_once(
    backend: str, driver: str, data: st.DataObject, actions: list[Action]
) -> None:
    """Whatever happens in whatever order, whoever answers: nothing admitted is lost or ends twice, lanes keep order."""
    anyio.run(_play, actions, data.draw(facts(driver)), backend=backend)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(data=st.data(), actions=st.lists(ACTIONS, max_size=25))
@settings(max_examples=100 if DEEP else 8)
def test_any_schedule_of_processes_with_a_store_each_on_one_file(
    backend: str, data: st.DataObject, actions: list[Action]
) -> None:
    """The same where every process opens the file by itself, and learns from the file what others did."""
    world = data.draw(st.sampled_from(list(DRIVERS)).flatmap(facts))
    with TemporaryDirectory() as folder:
        anyio.run(_play, actions, world, Path(folder) / "lanes.sqlite", backend=backend)
