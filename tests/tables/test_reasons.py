"""Why a run ended decides its state, the status of its answer, and whether it may absorb."""

import pytest

from runlane.errors import UsageError
from runlane.records import MessageStatus, RunState, TerminalReason
from runlane.store import MemoryStore
from runlane.testing._store_kit import Lane, applied

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("reason", "state", "status", "absorbs"),
    [
        ("success", "completed", "completed", True),
        ("policy_stop", "completed", "completed", True),
        ("provider_stop", "completed", "completed", True),
        ("interrupted", "interrupted", "interrupted", False),
        ("superseded", "superseded", "superseded", False),
        ("cancelled", "cancelled", "interrupted", False),
        ("shutdown", "cancelled", "interrupted", False),
        ("timeout", "cancelled", "failed", False),
        ("abandoned", "abandoned", "failed", False),
        ("provider_failure", "failed", "failed", False),
        ("context_overflow", "failed", "failed", False),
        ("storage_conflict", "failed", "failed", False),
        ("runtime_failure", "failed", "failed", False),
        ("output_rejected", "failed", "failed", False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_reason_decides_state_status_and_absorption(
    reason: TerminalReason, state: RunState, status: MessageStatus, *, absorbs: bool
) -> None:
    """A completing end takes a waiting run along; any other end that tries is misuse and changes nothing."""
    policy_name = "limit" if reason == "policy_stop" else None
    async with MemoryStore() as store:
        lane = Lane(store)
        await lane.accept("a")
        await lane.start("a")
        await lane.accept("b")
        attempt = lane.try_end("a", reason, policy_name=policy_name, absorb=["b"])
        if absorbs:
            applied(await attempt)
        else:
            await lane.refused(attempt, UsageError)
            applied(await lane.try_end("a", reason, policy_name=policy_name))
        ended, waiting = await lane.view("a"), await lane.view("b")
    assert ended.assistant is not None
    assert (ended.run.state, ended.assistant.status) == (state, status)
    assert (waiting.run.terminal_reason, waiting.run.state) == (
        ("absorbed", "superseded") if absorbs else (None, "queued")
    )


async def test_an_absorbed_run_has_no_message_and_is_only_made_by_another_runs_end() -> None:
    """Nobody can end a run with that reason; the end of another run does, and its answer is that run's."""
    async with MemoryStore() as store:
        lane = Lane(store)
        await lane.accept("a")
        await lane.start("a")
        await lane.refused(lane.try_end("a", "absorbed"), UsageError)
        await lane.accept("b")
        applied(await lane.try_end("a", absorb=["b"]))
        absorbed = await lane.view("b")
        assert (absorbed.run.state, absorbed.run.absorbed_into_run_id, absorbed.assistant) == ("superseded", "a", None)
        assert await lane.message_ids() == ["a-in", "b-in", "a-out"]
