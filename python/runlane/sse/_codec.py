"""The native decoder, encoder and their values, taken over as they are.

A Python layer around `SseDecoder.feed` would cost more than reading a small chunk does. So the
native classes are the public ones, and what Python has to add, the error classes, is handed to the
native half once, here.
"""

from runlane._native import (
    EventQueue,
    IncompleteSseEvent,
    SseDecoder,
    SseEvent,
    adopt_errors,
    encode_sse,
)
from runlane.errors import InvalidValueError, SseEncodingError, SseLimitError, UsageError

__all__ = ["EventQueue", "IncompleteSseEvent", "SseDecoder", "SseEvent", "encode_sse"]

adopt_errors({error.code: error for error in (InvalidValueError, SseEncodingError, SseLimitError, UsageError)})
