"""One acquired run while it is answered: the `Turn` its driver sees."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Self

from runlane.contracts import CancelToken, Id
from runlane.errors import InvalidValueError, ProviderStreamCutError, UsageError
from runlane.models import (
    AnyModelMessage,
    FileOutput,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ModelProviderContext,
    OpaqueOutput,
    ReasoningDelta,
    ResolvedModel,
    SourceOutput,
    TextDelta,
    UsageReport,
    repair_object,
    repair_text,
)
from runlane.records import (
    Part,
    ProviderEnvelope,
    ProviderPart,
    Run,
    RunOperation,
    SourcePart,
    ToolCallPart,
    ToolResultPart,
    validated,
)
from runlane.runtime._announcing import RunVoice
from runlane.runtime._core import RuntimeCore
from runlane.runtime._idle_watch import Watched
from runlane.runtime._turn import Boundary, TurnPart
from runlane.runtime._turn_writer import TurnWriter

__all__ = ["LiveTurn", "Prompt", "first_operation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the model is told of the past, and which model it is."""

    model: ResolvedModel
    instructions: tuple[str, ...]
    messages: tuple[AnyModelMessage, ...]


def first_operation(core: RuntimeCore, step: int = 0, /) -> RunOperation:
    """Return a started operation for a step."""
    return RunOperation(
        operation_id=core.ids.new("operation"),
        kind="model-request",
        phase="started",
        step=step,
        started_at=core.clock.now(),
    )


class LiveTurn:
    """A run between its acquisition and its end.

    Attributes:
        writer: Makes it durable.
        provider_error: What came out of the provider, if something did: failures are told apart by identity.
    """

    def __init__(
        self,
        core: RuntimeCore,
        writer: TurnWriter,
        prompt: Prompt,
        signal: CancelToken,
        operation: RunOperation | None,
    ) -> None:
        """Begin to answer.

        Args:
            core: The runtime.
            writer: The run, acquired.
            prompt: What the model is told.
            signal: Trips when the run must stop.
            operation: The first step's operation, if it was committed with the acquisition.
        """
        self._core = core
        self._prompt = prompt
        self._signal = signal
        self._committed_operation = operation
        self._voice = RunVoice(core.publishing, writer.run, writer.ownership.owner, core.clock)
        self._steps = 0
        self._step_start = 0
        self.writer = writer
        self.provider_error: Exception | None = None

    @property
    def run(self) -> Run:
        """The run as last written."""
        return self.writer.run

    @property
    def instructions(self) -> tuple[str, ...]:
        """What goes into the provider's instructions channel."""
        return self._prompt.instructions

    @property
    def messages(self) -> tuple[AnyModelMessage, ...]:
        """The projected history with this run's inputs."""
        return self._prompt.messages

    @property
    def model(self) -> ResolvedModel:
        """The model that answers."""
        return self._prompt.model

    @property
    def signal(self) -> CancelToken:
        """Trips when the run must stop."""
        return self._signal

    @asynccontextmanager
    async def open_step(self, messages: tuple[AnyModelMessage, ...], /) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Ask the model once; see `Turn.open_step`."""
        self._signal.raise_if_cancelled()
        if self.writer.operation is not None:
            raise UsageError("a step is open already", argument="open_step")
        operation, self._committed_operation = self._committed_operation, None
        started = operation or first_operation(self._core, self._steps)
        await self.writer.start(started, is_written=operation is not None)
        self._steps += 1
        self._step_start = self.writer.draft.size
        limit = self._core.config.loop.idle_timeout
        unwatched = limit is None or self.model.provider.watches_silence
        watched = None if unwatched else self._core.idle_watch.add(self._signal, limit or 0.0)
        context = ModelProviderContext(
            signal=self._signal,
            options=self.model.options,
            idle_timeout=limit,
            invocation_id=Id(started.operation_id),
            call_number=self._steps,
        )
        step = _Step(self, watched, self._core)
        try:
            async with self._opened(messages, context) as parts:
                step.parts = parts
                yield step
        finally:
            if watched is not None:
                self._core.idle_watch.remove(watched)
            self.writer.end(finished=step.finished)

    @asynccontextmanager
    async def _opened(
        self, messages: tuple[AnyModelMessage, ...], context: ModelProviderContext
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Open the provider's stream, and remember what comes out of opening it."""
        opened = False
        try:
            async with self.model.provider.open_stream(messages, context) as parts:
                opened = True
                yield parts
        except Exception as error:
            if not opened:
                self.provider_error = error
            raise

    async def emit(self, part: ModelPart | TurnPart, /) -> None:
        """Add to the answer; see `Turn.emit`."""
        if isinstance(part, TextDelta):
            if not part.text:
                return
            text = repair_text(part.text)
            self.writer.draft.add_text(text)
            telling = self._voice.text(text)
        elif isinstance(part, ReasoningDelta):
            thought = _repaired(part)
            envelope = self.writer.draft.add_reasoning(thought, self.model.provider.provider_id)
            telling = self._voice.reasoning(thought, envelope)
        elif isinstance(part, ToolCallPart | ToolResultPart):
            self.writer.draft.add(part)
            telling = self._voice.tool(part)
        else:
            self._emit_quietly(part)
            return
        if telling is not None:
            await telling

    def _emit_quietly(self, part: ModelPart) -> None:
        """Add what no transient event speaks of."""
        match part:
            case SourceOutput():
                self.writer.draft.add(_source(part))
            case OpaqueOutput(provider, data):
                envelope = {"provider": provider, "data": repair_object(data)}
                self.writer.draft.add(
                    ProviderPart(envelope=validated(ProviderEnvelope, envelope, argument="opaque output"))
                )
            case FileOutput():
                raise UsageError("the model made a file and nothing is configured to keep it", argument="files")
            case _:
                pass

    async def checkpoint(self) -> None:
        """Make everything emitted so far durable; see `Turn.checkpoint`."""
        await self.writer.checkpoint()

    def step_parts(self) -> tuple[Part, ...]:
        """Return what was added since the last step was opened."""
        return self.writer.draft.parts(self._step_start)

    async def boundary(self) -> Boundary:
        """Take what happened since the last step; see `Turn.boundary`."""
        self._signal.raise_if_cancelled()
        if self._steps >= self._core.config.loop.max_steps:
            return Boundary(stop="max-steps")
        return Boundary()


def _source(part: SourceOutput) -> SourcePart:
    """Return a citation; an address that is no URL stays as its id, rather than costing the answer."""
    said = {"source_id": part.source_id, "url": part.url, "title": part.title}
    source = {name: repair_text(text) for name, text in said.items() if text}
    try:
        return validated(SourcePart, source, argument="source")
    except InvalidValueError:
        source.pop("url", None)
        return validated(SourcePart, source, argument="source")


def _repaired(part: ReasoningDelta) -> ReasoningDelta:
    """Return reasoning as it can be stored, whatever its provider made of it."""
    options = part.provider_options
    text = repair_text(part.text) if part.text else part.text
    if options is None and text == part.text:
        return part
    return replace(part, text=text, provider_options=None if options is None else repair_object(options))


class _Step:
    """The parts of one call, each noted before the driver gets it."""

    __slots__ = ("_clock", "_turn", "_watched", "_writer", "finished", "parts")

    def __init__(self, turn: LiveTurn, watched: Watched | None, core: RuntimeCore) -> None:
        self._turn = turn
        self._writer = turn.writer
        self._watched = watched
        self._clock = core.clock
        self.parts: AsyncIterator[ModelPart] | None = None
        self.finished = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelPart:
        if self.finished or self.parts is None:
            raise StopAsyncIteration
        await self._writer.checkpoint_if_due()
        if self._watched is not None:
            self._watched.heard = self._clock.monotonic()
        try:
            part = await anext(self.parts)
        except StopAsyncIteration:
            self._turn.provider_error = ProviderStreamCutError()
            raise self._turn.provider_error from None
        except Exception as error:
            self._turn.provider_error = error
            raise
        finally:
            if self._watched is not None:
                self._watched.heard = None
        self._note(part)
        return part

    def _note(self, part: ModelPart) -> None:
        self._writer.count_part()
        if isinstance(part, TextDelta):
            if part.text:
                self._writer.first_output()
        elif isinstance(part, FinishReport):
            self.finished = True
        elif isinstance(part, UsageReport):
            self._writer.spend.report(part.usage)
        elif (isinstance(part, ReasoningDelta) and part.text) or (
            isinstance(part, FunctionCallDelta) and part.arguments
        ):
            self._writer.first_output()
