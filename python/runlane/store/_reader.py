"""Conversations as people page through them: bounded lists, either direction, compacted messages on request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Literal

from runlane.contracts import require_kind
from runlane.errors import InvalidValueError
from runlane.records import Message
from runlane.store._driver import ConversationQuery, Rows
from runlane.store._pages import Page, Place
from runlane.store._reads import check_limit, messages_before
from runlane.store._rows import Head
from runlane.store._shape import check_id, check_text
from runlane.store._store import DriverStore
from runlane.store._transaction import read_message

__all__ = ["ConversationMessages", "ConversationPage", "ConversationReader", "ConversationSummary"]

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
        after = None if cursor is None else _cursor(cursor)
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
        start = None if cursor is None else Place.read(cursor, "cursor")
        page = Page(conversation_id, limit, direction == "before", start, include_compacted)
        found, following = await self._driver.read(page.read)
        if page.newest_first:
            found.reverse()
        return ConversationMessages(
            items=tuple(read_message(conversation_id, row) for _, row in found),
            next_cursor=following,
            compacted=tuple(row.message_id for _, row in found if row.removed_at is not None),
        )


def _cursor(text: str) -> tuple[str, str]:
    try:
        first, second = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        first, second = None, None
    if type(first) is not str or type(second) is not str:
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
