"""What the tests of injection share: a run that stands in its first step, and an input that is to join it."""

from collections.abc import Sequence
from dataclasses import dataclass

from runlane.models import FinishReport, FunctionCallDelta, TextDelta
from runlane.runtime import RunResult, RunTicket
from runlane.testing import Hold, ScriptedModel, ScriptedReply, ScriptedStep
from tests.runtime.scenes import CONVERSATION, Scene


def tool_call(name: str = "look_up") -> list[ScriptedStep]:
    """Return a step that calls a tool, so that another step follows."""
    return [TextDelta("Let me see. "), FunctionCallDelta(0, id=name, name=name, arguments="{}")]


def standing(*, calls: bool = True, then: Sequence[ScriptedReply] = ("done",)) -> tuple[Hold, ScriptedModel]:
    """Return a model that stands in its first step, and goes on with a second one if that step calls a tool."""
    hold = Hold()
    said = tool_call() if calls else [TextDelta("half ")]
    step = [*said, hold, FinishReport("tool-calls" if calls else "stop")]
    return hold, ScriptedModel(step, *then)


@dataclass(frozen=True)
class Two:
    """A run that executes and stands in its first step, and one whose input was submitted to be injected."""

    scene: Scene
    hold: Hold
    first: RunTicket
    second: RunTicket

    async def results(self) -> list[RunResult]:
        """Let the model go on, and wait for both."""
        self.hold.release()
        return [await self.first.result, await self.second.result]


async def inject_second(scene: Scene, hold: Hold) -> Two:
    """Submit `first`, and `second` to be injected once the model stands in the first step; both are admitted."""
    first = scene.runtime.submit(CONVERSATION, "first", idempotency_key="1")
    await hold.reached()
    second = scene.runtime.submit(CONVERSATION, "second", policy="inject", idempotency_key="2")
    await second.accepted
    return Two(scene, hold, first, second)


def ran_by_itself(results: list[RunResult]) -> bool:
    """Whether the second run answered its own input, and the first lists only its own."""
    first, second = results
    return (second.reason, len(first.run.input_message_ids), len(second.run.input_message_ids)) == ("success", 1, 1)
