"""Looking for what others commit to conversations that somebody subscribed to.

The store says that a conversation changed, whoever changed it: on SQLite another process rings, and the store looks by
itself where nobody can. What changed is then looked up, never guessed: while no commit of this runtime is on its way,
every version that was not told here was committed elsewhere.
"""

from __future__ import annotations

from typing import Final

import anyio
from anyio.abc import TaskGroup

from runlane.clock import Clock
from runlane.delivery import EventHub
from runlane.runtime._lane_table import LaneTable
from runlane.store import Store

__all__ = ["Follower", "Followers"]

_WAIT: Final = 60.0
"""Seconds for which a store is asked to wait at a time."""
_AGAIN: Final = 1.0
"""Seconds after which a store that failed is asked again."""
_LULL: Final = 0.05
"""Seconds after a commit of this runtime before the store is asked again: an answer commits many times in a row."""


class Followers:
    """One task for each conversation that somebody subscribed to, as long as somebody does."""

    def __init__(self, store: Store, hub: EventHub, lanes: LaneTable, clock: Clock, /) -> None:
        """Prepare; nothing is looked at before `start`."""
        self._store = store
        self._hub = hub
        self._lanes = lanes
        self._clock = clock
        self._tasks: TaskGroup | None = None
        self._followed: dict[str, _Followed] = {}

    def start(self, tasks: TaskGroup, /) -> None:
        """Say where the tasks may run, and begin to look for those who subscribed before."""
        self._tasks = tasks
        for followed in self._followed.values():
            self._begin(followed)

    def follow(self, conversation_id: str, /) -> Follower:
        """Look for what others commit to a conversation until the result is told to stop."""
        followed = self._followed.get(conversation_id)
        if followed is None:
            followed = self._followed[conversation_id] = _Followed(conversation_id)
            self._begin(followed)
        followed.users += 1
        return Follower(self, followed)

    def leave(self, followed: _Followed, /) -> None:
        """One less is interested."""
        followed.users -= 1
        if followed.users == 0:
            self._forget(followed)
            followed.scope.cancel()

    def _forget(self, followed: _Followed) -> None:
        if self._followed.get(followed.conversation_id) is followed:
            del self._followed[followed.conversation_id]

    def _begin(self, followed: _Followed) -> None:
        if self._tasks is not None:
            followed.begins()
            self._tasks.start_soon(self._work, followed, name=f"following {followed.conversation_id}")

    async def _work(self, followed: _Followed) -> None:
        try:
            with followed.scope:
                # A listener may have been dropped without being closed.
                while self._hub.listens(followed.conversation_id):
                    await self._try(followed)
        finally:
            followed.mark()
            self._forget(followed)

    async def _try(self, followed: _Followed) -> None:
        try:
            await self._look(followed)
        except Exception:  # noqa: BLE001 - a store that fails now is asked again
            followed.mark()
            await self._clock.sleep(_AGAIN)
        else:
            followed.mark()

    async def _look(self, followed: _Followed) -> None:
        """Point at what is new, then wait until there may be more."""
        conversation_id = followed.conversation_id
        known = self._hub.version(conversation_id)
        if known is not None:
            # A commit of this runtime may have said how far it is before the first look.
            followed.mark()
        if known is None or await self._store.wait_for_change(conversation_id, known, max_wait=_WAIT):
            with self._lanes.use(conversation_id) as lane:
                async with lane.quiet():
                    is_own = self._hub.version(conversation_id) != known
                    if not is_own:
                        head = await self._store.load_head(conversation_id)
                        self._hub.reach(conversation_id, head.version, head.version)
            if is_own:
                # What others commit meanwhile is told by the next commit here, or looked up after this. The time of the
                # loop, for it is none that anybody is told: a clock that stands still must not keep this from looking.
                await anyio.sleep(_LULL)


class _Followed:
    """A conversation that is looked at."""

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        self.users = 0
        self.scope = anyio.CancelScope()
        self._first_look: anyio.Event | None = None

    def begins(self) -> None:
        """Note that it will be looked at."""
        self._first_look = anyio.Event()

    def mark(self) -> None:
        """Note that it was looked at, or could not be."""
        if self._first_look is not None:
            self._first_look.set()

    async def begun(self) -> None:
        """Wait until it was looked at once, if it is looked at at all."""
        if self._first_look is not None:
            await self._first_look.wait()


class Follower:
    """One listener's interest in a conversation."""

    def __init__(self, followers: Followers, followed: _Followed, /) -> None:
        """Made by `Followers.follow`."""
        self._followers = followers
        self._followed = followed

    async def begun(self) -> None:
        """Return once the conversation is looked at, or its first look failed."""
        await self._followed.begun()

    def stop(self) -> None:
        """Be interested no more."""
        self._followers.leave(self._followed)
