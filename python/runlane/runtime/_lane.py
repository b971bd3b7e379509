"""One conversation in this process: its commits, one after another, and what is known of its records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Unpack

import anyio

from runlane.delivery import DurableEvent
from runlane.records import Message, Run
from runlane.runtime._announcing import Extras, Publishing, duplicate_events, durable_events
from runlane.runtime._config import HistoryConfig
from runlane.runtime._lane_records import LaneRecords
from runlane.runtime._seeding import inserted_by
from runlane.runtime._store_calls import StoreCalls
from runlane.store import AppendEvent, Applied, Command, Duplicate, Outcome, SeedConversation

__all__ = ["ConversationLane"]


@dataclass(slots=True)
class _Standing:
    """A run that does not move: its id and revision, and when it was first and last seen."""

    key: tuple[str, int]
    since: float
    seen: float


class ConversationLane:
    """Commits of one conversation go through here in turn, so that their events are told in the order of versions.

    Attributes:
        turn: Held by whoever commits, or must not be committed beside.
        records: What its next prompt may see.
        is_seeded: Whether the prompt's user instructions are known to be in the conversation.
        users: Tasks that need the lane; at 0 it may go to sleep.
        idle_since: Monotonic time at which the last user left.
    """

    def __init__(
        self, calls: StoreCalls, publishing: Publishing, conversation_id: str, limits: HistoryConfig, /
    ) -> None:
        """Create a lane that knows nothing yet."""
        self._calls = calls
        self._publishing = publishing
        self.turn = anyio.Lock(fast_acquire=True)
        self.conversation_id = conversation_id
        self.records = LaneRecords(calls, conversation_id, limits)
        self.is_seeded = False
        self.users = 0
        self.idle_since = 0.0
        self._standing: _Standing | None = None

    async def commit(
        self,
        commands: Sequence[Command],
        /,
        *,
        settled: Callable[[tuple[Outcome, ...]], None] | None = None,
        **extras: Unpack[Extras],
    ) -> tuple[Outcome, ...]:
        """Carry out commands as one transaction, learn from them, then tell what happened.

        Args:
            commands: At least one.
            settled: Called with the outcomes before anything is told.
            **extras: What events say beyond the commit.

        Raises:
            StoreError, UsageError: See `StoreCalls.apply`.
        """
        async with self.turn:
            return await self.carry_out(commands, settled=settled, **extras)

    async def carry_out(
        self,
        commands: Sequence[Command],
        /,
        *,
        settled: Callable[[tuple[Outcome, ...]], None] | None = None,
        **extras: Unpack[Extras],
    ) -> tuple[Outcome, ...]:
        """Commit as `commit` does, for whoever holds the turn: commands that rest on what is known at this moment."""
        outcomes, attempts = await self._calls.apply_counted(self.conversation_id, commands)
        applied = [outcome for outcome in outcomes if isinstance(outcome, Applied)]
        if attempts > 1:
            # What is found again under its own id is answered with its runs as they are by now.
            self.records.doubt()
        elif len(applied) == len(commands):
            self.records.learn(applied)
        if len(applied) < len(commands):
            applied = []
        if settled is not None:
            settled(outcomes)
        if self._publishing.wanted(self.conversation_id):
            self._place(commands, applied, outcomes[-1])
            self._publishing.tell_all(self._events(commands, applied, outcomes[-1], extras))
        return outcomes

    def _place(self, commands: Sequence[Command], applied: list[Applied], last: Outcome) -> None:
        """Say which versions are told next, so that listeners look up what others committed before them."""
        hub = self._publishing.hub
        if isinstance(last, Duplicate):
            hub.reach(self.conversation_id, last.version, last.version)
        elif applied:
            version = applied[-1].delta.version
            steps = sum(map(_makes_version, commands, applied))
            hub.reach(self.conversation_id, version - steps, version)

    def looked(self, run: Run, now: float, /, *, within: float) -> float:
        """Note that a run was seen at the head of the queue.

        Args:
            run: As it was seen.
            now: Monotonic time, in seconds.
            within: Seconds after which an earlier look does not count any more.

        Returns:
            For how many seconds it has been seen there without having changed, whoever looked.
        """
        key, standing = (run.id, run.revision), self._standing
        if standing is None or standing.key != key or now - standing.seen > within:
            standing = self._standing = _Standing(key, now, now)
        standing.seen = now
        return now - standing.since

    @asynccontextmanager
    async def quiet(self) -> AsyncIterator[None]:
        """Keep commits from being made, and wait for one that is on its way until it was told."""
        async with self.turn:
            yield

    def _events(
        self, commands: Sequence[Command], applied: list[Applied], last: Outcome, extras: Extras
    ) -> list[DurableEvent]:
        if isinstance(last, Duplicate):
            return duplicate_events(last)
        return [
            event
            for command, outcome in zip(commands, applied, strict=False)
            for event in durable_events(self.conversation_id, command, outcome, **extras)
        ]

    async def mentions(self, word: str, /) -> list[Message]:
        """Return the records at hand that hold a text without characters JSON escapes, newest first.

        Raises:
            StoreError: The store could not be read.
        """
        async with self.turn:
            await self.records.catch_up()
            return list(self.records.mentioning(word))

    async def show(self, run: Run, /) -> None:
        """Know everything committed so far, and show the inputs of the run whose turn it is.

        Raises:
            StoreError: The store could not be read.
        """
        async with self.turn:
            await self.records.catch_up()
            if not self.records.begin(run):
                self.records.forget()
                await self.records.catch_up()
                self.records.begin(run)


def _makes_version(command: Command, outcome: Applied) -> bool:
    """Whether an applied command made a version: an entry makes none, nor does a seed that was there before."""
    return inserted_by(outcome) if isinstance(command, SeedConversation) else not isinstance(command, AppendEvent)
