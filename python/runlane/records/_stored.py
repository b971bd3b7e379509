"""Records as text: what may be in one, so that everything that reads records reads it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic_core import PydanticSerializationError

from runlane.canonical import canonical_record_json
from runlane.contracts import JsonObject
from runlane.errors import CanonicalJsonError
from runlane.records._base import Record

__all__ = ["stored_json"]

_MAX_DEPTH: Final = 192
"""How deep a record may be nested; pydantic reads 200 containers inside each other, some of which may lie around it."""

_MAX_DIGITS: Final = 4_300
"""How many digits an integer may have; more are read neither by pydantic nor, by default, by `int` (CVE-2020-10735)."""

_MAX_BYTES: Final = 1 << 29
"""How long a record may be; SQLite keeps 10**9 bytes in a row, `History` 2**30 in a record."""

_REPLACED: Final = "\ufffd\ufffd\ufffd".encode()
"""What pydantic may write in the place of a lone surrogate within a key: one U+FFFD for each byte. Or it raises."""


def stored_json(value: object, /, *, inside: int = 0) -> bytes:
    """Write a record, or JSON that is to be part of one, in the form that is stored: see `canonical_record_json`.

    Whatever is written can be read back: by every store, by `History`, and as a record equal to the one it was. Only a
    `float` beyond 2**53 may come back as an `int`: its shortest digits, which stand for the same double.

    Args:
        value: A record, or a JSON value.
        inside: How many containers will lie around the value.

    Example:
        >>> stored_json({"id": 2512292042121000001})
        b'{"id":2512292042121000001}'

    Raises:
        CanonicalJsonError: It is not JSON, nested deeper than 192 containers with those around it, longer than 512 MiB,
            or holds an integer of more than 4,300 digits.
    """
    record = value if isinstance(value, Record) else None
    body = canonical_record_json(
        value if record is None else _dumped(record),
        max_depth=_MAX_DEPTH - inside,
        max_digits=_MAX_DIGITS,
        max_bytes=_MAX_BYTES,
    )
    if record is not None and _REPLACED in body:
        _refuse_broken_keys(record)
    return body


def _dumped(record: Record) -> JsonObject:
    try:
        return record.to_json()
    except (UnicodeEncodeError, PydanticSerializationError):
        _refuse_broken_keys(record)
        raise


def _refuse_broken_keys(record: Record) -> None:
    """Raise for the first key that is not text; there may be none.

    Raises:
        CanonicalJsonError: Names the object that has it.
    """
    for path in _broken_keys(record.model_dump(), ""):
        raise CanonicalJsonError(path=path, problem="a key with a lone surrogate")


def _broken_keys(value: object, path: str) -> Iterator[str]:
    """Yield the places of objects with a key that is not text."""
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str) and not key.isascii() and key.encode(errors="ignore").decode() != key:
                yield path
            yield from _broken_keys(item, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _broken_keys(item, f"{path}/{index}")
