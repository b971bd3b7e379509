"""An async byte stream, such as a response body, read as events.

The reader asks the body for bytes only when every event of the earlier ones has been handed out.
One cancel scope is open while it waits, for the token and the silence limit; events that are at
hand cost no scope and no checkpoint, and without a token no coroutine either: their steps are the
native ones of `EventQueue`. What is true at the same time counts in this order:
cancellation of an enclosing scope, the token's reason, events at hand, a fault of the stream,
silence.
"""

import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import Any, Self, cast

from anyio import CancelScope, current_time
from anyio.lowlevel import checkpoint_if_cancelled
from typing_extensions import override

from runlane.contracts import CancelToken
from runlane.errors import (
    InvalidValueError,
    SseIdleTimeoutError,
    UsageError,
)
from runlane.sse._closing import OneReader, close_source, refuse_awaitable, require_sync
from runlane.sse._codec import EventQueue, IncompleteSseEvent, SseDecoder, SseEvent

__all__ = ["SseReadOptions", "SseReader", "read_sse"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SseReadOptions:
    """How `read_sse` reads a body.

    Attributes:
        signal: Ends the reading with its reason; looked at before every event.
        idle_timeout: How long the body may send nothing while the reader waits for it, in seconds;
            None for no limit. Any byte starts it anew, comments included. A slow consumer never
            causes it.
        max_line_bytes: The longest line, without its terminator.
        max_event_bytes: The largest sum of the lines of one event, comments not counted.
        on_incomplete: Called once, before the iteration stops, with what a body that was cut left
            behind. What it raises leaves the reader.
        strict_utf8: Raise `SseEncodingError` for invalid UTF-8 instead of reading U+FFFD.
    """

    signal: CancelToken | None = None
    idle_timeout: float | None = None
    max_line_bytes: int = 1_048_576
    max_event_bytes: int = 1_048_576
    on_incomplete: Callable[[IncompleteSseEvent], object] | None = None
    strict_utf8: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be meant; the decoder checks its own two limits.

        Raises:
            UsageError: A value has the wrong type.
            InvalidValueError: A number is out of range.
        """
        if self.signal is not None and not isinstance(self.signal, CancelToken):
            raise UsageError("must be a CancelToken or None", argument="signal")
        if self.idle_timeout is not None:
            _require_duration(self.idle_timeout, "idle_timeout")
        if not isinstance(self.strict_utf8, bool):
            raise UsageError("must be a bool", argument="strict_utf8")
        require_sync(self.on_incomplete, "on_incomplete")
        self.new_decoder()

    def new_decoder(self) -> SseDecoder:
        """Return a decoder with these limits, at the start of a stream."""
        return SseDecoder(self.max_line_bytes, self.max_event_bytes, self.strict_utf8)


def _require_duration(value: float, argument: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError("must be seconds as a number", argument=argument)
    if not math.isfinite(value) or value < 0:
        raise InvalidValueError("must be finite and not negative", argument=argument)


def read_sse(
    body: AsyncIterable[bytes],
    options: SseReadOptions | Mapping[str, object] | None = None,
    /,
) -> "SseReader":
    """Read an async byte stream as server-sent events.

    Args:
        body: The bytes of one response body, cut anywhere.
        options: How to read it: an `SseReadOptions`, or a mapping with the same keys. It is copied
            and checked now, so a mapping that changes later changes nothing.

    Returns:
        An iterator of events that is also an async context manager. Use it as one: a `break` out of
        a bare `async for` leaves the body open.

    Raises:
        UsageError: An unknown option, or a value of the wrong type.
        InvalidValueError: A number out of range.

    Example:
        ```python
        async with read_sse(response.aiter_bytes(), SseReadOptions(idle_timeout=30)) as events:
            async for event in events:
                print(event.event, event.data)
        ```
    """
    return SseReader(body, _checked(options))


def _checked(options: SseReadOptions | Mapping[str, object] | None) -> SseReadOptions:
    if options is None:
        return SseReadOptions()
    if isinstance(options, SseReadOptions):
        return options
    if not isinstance(options, Mapping):
        raise UsageError("must be SseReadOptions, a mapping or None", argument="options")
    known = {field.name for field in fields(SseReadOptions)}
    for name in options:
        if name not in known:
            raise UsageError(f"has no {name!r}; it has {', '.join(sorted(known))}", argument="options")
    return SseReadOptions(**cast("Mapping[str, Any]", options))


class SseReader(EventQueue, OneReader[SseEvent], AsyncIterator[SseEvent]):
    """The events of one body; one task at a time reads them. Made by `read_sse`.

    Whatever ends the iteration (the end of the body, a failure, the token, a cancellation) closes
    the body if it can be closed, shielded and for at most one second. After that every step raises
    `StopAsyncIteration`.

    A step takes its event when it is awaited, not when it is made; like that of an async generator it
    is an awaitable, but no coroutine. It raises:

    * `StopAsyncIteration`: the body ended, or the reading ended before in any way;
    * `SseLimitError`: a line or an event is longer than allowed; the events before it were handed out;
    * `SseEncodingError`: the body is not UTF-8 and `strict_utf8` is set;
    * `SseIdleTimeoutError`: the body was silent for too long;
    * `StreamBusyError`: another task is waiting for an event; it is unharmed;
    * the token's error, or what the body raised.

    Attributes:
        incomplete: What a body that ended without a blank line left behind; None until then, and
            for a whole body.
    """

    __slots__ = (
        "_body",
        "_body_done",
        "_busy",
        "_decoder",
        "_discarded",
        "_ended",
        "_guarded",
        "_iterator",
        "_last",
        "_options",
        "incomplete",
    )

    def __init__(self, body: AsyncIterable[bytes], options: SseReadOptions, /) -> None:
        self.incomplete: IncompleteSseEvent | None = None
        self._body = body
        self._options = options
        self._token = options.signal
        self._guarded = options.signal is not None or options.idle_timeout is not None
        self._decoder = options.new_decoder()
        # The events of the last chunk, and the place of the next one among them.
        self._events = []
        self._next = 0
        # Whether closing threw some away; the last one handed out of earlier chunks.
        self._discarded = False
        self._last: SseEvent | None = None
        self._iterator: AsyncIterator[bytes] | None = None
        self._busy = False
        self._body_done = False
        self._ended = False

    @property
    def last_event_id(self) -> str:
        """The id to resume after: that in force as of the events handed out."""
        if self._next == len(self._events) and not self._discarded:
            return self._decoder.last_event_id
        last = self._handed_out()
        return "" if last is None else last.last_event_id

    @property
    def retry_ms(self) -> int | None:
        """The last valid reconnection time read, in milliseconds."""
        return self._decoder.retry_ms

    @override
    def __aiter__(self) -> Self:
        return self

    def take_ready(self) -> list[SseEvent]:
        """Hand out, all at once and without waiting, the events that were read already; none once the token tripped."""
        if self._token is not None and self._token.cancelled:
            return []
        ready = self._events[self._next :]
        self._next = len(self._events)
        return ready

    async def _advance(self) -> SseEvent:
        """Take a step for which no event is at hand, or a token must be asked."""
        if self._next < len(self._events) and (self._token is None or not self._token.cancelled):
            return self._pop()
        return await self._take_turn()

    @override
    async def _step(self) -> SseEvent:
        """Read until there is an event."""
        while True:
            await checkpoint_if_cancelled()
            if self._token is not None and self._token.cancelled:
                await self._stop(self._token)
            if self._body_done:
                raise StopAsyncIteration
            if self._decoder.failure is not None:
                raise self._decoder.failure
            if self._guarded:
                chunk = await self._read_guarded()
            else:
                chunk = await self._read()
            self._take(chunk)
            if self._events:
                return self._pop()

    def _pop(self) -> SseEvent:
        """Hand the next event out."""
        self._next += 1
        return self._events[self._next - 1]

    def _handed_out(self) -> SseEvent | None:
        """Return the last event handed out."""
        return self._events[self._next - 1] if self._next else self._last

    def _put(self, events: list[SseEvent]) -> None:
        """Have these events at hand instead of the earlier ones."""
        self._last = self._handed_out()
        self._events, self._next = events, 0

    async def _stop(self, token: CancelToken) -> None:
        """Raise the token's reason once the body is closed, outside every `except` block."""
        await self._end()
        await checkpoint_if_cancelled()
        token.raise_if_cancelled()

    def _take(self, chunk: bytes | None) -> None:
        """Read the events in a chunk; at the end of the body settle what is left."""
        if chunk is not None:
            self._put(self._decoder.feed(chunk))
            return
        self._body_done = True
        self._put(self._decoder.close())
        self.incomplete = self._decoder.incomplete
        report = self._options.on_incomplete
        if report is not None and self.incomplete is not None:
            refuse_awaitable(report(self.incomplete), "on_incomplete")

    async def _read(self) -> bytes | None:
        """Wait for the next bytes that are not empty; None at the end of the body."""
        if self._iterator is None:
            self._iterator = aiter(self._body)
        async for chunk in self._iterator:
            if len(chunk) > 0:
                return chunk
        return None

    async def _read_guarded(self) -> bytes | None:
        """Do the same under the token and the silence limit."""
        token, idle_timeout = self._token, self._options.idle_timeout
        chunk: bytes | None = None
        failure: Exception | None = None
        deadline = math.inf if idle_timeout is None else current_time() + idle_timeout
        with (
            CancelScope(deadline=deadline) as scope,
            nullcontext() if token is None else token.bind(scope),
        ):
            try:
                chunk = await self._read()
            except Exception as error:  # noqa: BLE001 - raised below unless something outranks it
                failure = error
        if token is not None and token.cancelled:
            await self._stop(token)
        # A body may answer the cancellation with an end or an error of its own: it was silent all
        # the same.
        if chunk is None and idle_timeout is not None and scope.cancel_called:
            raise SseIdleTimeoutError(idle_timeout=idle_timeout)
        if failure is not None:
            raise failure
        return chunk

    @override
    async def _end(self) -> None:
        self._discarded = self._discarded or self._next < len(self._events)
        self._put([])
        if not self._ended:
            self._ended = True
            body, self._iterator = self._iterator or self._body, None
            await close_source(body, None)
