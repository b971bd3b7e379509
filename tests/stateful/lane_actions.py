"""What can happen in a world of lanes, one action after another, and how each is carried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import anyio
from hypothesis import strategies as st

from runlane.errors import RunlaneError, StoreBusyError, StoreCommitUnknownError, StoreUnavailableError
from runlane.runtime import Abandon as Abandoning
from runlane.runtime import AgentRuntime, InputPolicy, RecoveryDecision, Requeue, SeedPlacement
from runlane.store import Conflict
from runlane.testing import Fault
from tests.stateful.lane_world import CONVERSATIONS, Listener, World

__all__ = [
    "ACTIONS",
    "Action",
    "Say",
    "Submit",
    "act",
]

_PLACES = st.integers(0, 1)
_LANES = st.sampled_from(CONVERSATIONS)
_POLICIES: tuple[InputPolicy, ...] = ("queue", "inject", "interrupt", "interrupt-next", "supersede")


@dataclass(frozen=True)
class Submit:
    """An input under one of a few keys; `other` than the one that belongs to its key."""

    place: int
    conversation_id: str
    key: str
    policy: InputPolicy
    other: bool = False


@dataclass(frozen=True)
class Answer:
    """Somebody answers a request for consent, the newest or the oldest, whatever was said before."""

    place: int
    conversation_id: str
    newest: bool
    approved: bool


@dataclass(frozen=True)
class Seed:
    """Messages are put into a conversation, or those of an earlier seed again."""

    place: int
    conversation_id: str
    key: str
    placement: SeedPlacement


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
    """The lease of a process lapses while it lives on."""

    place: int


Decision = Literal["default", "skip", "resume", "settle", "requeue", "abandon"]


@dataclass(frozen=True)
class Recover:
    """A living process takes up what others left behind, or what it is told others left behind."""

    place: int
    decision: Decision = "default"


@dataclass(frozen=True)
class Resume:
    """A living process is told to execute the first active run of a lane, queued or not."""

    place: int
    conversation_id: str


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
    """Somebody ends the first active run of a lane, believing that its executor is gone; perhaps of an old revision."""

    place: int
    conversation_id: str
    state: Literal["queued", "running"] = "running"
    behind: int = 0


Kind = Literal["lost", "unknown", "unsent", "busy", "read"]


@dataclass(frozen=True)
class Trouble:
    """The next calls that a process makes of its store go wrong.

    Attributes:
        kind: Commits are carried out and their reply is `lost`, or nobody knows (`unknown`, or `unsent` where nothing
            was written); commits are refused (`busy`); or what is to be `read` cannot be.
        times: How many calls; a call is tried six times before it counts as failed.
    """

    place: int
    kind: Kind
    times: int = 1


@dataclass(frozen=True)
class Listen:
    """Somebody goes on listening in a process, from an event that somebody heard.

    Attributes:
        which: Whose event, and which of theirs.
        exact: Whether by that very event, or by the version that told it.
    """

    place: int
    which: int
    exact: bool


@dataclass(frozen=True)
class Wait:
    """Time passes."""

    seconds: float


@dataclass(frozen=True)
class Jump:
    """The wall clock is set."""

    seconds: float


_Ending = Interrupt | Cancel | Abandon
_OfSeat = Lapse | Recover | Resume | Trouble | Stop | Listen
Action = Submit | Answer | Seed | Say | Fail | Crash | Wait | Jump | _Ending | _OfSeat

_DECISIONS: dict[Decision, RecoveryDecision] = {
    "skip": "skip",
    "resume": "resume",
    "settle": "settle",
    "requeue": Requeue(replay_safe=True),
    "abandon": Abandoning(stale_owner=True),
}

_SUBMITS = st.builds(Submit, _PLACES, _LANES, st.sampled_from("pqrstuvw"), st.sampled_from(_POLICIES))
_SAYS = st.builds(Say, st.sampled_from([1, 2, 3, 4, 6, 9, 30]))
_ANSWERS = st.builds(Answer, _PLACES, _LANES, st.booleans(), st.booleans())
_KINDS: tuple[Kind, ...] = ("lost", "unknown", "unsent", "busy", "read")
_TROUBLES = st.builds(Trouble, _PLACES, st.sampled_from(_KINDS), st.sampled_from([1, 2, 4, 6, 9]))
_PLACEMENTS: tuple[SeedPlacement, ...] = ("lead", "after-settled")

ACTIONS = st.one_of(
    # Most of what happens in a world is work; the rest is what disturbs it.
    *[_SUBMITS, _SAYS] * 5,
    *[_ANSWERS] * 3,
    *[_TROUBLES] * 2,
    st.builds(Submit, _PLACES, _LANES, st.sampled_from("pqrs"), st.sampled_from(_POLICIES), st.just(value=True)),
    st.builds(Seed, _PLACES, _LANES, st.sampled_from("xy"), st.sampled_from(_PLACEMENTS)),
    st.builds(Listen, _PLACES, st.integers(0, 40), st.booleans()),
    st.builds(Fail),
    st.builds(Crash, _PLACES, st.booleans()),
    st.builds(Lapse, _PLACES),
    st.builds(Recover, _PLACES),
    st.builds(Recover, _PLACES, st.sampled_from(list(_DECISIONS))),
    st.builds(Resume, _PLACES, _LANES),
    st.builds(Interrupt, _PLACES, _LANES),
    st.builds(Stop, _PLACES, _LANES),
    st.builds(Cancel, _PLACES, _LANES),
    st.builds(Abandon, _PLACES, _LANES),
    st.builds(Abandon, _PLACES, _LANES, st.sampled_from(["queued", "running"]), st.integers(-1, 1)),
    st.builds(Wait, st.sampled_from([0.3, 2.0, 61.0])),
    st.builds(Jump, st.sampled_from([-90.0, 3600.0])),
)
"""Any action."""


async def act(world: World, action: Action) -> None:  # noqa: C901 - one case for each kind of action
    """Let an action happen, until everybody waits again."""
    match action:
        case Submit(place, conversation_id, key, policy, other):
            world.submit(place, conversation_id, key, policy, text=f"input {key} otherwise" if other else None)
        case Answer(place, conversation_id, newest, approved):
            await world.answer(place, conversation_id, newest=newest, approved=approved)
        case Seed(place, conversation_id, key, placement):
            await _carry_out(world, lambda: world.seed(place, conversation_id, key, placement))
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
        case Resume(_, conversation_id):
            if found := await world.run_of(conversation_id):
                _act_on(world, action, found[0])
        case _:
            _act_on(world, action)
    await world.settle()


def _act_on(world: World, action: _OfSeat, run_id: str = "") -> None:
    seat = world.seats[action.place]
    match action:
        case Lapse(place):
            world.lapse(place)
        case Recover(_, decision):
            decided = _DECISIONS.get(decision)
            seat.begin(lambda: seat.runtime.recover(decide=None if decided is None else lambda _: decided))
        case Resume(_, conversation_id):
            seat.runtime.resume(conversation_id, run_id)
        case Trouble(_, kind, times):
            faults = seat.reads if kind == "read" else seat.commits
            faults.extend([_fault(kind)] * times)
        case Stop(_, conversation_id):
            seat.runtime.stop(conversation_id)
        case Listen(place, which, exact):
            other = world.listeners[which % len(world.listeners)]
            cursor = other.cursor(which // 2)
            after = cursor if cursor is None or exact else cursor.snapshot_version
            world.listen(place, Listener(other.conversation_id, after=0 if after is None else after))


def _fault(kind: Kind) -> Fault:
    match kind:
        case "lost":
            return Fault(when="after", error=StoreUnavailableError("the reply was lost"))
        case "unknown" | "unsent":
            when: Literal["after", "before"] = "after" if kind == "unknown" else "before"
            return Fault(when=when, error=StoreCommitUnknownError("nobody knows"))
        case "busy":
            return Fault(error=StoreBusyError("too many wait"))
        case "read":
            return Fault(error=StoreUnavailableError("nothing can be read"))


async def _end(world: World, action: _Ending) -> None:
    state = action.state if isinstance(action, Abandon) else "queued" if isinstance(action, Cancel) else "running"
    if found := await world.run_of(action.conversation_id, state=state):
        await _carry_out(world, _ending(world.seats[action.place].runtime, action, *found))


async def _carry_out(world: World, call: Callable[[], Awaitable[object]]) -> None:
    """Wait for a call to be answered, with whatever time it takes; the race it loses is no failure."""
    done = anyio.Event()

    async def carry_out() -> None:
        try:
            await call()
        except RunlaneError:
            pass
        finally:
            done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(carry_out)
        while not done.is_set():
            await world.pass_time(0.1)


def _ending(runtime: AgentRuntime, action: _Ending, run_id: str, revision: int) -> Callable[[], Awaitable[object]]:
    lane = action.conversation_id
    match action:
        case Interrupt():
            return lambda: runtime.interrupt(lane, run_id)
        case Cancel():
            return lambda: runtime.cancel(lane, run_id)
        case Abandon():
            return lambda: _abandon(runtime, action, run_id, revision)


async def _abandon(runtime: AgentRuntime, action: Abandon, run_id: str, revision: int) -> None:
    expected = max(0, revision - action.behind)
    outcome = await runtime.abandon(action.conversation_id, run_id, expected_revision=expected, stale_owner=True)
    assert action.behind <= 0 or expected == revision or isinstance(outcome, Conflict)
