"""`Google`: the provider for Google's generateContent, at the Gemini API or at Vertex AI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pydantic import JsonValue
from typing_extensions import override

from runlane.contracts import require_kind
from runlane.ids import IdSource
from runlane.models._endpoint import Endpoint, base_url_or, find_key, request_headers, secrets_of, split_base_url
from runlane.models._failure import ErrorReply
from runlane.models._http import HttpTimeouts, is_loopback
from runlane.models._messages import AnyModelMessage
from runlane.models._port import ModelProviderContext
from runlane.models._provider import HttpProvider
from runlane.models._wire import StreamDecoder
from runlane.models.google._decoder import GoogleDecoder
from runlane.models.google._facts import PROVIDER_ID, read_error
from runlane.models.google._request import encode_request

if TYPE_CHECKING:
    import httpx2

__all__ = ["Google"]

_DEFAULT_URL: Final = "https://generativelanguage.googleapis.com/v1beta"
_KEY_VARIABLE: Final = "GEMINI_API_KEY"
_OTHER_KEY_VARIABLE: Final = "GOOGLE_API_KEY"
_URL_VARIABLE: Final = "GOOGLE_GEMINI_BASE_URL"


class Google(HttpProvider):
    """A model behind an endpoint that speaks Google's generateContent.

    The endpoint is `<base_url>/models/<model>:streamGenerateContent`. An endpoint on this machine, or one given an
    empty key, is called without a key. For Vertex AI `base_url` ends in `/publishers/google`, and the token goes into
    `headers`.

    Args:
        model: The provider's name of the model; one with a slash, such as `tunedModels/mine`, is taken as it is.
        base_url: Where the endpoint is, version included; `GOOGLE_GEMINI_BASE_URL` of the environment, or the Gemini
            API, by default.
        api_key: The key; None takes it from the environment, an empty text sends none.
        api_key_variable: The environment variable that holds the key; `GOOGLE_API_KEY` counts if it does not.
        headers: Further request headers; they win over runlane's own.
        stream: Whether answers come as streams; without it the parts come all together once an answer is whole.
        timeouts: How long each stage of a request may take (`runlane.models.HttpTimeouts`). How long an
            answer may be silent is the call's `idle_timeout`.
        ids: Names tool calls whose provider gives them no id.
        transport: Replaces the network, for tests.

    Raises:
        InvalidValueError: The URL, the model name, the key or a header cannot be used.
        UsageError: An argument is of the wrong kind; names it.
        MissingCredentialError: No key is given, and the endpoint is not on this machine.

    Example:
        >>> Google("gemini-flash", base_url="http://localhost:8080/v1beta")
        Google('gemini-flash', base_url='http://localhost:8080/v1beta')
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
        stream: bool = True,
        timeouts: HttpTimeouts | None = None,
        ids: IdSource | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        shown, query = split_base_url(base_url_or(base_url, _URL_VARIABLE, _DEFAULT_URL))
        variables = (api_key_variable, _OTHER_KEY_VARIABLE)
        key = find_key(api_key, variables, provider=PROVIDER_ID, needed=not is_loopback(shown))
        endpoint = Endpoint(
            provider=PROVIDER_ID,
            model=model,
            base_url=shown,
            url=_address(
                shown,
                require_kind(model, str, argument="model"),
                query,
                stream=require_kind(stream, bool, argument="stream"),
            ),
            headers=request_headers({"x-goog-api-key": key}, headers),
            secrets=secrets_of(key, headers),
            key_variable=api_key_variable,
            base_hint=", it usually ends in /v1beta",
        )
        super().__init__(endpoint, timeouts=timeouts, ids=ids, transport=transport)

    @override
    def _encode(self, messages: Sequence[AnyModelMessage], context: ModelProviderContext) -> bytes:
        return encode_request(self.model_id, messages, context)

    @override
    def _decoder(self) -> StreamDecoder:
        return GoogleDecoder(new_call_id=self._new_call_id, secrets=self._endpoint.secrets)

    @staticmethod
    @override
    def _read_error(error: JsonValue, where: str, status: int | None) -> ErrorReply:
        return read_error(error, where, status)


def _address(base_url: str, model: str, query: str, *, stream: bool) -> str:
    path = quote(model if "/" in model else f"models/{model}")
    method = "streamGenerateContent" if stream else "generateContent"
    given = [query.removeprefix("?")] if query else []
    asked = "&".join([*given, "alt=sse"] if stream else given)
    return f"{base_url}/{path}:{method}{f'?{asked}' if asked else ''}"
