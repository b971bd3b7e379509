"""Checks of commands that are sent again, because the reply to them was lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from typing_extensions import override

from runlane.records import RunOperation
from runlane.store import AppendEvent, Command, Outcome, Store
from runlane.testing._faulty_store import FaultyStore
from runlane.testing._store_kit import START, Lane, StoreCheck, applied, same, store_check

__all__ = ["AGAIN_CHECKS"]

_ACTIONS: Final[tuple[Literal["requeue", "abandon"], ...]] = ("requeue", "abandon")


class _Twice(FaultyStore):
    """Sends whatever it is told twice, and has the answers compared."""

    @override
    async def apply(self, conversation_id: str, commands: Sequence[Command], /) -> tuple[Outcome, ...]:
        first = await super().apply(conversation_id, commands)
        again = await super().apply(conversation_id, commands)
        same(again, first, f"the answer to {type(commands[0]).__name__}, sent again")
        return first


async def _record(lane: Lane, name: str) -> Outcome:
    ownership = await lane.start(name)
    return await lane.store.record_run_operation(
        conversation_id=lane.id,
        run_id=name,
        expected_revision=await lane.revision(name),
        ownership=ownership,
        operation=RunOperation(operation_id="o", kind="model-request", phase="started", step=0, started_at=START),
    )


async def _recover(lane: Lane, name: str, action: Literal["requeue", "abandon"]) -> Outcome:
    revision = await lane.revision(name)
    return await lane.store.recover_run(
        conversation_id=lane.id, run_id=name, expected_revision=revision, action=action, replay_safe=True
    )


@store_check()
async def what_is_sent_again_is_answered_as_before(store: Store) -> None:
    """Sent again at once, a command changes nothing and is answered with all that it changed.

    A seed is not: it is told from a repetition of its key by nobody, and repetitions have changed nothing.
    """
    lane = Lane(_Twice(store))
    await lane.accept("a", "b", "c", "e")
    applied(await lane.try_accept("d", into="c"))
    applied(await _record(lane, "a"))
    await lane.say("a", "half")
    applied(await lane.try_end("a", absorb=["b"]))
    applied(
        await lane.store.cancel_run(conversation_id=lane.id, run_id="c", expected_revision=await lane.revision("c"))
    )
    for action in _ACTIONS:
        await lane.start("e")
        applied(await lane.try_interrupt("e"))
        applied(await _recover(lane, "e", action))
    applied(await lane.try_compact("a-in", "b-in", "a-out"))
    event = AppendEvent(command_id="e1", at=lane.now(), kind="state/set", payload={"run_id": "a"})
    applied((await lane.store.apply(lane.id, [event]))[0])


AGAIN_CHECKS: tuple[StoreCheck, ...] = (what_is_sent_again_is_answered_as_before,)
