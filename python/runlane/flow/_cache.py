"""What nodes remember: memory that the engine owns, and a port to a cache that the host owns.

The two are independent: no read falls through from one to the other, no write is mirrored. Partitions keep data apart
and protect nothing; keeping users apart is the host's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, Protocol

from runlane.clock import Clock
from runlane.contracts import CancelToken, Id, require_limit, require_seconds
from runlane.errors import InvalidValueError

__all__ = [
    "MISSING",
    "AgentCacheAddress",
    "AgentCacheOptions",
    "AgentCachePort",
    "CacheContext",
    "CacheReadOptions",
    "EngineCacheOptions",
    "EngineMemory",
    "Missing",
    "NodeAgentCache",
    "NodeCache",
]


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""What a cache port returns for a key it does not have, since None is a value like any other."""


@dataclass(frozen=True, kw_only=True)
class EngineCacheOptions:
    """How much the engine's memory keeps.

    Attributes:
        max_entries: Over all nodes and partitions, at least 1.
        ttl: Seconds after its latest write that an entry is gone; None: never.

    Raises:
        InvalidValueError: A number is out of range.
    """

    max_entries: int = 1024
    ttl: float | None = None

    def __post_init__(self) -> None:
        require_limit(self.max_entries, argument="caches.volatile.max_entries", minimum=1)
        if require_seconds(self.ttl, argument="caches.volatile.ttl") == 0:
            raise InvalidValueError("must be above 0", argument="caches.volatile.ttl")


@dataclass(frozen=True, kw_only=True)
class CacheReadOptions:
    """What a read looks at instead of the node's own entries; what is None stays the reader's own."""

    node_id: str | None = None
    partition: str | None = None


@dataclass(frozen=True, kw_only=True)
class AgentCacheAddress:
    """Whose entries a call to the host's cache is about.

    Attributes:
        signal: The visit's token.
    """

    agent_id: Id
    thread_id: Id
    branch_id: Id
    node_id: str
    partition: str
    signal: CancelToken


class AgentCachePort(Protocol):
    """A cache of the host. Size, expiry, encoding and isolation are its business; its errors pass unchanged."""

    async def get(self, address: AgentCacheAddress, key: str, /) -> object | Literal[Missing.MISSING]:
        """Return the value, or `MISSING`."""
        ...

    async def set(self, address: AgentCacheAddress, key: str, value: object, /) -> None:
        """Keep a value."""
        ...

    async def delete(self, address: AgentCacheAddress, key: str, /) -> bool:
        """Drop a value; return whether it was there."""
        ...

    async def clear(self, address: AgentCacheAddress, /) -> int:
        """Drop everything under the address; return how much that was."""
        ...


@dataclass(frozen=True, kw_only=True)
class AgentCacheOptions:
    """The caches of an engine.

    Attributes:
        volatile: The engine's own memory.
        persistent: The host's cache; using it without one is an error, never a silent miss.
    """

    volatile: EngineCacheOptions = field(default_factory=EngineCacheOptions)
    persistent: AgentCachePort | None = None


class NodeCache(Protocol):
    """A node's view of the engine's memory. Synchronous; values keep their identity."""

    def get(self, key: str, default: object = None, /, *, read: CacheReadOptions | None = None) -> object:
        """Return the value kept under a key, or `default`."""
        ...

    def has(self, key: str, /, *, read: CacheReadOptions | None = None) -> bool:
        """Whether there is a value."""
        ...

    def set(self, key: str, value: object, /) -> None:
        """Keep a value; its time to live starts now."""
        ...

    def delete(self, key: str, /) -> bool:
        """Drop a value of this node and partition; return whether it was there."""
        ...

    def clear(self) -> int:
        """Drop all values of this node and partition; return how many there were."""
        ...


class NodeAgentCache(Protocol):
    """A node's view of the host's cache."""

    async def get(self, key: str, default: object = None, /, *, read: CacheReadOptions | None = None) -> object:
        """Return the value kept under a key, or `default`."""
        ...

    async def has(self, key: str, /, *, read: CacheReadOptions | None = None) -> bool:
        """Whether there is a value."""
        ...

    async def set(self, key: str, value: object, /) -> None:
        """Keep a value."""
        ...

    async def delete(self, key: str, /) -> bool:
        """Drop a value of this node and partition; return whether it was there."""
        ...

    async def clear(self) -> int:
        """Drop all values of this node and partition; return how many there were."""
        ...


class CacheContext(Protocol):
    """Both caches, as one visit sees them; neither can be used after it."""

    @property
    def memory(self) -> NodeCache:
        """The engine's memory: lives as long as the engine, over several runs."""
        ...

    @property
    def persistent(self) -> NodeAgentCache:
        """The host's cache."""
        ...


class EngineMemory:
    """What all nodes of one engine remember.

    A full memory drops the entry with the oldest write; as all entries live equally long, that is an expired one if
    there is any. Reading changes nothing.
    """

    __slots__ = ("_clock", "_entries", "_of_view", "_options")

    def __init__(self, options: EngineCacheOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._entries: dict[tuple[str, str, str], tuple[object, float]] = {}
        self._of_view: dict[tuple[str, str], set[str]] = {}

    def get(self, node_id: str, partition: str, key: str) -> object:
        """Return a live value, or `MISSING`."""
        place = (node_id, partition, key)
        entry = self._entries.get(place)
        if entry is None:
            return MISSING
        if self._is_expired(entry[1]):
            self._drop(place)
            return MISSING
        return entry[0]

    def set(self, node_id: str, partition: str, key: str, value: object) -> None:
        """Keep a value as the newest write."""
        place = (node_id, partition, key)
        if place in self._entries:
            del self._entries[place]
        elif len(self._entries) >= self._options.max_entries:
            self._drop(next(iter(self._entries)))
        self._entries[place] = (value, self._clock.monotonic())
        self._of_view.setdefault((node_id, partition), set()).add(key)

    def delete(self, node_id: str, partition: str, key: str) -> bool:
        """Drop a value; return whether a live one was there."""
        live = self.get(node_id, partition, key) is not MISSING
        if live:
            self._drop((node_id, partition, key))
        return live

    def clear(self, node_id: str, partition: str) -> int:
        """Drop everything of one view; return how many live values there were."""
        return sum(self.delete(node_id, partition, key) for key in list(self._of_view.get((node_id, partition), ())))

    def __len__(self) -> int:
        return len(self._entries)

    def _is_expired(self, written: float) -> bool:
        ttl = self._options.ttl
        return ttl is not None and self._clock.monotonic() - written >= ttl

    def _drop(self, place: tuple[str, str, str]) -> None:
        del self._entries[place]
        node_id, partition, key = place
        keys = self._of_view[node_id, partition]
        keys.discard(key)
        if not keys:
            del self._of_view[node_id, partition]
