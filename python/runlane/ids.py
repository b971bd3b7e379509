"""Where identifiers come from.

Nothing in runlane calls a random source directly: it asks an `IdSource`, so that a whole runtime can be replayed with
predictable identifiers.
"""

from __future__ import annotations

import secrets
import time
from typing import Protocol

__all__ = ["IdSource", "RandomIds", "SequenceIds"]

_RANDOM_BITS = 80


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
        milliseconds = time.time_ns() // 1_000_000
        return f"{kind}_{(milliseconds << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS):032x}"


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
