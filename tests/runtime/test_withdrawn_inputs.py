"""Inputs whose runs were ended before their turn, while another run executes: they stand behind its answer."""

import pytest

from runlane.models import AnyModelMessage, FinishReport, ModelMessage, TextDelta
from runlane.store import MemoryStore
from runlane.testing import Hold, ScriptedModel
from tests.runtime.scenes import CONVERSATION, Scene, opened

pytestmark = pytest.mark.anyio


async def _withdraw(scene: Scene, run_id: str, how: str) -> None:
    """End a queued run."""
    if how == "cancel":
        await scene.runtime.cancel(CONVERSATION, run_id)
    else:
        await scene.runtime.abandon(CONVERSATION, run_id, expected_revision=0, stale_owner=True)


def _said(messages: tuple[AnyModelMessage, ...]) -> list[str]:
    """Return what was said; that a run failed without a word is a note of its own."""
    said = [message.text for message in messages if isinstance(message, ModelMessage)]
    return [text for text in said if not text.startswith("[failed")]


async def _stored(store: MemoryStore) -> list[str]:
    return [message.text for message in (await store.load_snapshot(CONVERSATION)).messages if message.text]


@pytest.mark.parametrize("how", ["cancel", "abandon"])
async def test_what_is_withdrawn_beside_a_run_is_told_behind_its_answer(how: str) -> None:
    """The next prompt has the order of the store: question, answer, and then what was withdrawn meanwhile."""
    hold = Hold()
    model = ScriptedModel([hold, TextDelta("Answer"), FinishReport("stop")], "Last answer")
    async with MemoryStore() as store, opened(model, store=store) as scene:
        first = scene.runtime.submit(CONVERSATION, "Question")
        await hold.reached()
        second = scene.runtime.submit(CONVERSATION, "Withdrawn")
        await second.admission
        await _withdraw(scene, second.run_id, how)
        hold.release()
        await first.result
        await scene.runtime.submit(CONVERSATION, "Last").result
        stored = await _stored(store)
    assert _said(model.calls[1].messages) == stored[:-1] == ["Question", "Answer", "Withdrawn", "Last"]


@pytest.mark.parametrize("how", ["cancel", "abandon"])
async def test_a_run_taken_over_is_not_told_what_was_withdrawn_behind_it(how: str) -> None:
    """A dead process's run is answered again without inputs of later runs; these come after its answer."""
    hold = Hold()
    model = ScriptedModel([hold], "Answer", "Last answer")
    async with MemoryStore() as store:
        async with opened(model, store=store) as dying, opened(model, store=store) as other:
            dying.runtime.submit(CONVERSATION, "Question")
            await hold.reached()
            second = other.runtime.submit(CONVERSATION, "Withdrawn")
            await second.admission
            await _withdraw(other, second.run_id, how)
            dying.store.kill()
        async with opened(model, store=store) as scene:
            [outcome] = await scene.runtime.recover()
            assert outcome.result is not None
            await outcome.result
            await scene.runtime.submit(CONVERSATION, "Last").result
        stored = await _stored(store)
    assert _said(model.calls[1].messages) == ["Question"]
    assert _said(model.calls[2].messages) == stored[:-1] == ["Question", "Answer", "Withdrawn", "Last"]
