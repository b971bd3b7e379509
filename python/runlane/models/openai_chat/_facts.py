"""What a chat-completions body says beside its output: usage and errors, in every dialect met so far."""

from __future__ import annotations

from pydantic import JsonValue

from runlane.models._failure import FAILURES, ErrorReply
from runlane.models._stream import ModelUsage
from runlane.models._usage import read_count, read_money
from runlane.records import JsonObject

__all__ = ["PROVIDER_ID", "find_error", "find_usage", "read_error", "read_usage"]

PROVIDER_ID = "openai-chat"


def find_usage(chunk: JsonObject) -> JsonObject | None:
    """Return the usage object of a chunk: its own, Groq's (`x_groq.usage`) or Moonshot's (inside the choice)."""
    usage = chunk.get("usage")
    if isinstance(usage, dict):
        return usage
    holder = chunk.get("x_groq") if "x_groq" in chunk else _first_choice(chunk)
    usage = holder.get("usage") if isinstance(holder, dict) else None
    return usage if isinstance(usage, dict) else None


def read_usage(raw: JsonObject, *, currency: str | None) -> ModelUsage:
    """Read the figures; one that is missing or malformed is None.

    Args:
        raw: The provider's own object; it is kept.
        currency: What an amount of money is in, if the provider gives one.
    """
    prompt = _nested(raw, "prompt_tokens_details")
    completion = _nested(raw, "completion_tokens_details")
    cost = read_money(raw["cost"]) if "cost" in raw else None
    return ModelUsage(
        input_tokens=read_count(raw.get("prompt_tokens")),
        output_tokens=read_count(raw.get("completion_tokens")),
        reasoning_tokens=_first_count(completion.get("reasoning_tokens"), raw.get("reasoning_tokens")),
        # DeepSeek and Moonshot put cache reads at the top level.
        cache_read_tokens=_first_count(
            prompt.get("cached_tokens"), raw.get("prompt_cache_hit_tokens"), raw.get("cached_tokens")
        ),
        cache_write_tokens=_first_count(prompt.get("cache_write_tokens"), raw.get("cache_creation_input_tokens")),
        cost=cost,
        currency=None if cost is None else currency,
        raw=raw,
    )


def find_error(body: JsonObject, event: str) -> JsonValue:
    """Return the error a body carries, or None.

    It stands under `error` of the body or of its first choice; it is the body itself in an event named `error` and in
    an object that calls itself an error.
    """
    error = body.get("error")
    if error:
        return error
    first = _first_choice(body)
    if isinstance(first, dict) and "error" in first and first["error"]:
        return first["error"]
    return body if event == "error" or body.get("object") == "error" else None


def read_error(error: JsonValue, *, where: str, status: int | None = None, fallback: str = "unknown") -> ErrorReply:
    """Read an error object or text.

    Args:
        error: The value of `error`, or a whole body without one.
        where: What happened, for the head of the message.
        status: The HTTP status of the response; inside a stream, None, and the error's own status is taken.
        fallback: The reason if nothing says another.
    """
    if not isinstance(error, dict):
        words = error if isinstance(error, str) else ""
        return ErrorReply(where=where, message=words, status=status, fallback=fallback)
    own = next((code for key in ("status_code", "status", "code") if (code := _status(error.get(key)))), None)
    codes = (error.get("code"), error.get("type"))
    return ErrorReply(
        where=where,
        message=_words(error),
        status=status if status is not None else own,
        codes=tuple(code for code in codes if isinstance(code, str) and code),
        fallback=fallback,
    )


def _words(error: JsonObject) -> str:
    """Find the sentence for people; OpenRouter keeps the upstream provider's one in its metadata."""
    metadata = _nested(error, "metadata")
    said = (error.get("message"), error.get("detail"), error.get("error"), metadata.get("raw"))
    return ": ".join(text for text in said if isinstance(text, str) and text)


def _status(value: JsonValue) -> int | None:
    plain = isinstance(value, int) and not isinstance(value, bool) and value in FAILURES
    return int(value) if plain and isinstance(value, int) else None


def _first_choice(body: JsonObject) -> JsonValue:
    choices = body.get("choices")
    return choices[0] if choices and isinstance(choices, list) else None


def _nested(holder: JsonObject, key: str) -> JsonObject:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def _first_count(*figures: JsonValue) -> int | None:
    for figure in figures:
        if figure is not None and (count := read_count(figure)) is not None:
            return count
    return None
