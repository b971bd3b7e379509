"""A retry that is decided stands in the ledger before anything waits."""

import pytest

from runlane.errors import InvalidValueError
from runlane.models import RetryPolicy
from runlane.runtime import record_retry_decision
from runlane.store import MemoryStore, ReadEvents


@pytest.mark.anyio
async def test_a_repeated_attempt_is_recorded() -> None:
    """The entry names the next attempt, the wait in milliseconds and the reason."""
    async with MemoryStore() as store:
        policy = RetryPolicy(max_attempts=3, delay=lambda _: 0.25)
        decision = await record_retry_decision(
            store, policy, {"status": 429}, conversation_id="c", run_id="r", attempt=1
        )
        page = await store.read_events(ReadEvents(conversation_id="c"))
    assert decision.retries
    assert [(event.kind, event.payload) for event in page.items] == [
        ("retry/scheduled", {"run_id": "r", "attempt": 2, "delay_ms": 250, "reason": "rate-limited"})
    ]


@pytest.mark.anyio
async def test_what_is_not_repeated_or_not_decidable_leaves_no_entry() -> None:
    """A last attempt, and a policy whose wait is no time."""
    async with MemoryStore() as store:
        policy = RetryPolicy(max_attempts=2, delay=lambda _: -1)
        await record_retry_decision(store, policy, {"status": 429}, conversation_id="c", run_id="r", attempt=2)
        with pytest.raises(InvalidValueError):
            await record_retry_decision(store, policy, {"status": 429}, conversation_id="c", run_id="r", attempt=1)
        assert (await store.read_events(ReadEvents(conversation_id="c"))).items == ()
