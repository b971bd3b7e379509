"""Pages of a conversation's messages, which go on where the last one ended, whatever happened in between.

A cursor names the message that was read last, not only its position: what waits has no position yet, only a rank in
the queue, and an urgent input, or one that is taken back, moves the ranks of others.

| since then the message that was read last | a page towards the beginning goes on |
|---|---|
| has settled, or had before | below it |
| still waits | with what the queue has before it by now |
| left the queue out of turn: cancelled, abandoned, absorbed | likewise, then with all that has settled |

In the last case what has settled since may come again; nothing is ever passed over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import NamedTuple

from runlane.errors import InvalidValueError
from runlane.store._driver import MessageQuery, Rows
from runlane.store._order import QUEUED, order_key, queue_positions
from runlane.store._rows import MAX_POSITION, MessageRow, RunRow
from runlane.store._shape import check_text

__all__ = ["Page", "Place"]


class Place(NamedTuple):
    """Where a page ended.

    Attributes:
        position: Of the message, as it was shown.
        message_id: Several messages may share a position: a summary that of the first message it replaced.
        run_id: The run it waited with; empty if it did not wait.
    """

    position: int
    message_id: str = ""
    run_id: str = ""

    @classmethod
    def read(cls, cursor: str, argument: str) -> Place:
        """Return the place a cursor names.

        Raises:
            InvalidValueError: It names none.
        """
        try:
            position, message_id, run_id = json.loads(cursor)
        except (ValueError, TypeError, RecursionError):
            position, message_id, run_id = None, None, None
        if type(position) is not int or abs(position) > MAX_POSITION or {type(message_id), type(run_id)} != {str}:
            raise InvalidValueError("is not a cursor of this list", argument=argument)
        check_text(f"{message_id}{run_id}", argument)
        return cls(position, message_id, run_id)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of messages.

    Attributes:
        start: Where the page before ended; None for the first one.
        removed: Whether compacted messages are included.
    """

    conversation_id: str
    limit: int
    newest_first: bool
    start: Place | None
    removed: bool

    def read(self, rows: Rows, /) -> tuple[list[tuple[int, MessageRow]], str | None]:
        """Return the messages with their positions, in the direction of the page, and the cursor of the next one."""
        queue = [row for row in rows.active(self.conversation_id) if row.place is None]
        page = replace(self, start=self._now(rows, queue))
        found = page.found(rows, queue)
        if len(found) <= self.limit:
            return found, None
        position, last = found[self.limit - 1]
        run_id = next((row.run.id for row in queue if last.message_id in row.run.input_message_ids), "")
        return found[: self.limit], json.dumps([position, last.message_id, run_id])

    def _now(self, rows: Rows, queue: list[RunRow]) -> Place | None:
        """Return the start where it stands by now."""
        start = self.start
        if start is None or not start.run_id:
            return start
        waiting = queue_positions(queue).get(start.message_id)
        if waiting is not None:
            return start._replace(position=waiting)
        run = rows.run(self.conversation_id, start.run_id)
        if self.newest_first and run is not None and run.run.execution_sequence is None:
            key = order_key(run._replace(place=None))
            before = sum(len(row.run.input_message_ids) for row in queue if order_key(row) < key)
            return start._replace(position=QUEUED + before)
        row = rows.bodies(self.conversation_id, [start.message_id]).get(start.message_id)
        return start if row is None or row.position is None else start._replace(position=row.position)

    def found(self, rows: Rows, queue: list[RunRow], /) -> list[tuple[int, MessageRow]]:
        """Return one message more than the page holds, if there is one."""
        if self.newest_first:
            waiting = self._queue(rows, queue)
            return waiting if len(waiting) > self.limit else [*waiting, *self._settled(rows)]
        settled = self._settled(rows)
        return settled if len(settled) > self.limit else [*settled, *self._queue(rows, queue)]

    def _queue(self, rows: Rows, queue: list[RunRow]) -> list[tuple[int, MessageRow]]:
        """Return the inputs that wait, as far as they are beyond the start."""
        waiting = {name: place for name, place in queue_positions(queue).items() if self._beyond(place)}
        bodies = rows.bodies(self.conversation_id, waiting) if waiting else {}
        found = [(waiting[name], row) for name, row in bodies.items() if self.removed or row.removed_at is None]
        return sorted(found, key=lambda item: item[0], reverse=self.newest_first)

    def _beyond(self, position: int) -> bool:
        if self.start is None:
            return True
        return position < self.start.position if self.newest_first else position > self.start.position

    def _settled(self, rows: Rows) -> list[tuple[int, MessageRow]]:
        """Return settled messages beyond the start, one more than the page holds if there is one."""
        wanted = self.limit + 1
        while True:
            found = rows.messages(self.conversation_id, self._query(wanted))
            rest = self._behind_start(found, whole=len(found) < wanted)
            if rest is not None and (len(found) < wanted or len(rest) > self.limit):
                return [(row.position or 0, row) for row in rest]
            wanted *= 2

    def _query(self, wanted: int) -> MessageQuery:
        position = None if self.start is None else self.start.position
        if self.newest_first:
            below = QUEUED if position is None else min(position + 1, QUEUED)
            return MessageQuery(limit=wanted, below=below, removed=self.removed)
        above = None if position is None else position - 1
        return MessageQuery(limit=wanted, above=above, below=QUEUED, newest_first=False, removed=self.removed)

    def _behind_start(self, found: list[MessageRow], *, whole: bool) -> list[MessageRow] | None:
        """Return what comes after the start; None if that cannot be told from what was found, so more is needed.

        The start may have left the active history since it was read. Its place is then empty, or a summary's that
        replaced it and what followed: towards the beginning that was read already, towards the end it was not.
        """
        if self.start is None:
            return found
        beside = 0
        for row in found:
            if row.position != self.start.position:
                break
            beside += 1
            if row.message_id == self.start.message_id:
                return found[beside:]
        if beside == len(found) and not whole:
            return None
        return found[beside:] if self.newest_first else found
