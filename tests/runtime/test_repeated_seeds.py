"""A seed that is there already changes nothing, also not what is known of what others committed meanwhile."""

import pytest

from runlane.delivery import fold_events
from runlane.errors import StoreUnavailableError
from runlane.models import ModelMessage
from runlane.store import MemoryStore, ReadEvents
from runlane.testing import Fault, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, heard, opened

pytestmark = pytest.mark.anyio


def _deaf(call: StoreCall) -> Fault | None:
    """Let a process hear of what others commit only when it looks by itself."""
    return Fault(error=StoreUnavailableError("deaf")) if call.method == "wait_for_change" else None


async def test_listeners_hear_what_others_committed_before_a_repeated_seed() -> None:
    """The repetition names the version of another process's commit, which nobody was told here."""
    async with MemoryStore() as store:
        async with (
            opened(ScriptedModel("Hello"), store=store, plan=_deaf) as scene,
            opened(ScriptedModel("Hello"), store=store) as other,
            scene.runtime.subscribe(CONVERSATION) as events,
        ):
            await scene.runtime.seed(CONVERSATION, ["Seeded"], seed_key="y")
            await other.runtime.submit(CONVERSATION, "Hi").result
            await scene.runtime.seed(CONVERSATION, ["Seeded"], seed_key="y")
            await scene.runtime.submit(CONVERSATION, "Hi again").result
            await scene.runtime.close()
            told = [event.event_id for event in await heard(events) if not hasattr(event, "sequence")]
        page = await store.read_events(ReadEvents(conversation_id=CONVERSATION))
    assert told == [event.event_id for entry in page.items for event in fold_events(entry)]


async def test_prompts_hold_what_others_seeded_before_a_repeated_seed() -> None:
    """The repetition names the version of another process's seed, which is not known here."""
    model = ScriptedModel("One", "Two")
    async with (
        MemoryStore() as store,
        opened(model, store=store) as scene,
        opened(ScriptedModel("-"), store=store) as other,
    ):
        await scene.runtime.seed(CONVERSATION, ["Seeded here"], seed_key="y")
        await scene.runtime.submit(CONVERSATION, "Hi").result
        await other.runtime.seed(CONVERSATION, ["Seeded there"], seed_key="x", placement="after-settled")
        await scene.runtime.seed(CONVERSATION, ["Seeded here"], seed_key="y")
        await scene.runtime.submit(CONVERSATION, "Hi again").result
    said = [message.text for message in model.calls[1].messages if isinstance(message, ModelMessage)]
    assert said == ["Seeded here", "Hi", "One", "Seeded there", "Hi again"]
