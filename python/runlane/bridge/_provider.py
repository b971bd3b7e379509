"""A provider whose every call is a durable step of the turn it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from typing import Final

import anyio
from typing_extensions import override

from runlane.errors import UsageError
from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    ModelOptions,
    ModelPart,
    ModelProviderContext,
    ResolvedModel,
)
from runlane.runtime import Turn

__all__ = ["TurnProvider"]

_OPEN: Final[ContextVar[frozenset[anyio.Lock]]] = ContextVar("runlane_open_calls", default=frozenset())
"""The gates this code is inside of."""


class TurnProvider(ChatProvider):
    """A model of a turn, as a `ModelRunner` calls it.

    Opening a stream first makes durable what came before and records a `model-request` operation; only then is the
    real provider called. Output, usage and the end are recorded, the idle deadline is armed, and what fails is marked
    as the provider's. What the model says is not added to the answer: that is for whoever asked.

    One call is open at a time, so that the steps of a turn have an order: calls of child runners, or of tasks of one
    node, wait for each other, in the order in which they came. A time limit of a call counts while it waits. A call
    that is made while the parts of another are being read would wait for itself, and is refused.
    """

    watches_silence = True

    def __init__(self, turn: Turn, model: ResolvedModel | None = None, /, *, gate: anyio.Lock | None = None) -> None:
        """Serve a turn.

        Args:
            turn: The turn.
            model: Who is asked; the turn's own model by default.
            gate: Held while a call is open; several providers of one turn share one.
        """
        self._turn = turn
        self._gate = gate or anyio.Lock()
        self._model = model or turn.model
        self.provider_id = self._model.provider.provider_id
        self.model_id = self._model.provider.model_id

    @override
    def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelPart]]:
        """Open one response, as one durable step; see `ChatProvider.open_stream` and `Turn.open_step`."""
        context.signal.raise_if_cancelled()
        options = _merged(self._model.options, context.options)
        model = replace(self._model, options=options, provider=_AsAsked(self._model.provider, context))
        return self._opened(tuple(messages), model, context)

    @asynccontextmanager
    async def _opened(
        self, messages: tuple[AnyModelMessage, ...], model: ResolvedModel, context: ModelProviderContext
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        if self._gate in _OPEN.get():
            raise UsageError("another call of the turn is being read around this one", argument="open_stream")
        async with self._gate:
            context.signal.raise_if_cancelled()
            token = _OPEN.set(_OPEN.get() | {self._gate})
            try:
                async with self._turn.open_step(messages, model=model, functions=context.functions) as parts:
                    yield parts
            finally:
                _OPEN.reset(token)


class _AsAsked(ChatProvider):
    """The real provider, told what the runner wants of the answer, which a step of a turn has no words for."""

    def __init__(self, provider: ChatProvider, asked: ModelProviderContext, /) -> None:
        self._provider = provider
        self._asked = asked
        self.provider_id = provider.provider_id
        self.model_id = provider.model_id
        self.watches_silence = provider.watches_silence

    @override
    def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelPart]]:
        asked = self._asked
        return self._provider.open_stream(
            messages,
            replace(
                context,
                function_choice=asked.function_choice,
                allow_multiple_calls=asked.allow_multiple_calls,
                response_format=asked.response_format,
                stage=asked.stage,
                invocation_id=asked.invocation_id,
            ),
        )


def _merged(under: ModelOptions, over: ModelOptions) -> ModelOptions:
    """Lay the options of a call over those of its model, field by field."""
    given: dict[str, object] = {}
    for field in fields(ModelOptions):
        value = getattr(over, field.name)
        if isinstance(value, Mapping):
            given[field.name] = {**getattr(under, field.name), **value}
        elif value is not None:
            given[field.name] = value
    return replace(under, **given)  # type: ignore[arg-type]  # each value is one of the same field
