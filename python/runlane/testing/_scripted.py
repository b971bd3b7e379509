"""A model that says what a test wrote for it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
import anyio.lowlevel
from typing_extensions import override

from runlane.clock import Clock
from runlane.contracts import clock_or_system, require_kind
from runlane.errors import ProviderStreamCutError, UsageError
from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    FinishReport,
    ModelPart,
    ModelProviderContext,
    TextDelta,
)

__all__ = ["Hold", "Pause", "ScriptedCall", "ScriptedModel", "ScriptedReply", "ScriptedStep"]


@dataclass(frozen=True, slots=True)
class Pause:
    """The model is silent for so many seconds of its clock."""

    seconds: float


@dataclass(eq=False, slots=True)
class Hold:
    """The model is silent until the test lets it go on.

    Example:
        >>> async def scene(runtime: AgentRuntime, hold: Hold) -> None:
        ...     runtime.submit("c", "Hi")
        ...     await hold.reached()      # the stream stands at the hold
        ...     runtime.stop("c")
        ...     hold.release()
    """

    _reached: anyio.Event = field(default_factory=anyio.Event)
    _released: anyio.Event = field(default_factory=anyio.Event)

    async def reached(self) -> None:
        """Wait until the model stands here."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the model go on, now or when it comes here."""
        self._released.set()

    async def stand(self) -> None:
        """Stand here until released."""
        self._reached.set()
        await self._released.wait()


ScriptedStep: TypeAlias = ModelPart | Pause | Hold | Exception
"""A part to yield, a silence, or an error to raise."""

ScriptedReply: TypeAlias = str | Sequence[ScriptedStep] | Callable[["ScriptedCall"], str | Sequence[ScriptedStep]]
"""A text, streamed word by word and finished with `stop`; or steps, exactly as they are (without a `FinishReport` at
the end the stream is cut); or a function of the call that returns one of these."""


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One call that was made: what the model was told, and with which options."""

    messages: tuple[AnyModelMessage, ...]
    context: ModelProviderContext


class ScriptedModel(ChatProvider):
    """Gives one reply after another; the last one again and again.

    Attributes:
        calls: What it was asked, in order.

    Example:
        >>> model = ScriptedModel("Hello!", [TextDelta("Hal"), ProviderStreamCutError()])
    """

    def __init__(
        self,
        *replies: ScriptedReply,
        clock: Clock | None = None,
        provider_id: str = "scripted",
        model_id: str = "scripted-model",
    ) -> None:
        """Write the script.

        Args:
            *replies: At least one.
            clock: Measures a `Pause`; the system's by default.
            provider_id: See `ChatProvider`.
            model_id: See `ChatProvider`.

        Raises:
            UsageError: There is no reply, or something is of the wrong kind.
        """
        if not replies:
            raise UsageError("needs at least one reply", argument="replies")
        for place, reply in enumerate(replies):
            if not callable(reply):
                require_kind(reply, Sequence, argument=f"replies.{place}")
        self._replies = replies
        self._clock = clock_or_system(clock)
        self.provider_id = require_kind(provider_id, str, argument="provider_id")
        self.model_id = require_kind(model_id, str, argument="model_id")
        self.calls: list[ScriptedCall] = []

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        context.signal.raise_if_cancelled()
        call = ScriptedCall(tuple(messages), context)
        reply = self._replies[min(len(self.calls), len(self._replies) - 1)]
        self.calls.append(call)
        steps = reply(call) if callable(reply) else reply
        stream = self._stream(_spoken(steps) if isinstance(steps, str) else steps, context)
        try:
            yield stream
        finally:
            await stream.aclose()

    async def _stream(
        self, steps: Iterable[ScriptedStep], context: ModelProviderContext
    ) -> AsyncGenerator[ModelPart, None]:
        finished = False
        for step in steps:
            await anyio.lowlevel.checkpoint()
            if isinstance(step, Pause):
                await self._clock.sleep(step.seconds)
            elif isinstance(step, Hold):
                await step.stand()
            elif isinstance(step, Exception):
                raise step
            context.signal.raise_if_cancelled()
            if not isinstance(step, Pause | Hold):
                finished = isinstance(step, FinishReport)
                yield step
        if not finished:
            raise ProviderStreamCutError


def _spoken(text: str) -> list[ScriptedStep]:
    """Return a text as a model streams it: word by word."""
    return [*(TextDelta(word) for word in re.findall(r"\S+\s*|\s+", text)), FinishReport("stop")]
