"""`PydanticAIModel`: a model of pydantic-ai behind runlane's port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from typing_extensions import override

from runlane.contracts import ids_or_random
from runlane.ids import IdSource
from runlane.models._messages import AnyModelMessage
from runlane.models._port import ChatProvider, ModelProviderContext
from runlane.models._stream import ModelPart
from runlane.models.pydantic_ai._events import EventReader, failure_of
from runlane.models.pydantic_ai._package import messages as theirs
from runlane.models.pydantic_ai._package import models
from runlane.models.pydantic_ai._request import (
    PROVIDER_ID,
    request_messages,
    request_parameters,
    request_settings,
)
from runlane.sse import abortable_stream

__all__ = ["PydanticAIModel"]

_Sender: TypeAlias = MemoryObjectSendStream[ModelPart | Exception]


class PydanticAIModel(ChatProvider):
    """Any model of pydantic-ai as a provider.

    The model reads its provider's stream in a task of its own, at most one part ahead. Silence is measured by the
    caller, between parts.

    Args:
        model: The model, such as `pydantic_ai.models.mistral.MistralModel("mistral-large")`.
        finish_reason_needed: Whether a stream without a finish reason is one that was cut. Switch it off only for
            models that never give one, such as pydantic-ai's test models: then a cut may be taken for an end.
        ids: Names tool calls whose provider gives them no id.

    Example:
        >>> from pydantic_ai.models.test import TestModel
        >>> PydanticAIModel(TestModel(), finish_reason_needed=False)
        PydanticAIModel('test')
    """

    provider_id = PROVIDER_ID

    def __init__(self, model: models.Model, *, finish_reason_needed: bool = True, ids: IdSource | None = None) -> None:
        self.model_id = model.model_name
        self._model = model
        self._needs_reason = finish_reason_needed
        self._ids = ids_or_random(ids)

    @override
    def __repr__(self) -> str:
        return f"PydanticAIModel({self.model_id!r})"

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Open one response; see `ChatProvider.open_stream`.

        Raises:
            ModelProtocolError: A message holds something pydantic-ai has no form for.
            ProviderError: The request was refused, the provider failed while it answered, or could not be reached.
            ProviderStreamCutError: The stream ended without a finish reason.
        """
        context.signal.raise_if_cancelled()
        asked = request_messages(messages)
        send, receive = anyio.create_memory_object_stream[ModelPart | Exception]()
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks, receive:
            tasks.start_soon(self._read, asked, context, send)
            try:
                async with abortable_stream(receive, context.signal) as parts:
                    yield _Parts(parts)
            except Exception as error:  # noqa: BLE001 - kept out of the group and raised again below
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _read(self, asked: list[theirs.ModelMessage], context: ModelProviderContext, send: _Sender) -> None:
        """Read the response into a channel; a failure is its last item."""
        async with send:
            try:
                await self._pump(asked, context, send)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the caller has left
            except Exception as error:  # noqa: BLE001 - whatever a foreign model raises is told as ours
                await send.send(failure_of(error))

    async def _pump(self, asked: list[theirs.ModelMessage], context: ModelProviderContext, send: _Sender) -> None:
        reader = EventReader(lambda: self._ids.new("call"))
        settings, parameters = request_settings(context), request_parameters(context)
        async with self._model.request_stream(asked, settings, parameters) as response:
            async for event in response:
                for part in reader.read(event):
                    await send.send(part)
            for part in reader.finish(response, needs_reason=self._needs_reason):
                await send.send(part)


class _Parts(AsyncIterator[ModelPart]):
    """Gives what comes through the channel; an exception among it is raised."""

    def __init__(self, items: AsyncIterator[ModelPart | Exception]) -> None:
        self._items = items

    @override
    async def __anext__(self) -> ModelPart:
        item = await anext(self._items)
        if isinstance(item, Exception):
            raise item
        return item
