"""Bytes and values that do not follow their format."""

from __future__ import annotations

from runlane.errors._base import RunlaneError

__all__ = [
    "CanonicalJsonError",
    "FormatError",
    "SseEncodingError",
    "SseIdleTimeoutError",
    "SseLimitError",
]


class FormatError(RunlaneError):
    """Bytes or values do not follow the format they claim to have."""

    code = "format"
    retryable: bool | None = False


class SseLimitError(FormatError):
    """A line or an event of an event stream is longer than allowed.

    Attributes:
        scope: `line` or `event`.
        limit: The limit that was passed, in bytes.
    """

    code = "sse.limit_exceeded"

    def __init__(self, *, scope: str, limit: int) -> None:
        super().__init__(f"an event stream {scope} is longer than max_{scope}_bytes={limit}")
        self.scope = scope
        self.limit = limit


class SseEncodingError(FormatError):
    """An event stream is not UTF-8 and replacement was not asked for.

    Attributes:
        offset: Position of the first bad byte from the start of the stream.
    """

    code = "sse.encoding"

    def __init__(self, *, offset: int) -> None:
        super().__init__(f"an event stream has invalid UTF-8 at byte {offset}")
        self.offset = offset


class SseIdleTimeoutError(RunlaneError):
    """An event stream was silent for too long.

    Attributes:
        idle_timeout: The limit, in seconds.
    """

    code = "sse.idle_timeout"
    retryable: bool | None = True

    def __init__(self, *, idle_timeout: float) -> None:
        super().__init__(f"the event stream sent nothing for {idle_timeout:g} s")
        self.idle_timeout = idle_timeout


class CanonicalJsonError(FormatError):
    """A value or a document has no canonical JSON form.

    Attributes:
        path: JSON pointer to the culprit; empty for the whole value.
        problem: What is wrong there.
    """

    code = "canonical.refused"

    def __init__(self, *, path: str, problem: str) -> None:
        super().__init__(f"no canonical JSON at {path or 'the top level'}: {problem}")
        self.path = path
        self.problem = problem
