"""The models that conversations were set to, kept in their ledgers: for as long as the conversations themselves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from runlane.contracts import require_kind
from runlane.errors import InvalidValueError, RecordCorruptError
from runlane.models import ModelSelection
from runlane.records import JsonObject, validated
from runlane.store import EventEnvelope, EventKind, Store

__all__ = ["LedgerModelSelectionStore"]

_KIND: Final[EventKind] = "state/set"
_NAME: Final = "model-selection"
_VERSION: Final = 1
_REMEMBERED: Final = 1_024


class _Entry(NamedTuple):
    """The newest entry of a conversation that is known, and its number: they are counted from 1 without a gap."""

    number: int
    event: EventEnvelope | None


class LedgerModelSelectionStore:
    """Keeps each conversation's selection as entries of its ledger (`state/set`, the name `model-selection`).

    Every process that has the store open sees what any of them saved last. Entries are numbered, so that the newest is
    found by a few look-ups (two, where this object saw it before), and never by reading the ledger.

    Args:
        store: The conversations.

    Example:
        >>> import anyio
        >>> from datetime import UTC, datetime
        >>> from runlane.store import MemoryStore
        >>> async def choose():
        ...     async with MemoryStore() as store:
        ...         now = datetime(2026, 1, 2, tzinfo=UTC)
        ...         await LedgerModelSelectionStore(store).save("c1", {"model_id": "big", "selected_at": now})
        ...         return (await LedgerModelSelectionStore(store).load("c1")).model_id
        >>> anyio.run(choose)
        'big'
    """

    def __init__(self, store: Store, /) -> None:
        """Keep selections beside the conversations they are of."""
        self._store = require_kind(store, Store, argument="store")
        self._known: OrderedDict[str, int] = OrderedDict()

    async def load(self, conversation_id: str, /) -> ModelSelection | None:
        """Return a conversation's selection, or None.

        Raises:
            RecordCorruptError: The entry holds no selection.
            StoreError: The store could not be read.
        """
        event = (await self._newest(conversation_id)).event
        if event is None:
            return None
        try:
            return validated(ModelSelection, _value_of(event), argument="selection")
        except InvalidValueError as error:
            raise RecordCorruptError(f"ledger entry {event.event_id!r} holds no model selection: {error}") from None

    async def save(self, conversation_id: str, selection: ModelSelection | Mapping[str, object], /) -> ModelSelection:
        """Keep a selection; see `ModelSelectionStore.save`. Of two at the same time both are kept, one as the newer.

        Raises:
            InvalidValueError: It is no selection; the one before stays.
            StoreError: The store could not be written.
        """
        checked = validated(ModelSelection, selection, argument="selection")
        payload: JsonObject = {
            "name": _NAME,
            "version": _VERSION,
            "value": checked.model_dump(mode="json"),
            "actor": "human",
        }
        number = (await self._newest(conversation_id)).number
        while True:
            number += 1
            appended = await self._store.append_event_once(
                conversation_id=conversation_id, kind=_KIND, key=_key(number), payload=payload
            )
            self._remember(conversation_id, number)
            if appended.outcome == "applied":
                return checked

    async def _newest(self, conversation_id: str) -> _Entry:
        """Look further and further ahead of what is known until there is nothing, then between."""
        newest, step = await self._start(conversation_id), 1
        while (event := await self._find(conversation_id, newest.number + step)) is not None:
            newest = _Entry(newest.number + step, event)
            step *= 2
        missing = newest.number + step
        while missing - newest.number > 1:
            middle = (newest.number + missing) // 2
            event = await self._find(conversation_id, middle)
            if event is None:
                missing = middle
            else:
                newest = _Entry(middle, event)
        self._remember(conversation_id, newest.number)
        return newest

    async def _start(self, conversation_id: str) -> _Entry:
        """Return the entry seen last, if it is still there: a purge takes it away."""
        number = self._known.pop(conversation_id, 0)
        event = await self._find(conversation_id, number) if number else None
        return _Entry(0 if event is None else number, event)

    async def _find(self, conversation_id: str, number: int) -> EventEnvelope | None:
        return await self._store.find_event_once(conversation_id=conversation_id, kind=_KIND, key=_key(number))

    def _remember(self, conversation_id: str, number: int) -> None:
        if number:
            self._known[conversation_id] = max(number, self._known.pop(conversation_id, 0))
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


def _key(number: int) -> str:
    return f"{_NAME}:{number}"


def _value_of(event: EventEnvelope) -> Mapping[str, object]:
    value = event.payload.get("value")
    return value if isinstance(value, dict) else {}
