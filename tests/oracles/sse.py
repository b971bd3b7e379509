"""An event stream read the slow and obvious way: the whole body at once, line by line.

Written from the rules of the WHATWG HTML standard, section "Server-sent events", and from what
runlane says of limits, strict UTF-8 and bodies that are cut. It shares no code with the decoder.
"""

import re
from dataclasses import dataclass, field

RAW_TAIL = 65_536
MAX_RETRY_MS = 2**53 - 1


@dataclass
class Reading:
    """What a body means.

    `events` holds (event, data, id, last_event_id, retry_ms); `failure` holds ("line", limit),
    ("event", limit) or ("utf8", offset); `incomplete` holds (data, event, raw_tail, dropped_bytes).
    """

    events: list[tuple[str, str, str | None, str, int | None]] = field(default_factory=list)
    failure: tuple[str, int] | None = None
    incomplete: tuple[str, str, bytes, int] | None = None
    last_event_id: str = ""
    retry_ms: int | None = None


@dataclass
class Block:
    """The fields between two blank lines."""

    raw: bytes = b""
    size: int = 0
    event: bytes = b""
    data: list[bytes] = field(default_factory=list)
    id: bytes | None = None
    retry_ms: int | None = None


def read(
    body: bytes,
    max_line_bytes: int = 1_048_576,
    max_event_bytes: int = 1_048_576,
    *,
    strict_utf8: bool = False,
) -> Reading:
    """Read a whole body."""
    reading = Reading()
    block = Block()
    offset = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    for line, terminator in split_lines(body[offset:]):
        reading.failure = fault(line, block.size, (max_line_bytes, max_event_bytes)) or bad_utf8(
            line, offset, whole=bool(terminator), strict=strict_utf8
        )
        if reading.failure is not None:
            return reading
        offset += len(line) + len(terminator)
        block.raw += line + terminator
        if not line.startswith(b":"):
            block.size += len(line)
        if not line and terminator:
            dispatch(block, reading)
            block = Block()
        else:
            read_field(line, block, reading)
    if block.size:
        reading.incomplete = (
            text(b"\n".join(block.data)),
            text(block.event) or "message",
            block.raw[-RAW_TAIL:],
            max(0, len(block.raw) - RAW_TAIL),
        )
    return reading


def split_lines(body: bytes) -> list[tuple[bytes, bytes]]:
    """Return each line with its terminator; the last one has none, and may be empty."""
    parts = re.split(rb"(\r\n|\r|\n)", body)
    return list(zip(parts[0::2], [*parts[1::2], b""], strict=True))


def fault(line: bytes, before: int, limits: tuple[int, int]) -> tuple[str, int] | None:
    """Return the limit that a line passes first, counting its bytes one by one."""
    max_line_bytes, max_event_bytes = limits
    for size in range(1, len(line) + 1):
        if size > max_line_bytes:
            return "line", max_line_bytes
        if not line.startswith(b":") and before + size > max_event_bytes:
            return "event", max_event_bytes
    return None


def bad_utf8(line: bytes, offset: int, *, whole: bool, strict: bool) -> tuple[str, int] | None:
    """Return where a line is not UTF-8; a sequence that the end of the body cuts is not bad."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        cut = not whole and error.reason == "unexpected end of data" and error.end == len(line)
        if strict and not cut:
            return "utf8", offset + error.start
    return None


def read_field(line: bytes, block: Block, reading: Reading) -> None:
    """Take note of one line that is not blank."""
    name, _, value = line.partition(b":")
    value = value.removeprefix(b" ")
    if name == b"data":
        block.data.append(value)
    elif name == b"event":
        block.event = value
    elif name == b"id" and b"\0" not in value:
        block.id = value
    elif name == b"retry" and re.fullmatch(rb"[0-9]+", value):
        block.retry_ms = reading.retry_ms = min(int(value), MAX_RETRY_MS)


def dispatch(block: Block, reading: Reading) -> None:
    """End a block at its blank line."""
    if block.id is not None:
        reading.last_event_id = text(block.id)
    if block.data:
        reading.events.append(
            (
                text(block.event) or "message",
                text(b"\n".join(block.data)),
                None if block.id is None else text(block.id),
                reading.last_event_id,
                block.retry_ms,
            )
        )


def text(value: bytes) -> str:
    """Decode with U+FFFD for what is not UTF-8."""
    return value.decode("utf-8", "replace")
