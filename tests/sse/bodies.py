"""Bodies for the tests of async streams: scripted, and counting what is done to them."""

from typing import Generic, Self, TypeVar

import anyio

T = TypeVar("T")


class Script(Generic[T]):
    """An async iterable that plays items; an exception in the script is raised, `WAIT` waits.

    Attributes:
        started: How often iteration was started.
        closed: How often it was closed.
        unwound: Whether a wait was cancelled.
        waiting: Set whenever the script has begun to wait.
        go: What a wait waits for.
    """

    def __init__(self, *items: object) -> None:
        self.items = list(items)
        self.started = 0
        self.closed = 0
        self.unwound = False
        self.waiting = anyio.Event()
        self.go = anyio.Event()

    def __aiter__(self) -> Self:
        self.started += 1
        return self

    async def __anext__(self) -> T:
        if not self.items:
            raise StopAsyncIteration
        item = self.items.pop(0)
        if item is WAIT:
            await self._wait()
            return await self.__anext__()
        if isinstance(item, Exception):
            raise item
        return item  # type: ignore[return-value]  # a script holds what its test expects

    async def _wait(self) -> None:
        self.waiting.set()
        try:
            await self.go.wait()
        except BaseException:
            self.unwound = True
            raise
        self.go = anyio.Event()

    async def aclose(self) -> None:
        """Count the closing."""
        self.closed += 1


WAIT = object()
"""In a script: wait until the test says go."""
