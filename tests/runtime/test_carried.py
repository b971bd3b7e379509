"""Conversations that came with an archive, or began as a branch, in a runtime."""

import pytest

from runlane.models import FinishReport
from runlane.runtime import RecoveryInput, Requeue
from runlane.store import BranchConversation, MemoryStore, encode_archive
from runlane.testing import ScriptedModel, check_conversation
from runlane.tools import tool
from tests.runtime.injecting import tool_call
from tests.runtime.scenes import CONVERSATION, asked, held_after, opened

pytestmark = pytest.mark.anyio


@tool
async def look_up() -> str:
    """Look something up."""
    return "rain"


async def test_an_imported_run_is_taken_up_by_a_decision() -> None:
    """A run that was under way elsewhere is left alone by itself, and run to its end once somebody decides so."""
    hold, model = held_after("Hel")
    async with MemoryStore() as store, opened(model, store=store) as scene:
        scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k")
        scene.runtime.submit(CONVERSATION, "And you?")
        await hold.reached()
        archive = await store.export_conversation(CONVERSATION)
        scene.store.kill()
    seen: list[bool | None] = []

    def decide(given: RecoveryInput) -> Requeue | str:
        seen.append(given.owner_alive)
        return Requeue(replay_safe=True) if given.run.is_acquired else "resume"

    model = ScriptedModel("Hello", "Fine")
    async with MemoryStore() as store:
        await store.import_conversation(archive)
        async with opened(model, store=store) as scene:
            assert [one.action for one in await scene.runtime.recover()] == ["skipped", "skipped"]
            outcomes = await scene.runtime.recover(decide=decide)  # type: ignore[arg-type]
            results = [await outcome.result for outcome in outcomes if outcome.result is not None]
            again = await scene.runtime.submit(CONVERSATION, "Hi", idempotency_key="k").result
        await check_conversation(store, CONVERSATION)
    assert seen == [None, None]
    assert [result.message.text for result in results] == ["Hello", "Fine"]
    assert again.message == results[0].message
    assert len(model.calls) == 2


async def test_a_branch_goes_on_from_its_boundary() -> None:
    """In a branch the model sees the turns up to the boundary, tools and all, and none that came later."""
    model = ScriptedModel([*tool_call(), FinishReport("tool-calls")], "It rains", "Later", "Elsewhere")
    async with MemoryStore() as store, opened(model, store=store, tools=[look_up]) as scene:
        first = await scene.runtime.submit(CONVERSATION, "How is Bern?").result
        await scene.runtime.submit(CONVERSATION, "And now?").result
        request = BranchConversation(request_key="k", destination_id="b", source_id=CONVERSATION, run_id=first.run.id)
        before = encode_archive(await store.export_conversation(CONVERSATION))
        await store.branch_conversation(request)
        answered = await scene.runtime.submit("b", "What else?").result
        assert encode_archive(await store.export_conversation(CONVERSATION)) == before
        await check_conversation(store, "b")
        imported = encode_archive(await store.export_conversation("b"))
    assert answered.message.text == "Elsewhere"
    said = asked(model, 3)
    assert (said[0], said[-1]) == ("How is Bern?", "What else?")
    assert "It rains" in said
    assert {"Later", "And now?"}.isdisjoint(said)
    async with MemoryStore() as other:
        await other.import_conversation(imported)
        await check_conversation(other, "b")
