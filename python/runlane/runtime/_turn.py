"""The port through which a run is answered: `TurnDriver`.

The runtime admits, acquires, checkpoints, publishes and ends; a driver only answers. It never touches the store: what
it emits becomes the assistant message, what it returns says how the turn ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from runlane.contracts import CancelToken
from runlane.durability import StepDurability
from runlane.models import AnyModelMessage, FinishReason, ModelFunction, ModelPart, ResolvedModel
from runlane.prompt import Instructions
from runlane.records import (
    Part,
    Run,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
)
from runlane.runtime._steps import RunContext, StepPrompt

__all__ = [
    "Boundary",
    "ChooseDriver",
    "Turn",
    "TurnDriver",
    "TurnFinished",
    "TurnOutcome",
    "TurnPart",
    "TurnStopped",
    "TurnTools",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """What happened before a provider step.

    Attributes:
        injected: Messages of inputs that joined this run at the boundary; append them to the prompt.
        stop: The name of the stop policy that fired, or None to go on.
        prompt: The prompt that was given, as `loop.prepare_step` changed it and with the injected messages at its end;
            None if none was given.
    """

    injected: tuple[AnyModelMessage, ...] = ()
    stop: str | None = None
    prompt: StepPrompt | None = None


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The turn was answered; `reason` is the provider's neutral finish reason."""

    reason: FinishReason


@dataclass(frozen=True, slots=True)
class TurnStopped:
    """A stop policy ended the turn."""

    policy: str


TurnOutcome: TypeAlias = TurnFinished | TurnStopped


TurnPart: TypeAlias = ToolCallPart | ToolResultPart | ToolApprovalRequestPart | ToolApprovalResponsePart
"""What is added to an answer beside what a model says: a whole call, what it gave, and the consent it needs."""


class TurnTools(Protocol):
    """The tools of a run, mounted under its fence."""

    def functions(self, active: frozenset[str] | None = None, /) -> tuple[ModelFunction, ...]:
        """Return what the model is shown: all of them, or those that are named."""
        ...

    def distinct(self, calls: Sequence[ToolCallPart], /) -> tuple[ToolCallPart, ...]:
        """Return calls with ids no earlier call of the run has; some providers count anew in each response."""
        ...

    async def answer(
        self, calls: Sequence[ToolCallPart], active: frozenset[str] | None = None, /
    ) -> tuple[ToolResultPart, ...] | None:
        """Carry out emitted calls of one step and add their results to the answer, in the order of the calls.

        None if a call waits for somebody's consent, which ends the turn.

        Raises:
            UsageError: Something is no call, or `active` no set.
            InvalidValueError: A call was not emitted in this turn as it is, or has been carried out; no tool was
                entered.
        """
        ...


class Turn(Protocol):
    """One acquired run, as its driver sees it."""

    @property
    def run(self) -> Run:
        """The run as last written."""
        ...

    @property
    def context(self) -> RunContext[object]:
        """The run and the application's own value, as its callbacks get them."""
        ...

    @property
    def prompt(self) -> StepPrompt:
        """What the model is told first: `model`, `instructions` and `messages` together."""
        ...

    @property
    def instructions(self) -> Instructions:
        """What goes into the provider's instructions channel, composed; see `runlane.prompt.system_messages`."""
        ...

    @property
    def messages(self) -> tuple[AnyModelMessage, ...]:
        """The projected history with this run's inputs, inside the budget; no system message among them."""
        ...

    @property
    def model(self) -> ResolvedModel:
        """The model that answers; its provider is not to be called directly."""
        ...

    @property
    def tools(self) -> TurnTools:
        """What the model may call, and how its calls are answered."""
        ...

    @property
    def signal(self) -> CancelToken:
        """Trips when the run must stop."""
        ...

    @property
    def durability(self) -> StepDurability:
        """Named work of the run that is not done again after a crash; its records are written under its ownership."""
        ...

    def open_step(
        self,
        messages: Sequence[AnyModelMessage],
        /,
        *,
        model: ResolvedModel | None = None,
        functions: Sequence[ModelFunction] = (),
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelPart]]:
        """Ask the model once, as one durable step.

        Before the provider is called, everything the previous step produced is durable and a `model-request`
        operation is recorded; if that fails the provider is not called. First output, usage, response identity and
        the operation's end are recorded, the idle deadline is armed, and failures are marked as the provider's.

        Args:
            messages: What it is told, the instructions included.
            model: Who is asked; the turn's own model by default.
            functions: The tools it may call.

        Raises:
            UsageError: A step is open already, or an argument is of the wrong kind; nobody was asked.
        """
        ...

    async def emit(self, part: ModelPart | TurnPart, /) -> None:
        """Add to the answer: message parts, events and checkpoints follow.

        Fragments of calls, usage, response identity and finish reports add nothing; a whole call is a `ToolCallPart`.

        Raises:
            UsageError: It is no part; nothing was added.
            InvalidValueError: A field is malformed, or does not fit what was added before: a call has an id of its own
                (`tools.distinct`), a result follows its call, once; a request for consent follows its call, once, and
                an answer its request. Names the field; nothing was added.
        """
        ...

    async def resume(self) -> bool:
        """Deal with what was left open: calls of an execution that died, calls somebody agreed to or refused.

        Call it once, before anything else; `prompt` then tells of it. False if the turn is over with that, because a
        call waits for somebody's consent.
        """
        ...

    async def checkpoint(self) -> None:
        """Make everything emitted so far durable; call it before acting on a tool call."""
        ...

    def step_parts(self) -> tuple[Part, ...]:
        """Return what was added to the answer since the last step was opened."""
        ...

    async def boundary(self, prompt: StepPrompt | None = None, /) -> Boundary:
        """Take what happened since the last step; call it before each step.

        After a step the stop policies are asked, `max-steps` first. If none fires, `loop.prepare_step` is asked about
        the given prompt, then inputs that joined the run are taken.

        Args:
            prompt: What the next step would be told; without one `loop.prepare_step` is not asked.
        """
        ...

    async def restart(self, error: Exception, /) -> bool:
        """Ask whether a failed attempt is tried again, and if so make everything ready for it.

        True only for a failure of the provider that `loop.retry` wants repeated, in an attempt that made no tool call.
        Then what the attempt said is taken back, the wait is over, and the driver begins again from `prompt`.
        """
        ...


class TurnDriver(Protocol):
    """Answers turns: the managed model loop, or a bound workflow."""

    @property
    def name(self) -> str:
        """For logs and spans."""
        ...

    async def drive(self, turn: Turn, /) -> TurnOutcome:
        """Answer one turn. Whatever is raised ends the run with the reason its type maps to."""
        ...


ChooseDriver: TypeAlias = Callable[[RunContext[Any]], TurnDriver]
"""Chooses who answers a run: a plain function, called once for each execution of a run."""
