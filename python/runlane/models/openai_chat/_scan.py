"""The fast look at a chunk: most bring one more text, and are read without building the objects around it.

`scan_chat_chunk` answers only for chunks of the common shape, and then with what the general decoder would have read.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from runlane._native import scan_chat_chunk

__all__ = ["ARGUMENTS", "FINISH", "NOTHING", "REASONING", "REASONING_CONTENT", "TEXT", "Scanned", "scan_chat_chunk"]

Scanned: TypeAlias = tuple[int, int, str] | tuple[int, int, str, str, str]
"""The kind of text, the provider's index of the call it belongs to (0 for none), and the text (or finish reason).

A call has five: behind its first arguments stand its id and its name.
"""

NOTHING: Final = 0
TEXT: Final = 1
REASONING: Final = 2
REASONING_CONTENT: Final = 3
ARGUMENTS: Final = 4
FINISH: Final = 5
