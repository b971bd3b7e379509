"""`OpenAIChat`: the provider for every endpoint that speaks OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

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


class OpenAIChat(HttpProvider):
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
        stream: Whether answers come as streams; without it the parts come all together once an answer is whole.
        timeouts: How long each stage of a request may take (`runlane.models.HttpTimeouts`). How long an
            answer may be silent is the call's `idle_timeout`.
        currency: What the cost figures of the endpoint are in (three letters); `USD` on OpenRouter, else unknown.
        ids: Names tool calls whose provider gives them no id.
        transport: Replaces the network, for tests.

    Raises:
        InvalidValueError: The URL, the model name, the key or a header cannot be used.
        UsageError: An argument is of the wrong kind; names it.
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
        stream: bool = True,
        timeouts: HttpTimeouts | None = None,
        currency: str | None = None,
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
        host = urlsplit(endpoint.base_url).hostname or ""
        self._dialect = require_kind(dialect, OpenAIChatDialect | None, argument="dialect") or _dialect_of(host)
        self._currency = require_kind(currency, str | None, argument="currency") or (
            "USD" if host == "openrouter.ai" else None
        )
        self._stream = require_kind(stream, bool, argument="stream")

    @override
    def _encode(self, messages: Sequence[AnyModelMessage], context: ModelProviderContext) -> bytes:
        return encode_request(self.model_id, messages, context, self._dialect, stream=self._stream)

    @override
    def _decoder(self) -> StreamDecoder:
        return OpenAIChatDecoder(new_call_id=self._new_call_id, currency=self._currency, secrets=self._endpoint.secrets)

    @staticmethod
    @override
    def _read_error(error: JsonValue, where: str, status: int | None) -> ErrorReply:
        return read_error(error, where=where, status=status)


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


def _dialect_of(host: str) -> OpenAIChatDialect:
    dialect = OpenAIChatDialect()
    if host.endswith(_OPENAI_HOSTS):
        return replace(dialect, max_tokens_field="max_completion_tokens")
    return dialect
