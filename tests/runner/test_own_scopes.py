"""Providers that hold a cancel scope of their own around a stream, and cancel it: by a deadline, for instance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from typing_extensions import override

from runlane.contracts import CancelToken, ExecutionOptions
from runlane.errors import ModelError, ModelIdleTimeoutError, ProviderStreamCutError
from runlane.models import AnyModelMessage, ChatProvider, ModelPart, ModelProviderContext, TextDelta
from tests.runner.speaking import ASK, STOP, runner

pytestmark = pytest.mark.anyio


class Impatient(ChatProvider):
    """Says a word and cancels its own stream, or waits to be cancelled; then answers with an error, or with nothing."""

    provider_id = model_id = "impatient"

    def __init__(self, answer: Exception | None, *, cancels: bool = True) -> None:
        """Answer a cancellation like this."""
        self.answer = answer
        self.cancels = cancels
        self.waits = anyio.Event()

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        try:
            with anyio.CancelScope() as scope:
                yield self._parts(scope)
        finally:
            if self.answer is not None:
                raise self.answer

    async def _parts(self, scope: anyio.CancelScope) -> AsyncIterator[ModelPart]:
        yield TextDelta("word")
        if self.cancels:
            scope.cancel()
        self.waits.set()
        await anyio.sleep_forever()
        yield STOP


async def test_what_a_provider_makes_of_its_own_cancellation_counts() -> None:
    """Its error is the call's failure, the same object, and no cancellation leaves for a scope that is gone."""
    silent = ModelIdleTimeoutError(idle_timeout=5)
    with pytest.raises(ModelIdleTimeoutError) as caught:
        await runner(Impatient(silent)).call(ASK)
    assert caught.value is silent


async def test_a_stream_that_cancels_itself_in_silence_was_cut() -> None:
    """It ended without a finish."""
    with pytest.raises(ProviderStreamCutError):
        await runner(Impatient(None)).call(ASK)


async def test_a_cancellation_from_outside_is_never_made_an_error() -> None:
    """Whatever the provider raises while it closes."""
    provider = Impatient(ModelError("closing"), cancels=False)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def stop() -> None:
                await provider.waits.wait()
                scope.cancel()

            tasks.start_soon(stop)
            await runner(provider).call(ASK)
    assert scope.cancelled_caught


async def test_a_tripped_token_is_never_made_an_error() -> None:
    """The call ends with the token's own, whatever the provider raises while it closes."""
    provider, token, reason = Impatient(ModelError("closing"), cancels=False), CancelToken(), KeyError("why")
    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            await provider.waits.wait()
            token.cancel(reason)

        tasks.start_soon(stop)
        with pytest.raises(KeyError) as caught:
            await runner(provider).call(ASK, options=ExecutionOptions(signal=token))
    assert caught.value is reason
