"""`Anthropic`: the provider for Anthropic's messages and the endpoints that speak it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue
from typing_extensions import override

from runlane.clock import Clock
from runlane.contracts import clock_or_system, require_kind
from runlane.errors import InvalidValueError
from runlane.ids import IdSource
from runlane.models._endpoint import Endpoint, base_url_or, find_key, request_headers, secrets_of, split_base_url
from runlane.models._failure import ErrorReply
from runlane.models._http import HttpTimeouts, is_loopback
from runlane.models._messages import AnyModelMessage
from runlane.models._port import ModelProviderContext
from runlane.models._provider import HttpProvider
from runlane.models._wire import StreamDecoder
from runlane.models.anthropic._decoder import AnthropicDecoder
from runlane.models.anthropic._facts import PROVIDER_ID, read_error
from runlane.models.anthropic._request import DEFAULT_MAX_TOKENS, encode_request

if TYPE_CHECKING:
    import httpx2

__all__ = ["Anthropic"]

_DEFAULT_URL: Final = "https://api.anthropic.com"
_KEY_VARIABLE: Final = "ANTHROPIC_API_KEY"
_URL_VARIABLE: Final = "ANTHROPIC_BASE_URL"
_PATH: Final = "/v1/messages"
_VERSION: Final = "2023-06-01"


class Anthropic(HttpProvider):
    """A model behind an endpoint that speaks Anthropic's messages.

    The endpoint is `<base_url>/v1/messages`, as with Anthropic's own clients. An endpoint on this machine, or one given
    an empty key, is called without a key.

    Args:
        model: The provider's name of the model.
        base_url: Where the endpoint is, without `/v1/messages`; `ANTHROPIC_BASE_URL` of the environment, or Anthropic
            itself, by default.
        api_key: The key; None takes it from the environment, an empty text sends none.
        api_key_variable: The environment variable that holds the key.
        headers: Further request headers, such as `anthropic-beta`; they win over runlane's own.
        max_output_tokens: The limit of the output where a call's options give none; the protocol wants one.
        stream: Whether answers come as streams; without it the parts come all together once an answer is whole.
        timeouts: How long each stage of a request may take (`runlane.models.HttpTimeouts`). How long an
            answer may be silent is the call's `idle_timeout`.
        ids: Names tool calls whose provider gives them no id.
        clock: Tells whether a container of the provider still lives; the machine's by default.
        transport: Replaces the network, for tests.

    Raises:
        InvalidValueError: The URL, the model name, the key or a header cannot be used.
        UsageError: An argument is of the wrong kind; names it.
        MissingCredentialError: No key is given, and the endpoint is not on this machine.

    Example:
        >>> Anthropic("claude-opus", base_url="http://localhost:8080")
        Anthropic('claude-opus', base_url='http://localhost:8080')
    """

    provider_id = PROVIDER_ID
    input_includes_cache = False

    def __init__(  # noqa: PLR0913 - the options of an endpoint, all but the first by name
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        api_key_variable: str = _KEY_VARIABLE,
        headers: Mapping[str, str] | None = None,
        max_output_tokens: int = DEFAULT_MAX_TOKENS,
        stream: bool = True,
        timeouts: HttpTimeouts | None = None,
        ids: IdSource | None = None,
        clock: Clock | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        shown, query = split_base_url(base_url_or(base_url, _URL_VARIABLE, _DEFAULT_URL), _PATH)
        key = find_key(api_key, (api_key_variable,), provider=PROVIDER_ID, needed=not is_loopback(shown))
        endpoint = Endpoint(
            provider=PROVIDER_ID,
            model=model,
            base_url=shown,
            url=f"{shown.removesuffix('/v1')}{_PATH}{query}",
            headers=request_headers({"anthropic-version": _VERSION, "x-api-key": key}, headers),
            secrets=secrets_of(key, headers),
            key_variable=api_key_variable,
        )
        super().__init__(endpoint, timeouts=timeouts, ids=ids, transport=transport)
        if require_kind(max_output_tokens, int, argument="max_output_tokens") < 1 or max_output_tokens is True:
            raise InvalidValueError("must be at least 1", argument="max_output_tokens")
        self._max_output_tokens = max_output_tokens
        self._stream = require_kind(stream, bool, argument="stream")
        self._clock = clock_or_system(clock)

    @override
    def _encode(self, messages: Sequence[AnyModelMessage], context: ModelProviderContext) -> bytes:
        return encode_request(
            self.model_id,
            messages,
            context,
            max_tokens=self._max_output_tokens,
            stream=self._stream,
            now=self._clock.now(),
        )

    @override
    def _decoder(self) -> StreamDecoder:
        return AnthropicDecoder(new_call_id=self._new_call_id, secrets=self._endpoint.secrets)

    @staticmethod
    @override
    def _read_error(error: JsonValue, where: str, status: int | None) -> ErrorReply:
        return read_error(error, where, status)
