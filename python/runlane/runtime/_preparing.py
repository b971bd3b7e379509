"""What a run's model is told: compaction, the model, the composed prompt, the window, and the projected history.

Everything that only reads happens before the run is acquired, so that acquisition and first request are one commit.
What needs a write of its own (a compaction that is due, user instructions that are not seeded yet) happens *inside* the
run: it is acquired first.

| in this order | and if it goes wrong |
|---|---|
| the configured compaction, as an operation of its own | the run ends as `runtime_failure` |
| the model is chosen | the same |
| the sections are rendered | the same |
| user instructions are seeded, once per conversation | the same |
| the history is cut to its token budget, and compared with what the window leaves | `context_overflow` |
| the history is projected | `runtime_failure` |

Nothing of this calls the provider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from runlane.contracts import CancelToken
from runlane.errors import ContextOverflowError
from runlane.history import RUNTIME_EVIDENCE, ResolvedFiles, Selection
from runlane.models import ModelFunction, ResolvedModel
from runlane.prompt import (
    ComposedPrompt,
    ContextDecision,
    Instructions,
    PromptBudget,
    PromptSection,
    carry_into_instructions,
    compose_prompt,
)
from runlane.records import Message
from runlane.runtime._compaction_run import compact_in_run, compaction_is_due
from runlane.runtime._compaction_values import CompactionContext
from runlane.runtime._core import ModelRequest, RuntimeCore
from runlane.runtime._lane import ConversationLane
from runlane.runtime._seeding import seed_command
from runlane.runtime._showing import Showing
from runlane.runtime._steps import StepPrompt
from runlane.runtime._turn_writer import TurnWriter
from runlane.runtime._work import Work

__all__ = ["Preparation"]

_EVERYTHING: Final = 2**53 - 1


class Preparation:
    """Finds out what one run's model is told; its lane shows the run already."""

    def __init__(self, core: RuntimeCore, lane: ConversationLane, work: Work, signal: CancelToken, /) -> None:
        """Prepare a run.

        Args:
            core: The runtime.
            lane: The run's conversation.
            work: The run.
            signal: Trips when it must stop.
        """
        self._core = core
        self._lane = lane
        self._work = work
        self._signal = signal
        self._showing = Showing(core.config, work)
        self._model: ResolvedModel | None = None
        self._composed: ComposedPrompt | None = None

    async def before(self) -> StepPrompt | None:
        """Return what the model is told; None if something has to be written first, inside the run.

        Raises:
            ContextOverflowError: It does not fit the model's window.
            Exception: What a callback of the application raised.
        """
        compact = self._core.config.history.compact
        history = self._lane.records.history
        if compaction_is_due(compact, self._lane.conversation_id, history, self._core.calls.store):
            return None
        composed = await self._compose()
        if composed is not None and composed.user_instructions and not self._lane.is_seeded:
            return None
        return await self._finish()

    @staticmethod
    def is_immediate(core: RuntimeCore, /) -> bool:
        """Whether prompts are made of what is at hand: nothing is asked, awaited or written for them."""
        model, config = core.given_model, core.config
        asks = config.prompt.sections or config.files.resolve or config.history.project or config.history.compact
        if model is None or asks:
            return False
        return config.prompt.counter is None or model.context_window is None

    def immediately(self) -> StepPrompt:
        """Return what the model is told, if `is_immediate` holds.

        Raises:
            Exception: It cannot be told.
        """
        self._model = self._core.given_model
        return self._projected(self._select(None), None)

    async def inside(self, writer: TurnWriter) -> StepPrompt:
        """Write what has to be written under an acquired run, and return what the model is told.

        Raises:
            ContextOverflowError: It does not fit the model's window.
            RuntimeConflictError: The run is lost.
            Exception: What a callback of the application raised.
        """
        await self._compact(writer)
        composed = await self._compose()
        if composed is not None and composed.user_instructions and not self._lane.is_seeded:
            await self._seed(composed)
        return await self._finish()

    # --- one thing after another ------------------------------------------------------------------------------------

    async def _compact(self, writer: TurnWriter) -> None:
        core, conversation_id = self._core, self._lane.conversation_id
        compact, store = core.config.history.compact, core.calls.store
        if compact is None or not compaction_is_due(compact, conversation_id, self._lane.records.history, store):
            return
        context = CompactionContext(conversation_id=conversation_id, store=store, signal=self._signal)
        await compact_in_run(compact, context, writer.record, writer.spend.add, ids=core.ids, clock=core.clock)
        await self._lane.show(self._work.run)

    async def _compose(self) -> ComposedPrompt | None:
        """Choose the model and render the sections; None without sections or a window to measure."""
        if self._model is None:
            request = ModelRequest(
                context=self._work.context,
                conversation_id=self._lane.conversation_id,
                run=self._work.run,
                inputs=self._lane.records.shown,
            )
            self._model = await self._core.resolve_model(request)
            self._composed = await self._rendered(self._model)
        return self._composed

    async def _rendered(self, model: ResolvedModel) -> ComposedPrompt | None:
        config = self._core.config.prompt
        measures = config.counter is not None and model.context_window is not None
        if not measures and not config.sections:
            return None
        return await compose_prompt(
            self._sections(),
            context=self._work.context,
            signal=self._signal,
            event="turn.started" if self._lane.records.has_runs else "session.started",
            estimate=config.counter,
            adapt_instructions=config.adapt_instructions,
            budget=await self._budget(model) if measures else None,
            oversize_policy=config.oversize_policy,
        )

    def _sections(self) -> Sequence[PromptSection[object]]:
        text = self._core.instructions
        own = (PromptSection[object](name="instructions", render=text),) if text else ()
        return (*own, *self._core.config.prompt.sections)

    async def _budget(self, model: ResolvedModel) -> PromptBudget | None:
        config, tools = self._core.config.prompt, self._core.tools
        if model.context_window is None or config.counter is None:
            return None
        visible = () if tools is None else await tools.list_visible(self._work.context)
        return PromptBudget.for_request(
            context_window=model.context_window,
            reserved_output=config.reserved_output,
            functions=tuple(
                ModelFunction(name=tool.id, description=tool.description, parameters=tool.input_schema)
                for tool in visible
            ),
            counter=config.counter,
            attachments=config.attachments,
            provider_overhead=config.provider_overhead,
        )

    async def _seed(self, composed: ComposedPrompt) -> None:
        core = self._core
        command = seed_command(
            command_id=core.ids.new("command"),
            at=core.clock.now(),
            conversation_id=self._lane.conversation_id,
            instructions=composed.user_instructions,
        )
        await self._lane.commit([command])
        self._lane.is_seeded = True
        await self._lane.show(self._work.run)

    async def _finish(self) -> StepPrompt:
        """Cut the history to its budget, see whether it fits, and project it."""
        model, composed = self._model, self._composed
        if model is None:
            raise RuntimeError
        selection = self._select(composed)
        self._check_window(composed, selection)
        own = None if self._core.config.history.project is None else await self._showing.own(self._kept(selection))
        if own is not None:
            return StepPrompt(model=model, instructions=self._instructions, messages=own)
        return self._projected(selection, await self._showing.files(self._lane.records.history))

    @property
    def _instructions(self) -> Instructions:
        composed = self._composed
        return (self._core.instructions or "") if composed is None else composed.instructions

    def _projected(self, selection: Selection | None, files: ResolvedFiles | None) -> StepPrompt:
        if self._model is None:
            raise RuntimeError
        options = self._showing.options(self._model.provider.provider_id or None)
        projection = self._lane.records.project(options, files=files, selection=selection)
        messages = projection.messages
        return StepPrompt(
            model=self._model,
            instructions=carry_into_instructions(self._instructions, projection.system),
            messages=messages,
            records=self._lane.records.records_of(selection, messages=len(messages)),
        )

    def _select(self, composed: ComposedPrompt | None) -> Selection | None:
        """Return what of the history is kept; None for all of it, uncounted."""
        config, available = self._core.config.history, None if composed is None else composed.available_history_tokens
        limit = config.max_tokens
        if limit == "window":
            limit = None if available is None else max(0, available)
        elif limit is None and available is not None:
            limit = _EVERYTHING
        if limit is None:
            return None
        return self._lane.records.history.select(
            limit,
            counter=config.counter,
            keep_recent_turns=config.keep_recent_turns,
            evidence_policy=RUNTIME_EVIDENCE,
            active_runs=frozenset({self._work.run.id}),
        )

    def _check_window(self, composed: ComposedPrompt | None, selection: Selection | None) -> None:
        """Refuse what does not fit the model's window; the seed, if there was one, is counted with the history."""
        if composed is None or selection is None:
            return
        window = replace(composed, history_tokens=selection.total_tokens).finalize_seed(False)  # noqa: FBT003
        decision: ContextDecision = window.context_decision
        if decision in ("oversized", "requires-compaction"):
            raise ContextOverflowError(
                f"the history counts {selection.total_tokens.value} tokens and the model's window leaves "
                f"{window.available_history_tokens} for it ({decision}); compact it, set history.max_tokens, "
                "or use a model with a larger window"
            )

    def _kept(self, selection: Selection | None) -> tuple[Message, ...]:
        """Return the records for an application that projects them itself."""
        history = self._lane.records.history
        places = range(len(history)) if selection is None else selection.kept
        return tuple(Message.model_validate_json(history.record(place)) for place in places)
