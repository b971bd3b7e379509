"""Checks of what objects are made of: a wrong kind is refused where it is given, not where it is first used."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import NoneType, UnionType
from typing import TypeVar, get_args

from runlane.clock import Clock, SystemClock
from runlane.errors import UsageError
from runlane.ids import IdSource, RandomIds

__all__ = ["clock_or_system", "ids_or_random", "require_callable", "require_kind", "require_port"]

T = TypeVar("T")


def require_kind(value: T, kind: type | UnionType, /, *, argument: str) -> T:
    """Check that something is an instance of a class, or of one of several.

    Raises:
        UsageError: It is not.
    """
    if not isinstance(value, kind):
        names = " or ".join("None" if one is NoneType else one.__name__ for one in get_args(kind) or (kind,))
        raise UsageError(f"must be {names}, not {type(value).__name__}", argument=argument)
    return value


def require_port(value: T, port: type, /, *, argument: str) -> T:
    """Check that something has the methods and properties of a protocol.

    Raises:
        UsageError: One is missing; names it.
    """
    missing = [name for name, called in _members(port) if not _has(value, name, called=called)]
    if missing or isinstance(value, type):
        raise UsageError(
            f"must be a {port.__name__}; {_said(value)} has no {', '.join(missing) or 'instance'}", argument=argument
        )
    return value


def require_callable(value: Callable[..., object] | None, /, *, argument: str) -> None:
    """Check that something can be called, or is None.

    Raises:
        UsageError: It cannot.
    """
    if value is not None and not callable(value):
        raise UsageError(f"must be callable or None, not {type(value).__name__}", argument=argument)


def clock_or_system(clock: Clock | None, /, *, argument: str = "clock") -> Clock:
    """Return a clock, the system's if none was given.

    Raises:
        UsageError: What was given is no clock.
    """
    return SystemClock() if clock is None else require_port(clock, Clock, argument=argument)


def ids_or_random(ids: IdSource | None, /, *, argument: str = "ids") -> IdSource:
    """Return a source of ids, a random one if none was given.

    Raises:
        UsageError: What was given is no source of ids.
    """
    return RandomIds() if ids is None else require_port(ids, IdSource, argument=argument)


@functools.cache
def _members(port: type) -> tuple[tuple[str, bool], ...]:
    """Return what an instance must have, and whether it is called."""
    return tuple(
        (name, inspect.isfunction(member))
        for name, member in vars(port).items()
        if name[0] != "_" and (inspect.isfunction(member) or isinstance(member, property))
    )


def _has(value: object, name: str, *, called: bool) -> bool:
    return callable(getattr(value, name, None)) if called else hasattr(value, name)


def _said(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
