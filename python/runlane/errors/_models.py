"""Models, their providers, and the way they are asked."""

from __future__ import annotations

from typing import Protocol

from runlane.errors._base import RunlaneError

__all__ = [
    "MissingCredentialError",
    "ModelCallTimeoutError",
    "ModelCatalogError",
    "ModelError",
    "ModelIdleTimeoutError",
    "ModelNotUsableError",
    "ModelProtocolError",
    "ModelSnapshotStaleError",
    "ProviderError",
    "ProviderStreamCutError",
    "UnknownModelError",
    "UnknownTransportError",
]


class ModelError(RunlaneError):
    """A model, its provider or the way it was asked failed."""

    code = "model"


class UnknownModelError(ModelError):
    """No provider serves the model.

    Attributes:
        model: The name that was asked for.
    """

    code = "model.unknown"
    retryable: bool | None = False

    def __init__(self, message: str, *, model: str) -> None:
        super().__init__(message)
        self.model = model


class MissingCredentialError(ModelError):
    """A provider needs a key and none was given.

    Attributes:
        variable: The environment variable that would hold it.
    """

    code = "model.credential_missing"
    retryable: bool | None = False

    def __init__(self, *, provider: str, variable: str) -> None:
        super().__init__(f"{provider} needs an API key; set {variable} or pass api_key")
        self.provider = provider
        self.variable = variable


class ModelProtocolError(ModelError):
    """A message or a stream breaks the rules of the conversation with a model.

    Attributes:
        code: `model.protocol` or a more exact code of the same family.
        detail: What is wrong.
    """

    code = "model.protocol"

    def __init__(self, *, detail: str, code: str = "model.protocol") -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class ProviderError(ModelError):
    """A provider refused a request, failed while answering, or could not be reached.

    Attributes:
        provider: The wire protocol's key, such as `openai-chat`.
        status: The HTTP status, or None when there was none.
        reason: `rate-limited`, `insufficient-credits`, `model-unavailable`, `context-overflow`, `timeout`,
            `unauthorized`, `unreachable`, `stream-error` or `unknown`.
        retry_after: Seconds the provider asked to wait, or None.
        provider_code: The provider's own error code or type, or None.
    """

    code = "provider.failure"

    def __init__(
        self,
        message: str,
        *,
        provider: str,
        reason: str = "unknown",
        status: int | None = None,
        retryable: bool | None = None,
        facts: ProviderFacts | None = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.reason = reason
        self.status = status
        self.retryable = retryable
        self.retry_after = facts.retry_after if facts else None
        self.provider_code = facts.provider_code if facts else None


class ProviderFacts(Protocol):
    """What a provider said about its own failure."""

    @property
    def retry_after(self) -> float | None: ...
    @property
    def provider_code(self) -> str | None: ...


class ProviderStreamCutError(ModelError):
    """A provider's answer ended without any evidence that it was finished; what arrived is partial."""

    code = "provider.stream_cut"
    retryable: bool | None = True

    def __init__(self, message: str = "the provider's stream ended without a finish report") -> None:
        super().__init__(message)


class ModelIdleTimeoutError(ModelError):
    """A provider was silent for too long while a stream was open.

    Attributes:
        idle_timeout: The limit, in seconds.
    """

    code = "model.idle_timeout"
    retryable: bool | None = True

    def __init__(self, *, idle_timeout: float) -> None:
        super().__init__(f"the model sent nothing for {idle_timeout:g} s")
        self.idle_timeout = idle_timeout


class ModelCallTimeoutError(ModelError):
    """A model call took longer than its runner allows.

    Attributes:
        timeout: The limit, in seconds.
    """

    code = "model.call_timeout"
    retryable: bool | None = True

    def __init__(self, *, timeout: float) -> None:
        super().__init__(f"the model call took longer than {timeout:g} s")
        self.timeout = timeout


class UnknownTransportError(ModelError):
    """A model runner has no transport of that name.

    Attributes:
        transport: The name.
    """

    code = "model.unknown_transport"
    retryable: bool | None = False

    def __init__(self, *, transport: str) -> None:
        super().__init__(f"this runner has no transport {transport!r}; give it to the runner first")
        self.transport = transport


class ModelNotUsableError(ModelError):
    """A registered model cannot serve a request; nothing was constructed or called.

    Attributes:
        model: Its key in the registry.
        reason: `unavailable`: its descriptor says so. `capability`: it lacks what `missing` names. `provider`: nobody
            registered its provider.
        missing: The capabilities it lacks.
    """

    code = "model.not_usable"
    retryable: bool | None = False

    def __init__(self, message: str, *, model: str, reason: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.model = model
        self.reason = reason
        self.missing = missing


class ModelSnapshotStaleError(ModelError):
    """What was known of models is too old, or dated in the future.

    Attributes:
        age: Seconds since it was observed; negative if that is in the future.
        max_age: The limit, in seconds.
    """

    code = "model.snapshot_stale"
    retryable: bool | None = True

    def __init__(self, *, age: float, max_age: float) -> None:
        when = "in the future" if age < 0 else f"{age:g} s ago, more than {max_age:g} s"
        super().__init__(f"the model snapshot was observed {when}; load a new one")
        self.age = age
        self.max_age = max_age


class ModelCatalogError(ModelError):
    """A catalogue of models could not be loaded.

    Attributes:
        source: Where it was to come from.
        status: The HTTP status, or None when there was none.
    """

    code = "model.catalog"

    def __init__(self, message: str, *, source: str, status: int | None = None, retryable: bool | None = None) -> None:
        super().__init__(message)
        self.source = source
        self.status = status
        self.retryable = retryable
