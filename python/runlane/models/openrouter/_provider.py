"""`OpenRouterProvider`: every model of OpenRouter for a registry, and the catalogue of them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from math import isfinite
from typing import TYPE_CHECKING, Final

import anyio
from pydantic import JsonValue
from typing_extensions import override

from runlane.clock import Clock
from runlane.contracts import CancelToken, clock_or_system, ids_or_random, require_kind
from runlane.errors import (
    InvalidValueError,
    ModelCatalogError,
    ModelError,
    SseIdleTimeoutError,
    UsageError,
)
from runlane.ids import IdSource
from runlane.models._catalog import ModelCatalog
from runlane.models._endpoint import find_key, request_headers, split_base_url
from runlane.models._http import HttpClient, HttpRequest, HttpTimeouts, check_transport, is_loopback
from runlane.models._port import ChatProvider
from runlane.models._registry import ModelProvider
from runlane.models._repair import parse_json, repair_object
from runlane.models._stream import ModelUsage
from runlane.models.openai_chat import OpenAIChat
from runlane.models.openrouter._catalog import SOURCE, CatalogReplies, read_catalog
from runlane.models.openrouter._usage import normalize_openrouter_usage
from runlane.records import Usage

if TYPE_CHECKING:
    import httpx2

__all__ = ["OpenRouterProvider"]

_DEFAULT_URL: Final = "https://openrouter.ai/api/v1"
_KEY_VARIABLE: Final = "OPENROUTER_API_KEY"
_MOST_BYTES: Final = 64 * 1024 * 1024
_FAILURES: Final = range(400, 600)

_MODELS: Final = "/models?supported_parameters=tools&output_modalities=text&sort=most-popular"
_ARTIFICIAL_ANALYSIS: Final = "/benchmarks?source=artificial-analysis"
_DESIGN_ARENA: Final = "/benchmarks?source=design-arena&arena=agents"


class OpenRouterProvider(ModelProvider):
    """Makes OpenRouter's models for a registry, reads its usage and cost, and loads its catalogue.

    Args:
        api_key: The key; None takes it from `OPENROUTER_API_KEY` when it is needed.
        base_url: Where the API is; a gateway in front of it, or a server for tests.
        headers: Further headers of every request, such as `HTTP-Referer` and `X-Title`, by which OpenRouter knows the
            application.
        provider: The registry's key of this provider, written into the catalogue's descriptors.
        catalog_timeout: Seconds that loading a catalogue may take, all its requests together.
        timeouts: How long each stage of a request may take (`runlane.models.HttpTimeouts`).
        clock: Dates the catalogue.
        ids: Names tool calls whose upstream gives them no id.
        transport: Replaces the network, for tests.

    Raises:
        InvalidValueError: The URL or a header cannot be used, or a number is out of range.
        UsageError: `catalog_timeout` is no number.

    Example:
        >>> provider = OpenRouterProvider(api_key="a key")
        >>> provider.create("openai/gpt-5-mini")
        OpenAIChat('openai/gpt-5-mini', base_url='https://openrouter.ai/api/v1')
    """

    def __init__(  # noqa: PLR0913 - the options of an endpoint, all by name
        self,
        *,
        api_key: str | None = None,
        base_url: str = _DEFAULT_URL,
        headers: Mapping[str, str] | None = None,
        provider: str = SOURCE,
        catalog_timeout: float = 10.0,
        timeouts: HttpTimeouts | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        if isinstance(catalog_timeout, bool) or not isinstance(catalog_timeout, int | float):
            raise UsageError("must be seconds", argument="catalog_timeout")
        if not (isfinite(catalog_timeout) and catalog_timeout > 0):
            raise InvalidValueError(f"must be finite and above 0, got {catalog_timeout}", argument="catalog_timeout")
        self._base_url, _ = split_base_url(base_url)
        request_headers({}, headers)
        self._headers = dict(headers or {})
        self._api_key = require_kind(api_key, str | None, argument="api_key")
        self._provider = require_kind(provider, str, argument="provider")
        self._catalog_timeout = catalog_timeout
        self._timeouts = require_kind(timeouts, HttpTimeouts | None, argument="timeouts")
        self._clock = clock_or_system(clock)
        self._ids = ids_or_random(ids)
        self._transport = check_transport(transport)

    @override
    def create(self, model_id: str, /) -> ChatProvider:
        """Return what talks to a model.

        Raises:
            MissingCredentialError: There is no key.
            InvalidValueError: The name is empty.
        """
        return OpenAIChat(
            model_id,
            base_url=self._base_url,
            api_key=self._api_key,
            api_key_variable=_KEY_VARIABLE,
            headers=self._headers,
            currency="USD",
            timeouts=self._timeouts,
            ids=self._ids,
            transport=self._transport,
        )

    @override
    def normalize_usage(self, usage: ModelUsage | None, /) -> Usage:
        """State what a step spent; see `normalize_openrouter_usage`."""
        return normalize_openrouter_usage(usage)

    async def load_catalog(self, *, signal: CancelToken | None = None) -> ModelCatalog:
        """Return the models that take tools and answer in text, the most used first, with what is known of them.

        Three requests at once, under one time limit: the list of models, and two benchmarks. A benchmark that cannot
        be had leaves the catalogue `partial`, with a diagnostic.

        Args:
            signal: Trips when loading must stop.

        Raises:
            ModelCatalogError: The list of models could not be loaded; names the HTTP status if there was one.
            MissingCredentialError: There is no key.
            Exception: The signal's error.
        """
        token = signal or CancelToken()
        token.raise_if_cancelled()
        loading = _Loading(self._client(), self._request_headers(), self._base_url, token)
        try:
            with anyio.move_on_after(self._catalog_timeout):
                async with anyio.create_task_group() as tasks:
                    for path in (_MODELS, _ARTIFICIAL_ANALYSIS, _DESIGN_ARENA):
                        tasks.start_soon(loading.load, path)
        finally:
            await loading.client.aclose()
        token.raise_if_cancelled()
        late = ModelCatalogError(
            f"OpenRouter's list of models did not come within {self._catalog_timeout:g} s",
            source=SOURCE,
            retryable=True,
        )
        models = loading.found.get(_MODELS, late)
        if isinstance(models, Exception):
            raise models
        replies = CatalogReplies(
            models=models,
            artificial_analysis=_or_none(loading.found.get(_ARTIFICIAL_ANALYSIS)),
            design_arena=_or_none(loading.found.get(_DESIGN_ARENA)),
        )
        return read_catalog(replies, provider=self._provider, observed_at=self._clock.now())

    def _client(self) -> HttpClient:
        return HttpClient(
            provider=SOURCE,
            timeouts=self._timeouts,
            use_proxies=not is_loopback(self._base_url),
            secure=self._base_url.startswith("https:"),
            transport=self._transport,
        )

    def _request_headers(self) -> dict[str, str]:
        needed = not is_loopback(self._base_url)
        key = find_key(self._api_key, (_KEY_VARIABLE,), provider=SOURCE, needed=needed)
        own = {"accept": "application/json", "authorization": f"Bearer {key}" if key else ""}
        headers = request_headers(own, self._headers)
        headers.pop("content-type", None)
        return headers


class _Loading:
    """The requests of one catalogue.

    Attributes:
        found: By path, the parsed body or what went wrong.
    """

    def __init__(self, client: HttpClient, headers: Mapping[str, str], base_url: str, signal: CancelToken) -> None:
        self.client = client
        self.found: dict[str, JsonValue | Exception] = {}
        self._headers = headers
        self._base_url = base_url
        self._signal = signal

    async def load(self, path: str) -> None:
        try:
            self.found[path] = await self._get(path)
        except (ModelError, SseIdleTimeoutError, ValueError) as error:
            self.found[path] = (
                error if isinstance(error, ModelCatalogError) else _failure(f"could not be loaded: {error}", error)
            )
        except Exception as error:
            if not self._signal.cancelled:
                raise
            self.found[path] = error

    async def _get(self, path: str) -> JsonValue:
        request = HttpRequest(url=f"{self._base_url}{path}", headers=self._headers, body=b"", method="GET")
        reply = await self.client.send(request, signal=self._signal, idle_timeout=None)
        try:
            if reply.status != HTTPStatus.OK:
                raise ModelCatalogError(
                    f"OpenRouter answered HTTP {reply.status} to {path.partition('?')[0]}",
                    source=SOURCE,
                    status=reply.status,
                    retryable=reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR or reply.status in (408, 429),
                )
            body = await reply.read_document(self._signal, idle_timeout=None, max_bytes=_MOST_BYTES)
        finally:
            await reply.aclose()
        value, may_hold_surrogates = parse_json(body.decode("utf-8", "replace"))
        return repair_object(value) if may_hold_surrogates and isinstance(value, dict) else value


def _failure(detail: str, cause: Exception) -> ModelCatalogError:
    retryable = cause.retryable if isinstance(cause, ModelError) else None
    error = ModelCatalogError(f"OpenRouter's list {detail}", source=SOURCE, retryable=retryable)
    error.__cause__ = cause
    return error


def _or_none(found: JsonValue | Exception) -> JsonValue:
    return None if isinstance(found, Exception) else found
