"""Writing to something slow and fallible without ever waiting for it: the sink that all sinks are.

| rule | |
|---|---|
| at most `max_pending` events wait or are being written; one more is dropped, reason `capacity` | |
| after close everything is dropped, reason `closed` | |
| a write that fails, or takes longer than `write_timeout`, is counted and reported; the others go on | |
| what the hooks raise is swallowed | |
| `flush` waits for what was admitted before it; `close` admits nothing more and waits | |
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, Literal, Self, TypeAlias, TypeVar, get_args

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from runlane.contracts import MaybeAwaitable, require_callable, require_kind, require_sync, resolve, stray_ends
from runlane.errors import InvalidValueError, UsageError

__all__ = ["BoundedSink", "DropReason", "SinkDrop", "SinkError", "SinkLimits", "SinkStatus", "let_go"]

E = TypeVar("E")

DropReason: TypeAlias = Literal["capacity", "closed"]

_PENDING: Final = 1000


@dataclass(frozen=True, slots=True)
class SinkDrop(Generic[E]):
    """An event that was not written, and why."""

    event: E
    reason: DropReason


@dataclass(frozen=True, slots=True)
class SinkError(Generic[E]):
    """An event whose preparation or write failed."""

    event: E
    error: Exception


_Count: TypeAlias = Literal[
    "received", "accepted", "filtered", "duplicates", "completed", "dropped", "failed", "preparation_failed"
]


class _Entry(Generic[E]):
    """An event on its way, and what is left of its preparation."""

    __slots__ = ("event", "is_prepared", "number", "preparation")

    def __init__(self, number: int, event: E, preparation: Awaitable[E | None] | None = None) -> None:
        self.number = number
        self.event = event
        self.preparation = preparation
        self.is_prepared = preparation is None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """What became of the events of a sink.

    Every received event is in exactly one of `filtered`, `duplicates`, `preparing`, `preparation_failed`, `pending`,
    `completed`, `failed` and `dropped`.

    Attributes:
        capacity: How many may be pending.
        accepted: Admitted to be written.
        filtered: Left out by the projection or the filter.
        duplicates: Left out because they came before.
        completed, failed: Of the accepted: written, or tried to.
        dropped: Not written, because there was no room or the sink was closed; also what was accepted and not written
            when the time to close ran out.
        preparation_failed: The projection or filter failed, or gave something that is no event.
        preparing: Being projected or filtered at this moment.
        pending: Admitted and not written yet.
    """

    capacity: int
    received: int = 0
    accepted: int = 0
    filtered: int = 0
    duplicates: int = 0
    completed: int = 0
    dropped: int = 0
    failed: int = 0
    preparation_failed: int = 0
    preparing: int = 0
    pending: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLimits:
    """The bounds of a sink.

    Attributes:
        max_pending: Events that wait or are being written at most; 1,000.
        concurrency: Writes at the same time; 1, which keeps their order. More does not.
        write_timeout: Seconds one write may take before it counts as failed; 30. None waits for ever, and a write that
            hangs then fills the sink for good.
        close_timeout: Seconds that leaving the sink's context waits for what is pending; 5. None waits for all of it.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    max_pending: int = _PENDING
    concurrency: int = 1
    write_timeout: float | None = 30.0
    close_timeout: float | None = 5.0

    def __post_init__(self) -> None:
        for name in ("max_pending", "concurrency"):
            count: object = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int):
                raise UsageError("must be an integer", argument=name)
            if count < 1:
                raise InvalidValueError("must be at least 1", argument=name)
        for name in ("write_timeout", "close_timeout"):
            seconds: object = getattr(self, name)
            if seconds is None:
                continue
            if isinstance(seconds, bool) or not isinstance(seconds, int | float):
                raise UsageError("must be a number of seconds or None", argument=name)
            if not seconds >= 0:
                raise InvalidValueError("must not be negative", argument=name)


class BoundedSink(Generic[E]):
    """Takes events at once and writes them in the background; enter it before the first one.

    Events are taken on the event loop the sink was entered on.
    """

    def __init__(
        self,
        write: Callable[[E], MaybeAwaitable[object]],
        /,
        *,
        limits: SinkLimits,
        prepare: Callable[[E], MaybeAwaitable[E | None]] | None = None,
        check: Callable[[E], object] | None = None,
        on_drop: Callable[[SinkDrop[E]], object] | None = None,
        on_sink_error: Callable[[SinkError[E]], object] | None = None,
    ) -> None:
        """Prepare a sink; nothing starts before it is entered.

        Args:
            write: Brings one event to where it belongs; a plain function must not block.
            limits: How much may wait, and for how long.
            prepare: Changes an event before it is written, or leaves it out by returning None.
            check: Raises if what `prepare` returned is no event.
            on_drop: Told of events that are not written; a plain function.
            on_sink_error: Told of events that failed; a plain function.

        Raises:
            UsageError: A function is none, or a hook is a coroutine function.
        """
        for name, function in (("write", write), ("prepare", prepare or write)):
            if not callable(function):
                raise UsageError("must be callable", argument=name)
        require_callable(check, argument="check")
        for name, hook in (("on_drop", on_drop), ("on_sink_error", on_sink_error)):
            if hook is not None:
                require_sync(hook, argument=name)
        self._write = write
        self._limits = require_kind(limits, SinkLimits, argument="limits")
        self._prepare = prepare
        self._check = check
        self._on_drop = on_drop
        self._on_sink_error = on_sink_error
        self._tasks: TaskGroup | None = None
        self._scopes: set[anyio.CancelScope] = set()
        self._over = False
        self._queue: deque[_Entry[E]] = deque()
        self._open: dict[int, _Entry[E]] = {}
        self._changed: anyio.Event | None = None
        self._number = 0
        self._workers = 0
        self._preparing = 0
        self._counts: dict[_Count, int] = dict.fromkeys(get_args(_Count), 0)
        self._closed = False

    async def __aenter__(self) -> Self:
        """Start to write."""
        if self._tasks is not None or self._closed:
            raise UsageError("a sink is entered once; make a new one", argument=type(self).__name__)
        tasks = anyio.create_task_group()
        self._tasks = await tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Close, and give up what is not written by then."""
        with anyio.CancelScope(shield=True):
            await self._finish(self._limits.close_timeout)
        self._over = True
        for scope in self._scopes:
            scope.cancel()
        if self._tasks is not None:
            await self._tasks.__aexit__(None, None, None)
        for entry in list(self._open.values()):
            if entry.preparation is not None:
                let_go(entry.preparation)
            self._settle(entry, "dropped")
            self._tell_drop(entry.event, "closed")

    @property
    def closed(self) -> bool:
        """Whether nothing more is admitted."""
        return self._closed

    @property
    def status(self) -> SinkStatus:
        """What became of the events so far."""
        return SinkStatus(
            capacity=self._limits.max_pending,
            preparing=self._preparing,
            pending=len(self._open) - self._preparing,
            closed=self._closed,
            **self._counts,
        )

    def require_entered(self) -> TaskGroup:
        """Return where writers run.

        Raises:
            UsageError: The sink was not entered yet.
        """
        if self._tasks is None:
            raise UsageError("enter the sink with `async with` first", argument=type(self).__name__)
        return self._tasks

    def leave_out(self, count: Literal["filtered", "duplicates"], /) -> None:
        """Count an event that came and is not written, on purpose."""
        self._counts["received"] += 1
        self._counts[count] += 1

    def offer(self, event: E, /) -> None:
        """Take an event; never waits, and raises nothing once the sink was entered.

        Raises:
            UsageError: The sink was not entered yet.
        """
        tasks = self.require_entered()
        self._counts["received"] += 1
        if self._closed:
            self._drop(event, "closed")
            return
        prepared: MaybeAwaitable[E | None] = event
        if self._prepare is not None:
            try:
                prepared = self._prepare(event)
                if not inspect.isawaitable(prepared):
                    self._checked(prepared)
            except Exception as error:  # noqa: BLE001 - a sink fails alone
                self._fail(event, error, "preparation_failed")
                return
        self._enqueue(tasks, event, prepared)

    def _enqueue(self, tasks: TaskGroup, event: E, prepared: MaybeAwaitable[E | None]) -> None:
        waits = inspect.isawaitable(prepared)
        if prepared is None:
            self._counts["filtered"] += 1
        elif len(self._open) >= self._limits.max_pending:
            if waits:
                let_go(prepared)
            self._drop(event, "capacity")
        else:
            self._number += 1
            if inspect.isawaitable(prepared):
                self._preparing += 1
                entry = _Entry(self._number, event, prepared)
            else:
                self._counts["accepted"] += 1
                entry = _Entry(self._number, prepared)
            self._open[entry.number] = entry
            self._queue.append(entry)
            self._start(tasks)

    def _start(self, tasks: TaskGroup) -> None:
        if self._workers < self._limits.concurrency:
            self._workers += 1
            tasks.start_soon(self._work, name=f"{type(self).__name__} writer")

    async def flush(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - a bound is no cancellation
        """Wait for everything that was taken before.

        Args:
            timeout: Seconds to wait at most, or None.

        Returns:
            Whether all of it was settled in time.
        """
        last = self._number
        with anyio.move_on_after(timeout):
            while self._is_open(last):
                if self._changed is None:
                    self._changed = anyio.Event()
                await self._changed.wait()
        return not self._is_open(last)

    async def close(self, timeout: float | None = None) -> SinkStatus:  # noqa: ASYNC109 - likewise
        """Admit nothing more and wait for what is pending; idempotent.

        Args:
            timeout: Seconds to wait at most, or None.

        Returns:
            What became of everything; `pending` is what was not settled in time.
        """
        await self._finish(timeout)
        return self.status

    async def _finish(self, seconds: float | None) -> None:
        self._closed = True
        await self.flush(seconds)

    def _is_open(self, last: int) -> bool:
        """Whether something taken up to a number is not settled; the oldest comes first."""
        return next(iter(self._open), last + 1) <= last

    async def _work(self) -> None:
        """Write until nothing waits. Shielded, because how the surroundings ended is written, too."""
        scope = anyio.CancelScope(shield=True)
        self._scopes.add(scope)
        try:
            with scope:
                while self._queue and not self._over:
                    await self._carry(self._queue.popleft())
                    # A write that never waits would otherwise keep every other task waiting.
                    await anyio.lowlevel.checkpoint()
        finally:
            self._scopes.discard(scope)
            self._workers -= 1
            if self._queue and not self._over and self._tasks is not None:
                self._start(self._tasks)

    async def _carry(self, entry: _Entry[E]) -> None:
        failed: _Count = "failed"
        try:
            with anyio.fail_after(self._limits.write_timeout), stray_ends("write"):
                event: E | None = entry.event
                if entry.preparation is not None:
                    failed = "preparation_failed"
                    event = self._checked(await entry.preparation)
                    self._prepared(entry)
                    failed = "failed"
                if event is None:
                    self._settle(entry, "filtered")
                    return
                if entry.preparation is not None:
                    self._counts["accepted"] += 1
                await resolve(self._write(event))
        except Exception as error:  # noqa: BLE001 - a sink fails alone
            self._settle(entry, None)
            self._fail(entry.event, error, failed)
        except BaseException:
            # Given up by the end of the sink, which counts it; or by somebody else, then it failed.
            if not self._over:
                self._settle(entry, failed)
            raise
        else:
            self._settle(entry, "completed")

    def _checked(self, event: E | None) -> E | None:
        if event is not None and self._check is not None:
            self._check(event)
        return event

    def _prepared(self, entry: _Entry[E]) -> None:
        if not entry.is_prepared:
            entry.is_prepared = True
            self._preparing -= 1

    def _settle(self, entry: _Entry[E], count: _Count | None) -> None:
        self._prepared(entry)
        if self._open.pop(entry.number, None) is None:
            return
        if count is not None:
            self._counts[count] += 1
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _drop(self, event: E, reason: DropReason) -> None:
        self._counts["dropped"] += 1
        self._tell_drop(event, reason)

    def _tell_drop(self, event: E, reason: DropReason) -> None:
        if self._on_drop is not None:
            with suppress(Exception), stray_ends("on_drop"):  # nobody is left to tell
                self._on_drop(SinkDrop(event, reason))

    def _fail(self, event: E, error: Exception, count: _Count) -> None:
        self._counts[count] += 1
        if self._on_sink_error is not None:
            with suppress(Exception), stray_ends("on_sink_error"):  # nobody is left to tell
                self._on_sink_error(SinkError(event, error))


def let_go(value: object, /) -> None:
    """Let go of something awaitable that nobody will await."""
    close = getattr(value, "close", None)
    if callable(close):
        with suppress(Exception):  # what a foreign coroutine does on closing concerns nobody
            close()
