"""Schedules over lanes, in any order and under every policy.

Two runtimes on one store: crashes, lost replies, leases that lapse under a living process, recoveries, interrupts,
cancels, abandons, a provider that fails, time that passes and a wall clock that jumps.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runlane.errors import RuntimeConflictError
from runlane.runtime import AgentRuntime, InputPolicy
from runlane.store import MemoryStore
from runlane.testing import FakeClock
from tests.stateful.lane_checks import check
from tests.stateful.lane_world import CONVERSATIONS, DRIVERS, World, lost_reply, settle

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"

_PLACES = st.integers(0, 1)
_LANES = st.sampled_from(CONVERSATIONS)
_POLICIES: tuple[InputPolicy, ...] = ("queue", "inject", "interrupt", "interrupt-next", "supersede")


@dataclass(frozen=True)
class Submit:
    """An input under one of a few keys."""

    place: int
    conversation_id: str
    key: str
    policy: InputPolicy


@dataclass(frozen=True)
class Say:
    """The model says so many words, or its tool returns."""

    words: int


@dataclass(frozen=True)
class Fail:
    """The model fails at its next word, in a way that is worth repeating."""


@dataclass(frozen=True)
class Crash:
    """A process is killed, and another one takes its place."""

    place: int
    recovers: bool


@dataclass(frozen=True)
class Lapse:
    """The lease of a living process lapses."""

    place: int


@dataclass(frozen=True)
class Recover:
    """A living process takes up what others left behind."""

    place: int


@dataclass(frozen=True)
class Interrupt:
    """Somebody asks the running run of a lane to stop, durably."""

    place: int
    conversation_id: str


@dataclass(frozen=True)
class Stop:
    """A process stops what it executes on a lane."""

    place: int
    conversation_id: str


@dataclass(frozen=True)
class Cancel:
    """Somebody withdraws the first queued run of a lane."""

    place: int
    conversation_id: str


@dataclass(frozen=True)
class Abandon:
    """Somebody ends the running run of a lane, believing that its executor is gone."""

    place: int
    conversation_id: str


@dataclass(frozen=True)
class Lose:
    """The reply to a process's next commit is lost."""

    place: int


@dataclass(frozen=True)
class Wait:
    """Time passes."""

    seconds: float


@dataclass(frozen=True)
class Jump:
    """The wall clock is set."""

    seconds: float


Action = Submit | Say | Fail | Crash | Lapse | Recover | Interrupt | Stop | Cancel | Abandon | Lose | Wait | Jump

_SUBMITS = st.builds(Submit, _PLACES, _LANES, st.sampled_from("pqrstuvw"), st.sampled_from(_POLICIES))
_SAYS = st.builds(Say, st.integers(1, 6))
_ACTIONS = st.one_of(
    # Most of what happens in a world is work; the rest is what disturbs it.
    *[_SUBMITS, _SAYS] * 4,
    st.builds(Fail),
    st.builds(Crash, _PLACES, st.booleans()),
    st.builds(Lapse, _PLACES),
    st.builds(Recover, _PLACES),
    st.builds(Interrupt, _PLACES, _LANES),
    st.builds(Stop, _PLACES, _LANES),
    st.builds(Cancel, _PLACES, _LANES),
    st.builds(Abandon, _PLACES, _LANES),
    st.builds(Lose, _PLACES),
    st.builds(Wait, st.sampled_from([0.3, 2.0, 61.0])),
    st.builds(Jump, st.sampled_from([-90.0, 3600.0])),
)


async def _act(world: World, action: Action) -> None:
    match action:
        case Submit(place, conversation_id, key, policy):
            world.submit(place, conversation_id, key, policy)
        case Say(words):
            world.tap.let_out(words)
        case Fail():
            world.tap.fail()
        case Crash(place, recovers):
            await world.crash(place)
            await world.sit_down(place, recovers=recovers)
        case Wait(seconds):
            await world.pass_time(seconds)
        case Jump(seconds):
            world.clock.jump(seconds)
        case Interrupt() | Cancel() | Abandon():
            await _end(world, action)
        case _:
            _act_on(world, action)


def _act_on(world: World, action: Lapse | Recover | Lose | Stop) -> None:
    seat = world.seats[action.place]
    match action:
        case Lapse(place):
            world.lapse(place)
        case Recover():
            seat.begin(seat.runtime.recover)
        case Lose():
            seat.fail_next = lost_reply()
        case Stop(_, conversation_id):
            seat.runtime.stop(conversation_id)


async def _end(world: World, action: Interrupt | Cancel | Abandon) -> None:
    found = await world.run_of(action.conversation_id, state="queued" if isinstance(action, Cancel) else "running")
    if found is None:
        return
    call = _ending(world.seats[action.place].runtime, action, *found)
    done = anyio.Event()

    async def carry_out() -> None:
        try:
            await call()
        except RuntimeConflictError:
            pass
        finally:
            done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(carry_out)
        while not done.is_set():
            await world.pass_time(0.1)


def _ending(
    runtime: AgentRuntime, action: Interrupt | Cancel | Abandon, run_id: str, revision: int
) -> Callable[[], Awaitable[object]]:
    lane = action.conversation_id
    match action:
        case Interrupt():
            return lambda: runtime.interrupt(lane, run_id)
        case Cancel():
            return lambda: runtime.cancel(lane, run_id)
        case Abandon():
            return lambda: runtime.abandon(lane, run_id, expected_revision=revision, stale_owner=True)


async def _play(actions: list[Action], shares: bool, driver: str) -> None:  # noqa: FBT001 - handed on by position
    clock = FakeClock()
    async with MemoryStore(clock=clock) as store, anyio.create_task_group() as tasks:
        world = World(store, clock, tasks, shares, DRIVERS[driver]())
        for place in range(2):
            await world.sit_down(place, recovers=False)
        for action in actions:
            await _act(world, action)
            await settle()
        await world.finish()
        await check(world)


@pytest.mark.anyio
@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_world_in_which_nothing_happens_answers_with_texts_and_tools(driver: str) -> None:
    """Whoever answers: each input is answered by the model's own words, and tools are called on the way."""
    clock = FakeClock()
    async with MemoryStore(clock=clock) as store, anyio.create_task_group() as tasks:
        world = World(store, clock, tasks, shares=False, driver=DRIVERS[driver]())
        await world.sit_down(0, recovers=False)
        for key in "pqrs":
            await _act(world, Submit(0, CONVERSATIONS[0], key, "queue"))
            await settle()
        await world.finish()
        await check(world)
        said = (await store.load_snapshot(CONVERSATIONS[0])).messages
    assert [message.status for message in said if message.role == "assistant"] == ["completed"] * 4
    assert world.entered


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("driver", DRIVERS)
@given(actions=st.lists(_ACTIONS, max_size=25), shares=st.booleans())
@settings(max_examples=2_500 if DEEP else 125)
def test_any_schedule_ends_with_every_input_answered_once(
    backend: str, driver: str, actions: list[Action], *, shares: bool
) -> None:
    """Whatever happens in whatever order, whoever answers: nothing admitted is lost or ends twice, lanes keep order."""
    anyio.run(_play, actions, shares, driver, backend=backend)
