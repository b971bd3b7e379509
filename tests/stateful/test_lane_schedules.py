"""Schedules over lanes: two runtimes, crashes, lost replies, interrupts and a moved clock, in any order."""

from dataclasses import dataclass

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import RuntimeConflictError
from runlane.store import MemoryStore
from tests.stateful.lane_world import CONVERSATIONS, World, check, lost_reply, settle

_PLACES = st.integers(0, 1)
_LANES = st.sampled_from(CONVERSATIONS)


@dataclass(frozen=True)
class Submit:
    """An input under one of a few keys."""

    place: int
    conversation_id: str
    key: str


@dataclass(frozen=True)
class Say:
    """The model says so many words."""

    words: int


@dataclass(frozen=True)
class Crash:
    """A process is killed, and another one takes its place."""

    place: int
    recovers: bool


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
class Lose:
    """The reply to a process's next commit is lost."""

    place: int


@dataclass(frozen=True)
class Wait:
    """Time passes."""

    seconds: float


Action = Submit | Say | Crash | Interrupt | Stop | Cancel | Lose | Wait

_ACTIONS = st.one_of(
    st.builds(Submit, _PLACES, _LANES, st.sampled_from("pqr")),
    st.builds(Say, st.integers(1, 6)),
    st.builds(Crash, _PLACES, st.booleans()),
    st.builds(Interrupt, _PLACES, _LANES),
    st.builds(Stop, _PLACES, _LANES),
    st.builds(Cancel, _PLACES, _LANES),
    st.builds(Lose, _PLACES),
    st.builds(Wait, st.sampled_from([0.3, 2.0, 61.0])),
)


async def _act(world: World, action: Action) -> None:
    match action:
        case Submit(place, conversation_id, key):
            world.submit(place, conversation_id, key)
        case Say(words):
            world.tap.let_out(words)
        case Crash(place, recovers):
            await world.crash(place)
            await world.sit_down(place, recovers=recovers)
        case Lose(place):
            world.seats[place].fail_next = lost_reply()
        case Wait(seconds):
            await world.pass_time(seconds)
        case Stop(place, conversation_id):
            world.seats[place].runtime.stop(conversation_id)
        case _:
            await _end(world, action)


async def _end(world: World, action: Interrupt | Cancel) -> None:
    state = "running" if isinstance(action, Interrupt) else "queued"
    run_id = await world.run_of(action.conversation_id, state=state)
    if run_id is None:
        return
    runtime = world.seats[action.place].runtime
    call = runtime.interrupt if isinstance(action, Interrupt) else runtime.cancel
    done = anyio.Event()

    async def carry_out() -> None:
        try:
            await call(action.conversation_id, run_id)
        except RuntimeConflictError:
            pass
        finally:
            done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(carry_out)
        while not done.is_set():
            await world.pass_time(0.1)


async def _play(actions: list[Action]) -> None:
    async with MemoryStore() as store, anyio.create_task_group() as tasks:
        world = World(store, tasks)
        for place in range(2):
            await world.sit_down(place, recovers=False)
        for action in actions:
            await _act(world, action)
            await settle()
        await world.finish()
        await check(world)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(actions=st.lists(_ACTIONS, max_size=25))
def test_any_schedule_ends_with_every_input_answered_once(backend: str, actions: list[Action]) -> None:
    """Whatever happens in whatever order: nothing admitted is lost, nothing ends twice, lanes stay in order."""
    anyio.run(_play, actions, backend=backend)
