"""Handing events to whoever listens, without ever waiting for one of them.

| rule | |
|---|---|
| a mailbox holds at most `capacity` events | |
| an event that does not fit is not delivered to that listener; the events it has stay | the others notice nothing |
| from then on it gets nothing more until it has emptied its mailbox and learned of the loss | |
"""

from __future__ import annotations

from collections import deque

import anyio

from runlane.delivery._events import DurableEvent, RuntimeEvent

__all__ = ["EventHub", "Mailbox"]


class Mailbox:
    """What one listener has not read yet."""

    __slots__ = ("_capacity", "_closed", "_event", "_events", "_lost", "_lost_from", "run_id")

    def __init__(self, *, run_id: str | None, capacity: int) -> None:
        """Create an empty mailbox for one run's events, or for all of a conversation."""
        self.run_id = run_id
        self._capacity = capacity
        self._events: deque[RuntimeEvent] = deque()
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
            self._event.set()
            self._event = None

    def _lose(self, event: RuntimeEvent) -> None:
        self._lost = True
        if self._lost_from is None and isinstance(event, DurableEvent):
            self._lost_from = event.snapshot_version

    def close(self) -> None:
        """Take nothing more; what is there can still be read."""
        self._closed = True
        if self._event is not None:
            self._event.set()
            self._event = None

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

    def take(self) -> RuntimeEvent | None:
        """Return the next event, or None if there is none at this moment."""
        return self._events.popleft() if self._events else None

    def first_version(self) -> int | None:
        """Return the version of the first durable event that waits here or did not fit, or None."""
        waiting = (event.snapshot_version for event in self._events if isinstance(event, DurableEvent))
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


class EventHub:
    """Who listens to which conversation, in this process."""

    def __init__(self) -> None:
        """Create a hub nobody listens to."""
        self._mailboxes: dict[str, list[Mailbox]] = {}
        self._closed = False

    def listens(self, conversation_id: str, /) -> bool:
        """Whether anybody listens; what nobody hears need not be said."""
        return conversation_id in self._mailboxes

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

    def close(self) -> None:
        """End every listener once it has read what it has."""
        self._closed = True
        for mailboxes in self._mailboxes.values():
            for mailbox in mailboxes:
                mailbox.close()
