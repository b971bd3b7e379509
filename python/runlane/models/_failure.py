"""Why a provider failed, told apart by type, then status, then the provider's own code, then its words.

Two views of a failure live here. `classify_provider_failure` answers for any object (an exception of a library, a plain
text, a parsed error body) with one of a few reasons. `provider_error` builds the error that a wire protocol raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal, TypeAlias

from runlane.errors import (
    AbortedError,
    ContextOverflowError,
    ModelCallTimeoutError,
    ModelIdleTimeoutError,
    ProviderError,
    ProviderStreamCutError,
    SseIdleTimeoutError,
)
from runlane.models._repair import parse_json, repair_text

__all__ = [
    "ErrorReply",
    "FailureFacts",
    "ProviderFailure",
    "ProviderFailureReason",
    "classify_provider_failure",
    "is_tool_result_failure",
    "provider_error",
]

ProviderFailureReason: TypeAlias = Literal[
    "insufficient-credits",
    "rate-limited",
    "model-unavailable",
    "context-overflow",
    "timeout",
    "cancelled",
    "stream-cut",
    "unknown",
]

_RETRYABLE: Final[Mapping[ProviderFailureReason, bool]] = {
    "insufficient-credits": True,
    "rate-limited": True,
    "model-unavailable": False,
    "context-overflow": False,
    "timeout": True,
    "cancelled": False,
    "stream-cut": True,
    "unknown": False,
}

_BY_STATUS: Final[Mapping[int, ProviderFailureReason]] = {
    402: "insufficient-credits",
    404: "model-unavailable",
    408: "timeout",
    413: "context-overflow",
    429: "rate-limited",
}

_WORDS: Final[Mapping[ProviderFailureReason, str]] = {
    "insufficient-credits": "insufficient|not enough credit|payment required|quota exceeded",
    "rate-limited": r"rate[\W_]?limit|too many requests|slow down",
    "model-unavailable": "no endpoints found|model not found|unknown model|no allowed providers",
    "context-overflow": "context length|maximum context|too many tokens|prompt is too long",
    "timeout": "timed out|time out|timeout|deadline exceeded|etimedout",
    "cancelled": "abort|cancell?ed",
}
"""The phrases of each reason, in order of precedence."""

_BY_TYPE: Final[tuple[tuple[tuple[type[Exception], ...], ProviderFailureReason], ...]] = (
    ((ProviderStreamCutError,), "stream-cut"),
    ((ModelIdleTimeoutError, ModelCallTimeoutError, SseIdleTimeoutError), "timeout"),
    ((ContextOverflowError,), "context-overflow"),
    ((AbortedError,), "cancelled"),
)

_BY_WORDS: Final = tuple((reason, re.compile(phrases, re.IGNORECASE)) for reason, phrases in _WORDS.items())

# Codes and types that providers document; an exact code says more than a status.
_BY_CODE: Final[Mapping[str, str]] = {
    "API_KEY_INVALID": "unauthorized",
    "DEADLINE_EXCEEDED": "timeout",
    "NOT_FOUND": "model-unavailable",
    "PERMISSION_DENIED": "unauthorized",
    "RESOURCE_EXHAUSTED": "rate-limited",
    "UNAUTHENTICATED": "unauthorized",
    "authentication_error": "unauthorized",
    "billing_error": "insufficient-credits",
    "context_length_exceeded": "context-overflow",
    "insufficient_quota": "insufficient-credits",
    "invalid_api_key": "unauthorized",
    "model_not_found": "model-unavailable",
    "not_found_error": "model-unavailable",
    "permission_error": "unauthorized",
    "rate_limit_error": "rate-limited",
    "rate_limit_exceeded": "rate-limited",
    "request_too_large": "context-overflow",
    "timeout_error": "timeout",
}

# Codes of troubles that pass, where no status says so: inside a stream.
_PASSING: Final = frozenset({"INTERNAL", "UNAVAILABLE", "api_error", "overloaded_error", "server_error"})

CLIENT_FAULTS: Final = range(400, 500)
FAILURES: Final = range(400, 600)
_UNAUTHORIZED: Final = (401, 403)
_TRANSIENT: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_MASKED: Final = re.compile(r"\S*\*{3,}\S*")
_MESSAGE_LIMIT: Final = 600
_DEPTH: Final = 16


@dataclass(frozen=True, slots=True)
class ProviderFailure:
    """What is known of a failure.

    Attributes:
        status: The HTTP status found, also one that decides nothing.
        retryable: Whether repeating the identical request later could work.
        evidence: What the reason rests on; `none` for a type of runlane's own and for `unknown`.
    """

    reason: ProviderFailureReason
    retryable: bool
    evidence: Literal["status", "message", "none"]
    status: int | None = None


@dataclass(frozen=True, slots=True)
class FailureFacts:
    """What a provider said about its own failure.

    Attributes:
        retry_after: Seconds it asked to wait.
        provider_code: Its own error code, or type if it gave no code.
    """

    retry_after: float | None = None
    provider_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReply:
    """A refusal as a wire protocol read it, before it becomes an error.

    Attributes:
        where: What happened, as the head of the message: `answered 429`, `failed in the middle of its answer`.
        message: The provider's words, or an empty text.
        codes: Its own codes and types, the most exact first.
    """

    where: str
    message: str = ""
    status: int | None = None
    codes: tuple[str, ...] = ()
    retry_after: float | None = None
    fallback: str = "unknown"


def classify_provider_failure(failure: object, /) -> ProviderFailure:
    """Say why a provider failed; pure, and an answer for any object.

    Types of runlane's own come first, then an HTTP status found on the object or what it wraps, then the words of its
    message, then an honest `unknown`. A status that decides nothing, such as 500, is reported all the same.

    Example:
        >>> classify_provider_failure({"status": 429, "message": "insufficient funds"}).reason
        'rate-limited'
    """
    own = _own_failure(failure)
    if own is not None:
        return own
    status = _find_status(failure)
    if status is not None and status in _BY_STATUS:
        reason = _BY_STATUS[status]
        return ProviderFailure(reason, _RETRYABLE[reason], "status", status)
    reason = reason_from_words(_message(failure))
    if reason != "unknown":
        return ProviderFailure(reason, _RETRYABLE[reason], "message", status)
    return ProviderFailure("unknown", _RETRYABLE["unknown"], "none", status)


def is_tool_result_failure(output: object, /) -> bool:
    """Whether a tool's output looks like a failure: for loops that applications write; runlane itself never asks.

    True for an object with a key `error`, or whose `value` is such an object; a text is parsed as JSON first.
    """
    if isinstance(output, str):
        try:
            output, _ = parse_json(output)
        except ValueError:
            return False
    if not isinstance(output, Mapping):
        return False
    value = output.get("value")
    return "error" in output or (isinstance(value, Mapping) and "error" in value)


def provider_error(
    reply: ErrorReply, /, *, provider: str, hint: str = "", secrets: tuple[str, ...] = ()
) -> ProviderError:
    """Build the error for a refusal.

    Args:
        reply: What the provider said.
        provider: The wire protocol's key.
        hint: What the reader could do about it.
        secrets: Texts that must not be in the message, even if the provider repeats them.
    """
    reason = _reason(reply)
    words = _presentable(reply.message, secrets)
    parts = [f"{provider} {reply.where}", f" ({reason})" if reason != "unknown" else ""]
    parts.append(f": {words}" if words else "")
    parts.append(f"; {hint}" if hint else "")
    code = reply.codes[0] if reply.codes else None
    return ProviderError(
        "".join(parts),
        provider=provider,
        reason=reason,
        status=reply.status,
        retryable=True if reply.status is None and code in _PASSING else _retryable(reason, reply.status),
        facts=FailureFacts(reply.retry_after, code),
    )


def reason_from_words(message: str, /) -> ProviderFailureReason:
    """Classify a message; the first phrase in order of precedence decides."""
    for reason, pattern in _BY_WORDS:
        if pattern.search(message):
            return reason
    return "unknown"


def status_phrase(status: int, /) -> str:
    """Return a status with its name, such as `429 Too Many Requests`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _reason(reply: ErrorReply) -> str:
    for code in reply.codes:
        if code in _BY_CODE:
            return _BY_CODE[code]
    if reply.status in _UNAUTHORIZED:
        return "unauthorized"
    if reply.status is not None and reply.status in _BY_STATUS:
        return _BY_STATUS[reply.status]
    words = reason_from_words(reply.message)
    return words if words not in ("unknown", "cancelled") else reply.fallback


def _retryable(reason: str, status: int | None) -> bool | None:
    if status in _TRANSIENT:
        return True
    if reason in ("rate-limited", "insufficient-credits", "timeout", "unreachable"):
        return True
    if status is not None and status in CLIENT_FAULTS:
        return False
    return False if reason in ("unauthorized", "model-unavailable", "context-overflow") else None


def _presentable(message: str, secrets: tuple[str, ...]) -> str:
    """Shorten the provider's words to one readable line without keys, whole or masked."""
    text = repair_text(message)
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[redacted]")
    text = " ".join(_MASKED.sub("[redacted]", text).split())
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[:_MESSAGE_LIMIT]}..."


def _own_failure(failure: object) -> ProviderFailure | None:
    """Return what an error of runlane's own says by its type; None if that says nothing."""
    for kinds, reason in _BY_TYPE:
        if isinstance(failure, kinds):
            return ProviderFailure(reason, _RETRYABLE[reason], evidence="none")
    if isinstance(failure, ProviderError):
        for reason, retryable in _RETRYABLE.items():
            if failure.reason == reason != "unknown":
                evidence: Literal["status", "message"] = (
                    "status" if _BY_STATUS.get(failure.status or 0) == reason else "message"
                )
                return ProviderFailure(reason, retryable, evidence, failure.status)
    return None


def _field(holder: object, name: str) -> object:
    try:
        return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - a property of a foreign object may do anything; classification never fails
        return None


def _find_status(failure: object) -> int | None:
    holder: object = failure
    for _ in range(_DEPTH):
        for name in ("status_code", "statusCode", "status", "code"):
            value = _field(holder, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value in FAILURES:
                return int(value)
        following = (_field(holder, name) for name in ("cause", "__cause__", "response", "error"))
        holder = next((item for item in following if item is not None), None)
        if holder is None:
            return None
    return None


def _message(failure: object) -> str:
    if isinstance(failure, str):
        return failure
    if isinstance(failure, BaseException):
        try:
            return str(failure)
        except Exception:  # noqa: BLE001 - a foreign __str__ may do anything
            return ""
    message = _field(failure, "message")
    return message if isinstance(message, str) else ""
