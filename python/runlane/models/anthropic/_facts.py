"""What a body of Anthropic's messages says beside its output: usage and errors."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from runlane.models._failure import ErrorReply
from runlane.models._stream import ModelUsage
from runlane.models._usage import read_count
from runlane.records import JsonObject

__all__ = ["PROVIDER_ID", "read_error", "read_usage"]

PROVIDER_ID: Final = "anthropic"


def read_usage(raw: JsonObject) -> ModelUsage:
    """Read the figures as Anthropic counts them: tokens read from or written to the cache are not in the input.

    Args:
        raw: The provider's own object; it is kept.
    """
    details = raw.get("output_tokens_details")
    thinking = details.get("thinking_tokens") if isinstance(details, dict) else None
    return ModelUsage(
        input_tokens=read_count(raw.get("input_tokens")),
        output_tokens=read_count(raw.get("output_tokens")),
        reasoning_tokens=read_count(thinking),
        cache_read_tokens=read_count(raw.get("cache_read_input_tokens")),
        cache_write_tokens=read_count(raw.get("cache_creation_input_tokens")),
        raw=raw,
    )


def read_error(error: JsonValue, where: str, status: int | None = None, *, fallback: str = "unknown") -> ErrorReply:
    """Read an error object or text.

    Args:
        error: The value of `error`, or a whole body without one.
        where: What happened, for the head of the message.
        status: The HTTP status of the response; None inside a stream.
        fallback: The reason if nothing says another.
    """
    if not isinstance(error, dict):
        words = error if isinstance(error, str) else ""
        return ErrorReply(where=where, message=words, status=status, fallback=fallback)
    message, kind = error.get("message"), error.get("type")
    return ErrorReply(
        where=where,
        message=message if isinstance(message, str) else "",
        status=status,
        codes=(kind,) if isinstance(kind, str) and kind else (),
        fallback=fallback,
    )
