"""How far an execution had come when it died, as far as the record can tell."""

from __future__ import annotations

from typing import Literal, TypeAlias

from runlane.records import JsonObject, Run, ToolCallPart
from runlane.runtime._core import RuntimeCore
from runlane.runtime._effects import effect_event_id
from runlane.runtime._left_open import LeftOpen, kept_parts

__all__ = ["TakeoverClass", "takeover_evidence"]

TakeoverClass: TypeAlias = Literal["I", "E0", "E1", "E2", "E3", "E4", "E5", "E6"]
"""What a run was doing; see the table in `runlane.runtime._recovery`."""


async def takeover_evidence(core: RuntimeCore, run: Run, /) -> JsonObject:
    """Return what is known of an execution that was cut off, for the ledger.

    Raises:
        StoreError: The record could not be read.
    """
    kind: TakeoverClass = "E0"
    if run.state == "interrupt_requested":
        kind = "I"
    elif run.last_operation is not None:
        kind = await _with_tools(core, run)
    return {"class": kind, "owner_id": run.owner_id, "fencing_token": run.fencing_token}


async def _with_tools(core: RuntimeCore, run: Run) -> TakeoverClass:
    """Return the class of a run that had asked a model: the most uncertain of its calls decides."""
    draft = await core.calls.read(lambda store: store.load_draft(run.conversation_id, run.id))
    left = LeftOpen(kept=kept_parts(draft))
    if not left.kept:
        return "E1"
    classes = {await _of_call(core, run, call) for call in left.open_calls}
    worst: tuple[TakeoverClass, ...] = ("E5", "E4", "E3", "E2")
    return next((kind for kind in worst if kind in classes), "E6")


async def _of_call(core: RuntimeCore, run: Run, call: ToolCallPart) -> TakeoverClass:
    event_id = effect_event_id(run.id, f"{run.id}:{call.call_id}")
    if await core.calls.read(lambda store: store.find_event(run.conversation_id, event_id)) is None:
        return "E2"
    known = None if core.tools is None else core.tools.get(call.tool_name)
    if known is None:
        return "E5"
    return "E3" if known.idempotent else "E4" if known.reconciles else "E5"
