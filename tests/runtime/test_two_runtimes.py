"""Two runtimes on one store, as two processes on one file are."""

from pathlib import Path

import anyio
import pytest

from runlane.records import Run
from runlane.runtime import AgentRuntime
from runlane.store import MemoryStore
from runlane.store.sqlite import SqliteStore
from runlane.testing import ScriptedModel
from tests.runtime.scenes import CONVERSATION, held_after, opened

pytestmark = pytest.mark.anyio


def _told(model: ScriptedModel, call: int = 0) -> list[str]:
    return [message.text for message in model.calls[call].messages]  # type: ignore[union-attr]


async def test_a_run_waits_for_the_living_executor_ahead_and_sees_its_answer() -> None:
    """The second runtime's run waits while the first executes, then acquires; its prompt holds the first's turn."""
    hold, model = held_after("Once")
    other_model = ScriptedModel("two")
    async with MemoryStore() as store, opened(model, store=store) as one, opened(other_model, store=store) as two:
        first = one.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        second = two.runtime.submit(CONVERSATION, "second")
        await second.admission
        await anyio.wait_all_tasks_blocked()
        assert (second.result.done, other_model.calls) == (False, [])
        hold.release()
        with anyio.fail_after(10):
            assert (await first.result).text == "Once."
            assert (await second.result).text == "two"
    assert _told(other_model) == ["first", "Once.", "second"]


async def test_runtimes_that_take_turns_catch_up_without_reading_the_history_again() -> None:
    """Each runtime learns the other's turns by what changed, not by reading the conversation anew."""
    models = [ScriptedModel("one"), ScriptedModel("two")]
    async with MemoryStore() as store, opened(models[0], store=store) as one, opened(models[1], store=store) as two:
        for number in range(3):
            await one.runtime.submit(CONVERSATION, f"a{number}").result
            await two.runtime.submit(CONVERSATION, f"b{number}").result
        assert (one.store.count("read_messages"), one.store.count("load_changes")) == (0, 2)
        assert (two.store.count("read_messages"), two.store.count("load_changes")) == (1, 2)
    assert _told(models[1], 2) == [
        *("a0", "one", "b0", "two"),
        *("a1", "one", "b1", "two"),
        *("a2", "one", "b2"),
    ]
    assert _told(models[0], 2) == ["a0", "one", "b0", "two", "a1", "one", "b1", "two", "a2"]


async def test_a_stop_withdraws_a_run_that_waits_for_another_process() -> None:
    """Stopping a run that waits behind another process's cancels it: it was never acquired."""
    hold, model = held_after("Once")
    async with MemoryStore() as store, opened(model, store=store) as one, opened(model, store=store) as two:
        first = one.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        second = two.runtime.submit(CONVERSATION, "second")
        await second.admission
        await anyio.wait_all_tasks_blocked()
        assert two.runtime.stop(CONVERSATION) is True
        with anyio.fail_after(10):
            assert (await second.result).reason == "cancelled"
        hold.release()
        await first.result


async def test_an_interrupt_by_another_process_reaches_a_run_that_has_nothing_to_write() -> None:
    """The provider is silent, so no checkpoint conflicts: the executor looks within five seconds, and stops."""
    hold, model = held_after("half ")
    async with MemoryStore() as store, opened(model, store=store) as one, opened(model, store=store) as two:
        ticket = one.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        await two.runtime.interrupt(CONVERSATION, ticket.run_id)
        await one.clock.advance(4.9)
        assert ticket.result.done is False
        await one.clock.advance(0.2)
        result = await ticket.result
    assert (result.reason, result.text) == ("interrupted", "half ")


async def test_a_run_that_ends_sooner_is_never_looked_at() -> None:
    """Nothing is read of a run that took less than those seconds, and the watching ends with the last run."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        await scene.clock.advance(4.9)
        hold.release()
        await ticket.result
        await scene.clock.advance(10.0)
        assert scene.store.count("load_run") == 0
        assert scene.runtime._core.interrupt_watch._works is False


async def test_many_runtimes_share_a_conversation_on_one_file(tmp_path: Path) -> None:
    """Two runtimes with a store object each on one SQLite file: ten inputs, ten answers, one lane."""
    path = tmp_path / "store.db"
    results: list[Run] = []

    async def work(name: str) -> None:
        async with SqliteStore(path) as store, AgentRuntime(store, model=ScriptedModel(f"by {name}")) as runtime:
            tickets = [runtime.submit(CONVERSATION, f"{name}{number}") for number in range(5)]
            results.extend([(await ticket.result).run for ticket in tickets])

    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, "a")
            tasks.start_soon(work, "b")
    async with SqliteStore(path) as store:
        snapshot = await store.load_snapshot(CONVERSATION)
    assert {run.terminal_reason for run in results} == {"success"}
    assert len({run.id for run in results}) == 10
    assert [message.role for message in snapshot.messages] == ["user", "assistant"] * 10
    sequences = [run.execution_sequence for run in snapshot.runs]
    assert sequences == sorted(sequences, key=lambda value: value or 0)
