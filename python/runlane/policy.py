"""Rules as tables: refuse at the first that holds, let the first match decide, or walk them all.

Everything here is synchronous and stays so: a coroutine function is refused before anything runs, and an awaitable
that appears all the same is closed and refused, so no rule is ever taken for kept because nobody awaited it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import UnionType
from typing import Any, Final, Generic, Literal, NoReturn, TypeAlias, TypeVar, cast, overload

from runlane.clock import Clock, SystemClock
from runlane.contracts import Record, TimestampMs, get_error_info, require_sync, sync_result, timestamp_ms
from runlane.errors import PolicyRejectedError, UsageError

__all__ = [
    "ANY",
    "AnyPattern",
    "BreakCheck",
    "BreakEvent",
    "BreakPredicate",
    "BreakReason",
    "BreakWhileConfig",
    "MatchRule",
    "WalkRule",
    "break_while",
    "configure_break_while",
    "match_rule",
    "walk_rules",
]

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")

BreakPredicate: TypeAlias = Callable[[], bool]
"""Says whether something must be refused; synchronous."""

BreakReason: TypeAlias = str | Exception | type[Exception] | Callable[[], str | Exception]
"""Why: a text becomes a `PolicyRejectedError`, an exception is raised as it is, a class is made without arguments, a
callable is asked for one of these. Nothing of it is evaluated unless something is refused."""


@dataclass(frozen=True, kw_only=True)
class BreakCheck:
    """One row of a table of refusals.

    Attributes:
        when: Whether it refuses.
        group: What kind of rule it is, for readers and observers.
        reason: Why; the table's own reason if it is left out.
        tags: For observers.

    Raises:
        UsageError: `when` is no plain function.
    """

    when: BreakPredicate
    group: str
    reason: BreakReason | None = None
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_sync(self.when, argument="check.when")


class BreakEvent(Record):
    """Tells an observer of a refusal: nothing of what was looked at, and no message.

    Attributes:
        index: The row that refused; 0 for a single value.
        error_code: The code of what is raised.
    """

    form: Literal["predicates", "checks", "value"]
    index: int
    group: str | None = None
    tags: tuple[str, ...] = ()
    error_code: str
    error_name: str
    at: TimestampMs


@dataclass(frozen=True, kw_only=True)
class BreakWhileConfig:
    """Who is told of refusals in this process.

    Attributes:
        observer: Told once per refusal, synchronously, before the exception is raised. What it raises is dropped: a
            broken log must not change which exception the caller sees.
        clock: Where the time of an event comes from.

    Raises:
        UsageError: The observer is no plain function.
    """

    observer: Callable[[BreakEvent], None] | None = None
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        if self.observer is not None:
            require_sync(self.observer, argument="config.observer")


class _Installed:
    """What is installed in this process; replacing one reference is atomic between threads."""

    config: BreakWhileConfig = BreakWhileConfig()


def configure_break_while(config: BreakWhileConfig | None = None, /) -> None:
    """Install the observer of this process in place of the one before; without an observer, remove it.

    A `break_while` that is under way tells whichever observer is installed when it refuses.
    """
    _Installed.config = config or BreakWhileConfig()


@overload
def break_while(condition: Sequence[BreakPredicate], reason: BreakReason, /, *, tags: Sequence[str] = ()) -> None: ...


@overload
def break_while(condition: Sequence[BreakCheck], reason: BreakReason | None = None, /) -> None: ...


@overload
def break_while(condition: object, reason: BreakReason, /, *, tags: Sequence[str] = ()) -> None: ...


def break_while(condition: object, reason: BreakReason | None = None, /, *, tags: Sequence[str] = ()) -> None:
    """Raise if something must be refused.

    A list or tuple of functions, or of `BreakCheck`, is a table: its rows are asked in order and the first that holds
    refuses; an empty table refuses nothing. Anything else is a value, and refuses if it is truthy. A bare function is
    such a value: put it into a list to have it asked.

    Args:
        condition: The table or the value.
        reason: Why. A check's own reason wins over it.
        tags: For the observer; checks have their own.

    Raises:
        PolicyRejectedError: Something was refused and the reason is a text.
        Exception: Whatever the reason is, or a predicate or a reason raised itself; then the observer is not told.
        UsageError: The table mixes kinds, a reason is missing, or a function is not synchronous; before anything runs.

    Example:
        >>> attempts = 3
        >>> break_while([lambda: attempts > 5], "too many attempts")
    """
    kind = _kind_of(condition)
    if kind is BreakCheck:
        _break_checks(cast("Sequence[BreakCheck]", condition), reason, tags)
        return
    if reason is None:
        raise UsageError("is needed to refuse", argument="reason")
    if kind is None:
        if condition:
            _refuse(reason, "value", 0, None, tags)
    else:
        _break_predicates(cast("Sequence[BreakPredicate]", condition), reason, tags)


def _kind_of(condition: object) -> type | None:
    """Return what a table is made of (`object` for functions, also for an empty one), or None for a value."""
    if not isinstance(condition, list | tuple):
        return None
    if not condition:
        return object
    kinds = {BreakCheck if isinstance(row, BreakCheck) else (object if callable(row) else None) for row in condition}
    if len(kinds) > 1:
        raise UsageError("a table holds functions, or BreakChecks, and nothing else beside them", argument="condition")
    return kinds.pop()


def _break_predicates(table: Sequence[BreakPredicate], reason: BreakReason, tags: Sequence[str]) -> None:
    for predicate in table:
        require_sync(predicate, argument="condition")
    for index, predicate in enumerate(tuple(table)):
        if sync_result(predicate(), argument="condition"):
            _refuse(reason, "predicates", index, None, tags)


def _break_checks(table: Sequence[BreakCheck], shared: BreakReason | None, tags: Sequence[str]) -> None:
    if tags:
        raise UsageError("belong to each check", argument="tags")
    if shared is None and any(check.reason is None for check in table):
        raise UsageError("a check has no reason and the table has none either", argument="reason")
    for index, check in enumerate(tuple(table)):
        if sync_result(check.when(), argument="check.when"):
            reason = shared if check.reason is None else check.reason
            _refuse(cast("BreakReason", reason), "checks", index, check.group, check.tags)


def _refuse(
    reason: BreakReason,
    form: Literal["predicates", "checks", "value"],
    index: int,
    group: str | None,
    tags: Sequence[str],
) -> NoReturn:
    error = _error_for(reason)
    config = _Installed.config
    if config.observer is not None:
        tell: Callable[[BreakEvent], object] = config.observer
        with suppress(Exception):
            sync_result(tell(_event(error, config.clock, form, index, group, tags)), argument="observer")
    raise error


def _event(
    error: Exception,
    clock: Clock,
    form: Literal["predicates", "checks", "value"],
    index: int,
    group: str | None,
    tags: Sequence[str],
) -> BreakEvent:
    info = get_error_info(error)
    return BreakEvent(
        form=form,
        index=index,
        group=group,
        tags=tuple(tags),
        error_code=info.code,
        error_name=info.name,
        at=timestamp_ms(clock.now()),
    )


def _error_for(reason: object) -> Exception:
    error = _plain_error_for(reason)
    if error is not None:
        return error
    if callable(reason):
        require_sync(reason, argument="reason")
        error = _plain_error_for(sync_result(reason(), argument="reason"))
        if error is not None:
            return error
    raise UsageError("must be text, an exception, its class, or a function that gives one of these", argument="reason")


def _plain_error_for(reason: object) -> Exception | None:
    if isinstance(reason, str):
        return PolicyRejectedError(reason)
    if isinstance(reason, Exception):
        return reason
    if isinstance(reason, type) and issubclass(reason, Exception):
        return reason()
    return None


class AnyPattern(Enum):
    """The type of `ANY`."""

    ANY = "any"


ANY: Final = AnyPattern.ANY
"""The pattern that matches every value; rules after it are dead."""


@dataclass(frozen=True, kw_only=True)
class MatchRule(Generic[T, S, R]):
    """One row of a table in which the first match decides.

    Attributes:
        handle: Called with the value and the state when the pattern matches; it may be asynchronous.
        pattern: What matches: a class, a union or a tuple of classes by `isinstance`; a compiled regular expression
            anywhere in a text; any other callable by its truthy answer to the value and the state; any other object
            by equality within the same type, so True is never 1.
        name: For readers.

    Raises:
        UsageError: `handle` cannot be called, or the pattern is a coroutine function.
    """

    handle: Callable[[T, S], R]
    pattern: object = ANY
    name: str | None = None

    def __post_init__(self) -> None:
        if not callable(self.handle):
            raise UsageError(f"must be callable, not {type(self.handle).__name__}", argument="rule.handle")
        if callable(self.pattern) and not isinstance(self.pattern, type):
            require_sync(self.pattern, argument="rule.pattern")


@overload
def match_rule(rules: Iterable[MatchRule[T, None, R]], value: T, /, *, default: R | None = None) -> R | None: ...


@overload
def match_rule(rules: Iterable[MatchRule[T, S, R]], value: T, /, state: S, *, default: R | None = None) -> R | None: ...


def match_rule(
    rules: Iterable[MatchRule[T, Any, R]], value: T, /, state: object = None, *, default: R | None = None
) -> R | None:
    """Let the first rule that matches decide, also if its handler returns None.

    Args:
        rules: In order of priority; those after the match are not even tested.
        value: What is matched.
        state: Handed to patterns and to the handler.
        default: The result if nothing matches.

    Returns:
        What the handler returned; an awaitable as it is.

    Raises:
        UsageError: A pattern gave an awaitable; it is closed.

    Example:
        >>> rules = [MatchRule(pattern=int, handle=lambda value, _: value + 1), MatchRule(handle=lambda *_: 0)]
        >>> match_rule(rules, 1), match_rule(rules, "x")
        (2, 0)
    """
    for rule in rules:
        if _matches(rule.pattern, value, state):
            return rule.handle(value, state)
    return default


def _matches(pattern: object, value: object, state: object) -> bool:
    if pattern is ANY:
        return True
    if _is_class_pattern(pattern):
        return isinstance(value, cast("type", pattern))
    if isinstance(pattern, re.Pattern):
        return isinstance(value, str) and pattern.search(value) is not None
    if callable(pattern):
        return bool(sync_result(pattern(value, state), argument="rule.pattern"))
    return type(pattern) is type(value) and bool(pattern == value)


def _is_class_pattern(pattern: object) -> bool:
    if isinstance(pattern, tuple):
        return bool(pattern) and all(isinstance(member, type) for member in pattern)
    return isinstance(pattern, type | UnionType)


@dataclass(frozen=True, kw_only=True)
class WalkRule(Generic[T]):
    """One row of a table that is walked to its end.

    Attributes:
        apply: Called with the value; what it returns is ignored.
        id: For a catalogue; rules of one place may lack it.
        title: For readers.

    Raises:
        UsageError: `apply` is no plain function.
    """

    apply: Callable[[T], object]
    id: str | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        require_sync(self.apply, argument="rule.apply")


def walk_rules(rules: Iterable[WalkRule[T] | Callable[[T], object]], value: T, /) -> T:
    """Apply every rule to the same object, in order, and return that object.

    The table is read once before the first rule runs: a rule that appends to it does not lengthen the walk. What a
    rule raises ends the walk; what earlier rules changed stays changed.

    Raises:
        UsageError: A rule is no plain function, found before the first runs; or one gave an awaitable, which is closed
            and ends the walk there.

    Example:
        >>> walk_rules([lambda order: order.update(tax=2), lambda order: order.update(total=order["tax"] + 10)], {})
        {'tax': 2, 'total': 12}
    """
    table = [rule.apply if isinstance(rule, WalkRule) else rule for rule in rules]
    for apply in table:
        require_sync(apply, argument="rules")
    for apply in table:
        sync_result(apply(value), argument="rules")
    return value
