"""Compaction races with input, with itself and with what is not finished yet, and tears nothing."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from runlane.errors import StoreUnavailableError
from runlane.history import BARE_EVIDENCE, CompactionBarrier
from runlane.records import Message, Usage, UsageValue
from runlane.runtime import (
    CompactionContext,
    CompactionResult,
    SummaryRequest,
)
from runlane.store import (
    Command,
    MemoryStore,
    NotFound,
    Outcome,
    ReplaceCompactedRange,
)
from runlane.testing import Fault, FaultyStore
from tests.runtime.compacting import (
    LONG,
    STORES,
    Talk,
    briefly,
    call,
    compact,
    compaction,
    consent_wanted,
    opened,
    result,
)

pytestmark = pytest.mark.anyio
on_every_store = pytest.mark.parametrize("kind", STORES)


def spent(tokens: int) -> Usage:
    """Return usage."""
    figure = UsageValue(value=tokens, provenance="provider-reported")
    return Usage.unknown().model_copy(update={"input_tokens": figure})


async def unchanged(talk: Talk, before: list[Message]) -> None:
    """Fail unless the history is as it was."""
    assert list((await talk.store.load_snapshot(talk.id)).messages) == before


async def active(talk: Talk) -> list[Message]:
    """Return the active history."""
    return list((await talk.store.load_snapshot(talk.id)).messages)


# --- races --------------------------------------------------------------------------------------------------------


@on_every_store
async def test_input_that_comes_meanwhile_is_never_lost(kind: str, tmp_path: Path) -> None:
    """The summary made for the old version is thrown away; the next attempt sees the new one and keeps the input."""
    rounds: list[tuple[str, ...]] = []
    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")

        async def summarize(request: SummaryRequest[str]) -> str:
            rounds.append(tuple(message.id for message in request.messages))
            if len(rounds) == 1:
                await talk.say_turn("c")
                await talk.accept("d")
            return f"round {len(rounds)}"

        found = await compact(talk, summarize, max_attempts=3)
        assert (found.outcome, found.attempts) == ("applied", 2)
        assert rounds == [("a-in", "a-out"), ("a-in", "a-out", "b-in", "b-out")]
        assert found.summary is not None
        assert await talk.message_ids() == [found.summary.id, "c-in", "c-out", "d-in"]
        assert found.summary.text == "round 2"
        assert [message.id for message in await talk.everything()][-3:] == ["c-in", "c-out", "d-in"]


@on_every_store
async def test_a_conversation_that_never_rests_is_a_conflict(kind: str, tmp_path: Path) -> None:
    """After the last attempt the history is what the others made of it, and nothing else."""
    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        names = iter("xyz")

        async def summarize(_: SummaryRequest[str]) -> str:
            await talk.accept(next(names))
            return "short"

        found = await compact(talk, summarize, max_attempts=2)
        assert (found.outcome, found.attempts, found.summary) == ("conflict", 2, None)
        assert await talk.message_ids() == ["a-in", "a-out", "b-in", "b-out", "x-in", "y-in"]


@on_every_store
async def test_of_three_at_once_one_makes_a_summary(kind: str, tmp_path: Path) -> None:
    """The others are refused at once, whichever compaction object they use, and exactly one summary is there."""
    made: list[str] = []
    go = anyio.Event()

    async def summarize(_: SummaryRequest[str]) -> str:
        made.append("summary")
        await go.wait()
        return "short"

    found: list[CompactionResult] = []

    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")

        async def trigger() -> None:
            found.append(await compact(talk, summarize))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(trigger)
            while len(found) < 2:
                await anyio.wait_all_tasks_blocked()
            go.set()
        assert made == ["summary"]
        assert sorted(each.code for each in found) == [
            "compaction.applied",
            "compaction.in_progress",
            "compaction.in_progress",
        ]
        assert [message.role for message in await active(talk)].count("summary") == 1


async def test_another_conversation_is_not_held_up() -> None:
    """One flight each, not one for all."""
    async with MemoryStore() as store:
        other = Talk(store, "other")
        await other.say_turn("a", "b")
        talk = Talk(store)
        await talk.say_turn("a", "b")

        async def summarize(request: SummaryRequest[str]) -> str:
            return briefly(request) if request.conversation_id == "other" else (await compact(other)).code

        assert (await compact(talk, summarize)).outcome == "applied"
        assert (await active(talk))[0].text == "compaction.applied"


@on_every_store
async def test_a_lost_reply_is_found_out(kind: str, tmp_path: Path) -> None:
    """The commit was carried out and its answer lost: the same command is sent again and counts as applied."""
    lost: list[int] = []

    def lose(made: object) -> Fault | None:
        if getattr(made, "method", "") != "apply" or lost:
            return None
        lost.append(1)
        return Fault(when="after", error=StoreUnavailableError("gone"))

    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        context = CompactionContext(conversation_id=talk.id, store=FaultyStore(store, lose))
        found = await compaction()(context)
        assert (found.outcome, lost) == ("applied", [1])
        assert found.snapshot == await store.load_snapshot(talk.id)


class Forgetful(MemoryStore):
    """A store that finds nothing to replace, as after a repair by hand."""

    @override
    async def apply(self, conversation_id: str, commands: Sequence[Command], /) -> tuple[Outcome, ...]:
        if any(isinstance(command, ReplaceCompactedRange) for command in commands):
            return (NotFound(),)
        return await super().apply(conversation_id, commands)


async def test_something_gone_is_not_found() -> None:
    """It is not tried again; the history that was looked at is returned."""
    async with Forgetful() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        found = await compact(talk, max_attempts=3)
        assert (found.outcome, found.attempts) == ("not_found", 1)
        assert found.snapshot == await store.load_snapshot(talk.id)


# --- barriers -----------------------------------------------------------------------------------------------------


@on_every_store
async def test_a_call_of_a_dead_process_does_not_stop_compaction(kind: str, tmp_path: Path) -> None:
    """Once its run has ended the call is closed; the result names it, and the summariser is told it may have run."""
    told: list[str] = []

    def summarize(request: SummaryRequest[str]) -> str:
        told.extend(str(message) for message in request.project().messages)
        return "short"

    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", parts=(call("k"),), reason="abandoned")
        await talk.say_turn(*"bcd")
        found = await compact(talk, summarize)
        assert (found.outcome, found.closed_calls) == ("applied", ("k",))
        assert any("unknown" in text for text in told)


async def test_a_prefix_behind_a_dangling_call_stays_when_the_policy_says_so() -> None:
    """Under the plain policy the call is a barrier, and the result names it."""
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a")
        await talk.say_turn("b", parts=(call("k"),))
        await talk.say_turn(*"cdef")
        before = await active(talk)
        found = await compact(talk, evidence_policy=BARE_EVIDENCE)
        assert (found.outcome, found.barrier) == ("nothing_eligible", CompactionBarrier("b-in", "open-call"))
        await unchanged(talk, before)


@pytest.mark.parametrize("reason", ["provider_failure", "superseded"])
async def test_a_failed_or_superseded_answer_blocks_only_when_the_policy_says_so(reason: str) -> None:
    """A runtime's own policy lets compaction go on."""
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", reason=reason)  # type: ignore[arg-type]
        await talk.say_turn("b", "c")
        blocked = await compact(talk, evidence_policy=BARE_EVIDENCE)
        assert (blocked.outcome, blocked.barrier) == ("nothing_eligible", CompactionBarrier("a-in", "not-evidence"))
        assert (await compact(talk)).replaced == ("a-in", "a-out", "b-in", "b-out")


@on_every_store
async def test_an_approval_that_waits_stays_outside_the_summary(kind: str, tmp_path: Path) -> None:
    """Twenty turns later it is still there, the late answer meets it, and then it may be compacted."""
    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        await talk.say_turn("c", parts=(call("k"), consent_wanted("p", "k")), reason="provider_stop")
        for number in range(20):
            await talk.say_turn(f"t{number:02}", parts=())
        first = await compact(talk)
        assert first.replaced == ("a-in", "a-out")
        assert first.barrier == CompactionBarrier("c-in", "pending-approval")
        again = await compact(talk)
        assert (again.outcome, again.barrier) == ("nothing_eligible", CompactionBarrier("c-in", "pending-approval"))
        assert "c-out" in await talk.message_ids()
        await talk.consent("d", "p")
        waiting = await compact(talk)
        assert (waiting.outcome, waiting.barrier) == ("nothing_eligible", CompactionBarrier("c-in", "pending-approval"))
        await talk.start("d")
        await talk.end("d", (result("k"),))
        await talk.say_turn("e")
        # From the question to its answer everything is one unit now: it goes whole, and blocks nothing any more.
        last = await compact(talk)
        assert (last.outcome, last.barrier) == ("applied", None)
        assert {"b-in", "c-out", "t00-in", "t19-out", "d-in", "d-out"} <= set(last.replaced)
        assert last.summary is not None
        assert await talk.message_ids() == [last.summary.id, "e-in", "e-out"]


@on_every_store
async def test_active_and_waiting_runs_are_barriers(kind: str, tmp_path: Path) -> None:
    """What is being answered, and what waits behind it, stays as it is."""
    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        await talk.accept("c", "d")
        await talk.start("c")
        await talk.say("c", "half")
        found = await compact(talk)
        assert found.replaced == ("a-in", "a-out")
        assert found.barrier == CompactionBarrier("c-in", "active-run")
        assert found.summary is not None
        assert await talk.message_ids() == [found.summary.id, "b-in", "b-out", "c-in", "c-out", "d-in"]
        await talk.end("c")
        assert (await active(talk))[-2].text == LONG
