"""Callers of one process over one store: they share what is under way, and wake each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

import anyio

from runlane.contracts import CancelToken
from runlane.errors import UsageError

__all__ = ["Key", "Room", "room_of"]

Key: TypeAlias = tuple[str, ...]

_BELOW: ContextVar[frozenset[Key]] = ContextVar("runlane_durability_below", default=frozenset())
"""What is under way around this code, which would wait for itself."""


class _Flight:
    """One execution that several callers wait for."""

    __slots__ = ("done", "error", "result")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.result: str | None = None
        self.error: Exception | None = None


class Room:
    """What callers over one store have in common."""

    def __init__(self) -> None:
        """Nothing is under way."""
        self._flights: dict[Key, _Flight] = {}
        self._waiting: dict[Key, set[anyio.Event]] = {}

    async def once(self, key: Key, work: Callable[[], Awaitable[str]], signal: CancelToken, /) -> str:
        """Carry work out, or wait for whoever is at it; a failure is everybody's, a cancellation only its own.

        Whose token trips while it waits for another does the work itself, which is up to that work to refuse.

        Raises:
            UsageError: The work asks for itself.
            Exception: Whatever the work raised.
        """
        if key in _BELOW.get():
            raise UsageError("is under way around this very call, which would wait for itself", argument=key[0])
        while (flight := self._flights.get(key)) is not None:
            with anyio.CancelScope() as scope, signal.bind(scope):
                await flight.done.wait()
            if not flight.done.is_set():
                return await work()
            if flight.error is not None:
                raise flight.error
            if flight.result is not None:
                return flight.result
        flight = self._flights[key] = _Flight()
        token = _BELOW.set(_BELOW.get() | {key})
        try:
            flight.result = await work()
        except Exception as error:
            flight.error = error
            raise
        finally:
            _BELOW.reset(token)
            del self._flights[key]
            flight.done.set()
        return flight.result

    @contextmanager
    def waiter(self, key: Key, /) -> Iterator[anyio.Event]:
        """Be woken, once, by the next `wake` of this key."""
        event = anyio.Event()
        waiting = self._waiting.setdefault(key, set())
        waiting.add(event)
        try:
            yield event
        finally:
            waiting.discard(event)
            if not waiting:
                self._waiting.pop(key, None)

    def wake(self, key: Key, /) -> None:
        """Wake everybody who waits for this key."""
        for event in tuple(self._waiting.get(key, ())):
            event.set()


_ROOMS: Final[WeakKeyDictionary[object, Room]] = WeakKeyDictionary()


def room_of(store: object, /) -> Room:
    """Return the room of a store object; equal keys in different stores never meet."""
    room = _ROOMS.get(store)
    if room is None:
        room = _ROOMS[store] = Room()
    return room
