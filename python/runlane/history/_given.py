"""Arguments of the history's questions, checked before the native half sees them: an error names the argument."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from runlane.errors import InvalidValueError, UsageError

__all__ = ["given_dict", "given_texts", "require_kind", "require_names", "require_text"]

_MAX_SHOWN: Final = 60


def require_kind(value: object, kind: type[object], argument: str, /) -> None:
    """Refuse what is not of a class.

    Raises:
        UsageError: It is not.
    """
    if not isinstance(value, kind):
        raise UsageError(f"must be a {kind.__name__}, not {type(value).__name__}", argument=argument)


def require_text(value: object, argument: str, /) -> str:
    """Return a text.

    Raises:
        UsageError: It is none.
        InvalidValueError: It holds a lone surrogate, which no record does.
    """
    if not isinstance(value, str):
        raise UsageError(f"must be a text, not {type(value).__name__}", argument=argument)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidValueError("holds a lone surrogate", argument=argument) from None
    return value


def given_texts(values: Iterable[str], argument: str, /) -> list[str]:
    """Return several texts; one text by itself is not several.

    Raises:
        UsageError: They are not.
        InvalidValueError: One holds a lone surrogate.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise UsageError(f"must be a collection of texts, not {type(values).__name__}", argument=argument)
    return [require_text(value, argument) for value in values]


def given_dict(values: object, argument: str, /) -> dict[Any, Any]:
    """Return a mapping as a dict of its own, an empty one for None.

    Raises:
        UsageError: It is no mapping.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise UsageError(f"must be a mapping, not {type(values).__name__}", argument=argument)
    return dict(values)


def require_names(options: Mapping[str, object], known: Collection[str], /) -> None:
    """Refuse a keyword argument that nobody asks for.

    Raises:
        UsageError: Names it, and those there are.
    """
    for name in options:
        if name not in known:
            shown = name[:_MAX_SHOWN]
            raise UsageError(f"there is no such argument; there are {', '.join(sorted(known))}", argument=shown)
