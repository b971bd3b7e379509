"""The model that a conversation was set to outlives the process, in the conversation's own ledger."""

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from runlane.errors import InvalidValueError, RecordCorruptError
from runlane.models import ModelSelection
from runlane.runtime import AgentRuntime, LedgerModelSelectionStore, ModelChoice
from runlane.store import MemoryStore, ReadEvents, Store
from runlane.store.sqlite import SqliteStore
from tests.runtime.test_model_choice import models

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def chosen(model_id: str, hours: int = 0) -> ModelSelection:
    """Return a selection made some hours in."""
    return ModelSelection(model_id=model_id, selected_at=NOW + timedelta(hours=hours))


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AbstractAsyncContextManager[Store]:
    """Give an empty store."""
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "runlane.db")


async def test_what_was_saved_last_is_loaded(opened: AbstractAsyncContextManager[Store]) -> None:
    """By whoever saved it and by anybody else, conversation by conversation."""
    async with opened as store:
        mine = LedgerModelSelectionStore(store)
        assert await mine.load("c1") is None
        for number in range(9):
            selection = chosen(f"m{number}", number)
            assert await mine.save("c1", selection) == selection
            assert await mine.load("c1") == await LedgerModelSelectionStore(store).load("c1") == selection
        assert await mine.load("c2") is None
        theirs = LedgerModelSelectionStore(store)
        await theirs.save("c1", {"model_id": "theirs", "selected_at": NOW})
        assert await mine.load("c1") == chosen("theirs")
        await mine.save("c1", chosen("mine"))
        assert await theirs.load("c1") == chosen("mine")


async def test_a_restart_keeps_it(tmp_path: Path) -> None:
    """The next process answers with the model that the last one was told."""
    path = tmp_path / "runlane.db"
    async with SqliteStore(path) as store:
        await LedgerModelSelectionStore(store).save("c1", chosen("big"))
    async with SqliteStore(path) as store:
        choice = ModelChoice(models(), "main", selections=LedgerModelSelectionStore(store))
        async with AgentRuntime(store, model=choice) as runtime:
            assert (await runtime.submit("c1", "Hi").result).message.text == "b said it"
            assert (await runtime.submit("c2", "Hi").result).message.text == "m said it"


async def test_two_at_once_are_both_kept_one_as_the_newer(opened: AbstractAsyncContextManager[Store]) -> None:
    """Neither is lost without a trace, and everybody agrees on which counts."""
    async with opened as store:
        stores = [LedgerModelSelectionStore(store) for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for number, selections in enumerate(stores):
                tasks.start_soon(selections.save, "c1", chosen(f"m{number}"))
        loaded = [await selections.load("c1") for selections in stores]
        assert loaded[0] is not None
        assert loaded == [loaded[0]] * 4
        page = await store.read_events(ReadEvents(conversation_id="c1"))
        kept = [event.payload["value"] for event in page.items if event.kind == "state/set"]
        assert sorted(str(value["model_id"]) for value in kept if isinstance(value, dict)) == ["m0", "m1", "m2", "m3"]


async def test_what_is_no_selection_is_refused_and_the_one_before_stays() -> None:
    """Nothing is written."""
    async with MemoryStore() as store:
        selections = LedgerModelSelectionStore(store)
        await selections.save("c1", chosen("main"))
        with pytest.raises(InvalidValueError, match="selected_at"):
            await selections.save("c1", {"model_id": "big"})
        assert await selections.load("c1") == chosen("main")


async def test_an_entry_that_holds_no_selection_is_told_as_that() -> None:
    """Rather than answered with some model."""
    async with MemoryStore() as store:
        await store.append_event_once(
            conversation_id="c1", kind="state/set", key="model-selection:1", payload={"value": {"model_id": ""}}
        )
        with pytest.raises(RecordCorruptError, match="model selection"):
            await LedgerModelSelectionStore(store).load("c1")


async def test_a_purge_takes_it_along() -> None:
    """Also from who saved it."""
    async with MemoryStore() as store:
        selections = LedgerModelSelectionStore(store)
        await selections.save("c1", chosen("big"))
        await store.purge_conversation("c1")
        assert await selections.load("c1") is None


async def test_many_conversations_are_not_all_remembered() -> None:
    """And one that was forgotten is found again."""
    async with MemoryStore() as store:
        selections = LedgerModelSelectionStore(store)
        for number in range(1_100):
            await selections.save(f"c{number}", chosen(f"m{number}"))
        assert len(selections._known) == 1_024
        assert await selections.load("c0") == chosen("m0")
