"""The base of every stored record, and the scalar types records are made of."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    Field,
    PlainSerializer,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from runlane.contracts import JsonObject, Record
from runlane.errors import InvalidValueError

__all__ = [
    "JsonObject",
    "Record",
    "RecordId",
    "RecordVersion",
    "SchemaVersion",
    "Text",
    "Timestamp",
    "format_timestamp",
    "validated",
]

MAX_ID_CHARACTERS = 512


def _refuse_lone_surrogates(text: str) -> str:
    """Refuse text that no store and no wire could carry."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PydanticCustomError(
                "text", "a lone surrogate at character {position} is not text", {"position": error.start}
            ) from None
    return text


Text: TypeAlias = Annotated[str, AfterValidator(_refuse_lone_surrogates)]
"""Unicode text, any character but a lone surrogate."""

RecordId: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARACTERS, strict=True)]
"""An opaque identifier, 1 to 512 characters. Counting them, pydantic refuses a lone surrogate by itself."""

RecordVersion: TypeAlias = Annotated[int, Field(ge=0, strict=True)]
"""A version, revision or sequence: an integer of at least 0."""


def _to_milliseconds(moment: datetime) -> datetime:
    """Bring an instant to UTC and to the precision that is stored, so that a round trip gives an equal value."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    rest = moment.microsecond % 1000
    return moment.replace(microsecond=moment.microsecond - rest) if rest else moment


def format_timestamp(moment: datetime, /) -> str:
    """Write an instant as it is stored: ISO-8601 in UTC with milliseconds and `Z`.

    Example:
        >>> format_timestamp(datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC))
        '2026-01-02T03:04:05.678Z'
    """
    return _written(moment if moment.tzinfo is UTC else moment.astimezone(UTC))


@lru_cache(maxsize=1024)
def _written(moment: datetime) -> str:
    """Write an instant in UTC. One turn writes each of its own several times, and writing costs more than finding."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Timestamp: TypeAlias = Annotated[
    AwareDatetime,
    AfterValidator(_to_milliseconds),
    PlainSerializer(format_timestamp, return_type=str, when_used="json"),
]
"""An aware instant, kept in UTC with millisecond precision; a text without an offset is refused."""


class SchemaVersion(Record):
    """A record that names the version of its own shape, for readers of other releases."""

    schema_version: Annotated[int, Field(ge=1, le=1, strict=True)] = 1


RecordT = TypeVar("RecordT", bound=BaseModel)


def validated(kind: type[RecordT], value: object, /, *, argument: str) -> RecordT:
    """Parse public input as a record, or raise an error of runlane that names the field.

    Args:
        kind: The record class.
        value: A mapping, or already an instance (returned as it is).
        argument: What the caller called it; becomes the head of the error's path.

    Raises:
        InvalidValueError: The value is not a valid record.
    """
    if isinstance(value, kind):
        return value
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = ".".join([argument, *(str(step) for step in first["loc"])])
        raise InvalidValueError(first["msg"], argument=path) from None
