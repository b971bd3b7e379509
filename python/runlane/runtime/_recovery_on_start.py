"""Recovery that nobody waits for: it does not give up while it is the store that fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio

from runlane.clock import Clock
from runlane.errors import RunUnsettledError, StoreError
from runlane.runtime._closing import Gate
from runlane.runtime._recovery import Recovery, RecoveryOutcome
from runlane.store import RecoverableDescriptor

__all__ = ["recover_until_done"]

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 10.0


async def recover_until_done(
    recovery: Recovery, gate: Gate, clock: Clock, groups: dict[str, list[RecoverableDescriptor]], /
) -> None:
    """Deal with what was left behind, and again with what the store kept from being dealt with.

    A run that was taken up and then lost its store is taken up once more. Ends when nothing of the kind is left, or
    when the runtime closes.
    """

    async def persist(conversation_id: str, items: list[RecoverableDescriptor]) -> None:
        pause = _FIRST_PAUSE
        try:
            while not gate.closed and not await _is_done(await recovery.handle({conversation_id: items})):
                recovery.announce({conversation_id: items})
                await clock.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                items = await _left(recovery, conversation_id, items)
        finally:
            recovery.conclude(conversation_id)

    async with anyio.create_task_group() as tasks:
        for conversation_id, items in groups.items():
            tasks.start_soon(persist, conversation_id, items, name=f"recovery of {conversation_id}")


async def _is_done(outcomes: Sequence[RecoveryOutcome]) -> bool:
    """Whether nothing has to be tried again, once what was taken up has ended or was left."""
    if any(isinstance(outcome.error, StoreError | RunUnsettledError) for outcome in outcomes):
        return False
    for outcome in outcomes:
        if outcome.result is not None:
            await outcome.result.settled()
    return not any(
        outcome.result is not None and isinstance(outcome.result.error, RunUnsettledError) for outcome in outcomes
    )


async def _left(
    recovery: Recovery, conversation_id: str, items: list[RecoverableDescriptor]
) -> list[RecoverableDescriptor]:
    """Return what is still left behind of a conversation; what was known before, if the store does not say."""
    try:
        found = await recovery.collect(page_size=100, max_runs=1000, signal=None, conversation_id=conversation_id)
    except StoreError:
        return items
    return found.get(conversation_id, [])
