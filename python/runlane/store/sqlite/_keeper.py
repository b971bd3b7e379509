"""The thread that looks after a store beside its traffic: leases, checkpoints, other processes' commits.

It has a connection of its own and nothing in common with event loops or tools, so a blocked loop does not cost a lease.
Its connection does not wait for the disk: a lease need not survive a loss of power, since a boot ends all leases.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
import apsw

from runlane.store.sqlite._bell import Bell
from runlane.store.sqlite._bridge import Post, post_to_this_loop
from runlane.store.sqlite._errors import FILE_ERRORS
from runlane.store.sqlite._host import Host
from runlane.store.sqlite._owners import renew

__all__ = ["HeldLease", "Keeper", "Waiter"]

_POLL: Final = 0.1
"""Seconds between looks for other processes' commits if they cannot ring."""
_POLL_HEARD: Final = 1.0
"""The same if they can."""
_CHECKPOINT_PAGES: Final = 2000


class HeldLease:
    """A lease of this process.

    It counts as lost a third of its time before it really expires, measured from before its last renewal was sent: who
    trusts `held` has stopped before anybody else may begin.
    """

    def __init__(self, owner_id: str, host: Host, ttl: float) -> None:
        self.owner_id = owner_id
        self._host = host
        self._margin = ttl / 3
        self._until = host.now() + ttl
        self._lost = False

    @property
    def held(self) -> bool:
        """Whether the lease is held; once False, for ever False."""
        if not self._lost and self._host.now() > self._until - self._margin:
            self._lost = True
        return not self._lost

    def renewed(self, until: float) -> None:
        """Note a renewal."""
        self._until = until

    def lose(self) -> None:
        """Note that it is gone."""
        self._lost = True


@dataclass(slots=True, eq=False)
class Waiter:
    """A task that waits for a conversation to get past a version."""

    conversation_id: str
    version: int
    post: Post = field(default_factory=post_to_this_loop)
    event: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True, eq=False)
class _Watched:
    """A conversation that somebody waits for, or did a moment ago: who was woken often waits again at once.

    Attributes:
        version: It has come this far at least, and what follows will be noticed; None until somebody has read it.
        waiters: Who waits.
        is_idle: Nobody did when the keeper looked last.
    """

    version: int | None = None
    waiters: set[Waiter] = field(default_factory=set)
    is_idle: bool = False

    def reach(self, version: int) -> set[Waiter]:
        """Note a version, and take out those who waited for it."""
        if self.version is None or version > self.version:
            self.version = version
        woken = {waiter for waiter in self.waiters if waiter.version < version}
        self.waiters -= woken
        return woken


class Keeper:
    """Renews leases, checkpoints, and watches for what others commit.

    Args:
        connect: Opens its connection; called in its thread.
        bell: Wakes it.
        host: The clock of leases.
        ttl: Seconds a lease lasts.
        beat: Seconds between renewals.
    """

    def __init__(self, connect: Callable[[], apsw.Connection], bell: Bell, host: Host, ttl: float, beat: float) -> None:
        self.found_full: Callable[[], None] = lambda: None
        self._connect = connect
        self._bell = bell
        self._host = host
        self._ttl = ttl
        self._beat = beat
        self._lock = threading.Lock()
        self._closed = False
        self._leases: dict[str, HeldLease] = {}
        self._watched: dict[str, _Watched] = {}
        self._next_beat = host.now() + beat
        self._checkpoint = False
        self._backfilled = False
        self._pages_then = 0
        self._data_version = -1
        self._thread = threading.Thread(target=self._run, name="runlane-keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread. Blocks."""
        self._closed = True
        self._bell.ring()
        self._thread.join()
        self._bell.close()

    def add(self, lease: HeldLease) -> None:
        """Keep a lease alive."""
        with self._lock:
            self._leases[lease.owner_id] = lease
        self._bell.ring()

    def remove(self, lease: HeldLease) -> None:
        """Keep it alive no longer."""
        with self._lock:
            self._leases.pop(lease.owner_id, None)

    def watch(self, waiter: Waiter) -> int | None:
        """Wake a task once its conversation is past its version.

        Returns:
            How far the conversation has come at least. If that is past the version, nobody is woken; if it is None,
            the task must read it, and tell it by `read`.
        """
        with self._lock:
            watched = self._watched.get(waiter.conversation_id)
            is_new = watched is None
            if watched is None:
                watched = self._watched[waiter.conversation_id] = _Watched()
            watched.waiters.add(waiter)
            watched.is_idle = False
            version = watched.version
        if is_new:
            self._bell.ring()
        return version

    def read(self, waiter: Waiter, version: int) -> None:
        """Take what a waiting task has read; it says nothing once the task was told that there is more."""
        with self._lock:
            watched = self._watched.get(waiter.conversation_id)
            woken = watched.reach(version) if watched is not None and waiter in watched.waiters else ()
        _notify(woken)

    def unwatch(self, waiter: Waiter) -> None:
        """Forget a task."""
        with self._lock:
            watched = self._watched.get(waiter.conversation_id)
            if watched is not None:
                watched.waiters.discard(waiter)

    def committed(self, versions: Mapping[str, int | None]) -> None:
        """Wake whoever waits for these conversations; a version that is not known is read again by who waits next."""
        if not self._watched:
            return
        found: list[Waiter] = []
        with self._lock:
            for conversation_id, version in versions.items():
                watched = self._watched.get(conversation_id)
                if watched is None:
                    continue
                if version is None:
                    del self._watched[conversation_id]
                found += watched.waiters if version is None else watched.reach(version)
        _notify(found)

    def wants_checkpoint(self, pages: int) -> bool:
        """Answer the writer, after a commit that left this many pages in the log.

        A checkpoint made here leaves over what was committed meanwhile, so the log would never start again from its
        beginning: once most of it is done, the writer does the little rest between two groups.
        """
        if self._backfilled:
            self._backfilled = False
            self._pages_then = pages
            return True
        grown = pages - self._pages_then if pages >= self._pages_then else pages
        if grown >= _CHECKPOINT_PAGES and not self._checkpoint:
            self._checkpoint = True
            self._bell.ring()
        return False

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        while self._sleep():
            try:
                connection = connection or self._connect()
            except FILE_ERRORS:
                self._bell.wait(_POLL)
                continue
            # Not one of these is kept from its turn by another one that fails.
            worked = [self._try(step, connection) for step in (self._beat_once, self._look_around, self._backfill)]
            if not all(worked):
                self._bell.wait(_POLL)
        if connection is not None:
            connection.close()

    def _try(self, step: Callable[[apsw.Connection], None], connection: apsw.Connection) -> bool:
        """Do something; whether it worked. It is tried again soon; a lease that is not renewed runs out by itself."""
        try:
            step(connection)
        except FILE_ERRORS as error:
            if isinstance(error, apsw.FullError):
                self.found_full()
            return False
        return True

    def _sleep(self) -> bool:
        """Wait for something to do; False if there is nothing more to do."""
        # What was committed before others could ring is found by one more look.
        looks_again = bool(self._watched) and self._bell.listen()
        if not self._closed and not self._checkpoint and not looks_again:
            self._bell.wait(self._rest())
        return not self._closed

    def _rest(self) -> float | None:
        """Return how long it may sleep, in seconds; None for ever."""
        rest = max(0.0, self._next_beat - self._host.now()) if self._leases else None
        if not self._watched:
            return rest
        poll = _POLL_HEARD if self._bell.is_heard_outside else _POLL
        return poll if rest is None else min(rest, poll)

    def _beat_once(self, connection: apsw.Connection) -> None:
        now = self._host.now()
        with self._lock:
            leases = dict(self._leases)
        if not leases or now < self._next_beat:
            return
        until = now + self._ttl
        with connection:
            lost = renew(connection, leases, until)
        self._next_beat = now + self._beat
        for owner_id, lease in leases.items():
            if owner_id in lost:
                lease.lose()
            else:
                lease.renewed(until)

    def _look_around(self, connection: apsw.Connection) -> None:
        """Wake those whose conversation is past their version, if anything was committed since the last look."""
        # The pragma looks into the file; SQLite's file control of that name tells what was seen last.
        seen = int(str(connection.pragma("data_version")))
        with self._lock:
            for conversation_id, watched in tuple(self._watched.items()):
                if not watched.waiters and watched.is_idle:
                    del self._watched[conversation_id]
                watched.is_idle = not watched.waiters
            looked_at = dict(self._watched)
        if not looked_at or seen == self._data_version:
            return
        for conversation_id, watched in looked_at.items():
            version = _version(connection, conversation_id)
            with self._lock:
                woken = watched.reach(version)
            _notify(woken)
        self._data_version = seen

    def _backfill(self, connection: apsw.Connection) -> None:
        if not self._checkpoint:
            return
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._backfilled = True
        finally:
            # Not before it is done, or commits that come meanwhile would have it made once more.
            self._checkpoint = False


def _version(connection: apsw.Connection, conversation_id: str) -> int:
    rows = connection.execute("SELECT version FROM conversation WHERE id = ?", (conversation_id,)).fetchall()
    return int(str(rows[0][0])) if rows else 0


def _notify(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        # A loop that is gone has nobody left to wake.
        with suppress(RuntimeError):
            waiter.post(waiter.event.set)
