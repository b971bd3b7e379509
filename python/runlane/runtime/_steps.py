"""Steps of a run as an application sees them: what the next one is told, what the last ones said, and when to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from runlane.contracts import CancelToken, MaybeAwaitable, resolve
from runlane.errors import InvalidValueError, ModelProtocolError, UsageError
from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    FinishReport,
    MessageChain,
    ModelFunction,
    ResolvedModel,
    ResponseInfo,
    StoredMessages,
    validate_messages,
)
from runlane.prompt import Instructions, checked_instructions, system_messages
from runlane.records import Part, Run, TextPart, ToolCallPart, ToolResultPart, Usage
from runlane.runtime._context_usage import ContextUsage
from runlane.runtime._record_chain import RecordRange
from runlane.tools import ToolFenceLifecycle

__all__ = [
    "MAX_STEPS",
    "FinishedStep",
    "PrepareStep",
    "RunContext",
    "StepChanges",
    "StepPreparation",
    "StepPrompt",
    "StopPolicy",
    "changed_prompt",
    "check_request",
    "check_stop_policies",
    "checked_messages",
    "first_to_stop",
]

C = TypeVar("C")

MAX_STEPS: Final = "max-steps"
"""The name of the built-in stop policy."""


@dataclass(frozen=True)
class RunContext(Generic[C]):
    """What application callbacks learn of the run they serve.

    Attributes:
        context: The application's own value, as given to `submit` and parsed; never interpreted here.
        run: The run as last written.
        signal: Trips when the run must stop; its reason is `user-interrupt`, `supersede`, `timeout` or `shutdown`.
        tool_fence: Guards what an application's own tools do for the run; the mounted ones are behind it already.
        context_usage: How full the model's window was last; None as long as no model is chosen.
    """

    context: C
    run: Run
    signal: CancelToken
    tool_fence: ToolFenceLifecycle
    context_usage: ContextUsage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrompt:
    """What a step is told.

    Attributes:
        model: Who is asked.
        instructions: What goes into the provider's instructions channel: a text, or system messages.
        messages: Everything else, in order; no system message among them. A stored history in it is not made into
            objects before somebody reads it, for a provider may write it as it is.
        active_tools: Names of the mounted tools the model is shown, or None for all of them.
        records: The stored records that its first messages stand for, or None if they stand for none.
    """

    model: ResolvedModel
    instructions: Instructions
    messages: Sequence[AnyModelMessage]
    active_tools: frozenset[str] | None = None
    records: RecordRange | None = None

    def with_messages(self, more: Iterable[AnyModelMessage], /) -> StepPrompt:
        """Return the prompt with messages added at its end."""
        return StepPrompt(
            model=self.model,
            instructions=self.instructions,
            messages=MessageChain(self.messages, tuple(more)),
            active_tools=self.active_tools,
            records=self.records,
        )

    def spoken(self) -> Sequence[AnyModelMessage]:
        """Return what the provider is given: the instructions as system messages, then the messages."""
        return MessageChain(system_messages(self.instructions), self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedStep:
    """A provider call that finished, with what its tools gave.

    Attributes:
        index: 0 for the first step of the attempt.
        model: The application's name of the model that was asked.
        parts: What was said, called and given back, in the order of the answer.
        usage: Spend of this step alone, with the provider's own provenance.
        response: How the provider identified its response.
    """

    index: int
    model: str
    parts: tuple[Part, ...]
    finish: FinishReport
    usage: Usage
    response: ResponseInfo

    @property
    def text(self) -> str:
        """The visible text, joined without a separator."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls, in the provider's order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    @property
    def tool_results(self) -> tuple[ToolResultPart, ...]:
        """What the calls gave."""
        return tuple(part for part in self.parts if isinstance(part, ToolResultPart))


@dataclass(frozen=True, kw_only=True)
class StepPreparation(Generic[C]):
    """What `loop.prepare_step` is asked about.

    Attributes:
        context: The run.
        index: The step that is about to begin, from 0.
        steps: The steps before it.
        prompt: What it is told unless something is changed.
    """

    context: RunContext[C]
    index: int
    steps: Sequence[FinishedStep]
    prompt: StepPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChanges:
    """What `loop.prepare_step` changes; None leaves a field as it is. A change stays for the steps that follow.

    Attributes:
        active_tools: Names of mounted tools the model is shown; narrows the mounted set, never widens it.
        model: Who is asked.
        instructions: Replaces the whole instructions channel.
        messages: Replaces the messages; what this and later steps say is appended to them.
    """

    active_tools: Iterable[str] | None = None
    model: ChatProvider | ResolvedModel | None = None
    instructions: Instructions | None = None
    messages: Sequence[AnyModelMessage] | None = None


PrepareStep: TypeAlias = Callable[[StepPreparation[object]], MaybeAwaitable[StepChanges | None]]
"""Asked before each provider call; a plain or a coroutine function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPolicy:
    """Ends a run between two steps.

    Attributes:
        name: Stands on the run it ends; `max-steps` is taken.
        when: Gets the finished steps and the run's context; True ends the run. A plain or a coroutine function.

    Raises:
        InvalidValueError: The name is empty or taken.
        UsageError: The name is no text, or `when` cannot be called.

    Example:
        >>> policy = StopPolicy(name="enough", when=lambda steps, context: len(steps) >= 3)
    """

    name: str
    when: Callable[[Sequence[FinishedStep], RunContext[object]], MaybeAwaitable[bool]]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise UsageError("must be a text", argument="name")
        if not self.name or self.name == MAX_STEPS:
            raise InvalidValueError(f"must be a name of its own, not {self.name!r}", argument="name")
        if not callable(self.when):
            raise UsageError("must be callable", argument="when")


def check_stop_policies(policies: object, argument: str, /) -> None:
    """Refuse what is no tuple of stop policies with names of their own.

    Raises:
        UsageError: It holds something else.
        InvalidValueError: Two have one name.
    """
    if not isinstance(policies, tuple) or not all(isinstance(policy, StopPolicy) for policy in policies):
        raise UsageError("must be a tuple of StopPolicy", argument=argument)
    names = [policy.name for policy in policies]
    repeated = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if repeated is not None:
        raise InvalidValueError(f"two policies are named {repeated!r}", argument=argument)


async def first_to_stop(
    policies: Sequence[StopPolicy], steps: Sequence[FinishedStep], context: RunContext[object], /
) -> str | None:
    """Return the name of the first policy that fires, in their order."""
    for policy in policies:
        if await resolve(policy.when(steps, context)):
            return policy.name
    return None


def changed_prompt(prompt: StepPrompt, changes: StepChanges | None, /) -> StepPrompt:
    """Return a prompt with the changes an application made.

    Raises:
        UsageError: Something else than `StepChanges` was returned, or a field is of the wrong kind.
    """
    if changes is None:
        return prompt
    if not isinstance(changes, StepChanges):
        raise UsageError(f"must return StepChanges or None, not {type(changes).__name__}", argument="prepare_step")
    return StepPrompt(
        model=prompt.model if changes.model is None else resolved_model(changes.model, "prepare_step.model"),
        instructions=prompt.instructions
        if changes.instructions is None
        else checked_instructions(changes.instructions, "prepare_step.instructions"),
        messages=prompt.messages
        if changes.messages is None
        else checked_messages(changes.messages, "prepare_step.messages"),
        active_tools=_names(changes.active_tools, prompt.active_tools),
    )


def resolved_model(model: object, argument: str, /) -> ResolvedModel:
    """Return a model as it is asked.

    Raises:
        UsageError: It is neither a `ChatProvider` nor a `ResolvedModel`.
    """
    if isinstance(model, ChatProvider):
        return ResolvedModel(model=model.model_id, provider=model)
    if isinstance(model, ResolvedModel):
        return model
    raise UsageError(f"must give a ChatProvider or a ResolvedModel, not {type(model).__name__}", argument=argument)


def checked_messages(given: Iterable[object], argument: str, /) -> tuple[AnyModelMessage, ...]:
    """Return messages an application made for a request.

    Raises:
        UsageError: One is no message, or calls and results do not add up: no provider would take them.
    """
    messages: list[AnyModelMessage] = []
    if not isinstance(given, Iterable):
        raise UsageError(f"must be messages, not {type(given).__name__}", argument=argument)
    for message in given:
        if not isinstance(message, AnyModelMessage):
            raise UsageError(f"must be messages, not {type(message).__name__}", argument=argument)
        messages.append(message)
    try:
        validate_messages(messages)
    except ModelProtocolError as error:
        raise UsageError(error.detail, argument=argument) from error
    return tuple(messages)


def check_request(messages: object, functions: object, /) -> None:
    """Refuse what is no request; a stored history is not made into objects for it.

    Raises:
        UsageError: A message or a function is none; names it.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise UsageError(f"must be a sequence of messages, not {type(messages).__name__}", argument="messages")
    pieces = messages.pieces if isinstance(messages, MessageChain) else (messages,)
    for piece in pieces:
        for place, message in enumerate(() if isinstance(piece, StoredMessages) else piece):
            if not isinstance(message, AnyModelMessage):
                raise UsageError(f"must be a message, not {type(message).__name__}", argument=f"messages.{place}")
    if not isinstance(functions, Sequence):
        raise UsageError(f"must be a sequence of functions, not {type(functions).__name__}", argument="functions")
    for place, function in enumerate(functions):
        if not isinstance(function, ModelFunction):
            raise UsageError(f"must be a ModelFunction, not {type(function).__name__}", argument=f"functions.{place}")


def _names(given: Iterable[str] | None, before: frozenset[str] | None) -> frozenset[str] | None:
    if given is None:
        return before
    names: object = given
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise UsageError(f"must be several names, not one {type(names).__name__}", argument="prepare_step.active_tools")
    kept = tuple(names)
    if not all(isinstance(name, str) for name in kept):
        raise UsageError("must be names of tools", argument="prepare_step.active_tools")
    return frozenset(kept)
