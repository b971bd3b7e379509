"""Compaction replaces old turns by a summary, or leaves the history as it was and says why."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runlane.errors import InvalidValueError, UsageError
from runlane.history import History
from runlane.models import OpenAITokens
from runlane.records import Message, Usage, UsageValue
from runlane.runtime import (
    CompactionContext,
    StructuredCompaction,
    StructuredCompactionConfig,
    Summarised,
    SummaryDraft,
    SummaryRequest,
)
from runlane.store import (
    DriverStore,
    Duplicate,
    MemoryStore,
)
from runlane.testing import FaultyStore
from tests.runtime.compacting import (
    LONG,
    STORES,
    Notes,
    Talk,
    compact,
    compaction,
    opened,
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
