"""What a runner is made of, and what it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Protocol, runtime_checkable

from typing_extensions import override

from runlane.clock import Clock, SystemClock
from runlane.contracts import (
    AsyncSink,
    CancelToken,
    MaybeAwaitable,
    Observer,
    require_id,
    require_limit,
    require_seconds,
)
from runlane.diagnostics import DiagnosticContext
from runlane.errors import InvalidValueError, UsageError
from runlane.ids import IdSource, RandomIds
from runlane.models import AnyModelMessage, ChatProvider, ModelFunction, ModelImage, ModelMessage, ModelOptions
from runlane.runner._trace import ModelCallTrace, ModelOutputEvent
from runlane.runner._transports import PLAIN_TEXT, ModelTransportDefinition, TransportKey

__all__ = [
    "MODEL_RUNNER_DEFAULTS",
    "ModelCallRequest",
    "ModelChildOptions",
    "ModelChildPolicy",
    "ModelPrepareRequest",
    "ModelRunnerOptions",
    "ModelRunnerPorts",
    "ModelRunnerSettings",
    "ModelRuntimeConfig",
    "ModelTokenBudget",
    "instructed",
    "merge_options",
    "messages_of",
    "narrowed",
]

_SECONDS: Final = frozenset({"call_timeout", "close_timeout"})


@dataclass(frozen=True, kw_only=True)
class ModelChildPolicy:
    """What all descendants of a runner may do together.

    Attributes:
        max_depth: Generations below the root.
        max_children: Runners ever made.
        max_concurrent_calls: Calls at once.
        max_calls: Calls ever made; None for no limit beside the shared one.
    """

    max_depth: int = 2
    max_children: int = 16
    max_concurrent_calls: int = 4
    max_calls: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_depth", "max_children", "max_concurrent_calls"):
            require_limit(getattr(self, name), argument=f"children.{name}")
        if self.max_calls is not None:
            require_limit(self.max_calls, argument="children.max_calls")


@dataclass(frozen=True, kw_only=True)
class ModelRuntimeConfig:
    """The limits of one request.

    Attributes:
        max_calls: Calls of the runner and all its descendants.
        call_timeout: Seconds of one call, from opening the provider to the finished result; None for no limit.
        children: See `ModelChildPolicy`.
    """

    max_calls: int = 32
    call_timeout: float | None = None
    children: ModelChildPolicy = field(default_factory=ModelChildPolicy)

    def __post_init__(self) -> None:
        require_limit(self.max_calls, argument="settings.max_calls")
        require_seconds(self.call_timeout, argument="settings.call_timeout")


@dataclass(frozen=True, kw_only=True)
class ModelRunnerSettings(ModelRuntimeConfig):
    """The limits of each call besides.

    Attributes:
        max_input_chars: Code points of all text sent, functions included. Images have limits of their own.
        max_output_chars: Code points of all text received: words, reasoning, names and arguments of calls.
        max_image_bytes: Of one image.
        max_tool_calls: Calls in one response.
        max_arguments_bytes: UTF-8 bytes of one call's arguments.
        close_timeout: Seconds a provider may take to close its stream.
    """

    max_input_chars: int = 400_000
    max_output_chars: int = 200_000
    max_images: int = 16
    max_image_bytes: int = 20 * 1_048_576
    max_tool_calls: int = 64
    max_arguments_bytes: int = 1_048_576
    close_timeout: float = 1.0

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _CALL_LIMITS:
            require_limit(getattr(self, name), argument=f"settings.{name}")
        if require_seconds(self.close_timeout, argument="settings.close_timeout") is None:
            raise InvalidValueError("needs a number of seconds", argument="settings.close_timeout")


_CALL_LIMITS: Final = (
    "max_input_chars",
    "max_output_chars",
    "max_images",
    "max_image_bytes",
    "max_tool_calls",
    "max_arguments_bytes",
)

MODEL_RUNNER_DEFAULTS: Final = ModelRunnerSettings()
"""The limits of a runner that says nothing."""


@runtime_checkable
class ModelTokenBudget(Protocol):
    """Counts the tokens of an input. Without one there are no token figures: characters are never converted."""

    @property
    def max_tokens(self) -> int:
        """What input and reserved output may take together."""
        ...

    def count(self, messages: Sequence[AnyModelMessage], functions: Sequence[ModelFunction], /) -> MaybeAwaitable[int]:
        """Count; asked once per prepared call."""
        ...


@dataclass(frozen=True, kw_only=True)
class ModelRunnerPorts:
    """Where a runner is connected.

    Attributes:
        signal: Ends every call of the runner and of its descendants.
        diagnostics: Where calls are recorded.
        output: Gets what the model says while it says it, unvalidated; each item is awaited before the next is read.
        on_trace: Told once of every charged call, however it ended.
        tokens: See `ModelTokenBudget`.
    """

    signal: CancelToken | None = None
    diagnostics: DiagnosticContext | None = None
    output: AsyncSink[ModelOutputEvent] | None = None
    on_trace: Observer[ModelCallTrace] | None = None
    tokens: ModelTokenBudget | None = None
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=RandomIds)

    def __post_init__(self) -> None:
        for name in ("output", "on_trace"):
            port: object = getattr(self, name)
            if port is not None and not callable(port):
                raise UsageError("must be callable", argument=f"ports.{name}")


@dataclass(frozen=True, kw_only=True)
class ModelRunnerOptions:
    """What a runner is made of.

    Attributes:
        transports: Beside `core:plain-text`, which is always there.
        default_transport: Of a prepared call that names none; `ModelRunner.call` with a request is plain text.
        options: Sampling defaults, under those of transport and request.
    """

    provider: ChatProvider
    transports: Sequence[ModelTransportDefinition[Any]] = ()
    default_transport: str = PLAIN_TEXT.id
    options: ModelOptions = field(default_factory=ModelOptions)
    settings: ModelRunnerSettings = MODEL_RUNNER_DEFAULTS
    ports: ModelRunnerPorts = field(default_factory=ModelRunnerPorts)


@dataclass(frozen=True, kw_only=True)
class ModelCallRequest:
    """What to ask a model: a prompt, or whole messages.

    Attributes:
        stage: What the call is for, in the host's own words (1 to 512 characters); in every receipt, event and error
            as an `Id`.
        prompt: The question, with `system` and `images` if there are any.
        messages: Instead of a prompt.
        options: Win over all others, field by field.
        reserve_output_tokens: What the answer may need of a token budget.

    Raises:
        UsageError: It has both a prompt and messages, or neither, or images or a system text beside messages.
    """

    stage: str
    prompt: str | None = None
    system: str | None = None
    images: Sequence[ModelImage] = ()
    messages: Sequence[AnyModelMessage] | None = None
    options: ModelOptions = field(default_factory=ModelOptions)
    reserve_output_tokens: int | None = None

    def __post_init__(self) -> None:
        require_id(self.stage, argument="request.stage")
        if (self.prompt is None) == (self.messages is None):
            raise UsageError("give either a prompt or messages", argument="request.prompt")
        if self.messages is not None and (self.system is not None or self.images):
            raise UsageError("system and images go with a prompt; put them into the messages", argument="request")
        if self.reserve_output_tokens is not None:
            require_limit(self.reserve_output_tokens, argument="request.reserve_output_tokens")


@dataclass(frozen=True, kw_only=True)
class ModelPrepareRequest:
    """How a request is to be asked.

    Attributes:
        transport: The runner's default if it is None.
        options: Between those of the request and those of the transport.
    """

    transport: str | TransportKey[Any] | None = None
    options: ModelOptions | None = None


@dataclass(frozen=True, kw_only=True)
class ModelChildOptions:
    """What a child runner has of its own; everything else is its parent's.

    Attributes:
        settings: Numeric limits by the names of `ModelRunnerSettings`. They can only shrink what the parent has;
            `max_calls` is a budget of the child's own, taken before the others.
        transports: Instead of the parent's.
        signal: Ends the child's calls, as the parent's does.
        output: Instead of the parent's.
    """

    settings: Mapping[str, float] | None = None
    transports: Sequence[ModelTransportDefinition[Any]] | None = None
    signal: CancelToken | None = None
    output: AsyncSink[ModelOutputEvent] | None = None


def narrowed(settings: ModelRunnerSettings, asked: Mapping[str, float], /) -> ModelRunnerSettings:
    """Return settings in which each limit is the smaller of what there was and what is asked.

    Raises:
        InvalidValueError: A limit is no number it could be.
        UsageError: There is no limit of that name.
    """
    smaller: dict[str, Any] = {}
    for name, value in asked.items():
        if name not in _NARROWABLE:
            raise UsageError("is no numeric limit of a runner", argument=f"settings.{name}")
        if name in _SECONDS:
            require_seconds(value, argument=f"settings.{name}")
        else:
            require_limit(value, argument=f"settings.{name}")
        known: float | None = getattr(settings, name)
        smaller[name] = value if known is None else min(known, value)
    return replace(settings, **smaller)


_NARROWABLE: Final = frozenset({*_CALL_LIMITS, *_SECONDS, "max_calls"})


def merge_options(*ranked: ModelOptions | None) -> ModelOptions:
    """Merge options field by field, the first that says something winning; extra fields are merged by name."""
    given = [options for options in ranked if options is not None]
    merged: dict[str, Any] = {}
    for item in fields(ModelOptions):
        said = (getattr(options, item.name) for options in given)
        merged[item.name] = next((value for value in said if value is not None), None)
    extra: dict[str, object] = {}
    for options in reversed(given):
        extra.update(options.extra)
    merged["extra"] = extra
    return ModelOptions(**merged)


def messages_of(request: ModelCallRequest, /) -> tuple[AnyModelMessage, ...]:
    """Return what a request says, as messages."""
    if request.messages is not None:
        return tuple(request.messages)
    system = () if request.system is None else (ModelMessage.system(request.system),)
    return (*system, ModelMessage.user(request.prompt or "", tuple(request.images)))


def instructed(messages: tuple[AnyModelMessage, ...], instruction: str, /) -> tuple[AnyModelMessage, ...]:
    """Put a transport's instruction behind the leading system messages."""
    leading = 0
    while leading < len(messages) and messages[leading].role == "system":
        leading += 1
    return (*messages[:leading], ModelMessage.system(instruction), *messages[leading:])
