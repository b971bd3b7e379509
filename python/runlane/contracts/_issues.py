"""What is wrong with a value; and JSON text of a value that claims to be JSON, for a parser that wants text.

This layer is below `runlane.canonical`; a parser needs no canonical form, only one that keeps every digit and takes
nothing that is not JSON.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NoReturn

from pydantic import Field
from pydantic_core import to_json

from runlane.contracts._record import Record
from runlane.errors import CheckFailedError

__all__ = ["Issue", "json_text"]

_CODE_CHARACTERS: Final = 128
_MAX_DEPTH: Final = 128


class Issue(Record):
    """One thing that is wrong.

    Attributes:
        code: What kind of thing, 1 to 128 characters.
        message: One sentence for people.
        path: Where, from the outside in; None when the problem has no field.
    """

    code: Annotated[str, Field(min_length=1, max_length=_CODE_CHARACTERS)]
    message: str
    path: tuple[str | int, ...] | None = None


def json_text(value: object, /) -> bytes:
    """Return a JSON text of `value` in UTF-8, integers with all their digits.

    Raises:
        CheckFailedError: Something in it is no JSON, a lone surrogate included, or it is nested deeper than 128.
    """
    _check(value, ())
    return to_json(value)


def _check(value: Any, path: tuple[str | int, ...]) -> None:  # noqa: ANN401 - any object at all may come
    kind = type(value)
    if issubclass(kind, str):
        _check_text(value, path)
    elif issubclass(kind, dict):
        _check_object(value, path)
    elif issubclass(kind, list | tuple):
        _check_array(value, path)
    elif issubclass(kind, float):
        if not math.isfinite(value):
            _refuse("a number that is not finite", path)
    elif value is not None and not issubclass(kind, int):
        _refuse(f"{kind.__name__} is not JSON", path)


def _check_text(text: str, path: tuple[str | int, ...]) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse("a lone surrogate is not text", path)


def _check_object(value: dict[object, object], path: tuple[str | int, ...]) -> None:
    _check_depth(path)
    for key, member in value.items():
        if not isinstance(key, str):
            _refuse("a key that is no text", path)
        _check_text(key, path)
        _check(member, (*path, key))


def _check_array(value: list[object] | tuple[object, ...], path: tuple[str | int, ...]) -> None:
    _check_depth(path)
    for index, item in enumerate(value):
        _check(item, (*path, index))


def _check_depth(path: tuple[str | int, ...]) -> None:
    if len(path) >= _MAX_DEPTH:
        _refuse(f"nested deeper than {_MAX_DEPTH}, or inside itself", ())


def _refuse(message: str, path: tuple[str | int, ...]) -> NoReturn:
    raise CheckFailedError(issues=[Issue(code="not_json", message=message, path=path or None)])
