"""One key, one run."""

import anyio
import pytest

from runlane.delivery import TerminalEvent, fold_events
from runlane.errors import RuntimeConflictError, StoreClosedError
from runlane.records import Message
from runlane.runtime import RecordIds, RuntimeConfig
from runlane.store import MemoryStore, ReadEvents
from runlane.testing import Fault, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, heard, held_after, opened

pytestmark = pytest.mark.anyio


async def test_the_same_key_while_underway_is_the_very_same_ticket() -> None:
    """Submitting a key again while its ticket is unresolved returns that ticket, without a second store call."""
    hold, model = held_after("one")
    async with opened(model) as scene:
        first = scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k")
        assert scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k") is first
        await hold.reached()
        calls = len(scene.store.calls)
        assert scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k") is first
        assert len(scene.store.calls) == calls
        hold.release()
        await first.result


async def test_once_the_result_settled_the_store_answers() -> None:
    """A repeated key of an ended run gives its answer, marked as duplicate, without metrics, and asks no model."""
    model = ScriptedModel("Hello")
    async with opened(model) as scene:
        first = scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k")
        answered = await first.result
        again = scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k")
        repeated = await again.result
        admission = await again.admission
    assert again is not first
    assert (repeated.run, repeated.message, repeated.metrics) == (answered.run, answered.message, None)
    assert (admission.is_duplicate, admission.input_matches, admission.assistant) == (True, True, answered.message)
    assert admission.snapshot_version == answered.snapshot_version
    assert len(model.calls) == 1


async def test_the_scope_of_a_key_is_its_conversation() -> None:
    """The same key in two conversations makes two runs."""
    async with opened(ScriptedModel("Hello")) as scene:
        one = scene.runtime.submit("c1", "Hi", idempotency_key="k")
        two = scene.runtime.submit("c2", "Hi", idempotency_key="k")
        assert (await one.result).run.id != (await two.result).run.id


async def test_discarded_ids_of_a_repeated_key_never_appear() -> None:
    """The ids proposed with a repeated key are dropped; the ticket names the first run."""
    async with opened(ScriptedModel("Hello")) as scene:
        first = await scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k").result
        ids = RecordIds(input_message_id="m9", run_id="r9", assistant_message_id="a9")
        again = scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k", record_ids=ids)
        await again.result
        assert again.run_id == first.run.id
        assert await scene.store.inner.load_run(CONVERSATION, "r9") is None


async def test_a_key_used_for_another_input_is_returned_and_marked_by_default() -> None:
    """`key_reuse="return"`: the first admission comes back, and says that the inputs differ."""
    async with opened(ScriptedModel("Hello")) as scene:
        await scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k").result
        admission = await scene.runtime.submit(CONVERSATION, "Other", idempotency_key="k").admission
    assert (admission.input.text, admission.input_matches) == ("Hi", False)


async def test_a_key_used_for_another_input_can_be_refused() -> None:
    """`key_reuse="refuse"`: another input under a known key is a conflict, underway or ended; the same one is not."""
    hold, model = held_after("one")
    async with opened(model, config=RuntimeConfig(key_reuse="refuse")) as scene:
        first = scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k")
        await hold.reached()
        with pytest.raises(RuntimeConflictError):
            await scene.runtime.submit(CONVERSATION, "Other", idempotency_key="k").admission
        hold.release()
        await first.result
        with pytest.raises(RuntimeConflictError):
            await scene.runtime.submit(CONVERSATION, "Other", idempotency_key="k").result
        assert (await scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k").result).text == "one."


async def _accept_and_die(store: MemoryStore) -> None:
    """Have an input committed by a process that dies before it learns of it."""

    def plan(call: StoreCall) -> Fault | None:
        return Fault(when="after", kills=True) if call.method == "apply" else None

    async with opened(ScriptedModel("Hello"), store=store, plan=plan) as scene:
        lost = scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k")
        with pytest.raises(StoreClosedError):
            await lost.admission


async def test_a_duplicate_of_a_run_nobody_executes_here_admits_and_rejects_its_result() -> None:
    """A known key whose run has not ended: `admission` and `accepted` settle, `result` rejects."""
    async with MemoryStore() as store:
        await _accept_and_die(store)
        async with opened(ScriptedModel("Hello"), store=store) as scene:
            again = scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k")
            assert (await again.admission).is_duplicate
            await again.accepted
            with pytest.raises(RuntimeConflictError):
                await again.result


async def test_a_duplicate_of_a_run_that_executes_here_follows_it() -> None:
    """After a recovery the repeated key resolves with the recovered run's answer."""
    hold, model = held_after("one")
    async with MemoryStore() as store:
        await _accept_and_die(store)
        async with opened(model, store=store, recover_on_start=True) as scene:
            await hold.reached()
            again = scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k")
            assert (await again.admission).is_duplicate
            hold.release()
            assert (await again.result).text == "one."
    assert len(model.calls) == 1


async def test_the_events_of_a_duplicate_of_the_newest_run_end_with_its_terminal_event() -> None:
    """Also when nothing happened since, listening to a repeated key gives the run's events and ends."""
    async with opened(ScriptedModel("Hello")) as scene:
        first = await heard(scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k"))
        again = await heard(scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k"))
    assert isinstance(first[-1], TerminalEvent)
    assert isinstance(again[-1], TerminalEvent)
    assert again[-1].event_id == first[-1].event_id


async def test_the_events_of_a_duplicate_are_the_first_runs_events() -> None:
    """Listening to a repeated key replays the durable events of the run that answered it, and ends."""
    async with opened(ScriptedModel("Hello")) as scene:
        first = await scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k").result
        await scene.runtime.submit(CONVERSATION, "Another").result
        events = await heard(scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k"))
    assert {event.run_id for event in events} == {first.run.id}
    assert [event.type for event in events][-1] == "terminal"
    answer = events[-1].message  # type: ignore[union-attr]
    assert isinstance(answer, Message)
    assert answer == first.message


async def test_a_key_repeated_while_somebody_reads_what_was_hides_nothing_of_it() -> None:
    """A repeated key is told at the version of the end: who just reads that version again still hears all of it."""
    async with opened(ScriptedModel("Hello")) as scene, scene.runtime.subscribe(CONVERSATION):
        await scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k").result
        reading = scene.runtime.subscribe(CONVERSATION, after=0)
        assert (await scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k").admission).is_duplicate
        await anyio.wait_all_tasks_blocked()
        await scene.runtime.close()
        told = {event_id for event in await heard(reading) if (event_id := getattr(event, "event_id", None))}
        page = await scene.store.inner.read_events(ReadEvents(conversation_id=CONVERSATION))
    recorded = {event.event_id for entry in page.items for event in fold_events(entry)}
    assert recorded <= told
