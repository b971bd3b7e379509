"""On OpenRouter only the raw object is evidence of what was spent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.models import ModelUsage
from runlane.models.openrouter import normalize_openrouter_usage
from runlane.records import CostValue, Usage, UsageValue

RAW = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "completion_tokens_details": {"reasoning_tokens": 7},
    "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 0},
    "cost": 0.25,
}


def reported(value: int) -> UsageValue:
    """A figure of the provider."""
    return UsageValue(value=value, provenance="provider-reported")


def test_each_figure_is_read_where_the_table_says() -> None:
    """An explicit 0 is a figure."""
    assert normalize_openrouter_usage(ModelUsage(raw=RAW)) == Usage(  # type: ignore[arg-type]
        input_tokens=reported(100),
        output_tokens=reported(20),
        reasoning_tokens=reported(7),
        cache_read_tokens=reported(40),
        cache_write_tokens=reported(0),
        cost=CostValue(value=0.25, currency="USD", provenance="provider-reported"),
    )


@pytest.mark.parametrize("usage", [None, ModelUsage(), ModelUsage(input_tokens=0, output_tokens=0, cost=0.0)])
def test_without_the_raw_object_nothing_is_known(usage: ModelUsage | None) -> None:
    """Figures that somebody derived may be invented zeros."""
    assert normalize_openrouter_usage(usage) == Usage.unknown()


@pytest.mark.parametrize(
    ("metadata", "cost"),
    [
        ({"openrouter": {"cost": 0.5, "usage": {"cost": 0.7}}}, 0.5),
        ({"openrouter": {"cost": 0, "usage": {"cost": 0.7}}}, 0.0),
        ({"openrouter": {"cost": "0.5", "usage": {"cost": 0.7}}}, 0.7),
        ({"openrouter": {"cost": -1, "usage": {"cost": 0.7}}}, 0.7),
        ({"openrouter": {"usage": {"cost": 2}}}, 2.0),
        ({"openrouter": {}}, 0.25),
        ({"openrouter": "odd"}, 0.25),
        ({}, 0.25),
    ],
)
def test_cost_is_the_first_amount_that_is_one(metadata: dict[str, Any], cost: float) -> None:
    """Of the metadata, of the usage in it, of the raw object."""
    usage = normalize_openrouter_usage(ModelUsage(raw=RAW), metadata)  # type: ignore[arg-type]
    assert usage.cost == CostValue(value=cost, currency="USD", provenance="provider-reported")


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -0.1, "0.1", None, True, 10**400])
def test_a_cost_that_is_no_amount_is_unknown(cost: object) -> None:
    """It is never estimated from prices."""
    usage = normalize_openrouter_usage(ModelUsage(raw={"cost": cost}))  # type: ignore[dict-item]
    assert usage.cost == CostValue(provenance="unavailable")


ODD: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-5, 2**60) | st.floats() | st.text(max_size=3) | st.just({}) | st.just([])
)
RAWS = st.dictionaries(
    st.sampled_from([*RAW, "total_tokens"]),
    ODD | st.dictionaries(st.sampled_from(["reasoning_tokens", "cached_tokens", "cache_write_tokens", "cost"]), ODD),
)


@given(raw=RAWS, metadata=st.none() | st.dictionaries(st.just("openrouter"), ODD | RAWS))
def test_any_object_gives_six_honest_figures(raw: dict[str, Any], metadata: dict[str, Any] | None) -> None:
    """Never an exception, never a missing field, and a value only where the provider gave one."""
    usage = normalize_openrouter_usage(ModelUsage(raw=raw), metadata)
    figures = [getattr(usage, name) for name in Usage.model_fields]
    assert all(figure is not None for figure in figures)
    assert all(figure.provenance in {"provider-reported", "unavailable"} for figure in figures)
    given_input = raw.get("prompt_tokens")
    if isinstance(given_input, int) and not isinstance(given_input, bool) and 0 <= given_input < 2**53:
        assert usage.input_tokens == reported(given_input)
    elif not isinstance(given_input, float):
        assert usage.input_tokens.value is None
