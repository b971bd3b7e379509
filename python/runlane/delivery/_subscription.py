"""Listening to a conversation: live, from a version on, or to one run until it ends."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from runlane.delivery._cursor import EventCursor
from runlane.delivery._events import (
    DurableEvent,
    Gap,
    RunStateEvent,
    RuntimeEvent,
    TerminalEvent,
    Transient,
)
from runlane.delivery._fold import fold_events
from runlane.delivery._hub import Elsewhere, EventHub, Mailbox
from runlane.errors import UsageError
from runlane.store import EventEnvelope, EventPage, ReadEvents, Store

__all__ = ["DEFAULT_CAPACITY", "Following", "Subscription", "check_after"]

DEFAULT_CAPACITY = 1000
"""Events a listener may be behind before it loses some."""

_PAGE = 500


class Following(Protocol):
    """Somebody who looks for what others commit to a conversation, and points the hub at it."""

    async def begun(self) -> None:
        """Return once it looks, or once its first look failed."""
        ...

    def stop(self) -> None:
        """Look no more; called once."""
        ...


@dataclass(slots=True)
class _Replay:
    """Entries of the ledger that are to be read.

    Attributes:
        after: Only later versions.
        upto: Only versions up to this one; None for all, up to the first that waits in the mailbox.
        told: Versions up to this one were told before, so that what the mailbox has of them is no more than a reminder.
        next_seq: Where the next page begins, after the first one.
    """

    after: int
    upto: int | None = None
    told: int = 0
    next_seq: int | None = None


class Subscription:
    """Events of one conversation, in order, until it is closed; iterate it with `async for`.

    It listens from the moment it is made. Durable events from before then are rebuilt from the ledger if a version to
    start after was given; events that came in meanwhile follow without a hole and without a repetition. A listener
    that falls too far behind gets a `Gap`, then the durable events it missed, then live ones again: it can lose
    transient events, never durable ones. What the ledger does not keep any more is a `Gap`, too.

    What others commit to the conversation (another process, another runtime on the store) is read from the ledger, in
    its place: durable events only, since what is transient is told only where a run executes.

    A subscription to one run ends after the run's terminal event.
    """

    def __init__(  # noqa: PLR0913 - each is an independent fact of a listener
        self,
        store: Store,
        hub: EventHub,
        conversation_id: str,
        /,
        *,
        run_id: str | None = None,
        after: int | EventCursor | None = None,
        capacity: int = DEFAULT_CAPACITY,
        following: Following | None = None,
    ) -> None:
        """Start listening.

        Args:
            store: Where the ledger is read.
            hub: Where live events come from.
            conversation_id: What to listen to.
            run_id: Only this run's events, until its end.
            after: Replay the durable events of later conversation versions first, or with a cursor all that it has
                not seen; None replays nothing.
            capacity: How many events to keep for a listener that does not read.
            following: Who looks for what others commit; without it their commits are noticed at the next one here.
        """
        self._store = store
        self._hub = hub
        self._conversation_id = conversation_id
        self._run_id = run_id
        self._mailbox: Mailbox = hub.open(conversation_id, run_id=run_id, capacity=capacity)
        self._ready: deque[RuntimeEvent | Gap] = deque()
        self._floor = self._newest = -1
        self._newest_ids: set[str] = set()
        self._replay: _Replay | None = None
        self._following = following
        self._start(after)
        self._checks_cursor = after is not None
        self._rewound = False
        self._over = False

    def _start(self, after: int | EventCursor | None) -> None:
        """Have everything after a version, or after what a cursor has seen, replayed first."""
        if isinstance(after, EventCursor):
            # A commit may tell several events, and a listener may have gone after the first of them.
            self._newest = after.snapshot_version or 0
            self._newest_ids.update(after.durable_event_ids)
            self._floor = self._newest - 1 if self._newest_ids else self._newest
            self._replay = self._replay_after(self._floor)
        elif after is not None:
            self._floor = self._newest = after
            self._replay = self._replay_after(after)

    async def __aenter__(self) -> Self:
        """Return the subscription, which is listening already; from here on to what others commit, too."""
        if self._following is not None:
            await self._following.begun()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Stop listening."""
        await self.aclose()

    async def aclose(self) -> None:
        """Stop listening; idempotent."""
        self._over = True
        self._hub.remove(self._conversation_id, self._mailbox)
        following, self._following = self._following, None
        if following is not None:
            following.stop()

    def __del__(self) -> None:
        """Leave no mailbox behind for a listener that is gone; whoever follows for it notices."""
        hub = getattr(self, "_hub", None)
        if hub is not None and not getattr(self, "_over", True):
            hub.remove(self._conversation_id, self._mailbox)

    def close_source(self) -> None:
        """Tell the listener that nothing more will come; it still reads what it has."""
        self._mailbox.close()

    def narrow(self, run_id: str, /) -> None:
        """Listen to another run than was thought when this began: the one that answers."""
        self._run_id = self._mailbox.run_id = run_id

    def rewind(self, after: int, /) -> None:
        """Replay the durable events of versions after this one first; what was delivered before may come again."""
        self._floor = self._newest = after
        self._newest_ids.clear()
        self._ready.clear()
        self._replay = _Replay(after)
        self._rewound = True

    def __aiter__(self) -> Self:
        """Return itself; a subscription is read once, by one task."""
        return self

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or the run it follows has ended."""
        return self._over

    def take(self) -> RuntimeEvent | Gap | None:
        """Return the next event if it is at hand; None if it has to be waited for or read, or if there is none."""
        while not self._over:
            event: RuntimeEvent | Gap | Elsewhere | None = self._ready.popleft() if self._ready else None
            if event is None and self._replay is None:
                event = self._mailbox.take()
            if event is None:
                break
            if isinstance(event, Elsewhere):
                self._look_up(event)
            elif isinstance(event, Gap) or not self._is_known(event):
                self._over = self._ends_with(event)
                return event
        return None

    def _ends_with(self, event: RuntimeEvent | Gap) -> bool:
        """Whether the run that is followed tells nothing after an event."""
        return self._run_id is not None and not isinstance(event, Gap) and _is_last(event)

    async def __anext__(self) -> RuntimeEvent | Gap:
        """Return the next event.

        Raises:
            StopAsyncIteration: It was closed, the run it follows has ended, or the runtime has closed.
            StoreError: The ledger could not be read; the next call tries again.
        """
        while not self._over:
            event = await self._next()
            if event is None:
                break
            if not isinstance(event, Gap) and self._is_known(event):
                continue
            if self._ends_with(event):
                await self.aclose()
            return event
        await self.aclose()
        raise StopAsyncIteration

    async def _next(self) -> RuntimeEvent | Gap | None:
        """Return whatever comes next: rebuilt, live, or the news of a loss; None at the end."""
        while True:
            if self._ready:
                return self._ready.popleft()
            if self._replay is not None:
                await self._read(self._replay)
                continue
            event = self._mailbox.take()
            if isinstance(event, Elsewhere):
                self._look_up(event)
                continue
            if event is not None:
                return event
            if self._mailbox.lost:
                self._look_back(self._mailbox.recover())
                return Gap(conversation_id=self._conversation_id, reason="slow")
            if not await self._mailbox.wait():
                return None

    def _is_known(self, event: RuntimeEvent) -> bool:
        """Note a durable event; whether it was delivered before.

        Everything up to `_floor` was delivered, and `_newest_ids` of `_newest`, the version after it.
        """
        if isinstance(event, Transient):
            return False
        version = event.snapshot_version
        if version <= self._floor or (version == self._newest and event.event_id in self._newest_ids):
            return True
        if version > self._newest:
            # The first one that is delivered says where this listener began.
            self._floor = self._newest if self._newest >= 0 else version - 1
            self._newest = version
            self._newest_ids.clear()
        self._newest_ids.add(event.event_id)
        return False

    def _look_back(self, missed: int | None) -> None:
        """Have read what did not fit; without a first version of it, whatever is new in the ledger."""
        if missed is not None:
            self._replay = self._replay_after(max(missed - 1, self._floor))
        elif self._newest >= 0:
            self._replay = self._replay_after(self._floor)

    def _replay_after(self, version: int) -> _Replay:
        """Return a replay of everything later than a version; the mailbox is empty."""
        return _Replay(version, told=self._hub.version(self._conversation_id) or 0)

    def _look_up(self, elsewhere: Elsewhere) -> None:
        """Have read what others committed, as far as this listener does not know it."""
        after = self._floor
        if elsewhere.after is not None:
            after = max(after, elsewhere.after)
        elif self._newest < 0:
            return  # from before it began, and nothing of that was asked for
        if after < elsewhere.upto:
            self._replay = _Replay(after, elsewhere.upto)

    async def _read(self, replay: _Replay) -> None:
        """Read the next page of the ledger."""
        if self._checks_cursor:
            self._checks_cursor = False
            head = await self._store.load_head(self._conversation_id)
            if head.version < self._newest:
                self._ready.append(Gap(conversation_id=self._conversation_id, reason="ahead", first_available=1))
                self._floor = self._newest = -1
                self._newest_ids.clear()
                self._replay = None
                return
        page = await self._store.read_events(
            ReadEvents(
                conversation_id=self._conversation_id,
                after_version=max(0, replay.after),
                from_seq=replay.next_seq,
                limit=_PAGE,
            )
        )
        self._note_retention(replay, page)
        last = replay.upto
        if last is None and not self._rewound:
            # What has been told live meanwhile comes from the mailbox, in its place among the transient events.
            live = self._mailbox.first_version()
            last = None if live is None else max(live - 1, replay.told)
        missed = [entry for entry in page.items if last is None or entry.version <= last]
        replay.next_seq = page.next_seq if len(missed) == len(page.items) else None
        self._replay = None if replay.next_seq is None else replay
        for entry in missed:
            self._ready.extend(self._fold(entry))

    def _note_retention(self, replay: _Replay, page: EventPage) -> None:
        """Tell that the ledger begins later than what was to be replayed."""
        if not page.items:
            return
        first = page.items[0]
        begins_late = first.version > replay.after + 1 if replay.next_seq is None else first.seq > replay.next_seq
        if begins_late:
            self._ready.append(
                Gap(conversation_id=self._conversation_id, reason="retention", first_available=first.version)
            )

    def _fold(self, entry: EventEnvelope) -> list[DurableEvent]:
        events = fold_events(entry)
        return [event for event in events if self._run_id in {None, event.run_id}]


def _is_last(event: RuntimeEvent) -> bool:
    """Whether nothing follows of a run: it ended, was taken away for good, or was answered by another run."""
    if isinstance(event, RunStateEvent):
        return event.state in {"abandoned", "superseded"}
    return isinstance(event, TerminalEvent)


def check_after(after: int | EventCursor | None, /) -> None:
    """Refuse a starting point that is none.

    Raises:
        UsageError: It is neither None, a cursor, nor an integer of at least 0.
    """
    version = after.snapshot_version if isinstance(after, EventCursor) else after
    if version is not None and not _is_version(version):
        raise UsageError("must be a conversation version (an integer from 0), an EventCursor or None", argument="after")


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
