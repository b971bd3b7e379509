"""The base of every record, stored or passed on, and the usage figures of one model call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, JsonValue, SerializeAsAny
from typing_extensions import override

__all__ = ["JsonObject", "ModelUsage", "Record"]

JsonObject: TypeAlias = SerializeAsAny[dict[str, JsonValue]]
"""A JSON object. Treat it as read-only once it is part of a record.

A record is dumped without asking of each value in it once more whether it is JSON.
"""


class Record(BaseModel):
    """A frozen fact. Unknown fields are refused; an optional field that is None is left out when dumped."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, ser_json_inf_nan="constants")

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy; fields that change are validated like those of a new record.

        Raises:
            pydantic.ValidationError: A changed field has no value of its kind, or does not go with the others.
        """
        source = super().model_copy(deep=deep) if deep or not update else self
        if not update:
            return source
        held = source.__dict__
        return type(self).model_validate({name: held[name] for name in source.model_fields_set} | {**update})

    def to_json(self) -> JsonObject:
        """Return the record as JSON values, without the fields that are None."""
        # As `model_dump(mode="json", exclude_none=True)`, without its many arguments: every record written passes here.
        facts: JsonObject = self.__pydantic_serializer__.to_python(self, mode="json", exclude_none=True)
        return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """What a provider reported for one call: for accounting only. An unreported figure is None, never 0.

    Attributes:
        cost: Money, in `currency`, if the provider reports it.
        raw: The provider's own object.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost: float | None = None
    currency: str | None = None
    raw: JsonObject | None = None
