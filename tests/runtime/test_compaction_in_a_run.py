"""Inside a run a compaction is an operation of its own: recorded before, and afterwards with what came of it."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

from runlane.contracts import CancelToken
from runlane.errors import AbortedError, InvalidValueError, StoreUnavailableError
from runlane.history import History
from runlane.ids import RandomIds
from runlane.records import RunOperation, Usage, UsageValue
from runlane.runtime import (
    CompactionContext,
    CompactionResult,
    Summarised,
    SummaryRequest,
    compact_in_run,
    compaction_is_due,
)
from runlane.store import MemoryStore, ReadEvents
from runlane.testing import FakeClock
from runlane.testing._store_kit import applied
from tests.runtime.compacting import Talk, compaction

pytestmark = pytest.mark.anyio

SPENT = Usage.unknown().model_copy(update={"input_tokens": UsageValue(value=70, provenance="provider-reported")})


def recording(talk: Talk, name: str) -> Callable[[RunOperation], Awaitable[object]]:
    """Return what makes an operation of an acquired run durable."""

    async def record(operation: RunOperation) -> None:
        applied(
            await talk.store.record_run_operation(
                conversation_id=talk.id,
                run_id=name,
                expected_revision=await talk.revision(name),
                ownership=talk.ownership(name),
                operation=operation,
            )
        )

    return record


async def operations(talk: Talk) -> list[tuple[str, str | None]]:
    """Return phase and code of every operation in the ledger."""
    page = await talk.store.read_events(ReadEvents(conversation_id=talk.id))
    found = [event.payload.get("operation") for event in page.items]
    return [(str(each["phase"]), each.get("code")) for each in found if isinstance(each, dict)]  # type: ignore[misc]


async def ready(store: MemoryStore) -> Talk:
    """Return a conversation with two turns and an acquired run."""
    talk = Talk(store)
    await talk.say_turn("a", "b")
    await talk.accept("c")
    await talk.start("c")
    return talk


async def run_it(
    talk: Talk,
    compact: Callable[[CompactionContext], Awaitable[CompactionResult]],
    *,
    signal: CancelToken | None = None,
) -> tuple[CompactionResult, list[Usage]]:
    """Compact inside the run; also what was spent."""
    spends: list[Usage] = []
    context = CompactionContext(conversation_id=talk.id, store=talk.store, signal=signal or CancelToken())
    result = await compact_in_run(
        compact, context, recording(talk, "c"), spends.append, ids=RandomIds(), clock=FakeClock()
    )
    return result, spends


async def test_the_run_reads_the_compacted_history() -> None:
    """Started, then completed with what came of it; the snapshot is the history the run goes on with."""
    async with MemoryStore() as store:
        talk = await ready(store)
        result, spends = await run_it(talk, compaction())
        assert await operations(talk) == [("started", None), ("completed", "compaction.applied")]
        assert result.replaced == ("a-in", "a-out")
        assert result.snapshot is not None
        assert [message.id for message in result.snapshot.messages][-3:] == ["b-in", "b-out", "c-in"]
        assert spends == []


async def test_it_is_recorded_although_nothing_was_needed() -> None:
    """Seeing the operation means that the callback was asked."""
    async with MemoryStore() as store:
        talk = await ready(store)
        await run_it(talk, compaction(threshold=lambda _: False))
        assert await operations(talk) == [("started", None), ("completed", "compaction.not_needed")]


async def test_the_probe_records_nothing() -> None:
    """Below the threshold the run does not even begin an operation."""
    async with MemoryStore() as store:
        talk = await ready(store)
        history = History(stored.body for stored in reversed((await store.read_messages(talk.id)).items))
        small = compaction(due=lambda probe: probe.records > 100)
        assert not compaction_is_due(small, talk.id, history, store)
        assert compaction_is_due(compaction(due=lambda probe: probe.records > 3), talk.id, history, store)
        assert not compaction_is_due(None, talk.id, history, store)
        assert await operations(talk) == []


async def test_a_callback_without_a_probe_is_always_asked() -> None:
    """Any function of a context will do."""

    async def own(context: CompactionContext) -> CompactionResult:
        return CompactionResult(outcome="not_needed", snapshot=await context.store.load_snapshot("c1"))

    async with MemoryStore() as store:
        talk = await ready(store)
        assert compaction_is_due(own, talk.id, History(), store)
        result, _ = await run_it(talk, own)
        assert result.outcome == "not_needed"


async def test_without_its_first_record_nothing_is_asked() -> None:
    """The operation is durable before anybody is paid."""
    asked: list[object] = []

    async def own(context: CompactionContext) -> CompactionResult:
        asked.append(context)
        return CompactionResult(outcome="not_needed")

    async def record(_: RunOperation) -> None:
        raise StoreUnavailableError("gone")

    async with MemoryStore() as store:
        context = CompactionContext(conversation_id="c1", store=store)
        with pytest.raises(StoreUnavailableError):
            await compact_in_run(own, context, record, asked.append, ids=RandomIds(), clock=FakeClock())
    assert asked == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LookupError("secret words"), "compaction.failed"),
        (InvalidValueError("secret words", argument="x"), "value.invalid"),
    ],
)
async def test_a_failure_closes_the_operation_and_leaves(error: Exception, code: str) -> None:
    """Its code is recorded, its text is not; the history is as it was."""

    def fail(_: SummaryRequest[str]) -> str:
        raise error

    async with MemoryStore() as store:
        talk = await ready(store)
        before = await talk.message_ids()
        with pytest.raises(type(error)) as raised:
            await run_it(talk, compaction(fail))
        assert raised.value is error
        assert await operations(talk) == [("started", None), ("failed", code)]
        assert "secret" not in str(await talk.ledger())
        assert await talk.message_ids() == before


@pytest.mark.parametrize(("said", "code"), [("", "compaction.empty"), ("x" * 9_999, "compaction.not_smaller")])
async def test_a_refused_summary_fails_the_operation_but_not_the_run(said: str, code: str) -> None:
    """The typed reason is recorded, and the run goes on with the history as it was."""
    async with MemoryStore() as store:
        talk = await ready(store)
        result, spends = await run_it(talk, compaction(lambda _: Summarised(summary=said, usage=SPENT)))
        assert (result.outcome, spends) == ("refused", [SPENT])
        assert await operations(talk) == [("started", None), ("failed", code)]


async def test_a_run_told_to_stop_cancels_the_operation() -> None:
    """The closing record is written although the run is being stopped."""
    signal = CancelToken()

    async def forever(_: SummaryRequest[str]) -> str:
        signal.cancel("user-interrupt")
        await anyio.sleep_forever()
        return "never"

    async with MemoryStore() as store:
        talk = await ready(store)
        with pytest.raises(AbortedError):
            await run_it(talk, compaction(forever), signal=signal)
        assert await operations(talk) == [("started", None), ("cancelled", "aborted")]


async def test_a_cancelled_task_still_closes_the_operation() -> None:
    """Cancellation from outside waits for one shielded record, and goes on."""
    async with MemoryStore() as store:
        talk = await ready(store)
        with anyio.CancelScope() as scope:

            async def forever(_: SummaryRequest[str]) -> str:
                scope.cancel()
                await anyio.sleep_forever()
                return "never"

            await run_it(talk, compaction(forever))
        assert scope.cancelled_caught
        assert await operations(talk) == [("started", None), ("cancelled", "aborted")]


async def test_what_was_spent_is_told_once_however_it_ends() -> None:
    """A success tells the total; a failure tells what was reported until then."""
    wrong: Any = 7
    answers = iter([Summarised[str](summary="short", usage=SPENT), Summarised[str](summary=wrong, usage=SPENT)])
    async with MemoryStore() as store:
        talk = await ready(store)
        _, spends = await run_it(talk, compaction(lambda _: next(answers)))
        assert spends == [SPENT]
        await talk.end("c")
        await talk.accept("d")
        await talk.start("d")
        told: list[Usage] = []
        context = CompactionContext(conversation_id=talk.id, store=store)
        with pytest.raises(InvalidValueError):
            await compact_in_run(
                compaction(lambda _: next(answers)),
                replace(context, report_usage=told.append),
                recording(talk, "d"),
                spends.append,
                ids=RandomIds(),
                clock=FakeClock(),
            )
        assert (spends, told) == ([SPENT, SPENT], [SPENT])
