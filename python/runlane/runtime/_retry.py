"""Retries of provider calls in the ledger: what was decided is recorded before anything waits."""

from __future__ import annotations

from datetime import datetime

from runlane.contracts import require_id, require_kind
from runlane.models import RetryDecision, RetryPolicy, decide_retry
from runlane.records import JsonObject
from runlane.store import AppendEvent, Store

__all__ = ["record_retry_decision", "retry_scheduled", "retry_started"]


def retry_scheduled(*, command_id: str, at: datetime, run_id: str, decision: RetryDecision) -> AppendEvent:
    """Return the ledger entry of an attempt that is to be repeated: joins the checkpoint that drops its output."""
    payload: JsonObject = {
        "run_id": run_id,
        "attempt": decision.attempt,
        "delay_ms": decision.delay_ms,
        "reason": decision.failure.reason,
    }
    return AppendEvent(command_id=command_id, at=at, kind="retry/scheduled", payload=payload)


def retry_started(*, command_id: str, at: datetime, run_id: str, attempt: int) -> AppendEvent:
    """Return the ledger entry of an attempt that begins after its wait."""
    return AppendEvent(
        command_id=command_id, at=at, kind="retry/started", payload={"run_id": run_id, "attempt": attempt}
    )


async def record_retry_decision(
    store: Store,
    policy: RetryPolicy | None,
    error: object,
    /,
    *,
    conversation_id: str,
    run_id: str,
    attempt: int,
) -> RetryDecision:
    """Decide whether a failed attempt is repeated, and record it if so; for loops that applications write.

    The managed loop does the same inside its own commits. An attempt that is not repeated leaves no entry.

    Args:
        store: Keeps the ledger.
        policy: None never repeats.
        error: What the provider call raised.
        conversation_id: Whose ledger.
        run_id: The run that asked.
        attempt: The number of the failed attempt, 1 for the first.

    Returns:
        The decision; a caller waits `delay` seconds before the next attempt.

    Raises:
        UsageError, InvalidValueError: The policy gave no usable delay, or an argument is malformed; nothing was
            recorded.
        StoreError: The entry could not be written.
    """
    require_kind(store, Store, argument="store")
    require_id(conversation_id, argument="conversation_id")
    require_id(run_id, argument="run_id")
    decision = decide_retry(policy, error, attempt=attempt)
    if decision.retries:
        command = retry_scheduled(
            command_id=store.ids.new("command"), at=store.clock.now(), run_id=run_id, decision=decision
        )
        await store.apply(conversation_id, (command,))
    return decision
