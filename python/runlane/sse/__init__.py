"""Event streams: decode, encode, read an async body, and stop an async stream with a reason.

The grammar is the event stream of the WHATWG HTML standard. `SseDecoder` turns bytes into events
without any I/O, `read_sse` does so over an async byte stream with limits, silence detection and
cancellation, `encode_sse` writes one event, and `abortable_stream` ends any async iterable with the
reason of a cancel token.
"""

from runlane.errors import (
    SseEncodingError,
    SseIdleTimeoutError,
    SseLimitError,
    StreamBusyError,
)
from runlane.sse._abortable import AbortableStream, abortable_stream
from runlane.sse._codec import IncompleteSseEvent, SseDecoder, SseEvent, encode_sse
from runlane.sse._reader import SseReader, SseReadOptions, read_sse

__all__ = [
    "AbortableStream",
    "IncompleteSseEvent",
    "SseDecoder",
    "SseEncodingError",
    "SseEvent",
    "SseIdleTimeoutError",
    "SseLimitError",
    "SseReadOptions",
    "SseReader",
    "StreamBusyError",
    "abortable_stream",
    "encode_sse",
    "read_sse",
]
