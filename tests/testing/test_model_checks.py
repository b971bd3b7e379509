"""The rules of a provider: every provider of runlane keeps them, and each check finds who does not."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import anyio
import pytest
from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from typing_extensions import override

from runlane.errors import ModelError, ProviderStreamCutError
from runlane.models import AnyModelMessage, ChatProvider, FinishReport, ModelPart, ModelProviderContext
from runlane.models.anthropic import Anthropic
from runlane.models.google import Google
from runlane.models.openai_chat import OpenAIChat
from runlane.models.openai_responses import OpenAIResponses
from runlane.models.pydantic_ai import PydanticAIModel
from runlane.testing import MODEL_CHECKS, ModelCheck, _model_checks, check_model

pytestmark = pytest.mark.anyio


def _made(make: Callable[..., ChatProvider]) -> Callable[[str], ChatProvider]:
    return lambda base_url: make("any", base_url=base_url)


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", [OpenAIChat, OpenAIResponses, Anthropic, Google])
async def test_a_provider_keeps_the_rule(make: Callable[..., ChatProvider], check: ModelCheck) -> None:
    """In every wire protocol."""
    await check(_made(make))


class ThroughPydanticAI(PydanticAIModel):
    """A model of pydantic-ai with a client of its own."""

    def __init__(self, base_url: str) -> None:
        self._client = AsyncOpenAI(base_url=base_url, api_key="parrot", max_retries=0)
        super().__init__(OpenAIChatModel("any", provider=OpenAIProvider(openai_client=self._client)))

    @override
    async def aclose(self) -> None:
        await self._client.close()


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_model_of_pydantic_ai_keeps_the_rule(check: ModelCheck) -> None:
    """As far as its own client does not try again; on trio that client leaves its generators to the collector."""
    await check(ThroughPydanticAI)


_RULES = {
    "m7": {
        "leaving_early_closes_the_connection",
        "a_cancelled_reader_closes_the_connection",
        "a_failure_leaves_nothing_behind",
    },
    "m8": {"nothing_comes_after_the_signal", "the_signal_ends_a_wait"},
    "m9": {"every_failure_is_raised"},
    "m10": {"the_finish_is_one_and_the_last"},
    "m11": {"parts_come_as_they_arrive"},
    "m12": {"nothing_is_tried_again"},
    "m13": {"streams_share_nothing"},
}


def test_m7_m8_m9_m10_m11_m12_m13_each_rule_has_a_check() -> None:
    """And each check is of a rule."""
    assert set().union(*_RULES.values()) == {check.__name__ for check in MODEL_CHECKS}


async def test_all_rules_are_checked_by_one_call() -> None:
    """As a program with a provider of its own would."""
    await check_model(_made(OpenAIChat))


class Faulty(OpenAIChat):
    """A provider that keeps the rules but for one."""


class Eager(Faulty):
    """It reads the whole answer before it gives any of it."""

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        async with super().open_stream(messages, context) as stream:
            parts = [part async for part in stream]
        yield _told(parts)


class Forgiving(Faulty):
    """It takes a failure for the end."""

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        parts: list[ModelPart] = []
        with suppress(ModelError):
            async with super().open_stream(messages, context) as stream:
                parts = [part async for part in stream]
        yield _told(parts or [FinishReport("stop")])


class Stubborn(Faulty):
    """It asks again when it was refused."""

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        parts: list[ModelPart] = []
        for attempt in range(2):
            try:
                async with super().open_stream(messages, context) as stream:
                    parts = [part async for part in stream]
                break
            except ModelError:
                if attempt:
                    raise
        yield _told(parts)


class Repeating(Faulty):
    """It finishes twice."""

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        async with super().open_stream(messages, context) as stream:
            yield _twice(stream)


class Deaf(Faulty):
    """It hears no signal."""

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        with anyio.move_on_after(0.2):
            async with super().open_stream(messages, ModelProviderContext()) as stream:
                yield stream


class Buffered(Faulty):
    """It gives what it holds although the signal tripped."""

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        async with super().open_stream(messages, context) as stream:
            yield _read_ahead(stream)


class Spent(Faulty):
    """It answers once."""

    @override
    def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelPart]]:
        if hasattr(self, "_spent"):
            raise ProviderStreamCutError
        self._spent = True
        return super().open_stream(messages, context)


class Scoped(Faulty):
    """It holds a scope over the parts it yields."""

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        async with super().open_stream(messages, context) as stream:
            yield _within_a_scope(stream)


async def _within_a_scope(stream: AsyncIterator[ModelPart]) -> AsyncIterator[ModelPart]:
    with anyio.fail_after(60):
        async for part in stream:
            yield part


async def _told(parts: list[ModelPart]) -> AsyncIterator[ModelPart]:
    for part in parts:
        yield part


async def _read_ahead(stream: AsyncIterator[ModelPart]) -> AsyncIterator[ModelPart]:
    held: list[ModelPart] = []
    async for part in stream:
        held.append(part)
        if len(held) > 2:
            yield held.pop(0)
    for part in held:
        yield part


async def _twice(stream: AsyncIterator[ModelPart]) -> AsyncIterator[ModelPart]:
    async for part in stream:
        yield part
        if isinstance(part, FinishReport):
            yield part


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (Eager, "parts_come_as_they_arrive"),
        (Eager, "leaving_early_closes_the_connection"),
        (Forgiving, "every_failure_is_raised"),
        (Forgiving, "the_finish_is_one_and_the_last"),
        (Stubborn, "nothing_is_tried_again"),
        (Repeating, "the_finish_is_one_and_the_last"),
        (Deaf, "nothing_comes_after_the_signal"),
        (Deaf, "the_signal_ends_a_wait"),
        (Buffered, "nothing_comes_after_the_signal"),
        (Scoped, "streams_share_nothing"),
        (Spent, "a_failure_leaves_nothing_behind"),
    ],
)
async def test_a_broken_rule_is_found(
    make: Callable[..., ChatProvider], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the check that is named after it."""
    monkeypatch.setattr(_model_checks, "_PATIENCE", 0.3)
    (check,) = (one for one in MODEL_CHECKS if one.__name__ == rule)
    with pytest.raises((AssertionError, BaseExceptionGroup, RuntimeError)):
        await check(_made(make))
