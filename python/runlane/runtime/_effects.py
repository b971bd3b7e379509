"""Evidence of what a run did to the world: ledger entries that say when a tool's handler was about to be entered."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from runlane.store import AppendEvent, once_event_id

__all__ = ["effect_entry", "effect_event_id"]

_EFFECT: Final = "durability/effect"


def effect_event_id(run_id: str, key: str, /) -> str:
    """Return the id of the ledger entry that says an execution of a run is about to enter a call's handler.

    Args:
        run_id: The run that carries the call out.
        key: The call's idempotency key.
    """
    return once_event_id(_EFFECT, f"{run_id}:tool:{key}")


def effect_entry(
    phase: Literal["intent", "uncertain"], /, *, command_id: str, at: datetime, run_id: str, key: str
) -> AppendEvent:
    """Return a ledger entry about a call.

    Args:
        phase: `intent`: its handler is about to be entered, once per run; `uncertain`: it may have been, and nobody
            knows what came of it.
        command_id: Of the append.
        at: When.
        run_id: The run that carries the call out.
        key: The call's idempotency key.
    """
    return AppendEvent(
        command_id=command_id,
        at=at,
        kind=_EFFECT,
        payload={"run_id": run_id, "effect_name": f"tool:{key}", "phase": phase},
        event_id=effect_event_id(run_id, key) if phase == "intent" else None,
    )
