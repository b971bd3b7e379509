"""Records as the bytes a store keeps: written once, referred to by id and SHA-256."""

from __future__ import annotations

import hashlib
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from runlane.errors import CanonicalJsonError, InvalidValueError, RecordCorruptError, RecordTooNewError
from runlane.records import JsonObject, Message, stored_json

__all__ = ["chained_digest", "decode", "decode_object", "digest", "encode_json", "same_content"]

RecordT = TypeVar("RecordT", bound=BaseModel)

SCHEMA_VERSION = 1
_MAX_PLACE = 200


def encode_json(value: object, /, *, argument: str) -> bytes:
    """Write a JSON value, or a record, in the form that is stored.

    Raises:
        InvalidValueError: The value is not JSON that can be read back; see `stored_json`.
    """
    try:
        return stored_json(value)
    except CanonicalJsonError as error:
        place = argument + error.path.replace("/", ".")
        place = place if len(place) <= _MAX_PLACE else f"{place[:_MAX_PLACE]}..."
        raise InvalidValueError(f"cannot be stored as JSON: {error.problem}", argument=place) from None


def decode(kind: type[RecordT], body: bytes, /, *, what: str) -> RecordT:
    """Read a stored record back.

    Args:
        kind: The record's class.
        body: Its bytes.
        what: What it is, for the error: `message 'm1' of conversation 'c1'`.

    Raises:
        RecordTooNewError: A later release wrote it.
        RecordCorruptError: It is not such a record.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(body, what, error) from None


def _refusal(body: bytes, what: str, error: ValidationError) -> RecordCorruptError | RecordTooNewError:
    try:
        version = from_json(body).get("schema_version", 0)
    except (ValueError, AttributeError):
        return RecordCorruptError(f"{what} is not a JSON object")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return RecordTooNewError(f"{what} has schema version {version}; this program knows {SCHEMA_VERSION}")
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    path = ".".join(str(step) for step in first["loc"])
    return RecordCorruptError(f"{what} is not valid{f' at {path}' if path else ''}: {first['msg']}")


def decode_object(body: bytes, /, *, what: str) -> JsonObject:
    """Read a stored JSON object back.

    Raises:
        RecordCorruptError: It is not a JSON object.
    """
    try:
        value: object = from_json(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RecordCorruptError(f"{what} is not a JSON object")
    return value


def digest(body: bytes, /) -> bytes:
    """Return the SHA-256 of a body."""
    return hashlib.sha256(body).digest()


def chained_digest(previous: bytes, body: bytes, /) -> bytes:
    """Return the SHA-256 of what came before and what was appended, so that a growing answer is never hashed again."""
    return hashlib.sha256(previous + body).digest()


def same_content(one: Message, other: Message, /) -> bool:
    """Whether two messages say the same: role, parts and metadata, whatever their ids and times."""

    def content(message: Message) -> bytes:
        wanted = message.model_dump(mode="json", include={"role", "parts", "metadata"})
        return encode_json(wanted, argument="input")

    return content(one) == content(other)
