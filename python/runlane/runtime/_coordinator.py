"""Lanes without a store: items of one key run one at a time, items of different keys side by side.

| rule | |
|---|---|
| the next item starts only after the one before really returned or raised, never on an abort | |
| ordinary items wait in order; an `interrupt-next` item goes before them, after earlier urgent ones | A, C, D, B |
| a failing item rejects its own promises and frees the lane | |
| after `close` every submit is rejected | |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, TypeAlias, TypeVar

import anyio

from runlane.clock import Clock
from runlane.contracts import CancelToken, clock_or_system
from runlane.errors import InvalidValueError, RuntimeClosedError, UsageError
from runlane.records import QueuePriority
from runlane.runtime._host import TaskHost
from runlane.runtime._promise import Promise
from runlane.runtime._waiting import wait_at_most

__all__ = ["CloseResult", "CoordinatedRun", "LaneCoordinator", "LaneItem", "NotYet", "StopReason", "check_budget"]

_ENTER: Final = "async with LaneCoordinator() as lanes"

A = TypeVar("A")
R = TypeVar("R")

StopReason: TypeAlias = Literal["user-interrupt", "supersede", "timeout", "shutdown"]
"""Why executing work is told to stop."""


@dataclass(frozen=True, slots=True)
class CloseResult:
    """How a close went.

    Attributes:
        settled: Everything that was executing has really ended.
        timed_out: The force budget ran out first; exactly one of the two is True.
        remaining: How much was still at work; 0 exactly when settled.
    """

    settled: bool
    timed_out: bool
    remaining: int

    @classmethod
    def of(cls, remaining: int, /) -> CloseResult:
        """Return the result for that much work left."""
        return cls(settled=remaining == 0, timed_out=remaining > 0, remaining=remaining)


@dataclass(frozen=True, slots=True)
class CoordinatedRun(Generic[A, R]):
    """One submitted item.

    Attributes:
        accepted: Settles when its turn has come and its create step returned, with what that returned.
        result: Settles when its execution did, with what that returned.
    """

    key: str
    accepted: Promise[A] = field(default_factory=Promise)
    result: Promise[R] = field(default_factory=Promise)


class NotYet(Exception):  # noqa: N818 - not an error: a create step tells the lane that another item goes first
    """Raised by a create step: `first`, which waits in the same lane, must go before this item."""

    def __init__(self, first: LaneItem) -> None:
        super().__init__()
        self.first = first


@dataclass(eq=False, slots=True)
class LaneItem:
    """What a lane runs: a create step when its turn comes, then the execution.

    Attributes:
        keeps_place: It holds the lane and does not count as executing: what it is to execute is not admitted yet.
        yielded: Whether its token was tripped for the sake of another input only. An item that turns out not to be
            executing yet goes on as if nothing had happened; see `renew`.
    """

    create: Callable[[CancelToken], Awaitable[Any]]
    execute: Callable[[Any, CancelToken], Awaitable[Any]]
    accepted: Promise[Any]
    result: Promise[Any]
    priority: QueuePriority | None = None
    on_end: Callable[[], object] | None = None
    token: CancelToken = field(default_factory=CancelToken)
    keeps_place: bool = False
    yielded: bool = False

    def renew(self) -> bool:
        """Give an item that was not executing yet a new token, if another input tripped it; says whether."""
        if not self.yielded:
            return False
        self.token, self.yielded = CancelToken(), False
        return True

    def reject(self, error: Exception) -> None:
        """Settle what is not settled yet."""
        self.accepted.reject(error)
        self.result.reject(error)
        self._end()

    def resolve(self, result: object) -> None:
        """Settle the result."""
        self.result.resolve(result)
        self._end()

    def _end(self) -> None:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()


@dataclass(eq=False, slots=True)
class _Lane:
    waiting: list[LaneItem] = field(default_factory=list)
    executing: LaneItem | None = None

    @property
    def executes(self) -> bool:
        """Whether something executes that counts."""
        return self.executing is not None and not self.executing.keeps_place

    def put(self, item: LaneItem) -> None:
        """Queue an item where its priority says."""
        place = len(self.waiting)
        if item.priority == "interrupt-next":
            ordinary = (at for at, other in enumerate(self.waiting) if other.priority is None)
            place = next(ordinary, place)
        self.waiting.insert(place, item)


def check_budget(value: float | None, name: str, /) -> None:
    """Refuse a waiting time that is not a non-negative number of seconds or None.

    Raises:
        UsageError: It is no number.
        InvalidValueError: It is negative, or not a number by IEEE 754.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"must be seconds or None, not {type(value).__name__}", argument=name)
    if not value >= 0:
        raise InvalidValueError(f"must not be negative, got {value}", argument=name)


class LaneCoordinator:
    """Runs items one at a time per key; needs no store.

    Example:
        >>> async def answer(question: str) -> str:
        ...     async with LaneCoordinator() as lanes:
        ...         async def create(signal: CancelToken) -> str:
        ...             return question
        ...         async def execute(value: str, signal: CancelToken) -> str:
        ...             return value.upper()
        ...         return await lanes.submit("a lane", create=create, execute=execute).result
        >>> anyio.run(answer, "hello")
        'HELLO'
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Create a coordinator; nothing starts before it is entered.

        Args:
            clock: Measures the budgets of `close`; the system's by default.
        """
        self._clock = clock_or_system(clock)
        self._lanes: dict[str, _Lane] = {}
        self._host = TaskHost()
        self._entered = False
        self._closed = False
        self._idle: anyio.Event | None = None

    async def __aenter__(self) -> Self:
        """Start; leaving aborts what executes and waits until it has returned."""
        if self._entered:
            raise UsageError("a coordinator is entered once", argument="LaneCoordinator")
        self._entered = True
        await self._host.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Close with neither budget, unless that happened before."""
        if not self._closed:
            with anyio.CancelScope(shield=True):
                await self.close()
        await self._host.__aexit__(kind, error, traceback)

    @property
    def closed(self) -> bool:
        """Whether nothing is admitted any more."""
        return self._closed

    @property
    def executing(self) -> int:
        """How many items execute at this moment."""
        return sum(lane.executes for lane in self._lanes.values())

    def submit(
        self,
        key: str,
        /,
        *,
        create: Callable[[CancelToken], Awaitable[A]],
        execute: Callable[[A, CancelToken], Awaitable[R]],
        priority: QueuePriority | None = None,
    ) -> CoordinatedRun[A, R]:
        """Queue an item on its lane.

        Args:
            key: The lane.
            create: Runs when the item's turn has come.
            execute: Runs with what `create` returned. Both get a token that trips when the item is to stop; its
                reason is a `StopReason`.
            priority: `interrupt-next` goes before every ordinary waiting item.

        Returns:
            The item. After `close`, and before the coordinator is entered, both its promises are rejected with
            `RuntimeClosedError`.
        """
        run: CoordinatedRun[A, R] = CoordinatedRun(key)
        self.put(key, LaneItem(create, execute, run.accepted, run.result, priority))
        return run

    def put(self, key: str, item: LaneItem, /) -> None:
        """Queue an item that brings its own promises."""
        tasks = self._host.tasks
        if self._closed or tasks is None:
            closed = RuntimeClosedError("the coordinator is closed; open a new one to submit")
            item.reject(closed if self._closed else RuntimeClosedError.not_entered(_ENTER))
            return
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
            tasks.start_soon(self._work, key, lane, name=f"lane {key}")
        lane.put(item)

    def is_idle(self, key: str, /) -> bool:
        """Whether nothing waits or executes on a lane."""
        return key not in self._lanes

    def current(self, key: str, /) -> LaneItem | None:
        """Return what executes on a lane."""
        lane = self._lanes.get(key)
        return lane.executing if lane is not None and lane.executes else None

    def is_waiting(self, key: str, item: LaneItem, /) -> bool:
        """Whether an item waits on a lane."""
        lane = self._lanes.get(key)
        return lane is not None and item in lane.waiting

    def withdraw(self, key: str, item: LaneItem, result: object, /) -> bool:
        """Take a waiting item out of its lane and settle its result; False if it does not wait."""
        lane = self._lanes.get(key)
        if lane is None or item not in lane.waiting:
            return False
        lane.waiting.remove(item)
        item.accepted.resolve(result)
        item.resolve(result)
        return True

    def stop(self, key: str, reason: StopReason = "user-interrupt", /) -> bool:
        """Tell the executing item of a lane to stop; waiting items are untouched.

        Returns:
            Whether something was executing.
        """
        item = self.current(key)
        if item is None:
            return False
        item.token.cancel(reason)
        item.yielded = False
        return True

    def give_way(self, key: str, reason: StopReason, /, *, to: LaneItem | None) -> None:
        """Tell the executing item of a lane to stop because another input came in, unless it is that input's own."""
        item = self.current(key)
        if item is not None and item is not to and item.token.cancel(reason):
            item.yielded = True

    async def close(self, *, grace: float | None = None, force: float | None = None) -> CloseResult:
        """Admit nothing more, reject what waits, abort what executes, and wait for it.

        Args:
            grace: Seconds to let executing items finish by themselves before they are aborted; None or 0 aborts now.
            force: Seconds to wait after the abort; None waits until everything has really returned.

        Raises:
            UsageError, InvalidValueError: A budget is no non-negative number; then nothing was changed.
        """
        check_budget(grace, "grace")
        check_budget(force, "force")
        self._closed = True
        for lane in self._lanes.values():
            waiting, lane.waiting = lane.waiting, []
            for item in waiting:
                if item.keeps_place:
                    lane.waiting.append(item)  # it finds out by itself, as any input that is being admitted
                else:
                    item.reject(RuntimeClosedError())
        if grace and self.executing:
            await wait_at_most(self._clock, self._next_idle(), grace)
        for lane in self._lanes.values():
            if lane.executing is not None:
                lane.executing.token.cancel("shutdown")
        if self.executing:
            await wait_at_most(self._clock, self._next_idle(), force)
        return CloseResult.of(self.executing)

    def abandon(self) -> None:
        """Cancel whatever still executes; the last means, after `close` came back with work remaining."""
        self._host.cancel()

    def _next_idle(self) -> anyio.Event:
        if self._idle is None or self._idle.is_set():
            self._idle = anyio.Event()
        return self._idle

    async def _work(self, key: str, lane: _Lane) -> None:
        """Run a lane until nothing waits."""
        try:
            while lane.waiting:
                item = lane.executing = lane.waiting.pop(0)
                await self._run(lane, item)
                lane.executing = None
        finally:
            lane.executing = None
            del self._lanes[key]
            if self._idle is not None and not self.executing:
                self._idle.set()

    async def _run(self, lane: _Lane, item: LaneItem) -> None:
        try:
            value = await item.create(item.token)
            item.accepted.resolve(value)
            item.resolve(await item.execute(value, item.token))
        except NotYet as other:
            item.renew()
            behind = lane.waiting.index(other.first) + 1 if other.first in lane.waiting else 0
            lane.waiting.insert(behind, item)
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the item; the lane goes on
            item.reject(error)
        except BaseException:
            item.reject(RuntimeClosedError("the coordinator was cancelled while the item executed"))
            raise
