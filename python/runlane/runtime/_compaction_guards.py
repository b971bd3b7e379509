"""When a compaction is not even begun: one runs already, or one failed a short while ago."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from runlane.store import Store

__all__ = ["FLIGHTS", "BackOff"]

_MOST_FAILURES: Final = 10_000
"""Conversations whose failures are remembered, the latest ones."""

_DOUBLINGS: Final = 6


class _Flights:
    """Which conversations are being compacted in this process, by store."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._lock = threading.Lock()
        self._running: weakref.WeakKeyDictionary[Store, set[str]] = weakref.WeakKeyDictionary()

    @contextmanager
    def only_one(self, store: Store, conversation_id: str) -> Iterator[bool]:
        """Enter a conversation for the length of a block; gives False if somebody else is in it."""
        with self._lock:
            running = self._running.setdefault(store, set())
            is_alone = conversation_id not in running
            running.add(conversation_id)
        try:
            yield is_alone
        finally:
            if is_alone:
                with self._lock:
                    running.discard(conversation_id)


FLIGHTS: Final = _Flights()
"""Of this process, whoever compacts."""


class BackOff:
    """Conversations in which nothing is tried for a while, because summarising them failed."""

    def __init__(self, first: float) -> None:
        """Begin with waits of so many seconds; each further failure of a conversation doubles its wait."""
        self._first = first
        self._until: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def holds(self, store: Store, conversation_id: str) -> bool:
        """Whether it is too early, by the store's clock."""
        known = self._until.get(conversation_id)
        return known is not None and store.clock.monotonic() < known[1]

    def note(self, store: Store, conversation_id: str, *, failed: bool) -> None:
        """Remember a failure; anything else ends the back-off."""
        failures, _ = self._until.pop(conversation_id, (0, 0.0))
        if not failed:
            return
        wait = self._first * 2 ** min(failures, _DOUBLINGS)
        self._until[conversation_id] = (failures + 1, store.clock.monotonic() + wait)
        if len(self._until) > _MOST_FAILURES:
            self._until.popitem(last=False)
