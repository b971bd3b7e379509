"""OpenRouter's lists of models and benchmarks as one catalogue: pure, from parsed JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Final, Literal

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from runlane.errors import ModelCatalogError
from runlane.models._catalog import ModelCatalog, ModelCatalogEntry, ModelMetric, ModelPopularity, ModelPrice
from runlane.models._registry import ModelCapability, ModelDescriptor

__all__ = ["SOURCE", "CatalogReplies", "read_catalog"]

SOURCE: Final = "openrouter"

_POPULARITY: Final = "openrouter-token-usage"
_MOMENT: Final = TypeAdapter(AwareDatetime)
_INDEXES: Final = {"intelligence": "intelligence_index", "coding": "coding_index", "agentic": "agentic_index"}
_ARENA: Final[tuple[tuple[str, str, Literal["elo", "percent", "milliseconds"]], ...]] = (
    ("elo", "elo", "elo"),
    ("win-rate", "win_rate", "percent"),
    ("generation-time", "avg_generation_time_ms", "milliseconds"),
)
_MAX_DECIMALS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogReplies:
    """The three bodies a catalogue is made of, parsed; a benchmark that could not be loaded is None."""

    models: object
    artificial_analysis: object = None
    design_arena: object = None


class _MalformedError(Exception):
    """A body has another shape than the one that is known."""


def read_catalog(replies: CatalogReplies, /, *, provider: str, observed_at: datetime) -> ModelCatalog:
    """Make a catalogue, in the order of popularity that the list of models has.

    Entries without a context window and repetitions of an id are left out, but count for the rank of those behind
    them. An entry of another shape is left out too, and a diagnostic says so.

    Args:
        replies: What OpenRouter answered.
        provider: The registry's key of the provider that serves these models.
        observed_at: When that was.

    Raises:
        ModelCatalogError: The list of models has another shape than the one that is known.
    """
    listed = replies.models.get("data") if isinstance(replies.models, Mapping) else None
    if not isinstance(listed, list):
        raise ModelCatalogError("OpenRouter's list of models is malformed", source=SOURCE, retryable=False)
    metrics: dict[str, list[ModelMetric]] = {}
    diagnostics = [
        *_add(metrics, "Artificial Analysis", replies.artificial_analysis, _indexes),
        *_add(metrics, "Design Arena", replies.design_arena, _ratings),
    ]
    entries: dict[str, ModelCatalogEntry] = {}
    malformed = 0
    for rank, item in enumerate(listed, 1):
        try:
            entry = _entry(item, rank, metrics, provider, observed_at)
        except (_MalformedError, ValidationError):
            malformed += 1
            continue
        if entry is not None:
            entries.setdefault(entry.id, entry)
    if malformed:
        diagnostics.append(f"{malformed} entries of the list of models are malformed")
    return ModelCatalog(
        source=SOURCE,
        observed_at=observed_at,
        completeness="partial" if diagnostics else "complete",
        models=tuple(entries.values()),
        diagnostics=tuple(diagnostics),
    )


# --- models -------------------------------------------------------------------------------------------------------


def _entry(
    item: object, rank: int, metrics: Mapping[str, list[ModelMetric]], provider: str, observed_at: datetime
) -> ModelCatalogEntry | None:
    model = _object(item)
    model_id, window = model.get("id"), model.get("context_length")
    if not window:
        return None
    slug = model.get("canonical_slug")
    found = metrics.get(slug if isinstance(slug, str) else "") or metrics.get(str(model_id)) or []
    description = model.get("description")
    descriptor = ModelDescriptor.model_validate(
        {
            "provider": provider,
            "model_id": model_id,
            "context_window": window,
            "capabilities": _capabilities(model),
            "observed_at": observed_at,
            "source": SOURCE,
        }
    )
    facts = {
        "id": model_id,
        "name": model.get("name") or model_id,
        "descriptor": descriptor,
        "description": description if isinstance(description, str) and description else None,
        "price": _price(model.get("pricing")),
        "popularity": ModelPopularity(rank=rank, window="week", source=_POPULARITY, observed_at=observed_at),
        "metrics": tuple(found),
    }
    return ModelCatalogEntry.model_validate(facts)


def _capabilities(model: Mapping[str, object]) -> list[ModelCapability]:
    """Say what a model can do; the list holds only models that take tools."""
    architecture = model.get("architecture")
    inputs = architecture.get("input_modalities") if isinstance(architecture, Mapping) else None
    takes = inputs if isinstance(inputs, list) else []
    parameters = model.get("supported_parameters")
    found: list[ModelCapability] = ["tools"]
    if "image" in takes:
        found.append("vision")
    if "file" in takes:
        found.append("files")
    if isinstance(parameters, list) and "reasoning" in parameters:
        found.append("reasoning")
    return found


def _price(pricing: object) -> ModelPrice | None:
    if not isinstance(pricing, Mapping):
        return None
    entered, answered = _amount(pricing.get("prompt")), _amount(pricing.get("completion"))
    if entered is None and answered is None:
        return None
    return ModelPrice(currency="USD", input_per_token=entered, output_per_token=answered)


def _amount(given: object) -> str | None:
    """Return an amount in plain digits; None for what is none, such as the -1 of a price that varies."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return None
    try:
        amount = Decimal(str(given).strip())
    except InvalidOperation:
        return None
    if not amount.is_finite() or amount < 0 or abs(amount.adjusted()) > _MAX_DECIMALS:
        return None
    return f"{abs(amount):f}"


# --- benchmarks ---------------------------------------------------------------------------------------------------


def _add(
    metrics: dict[str, list[ModelMetric]],
    name: str,
    body: object,
    read: Callable[[Mapping[str, object]], Iterable[tuple[str, ModelMetric]]],
) -> tuple[str, ...]:
    """Add the metrics of one benchmark, all or none; returns what is to be said about it."""
    if body is None:
        return (f"{name} benchmark data is unavailable",)
    try:
        found = list(read(_object(body)))
    except (_MalformedError, ValidationError):
        return (f"{name} benchmark data is malformed",)
    for model, metric in found:
        metrics.setdefault(model, []).append(metric)
    return ()


def _indexes(body: Mapping[str, object]) -> Iterator[tuple[str, ModelMetric]]:
    observed_at = _as_of(body)
    for item in _items(body):
        for metric, field in _INDEXES.items():
            value = item.get(field)
            if value is not None:
                yield (
                    _text(item, "model_permaslug"),
                    ModelMetric.model_validate(
                        {
                            "metric": metric,
                            "value": value,
                            "unit": "index",
                            "source": "artificial-analysis",
                            "observed_at": observed_at,
                        }
                    ),
                )


def _ratings(body: Mapping[str, object]) -> Iterator[tuple[str, ModelMetric]]:
    observed_at = _as_of(body)
    for item in _items(body):
        category = item.get("category")
        place = ":".join(("design-arena", _text(item, "arena"), *((str(category),) if category else ())))
        for metric, field, unit in _ARENA:
            value = item.get(field)
            if value is not None:
                yield (
                    _text(item, "model_permaslug"),
                    ModelMetric.model_validate(
                        {
                            "metric": f"{place}:{metric}",
                            "value": value,
                            "unit": unit,
                            "source": "design-arena",
                            "observed_at": observed_at,
                        }
                    ),
                )


def _as_of(body: Mapping[str, object]) -> datetime:
    """Return the benchmark's own date."""
    try:
        return _MOMENT.validate_python(_object(body.get("meta")).get("as_of"))
    except ValidationError:
        raise _MalformedError from None


def _items(body: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    items = body.get("data")
    if not isinstance(items, list):
        raise _MalformedError
    yield from map(_object, items)


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _MalformedError
    return value


def _text(holder: Mapping[str, object], key: str) -> str:
    value = holder.get(key)
    if not isinstance(value, str) or not value:
        raise _MalformedError
    return value
