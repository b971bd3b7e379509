"""Models from a list, for tests of what asks for them by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from runlane.contracts import require_kind
from runlane.errors import UsageError
from runlane.models import ChatProvider, ModelProvider

__all__ = ["ReplayModels"]


class ReplayModels(ModelProvider):
    """Gives, for each model id, the models of a list one after the other.

    Args:
        models: By model id, what `create` gives, in order.

    Example:
        >>> from runlane.testing import ScriptedModel
        >>> first, second = ScriptedModel("one"), ScriptedModel("two")
        >>> models = ReplayModels({"parrot": [first, second]})
        >>> models.create("parrot") is first, models.create("parrot") is second
        (True, True)
    """

    def __init__(self, models: Mapping[str, Sequence[ChatProvider]]) -> None:
        given = require_kind(models, Mapping, argument="models")
        self._models = {model_id: list(listed) for model_id, listed in given.items()}

    @override
    def create(self, model_id: str, /) -> ChatProvider:
        """Return the next model of an id.

        Raises:
            UsageError: There is none left.
        """
        listed = self._models.get(model_id)
        if not listed:
            raise UsageError(f"no model is left for {model_id!r}", argument="model_id")
        return listed.pop(0)
