"""Where identifiers come from.

Nothing in runlane calls a random source directly: it asks an `IdSource`, so that a whole runtime can be replayed with
predictable identifiers.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Final, Protocol

__all__ = ["IdSource", "RandomIds", "SequenceIds"]

_RANDOM_BYTES: Final = 10
_DIGITS: Final = 2 * _RANDOM_BYTES
_DRAWN: Final = 256

_pool: Final[deque[str]] = deque()
"""Randomness drawn ahead, each piece for one identifier. A call to the system for each would let go of the interpreter
each time, and wait for it again behind whatever thread is busy."""

if hasattr(os, "register_at_fork"):
    # A child must not give the identifiers that its parent is about to give.
    os.register_at_fork(after_in_child=_pool.clear)


def _draw() -> str:
    """Return 10 random bytes from the system, in hexadecimal, which nobody else gets."""
    while True:
        drawn = os.urandom(_DRAWN * _RANDOM_BYTES).hex()
        _pool.extend([drawn[start : start + _DIGITS] for start in range(0, len(drawn), _DIGITS)])
        try:
            return _pool.popleft()
        except IndexError:
            continue


class IdSource(Protocol):
    """Gives a new identifier each time it is asked.

    Identifiers are opaque: only the party that asked for one gives it meaning, and nothing parses or sorts by them.
    """

    def new(self, kind: str, /) -> str:
        """Return an identifier never given before.

        Args:
            kind: What is being named (`run`, `message`, `command`, ...). It becomes the readable prefix.
        """
        ...


class RandomIds:
    """Time-ordered random identifiers: `run_0192f1c4a7b2...`, 128 bits in hexadecimal.

    The first 48 bits are Unix milliseconds (the layout of a UUIDv7), so rows written together stay near each other in
    an index; the other 80 bits are random.

    Example:
        >>> RandomIds().new("run").startswith("run_")
        True
    """

    def new(self, kind: str, /) -> str:
        """Return `<kind>_<32 hexadecimal digits>`."""
        try:
            random = _pool.popleft()
        except IndexError:
            random = _draw()
        return f"{kind}_{time.time_ns() // 1_000_000:012x}{random}"


class SequenceIds:
    """Predictable identifiers for tests and replays: `run_1`, `run_2`, `message_1`, ...

    Example:
        >>> ids = SequenceIds()
        >>> ids.new("run"), ids.new("run"), ids.new("message")
        ('run_1', 'run_2', 'message_1')
    """

    def __init__(self, prefix: str = "") -> None:
        """Start every kind at 1.

        Args:
            prefix: Put before each identifier, so that two sources never give the same one.
        """
        self._prefix = prefix
        self._last: dict[str, int] = {}

    def new(self, kind: str, /) -> str:
        """Return the next identifier of its kind."""
        number = self._last.get(kind, 0) + 1
        self._last[kind] = number
        return f"{self._prefix}{kind}_{number}"
