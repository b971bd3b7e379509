"""The model a conversation was set to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from runlane.records import Record, RecordId, Timestamp, validated

__all__ = ["MemoryModelSelectionStore", "ModelSelection", "ModelSelectionStore"]


class ModelSelection(Record):
    """Which model a conversation uses, and since when."""

    model_id: RecordId
    selected_at: Timestamp


class ModelSelectionStore(Protocol):
    """Keeps one selection for each conversation.

    `MemoryModelSelectionStore` keeps them as long as it lives, `runlane.runtime.LedgerModelSelectionStore` as long as
    the conversations are kept.
    """

    async def load(self, conversation_id: str, /) -> ModelSelection | None:
        """Return a conversation's selection, or None if it has none."""
        ...

    async def save(self, conversation_id: str, selection: ModelSelection | Mapping[str, object], /) -> ModelSelection:
        """Keep a selection in place of the one before, and return it as it is kept.

        Raises:
            InvalidValueError: It is no selection; the one before stays.
        """
        ...


class MemoryModelSelectionStore:
    """Keeps selections in this process, for as long as the object lives.

    Example:
        >>> import anyio
        >>> anyio.run(MemoryModelSelectionStore().load, "c1") is None
        True
    """

    def __init__(self) -> None:
        """Know no selection."""
        self._selections: dict[str, ModelSelection] = {}

    async def load(self, conversation_id: str, /) -> ModelSelection | None:
        """Return a conversation's selection, or None."""
        return self._selections.get(conversation_id)

    async def save(self, conversation_id: str, selection: ModelSelection | Mapping[str, object], /) -> ModelSelection:
        """Keep a selection; see `ModelSelectionStore.save`."""
        checked = validated(ModelSelection, selection, argument="selection")
        self._selections[conversation_id] = checked
        return checked
