"""Events for programs without an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from runlane.delivery import Gap, RuntimeEvent, Subscription
from runlane.errors import RuntimeClosedError

__all__ = ["BlockingSubscription"]


class BlockingSubscription(Iterator[RuntimeEvent | Gap]):
    """Events of one conversation, in order, until it is closed: a `Subscription` whose iteration blocks.

    Made by `BlockingRuntime.subscribe`. Close it, or use it as `with`; another thread may close it while an iteration
    waits for the next event, which then ends. One thread iterates it.
    """

    def __init__(
        self,
        events: Subscription,
        call: Callable[[Callable[[], Awaitable[Any]]], Any],
        later: Callable[[Callable[[], Awaitable[Any]]], object],
        /,
    ) -> None:
        """Read a subscription of another thread.

        Args:
            events: What to read.
            call: Calls something in that thread, and waits for what it gives.
            later: The same, without waiting.
        """
        self._events = events
        self._call = call
        self._later = later
        self._closed = False

    def __enter__(self) -> Self:
        """Return the subscription, which is listening already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Stop listening."""
        self.close()

    def close(self) -> None:
        """Stop listening; idempotent, also after the runtime was left."""
        self._closed = True
        with suppress(RuntimeClosedError):  # then nothing listens any more
            self._call(self._events.aclose)

    def __del__(self) -> None:
        """Have the thread that owns it let go of a subscription nobody closed."""
        if not getattr(self, "_closed", True):
            with suppress(RuntimeError):  # it is that thread, or it has ended
                self._later(self._events.aclose)

    @override
    def __next__(self) -> RuntimeEvent | Gap:
        """Wait for the next event and return it.

        Raises:
            StopIteration: It was closed, the run it follows has ended, or the runtime closed while this waited.
            RuntimeClosedError: The runtime was left, and what it told until then was read.
            StoreError: The ledger could not be read; the next call tries again.
        """
        try:
            event: RuntimeEvent | Gap | None = None if self._closed else self._call(self._following)
        except RuntimeClosedError:
            event = self._left_over()
        if event is None:
            self._closed = True
            raise StopIteration
        return event

    def _left_over(self) -> RuntimeEvent | Gap | None:
        """Return what was told before the runtime was left, and is not read yet; None after the end of the run.

        The runtime's thread has let go of the subscription by then.

        Raises:
            RuntimeClosedError: There is nothing more.
        """
        event = self._events.take()
        if event is None and not self._events.is_over:
            raise RuntimeClosedError
        return event

    async def _following(self) -> RuntimeEvent | Gap | None:
        return await anext(self._events, None)
