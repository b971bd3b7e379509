"""A response in progress, the same for every wire protocol: send, decode, deliver, close.

A protocol brings a request, a decoder and a reading of refusals; this module owns the order of things. Whatever is true
at the same moment counts in this order: cancellation around the caller, the signal's reason, parts at hand, the
decoder's failure, the transport's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Final, Literal, Protocol, Self

from anyio import move_on_after
from anyio.lowlevel import checkpoint_if_cancelled
from typing_extensions import override

from runlane.errors import (
    ModelError,
    ModelIdleTimeoutError,
    ModelProtocolError,
    ProviderStreamCutError,
    SseIdleTimeoutError,
    SseLimitError,
    UsageError,
)
from runlane.models._http import HttpClient, HttpReply, HttpRequest
from runlane.models._port import ModelProviderContext
from runlane.models._stream import ModelPart, StreamNote
from runlane.sse import SseReader, SseReadOptions, read_sse

__all__ = ["Refusal", "StreamDecoder", "WireCall", "WireStream"]

_MAX_EVENT_BYTES: Final = 16 * 1_048_576
_DRAIN_FOR: Final = 0.05


class StreamDecoder(Protocol):
    """What a wire protocol knows of its stream, without any I/O."""

    @property
    def failure(self) -> ModelError | None: ...
    @property
    def ended(self) -> bool: ...
    @property
    def has_finish(self) -> bool: ...
    @property
    def notes(self) -> Sequence[StreamNote]: ...
    def feed(self, data: str, event: str, /) -> list[ModelPart]: ...
    def feed_document(self, document: str, /) -> list[ModelPart]: ...
    def close(self) -> list[ModelPart]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A response that is no answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WireCall:
    """One call as its wire protocol prepared it.

    Attributes:
        explain: Makes the error for a response that is no answer.
    """

    request: HttpRequest
    decoder: StreamDecoder
    context: ModelProviderContext
    explain: Callable[[Refusal], ModelError]


class WireStream(AbstractAsyncContextManager["WireStream"], AsyncIterator[ModelPart]):
    """The parts of one response; what `ChatProvider.open_stream` returns. One task at a time reads it."""

    def __init__(self, client: HttpClient, call: WireCall, /) -> None:
        """Prepare a call; nothing is sent before the context is entered."""
        self._client = client
        self._call = call
        self._signal = call.context.signal
        self._decoder = call.decoder
        self._parts: list[ModelPart] = []  # at hand, the next one last
        self._reply: HttpReply | None = None
        self._events: SseReader | None = None
        self._failure: ModelError | None = None
        self._busy = False
        self._over = False
        self._notes_told = 0

    @override
    async def __aenter__(self) -> Self:
        if self._reply is not None or self._over:
            raise UsageError("a stream is entered once; open another", argument="open_stream")
        context = self._call.context
        reply = await self._client.send(self._call.request, signal=self._signal, idle_timeout=context.idle_timeout)
        if reply.status != HTTPStatus.OK or reply.media_type == "text/html":
            try:
                body = await reply.read_error(self._signal)
            finally:
                await reply.aclose()
            self._signal.raise_if_cancelled()
            raise self._call.explain(Refusal(status=reply.status, headers=reply.headers, body=body))
        self._reply = reply
        if reply.media_type != "application/json":
            self._events = read_sse(
                reply.chunks(),
                SseReadOptions(
                    signal=self._signal,
                    idle_timeout=context.idle_timeout,
                    max_line_bytes=_MAX_EVENT_BYTES,
                    max_event_bytes=_MAX_EVENT_BYTES,
                ),
            )
        return self

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._over = True
        self._parts = []
        events, reply = self._events, self._reply
        self._events = self._reply = None
        if reply is None:
            return
        try:
            if events is not None:
                await self._drain(events)
                await events.aclose()
        finally:
            await reply.aclose()

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> ModelPart:
        """Return the next part.

        Raises:
            StopAsyncIteration: The finish report was given.
            ModelError: The stream failed or was cut; the parts before it were given.
            Exception: The signal's error, once it tripped.
        """
        if self._parts and not self._signal.cancelled:
            return self._parts.pop()
        if self._busy:
            raise UsageError("another task is reading this stream", argument="open_stream")
        self._busy = True
        try:
            return await self._next()
        finally:
            self._busy = False

    async def _next(self) -> ModelPart:
        if self._signal.cancelled and not self._over:
            await checkpoint_if_cancelled()
            self._over = True
            raise self._signal.error()
        while not self._over:
            if self._parts:
                return self._parts.pop()
            failure = self._failure or self._decoder.failure
            if failure is not None:
                self._over = True
                raise failure
            if self._decoder.ended:
                self._over = True
            else:
                # The reader looks at cancellation and signal before it waits and after.
                await self._fill()
                self._tell_notes()
        raise StopAsyncIteration

    async def _fill(self) -> None:
        """Read until something can be delivered or the response has ended."""
        parts: list[ModelPart] = []
        while not parts and not self._decoder.ended:
            parts = await self._read_document() if self._events is None else await self._read_event(self._events)
        parts.reverse()
        self._parts = parts

    async def _read_event(self, events: SseReader) -> list[ModelPart]:
        try:
            event = await anext(events)
        except StopAsyncIteration:
            if events.incomplete is not None:
                self._note("incomplete-event", "the body ended within an event, which was dropped")
            return self._decoder.close()
        except SseIdleTimeoutError as error:
            return self._break_off(error)
        except (ProviderStreamCutError, ModelProtocolError) as error:
            return self._break_off(error)
        except SseLimitError as error:
            detail = f"{self._client.provider} sent an event of more than {error.limit} bytes"
            raise ModelProtocolError(detail=detail) from error
        parts = self._decoder.feed(event.data, event.event)
        # What came with the same bytes costs no step of its own.
        for event in events.take_ready():
            parts += self._decoder.feed(event.data, event.event)
        return parts

    async def _read_document(self) -> list[ModelPart]:
        """Read the whole body of a server that answers a streaming request with one JSON document."""
        if self._reply is None:
            raise UsageError("the stream is read inside `async with` only", argument="open_stream")
        try:
            document = await self._reply.read_document(
                self._signal, idle_timeout=self._call.context.idle_timeout, max_bytes=_MAX_EVENT_BYTES
            )
        except SseIdleTimeoutError as error:
            raise ModelIdleTimeoutError(idle_timeout=error.idle_timeout) from error
        return self._decoder.feed_document(document.decode("utf-8", "replace"))

    def _break_off(self, error: SseIdleTimeoutError | ModelError) -> list[ModelPart]:
        """End a body that broke or went silent: an answer that was complete by then stays complete."""
        if self._decoder.has_finish:
            self._note("cut-after-finish", str(error))
        elif isinstance(error, SseIdleTimeoutError):
            self._failure = ModelIdleTimeoutError(idle_timeout=error.idle_timeout)
            self._failure.__cause__ = error
        else:
            self._failure = error
        return self._decoder.close()

    async def _drain(self, events: SseReader) -> None:
        """Read what follows the end of a complete answer, so that the connection can be used again."""
        if self._decoder.ended and self._decoder.failure is None and not self._signal.cancelled:
            with move_on_after(_DRAIN_FOR, shield=True), suppress(Exception):
                async for _ in events:
                    pass

    def _note(self, kind: Literal["incomplete-event", "cut-after-finish"], detail: str) -> None:
        if self._call.context.on_note is not None:
            self._call.context.on_note(StreamNote(kind, detail))

    def _tell_notes(self) -> None:
        notes = self._decoder.notes
        if len(notes) > self._notes_told and self._call.context.on_note is not None:
            for note in notes[self._notes_told :]:
                self._call.context.on_note(note)
        self._notes_told = len(notes)
