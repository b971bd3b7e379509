"""Transports: how an output is asked for and read.

A transport is prepared for a stage, and what it was prepared with judges what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from runlane.contracts import Id, MaybeAwaitable
from runlane.errors import DuplicateRegistrationError, InvalidValueError
from runlane.models import FunctionCallDelta, ModelFunction, ModelOptions, ModelPart, TextDelta, model_protocol_error
from runlane.runner._capabilities import ModelToolCatalog, RegisteredModelTool, ToolProposal

__all__ = [
    "PLAIN_TEXT",
    "FunctionChoice",
    "InteractionMode",
    "ModelInteractionAdapter",
    "ModelResponseCollector",
    "ModelTransportDefinition",
    "ModelTransportRegistration",
    "PlainText",
    "PreparedModelInteraction",
    "PreparedModelTransport",
    "ProposalCollector",
    "RegisteredTransportOutput",
    "TransportKey",
    "named_transports",
]

Out = TypeVar("Out")
Out_co = TypeVar("Out_co", covariant=True)

FunctionChoice: TypeAlias = Literal["auto", "required", "none"]
InteractionMode: TypeAlias = Literal["selection", "session"]
"""`selection`: exactly one capability, chosen. `session`: words, and any number of calls."""

RegisteredTransportOutput: TypeAlias = object
"""What a transport named by a plain text gives: never a guess. A `TransportKey` carries the type."""


@dataclass(frozen=True)
class TransportKey(Generic[Out]):
    """The name of a transport, with the type of what it gives.

    Example:
        >>> ROUTE: TransportKey[ModelSelection[str]] = TransportKey("app:route")
    """

    id: str


_RESERVED: Final = "core:"

PLAIN_TEXT: Final[TransportKey[str]] = TransportKey("core:plain-text")
"""The transport every runner has: the text of the answer."""


class ModelResponseCollector(Protocol[Out_co]):
    """Reads one response."""

    def add(self, part: ModelPart, /) -> None:
        """Take the next part; kinds it does not use are ignored."""
        ...

    async def finish(self) -> Out_co:
        """Return what the whole response gives; called once, after the finish report."""
        ...


class ProposalCollector(ModelResponseCollector[tuple[ToolProposal, ...]], Protocol):
    """Reads the proposals of one response, and the words beside them."""

    @property
    def text(self) -> str:
        """The words, once the response is finished."""
        ...


@dataclass(frozen=True, kw_only=True)
class PreparedModelTransport(Generic[Out]):
    """What a transport asks for in one stage, and how it reads the answer.

    Attributes:
        instruction: A system message of its own, or None.
        allow_multiple_calls: A wish; models may ignore it.
        options: Sampling defaults, under those of the request.
        create_collector: Makes the reader of one response.
    """

    instruction: str | None = None
    functions: tuple[ModelFunction, ...] = ()
    function_choice: FunctionChoice = "auto"
    allow_multiple_calls: bool = False
    response_format: Literal["text", "json_object"] = "text"
    options: ModelOptions = field(default_factory=ModelOptions)
    create_collector: Callable[[], ModelResponseCollector[Out]]


@dataclass(frozen=True, kw_only=True)
class PreparedModelInteraction:
    """What an adapter made of the captured capabilities, before resolution is bound: as `PreparedModelTransport`."""

    instruction: str | None = None
    functions: tuple[ModelFunction, ...] = ()
    function_choice: FunctionChoice = "auto"
    allow_multiple_calls: bool = False
    response_format: Literal["text", "json_object"] = "text"
    options: ModelOptions = field(default_factory=ModelOptions)
    create_collector: Callable[[], ProposalCollector]


class ModelInteractionAdapter(Protocol):
    """A way to tell a model of capabilities and to read its choice. Adapters are interchangeable over one registry."""

    @property
    def id(self) -> str:
        """For logs."""
        ...

    @property
    def supports_strict_arguments(self) -> bool:
        """Whether it can ask the provider to hold arguments to their schema."""
        ...

    def prepare(
        self, tools: Sequence[RegisteredModelTool[Any]], /, *, stage: Id, strict: bool, mode: InteractionMode
    ) -> PreparedModelInteraction:
        """Make the request's half and the reader of one response."""
        ...


class ModelTransportDefinition(Protocol[Out]):
    """A transport as a runner knows it."""

    @property
    def key(self) -> TransportKey[Out]:
        """Its name, with the type of what it gives."""
        ...

    def prepare(self, stage: Id, /) -> MaybeAwaitable[PreparedModelTransport[Out]]:
        """Prepare one call for a stage."""
        ...


@dataclass(frozen=True, kw_only=True)
class ModelTransportRegistration(Generic[Out]):
    """A transport over capabilities, as a host writes it down.

    Attributes:
        key: Its name, with the type of what it gives: `ModelSelection[Out]` or `ModelSessionResult`.
        source: The capabilities, or what gives them for a stage; asked once per prepared call.
        mode: Exactly one choice, or a session.
        require_strict_arguments: Send every function as strict; needs an adapter that can.
        options: Sampling defaults.
    """

    key: TransportKey[Any]
    interaction: ModelInteractionAdapter
    source: ModelToolCatalog[Out] | Callable[[Id], ModelToolCatalog[Out]]
    mode: InteractionMode = "selection"
    require_strict_arguments: bool = False
    options: ModelOptions = field(default_factory=ModelOptions)


class PlainText:
    """The default transport: the text deltas joined; empty text is a result, a call is none."""

    @property
    def key(self) -> TransportKey[str]:
        """Its name."""
        return PLAIN_TEXT

    def prepare(self, _stage: Id, /) -> PreparedModelTransport[str]:
        """Prepare one call; it asks for nothing of its own."""
        return PreparedModelTransport(function_choice="none", create_collector=_TextCollector)


class _TextCollector:
    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, part: ModelPart, /) -> None:
        if isinstance(part, TextDelta):
            self._pieces.append(part.text)
        elif isinstance(part, FunctionCallDelta):
            model_protocol_error("a call where plain text was asked for", code="model.unexpected_call")

    async def finish(self) -> str:
        return "".join(self._pieces)


def named_transports(
    transports: Sequence[ModelTransportDefinition[Any]], /
) -> dict[str, ModelTransportDefinition[Any]]:
    """Return transports by name, plain text among them.

    Raises:
        DuplicateRegistrationError: Two have one name.
        InvalidValueError: A name is empty or begins with `core:`.
    """
    plain: ModelTransportDefinition[Any] = PlainText()
    named: dict[str, ModelTransportDefinition[Any]] = {PLAIN_TEXT.id: plain}
    for transport in transports:
        name = transport.key.id
        if not name or name.startswith(_RESERVED):
            raise InvalidValueError(f"must not be empty nor begin with {_RESERVED!r}", argument="transports.key")
        if name in named:
            raise DuplicateRegistrationError(registry="transports", key=name)
        named[name] = transport
    return named
