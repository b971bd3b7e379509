"""Checks of options: a wrong one is refused where it is given, with its name."""

from __future__ import annotations

from runlane.errors import InvalidValueError, UsageError

__all__ = ["check_observers", "one_of", "seconds", "whole"]


def whole(value: object, argument: str, *, least: int = 1, most: int = 2**53 - 1) -> None:
    """Refuse what is no integer within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"must be an integer, not {type(value).__name__}", argument=argument)
    if not least <= value <= most:
        raise InvalidValueError(f"must be from {least} to {most}, got {value}", argument=argument)


def seconds(value: object, argument: str, *, optional: bool, zero: bool = False) -> None:
    """Refuse what is no positive (or with `zero`, non-negative) number of seconds."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"must be seconds{' or None' if optional else ''}", argument=argument)
    if not (value > 0 or (zero and value == 0)):
        raise InvalidValueError(f"must be {'at least' if zero else 'above'} 0 seconds, got {value}", argument=argument)


def one_of(value: object, argument: str, allowed: tuple[str, ...]) -> None:
    """Refuse what is none of some words."""
    if value not in allowed:
        raise InvalidValueError(f"must be one of {', '.join(allowed)}, got {value!r}", argument=argument)


def check_observers(value: object, argument: str) -> None:
    """Refuse what is no tuple of sinks for operator events."""
    if not isinstance(value, tuple):
        raise UsageError(f"must be a tuple, not {type(value).__name__}", argument=argument)
    for place, observer in enumerate(value):
        if not callable(getattr(observer, "emit", None)):
            raise UsageError("has no method emit", argument=f"{argument}.{place}")
