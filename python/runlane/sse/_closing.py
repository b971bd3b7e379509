"""How a stream is read by one task and ends: its source is closed, and trouble in that never replaces why it ended."""

import inspect
from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from anyio import move_on_after

from runlane.errors import StreamBusyError, UsageError

__all__ = [
    "CLEANUP_TIMEOUT",
    "OneReader",
    "close_source",
    "refuse_awaitable",
    "require_sync",
    "tell",
]

T = TypeVar("T")

CLEANUP_TIMEOUT: Final = 1.0
"""How long closing a source may take, in seconds."""


def require_sync(callback: object, argument: str) -> None:
    """Refuse a callback that cannot be called without awaiting it.

    Raises:
        UsageError: `callback` is not callable, or is a coroutine function.
    """
    if callback is None:
        return
    if not callable(callback):
        raise UsageError("must be callable", argument=argument)
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004 - the method is wanted, not the answer
    ):
        raise UsageError("must be a plain function, not an async one", argument=argument)


def refuse_awaitable(result: object, argument: str) -> None:
    """Refuse what a callback returned if it would have to be awaited.

    Raises:
        UsageError: `result` is awaitable; a coroutine is closed first.
    """
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise UsageError("must not return an awaitable", argument=argument)


async def close_source(
    source: AsyncIterable[object] | AsyncIterator[object] | None,
    report: Callable[[Exception], object] | None,
) -> None:
    """Close a source that can be closed, shielded, within `CLEANUP_TIMEOUT` seconds.

    Args:
        source: What was read; anything without `aclose` is left alone.
        report: Told of an error or an overrun. What it raises itself is dropped.
    """
    close = getattr(source, "aclose", None)
    if close is None:
        return
    failure: Exception | None = None
    with move_on_after(CLEANUP_TIMEOUT, shield=True) as scope:
        try:
            await close()
        except Exception as error:  # noqa: BLE001 - whatever a foreign source raises is reported
            failure = error
    if failure is None and scope.cancelled_caught:
        failure = TimeoutError(f"closing the source took over {CLEANUP_TIMEOUT:g} s")
    tell(report, failure)


def tell(report: Callable[[Exception], object] | None, failure: Exception | None) -> None:
    """Report a clean-up failure; nothing that goes wrong in the report is raised."""
    if report is not None and failure is not None:
        with suppress(Exception):
            report(failure)


class OneReader(Generic[T]):
    """What streams share that one task at a time reads, and that are over once a step fails or ends.

    A class that mixes this in has the two attributes, sets both to False, and says what a step and the end are.
    """

    __slots__ = ()

    _busy: bool
    _ended: bool

    @abstractmethod
    async def _step(self) -> T:
        """Return the next item; whatever it raises ends the stream."""

    @abstractmethod
    async def _end(self) -> None:
        """Close the source, once."""

    async def _take_turn(self) -> T:
        """Take a step, unless another task is taking one.

        Raises:
            StopAsyncIteration: The stream ended, now or before.
            StreamBusyError: Another task is waiting for an item; it is unharmed.
        """
        if self._busy:
            raise StreamBusyError(argument=type(self).__name__)
        if self._ended:
            raise StopAsyncIteration
        self._busy = True  # type: ignore[misc]  # a slot of the class that mixes this in
        try:
            return await self._step()
        except GeneratorExit:  # the event loop is gone, nothing can be awaited
            self._ended = True  # type: ignore[misc]  # likewise
            raise
        except BaseException:
            await self._end()
            raise
        finally:
            self._busy = False  # type: ignore[misc]  # likewise

    async def aclose(self) -> None:
        """Close the source if it can be closed; shielded, for at most one second, and only once.

        Raises:
            StreamBusyError: Another task is waiting for an item.
        """
        if self._busy:
            raise StreamBusyError(argument=type(self).__name__)
        await self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        await self.aclose()
