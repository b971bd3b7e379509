"""The native half; import the façades (`runlane.sse`, `runlane.canonical`, ...) instead.

Handwritten, one section per façade, and held to the binary by stubtest.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, final

from pydantic import JsonValue
from typing_extensions import disjoint_base, override

from runlane.contracts import CancelToken

__all__ = [
    "ChatFragments",
    "EventQueue",
    "HistoryLog",
    "HistoryPlan",
    "HistorySelection",
    "IncompleteSseEvent",
    "NativeError",
    "SseDecoder",
    "SseEvent",
    "adopt_errors",
    "adopt_vocabulary",
    "canonical_document_hash",
    "canonical_hash",
    "canonical_json",
    "canonical_record_document_hash",
    "canonical_record_hash",
    "canonical_record_json",
    "canonicalize",
    "canonicalize_record",
    "decode_lossless",
    "encode_lossless",
    "encode_sse",
    "scan_chat_chunk",
]

class NativeError(Exception):
    """A refusal of the native half; a façade translates it into a type of `runlane.errors`.

    Its ``args`` are ``(code, message, detail)``: the dotted code, one sentence for people, and a
    value that the code defines (an offset, a path, a limit) or None.
    """

def adopt_errors(classes: dict[str, type[Exception]], /) -> None:
    """Take over the error classes that native classes and functions raise, by code.

    A façade whose public classes are the native ones calls this once, at import. Later calls add to
    earlier ones.
    """

# --- sse ---

@final
class SseEvent:
    """One event of an event stream; immutable, comparable and hashable.

    Attributes:
        event: The last non-empty event field of the block; `message` without one.
        data: The data fields, joined with LF.
        id: The id field of this block; None if it had none.
        last_event_id: The id in force, of this block or of an earlier one; empty if there was none.
        retry_ms: The retry field of this block, in milliseconds; None if it had none.

    Raises:
        UsageError: A field has the wrong type.
        InvalidValueError: `retry_ms` is negative or over 2**53 - 1.
    """

    __match_args__: Final = ("event", "data", "id", "last_event_id", "retry_ms")

    def __new__(
        cls,
        *,
        data: str,
        event: str = "message",
        id: str | None = None,
        last_event_id: str = "",
        retry_ms: int | None = None,
    ) -> SseEvent: ...
    @property
    def event(self) -> str: ...
    @property
    def data(self) -> str: ...
    @property
    def id(self) -> str | None: ...
    @property
    def last_event_id(self) -> str: ...
    @property
    def retry_ms(self) -> int | None: ...
    @override
    def __eq__(self, other: object, /) -> bool: ...
    @override
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, object]]: ...

@disjoint_base
class EventQueue:
    """The base of a reader: events at hand, given by `async for` without a coroutine for each.

    A step takes the next event when it is awaited. If there is none, or `_token` is not None, it
    awaits the reader's `_advance` instead. Where there is no global interpreter lock it always does.
    """

    _events: list[SseEvent]
    _next: int
    _token: CancelToken | None
    def __anext__(self) -> Awaitable[SseEvent]: ...

@final
class IncompleteSseEvent:
    """What a body that was cut left without a blank line; nothing of it was dispatched.

    Attributes:
        data: The data, as if the body had gone on with a blank line.
        event: The event name, as if the body had gone on with a blank line.
        raw_tail: The last bytes of the unfinished block as they came, at most 65,536.
        dropped_bytes: How many bytes of the block before those are missing.
    """

    __match_args__: Final = ("data", "event", "raw_tail", "dropped_bytes")

    def __new__(
        cls, *, data: str, event: str = "message", raw_tail: bytes, dropped_bytes: int = 0
    ) -> IncompleteSseEvent: ...
    @property
    def data(self) -> str: ...
    @property
    def event(self) -> str: ...
    @property
    def raw_tail(self) -> bytes: ...
    @property
    def dropped_bytes(self) -> int: ...
    @override
    def __eq__(self, other: object, /) -> bool: ...
    @override
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, object]]: ...

@final
class SseDecoder:
    r"""Read an event stream piece by piece; any cutting of the bytes gives the same events.

    The grammar is that of the WHATWG HTML standard, section "Server-sent events". A fault (a limit,
    or invalid UTF-8 where that is refused) never costs the events before it: the `feed` that meets
    it returns those, and the next `feed` or `close` raises. A retry time over 2**53 - 1 is read as
    that.

    Not for use by two threads at once: the second gets a `RuntimeError`.

    Args:
        max_line_bytes: The longest line, without its terminator; judged while it grows.
        max_event_bytes: The largest sum of the lines of one event, without terminators; comments
            are not counted. strict_utf8: Raise `SseEncodingError` for invalid UTF-8 instead of
            reading U+FFFD.

    Raises:
        UsageError: A limit is not an int.
        InvalidValueError: A limit is negative or over 2**53 - 1.

    Example:
        >>> decoder = SseDecoder()
        >>> [event.data for event in decoder.feed(b"data: a\n\ndata: b")]
        ['a']
        >>> decoder.close(), decoder.incomplete.data
        ([], 'b')
    """

    def __new__(
        cls,
        max_line_bytes: int = 1_048_576,
        max_event_bytes: int = 1_048_576,
        strict_utf8: bool = False,
    ) -> SseDecoder: ...
    def feed(self, chunk: bytes, /) -> list[SseEvent]:
        """Take the next bytes and return the events they complete.

        A CR at the very end of `chunk` ends its line only once the next byte, or `close`, shows
        that no LF follows.

        Raises:
            SseLimitError: A line or an event was longer than allowed.
            SseEncodingError: A line was not UTF-8 and `strict_utf8` is set.
            UsageError: `chunk` is not bytes, or the decoder is closed.
        """

    def close(self) -> list[SseEvent]:
        """End the stream and return what a held-back CR completes; a second call returns nothing.

        What is left without a blank line is not dispatched; see `incomplete`.

        Raises:
            SseLimitError: A line or an event was longer than allowed.
            SseEncodingError: A line was not UTF-8 and `strict_utf8` is set.
        """

    @property
    def incomplete(self) -> IncompleteSseEvent | None:
        """What the closed stream left unfinished; None before `close`, and for a whole stream."""

    @property
    def last_event_id(self) -> str:
        """The id in force as of the last block that ended."""

    @property
    def retry_ms(self) -> int | None:
        """The last valid retry field, in milliseconds."""

    @property
    def failure(self) -> Exception | None:
        """The latched error that the next `feed` or `close` raises; the same object every time."""

def encode_sse(
    data: str | bytes | None = None,
    *,
    event: str | None = None,
    id: str | None = None,
    retry_ms: int | None = None,
    comment: str | None = None,
) -> bytes:
    r"""Write the fields of one event as the bytes of an event stream, blank line included.

    Args:
        data: The data, as text or as bytes that are UTF-8. Each of its lines (ended by LF, CR or
            CRLF) becomes a data field; a reader sees LF between them.
        event: The event name; the empty name is the default, `message`, and not written.
        id: The event id; an empty one resets the reader's.
        retry_ms: The reconnection time, in milliseconds.
        comment: Text that readers drop. Alone it is a heartbeat.

    Raises:
        InvalidValueError: `event` or `id` holds CR, LF or NUL, a text holds a lone surrogate, data
            bytes are not UTF-8, or `retry_ms` is negative or over 2**53 - 1.
        UsageError: A field has the wrong type, or there is none.

    Example:
        >>> encode_sse("two\nlines", event="delta")
        b'event: delta\ndata: two\ndata: lines\n\n'
    """

# --- canonical ---

def canonical_document_hash(
    document: bytes,
    /,
    *,
    max_depth: int = 128,
    max_nodes: int = 1_000_000,
    max_bytes: int = 67_108_864,
) -> str:
    """Hash a JSON document: the SHA-256 of its interchange form, as lower-case hexadecimal digits.

    Raises:
        CanonicalJsonError: The document is not JSON, has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
        UsageError: The document is not `bytes`.
    """

def canonical_hash(
    value: object,
    /,
    *,
    max_depth: int = 128,
    max_nodes: int = 1_000_000,
    max_bytes: int = 67_108_864,
) -> str:
    """Hash a value: the SHA-256 of its interchange form, as 64 lower-case hexadecimal digits.

    The text is hashed as it is written, so a large value costs no memory.

    Raises:
        CanonicalJsonError: The value has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
    """

def canonical_json(
    value: object,
    /,
    *,
    max_depth: int = 128,
    max_nodes: int = 1_000_000,
    max_bytes: int = 67_108_864,
) -> bytes:
    """Write a value in the interchange form, as UTF-8.

    Example:
        >>> canonical_json({"b": 1.0, "a": (True, None)})
        b'{"a":[true,null],"b":1}'

    Raises:
        CanonicalJsonError: The value has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
    """

def canonical_record_document_hash(
    document: bytes,
    /,
    *,
    max_depth: int = 512,
    max_nodes: int = ...,
    max_bytes: int = ...,
) -> str:
    """Hash a JSON document: the SHA-256 of its record form, as lower-case hexadecimal digits.

    Raises:
        CanonicalJsonError: The document is not JSON, has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
        UsageError: The document is not `bytes`.
    """

def canonical_record_hash(
    value: object,
    /,
    *,
    max_depth: int = 512,
    max_nodes: int = ...,
    max_bytes: int = ...,
) -> str:
    """Hash a value: the SHA-256 of its record form, as 64 lower-case hexadecimal digits.

    Raises:
        CanonicalJsonError: The value has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
    """

def canonical_record_json(
    value: object,
    /,
    *,
    max_depth: int = 512,
    max_nodes: int = ...,
    max_bytes: int = ...,
    max_digits: int = 100_000,
) -> bytes:
    """Write a value in the record form, as UTF-8: like `canonical_json`, with exact integers.

    Args:
        value: A value of plain JSON types.
        max_depth: See `runlane.canonical`, as for the next two.
        max_nodes: The greatest number of values.
        max_bytes: The greatest length of the text.
        max_digits: The greatest number of digits of an integer beyond 64 bits; 100,000 at most.

    Example:
        >>> canonical_record_json({"id": 2512292042121000001})
        b'{"id":2512292042121000001}'

    Raises:
        CanonicalJsonError: The value has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
    """

def canonicalize(
    document: bytes,
    /,
    *,
    max_depth: int = 128,
    max_nodes: int = 1_000_000,
    max_bytes: int = 67_108_864,
) -> bytes:
    """Rewrite a JSON document in the interchange form.

    An integer literal beyond ±(2**53 - 1) is refused, unless its digits are exactly what the double it stands for
    prints: then nothing is lost, and the form of a document is a fixed point, also where a large `float` was written.

    Args:
        document: JSON text in UTF-8, without a byte-order mark.
        max_depth: The greatest depth of a value.
        max_nodes: The greatest number of values.
        max_bytes: The greatest length of the document, and of the result.

    Raises:
        CanonicalJsonError: The document is not JSON, has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
        UsageError: The document is not `bytes`.
    """

def canonicalize_record(
    document: bytes,
    /,
    *,
    max_depth: int = 512,
    max_nodes: int = ...,
    max_bytes: int = ...,
) -> bytes:
    """Rewrite a JSON document in the record form: integer literals keep their digits.

    Raises:
        CanonicalJsonError: The document is not JSON, has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
        UsageError: The document is not `bytes`.
    """

def decode_lossless(
    document: bytes,
    /,
    *,
    max_depth: int = 100,
    max_nodes: int = 1_000_000,
    max_bytes: int = 67_108_864,
) -> JsonValue:
    """Read what `encode_lossless` wrote: a value of its own at each call, shared with nobody.

    Any JSON text is read, under the same rules: an integer literal is an `int`, one with a point or an exponent a
    `float`; -0, duplicate keys and what overflows are refused.

    Raises:
        CanonicalJsonError: The document is not JSON, has no lossless value, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
        UsageError: The document is not `bytes`.
    """

def encode_lossless(
    value: object,
    /,
    *,
    max_depth: int = 100,
    max_nodes: int = 1_000_000,
    max_bytes: int = 67_108_864,
) -> bytes:
    """Write a value so that `decode_lossless` gives back the same, or refuse it.

    For what a durable step, effect or delivery returns: a replay must not see another value than the first caller.
    Taken are None, `bool`, `int` of any size, finite `float` but -0.0, `str` without lone surrogates, `list`, and
    `dict` with `str` keys: exactly these types, because a subclass, a tuple or an enum would come back as another.
    The text is compact JSON and not canonical: keys keep their order, and `1.0` keeps its point.

    Raises:
        CanonicalJsonError: The value would not come back the same, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
    """

# --- openai chat --------------------------------------------------------------------------------------------------

def scan_chat_chunk(chunk: str, /) -> tuple[int, int, str] | tuple[int, int, str, str, str] | None:
    """Read a chunk of a chat completion if it has the common shape.

    Returns:
        What it adds: the kind (0 nothing, 1 text, 2 `reasoning`, 3 `reasoning_content`, 4 arguments of a call,
        5 a finish reason, 6 a call), the index of the call (0 for the other kinds), and the text; of a call, the
        arguments so far, its id and its name. None for any other chunk, and for what is no JSON.
    """

# --- history ---

def adopt_vocabulary(classes: dict[str, type], /) -> None:
    """Take over the classes that messages are made of, by name."""

@final
class HistoryLog:
    """The records of one conversation, parsed once each.

    Places are 0-based. Run ids and message ids are plain text; a policy and options are packed into an integer by
    `runlane.history`. Refusals are `NativeError` with the codes `store.record_corrupt`, `store.record_too_new`,
    `value.invalid`, `usage` and `history.refused`.
    """

    def __new__(cls, *, repeats: bool = False) -> HistoryLog: ...
    def __len__(self) -> int: ...
    @property
    def revision(self) -> int: ...
    @property
    def stored_bytes(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...
    def append(self, record: bytes, /) -> int: ...
    def extend(self, records: list[bytes], /) -> None: ...
    def replace(self, record: bytes, /) -> int: ...
    def put(self, record: bytes, /) -> int: ...
    def insert(self, place: int, record: bytes, /) -> None: ...
    def remove(self, message_ids: list[str], /) -> None: ...
    def find(self, message_id: str, /) -> int | None: ...
    def record(self, place: int, /) -> bytes | None: ...
    def message_id(self, place: int, /) -> str | None: ...
    def files(self) -> list[tuple[int, int]]:
        """Places of the files that users sent: of the record, and of the part in it."""

    def project(
        self,
        options: int,
        provider: str | None,
        active: list[str],
        effects: Mapping[str, str] | Mapping[tuple[str, str], str] | Mapping[str | tuple[str, str], str],
        files: Mapping[tuple[str, int], object] | None,
        selection: HistorySelection | None,
        /,
    ) -> HistoryPlan: ...
    def counter(self, name: str, /) -> int:
        """A place for the counts of one tokenizer; the same name gives the same place."""

    def uncounted(self, counter: int, /) -> list[int]: ...
    def said(self, place: int, /) -> tuple[list[str], int]:
        """The strings a record says to a model, and how many frames stand around them."""

    def set_counts(self, counter: int, counts: Sequence[tuple[int, int | None, str]], /) -> None:
        """Say what records count: place, value and provenance."""

    def select(
        self, available: int, keep_recent: int, policy: int, active: list[str], counter: int | None, /
    ) -> HistorySelection: ...
    def compactable(self, keep_recent: int, policy: int, active: list[str], /) -> tuple[bool, int]:
        """Whether a summary leads, and where the replaced records end."""

    def compaction_turns(self) -> list[int]: ...
    def is_complete(self, start: int, end: int, policy: int, active: list[str], /) -> bool: ...

@final
class HistoryPlan:
    """What a projection decided; a view of its handle."""

    def __len__(self) -> int: ...
    @property
    def message_count(self) -> int: ...
    def messages(self) -> tuple[object, ...]: ...
    def system(self) -> tuple[str, ...]: ...
    def decision(self, position: int) -> tuple[str, str, tuple[str, ...]]: ...
    def openai_chat(
        self,
        head: bytes,
        tail: bytes,
        *,
        follows: bool,
        send_reasoning: bool,
        pieces: dict[tuple[str, int], bytes],
    ) -> bytes: ...

@final
class ChatFragments:
    """The messages of one handle in the form of chat completions, kept from one body to the next."""

    def __new__(cls, *, send_reasoning: bool) -> ChatFragments: ...
    def body(
        self,
        plan: HistoryPlan,
        head: bytes,
        tail: bytes,
        *,
        follows: bool,
        pieces: dict[tuple[str, int], bytes],
    ) -> bytes: ...

@final
class HistorySelection:
    """Which records a budget keeps; a view of its handle."""

    def __len__(self) -> int: ...
    @property
    def outcome(self) -> str: ...
    @property
    def total(self) -> int: ...
    @property
    def estimated(self) -> bool: ...
    def kept(self) -> list[int]: ...
    def decision(self, place: int) -> tuple[str, bool, str, int | None, str]: ...
