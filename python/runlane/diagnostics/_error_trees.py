"""An error with its causes, as JSON for a log."""

from __future__ import annotations

from typing import Any, Final, cast

from pydantic import JsonValue

from runlane.contracts import get_error_info

__all__ = ["diagnostic_error"]

_MAX_CAUSES: Final = 5
_MAX_MEMBERS: Final = 10
_MAX_VIEWS: Final = 64

_CAUSE: Final[Any] = BaseException.__dict__["__cause__"]
_CONTEXT: Final[Any] = BaseException.__dict__["__context__"]
_SUPPRESSED: Final[Any] = BaseException.__dict__["__suppress_context__"]
_MEMBERS: Final[Any] = BaseExceptionGroup.__dict__["exceptions"]
"""How the built-in classes find these themselves; no subclass can stand in between."""


def diagnostic_error(value: object, /) -> dict[str, JsonValue]:
    """Return what can be said of an error and of what led to it. Never raises.

    Returns:
        `name`, `code` and `message`, where known `retryable` and `contexts`; under `cause` what it was raised from, at
        most 5 deep and each object once; under `errors` the first 10 of a group. No traceback and no arguments.

    Example:
        >>> diagnostic_error(KeyError("name"))["name"]
        'KeyError'
    """
    return _Tree().view(value, 0)


class _Tree:
    def __init__(self) -> None:
        self._seen: set[int] = set()

    def view(self, value: object, depth: int) -> dict[str, JsonValue]:
        self._seen.add(id(value))
        view: dict[str, JsonValue] = get_error_info(value).to_json()
        if not view["contexts"]:
            del view["contexts"]
        if issubclass(type(value), BaseException) and depth < _MAX_CAUSES:
            self._add_members(view, value, depth)
            cause = _led_to(value)
            if cause is not None and self._is_new(cause):
                view["cause"] = cast("JsonValue", self.view(cause, depth + 1))
        return view

    def _add_members(self, view: dict[str, JsonValue], value: object, depth: int) -> None:
        if not issubclass(type(value), BaseExceptionGroup):
            return
        members: tuple[BaseException, ...] = _MEMBERS.__get__(value)
        views = [self.view(member, depth + 1) for member in members[:_MAX_MEMBERS] if self._is_new(member)]
        view["errors"] = cast("JsonValue", views)

    def _is_new(self, error: BaseException) -> bool:
        return id(error) not in self._seen and len(self._seen) < _MAX_VIEWS


def _led_to(value: object) -> BaseException | None:
    cause: BaseException | None = _CAUSE.__get__(value)
    if cause is None and not _SUPPRESSED.__get__(value):
        cause = _CONTEXT.__get__(value)
    return cause
