"""Choosing the model of a run: what its inputs pin, what the conversation was set to, or a default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runlane.contracts import require_id, require_kind, require_port
from runlane.errors import InvalidValueError
from runlane.models import ModelCapability, ModelRegistry, ModelSelectionStore, ResolvedModel
from runlane.records import JsonObject
from runlane.runtime._core import ModelRequest
from runlane.runtime._policies import SubmittedInput

__all__ = ["ModelChoice"]


class ModelChoice:
    """Gives a runtime its models out of a registry: `AgentRuntime(store, model=ModelChoice(...))`.

    Asked in this order: the metadata of the run's own inputs, where the newest that names a model wins; the selection
    of the conversation; the default.

    Args:
        registry: Knows the models.
        default: The name of the model for everything else.
        selections: Keeps what conversations were set to, or None.
        capabilities: What every model chosen must have.
        metadata_key: The field of an input's metadata that names a model.

    Raises:
        UnknownModelError, ModelNotUsableError: The default cannot serve; found out at once rather than in a run.
        InvalidValueError: A word that is no capability.
        UsageError: An argument of the wrong kind.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        default: str,
        *,
        selections: ModelSelectionStore | None = None,
        capabilities: Iterable[ModelCapability] = (),
        metadata_key: str = "model",
    ) -> None:
        self.registry = require_kind(registry, ModelRegistry, argument="registry")
        self.default: str = require_id(default, argument="default")
        if selections is not None:
            require_port(selections, ModelSelectionStore, argument="selections")
        self._selections = selections
        self._capabilities = tuple(require_kind(capabilities, Iterable, argument="capabilities"))
        self._metadata_key = require_kind(metadata_key, str, argument="metadata_key")
        registry.preflight(default, self._capabilities)

    async def __call__(self, request: ModelRequest[object], /) -> ResolvedModel:
        """Return the model that answers a run.

        Raises:
            UnknownModelError, ModelNotUsableError: The model chosen cannot serve; the run fails, no provider is called.
            InvalidValueError: An input names a model by something else than text.
        """
        key = await self.choose(request.conversation_id, [message.metadata for message in request.inputs])
        return self.registry.resolve(key, self._capabilities)

    async def choose(self, conversation_id: str, metadata: Sequence[JsonObject | None], /) -> str:
        """Return the name of the model for inputs with this metadata, without a look at whether it can serve.

        Raises:
            InvalidValueError: An input names a model by something else than text.
        """
        for fields in reversed(metadata):
            pinned = (fields or {}).get(self._metadata_key)
            if pinned is None:
                continue
            if not isinstance(pinned, str):
                raise InvalidValueError("must be text", argument=f"metadata.{self._metadata_key}")
            return pinned
        selection = None if self._selections is None else await self._selections.load(conversation_id)
        return self.default if selection is None else selection.model_id

    async def preflight(self, submitted: SubmittedInput, /) -> None:
        """Check that the model for an input could serve, before it is admitted: `RunsConfig(preflight=...)`.

        Nothing is constructed.

        Raises:
            UnknownModelError, ModelNotUsableError, InvalidValueError: It could not.
        """
        key = await self.choose(submitted.conversation_id, [submitted.input.metadata])
        self.registry.preflight(key, self._capabilities)
