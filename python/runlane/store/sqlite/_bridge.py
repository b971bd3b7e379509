"""Results from threads to tasks, on whichever event loop the task runs.

A hop through `anyio.to_thread` for each operation costs more than the operation. Here a task waits for an event, and
a thread sets many of them with one call into the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

import anyio
from anyio.lowlevel import current_token

__all__ = ["Post", "Reply", "deliver", "post_to_this_loop"]

T = TypeVar("T")

Post: TypeAlias = Callable[[Callable[[], None]], object]
"""Runs a function soon, in the event loop's thread; may be called from any thread."""


class _Asyncio(Protocol):
    def call_soon_threadsafe(self, function: Callable[[], None], /) -> object: ...


class _Future(Protocol):
    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...
    def __await__(self) -> Generator[object, None, None]: ...


class _Trio(Protocol):
    def run_sync_soon(self, function: Callable[[], None], /) -> object: ...


def post_to_this_loop() -> Post:
    """Return how to reach the running event loop from other threads."""
    return _post_to(current_token().native_token)


def _post_to(native: object) -> Post:
    if hasattr(native, "call_soon_threadsafe"):
        return cast("_Asyncio", native).call_soon_threadsafe
    return cast("_Trio", native).run_sync_soon


class Reply(Generic[T]):
    """What one task waits for. A thread settles it, `deliver` wakes the task."""

    __slots__ = ("_error", "_event", "_future", "_result", "post")

    def __init__(self) -> None:
        native = current_token().native_token
        # asyncio's own future costs a fifth of an event made of two layers.
        make: Callable[[], _Future] | None = getattr(native, "create_future", None)
        self._future = None if make is None else make()
        self._event = anyio.Event() if self._future is None else None
        self.post = _post_to(native)
        self._result: T | None = None
        self._error: BaseException | None = None

    def succeed(self, result: T, /) -> None:
        """Settle with a result; it replaces an error of an earlier try."""
        self._result = result
        self._error = None

    def fail(self, error: BaseException, /) -> None:
        """Settle with an error; it replaces a result that was not delivered yet."""
        self._error = error

    @property
    def failed(self) -> bool:
        """Whether it is settled with an error."""
        return self._error is not None

    def wake(self) -> None:
        """Wake the task. Only in the loop's thread."""
        if self._event is not None:
            self._event.set()
        elif self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> T:
        """Wait to be woken and return the result."""
        if self._future is not None:
            await self._future
        elif self._event is not None:
            await self._event.wait()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


def deliver(replies: Iterable[Reply[T]], /) -> None:
    """Wake the tasks of settled replies: one call for each event loop."""
    by_loop: dict[Post, list[Reply[T]]] = {}
    for reply in replies:
        by_loop.setdefault(reply.post, []).append(reply)
    for post, settled in by_loop.items():
        # A loop that is gone has nobody left to wake; both loops say so by a RuntimeError.
        with suppress(RuntimeError):
            post(_waker(settled))


def _waker(settled: list[Reply[T]]) -> Callable[[], None]:
    def wake() -> None:
        for reply in settled:
            reply.wake()

    return wake
