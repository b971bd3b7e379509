"""Which models an application uses, by its own names: what they can do, and who serves them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Annotated, Final, Literal, TypeAlias, TypedDict

from pydantic import Field
from typing_extensions import Unpack, override

from runlane.clock import Clock
from runlane.contracts import clock_or_system
from runlane.errors import (
    InvalidValueError,
    ModelNotUsableError,
    ModelSnapshotStaleError,
    UnknownModelError,
    UsageError,
)
from runlane.models._port import ChatProvider, ResolvedModel
from runlane.models._stream import ModelUsage, ResponseInfo
from runlane.models._usage import usage_from_model
from runlane.records import Record, RecordId, Timestamp, Usage, validated

__all__ = [
    "ModelCapability",
    "ModelDescriptor",
    "ModelProvider",
    "ModelRegistry",
    "ModelRegistryConfig",
    "ModelRegistrySnapshot",
    "ModelSnapshotPolicy",
    "define_model_registry",
    "validate_model_snapshot",
]

ModelCapability: TypeAlias = Literal["tools", "vision", "reasoning", "files"]

_CAPABILITIES: Final = ("tools", "vision", "reasoning", "files")


class ModelDescriptor(Record):
    """What is known of a model.

    Attributes:
        provider: The key of its provider in the registry.
        model_id: The provider's own name of it.
        context_window: Tokens of input and output together.
        observed_at: When this was known to be so.
        source: Who says so.
        availability: Absent counts as available.
    """

    provider: RecordId
    model_id: RecordId
    context_window: Annotated[int, Field(gt=0, strict=True)]
    capabilities: tuple[ModelCapability, ...] = ()
    observed_at: Timestamp | None = None
    source: RecordId | None = None
    availability: Literal["available", "unavailable"] | None = None


class ModelProvider(ABC):
    """Makes the `ChatProvider` of each model of one vendor or gateway, and reads its reports in its own way."""

    @abstractmethod
    def create(self, model_id: str, /) -> ChatProvider:
        """Return what talks to a model; nothing is sent before it is used."""

    def normalize_usage(self, usage: ModelUsage | None, /) -> Usage:
        """State what a step spent; by default each figure reported is taken as it is. Must not raise."""
        return usage_from_model(usage)

    def resolve_response_provider(self, info: ResponseInfo, /) -> str | None:
        """Return who served a response behind a gateway, or None if that is not known."""
        return info.upstream_provider


class _Factory(ModelProvider):
    """A provider that is no more than a function of the model's name."""

    def __init__(self, create: Callable[[str], ChatProvider]) -> None:
        self._create = create

    @override
    def create(self, model_id: str, /) -> ChatProvider:
        return self._create(model_id)


class ModelRegistryConfig(TypedDict):
    """What a registry is made of.

    Attributes:
        models: Descriptors, or mappings with their fields, by the application's names for the models.
        providers: By the names that descriptors use: a `ModelProvider`, or a function of the model's name.
    """

    models: Mapping[str, ModelDescriptor | Mapping[str, object]]
    providers: Mapping[str, ModelProvider | Callable[[str], ChatProvider]]


class ModelRegistrySnapshot(Record):
    """What a registry knew of its models at one moment, to be kept or compared."""

    schema_version: Annotated[int, Field(ge=1, le=1, strict=True)] = 1
    source: RecordId
    observed_at: Timestamp
    models: dict[str, ModelDescriptor]


class ModelRegistry:
    """Finds models by name and checks what they can do, before anything is constructed or sent.

    What talks to a model is made when it is first resolved, and kept, so that its connections are used again.
    """

    def __init__(self, models: Mapping[str, ModelDescriptor], providers: Mapping[str, ModelProvider], /) -> None:
        """Take checked descriptors and providers; `define_model_registry` checks them."""
        self._models = dict(models)
        self._providers = dict(providers)
        self._made: dict[str, ChatProvider] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The names, in the order of their definition."""
        return tuple(self._models)

    def descriptor(self, key: str, /) -> ModelDescriptor:
        """Return what is known of a model.

        Raises:
            UnknownModelError: There is no such name.
        """
        found = self._models.get(key)
        if found is None:
            raise UnknownModelError(f"no model is registered as {key!r}", model=key)
        return found

    def supports(self, key: str, capabilities: Iterable[ModelCapability] = (), /) -> bool:
        """Whether a model has all of some capabilities.

        Raises:
            UnknownModelError: There is no such name.
            InvalidValueError: A word that is no capability.
        """
        return not self._missing(self.descriptor(key), capabilities)

    def preflight(self, key: str, capabilities: Iterable[ModelCapability] = (), /) -> ModelDescriptor:
        """Check that a model could serve a request; constructs nothing.

        Checked in this order: the name is known, the model is not unavailable, it has the capabilities, its provider is
        registered.

        Raises:
            UnknownModelError: There is no such name.
            ModelNotUsableError: One of the other three.
            InvalidValueError: A word that is no capability.
        """
        descriptor = self.descriptor(key)
        if descriptor.availability == "unavailable":
            raise ModelNotUsableError(f"the model {key!r} is marked unavailable", model=key, reason="unavailable")
        missing = self._missing(descriptor, capabilities)
        if missing:
            raise ModelNotUsableError(
                f"the model {key!r} lacks {', '.join(missing)}", model=key, reason="capability", missing=missing
            )
        if descriptor.provider not in self._providers:
            raise ModelNotUsableError(
                f"the model {key!r} needs the provider {descriptor.provider!r}, which is not registered",
                model=key,
                reason="provider",
            )
        return descriptor

    def resolve(self, key: str, capabilities: Iterable[ModelCapability] = (), /) -> ResolvedModel:
        """Return a model ready to be asked, with its provider's own readings of usage and upstream provider.

        Raises:
            UnknownModelError, ModelNotUsableError, InvalidValueError: See `preflight`.
            Exception: What the provider raised when it made the model, such as `MissingCredentialError`.
        """
        descriptor = self.preflight(key, capabilities)
        provider = self._providers[descriptor.provider]
        chat = self._made.get(key)
        if chat is None:
            chat = provider.create(descriptor.model_id)
            if not isinstance(chat, ChatProvider):
                raise UsageError(
                    f"gave {type(chat).__name__}, not a ChatProvider", argument=f"providers.{descriptor.provider}"
                )
            self._made[key] = chat
        return ResolvedModel(
            model=key,
            provider=chat,
            context_window=descriptor.context_window,
            normalize_usage=provider.normalize_usage,
            resolve_response_provider=provider.resolve_response_provider,
        )

    def snapshot(self, *, source: str, observed_at: datetime) -> ModelRegistrySnapshot:
        """Return what is known of all models, dated.

        Raises:
            InvalidValueError: `source` is empty, or `observed_at` no aware instant.
        """
        facts = {"source": source, "observed_at": observed_at, "models": self._models}
        return validated(ModelRegistrySnapshot, facts, argument="snapshot")

    async def aclose(self) -> None:
        """Release what the models made here keep between calls."""
        for chat in self._made.values():
            await chat.aclose()

    @staticmethod
    def _missing(descriptor: ModelDescriptor, capabilities: Iterable[ModelCapability]) -> tuple[ModelCapability, ...]:
        wanted = tuple(capabilities)
        for word in wanted:
            if word not in _CAPABILITIES:
                raise InvalidValueError(
                    f"must be some of {', '.join(_CAPABILITIES)}, got {word!r}", argument="capabilities"
                )
        return tuple(word for word in wanted if word not in descriptor.capabilities)


def define_model_registry(**config: Unpack[ModelRegistryConfig]) -> ModelRegistry:
    """Return a registry of models.

    Args:
        **config: See `ModelRegistryConfig`.

    Raises:
        InvalidValueError: A descriptor that is not valid, or an empty name.
        UsageError: Something that is neither a provider nor callable.

    Example:
        >>> window = {"provider": "lab", "model_id": "m-1", "context_window": 8_000, "capabilities": ["tools"]}
        >>> registry = define_model_registry(models={"main": window}, providers={})
        >>> registry.supports("main", ["tools"]), registry.supports("main", ["vision"])
        (True, False)
    """
    models = {}
    for key, descriptor in config["models"].items():
        if not key:
            raise InvalidValueError("has an empty name", argument="models")
        models[key] = validated(ModelDescriptor, descriptor, argument=f"models.{key}")
    providers: dict[str, ModelProvider] = {}
    for name, provider in config["providers"].items():
        if isinstance(provider, ModelProvider):
            providers[name] = provider
        elif callable(provider):
            providers[name] = _Factory(provider)
        else:
            raise UsageError("must be a ModelProvider or a function", argument=f"providers.{name}")
    return ModelRegistry(models, providers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshotPolicy:
    """How old a snapshot may be.

    Attributes:
        max_age: Seconds; exactly that old is still fresh.

    Raises:
        UsageError: `max_age` is no number.
        InvalidValueError: It is negative or not finite.
    """

    max_age: float

    def __post_init__(self) -> None:
        if isinstance(self.max_age, bool) or not isinstance(self.max_age, int | float):
            raise UsageError("must be seconds", argument="max_age")
        if not (isfinite(self.max_age) and self.max_age >= 0):
            raise InvalidValueError(f"must be finite and at least 0, got {self.max_age}", argument="max_age")


def validate_model_snapshot(
    snapshot: object, policy: ModelSnapshotPolicy, /, *, clock: Clock | None = None
) -> ModelRegistrySnapshot:
    """Return a snapshot that is valid and fresh.

    A program need not have one to start: ask only where old knowledge would do harm.

    Args:
        snapshot: A snapshot, or a mapping with its fields.
        policy: How old it may be.
        clock: Says what time it is; the system's by default.

    Raises:
        InvalidValueError: It is no snapshot; the error names the field.
        ModelSnapshotStaleError: It is too old, or dated in the future.
    """
    checked = validated(ModelRegistrySnapshot, snapshot, argument="snapshot")
    age = (clock_or_system(clock).now() - checked.observed_at).total_seconds()
    if age < 0 or age > policy.max_age:
        raise ModelSnapshotStaleError(age=age, max_age=policy.max_age)
    return checked
