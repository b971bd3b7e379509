"""The default driver: ask the model, run the tools it asks for, ask again, until it has answered."""

from __future__ import annotations

from typing import Final

from runlane.models import (
    FinishReport,
    FunctionCallDelta,
    ModelAssistantToolMessage,
    ModelToolResultMessage,
    ResponseInfo,
    UsageReport,
    create_tool_call_collector,
)
from runlane.records import Part, ProviderPart, ReasoningPart, TextPart, ToolCallPart
from runlane.runtime._steps import StepPrompt
from runlane.runtime._tool_calls import answer_calls
from runlane.runtime._turn import Turn, TurnFinished, TurnOutcome, TurnStopped

__all__ = ["ManagedLoopDriver"]

_RUNS_TOOLS: Final = frozenset({"tool-calls", "stop"})
_NOTED: Final = (UsageReport, ResponseInfo)
"""Parts the open step has noted, which say nothing of the answer."""

_SAID: Final = (TextPart, ReasoningPart, ProviderPart, ToolCallPart)


class ManagedLoopDriver:
    """Answers a turn by the model-and-tool loop.

    Calls are carried out as `runlane.runtime._tool_calls` says, and what they gave is given back to the model, up to
    `loop.max_steps` steps. A call that waits for somebody's consent ends the turn.

    Attributes:
        begins_with_step: The driver asks the model before anything else, so the runtime may commit the first request
            together with the acquisition.
    """

    name = "managed-loop"
    begins_with_step = True

    async def drive(self, turn: Turn, /) -> TurnOutcome:
        """Answer one turn; see `TurnDriver.drive`."""
        if not await turn.resume():
            return TurnFinished("tool-calls")
        while True:
            try:
                return await _attempt(turn)
            except Exception as error:
                if not await turn.restart(error):
                    raise


async def _attempt(turn: Turn) -> TurnOutcome:
    """Answer a turn from its beginning."""
    prompt = turn.prompt
    while True:
        boundary = await turn.boundary(prompt)
        if boundary.stop is not None:
            return TurnStopped(boundary.stop)
        prompt = boundary.prompt or prompt
        finish, calls = await _ask(turn, prompt)
        calls = turn.tools.distinct(calls)
        for call in calls:
            await turn.emit(call)
        if not calls or finish.reason not in _RUNS_TOOLS:
            return TurnFinished(finish.reason)
        asked = _as_assistant_message(turn.step_parts())
        results = await answer_calls(turn, calls, prompt.active_tools)
        if results is None:
            return TurnFinished("tool-calls")
        prompt = prompt.with_messages((asked, ModelToolResultMessage(results)))


async def _ask(turn: Turn, prompt: StepPrompt) -> tuple[FinishReport, tuple[ToolCallPart, ...]]:
    """Take one step of the model; what it says goes out as it comes, its calls are returned whole."""
    collector = create_tool_call_collector(provider=prompt.model.provider.provider_id)
    finish = FinishReport("other")
    functions = turn.tools.functions(prompt.active_tools)
    async with turn.open_step(prompt.spoken(), model=prompt.model, functions=functions) as parts:
        async for part in parts:
            if isinstance(part, FunctionCallDelta):
                collector.add(part)
            elif isinstance(part, FinishReport):
                finish = part
            elif not isinstance(part, _NOTED):
                await turn.emit(part)
    return finish, collector.finish()


def _as_assistant_message(parts: tuple[Part, ...]) -> ModelAssistantToolMessage:
    """Return what the model said in a step, as it is given back to it."""
    return ModelAssistantToolMessage(tuple(part for part in parts if isinstance(part, _SAID)))
