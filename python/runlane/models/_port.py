"""The one port to a model: `ChatProvider`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from runlane.contracts import CancelToken, Id, require_callable, require_kind
from runlane.models._messages import AnyModelMessage, ModelFunction
from runlane.models._stream import ModelPart, ModelUsage, ResponseInfo, StreamNote
from runlane.models._usage import stated_usage, usage_from_model
from runlane.records import Usage

__all__ = [
    "ChatProvider",
    "ModelOptions",
    "ModelProviderContext",
    "ResolvedModel",
    "ResponseProviderResolver",
    "UsageNormalizer",
]

UsageNormalizer: TypeAlias = Callable[[ModelUsage | None], Usage]
"""An adapter's own reading of what its provider reported for one step; must not raise and leave no field out."""

ResponseProviderResolver: TypeAlias = Callable[[ResponseInfo], str | None]
"""An adapter's own reading of which upstream provider served a response; None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Request options, passed on untouched: no clamping, no range check, no renaming.

    Attributes:
        extra: Further fields of the request body, by the provider's own names.
    """

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProviderContext:
    """What accompanies one call.

    Attributes:
        signal: Trips when the call must end; its reason is what the caller of the stream sees.
        allow_multiple_calls: A wish; models may ignore it.
        idle_timeout: Seconds of silence after which the stream fails with `ModelIdleTimeoutError`; None waits for ever.
        invocation_id: Names the call in receipts and logs.
        call_number: 1-based within whoever calls.
        on_note: Told what was odd about the stream but did not stop it; must not raise.
    """

    signal: CancelToken = field(default_factory=CancelToken)
    options: ModelOptions = field(default_factory=ModelOptions)
    functions: tuple[ModelFunction, ...] = ()
    function_choice: Literal["auto", "required", "none"] = "auto"
    allow_multiple_calls: bool = True
    response_format: Literal["text", "json_object"] = "text"
    idle_timeout: float | None = None
    stage: Id | None = None
    invocation_id: Id | None = None
    call_number: int = 1
    on_note: Callable[[StreamNote], object] | None = None


class ChatProvider(ABC):
    """A model behind one wire protocol.

    `open_stream` yields parts, at most one `ResponseInfo`, and exactly one `FinishReport`, last. Every failure, an
    error event inside the body included, is raised as a `ModelError` once the parts before it are delivered. A stream
    without evidence that it finished raises `ProviderStreamCutError`. Nothing is retried here, and no part is read
    ahead of demand beyond what the transport has delivered.

    Attributes:
        provider_id: The wire protocol's key, such as `openai-chat`; also the name on provider envelopes.
        model_id: The provider's name of the model.
        watches_silence: Whether it holds to `ModelProviderContext.idle_timeout` itself, which only it can do by all
            that the connection sends, comments included. Otherwise its caller measures the time between parts.
        input_includes_cache: Whether the input tokens it reports include those read from or written to its cache, as
            with most; Anthropic counts them beside.
    """

    provider_id: str
    model_id: str
    watches_silence: bool = False
    input_includes_cache: bool = True

    @abstractmethod
    def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelPart]]:
        """Open one response.

        Leaving the context closes the connection within a second, after success, error, early exit and cancellation
        alike. After `context.signal` trips nothing more is produced: the iteration raises `signal.error()`.

        Raises:
            ModelError: The request was refused, the provider could not be reached, the stream failed or was cut.
        """

    async def aclose(self) -> None:  # noqa: B027 - most providers keep nothing
        """Release what the provider keeps between calls; does nothing by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel:
    """The model that answers one run.

    Attributes:
        model: The name the application uses for it.
        context_window: Tokens of input and output together, or None if unknown.
        normalize_usage: The adapter's own reading of usage, or None for the plain one.
        resolve_response_provider: The adapter's own reading of the upstream provider, or None for the plain one.

    Raises:
        UsageError: A field is of the wrong kind.
    """

    model: str
    provider: ChatProvider
    options: ModelOptions = field(default_factory=ModelOptions)
    context_window: int | None = None
    normalize_usage: UsageNormalizer | None = None
    resolve_response_provider: ResponseProviderResolver | None = None

    def __post_init__(self) -> None:
        require_kind(self.model, str, argument="model")
        require_kind(self.provider, ChatProvider, argument="provider")
        require_kind(self.options, ModelOptions, argument="options")
        require_kind(self.context_window, int | None, argument="context_window")
        require_callable(self.normalize_usage, argument="normalize_usage")
        require_callable(self.resolve_response_provider, argument="resolve_response_provider")

    def usage_of(self, reported: ModelUsage | None, /) -> Usage:
        """State what one step of this model spent, by the adapter's reading if it has one; all six figures are there.

        An adapter that raises, or gives something else than usage, has read nothing: an answered run does not fail over
        a bad number.

        Args:
            reported: What the provider reported last in the step, or None if it reported nothing.
        """
        if self.normalize_usage is None:
            return usage_from_model(reported)
        try:
            usage: object = self.normalize_usage(reported)
        except Exception:  # noqa: BLE001 - a foreign hook may do anything
            usage = None
        return stated_usage(usage) if isinstance(usage, Usage) else Usage.unknown()

    def response_provider_of(self, info: ResponseInfo, /) -> str | None:
        """Return the upstream provider that served a response, never an empty name."""
        if self.resolve_response_provider is None:
            return info.upstream_provider or None
        try:
            name: object = self.resolve_response_provider(info)
        except Exception:  # noqa: BLE001 - a foreign hook may do anything
            name = None
        return name if isinstance(name, str) and name else None
