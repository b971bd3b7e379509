"""The first draft of an answer, when it cannot be written."""

import pytest

from runlane.errors import StoreUnavailableError
from runlane.prompt import PromptSection
from runlane.runtime import PromptConfig, RuntimeConfig
from runlane.store import AcquireRun, CheckpointRunAssistant
from runlane.testing import Fault, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio

_AWAY = StoreUnavailableError("the disk is away")
_SEEDING = RuntimeConfig(prompt=PromptConfig(sections=(PromptSection(name="brief", render="Be kind.", role="user"),)))


@pytest.mark.parametrize("config", [None, _SEEDING], ids=["at once", "acquired first"])
async def test_a_first_draft_that_cannot_be_written_fails_with_its_acquisition(config: RuntimeConfig | None) -> None:
    """It shares the acquisition's commit, also where a run is acquired first: there is no held run without a draft."""
    failed: list[StoreCall] = []

    def plan(call: StoreCall) -> Fault | None:
        kinds = {type(command) for command in call.commands}
        if CheckpointRunAssistant not in kinds or len(failed) >= 6:
            return None
        assert AcquireRun in kinds
        failed.append(call)
        return Fault(error=_AWAY)

    model = ScriptedModel("Hello")
    async with opened(model, plan=plan, config=config, stepwise=True) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(1.0)
        result = await ticket.result
        assert (result.reason, result.error, model.calls) == ("abandoned", _AWAY, [])
        assert (await scene.runtime.submit(CONVERSATION, "Again").result).reason == "success"
    assert len(failed) == 6
