"""A compaction that fails or is refused leaves the history as it was and says why."""

from pathlib import Path

import anyio
import pytest

from runlane.contracts import CancelToken
from runlane.errors import AbortedError, InvalidValueError, UsageError
from runlane.records import Message, Usage, UsageValue
from runlane.runtime import (
    CompactionContext,
    StructuredCompaction,
    StructuredCompactionConfig,
    SummaryRequest,
)
from runlane.store import (
    MemoryStore,
)
from runlane.testing import FakeClock, FaultyStore
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
