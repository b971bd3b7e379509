"""A run knows how full the window was at its last completed step."""

import pytest

from runlane.models import ModelUsage, ResolvedModel, ResponseInfo
from runlane.models.anthropic import Anthropic
from runlane.records import Usage, UsageValue
from runlane.runtime import ContextUsage, context_usage
from runlane.testing import ScriptedModel

WINDOW = 100_000


def model(**hooks: object) -> ResolvedModel:
    """Return a model with a window."""
    return ResolvedModel(model="m", provider=ScriptedModel("said"), context_window=WINDOW, **hooks)  # type: ignore[arg-type]


def test_each_step_shows_the_prompt_of_the_step_before() -> None:
    """Prompts of 40k, 50k, 70k: unknown, then 40k, 50k as their provider reported them, never their sum."""
    last: Usage | None = None
    seen: list[UsageValue] = []
    for tokens in (40_000, 50_000, 70_000):
        seen.append(context_usage(model(), last).used_tokens)
        last = model().usage_of(ModelUsage(input_tokens=tokens))
    assert [(value.value, value.provenance) for value in seen] == [
        (None, "unavailable"),
        (40_000, "provider-reported"),
        (50_000, "provider-reported"),
    ]


def test_a_step_without_a_report_is_unknown_again() -> None:
    """An earlier figure is not carried over a step that said nothing."""
    assert context_usage(model(), model().usage_of(None)) == ContextUsage(
        used_tokens=UsageValue(provenance="unavailable"), context_window=WINDOW
    )


def test_an_adapter_reads_usage_in_its_own_way() -> None:
    """Its hook is asked instead of the plain reading, for usage and for the upstream provider."""
    twice = Usage.unknown().model_copy(update={"input_tokens": UsageValue(value=14, provenance="provider-reported")})
    adapted = model(normalize_usage=lambda _: twice, resolve_response_provider=lambda info: info.model)
    assert context_usage(adapted, adapted.usage_of(ModelUsage(input_tokens=7))).used_tokens.value == 14
    assert adapted.response_provider_of(ResponseInfo(model="x", upstream_provider="y")) == "x"


def test_an_upstream_provider_has_a_name_or_is_absent() -> None:
    """Never an empty text."""
    assert model().response_provider_of(ResponseInfo(upstream_provider="")) is None
    assert model().response_provider_of(ResponseInfo(upstream_provider="Fireworks")) == "Fireworks"


@pytest.mark.parametrize(
    ("reported", "value", "provenance"),
    [
        (ModelUsage(input_tokens=5, cache_read_tokens=900, cache_write_tokens=95), 1000, "computed"),
        (ModelUsage(input_tokens=5, cache_read_tokens=900), 905, "computed"),
        (ModelUsage(input_tokens=5), 5, "provider-reported"),
        (ModelUsage(cache_read_tokens=900), None, "unavailable"),
    ],
)
def test_tokens_of_a_cache_fill_the_window_too(reported: ModelUsage, value: int | None, provenance: str) -> None:
    """Where a provider counts them beside the input, as Anthropic does; elsewhere they are in it already."""
    beside = ResolvedModel(model="m", provider=Anthropic("parrot", api_key="k"), context_window=WINDOW)
    used = context_usage(beside, beside.usage_of(reported)).used_tokens
    assert (used.value, used.provenance) == (value, provenance)
    within = context_usage(model(), model().usage_of(reported)).used_tokens
    assert within.value == reported.input_tokens
