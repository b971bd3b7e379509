"""OpenRouter's catalogue: three requests, one list, and an honest word about what is missing."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.contracts import CancelToken
from runlane.errors import AbortedError, InvalidValueError, MissingCredentialError, ModelCatalogError, UsageError
from runlane.models import (
    ModelCatalog,
    ModelMessage,
    ModelMetric,
    ModelProviderContext,
    collect,
    define_model_registry,
    search_model_catalog,
)
from runlane.models.openrouter import CatalogReplies, OpenRouterProvider, read_catalog
from runlane.testing import FakeClock, ReceivedRequest, ReplayServer, Reply

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DATED = {"as_of": "2026-01-01T00:00:00Z"}


def listed(model_id: str, **fields: object) -> dict[str, Any]:
    """Return an entry of the list of models."""
    return {"id": model_id, "name": model_id.upper(), "context_length": 1_000, **fields}


def catalogue(*models: object, analysis: object = None, arena: object = None) -> ModelCatalog:
    """Return the catalogue of some replies; benchmarks are there and empty unless they are given."""
    empty = {"data": [], "meta": DATED}
    replies = CatalogReplies(
        models={"data": list(models)}, artificial_analysis=analysis or empty, design_arena=arena or empty
    )
    return read_catalog(replies, provider="openrouter", observed_at=NOW)


# --- reading ------------------------------------------------------------------------------------------------------


def test_entries_keep_the_order_of_popularity_and_ranks_have_gaps() -> None:
    """An entry without a window and a repeated id are dropped, but were counted."""
    found = catalogue(
        listed("a"),
        listed("none", context_length=0),
        listed("null", context_length=None),
        listed("a", name="again"),
        listed("b"),
    )
    ranks = [(entry.id, entry.name, entry.popularity.rank if entry.popularity else 0) for entry in found.models]
    assert ranks == [("a", "A", 1), ("b", "B", 5)]
    assert {entry.popularity.source for entry in found.models if entry.popularity} == {"openrouter-token-usage"}
    assert (found.completeness, found.diagnostics, found.observed_at) == ("complete", (), NOW)


@pytest.mark.parametrize(
    ("fields", "capabilities"),
    [
        ({}, ("tools",)),
        ({"architecture": {"input_modalities": ["file", "text", "image"]}}, ("tools", "vision", "files")),
        ({"supported_parameters": ["tools", "reasoning"]}, ("tools", "reasoning")),
        (
            {"architecture": {"input_modalities": ["image", "file"]}, "supported_parameters": ["reasoning"]},
            ("tools", "vision", "files", "reasoning"),
        ),
        ({"architecture": None, "supported_parameters": "tools"}, ("tools",)),
    ],
)
def test_capabilities_stand_in_one_order(fields: dict[str, object], capabilities: tuple[str, ...]) -> None:
    """Tools always: the list is asked for with them."""
    assert catalogue(listed("a", **fields)).models[0].descriptor.capabilities == capabilities


@pytest.mark.parametrize(
    ("pricing", "amounts"),
    [
        ({"prompt": "0.000002", "completion": "0"}, ("0.000002", "0")),
        ({"prompt": "1e-7"}, ("0.0000001", None)),
        ({"prompt": 0.25, "completion": 3}, ("0.25", "3")),
        ({"prompt": "-1", "completion": "0.5"}, (None, "0.5")),
        ({"prompt": "-1", "completion": "-1"}, None),
        ({"prompt": None, "completion": "free"}, None),
        ({"prompt": "NaN", "completion": "1e999999"}, None),
        ({}, None),
        ("free", None),
    ],
)
def test_a_price_is_there_if_one_of_both_is(pricing: object, amounts: tuple[str | None, str | None] | None) -> None:
    """In plain digits; one that varies (-1) is none."""
    price = catalogue(listed("a", pricing=pricing)).models[0].price
    assert amounts == (None if price is None else (price.input_per_token, price.output_per_token))
    assert price is None or price.currency == "USD"


def test_metrics_are_joined_by_canonical_slug_else_by_id() -> None:
    """With the benchmark's own date, its indexes before its ratings."""
    analysis = {
        "meta": DATED,
        "data": [
            {"model_permaslug": "a-2026", "intelligence_index": 71.5, "coding_index": None, "agentic_index": 50},
            {"model_permaslug": "b", "coding_index": 12},
        ],
    }
    arena = {
        "meta": {"as_of": "2025-12-31T00:00:00Z"},
        "data": [
            {
                "model_permaslug": "a-2026",
                "arena": "agents",
                "category": "website",
                "elo": 1385.2,
                "win_rate": 62.5,
                "avg_generation_time_ms": 3200,
            },
            {"model_permaslug": "b", "arena": "agents", "category": None, "elo": 900, "avg_generation_time_ms": None},
            {"model_permaslug": "elsewhere", "arena": "agents", "elo": 1},
        ],
    }
    found = catalogue(
        listed("a", canonical_slug="a-2026"), listed("b", canonical_slug="b-2026"), analysis=analysis, arena=arena
    )
    told = [[(m.metric, m.value, m.unit, m.source) for m in entry.metrics] for entry in found.models]
    assert told == [
        [
            ("intelligence", 71.5, "index", "artificial-analysis"),
            ("agentic", 50, "index", "artificial-analysis"),
            ("design-arena:agents:website:elo", 1385.2, "elo", "design-arena"),
            ("design-arena:agents:website:win-rate", 62.5, "percent", "design-arena"),
            ("design-arena:agents:website:generation-time", 3200, "milliseconds", "design-arena"),
        ],
        [
            ("coding", 12, "index", "artificial-analysis"),
            ("design-arena:agents:elo", 900, "elo", "design-arena"),
        ],
    ]
    first: ModelMetric = found.models[0].metrics[0]
    assert first.observed_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_benchmark_that_is_missing_or_drifted_makes_the_catalogue_partial() -> None:
    """One sentence each; what could be read is there."""
    drifted: list[object] = [
        [],
        {"data": {}, "meta": DATED},
        {"data": [], "meta": {}},
        {"data": [], "meta": {"as_of": "yesterday"}},
        {"data": [{"coding_index": 1}], "meta": DATED},
        {"data": [{"model_permaslug": "a", "coding_index": "high"}], "meta": DATED},
    ]
    for body in drifted:
        replies = CatalogReplies(models={"data": [listed("a")]}, artificial_analysis=body, design_arena=None)
        found = read_catalog(replies, provider="openrouter", observed_at=NOW)
        assert found.completeness == "partial"
        assert found.diagnostics == (
            "Artificial Analysis benchmark data is malformed",
            "Design Arena benchmark data is unavailable",
        )
        assert [entry.metrics for entry in found.models] == [()]


@pytest.mark.parametrize("body", [None, [], {}, {"data": None}, {"data": {}}, "models"])
def test_a_list_of_models_of_another_shape_fails_the_load(body: object) -> None:
    """There is nothing to fall back to."""
    with pytest.raises(ModelCatalogError):
        read_catalog(CatalogReplies(models=body), provider="openrouter", observed_at=NOW)


def test_one_malformed_entry_costs_itself_alone() -> None:
    """And a diagnostic."""
    found = catalogue("odd", listed("a"), listed("b", context_length="big"), listed(""))
    assert [entry.id for entry in found.models] == ["a"]
    assert found.diagnostics == ("3 entries of the list of models are malformed",)


KEYS = ["data", "meta", "as_of", "id", "context_length", "pricing", "prompt", "model_permaslug", "elo"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(models=st.lists(JSON, max_size=4), analysis=JSON, arena=JSON)
def test_whatever_is_answered_there_is_a_catalogue_or_a_typed_error(
    models: list[object], analysis: object, arena: object
) -> None:
    """Nothing else leaves, and every entry is whole."""
    replies = CatalogReplies(models={"data": models}, artificial_analysis=analysis, design_arena=arena)
    found = read_catalog(replies, provider="openrouter", observed_at=NOW)
    assert (found.completeness == "complete") == (found.diagnostics == ())
    assert ModelCatalog.model_validate_json(found.model_dump_json()) == found


# --- loading ------------------------------------------------------------------------------------------------------

MODELS = Reply(json.dumps({"data": [listed("lab/a", description="Small.")]}).encode())
EMPTY = Reply(json.dumps({"data": [], "meta": DATED}).encode())


def answering(replies: Mapping[str, Reply]) -> Callable[[ReceivedRequest], Reply]:
    """Return a responder by the end of the path, or the source of a benchmark."""

    def respond(request: ReceivedRequest) -> Reply:
        arena = ("source", "design-arena") in request.query
        key = "models" if request.path.endswith("/models") else "arena" if arena else "analysis"
        return replies.get(key, EMPTY)

    return respond


@pytest.mark.anyio
async def test_three_requests_with_the_key_make_a_catalogue() -> None:
    """Tool-capable text models, the most popular first, and the two benchmarks."""
    async with ReplayServer(answering({"models": MODELS})) as server:
        provider = OpenRouterProvider(
            api_key="secret", base_url=f"{server.base_url}/api/v1", clock=FakeClock(NOW), headers={"X-Title": "Zoo"}
        )
        found = await provider.load_catalog()
        requests = server.requests
    assert sorted(((request.path, dict(request.query)) for request in requests), key=str) == [
        ("/api/v1/benchmarks", {"source": "artificial-analysis"}),
        ("/api/v1/benchmarks", {"source": "design-arena", "arena": "agents"}),
        (
            "/api/v1/models",
            {"supported_parameters": "tools", "output_modalities": "text", "sort": "most-popular"},
        ),
    ]
    assert {request.method for request in requests} == {"GET"}
    assert {request.header("authorization") for request in requests} == {"Bearer secret"}
    assert {request.header("x-title") for request in requests} == {"Zoo"}
    assert [entry.id for entry in search_model_catalog(found, {"query": "small"}).models] == ["lab/a"]
    assert (found.completeness, found.observed_at) == ("complete", NOW)


@pytest.mark.anyio
@pytest.mark.parametrize(("status", "retryable"), [(401, False), (429, True), (503, True)])
async def test_a_refused_list_of_models_fails_the_load_with_its_status(status: int, retryable: bool) -> None:  # noqa: FBT001
    """The message names it, and holds no key."""
    async with ReplayServer(answering({"models": Reply(b"no", status=status)})) as server:
        with pytest.raises(ModelCatalogError) as failed:
            await OpenRouterProvider(api_key="secret", base_url=server.base_url).load_catalog()
    assert (failed.value.status, failed.value.retryable) == (status, retryable)
    assert str(status) in str(failed.value)
    assert "secret" not in str(failed.value)


@pytest.mark.anyio
@pytest.mark.parametrize("broken", [Reply(b"no", status=500), Reply(b"{", status=200), Reply(b"x" * 50, cut_at=10)])
async def test_a_broken_benchmark_leaves_the_models(broken: Reply) -> None:
    """A diagnostic says which."""
    async with ReplayServer(answering({"models": MODELS, "arena": broken})) as server:
        found = await OpenRouterProvider(api_key="k", base_url=server.base_url).load_catalog()
    assert [entry.id for entry in found.models] == ["lab/a"]
    assert (found.completeness, found.diagnostics) == ("partial", ("Design Arena benchmark data is unavailable",))


@pytest.mark.anyio
async def test_a_slow_benchmark_is_given_up_with_the_time() -> None:
    """The limit is for all three together."""
    slow = Reply(b"{}", hang_after=0)
    async with ReplayServer(answering({"models": MODELS, "analysis": slow})) as server:
        provider = OpenRouterProvider(api_key="k", base_url=server.base_url, catalog_timeout=2.0)
        found = await provider.load_catalog()
    assert found.diagnostics == ("Artificial Analysis benchmark data is unavailable",)


@pytest.mark.anyio
async def test_a_slow_list_of_models_fails_the_load() -> None:
    """After the limit, and it could work later."""
    async with ReplayServer(answering({"models": Reply(b"{}", hang_after=0)})) as server:
        provider = OpenRouterProvider(api_key="k", base_url=server.base_url, catalog_timeout=0.2)
        with pytest.raises(ModelCatalogError) as failed:
            await provider.load_catalog()
    assert failed.value.retryable is True


@pytest.mark.anyio
async def test_a_signal_stops_the_load() -> None:
    """With its own reason."""
    signal = CancelToken()

    def respond(_: ReceivedRequest) -> Reply:
        signal.cancel("shutdown")
        return Reply(b"{}", hang_after=0)

    async with ReplayServer(respond) as server:
        with pytest.raises(AbortedError) as stopped:
            await OpenRouterProvider(api_key="k", base_url=server.base_url).load_catalog(signal=signal)
    assert stopped.value.reason == "shutdown"


@pytest.mark.anyio
async def test_without_a_key_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable."""
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(MissingCredentialError) as missing:
        await OpenRouterProvider().load_catalog()
    assert missing.value.variable == "OPENROUTER_API_KEY"


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"catalog_timeout": 0}, "catalog_timeout"),
        ({"catalog_timeout": "soon"}, "catalog_timeout"),
        ({"base_url": "ftp://x"}, "base_url"),
        ({"headers": {"X-Title": "a\nb"}}, "headers.'X-Title'"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], argument: str) -> None:
    """When the provider is made."""
    with pytest.raises((InvalidValueError, UsageError)) as refused:
        OpenRouterProvider(api_key="k", **options)
    assert getattr(refused.value, "argument", None) == argument


# --- answering ----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_model_of_the_registry_answers_and_its_spend_is_read() -> None:
    """Over chat completions, with usage, cost and the upstream provider from the body."""
    chunks: list[dict[str, Any]] = [
        {"id": "gen-1", "provider": "Fireworks", "choices": [{"index": 0, "delta": {"content": "Hi"}}]},
        {"id": "gen-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"id": "gen-1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "cost": 0.5}},
    ]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    answer = Reply(body.encode(), headers={"content-type": "text/event-stream"})
    async with ReplayServer([answer]) as server:
        provider = OpenRouterProvider(api_key="k", base_url=f"{server.base_url}/api/v1")
        window = {"provider": "openrouter", "model_id": "lab/a", "context_window": 1_000}
        registry = define_model_registry(models={"main": window}, providers={"openrouter": provider})
        model = registry.resolve("main")
        async with model.provider.open_stream([ModelMessage.user("Hello")], ModelProviderContext()) as parts:
            answered = await collect(parts)
        await registry.aclose()
        assert server.requests[0].path == "/api/v1/chat/completions"
    usage = model.usage_of(answered.usage)
    assert answered.text == "Hi"
    assert (usage.input_tokens.value, usage.output_tokens.value) == (9, 2)
    assert usage.reasoning_tokens is not None
    assert usage.reasoning_tokens.provenance == "unavailable"
    assert usage.cost is not None
    assert (usage.cost.value, usage.cost.currency) == (0.5, "USD")
    assert model.response_provider_of(answered.info) == "Fireworks"
