"""Progress on its way to a publisher that takes time: told in order, beside the tools that report it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Coroutine

import anyio

__all__ = ["ProgressQueue"]


class ProgressQueue:
    """Keeps what is left of telling, so that whoever reports need not wait."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._waiting: deque[Awaitable[None]] = deque()
        self._event = anyio.Event()
        self._over = False

    def put(self, telling: Awaitable[None] | None, /) -> None:
        """Have something awaited, if there is anything."""
        if telling is None:
            return
        self._waiting.append(telling)
        self._event.set()
        if self._over:
            self._drop()

    def end(self) -> None:
        """Say that nothing more comes."""
        self._over = True
        self._event.set()

    async def work(self) -> None:
        """Await one thing after another until the end; what is cancelled drops the rest."""
        try:
            while self._waiting or not self._over:
                while self._waiting:
                    await self._waiting.popleft()
                if not self._over:
                    await self._event.wait()
                    self._event = anyio.Event()
        finally:
            self._drop()

    def _drop(self) -> None:
        while self._waiting:
            telling = self._waiting.popleft()
            if isinstance(telling, Coroutine):
                telling.close()
