"""Store calls around execution: tried again for half a second, and a mutation is never cancelled half-way.

A call that throws is repeated after 20, 40, 80, 160 and 200 ms. A mutation in flight is shielded from cancellation for
at most 5 s; what did not answer by then, or lost its reply, is of unknown outcome. Repeating the same commands is
always safe: they are known by their ids.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import anyio

from runlane.clock import Clock
from runlane.errors import RunlaneError, StoreCommitUnknownError, StoreError
from runlane.store import Command, Outcome, Store

__all__ = ["RETRY_DELAYS", "StoreCalls"]

T = TypeVar("T")

RETRY_DELAYS: Final = (0.02, 0.04, 0.08, 0.16, 0.2)
"""Seconds between the attempts of one call."""

_PAUSES: Final = (*RETRY_DELAYS, None)
"""What follows each attempt that failed: seconds, or None after the last."""

_SHIELD: Final = 5.0


def _worth_repeating(error: Exception) -> bool:
    """Whether the same call might work a moment later."""
    if isinstance(error, StoreError):
        return error.retryable is not False
    return not isinstance(error, RunlaneError)


class StoreCalls:
    """How the runtime talks to its store while runs depend on the answer."""

    def __init__(self, store: Store, clock: Clock, /, *, shield: float = _SHIELD) -> None:
        """Talk to a store.

        Args:
            store: The store.
            clock: Spaces the attempts.
            shield: Seconds for which a mutation cannot be cancelled.
        """
        self.store = store
        self._clock = clock
        self._shield = shield

    async def apply(self, conversation_id: str, commands: Sequence[Command], /) -> tuple[Outcome, ...]:
        """Carry out commands as one transaction.

        Raises:
            StoreCommitUnknownError: Nobody knows whether they were carried out.
            StoreError: They were not, however often it was tried.
            UsageError, InvalidValueError, ConversationPurgedError: They are refused for good.
        """
        outcomes, _ = await self.apply_counted(conversation_id, commands)
        return outcomes

    async def apply_counted(
        self, conversation_id: str, commands: Sequence[Command], /
    ) -> tuple[tuple[Outcome, ...], int]:
        """Carry out commands as `apply` does, and say how often they were sent."""
        with anyio.CancelScope(deadline=anyio.current_time() + self._shield, shield=True):
            for sent, delay in enumerate(_PAUSES, 1):
                try:
                    return await self.store.apply(conversation_id, commands), sent
                except Exception as error:
                    if delay is None or not _worth_repeating(error):
                        raise
                await self._clock.sleep(delay)
        raise StoreCommitUnknownError(f"a commit did not answer within {self._shield:g} s")

    async def read(self, call: Callable[[Store], Awaitable[T]], /) -> T:
        """Read something; unlike a mutation it may be cancelled.

        Raises:
            StoreError: It could not be read, however often it was tried.
        """
        for delay in RETRY_DELAYS:
            try:
                return await call(self.store)
            except Exception as error:
                if not _worth_repeating(error):
                    raise
            await self._clock.sleep(delay)
        return await call(self.store)
