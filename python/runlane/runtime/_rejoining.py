"""Which inputs of other runs a run had taken in when it was cut off.

What joins a run is named in the ledger by the first request that shows it. A run that goes on from what its model said
after that shows it again, in its place, and absorbs the runs it belongs to; what nothing is kept of is left to runs of
its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from pydantic import JsonValue

from runlane.records import JsonObject, Part, Run
from runlane.runtime._lane_records import LaneRecords
from runlane.runtime._left_open import Joined
from runlane.runtime._store_calls import StoreCalls
from runlane.store import ReadEvents

__all__ = ["joined_before"]

_PAGE: Final = 500


async def joined_before(
    calls: StoreCalls, records: LaneRecords, run: Run, kept: Sequence[Part], /
) -> tuple[Joined, ...]:
    """Return the inputs that joined a run before the last of its kept parts, in order.

    Raises:
        StoreError: The ledger could not be read.
    """
    found: list[Joined] = []
    async for request in _requests(calls, run):
        if request.get("step_number") == 0:
            # Another execution, or another attempt, whose first request names everything that joined before.
            found.clear()
        joined = request.get("joined")
        for one in joined if isinstance(joined, list) else ():
            found.extend(_joined(one, records))
    return tuple(one for one in found if one.after < len(kept))


async def _requests(calls: StoreCalls, run: Run) -> AsyncIterator[JsonObject]:
    """Yield what the ledger says of the run's requests, oldest first."""
    if run.execution_sequence is None:
        return
    following: int | None = None
    while True:
        query = ReadEvents(
            conversation_id=run.conversation_id,
            after_version=run.execution_sequence - 1,
            from_seq=following,
            limit=_PAGE,
        )
        page = await calls.read(lambda store: store.read_events(query))  # noqa: B023 - awaited at once
        for entry in page.items:
            if entry.kind == "provider/request" and entry.payload.get("run_id") == run.id:
                yield entry.payload
        following = page.next_seq
        if following is None:
            return


def _joined(said: JsonValue, records: LaneRecords) -> list[Joined]:
    """Return what an entry says, if all of it is at hand; nothing else can be absorbed."""
    if not isinstance(said, dict):
        return []
    after, run_id, ids = said.get("after"), said.get("run_id"), said.get("message_ids")
    if not isinstance(after, int) or not isinstance(run_id, str) or not isinstance(ids, list):
        return []
    messages = tuple(message for one in ids if (message := records.find(str(one))) is not None)
    return [Joined(after=after, run_id=run_id, messages=messages)] if len(messages) == len(ids) else []
