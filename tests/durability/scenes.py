"""What the tests of step durability share: runs of a conversation, and damaged ledgers."""

# ruff: noqa: ANN401 - results are any JSON

from __future__ import annotations

from typing import Any

from runlane.durability import StepDurability
from runlane.records import JsonObject
from runlane.store import EventKind, MemoryStore, ReadEvents

CONVERSATION = "c"


def durable(store: MemoryStore, run_id: str = "run", **options: Any) -> StepDurability:
    """Return the durability of a run, as a process that has just started has it."""
    return StepDurability(store, CONVERSATION, run_id, **options)


async def ledger(store: MemoryStore) -> list[tuple[str, dict[str, object]]]:
    """Return kind and payload of every entry."""
    page = await store.read_events(ReadEvents(conversation_id=CONVERSATION, limit=10_000))
    return [(event.kind, dict(event.payload)) for event in page.items]


async def put(store: MemoryStore, kind: EventKind, /, **payload: object) -> None:
    """Append an entry as some other writer would."""
    facts: JsonObject = payload  # type: ignore[assignment]
    await store.append_event(conversation_id=CONVERSATION, kind=kind, payload=facts)


class Counting:
    """A body that counts how often it is entered."""

    def __init__(self, value: Any = "done", error: Exception | None = None) -> None:
        """Give a value, or fail."""
        self.entered = 0
        self.value = value
        self.error = error

    async def __call__(self) -> Any:
        """Be entered."""
        self.entered += 1
        if self.error is not None:
            raise self.error
        return self.value
