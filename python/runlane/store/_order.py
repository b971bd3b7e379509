"""The causal order of runs and messages, and the positions that make it a plain sort.

Among runs, those that left the queue come first, by the moment they did; then the queue: urgent runs, then by time of
creation, by arrival, by id. Messages follow their runs, inputs before the answer; messages of no run keep their slot.

Keeping that order must not touch old rows, so a position is given once, when it is final:

* A run gets a *block* of positions when it leaves the queue for the first time (acquired, or ended without ever being
  acquired). Its inputs stand at the block's beginning, what it absorbs behind them, its answer at the block's end.
  Two acquired runs of one conversation never overlap, so blocks never interleave; a run that is put back into the
  queue keeps its block, as it keeps its execution sequence.
* Ahead of each block is a *gap* for seeds that must stand before an acquired run's first message.
* Seeds that lead go below everything given so far.
* Until then an input has a provisional position above `QUEUED`, in order of arrival. Readers sort that tail, which is
  as long as the queue, by the order of its runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from runlane.store._rows import QUEUED, Head, RunRow

__all__ = ["BLOCK", "GAP", "QUEUED", "answer_position", "first_place", "in_order", "order_key", "queue_positions"]

BLOCK: Final = 1 << 20
GAP: Final = 1 << 16


def order_key(row: RunRow, /) -> tuple[int, int, str, int, str]:
    """Return what sorts runs causally."""
    run = row.run
    if row.place is not None:
        return 0, row.place, "", 0, run.id
    ordinary = 0 if run.queue_priority == "interrupt-next" else 1
    return 1, ordinary, run.created_at.isoformat(timespec="milliseconds"), row.arrival, run.id


def in_order(rows: Iterable[RunRow], /) -> list[RunRow]:
    """Sort runs causally."""
    return sorted(rows, key=order_key)


def first_place(head: Head, /) -> int:
    """Return where the next block's first input goes."""
    return head.next_place + GAP


def answer_position(place: int, /) -> int:
    """Return where the answer of a run with this place goes."""
    return place + BLOCK - 1


def queue_positions(rows: Iterable[RunRow], /) -> dict[str, int]:
    """Return the position of each input that still waits, as readers show it: `QUEUED` and up, in queue order."""
    waiting = (
        message_id
        for row in in_order(row for row in rows if row.place is None)
        for message_id in row.run.input_message_ids
    )
    return {message_id: QUEUED + rank for rank, message_id in enumerate(waiting)}
