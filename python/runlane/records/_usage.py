"""What was spent, and how well that is known.

A figure nobody reported is `unavailable` and has no value; it is never shown or added as zero.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from runlane.records._base import Record

__all__ = [
    "CostValue",
    "Provenance",
    "ProviderResponse",
    "RunMetrics",
    "TokenCount",
    "Usage",
    "UsageValue",
]

Provenance: TypeAlias = Literal["provider-reported", "measured", "computed", "estimated", "unavailable"]


class _Figure(Record):
    # On a field and not on the record: that would be asked again wherever a figure becomes part of another record.
    @field_validator("provenance", check_fields=False)
    @classmethod
    def _unknown_has_no_value(cls, provenance: Provenance, info: ValidationInfo) -> Provenance:
        """Keep `unavailable` and a number apart."""
        before = info.data
        if "value" in before and (before["value"] is None) != (provenance == "unavailable"):
            raise PydanticCustomError("figure", "a value is absent exactly when its provenance is 'unavailable'")
        return provenance


class UsageValue(_Figure):
    """Tokens of a served request, a non-negative integer."""

    value: Annotated[int, Field(ge=0, strict=True)] | None = None
    provenance: Literal["provider-reported", "computed", "estimated", "unavailable"]


class CostValue(_Figure):
    """Money, in `currency` (three letters) if it is known."""

    value: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] | None = None
    provenance: Literal["provider-reported", "computed", "estimated", "unavailable"]


class TokenCount(_Figure):
    """Tokens of something not sent yet: counted exactly (`measured`), derived, or guessed."""

    value: Annotated[int, Field(ge=0, strict=True)] | None = None
    provenance: Literal["measured", "computed", "estimated", "unavailable"]


class Usage(Record):
    """What a run or a step spent. What is stored or published states every field."""

    input_tokens: UsageValue
    output_tokens: UsageValue
    reasoning_tokens: UsageValue | None = None
    cache_read_tokens: UsageValue | None = None
    cache_write_tokens: UsageValue | None = None
    cost: CostValue | None = None

    @classmethod
    def unknown(cls) -> Usage:
        """Return usage with all six figures unavailable."""
        nothing = UsageValue(provenance="unavailable")
        return cls(
            input_tokens=nothing,
            output_tokens=nothing,
            reasoning_tokens=nothing,
            cache_read_tokens=nothing,
            cache_write_tokens=nothing,
            cost=CostValue(provenance="unavailable"),
        )


class RunMetrics(Record):
    """How a run went.

    Attributes:
        partial: True on every checkpoint; on an ended run, True when the provider never reported a finish.
        duration_ms: From acquisition to the end, milliseconds.
        ttft_ms: From acquisition to the first output, milliseconds.
    """

    partial: bool
    usage: Usage
    duration_ms: Annotated[int, Field(ge=0)] | None = None
    ttft_ms: Annotated[int, Field(ge=0)] | None = None


class ProviderResponse(Record):
    """How a provider identified one response."""

    response_id: str | None = None
    model: str | None = None
    upstream_provider: str | None = None
    finish_reason: str | None = None
    raw_finish_reason: str | None = None
