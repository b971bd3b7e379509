"""Two ways to know a conversation, told live or read back: they come to the same."""

from collections.abc import Mapping
from typing import Final

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runlane.delivery import ControlView, DurableEvent, RuntimeEvent, fold_events, reduce_control_event
from runlane.errors import ProviderError
from runlane.models import FinishReport, FunctionCallDelta, ReasoningDelta, TextDelta
from runlane.runtime import DeliveryConfig, LoopConfig, RunsConfig, RuntimeConfig
from runlane.store import ReadEvents
from runlane.testing import ScriptedModel, ScriptedStep
from runlane.tools import tool
from tests.runtime.scenes import CONVERSATION, opened

_REPLIES: Final[dict[str, list[ScriptedStep]]] = {
    "text": [TextDelta("Hel"), TextDelta("lo"), FinishReport("stop")],
    "thought": [ReasoningDelta("hm"), TextDelta("Yes"), FinishReport("stop")],
    "cut": [TextDelta("Hel"), ProviderError("gone", provider="p")],
    "long": [*(TextDelta(str(number)) for number in range(30)), FinishReport("length")],
    "call": [FunctionCallDelta(0, id="c1", name="look", arguments="{}"), FinishReport("tool-calls")],
    "silent": [FinishReport("stop")],
}


@tool
async def look() -> str:
    """Look around."""
    return "nothing"


def folded(events: list[RuntimeEvent]) -> Mapping[str, ControlView]:
    """Return the views after some events."""
    views: Mapping[str, ControlView] = {}
    for event in events:
        views = reduce_control_event(views, event)
    return views


async def _play(replies: list[str], *, together: bool) -> tuple[list[RuntimeEvent], list[RuntimeEvent]]:
    """Return what was told live of a conversation, and what its ledger says."""
    told: list[RuntimeEvent] = []
    config = RuntimeConfig(
        delivery=DeliveryConfig(publisher=told.append),
        loop=LoopConfig(checkpoint_every_events=3),
        runs=RunsConfig(coalesce_pending=True),
    )
    model = ScriptedModel(*(_REPLIES[name] for name in replies), *(_REPLIES["text"] for _ in replies))
    async with opened(model, config=config, tools=(look,)) as scene:
        tickets = []
        for number in range(len(replies)):
            tickets.append(scene.runtime.submit(CONVERSATION, str(number)))
            if not together:
                await tickets[-1].result
        for ticket in tickets:
            await ticket.result
        page = await scene.store.read_events(ReadEvents(conversation_id=CONVERSATION, limit=500))
    return told, [event for entry in page.items for event in fold_events(entry)]


def _ids(events: list[RuntimeEvent]) -> list[str]:
    return [event.event_id for event in events if isinstance(event, DurableEvent)]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=15)
@given(replies=st.lists(st.sampled_from(sorted(_REPLIES)), min_size=1, max_size=3), together=st.booleans())
def test_live_durable_events_and_the_ledger_fold_to_the_same_view(
    backend: str, replies: list[str], *, together: bool
) -> None:
    """The same events in the same order, and so the same view; transients are gone once every run has ended."""

    async def play() -> tuple[list[RuntimeEvent], list[RuntimeEvent]]:
        return await _play(replies, together=together)

    told, read = anyio.run(play, backend=backend)
    durable = [event for event in told if isinstance(event, DurableEvent)]
    assert [event.event_id for event in durable] == [
        event.event_id for event in read if isinstance(event, DurableEvent)
    ]
    assert folded(list(durable)) == folded(read)
    live, rebuilt = folded(told)[CONVERSATION], folded(read)[CONVERSATION]
    assert live.streaming == rebuilt.streaming == {}
    assert live.cursor.snapshot_version == rebuilt.cursor.snapshot_version
    for run_id, position in live.cursor.runs.items():
        sequences = [event.sequence for event in told if not isinstance(event, DurableEvent) and event.run_id == run_id]
        assert sequences == list(range(1, position.sequence + 1))
