"""Compaction replaces old turns by a summary, or leaves the history as it was and says why."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from pydantic import BaseModel
from typing_extensions import override

from runlane.contracts import CancelToken
from runlane.errors import AbortedError, InvalidValueError, StoreUnavailableError, UsageError
from runlane.history import BARE_EVIDENCE, CompactionBarrier, History
from runlane.models import OpenAITokens
from runlane.records import Message, Usage, UsageValue
from runlane.runtime import (
    CompactionContext,
    CompactionResult,
    StructuredCompaction,
    StructuredCompactionConfig,
    Summarised,
    SummaryDraft,
    SummaryRequest,
)
from runlane.store import (
    Command,
    DriverStore,
    Duplicate,
    MemoryStore,
    NotFound,
    Outcome,
    ReplaceCompactedRange,
)
from runlane.testing import FakeClock, Fault, FaultyStore
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


# --- what is replaced ---------------------------------------------------------------------------------------------


@on_every_store
async def test_the_oldest_complete_turns_give_way_to_a_summary(kind: str, tmp_path: Path) -> None:
    """The newest complete turn stays; the summary stands where the first replaced message was."""
    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b", "c")
        found = await compact(talk)
        assert (found.outcome, found.attempts, found.code) == ("applied", 1, "compaction.applied")
        assert found.replaced == ("a-in", "a-out", "b-in", "b-out")
        assert found.snapshot == await store.load_snapshot(talk.id)
        assert [message.role for message in await active(talk)] == ["summary", "user", "assistant"]


@on_every_store
async def test_a_reader_for_people_still_shows_what_was_compacted(kind: str, tmp_path: Path) -> None:
    """Every message ever said is there, the summary behind the first one it stands for."""
    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b", "c")
        found = await compact(talk)
        assert found.summary is not None
        assert [message.id for message in await talk.everything()] == [
            "a-in",
            found.summary.id,
            "a-out",
            "b-in",
            "b-out",
            "c-in",
            "c-out",
        ]


@on_every_store
async def test_receipts_and_results_survive(kind: str, tmp_path: Path) -> None:
    """A repeated input is still a duplicate, and a run still has its answer."""
    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        await compact(talk)
        assert isinstance(await talk.try_accept("a"), Duplicate)
        answer = (await talk.view("a")).assistant
        assert answer is not None
        assert answer.text == LONG


async def test_a_leading_summary_is_always_replaced_with_the_rest() -> None:
    """Summaries never pile up, and the new one stands for the old one too."""
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        first = await compact(talk)
        await talk.say_turn("c")
        second = await compact(talk)
        assert first.summary is not None
        assert second.replaced == (first.summary.id, "b-in", "b-out")
        assert (await active(talk))[0].text == "a-in a-out b-in b-out"


@pytest.mark.parametrize("keep", [1, 2, 3, 7])
async def test_the_newest_turns_stay(keep: int) -> None:
    """As many complete turns as configured."""
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn(*"abcde")
        found = await compact(talk, keep_recent_turns=keep)
        names = "abcde"[: max(0, 5 - keep)]
        assert found.replaced == tuple(f"{name}-{end}" for name in names for end in ("in", "out"))
        assert found.outcome == ("applied" if names else "nothing_eligible")


async def test_nothing_but_recent_turns_is_nothing_eligible_without_a_barrier() -> None:
    """There is nothing in the way; it is just too early."""
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a")
        found = await compact(talk)
        assert (found.outcome, found.barrier, found.code) == ("nothing_eligible", None, "compaction.nothing_eligible")


# --- whether it is due --------------------------------------------------------------------------------------------


async def test_below_the_threshold_nobody_is_asked_for_a_summary() -> None:
    """Both questions must be answered with yes."""
    asked: list[object] = []

    def summarize(request: SummaryRequest[str]) -> str:
        asked.append(request)
        return "never"

    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        before = await active(talk)
        by_size = await compact(talk, summarize, due=lambda probe: probe.records > 4)
        by_history = await compact(talk, summarize, due=None, threshold=lambda snapshot: len(snapshot.runs) > 2)
        both = await compact(talk, summarize, due=lambda _: True, threshold=lambda _: False)
        assert {by_size.outcome, by_history.outcome, both.outcome} == {"not_needed"}
        assert asked == []
        await unchanged(talk, before)


async def test_a_probe_knows_records_bytes_and_tokens() -> None:
    """By the counter of the compaction, with its provenance."""
    seen: list[tuple[int, bool, str, bool]] = []

    def due(probe: object) -> bool:
        records, stored = getattr(probe, "records"), getattr(probe, "stored_bytes")  # noqa: B009
        tokens = getattr(probe, "tokens")  # noqa: B009
        seen.append((records, stored > len(LONG), tokens.provenance, 0 < tokens.value < len(LONG)))
        return False

    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a")
        await compact(talk, due=due, counter=OpenAITokens())
    assert seen == [(2, True, "computed", True)]


# --- what a summariser is given -----------------------------------------------------------------------------------


async def test_a_summariser_gets_the_records_as_they_are_and_can_project_them() -> None:
    """A failed answer has no mark in the record, and one in the projection; a superseded answer is not shown."""
    given: list[SummaryRequest[str]] = []

    def summarize(request: SummaryRequest[str]) -> str:
        given.append(request)
        return "short"

    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", reason="provider_failure")
        await talk.say_turn("b", reason="superseded")
        await talk.say_turn("c", "d")
        found = await compact(talk, summarize)
    (request,) = given
    assert [message.id for message in request.messages] == ["a-in", "a-out", "b-in", "c-in", "c-out"]
    assert request.messages[1].text == LONG
    told = [getattr(message, "text", "") for message in request.project().messages]
    assert told[1] == LONG + "[failed: partial evidence from a run that did not complete successfully]"
    assert "b-out" in found.replaced


async def test_a_readable_leading_summary_wins_over_the_callers() -> None:
    """What the history itself says is newer."""
    seen: list[object] = []

    def summarize(request: SummaryRequest[str]) -> str:
        seen.append(request.previous_summary)
        return "short"

    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        context = CompactionContext(conversation_id=talk.id, store=store, previous_summary="the caller's")
        await compaction(summarize)(context)
        await talk.say_turn("c")
        await compaction(summarize)(context)
        await talk.say_turn("d")
        reader: Callable[[Message], object] = lambda record: f"read: {record.text}"  # noqa: E731
        await compaction(summarize, read_previous_summary=reader)(context)
    assert seen == ["the caller's", "short", "read: short"]


async def test_the_callers_summary_counts_at_the_first_attempt_only() -> None:
    """After a conflict it may be out of date."""
    seen: list[object] = []
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")

        async def summarize(request: SummaryRequest[str]) -> str:
            seen.append(request.previous_summary)
            if len(seen) == 1:
                await talk.say_turn("c")
            return "short"

        context = CompactionContext(conversation_id=talk.id, store=store, previous_summary="mine")
        found = await compaction(summarize, max_attempts=2)(context)
    assert (found.outcome, seen) == ("applied", ["mine", None])


async def test_a_summary_nobody_can_read_is_still_handed_over() -> None:
    """It will be replaced, so whoever summarises must be able to look at it."""
    given: list[Message | None] = []

    def summarize(request: SummaryRequest[str]) -> str:
        given.append(request.leading_summary)
        return "short"

    def create(draft: SummaryDraft[str]) -> Message:
        return talk.message(f"s{len(given)}", draft.summary, "summary")

    async with MemoryStore() as store:
        talk = Talk(store)
        for name in "abc":
            await talk.say_turn(name)
            await compact(talk, summarize, create_summary_message=create)
    assert [None if message is None else message.id for message in given] == [None, "s1"]


class Notes(BaseModel):
    """A structured summary."""

    facts: list[str]
    mood: str = "calm"


async def test_a_structured_summary_is_kept_as_json_and_read_back() -> None:
    """The next summariser gets it as the type it was."""
    seen: list[Notes | None] = []

    def summarize(request: SummaryRequest[Notes]) -> Notes:
        seen.append(request.previous_summary)
        return Notes(facts=[message.id for message in request.messages])

    compacts = StructuredCompaction(
        StructuredCompactionConfig[Notes](schema=Notes, summarize=summarize, due=lambda _: True)
    )
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        first = await compacts(CompactionContext(conversation_id=talk.id, store=store))
        await talk.say_turn("c")
        await compacts(CompactionContext(conversation_id=talk.id, store=store))
    assert seen == [None, Notes(facts=["a-in", "a-out"])]
    assert first.summary is not None
    assert first.summary.text == '{"facts":["a-in","a-out"],"mood":"calm"}'


# --- refusals, failures -------------------------------------------------------------------------------------------


@on_every_store
@pytest.mark.parametrize(("said", "refusal"), [("", "empty"), (" \n\t", "empty"), (LONG * 9, "not-smaller")])
async def test_a_summary_that_is_none_is_refused(kind: str, said: str, refusal: str, tmp_path: Path) -> None:
    """A blank one, and one that counts as much as what it stands for: the history is as it was."""
    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        before = await active(talk)
        found = await compact(talk, lambda _: said)
        assert (found.outcome, found.refusal) == ("refused", refusal)
        assert found.code == f"compaction.{refusal.replace('-', '_')}"
        await unchanged(talk, before)


async def test_a_summary_of_equal_size_is_not_smaller() -> None:
    """By the same counter on both sides: replacing a message by itself gains nothing."""
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        await compact(talk, lambda _: "s" * 60)
        before = await active(talk)
        await talk.say_turn("c", reason="superseded")
        found = await compact(talk, lambda _: "s" * 10_000)
        assert found.refusal == "not-smaller"
        assert (await active(talk))[: len(before)] == before


@on_every_store
async def test_a_summariser_that_fails_leaves_the_history_and_its_own_error(kind: str, tmp_path: Path) -> None:
    """The exception is the caller's own object."""
    problem = LookupError("no model today")

    def fail(_: SummaryRequest[str]) -> str:
        raise problem

    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        before = await active(talk)
        with pytest.raises(LookupError) as raised:
            await compact(talk, fail)
        assert raised.value is problem
        await unchanged(talk, before)


async def test_an_answer_that_does_not_fit_the_schema_names_the_field() -> None:
    """A typed error, and the history as it was."""
    config = StructuredCompactionConfig[Notes](
        schema=Notes,
        summarize=lambda _: {"facts": "none"},  # type: ignore[arg-type,return-value]
        due=lambda _: True,
    )
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        before = await active(talk)
        with pytest.raises(InvalidValueError) as refused:
            await StructuredCompaction(config)(CompactionContext(conversation_id=talk.id, store=store))
        assert refused.value.argument == "summary.facts"
        await unchanged(talk, before)


@pytest.mark.parametrize("wrong", [{"role": "user"}, {"status": "completed"}, {"conversation_id": "other"}, None])
async def test_a_summary_message_is_a_committed_summary_of_this_conversation(wrong: dict[str, str] | None) -> None:
    """Anything else is misuse, and the history is as it was."""
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        before = await active(talk)
        message = talk.message("s", "short", "summary")
        made = None if wrong is None else message.model_copy(update=wrong)
        with pytest.raises(UsageError) as refused:
            await compact(talk, create_summary_message=lambda _: made)
        assert refused.value.argument == "create_summary_message"
        await unchanged(talk, before)


async def test_a_failure_is_not_repeated_at_every_turn() -> None:
    """Nothing is loaded or asked while the back-off holds, which doubles; a success ends it."""
    clock = FakeClock()
    asked: list[float] = []

    def summarize(_: SummaryRequest[str]) -> str:
        asked.append(clock.monotonic())
        return "" if len(asked) < 3 else "short"

    async with MemoryStore(clock=clock) as store:
        counting = FaultyStore(store)
        talk = Talk(store)
        await talk.say_turn("a", "b")
        compacts = compaction(summarize, back_off=10.0)
        context = CompactionContext(conversation_id=talk.id, store=counting)
        outcomes: list[str] = []
        for _ in range(40):
            outcomes.append((await compacts(context)).code.removeprefix("compaction."))
            clock.tick(1)
        assert asked == [0, 10, 30]
        assert outcomes[:11] == ["empty", *["backing_off"] * 9, "empty"]
        assert outcomes[30:32] == ["applied", "nothing_eligible"]
        assert counting.count("load_snapshot") == 3 + outcomes.count("nothing_eligible")


async def test_a_back_off_is_a_conversations_own() -> None:
    """One conversation that cannot be summarised does not hold up another."""
    compacts = compaction(lambda request: "" if request.conversation_id == "c1" else "short")
    async with MemoryStore() as store:
        for name in ("c1", "c2"):
            await Talk(store, name).say_turn("a", "b")
        found = [await compacts(CompactionContext(conversation_id=name, store=store)) for name in ("c1", "c2", "c1")]
    assert [each.code for each in found] == ["compaction.empty", "compaction.applied", "compaction.backing_off"]


@on_every_store
async def test_a_signal_stops_a_summariser_and_nothing_is_written(kind: str, tmp_path: Path) -> None:
    """Its reason is what the caller sees, and there is no back-off: nobody failed."""
    signal = CancelToken()

    async def forever(_: SummaryRequest[str]) -> str:
        signal.cancel("shutdown")
        await anyio.sleep_forever()
        return "never"

    async with opened(kind, tmp_path) as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        before = await active(talk)
        compacts = compaction(forever)
        context = CompactionContext(conversation_id=talk.id, store=store, signal=signal)
        with pytest.raises(AbortedError) as stopped:
            await compacts(context)
        assert stopped.value.reason == "shutdown"
        await unchanged(talk, before)
        with pytest.raises(AbortedError):
            await compacts(context)


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


# --- money --------------------------------------------------------------------------------------------------------


async def test_every_attempt_is_paid_for() -> None:
    """The total holds what the thrown-away summaries spent, and each call is told as soon as it is known."""
    told: list[Usage] = []
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")

        async def summarize(_: SummaryRequest[str]) -> Summarised[str]:
            if not told:
                await talk.accept("c")
            return Summarised(summary="short", usage=spent(70))

        context = CompactionContext(conversation_id=talk.id, store=store, report_usage=told.append)
        found = await compaction(summarize, max_attempts=2)(context)
    assert (found.outcome, found.attempts, len(told)) == ("applied", 2, 2)
    assert found.usage is not None
    assert found.usage.input_tokens == UsageValue(value=140, provenance="computed")
    assert found.usage.output_tokens == UsageValue(provenance="unavailable")


async def test_spend_that_nobody_reported_is_absent() -> None:
    """Not zero."""
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        assert (await compact(talk)).usage is None


# --- the probe ----------------------------------------------------------------------------------------------------


async def test_a_probe_loads_and_records_nothing() -> None:
    """The records at hand are enough, and a back-off says no at once."""
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        history = await handle(store, talk)
        compacts = compaction(lambda _: "", due=lambda probe: probe.records >= 4)
        counting = FaultyStore(store)
        assert compacts.is_due(talk.id, history, counting)
        assert counting.calls == []
        await compacts(CompactionContext(conversation_id=talk.id, store=counting))
        assert not compacts.is_due(talk.id, history, counting)


async def handle(store: DriverStore, talk: Talk) -> History:
    """Return the records of a conversation."""
    page = await store.read_messages(talk.id)
    return History(stored.body for stored in reversed(page.items))


# --- the configuration --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["keep_recent_turns", "max_attempts"])
@pytest.mark.parametrize("bad", [0, -1, 1.5, float("nan"), True, "2"])
async def test_bad_numbers_are_refused_at_construction(name: str, bad: object) -> None:
    """The error names the field."""
    good = compaction().config
    with pytest.raises((UsageError, InvalidValueError)) as refused:
        replace(good, **{name: bad})  # type: ignore[arg-type]
    assert getattr(refused.value, "argument", None) == name


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"due": None}, "due"),
        ({"due": 7}, "due"),
        ({"summarize": None}, "summarize"),
        ({"back_off": -1}, "back_off"),
        ({"back_off": "soon"}, "back_off"),
        ({"read_previous_summary": 7}, "read_previous_summary"),
    ],
)
async def test_a_configuration_that_makes_no_sense_is_refused(options: dict[str, object], argument: str) -> None:
    """Construction is where a mistake shows."""
    with pytest.raises((UsageError, InvalidValueError)) as refused:
        replace(compaction().config, **options)  # type: ignore[arg-type]
    assert getattr(refused.value, "argument", None) == argument
