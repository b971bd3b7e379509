"""One way to the network for every wire protocol: httpx2, loaded when a request is made and not before.

A `HttpClient` belongs to a provider. Its connections belong to the event loop they were made on, so a provider may be
used from one loop after another; `aclose` closes those of the running loop.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from socket import gaierror
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar
from typing_extensions import override

from runlane.contracts import CancelToken, require_kind
from runlane.errors import (
    InvalidValueError,
    ModelError,
    ModelIdleTimeoutError,
    ProviderError,
    ProviderStreamCutError,
    SseIdleTimeoutError,
    UsageError,
)
from runlane.models._failure import FailureFacts
from runlane.models._messages import model_protocol_error
from runlane.sse import abortable_stream

if TYPE_CHECKING:
    import httpx2

__all__ = [
    "HttpClient",
    "HttpReply",
    "HttpRequest",
    "HttpTimeouts",
    "check_transport",
    "check_url",
    "is_loopback",
    "transport_failure",
]

_ERROR_BODY_BYTES: Final = 65_536
_KEEP_ALIVE: Final = 20
_KEEP_ALIVE_FOR: Final = 30.0
_CLOSE_WITHIN: Final = 1.0
_DEPTH: Final = 16
_INFLATED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_ANY_HEADER: Final = 47
"""Window bits that let zlib find out by itself whether the header is that of gzip or its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTimeouts:
    """How long each stage of a request may take, in seconds; None waits for ever.

    How long the *answer* may be silent is not here: that is the call's `idle_timeout`.

    Attributes:
        connect: To reach the host, TLS included.
        write: To send the next piece of the request.
        pool: To get a connection.
        error_body: To read the body of a refusal; what has not come by then is left out.
    """

    connect: float | None = 10.0
    write: float | None = 30.0
    pool: float | None = 10.0
    error_body: float = 5.0

    def __post_init__(self) -> None:
        for name in ("connect", "write", "pool", "error_body"):
            value = getattr(self, name)
            if value is None and name != "error_body":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UsageError("must be seconds", argument=f"timeouts.{name}")
            if not (isfinite(value) and value > 0):
                raise InvalidValueError(f"must be finite and above 0, got {value}", argument=f"timeouts.{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request; its headers may hold secrets and are never shown."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    method: Literal["GET", "POST"] = "POST"

    @override
    def __repr__(self) -> str:
        return f"HttpRequest(url={public_url(self.url)!r}, body={len(self.body)} bytes)"


class HttpReply:
    """A response whose head has arrived.

    Attributes:
        status: The HTTP status.
        headers: Its headers, names in lower case.
    """

    def __init__(self, response: httpx2.Response, timeouts: HttpTimeouts) -> None:
        self.status: int = response.status_code
        self.headers: dict[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._body = _Body(response)
        self._timeouts = timeouts

    @property
    def media_type(self) -> str:
        """The media type without parameters, in lower case; empty if the server names none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives, decompressed.

        Its iteration raises `ProviderStreamCutError` when the connection breaks within the body, and
        `ModelProtocolError` when the body is not encoded as the response says.
        """
        return self._body

    async def read_document(self, signal: CancelToken, *, idle_timeout: float | None, max_bytes: int) -> bytes:
        """Read a whole body.

        Raises:
            ModelProtocolError: It is longer than `max_bytes`.
            ProviderStreamCutError: The connection broke within it.
            SseIdleTimeoutError: It sent nothing for `idle_timeout`.
            Exception: The signal's error.
        """
        body = bytearray()
        async with abortable_stream(self._body, signal) as chunks:
            while True:
                with anyio.move_on_after(idle_timeout) as silence:
                    chunk = await anext(chunks, None)
                if silence.cancelled_caught:
                    raise SseIdleTimeoutError(idle_timeout=idle_timeout or 0.0)
                if chunk is None:
                    return bytes(body)
                body += chunk
                if len(body) > max_bytes:
                    model_protocol_error(f"the response is longer than {max_bytes} bytes")

    async def read_error(self, signal: CancelToken) -> bytes:
        """Read the head of a refusal's body: at most 64 KiB, for a limited time; a broken body gives what came."""
        body = bytearray()
        with anyio.move_on_after(self._timeouts.error_body) as scope, signal.bind(scope):
            try:
                async for chunk in self._body:
                    body += chunk
                    if len(body) >= _ERROR_BODY_BYTES:
                        break
            except ModelError:
                pass  # what came before the connection broke is all there is to say
        return bytes(body[:_ERROR_BODY_BYTES])

    async def aclose(self) -> None:
        """Give the connection back if the body was read to its end, else close it; within one second."""
        with anyio.move_on_after(_CLOSE_WITHIN, shield=True):
            await self._body.aclose()


class _Body(AsyncIterator[bytes]):
    """The bytes of a body, decompressed, with the faults of httpx2 told as ours.

    The raw bytes are decompressed here and not by httpx2: an error within its nested generators would leave them
    suspended.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._chunks = response.aiter_raw()
        self._unpack = _Unpacker(response.headers.get("content-encoding", ""))

    @override
    async def __anext__(self) -> bytes:
        import httpx2  # noqa: PLC0415 - loaded when a request is made

        while True:
            failure: Exception
            try:
                chunk = await anext(self._chunks)
            except StopAsyncIteration:
                self._unpack.close()
                raise
            except (httpx2.HTTPError, httpx2.StreamError) as error:
                failure = error
            else:
                data = self._unpack.feed(chunk)
                if data:
                    return data
                continue
            raise ProviderStreamCutError(
                f"the connection to the provider broke in the middle of its answer ({type(failure).__name__})"
            ) from _origin(failure)

    async def aclose(self) -> None:
        """Close the connection, then run the nested generators of httpx2 to their end.

        Closing the outer generator would leave the inner ones to the garbage collector, which trio objects to; on a
        closed connection they end by themselves.
        """
        await self._response.aclose()
        with suppress(Exception):
            async for _ in self._chunks:
                pass


class _Unpacker:
    """Decompresses a body that came compressed although nobody asked for it."""

    def __init__(self, encoding: str) -> None:
        name = encoding.strip().lower()
        self._name = "" if name == "identity" else name
        self._inflate = zlib.decompressobj(_ANY_HEADER) if self._name in _INFLATED else None

    def feed(self, chunk: bytes) -> bytes:
        """Return what a chunk holds.

        Raises:
            ModelProtocolError: It is not what the response says it is.
        """
        if not self._name:
            return chunk
        if self._inflate is None:
            model_protocol_error(f"the response is encoded with {self._name!r}, which was not asked for")
        try:
            return self._inflate.decompress(chunk)
        except zlib.error:
            model_protocol_error(f"the response says that it is encoded with {self._name!r}, and it is not")

    def close(self) -> None:
        """End the body.

        Raises:
            ProviderStreamCutError: It ends within what was compressed.
        """
        if self._inflate is not None and not self._inflate.eof:
            message = "the provider's compressed answer ended before its end"
            raise ProviderStreamCutError(message)


class HttpClient:
    """Sends requests for one provider.

    Args:
        provider: The wire protocol's key, for errors.
        timeouts: How long each stage may take.
        use_proxies: Whether to follow the proxy variables of the environment.
        secure: Whether any request goes to `https`; without it the trusted certificates are not loaded.
        transport: Replaces the network, for tests.
    """

    def __init__(
        self,
        *,
        provider: str,
        timeouts: HttpTimeouts | None = None,
        use_proxies: bool = True,
        secure: bool = True,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.provider = provider
        self._timeouts = require_kind(timeouts, HttpTimeouts | None, argument="timeouts") or HttpTimeouts()
        self._use_proxies = use_proxies
        self._secure = secure
        self._transport = check_transport(transport)
        self._client: RunVar[httpx2.AsyncClient | None] = RunVar("runlane.models.http_client")
        self._making: RunVar[anyio.Lock] = RunVar("runlane.models.http_client_making")

    async def send(self, request: HttpRequest, *, signal: CancelToken, idle_timeout: float | None) -> HttpReply:
        """Send a request and wait for the head of the response.

        Raises:
            ProviderError: The host could not be reached, or broke off.
            ModelIdleTimeoutError: No response began within `idle_timeout`.
            Exception: The signal's error.
        """
        signal.raise_if_cancelled()
        client = await self._running_client()
        import httpx2  # noqa: PLC0415 - loaded when a request is made

        response: httpx2.Response | None = None
        failure: Exception | None = None
        with anyio.CancelScope() as scope, signal.bind(scope), anyio.move_on_after(idle_timeout):
            try:
                message = client.build_request(
                    request.method, request.url, headers=dict(request.headers), content=request.body or None
                )
                response = await client.send(message, stream=True)
            except httpx2.HTTPError as error:
                failure = error
        if signal.cancelled:
            if response is not None:
                await HttpReply(response, self._timeouts).aclose()
            raise signal.error()
        if failure is not None:
            raise transport_failure(failure, provider=self.provider, url=request.url) from _origin(failure)
        if response is None:
            raise ModelIdleTimeoutError(idle_timeout=idle_timeout or 0.0) from SseIdleTimeoutError(
                idle_timeout=idle_timeout or 0.0
            )
        return HttpReply(response, self._timeouts)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next request opens new ones."""
        client = self._client.get(None)
        if client is not None:
            self._client.set(None)
            with anyio.CancelScope(shield=True):
                await client.aclose()

    async def _running_client(self) -> httpx2.AsyncClient:
        client = self._client.get(None)
        if client is not None:
            return client
        making = self._making.get(None) or anyio.Lock()
        self._making.set(making)
        async with making:  # the first requests of many lanes come at once: one of them makes the client for all
            client = self._client.get(None)
            if client is None:
                # Loading httpx2 and the trusted certificates takes a tenth of a second: other lanes go on meanwhile.
                client = await to_thread.run_sync(self._make_client)
                self._client.set(client)
        return client

    def _make_client(self) -> httpx2.AsyncClient:
        import httpx2  # noqa: PLC0415 - loaded when a request is made

        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(
                connect=self._timeouts.connect, write=self._timeouts.write, pool=self._timeouts.pool, read=None
            ),
            # As many streams as there are conversations; only idle connections are limited.
            limits=httpx2.Limits(
                max_connections=None, max_keepalive_connections=_KEEP_ALIVE, keepalive_expiry=_KEEP_ALIVE_FOR
            ),
            verify=self._secure,
            follow_redirects=False,
            trust_env=self._use_proxies,
            transport=self._transport,
        )


def check_transport(transport: httpx2.AsyncBaseTransport | None, /) -> httpx2.AsyncBaseTransport | None:
    """Return a transport that can be used; its library is imported by the first request, and not for this.

    Raises:
        UsageError: It is none.
    """
    if transport is not None and not callable(getattr(transport, "handle_async_request", None)):
        raise UsageError("must be an httpx2.AsyncBaseTransport or None", argument="transport")
    return transport


def check_url(url: str, /, *, argument: str) -> str:
    """Return a URL if requests can be sent to it.

    Raises:
        InvalidValueError: It is no `http` or `https` URL with a host, or it carries credentials.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidValueError(f"is not a URL: {error}", argument=argument) from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidValueError("must be a URL that starts with http:// or https://", argument=argument)
    if parts.username is not None or parts.password is not None:
        raise InvalidValueError("must not hold credentials; pass api_key or headers", argument=argument)
    return url


def is_loopback(url: str, /) -> bool:
    """Whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.") or host.endswith(".localhost")


def public_url(url: str, /) -> str:
    """Return a URL without its query, which may hold a key."""
    return url.partition("?")[0]


def transport_failure(error: Exception, /, *, provider: str, url: str) -> ProviderError:
    """Describe why no response came.

    Args:
        error: An exception of httpx2.
        provider: The wire protocol's key.
        url: What was asked for.
    """
    import ssl  # noqa: PLC0415 - loaded by httpx2 anyway

    import httpx2  # noqa: PLC0415 - loaded when a request is made

    where = public_url(url)
    origin = _origin(error)
    reason, retryable = "unreachable", True
    if isinstance(error, httpx2.TimeoutException):
        reason, said = "timeout", f"{provider} did not answer at {where} in time ({type(error).__name__})"
    elif isinstance(origin, ssl.SSLError):
        untrusted = isinstance(origin, ssl.SSLCertVerificationError)
        retryable = not untrusted
        words = "its certificate is not trusted" if untrusted else origin.reason or type(origin).__name__
        said = f"no secure connection to {provider} at {where}: {words}"
    elif isinstance(origin, gaierror):
        said = f"{provider}: the host of {where} cannot be resolved; check base_url and the network"
    elif isinstance(origin, ConnectionRefusedError):
        said = f"{provider}: nothing listens at {where}; check base_url and that the server runs"
    elif isinstance(error, httpx2.ConnectError):
        said = f"{provider} cannot be reached at {where}; check base_url and the network"
    else:
        said = f"{provider} broke off before it answered at {where} ({type(error).__name__})"
    return ProviderError(said, provider=provider, reason=reason, retryable=retryable, facts=FailureFacts())


def _origin(error: BaseException) -> OSError | None:
    """Find the fault of the operating system behind an exception of httpx2.

    Only it is chained to our errors: the exceptions above it hold the request, and with it the key.
    """
    found: OSError | None = None
    link: BaseException | None = error
    pending: list[BaseException] = []
    for _ in range(_DEPTH):
        if link is None:
            if not pending:
                break
            link = pending.pop()
        if isinstance(link, OSError):
            found = link
        if isinstance(link, BaseExceptionGroup):
            pending.extend(link.exceptions)
        link = link.__cause__ or link.__context__
    return found
