"""An async iterable that a cancel token can end, with its reason.

It is a class with `__anext__` and not an async generator: no cancel scope stays open between two
items, one step opens and closes exactly one scope in the caller's task, and nothing depends on the
garbage collector.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from typing import Any, Generic, Self, TypeVar

from anyio import CancelScope
from anyio.lowlevel import checkpoint_if_cancelled
from typing_extensions import override

from runlane.contracts import CancelToken
from runlane.sse._closing import OneReader, close_source, require_sync, tell

__all__ = ["AbortableStream", "abortable_stream"]

T = TypeVar("T")


def abortable_stream(
    source: AsyncIterable[T],
    token: CancelToken | None,
    /,
    *,
    on_cleanup_error: Callable[[Exception], object] | None = None,
) -> "AbortableStream[T]":
    """Pass an async iterable through unchanged until the token trips, then raise its reason.

    Items keep their order and identity. A source that fails or ends does so unchanged, unless the
    token has tripped by then: the reason wins over an item, an end or an error of the same moment.
    A pending cancellation of an enclosing scope wins over the reason.

    Args:
        source: What to read. It is not touched before the first step.
        token: What ends the stream early; None for a plain pass-through.
        on_cleanup_error: Told what went wrong while the source unwound or was closed, such as an
            error it raised when it was cancelled, or a `TimeoutError` for a close that took over
            one second. The reader never sees these.

    Returns:
        An iterator that is also an async context manager. Use it as one: a `break` out of a bare
        `async for` leaves the source open.

    Raises:
        UsageError: `on_cleanup_error` is not a plain function.

    Example:
        ```python
        async with abortable_stream(source, token) as items:
            async for item in items:
                ...
        ```
    """
    require_sync(on_cleanup_error, "on_cleanup_error")
    return AbortableStream(source, token, on_cleanup_error)


class AbortableStream(OneReader[T], AsyncIterator[T], Generic[T]):
    """The stream that `abortable_stream` returns; one task at a time reads it."""

    __slots__ = ("_busy", "_ended", "_iterator", "_on_cleanup_error", "_source", "_token")

    def __init__(
        self,
        source: AsyncIterable[T],
        token: CancelToken | None,
        on_cleanup_error: Callable[[Exception], object] | None,
        /,
    ) -> None:
        self._source = source
        self._token = token
        self._on_cleanup_error = on_cleanup_error
        self._iterator: AsyncIterator[T] | None = None
        self._busy = False
        self._ended = False

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    def __anext__(self) -> Coroutine[Any, Any, T]:
        """Return the next item.

        Raises:
            StopAsyncIteration: The source ended, or the stream ended before in any way.
            StreamBusyError: Another task is waiting for an item; it is unharmed.
            Exception: The token's error, or what the source raised.
        """
        return self._take_turn()

    @override
    async def _step(self) -> T:
        await checkpoint_if_cancelled()
        token = self._token
        if token is None:
            return await self._advance()
        token.raise_if_cancelled()
        failure: Exception | None = None
        items: list[T] = []
        with CancelScope() as scope, token.bind(scope):
            try:
                items.append(await self._advance())
            except Exception as error:  # noqa: BLE001 - passed on or reported below
                failure = error
        if token.cancelled:
            await self._abort(token, failure)
        if failure is not None:
            raise failure
        return items[0]

    async def _advance(self) -> T:
        if self._iterator is None:
            self._iterator = aiter(self._source)
        return await anext(self._iterator)

    async def _abort(self, token: CancelToken, failure: Exception | None) -> None:
        """Raise the reason, outside every `except` block, after the source has unwound."""
        if not isinstance(failure, StopAsyncIteration) and failure is not token.error():
            tell(self._on_cleanup_error, failure)
        await self._end()
        await checkpoint_if_cancelled()
        token.raise_if_cancelled()

    @override
    async def _end(self) -> None:
        if not self._ended:
            self._ended = True
            source, self._iterator = self._iterator or self._source, None
            await close_source(source, self._on_cleanup_error)
