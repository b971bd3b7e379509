"""`OpenAIChat`: the provider for every endpoint that speaks OpenAI's chat completions."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from pydantic import JsonValue
from typing_extensions import override

from runlane.errors import InvalidValueError, MissingCredentialError, ProviderError
from runlane.ids import IdSource, RandomIds
from runlane.models._failure import ErrorReply, provider_error, status_phrase
from runlane.models._http import HttpClient, HttpRequest, HttpTimeouts, check_url, is_loopback
from runlane.models._messages import AnyModelMessage
from runlane.models._port import ChatProvider, ModelProviderContext
from runlane.models._repair import parse_json
from runlane.models._stream import ModelPart
from runlane.models._wire import Refusal, WireCall, WireStream
from runlane.models.openai_chat._decoder import OpenAIChatDecoder
from runlane.models.openai_chat._facts import PROVIDER_ID, read_error
from runlane.models.openai_chat._request import OpenAIChatDialect, encode_request

if TYPE_CHECKING:
    import httpx2

__all__ = ["OpenAIChat", "openai_compatible"]

_DEFAULT_URL: Final = "https://api.openai.com/v1"
_KEY_VARIABLE: Final = "OPENAI_API_KEY"
_URL_VARIABLE: Final = "OPENAI_BASE_URL"
_PATH: Final = "/chat/completions"
_OPENAI_HOSTS: Final = ("api.openai.com", ".openai.azure.com")
_REDIRECTS: Final = range(300, 400)


class OpenAIChat(ChatProvider):
    """A model behind an endpoint that speaks OpenAI's chat completions.

    The endpoint is `<base_url>/chat/completions`, as with OpenAI's own clients: `base_url` includes `/v1` where the
    server has it. An endpoint on this machine, or one given an empty key, is called without a key.

    Args:
        model: The provider's name of the model.
        base_url: Where the endpoint is, without `/chat/completions`; `OPENAI_BASE_URL` of the environment, or OpenAI
            itself, by default. A query (`?api-version=...`) is kept.
        api_key: The key; None takes it from the environment, an empty text sends none.
        api_key_variable: The environment variable that holds the key.
        headers: Further request headers; they win over runlane's own.
        dialect: What the endpoint accepts; a default fits OpenAI on its own hosts and most others elsewhere.
        timeouts: How long each stage of a request may take. How long an answer may be silent is the call's
            `idle_timeout`.
        currency: What the cost figures of the endpoint are in (three letters); `USD` on OpenRouter, else unknown.
        ids: Names tool calls whose provider gives them no id.
        transport: Replaces the network, for tests.

    Raises:
        InvalidValueError: The URL, the model name, the key or a header cannot be used.
        MissingCredentialError: No key is given, and the endpoint is not on this machine.

    Example:
        >>> OpenAIChat("llama3.2", base_url="http://localhost:11434/v1")
        OpenAIChat('llama3.2', base_url='http://localhost:11434/v1')
    """

    provider_id = PROVIDER_ID

    def __init__(  # noqa: PLR0913 - the options of an endpoint, all but the first by name
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        api_key_variable: str = _KEY_VARIABLE,
        headers: Mapping[str, str] | None = None,
        dialect: OpenAIChatDialect | None = None,
        timeouts: HttpTimeouts | None = None,
        currency: str | None = None,
        ids: IdSource | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        if not model:
            raise InvalidValueError("must not be empty", argument="model")
        self.model_id = model
        self._base_url, self._url = _endpoint(base_url or os.environ.get(_URL_VARIABLE) or _DEFAULT_URL)
        local = is_loopback(self._url)
        self._key_variable = api_key_variable
        key = _find_key(api_key, api_key_variable, needed=not local)
        self._headers = _headers(key, headers or {})
        self._secrets = _secrets(key, headers or {})
        host = urlsplit(self._url).hostname or ""
        self._dialect = dialect or _dialect_of(host)
        self._currency = currency or ("USD" if host == "openrouter.ai" else None)
        self._ids = ids or RandomIds()
        self._client = HttpClient(
            provider=PROVIDER_ID,
            timeouts=timeouts,
            use_proxies=not local,
            secure=self._url.startswith("https:"),
            transport=transport,
        )

    watches_silence = True

    @override
    def __repr__(self) -> str:
        return f"OpenAIChat({self.model_id!r}, base_url={self._base_url!r})"

    @override
    def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelPart]]:
        """Open one response; see `ChatProvider.open_stream`.

        Once the answer is complete the connection is kept for the next call, unless the server goes on sending; in
        every other case it is closed.

        Raises:
            ModelProtocolError: A message holds something chat completions have no form for; the stream broke the
                protocol.
            InvalidValueError: An option is not JSON, or sets a field that runlane writes.
            ProviderError: The request was refused, the provider failed while it answered, or could not be reached.
            ModelIdleTimeoutError: It was silent for the context's `idle_timeout`.
            ProviderStreamCutError: The stream ended without evidence that the answer did.
        """
        call = WireCall(
            request=HttpRequest(
                url=self._url,
                headers=self._headers,
                body=encode_request(self.model_id, messages, context, self._dialect),
            ),
            decoder=OpenAIChatDecoder(new_call_id=self._new_call_id, currency=self._currency, secrets=self._secrets),
            context=context,
            explain=self._explain,
        )
        return WireStream(self._client, call)

    @override
    async def aclose(self) -> None:
        """Close the connections kept for the running event loop."""
        await self._client.aclose()

    def _new_call_id(self) -> str:
        return self._ids.new("call")

    def _explain(self, refusal: Refusal) -> ProviderError:
        reply = _read_refusal(refusal)
        return provider_error(reply, provider=PROVIDER_ID, hint=self._hint(refusal), secrets=self._secrets)

    def _hint(self, refusal: Refusal) -> str:
        status = refusal.status
        if status in (401, 403):
            return f"check the key in {self._key_variable}"
        if status == HTTPStatus.NOT_FOUND:
            return f"check the model name {self.model_id!r} and base_url={self._base_url!r}"
        if status in _REDIRECTS:
            host = urlsplit(refusal.headers.get("location", "")).hostname or "another place"
            return f"it redirects to {host}, which is not followed with a key; check base_url"
        if status == HTTPStatus.OK:
            return f"this is a web page and no endpoint; check base_url={self._base_url!r}, it usually ends in /v1"
        return ""


def openai_compatible(model: str, *, base_url: str, api_key_variable: str = _KEY_VARIABLE) -> OpenAIChat:
    """Return the provider for a model at any endpoint that speaks chat completions; the key is in the environment.

    Args:
        model: The provider's name of the model.
        base_url: Such as `https://api.groq.com/openai/v1`.
        api_key_variable: Such as `GROQ_API_KEY`; not needed for an endpoint on this machine.

    Raises:
        InvalidValueError: The URL cannot be used.
        MissingCredentialError: The variable is not set, and the endpoint is not on this machine.
    """
    return OpenAIChat(model, base_url=base_url, api_key_variable=api_key_variable)


def _endpoint(base_url: str) -> tuple[str, str]:
    """Return the base URL as it is shown, and the URL requests go to."""
    parts = urlsplit(check_url(base_url.strip(), argument="base_url"))
    path = parts.path.rstrip("/").removesuffix(_PATH)
    shown = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    return shown, urlunsplit((parts.scheme, parts.netloc, f"{path}{_PATH}", parts.query, ""))


def _find_key(given: str | None, variable: str, *, needed: bool) -> str:
    key = (os.environ.get(variable, "") if given is None else given).strip()
    if not key and given is None and needed:
        raise MissingCredentialError(provider=PROVIDER_ID, variable=variable)
    if not (key.isascii() and key.isprintable()):
        raise InvalidValueError("holds characters that no key can have", argument="api_key")
    return key


def _headers(key: str, given: Mapping[str, str]) -> dict[str, str]:
    headers = {
        "accept": "text/event-stream, application/json",
        # A compressed stream would come in bursts.
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": "runlane",
    }
    if key:
        headers["authorization"] = f"Bearer {key}"
    for name, value in given.items():
        if not (name and name.isascii() and value.isascii() and f"{name}{value}".isprintable()):
            raise InvalidValueError("must be printable ASCII", argument=f"headers.{name!r}")
        headers[name.lower()] = value
    return headers


def _secrets(key: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """List what must not be in an error: the key, and the headers that look like one."""
    words = ("auth", "key", "token", "secret", "cookie")
    values = [value for name, value in given.items() if any(word in name.lower() for word in words)]
    values += [value.removeprefix("Bearer ") for value in values]
    return tuple(sorted({secret for secret in (key, *values) if secret}, key=len, reverse=True))


def _dialect_of(host: str) -> OpenAIChatDialect:
    dialect = OpenAIChatDialect()
    if host.endswith(_OPENAI_HOSTS):
        return replace(dialect, max_tokens_field="max_completion_tokens")
    return dialect


def _read_refusal(refusal: Refusal) -> ErrorReply:
    where = f"answered {status_phrase(refusal.status)}"
    body = _error_body(refusal)
    reply = read_error(body, where=where, status=refusal.status)
    return replace(reply, retry_after=_retry_after(refusal.headers))


def _error_body(refusal: Refusal) -> JsonValue:
    """Return the error of a refused request: an object if the body is JSON, its text, or nothing for a web page."""
    text = refusal.body.decode("utf-8", "replace").strip()
    try:
        body, _ = parse_json(text)
    except ValueError:
        return "" if text[:1] == "<" else text
    if isinstance(body, list) and body:
        body = body[0]  # Google's compatible endpoint wraps it in a list
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
