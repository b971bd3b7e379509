"""One provider call of a run while it is open: each part is noted before the driver gets it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

import anyio
import anyio.lowlevel

from runlane.contracts import CancelToken
from runlane.errors import (
    InvalidValueError,
    ModelIdleTimeoutError,
    ModelProtocolError,
    ProviderStreamCutError,
    UsageError,
)
from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ModelProviderContext,
    ReasoningDelta,
    ResponseInfo,
    TextDelta,
    UsageReport,
    check_part,
)
from runlane.runtime._idle_watch import IdleWatch, Watched
from runlane.runtime._turn_writer import TurnWriter

__all__ = ["FailureOrigin", "Failures", "LiveStep"]

FailureOrigin: TypeAlias = Literal["run", "provider", "request", "admission", "prepare-step"]
"""Where a failure came from: the provider, the request that was handed to it, the record of that request, the
application's `prepare_step`, or anywhere else in the run."""

_REFUSALS: Final = (UsageError, InvalidValueError, ModelProtocolError)
"""How a provider refuses what it was handed, before anything is sent."""

_TURN: Final = 16
"""Parts after which other tasks get a turn."""


class Failures:
    """Where the failures of a run came from, told apart by identity."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self._error: BaseException | None = None
        self._origin: FailureOrigin = "run"

    def note(self, error: Exception, origin: FailureOrigin, /) -> None:
        """Remember where an error came from."""
        self._error, self._origin = error, origin

    def origin(self, error: Exception, /) -> FailureOrigin:
        """Return where an error came from; `run` for one that was not noted."""
        return self._origin if error is self._error else "run"


class LiveStep:
    """One call, and its parts: `async with step.open() as parts`.

    Attributes:
        finish: What ended the answer, once it has.
        is_silent: Whether it was given up because its provider fell silent.
        last: The part that came last, or None.
        response: How the provider identified it.
    """

    __slots__ = (
        "_context",
        "_failures",
        "_has_calls",
        "_has_output",
        "_heard",
        "_idle",
        "_messages",
        "_parts",
        "_provider",
        "_stream",
        "_watched",
        "_writer",
        "finish",
        "is_silent",
        "last",
        "response",
    )

    def __init__(
        self,
        writer: TurnWriter,
        failures: Failures,
        provider: ChatProvider,
        idle: IdleWatch,
        messages: Sequence[AnyModelMessage],
        context: ModelProviderContext,
        /,
    ) -> None:
        """Prepare to ask a provider."""
        self._writer = writer
        self._failures = failures
        self._provider = provider
        self._idle = idle
        self._messages = messages
        self._context = context
        self._stream: AbstractAsyncContextManager[AsyncIterator[ModelPart]] | None = None
        self._watched: Watched | None = None
        self._parts: AsyncIterator[ModelPart] | None = None
        self._heard = 0
        self._has_calls = False
        self._has_output = False
        self.finish: FinishReport | None = None
        self.is_silent = False
        self.last: ModelPart | None = None
        self.response = ResponseInfo()

    def open(self) -> AbstractAsyncContextManager[AsyncIterator[ModelPart]]:
        """Ask, and hear the answer.

        Raises:
            ModelIdleTimeoutError: The provider was silent for longer than the context's `idle_timeout`.
        """
        limit = self._context.idle_timeout
        return self if limit is None or self._provider.watches_silence else self._watched_for(limit)

    @asynccontextmanager
    async def _watched_for(self, limit: float) -> AsyncIterator[AsyncIterator[ModelPart]]:
        # What falls silent may never come back from a read: it is cancelled from outside.
        signal = self._context.signal
        token = CancelToken.any(signal)
        self._watched = self._idle.add(token, limit)
        try:
            with anyio.CancelScope() as scope, token.bind(scope):
                async with self as parts:
                    yield parts
        finally:
            self._idle.remove(self._watched)
        signal.raise_if_cancelled()
        if isinstance(token.reason, ModelIdleTimeoutError):
            self._note_failure(token.reason)
            raise token.reason

    async def __aenter__(self) -> Self:
        """Ask."""
        try:
            self._stream = self._provider.open_stream(self._messages, self._context)
            self._parts = await self._stream.__aenter__()
        except Exception as error:
            self._note_failure(error, "request" if isinstance(error, _REFUSALS) else "provider")
            raise
        self._hear_nothing()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> bool | None:
        """Close the provider's stream."""
        return None if self._stream is None else await self._stream.__aexit__(kind, error, traceback)

    def __aiter__(self) -> Self:
        """Iterate the parts; once."""
        return self

    async def __anext__(self) -> ModelPart:
        """Return the next part, once everything that is due to be durable is."""
        if self.finish is not None or self._parts is None:
            raise StopAsyncIteration
        if self._writer.is_due():
            await self._writer.checkpoint()
        self._heard += 1
        if self._heard % _TURN == 0:
            # A provider whose bytes are all there already never waits, and neither does a store in memory.
            await anyio.lowlevel.checkpoint()
        watched = self._watched
        if watched is not None:
            self._idle.listen(watched)
        try:
            part = await self._parts.__anext__()
        except StopAsyncIteration:
            cut = ProviderStreamCutError()
            self._note_failure(cut)
            raise cut from None
        except Exception as error:
            self._note_failure(error)
            raise
        finally:
            if watched is not None:
                watched.heard = None
        self._writer.count_part()
        self._note(part)
        self.last = part
        return part

    def _note_failure(self, error: Exception, origin: FailureOrigin = "provider") -> None:
        self._failures.note(error, origin)
        self.is_silent = isinstance(error, ModelIdleTimeoutError)

    def _hear_nothing(self) -> None:
        if self._watched is not None:
            self._watched.heard = None

    def _note(self, part: ModelPart) -> None:
        if isinstance(part, TextDelta):
            is_output = bool(part.text)
        elif isinstance(part, FunctionCallDelta):
            check_part(part)
            self._has_calls = True
            is_output = bool(part.arguments)
        elif isinstance(part, ReasoningDelta):
            is_output = bool(part.text)
        else:
            self._note_fact(part)
            return
        if is_output:
            self._note_output()

    def _note_output(self) -> None:
        if not self._has_output:
            self._has_output = True
            self._writer.first_output()

    def _note_fact(self, part: ModelPart) -> None:
        match part:
            case FinishReport():
                check_part(part)
                self.finish = part
                if self._has_calls:
                    # A call without arguments is output once it is complete.
                    self._note_output()
            case UsageReport():
                check_part(part)
                self._writer.spend.report(part.usage)
            case ResponseInfo():
                check_part(part)
                self.response = part
            case _:
                pass
