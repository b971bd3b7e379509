"""Lines of text out of a file descriptor, without a thread and without holding up the event loop."""

from __future__ import annotations

import codecs
import os
from collections.abc import AsyncIterator
from typing import Final

import anyio

__all__ = ["read_lines", "whole_text"]

_READ: Final = 65536


async def read_lines(descriptor: int, /, *, encoding: str = "utf-8") -> AsyncIterator[str]:
    """Yield lines without their ends as they come, the last one also if nothing ends it; bad bytes become U+FFFD.

    Works for terminals, pipes and sockets, and for what is always ready (a regular file, the null device). The rest
    of a line that was read too early is lost with the generator.
    """
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    pending: list[str] = []
    while data := await _read(descriptor):
        first, *more = decoder.decode(data).split("\n")
        pending.append(first)
        for text in more:
            yield "".join(pending).removesuffix("\r")
            pending = [text]
    last = "".join(pending) + decoder.decode(b"", final=True)
    if last:
        yield last


def whole_text(text: str, /) -> str:
    r"""Return text in which every lone surrogate (an argument that was not UTF-8) is U+FFFD.

    Example:
        >>> whole_text("a\udcffb") == "a\N{REPLACEMENT CHARACTER}b"
        True
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


async def _read(descriptor: int, /) -> bytes:
    try:
        await anyio.wait_readable(descriptor)
    except PermissionError:  # epoll refuses what never blocks
        await anyio.lowlevel.checkpoint()
    return os.read(descriptor, _READ)
