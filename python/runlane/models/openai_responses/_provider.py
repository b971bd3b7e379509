"""`OpenAIResponses`: the provider for OpenAI's responses and the endpoints that speak it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue
from typing_extensions import override

from runlane.contracts import require_kind
from runlane.ids import IdSource
from runlane.models._endpoint import base_url_or, bearer_endpoint
from runlane.models._failure import ErrorReply
from runlane.models._http import HttpTimeouts
from runlane.models._messages import AnyModelMessage
from runlane.models._port import ModelProviderContext
from runlane.models._provider import HttpProvider
from runlane.models._wire import StreamDecoder
from runlane.models.openai_responses._decoder import OpenAIResponsesDecoder
from runlane.models.openai_responses._facts import PROVIDER_ID, read_error
from runlane.models.openai_responses._request import OpenAIResponsesDialect, encode_request

if TYPE_CHECKING:
    import httpx2

__all__ = ["OpenAIResponses"]

_DEFAULT_URL: Final = "https://api.openai.com/v1"
_KEY_VARIABLE: Final = "OPENAI_API_KEY"
_URL_VARIABLE: Final = "OPENAI_BASE_URL"
_PATH: Final = "/responses"


class OpenAIResponses(HttpProvider):
    """A model behind an endpoint that speaks OpenAI's responses.

    The endpoint is `<base_url>/responses`, as with OpenAI's own clients. An endpoint on this machine, or one given an
    empty key, is called without a key.

    Args:
        model: The provider's name of the model.
        base_url: Where the endpoint is, without `/responses`; `OPENAI_BASE_URL` of the environment, or OpenAI itself,
            by default. A query (`?api-version=...`) is kept.
        api_key: The key; None takes it from the environment, an empty text sends none.
        api_key_variable: The environment variable that holds the key.
        headers: Further request headers; they win over runlane's own.
        dialect: What the endpoint accepts.
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
        >>> OpenAIResponses("gpt-oss", base_url="http://localhost:8080/v1")
        OpenAIResponses('gpt-oss', base_url='http://localhost:8080/v1')
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
        dialect: OpenAIResponsesDialect | None = None,
        stream: bool = True,
        timeouts: HttpTimeouts | None = None,
        ids: IdSource | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        endpoint = bearer_endpoint(
            PROVIDER_ID,
            _PATH,
            model=model,
            base_url=base_url_or(base_url, _URL_VARIABLE, _DEFAULT_URL),
            api_key=api_key,
            api_key_variable=api_key_variable,
            headers=headers,
        )
        super().__init__(endpoint, timeouts=timeouts, ids=ids, transport=transport)
        self._dialect = (
            require_kind(dialect, OpenAIResponsesDialect | None, argument="dialect") or OpenAIResponsesDialect()
        )
        self._stream = require_kind(stream, bool, argument="stream")

    @override
    def _encode(self, messages: Sequence[AnyModelMessage], context: ModelProviderContext) -> bytes:
        return encode_request(self.model_id, messages, context, self._dialect, stream=self._stream)

    @override
    def _decoder(self) -> StreamDecoder:
        return OpenAIResponsesDecoder(new_call_id=self._new_call_id, secrets=self._endpoint.secrets)

    @staticmethod
    @override
    def _read_error(error: JsonValue, where: str, status: int | None) -> ErrorReply:
        return read_error(error, where, status)
