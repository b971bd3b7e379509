"""Handing events to whoever listens, without ever waiting for one of them.

| rule | |
|---|---|
| a mailbox holds at most `capacity` events | |
| an event that does not fit is not delivered to that listener; the events it has stay | the others notice nothing |
| from then on it gets nothing more until it has emptied its mailbox and learned of the loss | |
| what others committed (another process, another runtime) is pointed at, in its place | the ledger has its events |
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import anyio

from runlane.delivery._events import RuntimeEvent, Transient

__all__ = ["Elsewhere", "EventHub", "Mailbox"]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Versions that were not told here, because somebody else committed them.

    Attributes:
        after: The version before the first of them; None if nothing is known of what came before.
        upto: The last of them.
    """

    after: int | None
    upto: int


class Mailbox:
    """What one listener has not read yet."""

    __slots__ = ("_capacity", "_closed", "_event", "_events", "_lost", "_lost_from", "run_id")

    def __init__(self, *, run_id: str | None, capacity: int) -> None:
        """Create an empty mailbox for one run's events, or for all of a conversation."""
        self.run_id = run_id
        self._capacity = capacity
        self._events: deque[RuntimeEvent | Elsewhere] = deque()
        self._event: anyio.Event | None = None
        self._lost = False
        self._lost_from: int | None = None
        self._closed = False

    def put(self, event: RuntimeEvent, /) -> None:
        """Take an event; never waits."""
        if self._closed or (self.run_id is not None and event.run_id != self.run_id):
            return
        if not self._lost and len(self._events) < self._capacity:
            self._events.append(event)
        else:
            self._lose(event)
        if self._event is not None:
            self._wake()

    def point(self, elsewhere: Elsewhere, /) -> None:
        """Take the news of commits that are not told here; never waits."""
        if self._closed:
            return
        last = self._events[-1] if self._events else None
        if self._lost:
            self._lose(elsewhere)
        elif isinstance(last, Elsewhere) and last.after is not None and last.upto == elsewhere.after:
            self._events[-1] = Elsewhere(last.after, elsewhere.upto)
        elif len(self._events) < self._capacity:
            self._events.append(elsewhere)
        else:
            self._lose(elsewhere)
        self._wake()

    def _wake(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None

    def _lose(self, event: RuntimeEvent | Elsewhere) -> None:
        self._lost = True
        if self._lost_from is None:
            self._lost_from = _first_version(event)

    def close(self) -> None:
        """Take nothing more; what is there can still be read."""
        self._closed = True
        self._wake()

    @property
    def lost(self) -> bool:
        """Whether events did not fit, and every event before them has been read."""
        return self._lost and not self._events

    def recover(self) -> int | None:
        """Take events again; return the version from which durable ones were missed, None if none were.

        Whoever calls this looks them up elsewhere.
        """
        missed, self._lost_from = self._lost_from, None
        self._lost = False
        return missed

    def take(self) -> RuntimeEvent | Elsewhere | None:
        """Return the next event or pointer, or None if there is none at this moment."""
        return self._events.popleft() if self._events else None

    def first_version(self) -> int | None:
        """Return the version of the first durable event that waits here or did not fit, or None."""
        waiting = (version for event in self._events if (version := _first_version(event)) is not None)
        return next(waiting, self._lost_from)

    async def wait(self) -> bool:
        """Wait until there is something to read or to learn; False once there never will be."""
        while not self._events and not self._lost:
            if self._closed:
                return False
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
        return True


def _first_version(event: RuntimeEvent | Elsewhere) -> int | None:
    """Return the version from which an event must be read if it is not delivered; None for what has none."""
    if isinstance(event, Elsewhere):
        return None if event.after is None else event.after + 1
    return None if isinstance(event, Transient) else event.snapshot_version


class EventHub:
    """Who listens to which conversation, in this process."""

    def __init__(self) -> None:
        """Create a hub nobody listens to."""
        self._mailboxes: dict[str, list[Mailbox]] = {}
        self._versions: dict[str, int] = {}
        self._closed = False

    def listens(self, conversation_id: str, /) -> bool:
        """Whether anybody listens; what nobody hears need not be said."""
        return conversation_id in self._mailboxes

    def version(self, conversation_id: str, /) -> int | None:
        """Return the version up to which all commits were told or pointed at; None if nothing is known of them."""
        return self._versions.get(conversation_id)

    def reach(self, conversation_id: str, before: int, last: int, /) -> None:
        """Note that a conversation is at version `last`, before its newest events are published.

        Args:
            conversation_id: The conversation.
            before: Later versions are told here next; earlier ones that were not told yet were committed elsewhere.
            last: The newest version.
        """
        mailboxes = self._mailboxes.get(conversation_id)
        if mailboxes is None:
            return
        known = self._versions.get(conversation_id)
        if known is None or before > known:
            for mailbox in mailboxes:
                mailbox.point(Elsewhere(known, before))
        if known is None or last > known:
            self._versions[conversation_id] = last

    def publish(self, event: RuntimeEvent, /) -> None:
        """Hand an event to every listener of its conversation."""
        for mailbox in self._mailboxes.get(event.conversation_id, ()):
            mailbox.put(event)

    def open(self, conversation_id: str, /, *, run_id: str | None, capacity: int) -> Mailbox:
        """Start listening."""
        mailbox = Mailbox(run_id=run_id, capacity=capacity)
        if self._closed:
            mailbox.close()
        self._mailboxes.setdefault(conversation_id, []).append(mailbox)
        return mailbox

    def remove(self, conversation_id: str, mailbox: Mailbox, /) -> None:
        """Stop listening; idempotent."""
        mailbox.close()
        others = self._mailboxes.get(conversation_id, [])
        if mailbox in others:
            others.remove(mailbox)
        if not others:
            self._mailboxes.pop(conversation_id, None)
            self._versions.pop(conversation_id, None)

    def close(self) -> None:
        """End every listener once it has read what it has."""
        self._closed = True
        for mailboxes in self._mailboxes.values():
            for mailbox in mailboxes:
                mailbox.close()
