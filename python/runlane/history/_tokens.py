"""Counting stored records, with the counters of `runlane.models`."""

from __future__ import annotations

from collections.abc import Iterable

from runlane.models import BYTE_BOUND, ByteBound, OpenAITokens, TokenCounter, count_tool_schemas
from runlane.models._tokens import FRAME_TOKENS

__all__ = ["BYTE_BOUND", "ByteBound", "OpenAITokens", "TokenCounter", "count_record", "count_tool_schemas"]


def count_record(texts: Iterable[str], frames: int, counter: TokenCounter, /) -> int:
    """Return what a record counts: its texts, and the framing around them."""
    return sum(map(counter.count, texts)) + FRAME_TOKENS * frames
