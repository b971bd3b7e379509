"""Which stored records a prompt was made of, as one hash that grows with them.

The digest of a record is the SHA-256 of its stored body, the same that its row and its ledger entry carry. The chain
starts as 32 zero bytes; each record makes it the SHA-256 of itself and that record's digest. So a reader who has the
rows from the first to the last id can work it out again, and a turn costs its own records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from runlane.records import JsonObject, Message, stored_json

__all__ = ["START", "RecordChain", "RecordRange", "link", "stored_digest"]

START: Final = bytes(32)
"""The chain before its first record."""


def link(chain: bytes, digest: bytes, /) -> bytes:
    """Return the chain with one more digest."""
    return hashlib.sha256(chain + digest).digest()


def stored_digest(message: Message, /) -> bytes:
    """Return the SHA-256 of the bytes in which a store keeps a message."""
    return hashlib.sha256(stored_json(message)).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRange:
    """Stored records, in the order of the conversation.

    Attributes:
        first_id, last_id: The ids of the first and the last one; None for no records.
        records: How many there are.
        chain: Their digests, chained.
        messages: How many messages of a prompt they became.
    """

    first_id: str | None = None
    last_id: str | None = None
    records: int = 0
    chain: bytes = START
    messages: int = 0

    def to_json(self) -> JsonObject:
        """Return the range as it is recorded."""
        ids: JsonObject = {} if self.first_id is None else {"first_id": self.first_id, "last_id": self.last_id}
        return {**ids, "count": self.records, "sha256": self.chain.hex()}


class RecordChain:
    """The records of a lane as far as a prompt may show them, in step with its history."""

    __slots__ = ("_chain", "_digests", "_ids")

    def __init__(self) -> None:
        """Begin without records."""
        self._ids: list[str] = []
        self._digests: list[bytes] = []
        self._chain: list[bytes] = []

    def append(self, message_id: str, digest: bytes, /) -> None:
        """Add the newest record."""
        self._ids.append(message_id)
        self._digests.append(digest)
        self._chain.append(link(self._chain[-1] if self._chain else START, digest))

    def remove(self, message_ids: Iterable[str], /) -> None:
        """Take records out; what was behind them is chained again."""
        gone = frozenset(message_ids)
        first = next((place for place, message_id in enumerate(self._ids) if message_id in gone), None)
        if first is None:
            return
        rest = [
            (message_id, digest)
            for message_id, digest in zip(self._ids[first:], self._digests[first:], strict=True)
            if message_id not in gone
        ]
        del self._ids[first:], self._digests[first:], self._chain[first:]
        for message_id, digest in rest:
            self.append(message_id, digest)

    def of(self, kept: Sequence[int] | None, /, *, messages: int) -> RecordRange:
        """Return the records a prompt is made of.

        Args:
            kept: Their indices, ascending; None for all of them, which costs nothing.
            messages: How many messages they became.
        """
        if not self._ids or (kept is not None and not kept):
            return RecordRange(messages=messages)
        if kept is None or len(kept) == len(self._ids):
            first, last, chain, count = 0, -1, self._chain[-1], len(self._ids)
        else:
            chain = START
            for place in kept:
                chain = link(chain, self._digests[place])
            first, last, count = kept[0], kept[-1], len(kept)
        return RecordRange(
            first_id=self._ids[first], last_id=self._ids[last], records=count, chain=chain, messages=messages
        )
