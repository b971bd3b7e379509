"""A run is answered by the model its inputs pin, else by its conversation's, else by the default."""

from datetime import UTC, datetime

import pytest
from pydantic import JsonValue

from runlane.errors import InvalidValueError, ModelNotUsableError, UnknownModelError
from runlane.models import MemoryModelSelectionStore, ModelRegistry, ModelSelection, define_model_registry
from runlane.records import JsonObject, TextPart
from runlane.runtime import AgentRuntime, ModelChoice, RunsConfig, RuntimeConfig, RuntimeInput
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def models() -> ModelRegistry:
    """Return a registry of three models, one of which can do nothing."""
    described = {"provider": "lab", "context_window": 1_000, "capabilities": ["tools"]}
    return define_model_registry(
        models={
            "main": {**described, "model_id": "m"},
            "big": {**described, "model_id": "b"},
            "gone": {**described, "model_id": "g", "availability": "unavailable"},
        },
        providers={"lab": lambda name: ScriptedModel(f"{name} said it", model_id=name)},
    )


async def test_a_pin_wins_over_a_selection_over_the_default() -> None:
    """Of several inputs that pin one, the newest."""
    selections = MemoryModelSelectionStore()
    choice = ModelChoice(models(), "main", selections=selections)
    assert await choice.choose("c1", [None]) == "main"
    await selections.save("c1", ModelSelection(model_id="big", selected_at=NOW))
    assert await choice.choose("c1", [None]) == "big"
    assert await choice.choose("c2", [None]) == "main"
    pins: list[JsonObject | None] = [{"model": "gone"}, {"model": "main"}, {"other": 1}]
    assert await choice.choose("c1", pins) == "main"


async def test_a_run_is_answered_by_the_model_its_conversation_was_set_to() -> None:
    """In a runtime, from one turn to the next."""
    selections = MemoryModelSelectionStore()
    choice = ModelChoice(models(), "main", selections=selections)
    async with MemoryStore() as store, AgentRuntime(store, model=choice) as runtime:
        first = await runtime.submit("c1", "Hi").result
        await selections.save("c1", {"model_id": "big", "selected_at": NOW})
        second = await runtime.submit("c1", "Hi again").result
    assert [result.message.text for result in (first, second)] == ["m said it", "b said it"]


@pytest.mark.parametrize(
    ("pin", "error"), [("gone", ModelNotUsableError), ("nobody", UnknownModelError), (7, InvalidValueError)]
)
async def test_preflight_refuses_before_anything_is_admitted(pin: JsonValue, error: type[Exception]) -> None:
    """A model that is unavailable, one nobody knows, and a pin that is no name: nothing is written."""
    choice = ModelChoice(models(), "main")
    config = RuntimeConfig(runs=RunsConfig(preflight=choice.preflight))
    async with MemoryStore() as store, AgentRuntime(store, model=choice, config=config) as runtime:
        ticket = runtime.submit("c1", RuntimeInput(parts=(TextPart(text="Hi"),), metadata={"model": pin}))
        with pytest.raises(error):
            await ticket.accepted
        assert (await store.load_head("c1")).version == 0
        assert (await runtime.submit("c1", "Hi").result).message.text == "m said it"


async def test_a_default_that_cannot_serve_is_found_out_at_once() -> None:
    """Not at the first run."""
    with pytest.raises(UnknownModelError):
        ModelChoice(models(), "nobody")
    with pytest.raises(ModelNotUsableError):
        ModelChoice(models(), "main", capabilities=["vision"])
