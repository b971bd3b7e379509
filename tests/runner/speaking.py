"""Providers and parts for the tests of the runner."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from typing_extensions import override

from runlane.contracts import Id, schema_for
from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ModelProviderContext,
    TextDelta,
)
from runlane.runner import (
    ModelCallRequest,
    ModelRunner,
    ModelRunnerOptions,
    ModelRunnerPorts,
    ModelRunnerSettings,
    ModelToolRegistration,
    ModelToolRegistry,
)


class Silence:
    """Stands in the place of parts: nothing comes from here on."""


SILENCE = Silence()
STOP = FinishReport("stop")
CALLS = FinishReport("tool-calls")
ASK = ModelCallRequest(stage=Id("draft"), prompt="Hello?")


class Speaker(ChatProvider):
    """Says parts, or what a function of the context gives, and notes how it was used.

    Attributes:
        contexts: Of the streams that were opened.
        told: The messages it was given, call by call.
        read: How many parts were pulled, over all streams.
        closed: How many streams were closed.
    """

    provider_id = "speaker"
    model_id = "speaker-1"

    def __init__(
        self,
        *parts: ModelPart | Exception | Silence,
        before: Callable[[ModelProviderContext], Awaitable[object] | None] = lambda _: None,
        after: Callable[[], Awaitable[object] | None] = lambda: None,
    ) -> None:
        self.parts: Sequence[ModelPart | Exception | Silence] = parts
        self.contexts: list[ModelProviderContext] = []
        self.told: list[tuple[AnyModelMessage, ...]] = []
        self.read = 0
        self.closed = 0
        self._before = before
        self._after = after

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        self.contexts.append(context)
        self.told.append(tuple(messages))
        waiting = self._before(context)
        if waiting is not None:
            await waiting
        stream = self._stream()
        try:
            yield stream
        finally:
            await stream.aclose()
            self.closed += 1
            closing = self._after()
            if closing is not None:
                await closing

    async def _stream(self) -> AsyncGenerator[ModelPart, None]:
        for part in self.parts:
            await checkpoint()
            if isinstance(part, Exception):
                raise part
            if isinstance(part, Silence):
                await anyio.sleep_forever()
                continue
            self.read += 1
            yield part


def saying(text: str) -> tuple[ModelPart, ...]:
    """Return the parts of a text."""
    return (*(TextDelta(word) for word in text.split(" ")), STOP)


def calling(*calls: tuple[str, str]) -> tuple[ModelPart, ...]:
    """Return the parts of native calls, by name and arguments."""
    deltas = (
        FunctionCallDelta(number, id=f"c{number}", name=name, arguments=arguments)
        for number, (name, arguments) in enumerate(calls)
    )
    return (*deltas, CALLS)


def runner(provider: ChatProvider, *transports: Any, **facts: Any) -> ModelRunner:  # noqa: ANN401 - parts of options
    """Return a runner; names of settings and of ports are told apart here."""
    ports = {name: facts.pop(name) for name in tuple(facts) if name in ModelRunnerPorts.__dataclass_fields__}
    settings = {name: facts.pop(name) for name in tuple(facts) if name in ModelRunnerSettings.__dataclass_fields__}
    return ModelRunner(
        ModelRunnerOptions(
            provider=provider,
            transports=transports,
            settings=ModelRunnerSettings(**settings),
            ports=ModelRunnerPorts(**ports),
            **facts,
        )
    )


class Resolved:
    """Counts how often a capability was resolved."""

    def __init__(self) -> None:
        self.arguments: list[object] = []

    def __call__(self, arguments: object) -> str:
        """Note the arguments."""
        self.arguments.append(arguments)
        return f"chose {arguments}"


def capabilities(resolved: Callable[[Any], Any], *names: str) -> ModelToolRegistry[Any]:
    """Return a registry of capabilities that take one integer `n`."""
    return ModelToolRegistry(
        [
            ModelToolRegistration(
                id=Id(name), description=f"Does {name}.", schema=schema_for(dict[str, int]), resolve=resolved
            )
            for name in names
        ]
    )
