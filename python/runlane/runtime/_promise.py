"""A value that arrives once and may be awaited by any number of tasks, or by none."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

import anyio

__all__ = ["Promise"]

T = TypeVar("T")


class Promise(Generic[T]):
    """Await it to get the value or to see the error; awaiting again gives the same.

    Unlike a task or a coroutine it may be ignored: an error that nobody looked at is never reported, and being
    cancelled while waiting changes nothing for anybody else.

    Example:
        >>> promise: Promise[int] = Promise()
        >>> promise.resolve(1), promise.resolve(2), promise.done
        (True, False, True)
    """

    __slots__ = ("_done", "_error", "_event", "_listeners", "_value")

    def __init__(self) -> None:
        """Create a promise that is still open."""
        self._done = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._event: anyio.Event | None = None
        self._listeners: list[Callable[[Promise[T]], object]] | None = None

    @property
    def done(self) -> bool:
        """Whether the value or the error is there."""
        return self._done

    @property
    def error(self) -> Exception | None:
        """The error, once there is one."""
        return self._error

    def resolve(self, value: T, /) -> bool:
        """Set the value; False if the promise was settled before, then nothing changes."""
        return self._settle(value, None)

    def reject(self, error: Exception, /) -> bool:
        """Set the error; False if the promise was settled before, then nothing changes."""
        return self._settle(None, error)

    def then(self, listener: Callable[[Promise[T]], object], /) -> None:
        """Call a function with this promise as soon as it is settled, or now if it is."""
        if self._done:
            listener(self)
        elif self._listeners is None:
            self._listeners = [listener]
        else:
            self._listeners.append(listener)

    def follow(self, other: Promise[T], /) -> None:
        """Settle as the other one did."""
        self._settle(other._value, other._error)

    def _settle(self, value: T | None, error: Exception | None) -> bool:
        if self._done:
            return False
        self._done, self._value, self._error = True, value, error
        if self._event is not None:
            self._event.set()
        listeners, self._listeners = self._listeners, None
        for listener in listeners or ():
            listener(self)
        return True

    async def wait(self) -> T:
        """Wait for the value.

        Raises:
            Exception: The error the promise was rejected with.
        """
        await self.settled()
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    async def settled(self) -> None:
        """Wait until the value or the error is there, without looking at it."""
        if not self._done:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()

    def __await__(self) -> Generator[Any, Any, T]:
        return self.wait().__await__()
