"""Streaming text, wrapped at words and indented while it arrives."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

__all__ = ["Flow"]

_WORD: Final = re.compile(r"\s+|\S+")
_NARROWEST: Final = 16


class Flow:
    """Lays out one text that arrives in pieces.

    A word is written once it is known to be whole, so it trails the stream by one word.

    Example:
        >>> written = []
        >>> flow = Flow(written.append, width=22, indent="  ")
        >>> for piece in ("A du", "rable run", "time keeps ", "its word."):
        ...     flow.write(piece)
        >>> flow.end()
        >>> print("".join(written), end="")
          A durable runtime
          keeps its word.
    """

    def __init__(self, write: Callable[[str], None], *, width: int, indent: str = "") -> None:
        """Write to `write`, in lines of at most `width` columns, each behind `indent`."""
        self._write = write
        self._room = max(_NARROWEST, width - len(indent))
        self._indent = indent
        self._column = 0
        self._word = ""

    def write(self, piece: str, /) -> None:
        """Add a piece."""
        for token in _WORD.findall(piece):
            if token.isspace():
                self._set_word()
                self._break_lines(token.count("\n"))
            else:
                self._word += token

    def end(self) -> None:
        """Write what is left, and end the line."""
        self._set_word()
        if self._column:
            self._break_lines(1)

    def _break_lines(self, count: int, /) -> None:
        if count:
            self._write("\n" * count)
            self._column = 0

    def _set_word(self) -> None:
        if not self._word:
            return
        if self._column and self._column + 1 + len(self._word) > self._room:
            self._break_lines(1)
        before = " " if self._column else self._indent
        self._write(before + self._word)
        self._column += len(self._word) + (1 if before == " " else 0)
        self._word = ""
