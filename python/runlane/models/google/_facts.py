"""What a body of Google's generateContent says beside its output: usage, errors, and how a finish reason is read."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from runlane.models._failure import FAILURES, ErrorReply
from runlane.models._stream import FinishReason, ModelUsage
from runlane.models._usage import read_count
from runlane.records import JsonObject

__all__ = ["PROVIDER_ID", "neutral_reason", "read_error", "read_usage"]

PROVIDER_ID: Final = "google"

_REASONS: Final[dict[str, FinishReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            "BLOCKLIST",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "IMAGE_SAFETY",
            "JAILBREAK",
            "MODEL_ARMOR",
            "PROHIBITED_CONTENT",
            "RECITATION",
            "SAFETY",
            "SPII",
        ),
        "content-filter",
    ),
}


def neutral_reason(reason: str) -> FinishReason:
    """Return the neutral word for a finish reason; one that names a fault of the model or is unknown is `other`."""
    return _REASONS.get(reason, "other")


def read_usage(raw: JsonObject) -> ModelUsage:
    """Read the figures as Google counts them: cache reads are within the input, thoughts are beside the output.

    Args:
        raw: The provider's own object; it is kept.
    """
    return ModelUsage(
        input_tokens=read_count(raw.get("promptTokenCount")),
        output_tokens=read_count(raw.get("candidatesTokenCount")),
        reasoning_tokens=read_count(raw.get("thoughtsTokenCount")),
        cache_read_tokens=read_count(raw.get("cachedContentTokenCount")),
        raw=raw,
    )


def read_error(error: JsonValue, where: str, status: int | None = None, *, fallback: str = "unknown") -> ErrorReply:
    """Read an error object (`google.rpc.Status`) or text.

    Args:
        error: The value of `error`, or a whole body without one.
        where: What happened, for the head of the message.
        status: The HTTP status of the response; inside a stream, None, and the error's own is taken.
        fallback: The reason if nothing says another.
    """
    if not isinstance(error, dict):
        words = error if isinstance(error, str) else ""
        return ErrorReply(where=where, message=words, status=status, fallback=fallback)
    message, code = error.get("message"), error.get("code")
    own = code if isinstance(code, int) and not isinstance(code, bool) and code in FAILURES else None
    details = error.get("details")
    facts = [detail for detail in (details if isinstance(details, list) else ()) if isinstance(detail, dict)]
    codes = [detail.get("reason") for detail in facts] + [error.get("status")]
    return ErrorReply(
        where=where,
        message=message if isinstance(message, str) else "",
        status=status if status is not None else own,
        codes=tuple(code for code in codes if isinstance(code, str) and code),
        retry_after=next((wait for detail in facts if (wait := _seconds(detail.get("retryDelay"))) is not None), None),
        fallback=fallback,
    )


def _seconds(duration: JsonValue) -> float | None:
    """Read a duration such as `34.5s` (JSON form of `google.protobuf.Duration`)."""
    if not isinstance(duration, str) or not duration.endswith("s"):
        return None
    try:
        seconds = float(duration[:-1])
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
