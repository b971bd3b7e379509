"""What was spent is added without pretending to know more than was said."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.models import ModelUsage, ResolvedModel, ResponseInfo, add_usage, stated_usage, usage_from_model
from runlane.models._usage import merge_usage, read_count, read_money
from runlane.records import CostValue, Usage, UsageValue
from runlane.testing import ScriptedModel

_FIELDS = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")


@pytest.mark.parametrize("figure", [None, -1, 1.5, float("nan"), float("inf"), True, "3", [], 2**53, 10**400])
def test_m4_a_malformed_figure_is_unknown(figure: object) -> None:
    """It never fails an answered run, and never becomes a number."""
    assert read_count(figure) is None


@pytest.mark.parametrize("figure", [0, 1, 12.0, 2**53 - 1])
def test_a_whole_figure_is_kept(figure: float) -> None:
    """An explicit 0 is a figure; 12.0 is how some servers write 12."""
    assert read_count(figure) == figure


@pytest.mark.parametrize("amount", [None, -0.1, float("nan"), float("inf"), True, "1", 10**400])
def test_a_malformed_amount_is_unknown(amount: object) -> None:
    """A price that cannot be is not a price."""
    assert read_money(amount) is None


def test_m4_reported_figures_keep_their_provenance() -> None:
    """What the provider said is its own word; what it did not say is unavailable, never 0."""
    usage = usage_from_model(ModelUsage(input_tokens=3, output_tokens=0, cost=0.5, currency="USD"))
    assert usage.input_tokens == UsageValue(value=3, provenance="provider-reported")
    assert usage.output_tokens == UsageValue(value=0, provenance="provider-reported")
    assert usage.reasoning_tokens == UsageValue(provenance="unavailable")
    assert usage.cost == CostValue(value=0.5, currency="USD", provenance="provider-reported")


def test_no_report_is_unknown_usage() -> None:
    """Six unavailable figures."""
    assert usage_from_model(None) == usage_from_model(ModelUsage()) == Usage.unknown()


def test_a_label_that_is_no_currency_is_left_out() -> None:
    """The amount stays, without a label nobody could read."""
    cost = usage_from_model(ModelUsage(cost=1, currency="credits")).cost
    assert cost == CostValue(value=1, provenance="provider-reported")


def test_a_later_report_replaces_what_it_states() -> None:
    """Start 25/10/1 and end 25/10/15 is 25/10/15; an end with the output only keeps the rest."""
    start = ModelUsage(input_tokens=25, cache_read_tokens=10, output_tokens=1)
    for end in (ModelUsage(input_tokens=25, cache_read_tokens=10, output_tokens=15), ModelUsage(output_tokens=15)):
        merged = merge_usage(start, end)
        assert (merged.input_tokens, merged.cache_read_tokens, merged.output_tokens) == (25, 10, 15)


def step(tokens: int | None = None, cost: float | None = None, currency: str | None = None) -> Usage:
    """One step's usage."""
    return usage_from_model(ModelUsage(input_tokens=tokens, cost=cost, currency=currency))


def total(*steps: Usage) -> Usage:
    """The sum of steps."""
    sum_: Usage | None = None
    for one in steps:
        sum_ = add_usage(sum_, one)
    assert sum_ is not None
    return sum_


def test_the_first_step_is_not_touched() -> None:
    """Nothing was added yet, so nothing is computed."""
    assert total(step(1000, 1, "USD")) == step(1000, 1, "USD")


def test_known_figures_are_summed() -> None:
    """1000, 2000 and 3000 tokens for 0.5, 1.0 and 1.5 USD are 6000 for 3 USD, computed."""
    spent = total(step(1000, 0.5, "USD"), step(2000, 1.0, "USD"), step(3000, 1.5, "USD"))
    assert spent.input_tokens == UsageValue(value=6000, provenance="computed")
    assert spent.cost == CostValue(value=3.0, currency="USD", provenance="computed")


def test_one_known_figure_is_a_lower_bound() -> None:
    """1000 and unknown is 1000, computed, in either order."""
    for steps in ((step(1000), step()), (step(), step(1000))):
        assert total(*steps).input_tokens == UsageValue(value=1000, provenance="computed")


@pytest.mark.parametrize(
    "steps",
    [
        (step(1, 1, "USD"), step(1, 2, "EUR"), step(1, 4, "USD")),
        (step(1, 1, "USD"), step(1), step(1, 4, "USD")),
        (step(1), step(1, 1, "USD"), step(1, 4, "USD")),
        (step(1, 1, "USD"), step(1, 1)),
        (step(1, 1e308), step(1, 1e308)),
    ],
)
def test_an_unknown_or_foreign_cost_stays_unknown(steps: tuple[Usage, ...]) -> None:
    """No later step turns it back into a number, and nothing is converted; tokens are still summed."""
    spent = total(*steps)
    assert spent.cost == CostValue(provenance="unavailable")
    assert spent.input_tokens == UsageValue(value=len(steps), provenance="computed")


def test_costs_without_a_label_add_up() -> None:
    """Two unlabelled amounts are of the same kind."""
    assert total(step(1, 1), step(1, 2)).cost == CostValue(value=3, provenance="computed")


_FIGURES = st.none() | st.integers(0, 10**6)
_USAGES = st.builds(
    ModelUsage,
    **dict.fromkeys(_FIELDS, _FIGURES),
    cost=st.none() | st.integers(0, 1000),
    currency=st.sampled_from([None, "USD", "EUR"]),
).map(usage_from_model)


@given(first=_USAGES, second=_USAGES, third=_USAGES)
def test_the_algebra(first: Usage, second: Usage, third: Usage) -> None:
    """Adding is commutative and associative, states every figure, and an unknown figure is never 0."""
    assert add_usage(first, second) == add_usage(second, first)
    assert add_usage(add_usage(first, second), third) == add_usage(first, add_usage(second, third))
    for field in _FIELDS:
        values = [getattr(usage, field).value for usage in (first, second)]
        added = getattr(add_usage(first, second), field)
        known = [value for value in values if value is not None]
        assert added.value == (sum(known) if known else None)
        assert added.provenance == ("computed" if known else "unavailable")


_REPORTS = st.builds(
    ModelUsage,
    **dict.fromkeys(_FIELDS, st.none() | st.integers(0, 1000)),
    cost=st.none() | st.floats(0, 10),
)


@given(reports=st.lists(_REPORTS, min_size=1, max_size=6))
def test_cumulative_figures_are_never_added(reports: list[ModelUsage]) -> None:
    """Of any reports of one response the last one that states a figure is the figure; none is a sum."""
    merged: ModelUsage | None = None
    for report in reports:
        merged = merge_usage(merged, report)
    assert merged is not None
    for field in (*_FIELDS, "cost"):
        given_figures = [value for report in reports if (value := getattr(report, field)) is not None]
        assert getattr(merged, field) == (given_figures[-1] if given_figures else None)
    assert merge_usage(merged, merged) == merged


@given(steps=st.lists(_USAGES, min_size=1, max_size=6), data=st.data())
def test_a_total_does_not_care_where_it_is_cut(steps: list[Usage], data: st.DataObject) -> None:
    """A run that is taken over goes on from the total it has, and comes to what one execution would have."""
    cut = data.draw(st.integers(0, len(steps) - 1))
    before = total(*steps[: cut + 1])
    for one in steps[cut + 1 :]:
        before = add_usage(before, one)
    assert before == total(*steps)


@given(steps=st.lists(_USAGES, min_size=2, max_size=6))
def test_one_unknown_cost_makes_the_total_unknown_for_good(steps: list[Usage]) -> None:
    """Known only if every step's is known and in one currency; then it is their sum."""
    cost = total(*steps).cost
    costs = [one.cost for one in steps]
    assert cost is not None
    known = all(one is not None and one.value is not None for one in costs)
    same = len({one.currency for one in costs if one is not None}) == 1
    assert (cost.value is not None) == (known and same)
    assert cost.provenance == ("computed" if known and same else "unavailable")


def test_stated_usage_leaves_no_figure_out() -> None:
    """What is absent is unavailable, what is there is untouched."""
    known = UsageValue(value=3, provenance="estimated")
    stated = stated_usage(Usage(input_tokens=known, output_tokens=UsageValue(provenance="unavailable")))
    assert stated == Usage.unknown().model_copy(update={"input_tokens": known})


@pytest.mark.parametrize(
    "hook", [lambda _: 1 / 0, lambda _: None, lambda _: {"input_tokens": 1}], ids=["raises", "nothing", "a mapping"]
)
def test_an_adapter_that_cannot_read_its_provider_fails_no_run(hook: Callable[[object], Any]) -> None:
    """Its step is of unknown spend, and its upstream provider is nobody."""
    model = ResolvedModel(model="m", provider=ScriptedModel("x"), normalize_usage=hook, resolve_response_provider=hook)
    assert model.usage_of(ModelUsage(input_tokens=1)) == Usage.unknown()
    assert model.response_provider_of(ResponseInfo(upstream_provider="y")) is None


def test_what_an_adapter_leaves_out_is_unavailable() -> None:
    """Usage is stated whole whoever read it."""
    usage = Usage(
        input_tokens=UsageValue(value=1, provenance="provider-reported"),
        output_tokens=UsageValue(provenance="unavailable"),
    )
    model = ResolvedModel(model="m", provider=ScriptedModel("x"), normalize_usage=lambda _: usage)
    assert model.usage_of(None) == stated_usage(usage)
