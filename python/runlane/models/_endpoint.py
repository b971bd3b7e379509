"""Where a wire protocol's requests go: address, key, headers, and what to say when an endpoint refuses."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from pydantic import JsonValue

from runlane.contracts import require_kind
from runlane.errors import InvalidValueError, MissingCredentialError
from runlane.models._failure import ErrorReply, status_phrase
from runlane.models._http import check_url, is_loopback
from runlane.models._repair import parse_json
from runlane.models._wire import Refusal

__all__ = [
    "Endpoint",
    "base_url_or",
    "bearer_endpoint",
    "error_body",
    "find_key",
    "read_refusal",
    "request_headers",
    "secrets_of",
    "split_base_url",
]

_REDIRECTS: Final = range(300, 400)
_SECRET_WORDS: Final = ("auth", "key", "token", "secret", "cookie")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One address of a wire protocol, and how it is called.

    Attributes:
        provider: The wire protocol's key.
        model: The provider's name of the model.
        base_url: As it is shown to people.
        url: Where requests go.
        headers: Of each request; they may hold secrets.
        secrets: What must not be in an error.
        key_variable: The environment variable that holds the key.
        base_hint: How a right `base_url` looks.
    """

    provider: str
    model: str
    base_url: str
    url: str
    headers: Mapping[str, str]
    secrets: tuple[str, ...]
    key_variable: str
    base_hint: str = ""

    def hint(self, refusal: Refusal) -> str:
        """Say what the reader could do about a refusal; empty if nothing is known."""
        status = refusal.status
        if status in (401, 403):
            return f"check the key in {self.key_variable}"
        if status == HTTPStatus.NOT_FOUND:
            return f"check the model name {self.model!r} and base_url={self.base_url!r}"
        if status in _REDIRECTS:
            host = urlsplit(refusal.headers.get("location", "")).hostname or "another place"
            return f"it redirects to {host}, which is not followed with a key; check base_url"
        if status == HTTPStatus.OK:
            return f"this is a web page and no endpoint; check base_url={self.base_url!r}{self.base_hint}"
        return ""


def base_url_or(given: str | None, variable: str, default: str) -> str:
    """Return the base URL that was given, or the environment's, or the default.

    An empty variable counts as none, as everywhere; an empty argument is a setting that went missing, and does not send
    prompts and a key to a service that nobody named.

    Raises:
        UsageError: It is no text.
    """
    given = require_kind(given, str | None, argument="base_url")
    return os.environ.get(variable) or default if given is None else given


def split_base_url(base_url: str, path: str = "") -> tuple[str, str]:
    """Return a base URL as it is shown, and its query with the question mark.

    Args:
        base_url: As it was given.
        path: The protocol's own path, which is taken off if somebody put it in.

    Raises:
        InvalidValueError: Requests cannot be sent to it.
    """
    require_kind(base_url, str, argument="base_url")
    parts = urlsplit(check_url(base_url.strip(), argument="base_url"))
    shown = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/").removesuffix(path), "", ""))
    return shown, f"?{parts.query}" if parts.query else ""


def find_key(given: str | None, variables: Sequence[str], *, provider: str, needed: bool) -> str:
    """Return the key that was given, or the first one the environment holds; empty for none.

    Raises:
        MissingCredentialError: There is none, and it is needed.
        InvalidValueError: It holds characters that no key can have.
        UsageError: It, or the name of a variable, is no text.
    """
    require_kind(given, str | None, argument="api_key")
    for name in variables:
        require_kind(name, str, argument="api_key_variable")
    key = given if given is not None else next((found for name in variables if (found := os.environ.get(name))), "")
    key = key.strip()
    if not key and given is None and needed:
        raise MissingCredentialError(provider=provider, variable=variables[0])
    if not (key.isascii() and key.isprintable()):
        raise InvalidValueError("holds characters that no key can have", argument="api_key")
    return key


def request_headers(own: Mapping[str, str], given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the headers of a request: runlane's, the protocol's own where they have a value, then the caller's.

    Raises:
        InvalidValueError: A header of the caller cannot be sent.
        UsageError: What the caller gave is no mapping of texts.
    """
    require_kind(given, Mapping | None, argument="headers")
    headers = {
        "accept": "text/event-stream, application/json",
        # A compressed stream would come in bursts.
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": "runlane",
        **{name: value for name, value in own.items() if value},
    }
    for name, value in (given or {}).items():
        require_kind(name, str, argument="headers")
        require_kind(value, str, argument=f"headers.{name!r}")
        if not (name and name.isascii() and value.isascii() and f"{name}{value}".isprintable()):
            raise InvalidValueError("must be printable ASCII", argument=f"headers.{name!r}")
        headers[name.lower()] = value
    return headers


def secrets_of(key: str, given: Mapping[str, str] | None) -> tuple[str, ...]:
    """List what must not be in an error: the key, and the headers that look like one; the longest first."""
    values = [value for name, value in (given or {}).items() if any(word in name.lower() for word in _SECRET_WORDS)]
    values += [value.removeprefix("Bearer ") for value in values]
    return tuple(sorted({secret for secret in (key, *values) if secret}, key=len, reverse=True))


def bearer_endpoint(  # noqa: PLR0913 - the facts of an address, all but the first two by name
    provider: str,
    path: str,
    /,
    *,
    model: str,
    base_url: str,
    api_key: str | None,
    api_key_variable: str,
    headers: Mapping[str, str] | None,
) -> Endpoint:
    """Return an endpoint whose address ends in `path` and whose key goes as a bearer token, as OpenAI's do.

    Raises:
        InvalidValueError: The URL, the key or a header cannot be used.
        MissingCredentialError: No key is given, and the endpoint is not on this machine.
    """
    shown, query = split_base_url(base_url, path)
    key = find_key(api_key, (api_key_variable,), provider=provider, needed=not is_loopback(shown))
    return Endpoint(
        provider=provider,
        model=model,
        base_url=shown,
        url=f"{shown}{path}{query}",
        headers=request_headers({"authorization": f"Bearer {key}" if key else ""}, headers),
        secrets=secrets_of(key, headers),
        key_variable=api_key_variable,
        base_hint=", it usually ends in /v1",
    )


def read_refusal(refusal: Refusal, read: Callable[[JsonValue, str, int], ErrorReply]) -> ErrorReply:
    """Read a refusal.

    Args:
        refusal: The response that is no answer.
        read: The protocol's reading of an error: its value, what happened, and the status.
    """
    reply = read(error_body(refusal), f"answered {status_phrase(refusal.status)}", refusal.status)
    wait = _retry_after(refusal.headers)
    return reply if wait is None else replace(reply, retry_after=wait)


def error_body(refusal: Refusal) -> JsonValue:
    """Return the error of a refused request: an object if the body is JSON, its text, or nothing for a web page."""
    text = refusal.body.decode("utf-8", "replace").strip()
    try:
        body, _ = parse_json(text)
    except ValueError:
        return "" if text[:1] == "<" else text
    if isinstance(body, list) and body:
        body = body[0]  # Google wraps it in a list
    if isinstance(body, dict):
        error = body.get("error")
        return body if error is None else error
    return body if isinstance(body, str) else text


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Read how long to wait: milliseconds, seconds, or a date, which counts from the date of the response itself."""
    milliseconds = _seconds(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    given = headers.get("retry-after", "")
    seconds = _seconds(given)
    if seconds is not None or not given:
        return seconds
    try:
        wait = parsedate_to_datetime(given) - parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, wait.total_seconds())


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
