"""What a body of OpenAI's responses says beside its output: usage and errors."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from runlane.models._failure import ErrorReply
from runlane.models._stream import ModelUsage
from runlane.models._usage import read_count
from runlane.models.openai_chat._facts import read_error as read_openai_error
from runlane.records import JsonObject

__all__ = ["PROVIDER_ID", "read_error", "read_usage"]

PROVIDER_ID: Final = "openai-responses"


def read_usage(raw: JsonObject) -> ModelUsage:
    """Read the figures as OpenAI counts them: cache reads are within the input, reasoning within the output.

    Args:
        raw: The provider's own object; it is kept.
    """
    given, made = (raw.get(f"{side}_tokens_details") for side in ("input", "output"))
    read = given if isinstance(given, dict) else {}
    return ModelUsage(
        input_tokens=read_count(raw.get("input_tokens")),
        output_tokens=read_count(raw.get("output_tokens")),
        reasoning_tokens=read_count(made.get("reasoning_tokens")) if isinstance(made, dict) else None,
        cache_read_tokens=read_count(read.get("cached_tokens")),
        cache_write_tokens=read_count(read.get("cache_write_tokens")),
        raw=raw,
    )


def read_error(error: JsonValue, where: str, status: int | None = None, *, fallback: str = "unknown") -> ErrorReply:
    """Read an error object or text; an `error` event is one itself.

    Args:
        error: The value of `error`, or a whole event or body without one.
        where: What happened, for the head of the message.
        status: The HTTP status of the response; None inside a stream.
        fallback: The reason if nothing says another.
    """
    if isinstance(error, dict) and error.get("type") == "error":
        error = {key: value for key, value in error.items() if key != "type"}
    return read_openai_error(error, where=where, status=status, fallback=fallback)
