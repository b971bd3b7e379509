"""Conversations as people page through them: bounded lists, either direction, compacted messages on request."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from runlane.contracts import require_kind
from runlane.errors import InvalidValueError
from runlane.records import Message
from runlane.store._driver import ConversationQuery, MessageQuery, Rows
from runlane.store._order import QUEUED, queue_positions
from runlane.store._reads import check_limit, messages_before
from runlane.store._rows import MAX_POSITION, Head, MessageRow
from runlane.store._shape import check_id, check_text
from runlane.store._store import DriverStore
from runlane.store._transaction import read_message

__all__ = ["ConversationMessages", "ConversationPage", "ConversationReader", "ConversationSummary"]

T = TypeVar("T", str, int)

_MOST: Final = 1_000
_PREVIEW_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSummary:
    """One conversation in a list.

    Attributes:
        updated_at: Its newest change, ISO-8601 text.
        preview: The beginning of its latest message's text, at most 200 characters.
        active_runs: How many runs are queued or acquired.
    """

    conversation_id: str
    version: int
    updated_at: str
    preview: str
    active_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationPage:
    """Conversations, the one with the newest input first; `next_cursor` continues, None at the end."""

    items: tuple[ConversationSummary, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationMessages:
    """A page of messages in chronological order.

    Attributes:
        next_cursor: Continues in the direction that was read; None at the end.
        compacted: Ids on this page that compaction took out of the active history.
    """

    items: tuple[Message, ...]
    next_cursor: str | None = None
    compacted: tuple[str, ...] = ()


class ConversationReader:
    """Reads the conversations of a store page by page. Purged ones are not there.

    Args:
        store: The store; it must be open while the reader is used.

    Example:
        >>> from runlane.store import MemoryStore
        >>> reader = ConversationReader(MemoryStore())
    """

    def __init__(self, store: DriverStore) -> None:
        self._driver = require_kind(store, DriverStore, argument="store").driver

    async def list(self, *, limit: int = 50, cursor: str | None = None, search: str | None = None) -> ConversationPage:
        """Return conversations, newest input first and equal ones by id.

        Args:
            limit: 1 to 1,000.
            cursor: `next_cursor` of the page before.
            search: Only conversations whose id, or a message of which, contains this text, without regard to the case
                of ASCII letters. It reads the messages, so it is for people and not for hot paths.

        Raises:
            InvalidValueError: An argument is not valid.
        """
        check_limit(limit, _MOST)
        if search is not None:
            check_text(search, "search")
        after = None if cursor is None else _cursor(cursor, str)
        query = ConversationQuery(limit=limit + 1, after=after, search=search)
        return await self._driver.read(lambda rows: _list(rows, query))

    async def messages(
        self,
        conversation_id: str,
        /,
        *,
        limit: int = 100,
        direction: Literal["before", "after"] = "before",
        cursor: str | None = None,
        include_compacted: bool = False,
    ) -> ConversationMessages:
        """Return messages in chronological order; drafts are left out.

        Args:
            conversation_id: The conversation.
            limit: 1 to 1,000.
            direction: `before` pages from the newest end towards the beginning, `after` from the beginning.
            cursor: `next_cursor` of the page before, read in the same direction.
            include_compacted: Whether messages that a summary replaced are included; the summary then stands behind the
                first of them.

        Raises:
            InvalidValueError: An argument is not valid.
        """
        check_id(conversation_id, "conversation_id")
        check_limit(limit, _MOST)
        if direction not in {"before", "after"}:
            raise InvalidValueError("must be 'before' or 'after'", argument="direction")
        start = None if cursor is None else _cursor(cursor, int)
        page = _Page(conversation_id, limit, direction == "before", start, include_compacted)
        return await self._driver.read(lambda rows: page.started(rows).read(rows))


def _cursor(text: str, kind: type[T]) -> tuple[T, str]:
    try:
        first, second = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        first, second = None, None
    if type(first) is not kind or type(second) is not str or (type(first) is int and abs(first) > MAX_POSITION):
        raise InvalidValueError("is not a cursor of this list", argument="cursor")
    check_text(f"{first}{second}", "cursor")
    return first, second


def _list(rows: Rows, query: ConversationQuery) -> ConversationPage:
    found = rows.conversations(query)
    page = found[: query.limit - 1]
    items = tuple(_summary(rows, conversation_id, head) for conversation_id, head in page)
    more = len(found) == query.limit
    return ConversationPage(items=items, next_cursor=json.dumps([page[-1][1].active_at, page[-1][0]]) if more else None)


def _summary(rows: Rows, conversation_id: str, head: Head) -> ConversationSummary:
    latest = messages_before(rows, conversation_id, None, 1).items
    text = ""
    if latest:
        row = rows.bodies(conversation_id, [latest[0].message_id])[latest[0].message_id]
        text = read_message(conversation_id, row).text
    return ConversationSummary(
        conversation_id=conversation_id,
        version=head.version,
        updated_at=head.changed_at,
        preview=text[:_PREVIEW_CHARACTERS],
        active_runs=len(rows.active(conversation_id)),
    )


@dataclass(frozen=True, slots=True)
class _Page:
    """One page of messages.

    Attributes:
        start: (position, message id) of the last message of the page before. Several messages may share a position: a
            summary that of the first message it replaced.
    """

    conversation_id: str
    limit: int
    newest_first: bool
    start: tuple[int, str] | None
    removed: bool

    def started(self, rows: Rows, /) -> _Page:
        """Return the page with its start where that message stands by now: the place of what waits is not its last."""
        if self.start is None or self.start[0] < QUEUED:
            return self
        position, message_id = self.start
        waiting = queue_positions(rows.active(self.conversation_id))
        row = rows.bodies(self.conversation_id, [message_id]).get(message_id)
        settled = position if row is None or row.position is None else row.position
        return replace(self, start=(waiting.get(message_id, settled), message_id))

    def read(self, rows: Rows, /) -> ConversationMessages:
        """Read it."""
        found = [*self._queue(rows), *self._settled(rows)] if self.newest_first else self._settled_then_queue(rows)
        page = found[: self.limit]
        last = json.dumps([page[-1][0], page[-1][1].message_id]) if len(found) > self.limit else None
        if self.newest_first:
            page.reverse()
        return ConversationMessages(
            items=tuple(read_message(self.conversation_id, row) for _, row in page),
            next_cursor=last,
            compacted=tuple(row.message_id for _, row in page if row.removed_at is not None),
        )

    def _settled_then_queue(self, rows: Rows) -> list[tuple[int, MessageRow]]:
        settled = self._settled(rows)
        return settled if len(settled) > self.limit else [*settled, *self._queue(rows)]

    def _queue(self, rows: Rows) -> list[tuple[int, MessageRow]]:
        """Return the inputs that wait, as far as they are beyond the start."""
        waiting = queue_positions(rows.active(self.conversation_id))
        bodies = rows.bodies(self.conversation_id, waiting)
        found = [(waiting[message_id], row) for message_id, row in bodies.items()]
        found = [item for item in found if (self.removed or item[1].removed_at is None) and self._beyond(item[0])]
        return sorted(found, key=lambda item: item[0], reverse=self.newest_first)

    def _beyond(self, position: int) -> bool:
        if self.start is None:
            return True
        return position < self.start[0] if self.newest_first else position > self.start[0]

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
        position = None if self.start is None else self.start[0]
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
        position, message_id = self.start
        beside = 0
        for row in found:
            if row.position != position:
                break
            beside += 1
            if row.message_id == message_id:
                return found[beside:]
        if beside == len(found) and not whole:
            return None
        return found[beside:] if self.newest_first else found
