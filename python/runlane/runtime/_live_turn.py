"""One acquired run while it is answered: the `Turn` its driver sees."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from runlane.contracts import CancelToken, Id, resolve
from runlane.durability import StepDurability
from runlane.errors import ModelProtocolError, RunlaneError, UsageError
from runlane.models import (
    AnyModelMessage,
    ModelFunction,
    ModelPart,
    ModelProviderContext,
    ReasoningDelta,
    ResolvedModel,
    TextDelta,
    decide_retry,
)
from runlane.observability import StepOutcome
from runlane.prompt import Instructions
from runlane.records import JsonObject, Part, Run, RunOperation, ToolCallPart
from runlane.runtime._announcing import RunVoice
from runlane.runtime._context_usage import context_usage
from runlane.runtime._core import RuntimeCore
from runlane.runtime._injection import Inbox
from runlane.runtime._intake import Intake
from runlane.runtime._late_results import with_late_results
from runlane.runtime._left_open import LeftOpen
from runlane.runtime._live_step import FailureOrigin, Failures, LiveStep
from runlane.runtime._pairing import Pairing, check_tool_part
from runlane.runtime._request_ledger import ProviderCall, RequestLedger
from runlane.runtime._retry import retry_scheduled, retry_started
from runlane.runtime._steps import (
    MAX_STEPS,
    FinishedStep,
    RunContext,
    StepPreparation,
    StepPrompt,
    changed_prompt,
    check_request,
    first_to_stop,
)
from runlane.runtime._tool_calls import RunTools
from runlane.runtime._turn import Boundary, TurnPart
from runlane.runtime._turn_writer import TurnWriter
from runlane.store import AppendEvent, EventKind

__all__ = ["LiveTurn", "first_operation"]

_NOTHING: Final = LeftOpen()
_SPOKEN: Final = (TextDelta, ReasoningDelta)


def first_operation(core: RuntimeCore, step: int = 0, /) -> RunOperation:
    """Return a started operation for a step."""
    return RunOperation(
        operation_id=core.ids.new("operation"),
        kind="model-request",
        phase="started",
        step=step,
        started_at=core.clock.now(),
    )


class RunDurability:
    """Makes the named work of a run, once somebody asks for it."""

    __slots__ = ("_core", "_made", "_signal", "_writer")

    def __init__(self, core: RuntimeCore, writer: TurnWriter, signal: CancelToken, /) -> None:
        """Make nothing yet."""
        self._core = core
        self._writer = writer
        self._signal = signal
        self._made: StepDurability | None = None

    def __call__(self) -> StepDurability:
        """Return it, the same every time."""
        if self._made is None:
            run, core = self._writer.run, self._core
            self._made = StepDurability(
                core.calls.store,
                run.conversation_id,
                run.id,
                signal=self._signal,
                clock=core.clock,
                append=partial(_append, core, self._writer),
                execution_sequence=run.execution_sequence,
            )
        return self._made


async def _append(core: RuntimeCore, writer: TurnWriter, kind: EventKind, payload: JsonObject) -> None:
    """Append a ledger entry in a commit that proves the run is still held."""
    writer.owe(AppendEvent(command_id=core.ids.new("command"), at=core.clock.now(), kind=kind, payload=payload))
    await writer.checkpoint(proves=True)


class LiveTurn:
    """A run between its acquisition and its end.

    Attributes:
        writer: Makes it durable.
        prompt: What the model is told first.
        attempt: 1, or more once failed attempts were tried again.
        steps: The finished steps of this attempt, while somebody may ask for them.
        tools: What the model may call.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a turn is made of
        self,
        core: RuntimeCore,
        writer: TurnWriter,
        prompt: StepPrompt,
        signal: CancelToken,
        operation: RunOperation | None,
        context: object,
        inbox: Inbox,
        left: LeftOpen = _NOTHING,
        /,
    ) -> None:
        """Begin to answer.

        Args:
            core: The runtime.
            writer: The run, acquired.
            prompt: What the model is told.
            signal: Trips when the run must stop.
            operation: The first step's operation, if it was committed with the acquisition.
            context: The application's own value.
            inbox: Where inputs that join the run come from.
            left: What is to be dealt with before the model is asked.
        """
        self._core = core
        self._inbox = inbox
        self._left = left
        self._base = 0
        self._signal = signal
        self._committed_operation = operation
        self._application = context
        epoch = writer.ownership.owner
        before, told = core.spoken.pop((writer.run.conversation_id, writer.run.id), (epoch, 0))
        self._voice = RunVoice(core.publishing, writer.run, epoch, core.clock, told if before == epoch else 0)
        pairing = Pairing(left)
        self._intake = Intake(writer.draft, pairing, self._voice, core.config.files)
        self._failures = Failures()
        self._begun = 0
        self._calls = 0
        self._step_start = 0
        self._last: LiveStep | None = None
        self._durability = RunDurability(core, writer, signal)
        self._asked = prompt.model
        self._ledger = RequestLedger(writer.run.id, prompt.messages, prompt.records)
        self.writer = writer
        self.prompt = prompt
        self.attempt = 1
        self.steps: list[FinishedStep] = []
        self.tools = RunTools(core, writer, self._voice, signal, context, pairing, self._intake, self._durability)

    @property
    def run(self) -> Run:
        """The run as last written."""
        return self.writer.run

    @property
    def spoken(self) -> int:
        """The number of the last transient event."""
        return self._voice.sequence

    @property
    def context(self) -> RunContext[object]:
        """The run as the application's callbacks see it."""
        return RunContext(
            context=self._application,
            run=self.writer.run,
            signal=self._signal,
            tool_fence=self.tools.fence,
            context_usage=context_usage(self._asked, self.writer.spend.last_step),
        )

    @property
    def instructions(self) -> Instructions:
        """What goes into the provider's instructions channel."""
        return self.prompt.instructions

    @property
    def messages(self) -> tuple[AnyModelMessage, ...]:
        """The projected history with this run's inputs."""
        return tuple(self.prompt.messages)

    @property
    def model(self) -> ResolvedModel:
        """The model that answers."""
        return self.prompt.model

    @property
    def signal(self) -> CancelToken:
        """Trips when the run must stop."""
        return self._signal

    @property
    def durability(self) -> StepDurability:
        """Named work of the run; see `Turn.durability`."""
        return self._durability()

    def origin(self, error: Exception, /) -> FailureOrigin:
        """Return where a failure came from."""
        return self._failures.origin(error)

    # --- steps ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def open_step(
        self,
        messages: Sequence[AnyModelMessage],
        /,
        *,
        model: ResolvedModel | None = None,
        functions: Sequence[ModelFunction] = (),
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Ask the model once; see `Turn.open_step`."""
        self._signal.raise_if_cancelled()
        if self.writer.operation is not None:
            raise UsageError("a step is open already", argument="open_step")
        if model is not None and not isinstance(model, ResolvedModel):
            raise UsageError(f"must be a ResolvedModel or None, not {type(model).__name__}", argument="model")
        check_request(messages, functions)
        self._asked = model or self.prompt.model
        provider = self._asked.provider
        call = ProviderCall(model=self._asked, attempt=self.attempt, step=self._begun)
        started = await self._admit(call, messages)
        self.writer.spend.begin_step(self._asked)
        self._begun += 1
        self._calls += 1
        self._step_start = self.writer.draft.size
        self._intake.provider_id = provider.provider_id
        context = ModelProviderContext(
            signal=self._signal,
            options=self._asked.options,
            functions=tuple(functions),
            idle_timeout=self._core.config.loop.idle_timeout,
            invocation_id=Id(started.operation_id),
            call_number=self._calls,
        )
        watch = self._core.idle_watch
        step = self._last = LiveStep(self.writer, self._failures, provider, watch, messages, context)
        self.writer.report.step_opened(call.step, call.attempt, self._asked)
        try:
            async with step.open() as parts:
                yield parts
        except Exception as error:
            self.writer.report.step_failed(error)
            raise
        finally:
            self.writer.end(finished=step.finish is not None, given_up=step.is_silent)
            self._record_response(call, step)
            self._report_step(step)

    async def _admit(self, call: ProviderCall, messages: Sequence[AnyModelMessage]) -> RunOperation:
        """Have the request on record before it is made."""
        committed, self._committed_operation = self._committed_operation, None
        operation = committed or first_operation(self._core, self._begun)
        joined = self._inbox.joined(self.writer.draft.size, first=call.step == 0)
        recorded, self.writer.recorded_request = self.writer.recorded_request, None
        is_recorded = recorded is not None and recorded.gives(messages)
        if not is_recorded:
            request = self._ledger.request(call, messages, joined=joined)
            is_recorded = recorded is not None and request.body_sha256 == recorded.body_sha256
            if not is_recorded:
                self.writer.owe(request.command(self._core.ids, self._core.clock))
        try:
            if committed is not None and not is_recorded:
                # Something was put into the prompt after the acquisition that recorded another one.
                await self.writer.checkpoint()
            await self.writer.start(operation, is_written=committed is not None)
        except Exception as error:
            self._failures.note(error, "admission")
            raise
        return operation

    def _report_step(self, step: LiveStep) -> None:
        """Tell operators what the call came to."""
        outcome: StepOutcome = "cancelled" if self._signal.cancelled and not step.is_silent else "failed"
        if step.finish is not None:
            outcome = "completed"
        usage, finish = self.writer.spend.last_step, step.finish
        self.writer.report.step_closed(self.writer.run, usage, step.response, finish, outcome)

    def _record_response(self, call: ProviderCall, step: LiveStep) -> None:
        """Have a response on record with whatever is written next; a call nothing came back from leaves none."""
        usage, finished = self.writer.spend.last_step, step.finish is not None
        if usage is None or not (finished or step.response.response_id or usage.input_tokens.value is not None):
            return
        response = self._ledger.response(call, step.response, usage, finished=finished)
        self.writer.owe(response.command(self._core.ids, self._core.clock))

    async def emit(self, part: ModelPart | TurnPart, /) -> None:
        """Add to the answer; see `Turn.emit`."""
        if not isinstance(part, _SPOKEN):
            check_tool_part(part)
        try:
            rest = self._intake.take(part)
            if rest is not None:
                await rest
        except ModelProtocolError as error:
            if self._last is not None and self._last.last is part:
                raise
            what = error.detail.removeprefix("the provider yielded ")
            raise UsageError(f"cannot be emitted: {what}", argument="part") from error

    def close(self) -> None:
        """Take nothing more: the turn is over, whoever the driver has left behind."""
        self._intake.close()

    async def resume(self) -> bool:
        """Deal with what was left open; see `Turn.resume`."""
        left, self._left = self._left, _NOTHING
        if left or left.asked_ids:
            self._inbox.adopt(left.joined)
            told = await self.tools.resume(left)
            if told is None:
                return False
            if left.joined:
                told = await self._inbox.rejoin(self.writer.draft.parts())
            self.prompt = self.prompt.with_messages(told)
            self._base = self.writer.draft.size
        if left.asked_ids:
            self.prompt = replace(self.prompt, messages=with_late_results(self.prompt.messages))
        return True

    async def checkpoint(self) -> None:
        """Make everything emitted so far durable; see `Turn.checkpoint`."""
        await self.writer.checkpoint()

    def step_parts(self) -> tuple[Part, ...]:
        """Return what was added since the last step was opened."""
        return self.writer.draft.parts(self._step_start)

    # --- between steps -------------------------------------------------------------------------------------------

    async def boundary(self, prompt: StepPrompt | None = None, /) -> Boundary:
        """Take what happened since the last step; see `Turn.boundary`."""
        self._signal.raise_if_cancelled()
        if prompt is not None and not isinstance(prompt, StepPrompt):
            raise UsageError(f"must be a StepPrompt or None, not {type(prompt).__name__}", argument="prompt")
        loop = self._core.config.loop
        self._finish_step()
        if self._begun >= loop.max_steps:
            return Boundary(stop=MAX_STEPS)
        if self._begun and loop.stop_policies:
            stop = await first_to_stop(loop.stop_policies, self.steps, self.context)
            self._signal.raise_if_cancelled()
            if stop is not None:
                return Boundary(stop=stop)
        if prompt is not None and loop.prepare_step is not None:
            prompt = await self._prepared(prompt)
            self._signal.raise_if_cancelled()
        injected = await self._inbox.take()
        if prompt is not None and injected:
            prompt = prompt.with_messages(injected)
        return Boundary(prompt=prompt, injected=injected)

    def _finish_step(self) -> None:
        """Note the last step, if it finished and somebody may ask for it."""
        step, self._last = self._last, None
        loop = self._core.config.loop
        usage = self.writer.spend.last_step
        if step is None or step.finish is None or usage is None or not (loop.stop_policies or loop.prepare_step):
            return
        finished = FinishedStep(
            index=self._begun - 1,
            model=self._asked.model,
            parts=self.step_parts(),
            finish=step.finish,
            usage=usage,
            response=step.response,
        )
        self.steps.append(finished)

    async def _prepared(self, prompt: StepPrompt) -> StepPrompt:
        prepare = self._core.config.loop.prepare_step
        if prepare is None:
            return prompt
        about = StepPreparation(context=self.context, index=self._begun, steps=tuple(self.steps), prompt=prompt)
        try:
            changes = await resolve(prepare(about))
        except RunlaneError:
            raise
        except Exception as error:
            self._failures.note(error, "prepare-step")
            raise
        return changed_prompt(prompt, changes)

    # --- another attempt -----------------------------------------------------------------------------------------

    async def restart(self, error: Exception, /) -> bool:
        """Ask whether a failed attempt is tried again; see `Turn.restart`."""
        if not isinstance(error, Exception):
            raise UsageError(f"must be an exception, not {type(error).__name__}", argument="error")
        policy = self._core.config.loop.retry
        if policy is None or self._signal.cancelled or self.origin(error) != "provider":
            return False
        if any(isinstance(part, ToolCallPart) for part in self.writer.draft.parts(self._base)):
            return False
        decision = decide_retry(policy, error, attempt=self.attempt)
        if not decision.retries:
            return False
        core, run_id = self._core, self.writer.run.id
        self._inbox.hand_back()
        self.writer.draft.cut(self._base)
        self.writer.owe(
            retry_scheduled(command_id=core.ids.new("command"), at=core.clock.now(), run_id=run_id, decision=decision)
        )
        await self.writer.checkpoint()
        await core.clock.sleep(decision.delay)
        self._signal.raise_if_cancelled()
        self.attempt = decision.attempt
        self._begun = 0
        self._last = None
        self.steps.clear()
        self.writer.owe(
            retry_started(
                command_id=core.ids.new("command"), at=core.clock.now(), run_id=run_id, attempt=decision.attempt
            )
        )
        self._voice.attempt_reset(decision.attempt)
        return True
