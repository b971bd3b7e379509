"""Identifiers, times, callbacks, and the guards that keep a synchronous callback synchronous."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from math import floor
from types import FunctionType, GeneratorType
from typing import Annotated, Any, Final, Literal, NewType, TypeAlias, TypeVar, cast, overload

from pydantic import Field

from runlane.errors import InvalidValueError, UsageError

__all__ = [
    "AsyncSink",
    "DurationMs",
    "Id",
    "IdField",
    "InvocationStatus",
    "JsonSchema",
    "MaybeAwaitable",
    "Observer",
    "TimestampMs",
    "elapsed_ms",
    "is_async_callable",
    "require_id",
    "require_limit",
    "require_seconds",
    "require_sync",
    "resolve",
    "sync_result",
    "timestamp_ms",
]

T = TypeVar("T")

Id = NewType("Id", str)
"""An opaque identifier, 1 to 512 characters; nothing parses or sorts by it.

What a host writes down (ids of workflows, nodes, tools, capabilities, fragments, stages) is taken as plain text and
checked there; what is made of it and what is minted is an `Id`.
"""

MAX_ID_CHARACTERS: Final = 512

IdField: TypeAlias = Annotated[Id, Field(min_length=1, max_length=MAX_ID_CHARACTERS, strict=True)]
"""An `Id` as a field of a record, its length checked."""

DurationMs = NewType("DurationMs", int)
"""Elapsed milliseconds, the difference of two monotonic readings, rounded down."""

TimestampMs = NewType("TimestampMs", int)
"""Wall clock, milliseconds since the Unix epoch; never subtracted to get a duration."""

InvocationStatus: TypeAlias = Literal["succeeded", "failed", "cancelled"]
"""How an invocation ended; cancelled is never folded into failed."""

MaybeAwaitable: TypeAlias = T | Awaitable[T]

JsonSchema: TypeAlias = Mapping[str, object]
"""A JSON Schema; only checked to be a JSON object, no keyword is interpreted."""

Observer: TypeAlias = Callable[[T], MaybeAwaitable[None]]
"""Is told of a fact. The emitter awaits it, and an exception reaches the emitter: observers are not isolated."""

AsyncSink: TypeAlias = Callable[[T], Awaitable[None]]
"""Takes an ordered stream. Item n is awaited before item n + 1 is offered; an exception ends the stream."""

_LARGEST: Final = 2**53 - 1
"""The largest integer every JSON reader holds exactly (RFC 8259, section 6)."""

_HALF_A_MICROSECOND: Final = 5e-4
"""In milliseconds: more than a double loses of an instant of our times, less than the microsecond it is given in."""

_HALF_A_NANOSECOND: Final = 5e-7
"""In milliseconds: what a difference of floats may fall short of the whole number it stands for."""

_NO_TIME: Final = DurationMs(0)
_ITERABLE_COROUTINE: Final = inspect.CO_ITERABLE_COROUTINE
_AWAITED: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


@overload
async def resolve(value: Awaitable[T], /) -> T: ...


@overload
async def resolve(value: MaybeAwaitable[T], /) -> T: ...


async def resolve(value: MaybeAwaitable[T], /) -> T:
    """Return a value, awaiting it once if it is awaitable; its type alone tells, its own code is not asked."""
    if _is_awaitable(value, type(value)):
        return await cast("Awaitable[T]", value)
    return cast("T", value)


def elapsed_ms(start: float, end: float, /) -> DurationMs:
    """Return the milliseconds between two readings of `Clock.monotonic`, rounded down and never negative."""
    elapsed: Any = int((end - start) * 1000 + _HALF_A_NANOSECOND)
    return elapsed if elapsed > 0 else _NO_TIME


def timestamp_ms(moment: datetime, /) -> TimestampMs:
    """Return an aware instant as Unix milliseconds, rounded down."""
    return TimestampMs(floor(moment.timestamp() * 1000 + _HALF_A_MICROSECOND))


def require_id(value: object, /, *, argument: str) -> Id:
    """Check an identifier at the border.

    Raises:
        UsageError: It is no text.
        InvalidValueError: It is empty or longer than 512 characters.
    """
    if not isinstance(value, str):
        raise UsageError(f"an id is text, not {type(value).__name__}", argument=argument)
    if not 1 <= len(value) <= MAX_ID_CHARACTERS:
        raise InvalidValueError(f"an id has 1 to {MAX_ID_CHARACTERS} characters", argument=argument)
    return Id(value)


def require_limit(value: object, /, *, argument: str, minimum: int = 0) -> int:
    """Check a number that limits something: an integer, not a bool, from `minimum` to 2**53 - 1.

    Raises:
        InvalidValueError: It is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= _LARGEST:
        raise InvalidValueError(f"must be an integer of at least {minimum}", argument=argument)
    return value


def require_seconds(value: object, /, *, argument: str) -> float | None:
    """Check a duration in seconds: None, or a finite number of at least 0.

    Raises:
        InvalidValueError: It is anything else.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidValueError("must be a finite number of seconds, at least 0", argument=argument)
    return value


def is_async_callable(function: object, /) -> bool:
    """Whether calling `function` gives a coroutine or an async generator, seen through `partial` and `__call__`."""
    if type(function) is FunctionType and not function.__dict__:
        return bool(function.__code__.co_flags & _AWAITED)
    while isinstance(function, functools.partial):
        function = function.func
    if _gives_awaitable(function):
        return True
    if inspect.isroutine(function) or inspect.isclass(function):
        return False
    return _gives_awaitable(getattr(type(function), "__call__", None))  # noqa: B004 - what it is, not whether it is there


def _gives_awaitable(function: object) -> bool:
    if inspect.isfunction(function) and function.__code__.co_flags & _ITERABLE_COROUTINE:
        return True
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def require_sync(function: Callable[..., object], /, *, argument: str) -> None:
    """Refuse a callback that cannot be called, or whose call would have to be awaited.

    Raises:
        UsageError: It is not callable, or a coroutine function.
    """
    if not callable(function):
        raise UsageError(f"must be callable, not {type(function).__name__}", argument=argument)
    if is_async_callable(function):
        raise UsageError("must be a plain function; a coroutine function cannot be awaited here", argument=argument)


def sync_result(value: T, /, *, argument: str) -> T:
    """Return what a synchronous callback gave, or refuse it if it is awaitable; a coroutine is closed first.

    Raises:
        UsageError: The result would have to be awaited.
    """
    kind: type = type(value)
    if kind is bool or not _is_awaitable(value, kind):
        return value
    with suppress(Exception):  # what a foreign coroutine does on closing is not what is wrong here
        if isinstance(value, Coroutine | GeneratorType):
            value.close()
    raise UsageError("gave an awaitable where a plain result is needed", argument=argument)


def _is_awaitable(value: Any, kind: type) -> bool:  # noqa: ANN401 - any object at all may come
    """Tell by the type alone: what an instance says of its class is not asked."""
    if hasattr(kind, "__await__"):
        return True
    return kind is GeneratorType and bool(value.gi_code.co_flags & _ITERABLE_COROUTINE)
