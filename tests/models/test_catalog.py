"""A catalogue is searched by words, in its own order."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from runlane.errors import InvalidValueError
from runlane.models import ModelCatalog, ModelCatalogEntry, ModelPrice, search_model_catalog

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def entry(model: str, name: str, description: str | None = None) -> dict[str, Any]:
    """Return an entry."""
    descriptor = {"provider": "lab", "model_id": model, "context_window": 1_000}
    return {"id": model, "name": name, "descriptor": descriptor, "description": description}


def catalog(*entries: dict[str, Any]) -> ModelCatalog:
    """Return a catalogue."""
    return ModelCatalog.model_validate(
        {"source": "lab", "observed_at": NOW, "completeness": "complete", "models": entries}
    )


ZOO = catalog(
    entry("lab/owl-large", "Owl Large", "Sees in the DARK."),
    entry("lab/owl-small", "Owl Small"),
    entry("lab/cat", "Cat", "Also sees in the dark; small."),
    entry("lab/dog", "Dog"),
)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["lab/owl-large", "lab/owl-small", "lab/cat", "lab/dog"]),
        ("   ", ["lab/owl-large", "lab/owl-small", "lab/cat", "lab/dog"]),
        ("owl", ["lab/owl-large", "lab/owl-small"]),
        ("OWL small", ["lab/owl-small"]),
        ("dark", ["lab/owl-large", "lab/cat"]),
        (" small\tsees ", ["lab/cat"]),
        ("owl dog", []),
        ("lab/", ["lab/owl-large", "lab/owl-small", "lab/cat", "lab/dog"]),
        ("largeowl", []),
    ],
)
def test_every_word_must_occur_somewhere(query: str, found: list[str]) -> None:
    """In id, name or description, whatever the case; what is found keeps the catalogue's order."""
    result = search_model_catalog(ZOO, {"query": query, "limit": 200})
    assert [model.id for model in result.models] == found
    assert (result.total, result.truncated) == (len(found), False)


@pytest.mark.parametrize(("limit", "truncated"), [(1, True), (3, True), (4, False), (200, False)])
def test_a_limit_cuts_the_list_and_says_so(limit: int, truncated: bool) -> None:  # noqa: FBT001
    """The total counts what was cut off too."""
    result = search_model_catalog(ZOO, {"limit": limit})
    assert (len(result.models), result.total, result.truncated) == (min(limit, 4), 4, truncated)


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"limit": 0}, "search.limit"),
        ({"limit": 201}, "search.limit"),
        ({"limit": 1.5}, "search.limit"),
        ({"limit": True}, "search.limit"),
        ({"query": "x" * 257}, "search.query"),
        ({"order": "rank"}, "search.order"),
    ],
)
def test_a_search_out_of_range_is_refused(wrong: dict[str, object], path: str) -> None:
    """The error names the field."""
    with pytest.raises(InvalidValueError) as refused:
        search_model_catalog(ZOO, wrong)
    assert refused.value.argument == path


def test_the_longest_query_is_taken() -> None:
    """256 characters."""
    assert search_model_catalog(ZOO, {"query": "x" * 256}).total == 0


@pytest.mark.parametrize("amount", ["0", "0.000002", "12.5", "100"])
def test_a_price_is_a_plain_decimal(amount: str) -> None:
    """Text, so that no digit is lost."""
    assert ModelPrice(currency="USD", input_per_token=amount).input_per_token == amount


@pytest.mark.parametrize("amount", ["-1", "1e-6", ".5", "5.", "", "NaN", " 1", "1\n", 1.5])
def test_a_price_of_another_form_is_refused(amount: object) -> None:
    """Negative, exponential, unfinished or a float."""
    with pytest.raises(ValidationError):
        ModelPrice(currency="USD", output_per_token=amount)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"popularity": {"rank": 0, "window": "week", "source": "s", "observed_at": NOW}},
        {"popularity": {"rank": 1, "window": "day", "source": "s", "observed_at": NOW}},
        {"metrics": [{"metric": "m", "value": 1, "unit": "furlong", "source": "s", "observed_at": NOW}]},
        {"metrics": [{"metric": "m", "value": float("nan"), "unit": "elo", "source": "s", "observed_at": NOW}]},
        {"price": {"currency": "usd"}},
        {"colour": "blue"},
    ],
)
def test_an_entry_is_strict(wrong: dict[str, object]) -> None:
    """A field out of range, or unknown."""
    with pytest.raises(ValidationError):
        ModelCatalogEntry.model_validate(entry("m", "M") | wrong)


@given(
    names=st.lists(st.text(alphabet="abAB ", max_size=6), max_size=8),
    words=st.lists(st.text(alphabet="abAB", min_size=1, max_size=2), max_size=3),
    limit=st.integers(1, 10),
)
def test_a_search_is_a_filter(names: list[str], words: list[str], limit: int) -> None:
    """Its result is a prefix of what matches, in order, and its total is their number."""
    place = catalog(*(entry(f"m{number}", name or "x") for number, name in enumerate(names)))
    result = search_model_catalog(place, {"query": " ".join(words), "limit": limit})
    matching = [
        model.id for model in place.models if all(word.lower() in f"{model.id}\n{model.name}".lower() for word in words)
    ]
    assert [model.id for model in result.models] == matching[:limit]
    assert (result.total, result.truncated) == (len(matching), len(matching) > limit)
