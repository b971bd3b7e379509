"""Catalogues: what models there are to choose from, with prices, popularity and measurements."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol, TypeAlias

from pydantic import Field

from runlane.contracts import CancelToken
from runlane.models._registry import ModelDescriptor
from runlane.records import Record, RecordId, Timestamp, validated

__all__ = [
    "ModelCatalog",
    "ModelCatalogEntry",
    "ModelCatalogProvider",
    "ModelMetric",
    "ModelPopularity",
    "ModelPrice",
    "ModelSearchInput",
    "ModelSearchResult",
    "search_model_catalog",
]

Amount: TypeAlias = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$", max_length=100)]
"""A non-negative amount of money in plain decimal digits; text, so that no digit is lost."""


class ModelPrice(Record):
    """What a model costs for each token, in `currency` (three letters); an absent figure is not known."""

    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    input_per_token: Amount | None = None
    output_per_token: Amount | None = None


class ModelPopularity(Record):
    """How much a model is used; 1 is the most."""

    rank: Annotated[int, Field(gt=0, strict=True)]
    window: Literal["week"]
    source: RecordId
    observed_at: Timestamp


class ModelMetric(Record):
    """One measurement of a model by somebody."""

    metric: RecordId
    value: Annotated[float, Field(allow_inf_nan=False)]
    unit: Literal["index", "elo", "percent", "milliseconds"]
    source: RecordId
    observed_at: Timestamp


class ModelCatalogEntry(Record):
    """One model of a catalogue."""

    id: RecordId
    name: Annotated[str, Field(min_length=1)]
    descriptor: ModelDescriptor
    description: str | None = None
    price: ModelPrice | None = None
    popularity: ModelPopularity | None = None
    metrics: tuple[ModelMetric, ...] = ()


class ModelCatalog(Record):
    """A catalogue as it was at one moment.

    Attributes:
        completeness: `partial` if something could not be loaded; `diagnostics` says what, in sentences.
        models: In the catalogue's own order.
    """

    schema_version: Annotated[int, Field(ge=1, le=1, strict=True)] = 1
    source: RecordId
    observed_at: Timestamp
    completeness: Literal["complete", "partial"]
    models: tuple[ModelCatalogEntry, ...]
    diagnostics: tuple[str, ...] = ()


class ModelCatalogProvider(Protocol):
    """Loads a catalogue."""

    async def load_catalog(self, *, signal: CancelToken | None = None) -> ModelCatalog:
        """Return the catalogue as it is now.

        Raises:
            ModelCatalogError: It could not be loaded.
        """
        ...


class ModelSearchInput(Record):
    """What to look for.

    Attributes:
        query: Words that must all occur; an empty text finds everything.
        limit: How many to return, 1 to 200.
    """

    query: Annotated[str, Field(max_length=256)] = ""
    limit: Annotated[int, Field(ge=1, le=200, strict=True)] = 20


class ModelSearchResult(Record):
    """The first models found, in the catalogue's order.

    Attributes:
        total: How many were found.
        truncated: Whether there are more than were returned.
    """

    models: tuple[ModelCatalogEntry, ...]
    total: Annotated[int, Field(ge=0)]
    truncated: bool


def search_model_catalog(catalog: ModelCatalog, search: object, /) -> ModelSearchResult:
    """Find the models whose id, name or description contain every word of a query, in any case of letters.

    There is no scoring: what is found keeps the catalogue's order.

    Args:
        catalog: Where to look.
        search: A `ModelSearchInput`, or a mapping with its fields.

    Raises:
        InvalidValueError: The query is too long, the limit out of range, or a field unknown.
    """
    wanted = validated(ModelSearchInput, search, argument="search")
    words = wanted.query.lower().split()
    found = [entry for entry in catalog.models if _contains_all(entry, words)]
    return ModelSearchResult(models=tuple(found[: wanted.limit]), total=len(found), truncated=len(found) > wanted.limit)


def _contains_all(entry: ModelCatalogEntry, words: list[str]) -> bool:
    text = "\n".join((entry.id, entry.name, entry.description or "")).lower()
    return all(word in text for word in words)
