"""A provider behind HTTP: all that the wire protocols' providers have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from pydantic import JsonValue
from typing_extensions import override

from runlane.contracts import ids_or_random, require_kind
from runlane.errors import InvalidValueError, ProviderError
from runlane.ids import IdSource
from runlane.models._endpoint import Endpoint, read_refusal
from runlane.models._failure import ErrorReply, provider_error
from runlane.models._http import HttpClient, HttpRequest, HttpTimeouts, is_loopback
from runlane.models._messages import AnyModelMessage
from runlane.models._port import ChatProvider, ModelProviderContext
from runlane.models._stream import ModelPart
from runlane.models._wire import Refusal, StreamDecoder, WireCall, WireStream

if TYPE_CHECKING:
    import httpx2

__all__ = ["HttpProvider"]


class HttpProvider(ChatProvider):
    """Sends what a protocol encodes and delivers what it decodes.

    Args:
        endpoint: Where requests go.
        timeouts: How long each stage of a request may take.
        ids: Names tool calls whose provider gives them no id.
        transport: Replaces the network, for tests.
    """

    watches_silence = True

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeouts: HttpTimeouts | None,
        ids: IdSource | None,
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        if not require_kind(endpoint.model, str, argument="model"):
            raise InvalidValueError("must not be empty", argument="model")
        self.model_id = endpoint.model
        self._endpoint = endpoint
        self._ids = ids_or_random(ids)
        self._client = HttpClient(
            provider=endpoint.provider,
            timeouts=timeouts,
            use_proxies=not is_loopback(endpoint.url),
            secure=endpoint.url.startswith("https:"),
            transport=transport,
        )

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model_id!r}, base_url={self._endpoint.base_url!r})"

    @override
    def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelPart]]:
        """Open one response; see `ChatProvider.open_stream`.

        Once the answer is complete the connection is kept for the next call, unless the server goes on sending; in
        every other case it is closed.

        Raises:
            ModelProtocolError: A message holds something the protocol has no form for; the stream broke the protocol.
            InvalidValueError: An option is not JSON, has no form in the protocol, or sets a field that runlane writes.
            ProviderError: The request was refused, the provider failed while it answered, or could not be reached.
            ModelIdleTimeoutError: It was silent for the context's `idle_timeout`.
            ProviderStreamCutError: The stream ended without evidence that the answer did.
        """
        call = WireCall(
            request=HttpRequest(
                url=self._endpoint.url, headers=self._endpoint.headers, body=self._encode(messages, context)
            ),
            decoder=self._decoder(),
            context=context,
            explain=self._explain,
        )
        return WireStream(self._client, call)

    @override
    async def aclose(self) -> None:
        """Close the connections kept for the running event loop."""
        await self._client.aclose()

    @abstractmethod
    def _encode(self, messages: Sequence[AnyModelMessage], context: ModelProviderContext) -> bytes:
        """Write the body of a request."""

    @abstractmethod
    def _decoder(self) -> StreamDecoder:
        """Return a decoder for one response."""

    @staticmethod
    @abstractmethod
    def _read_error(error: JsonValue, where: str, status: int | None) -> ErrorReply:
        """Read the protocol's error object or text."""

    def _new_call_id(self) -> str:
        return self._ids.new("call")

    def _explain(self, refusal: Refusal) -> ProviderError:
        endpoint = self._endpoint
        reply = read_refusal(refusal, self._read_error)
        return provider_error(reply, provider=endpoint.provider, hint=endpoint.hint(refusal), secrets=endpoint.secrets)
