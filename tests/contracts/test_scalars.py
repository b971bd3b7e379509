"""Identifiers, times, limits, and callbacks that must be synchronous."""

import functools
from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from types import coroutine
from typing import Any

import pytest

from runlane.contracts import (
    AttemptBudget,
    elapsed_ms,
    is_async_callable,
    require_id,
    require_limit,
    require_seconds,
    require_sync,
    resolve,
    sync_result,
    timestamp_ms,
)
from runlane.errors import InvalidValueError, UsageError
from tests.hostile import broken, hostile_object, untouchable


async def _later(*_: object) -> int:
    return 1


class _CalledLater:
    async def __call__(self) -> int:
        return 1


async def _stream() -> object:
    yield 1


@coroutine
def _old_coroutine() -> Generator[Any, Any, int]:
    return (yield from _later().__await__())


@pytest.mark.parametrize("text", ["x", "x" * 512])
def test_an_id_has_1_to_512_characters(text: str) -> None:
    """Any text of a bearable length is an id, and comes back as it is."""
    assert require_id(text, argument="run.id") is text


@pytest.mark.parametrize(("text", "error"), [("", InvalidValueError), ("x" * 513, InvalidValueError), (7, UsageError)])
def test_what_is_no_id_is_refused_by_the_name_of_its_field(text: object, error: type[Exception]) -> None:
    """The error says which argument is no id."""
    with pytest.raises(error, match=r"run\.id"):
        require_id(text, argument="run.id")


def test_a_duration_is_rounded_down_and_never_negative() -> None:
    """Milliseconds come from two monotonic readings; a float's last digit makes no whole millisecond disappear."""
    assert elapsed_ms(100.1, 100.35) == 250
    assert elapsed_ms(0.0, 0.0019999) == 1
    assert elapsed_ms(5.0, 4.0) == 0


def test_a_timestamp_is_unix_milliseconds() -> None:
    """Wall time becomes an integer, rounded down, whatever its offset."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    assert timestamp_ms(moment) == 1_767_323_045_678
    assert timestamp_ms(datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)) == -1


@pytest.mark.parametrize("value", [True, -1, 1.0, 2**53, "1", None])
def test_a_limit_is_a_non_negative_exact_integer(value: object) -> None:
    """A bool, a negative number, a float and what a JSON reader would round are no limits."""
    with pytest.raises(InvalidValueError, match="loop"):
        require_limit(value, argument="loop")
    assert require_limit(2**53 - 1, argument="loop") == 2**53 - 1


@pytest.mark.parametrize("value", [True, -0.1, float("inf"), float("nan"), "1"])
def test_seconds_are_finite_and_not_negative(value: object) -> None:
    """None means no limit; anything else is a finite number of seconds."""
    with pytest.raises(InvalidValueError, match="timeout"):
        require_seconds(value, argument="timeout")
    assert require_seconds(None, argument="timeout") is None
    assert require_seconds(1, argument="timeout") == 1


@pytest.mark.parametrize(
    "function",
    [_later, functools.partial(functools.partial(_later, 1), 2), _CalledLater(), _stream, _CalledLater.__call__],
)
def test_sync_guard_refuses_a_coroutine_function_where_it_is_registered(function: Callable[..., object]) -> None:
    """A coroutine function is seen through partials and callable objects."""
    assert is_async_callable(function)
    with pytest.raises(UsageError, match="hook"):
        require_sync(function, argument="hook")


@pytest.mark.parametrize("function", [len, int, lambda: None, functools.partial(len), _CalledLater])
def test_sync_guard_lets_plain_callables_through(function: Callable[..., object]) -> None:
    """Built-ins, classes, lambdas and partials of plain functions are synchronous."""
    require_sync(function, argument="hook")
    assert not is_async_callable(function)


def test_sync_guard_refuses_what_cannot_be_called() -> None:
    """A value in the place of a function is misuse."""
    with pytest.raises(UsageError, match="callable"):
        require_sync(3, argument="hook")  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [_later, _old_coroutine], ids=["coroutine", "old coroutine"])
def test_sync_guard_closes_an_awaitable_result(make: Callable[[], object]) -> None:
    """A coroutine that slipped through is closed, so nobody hears that it was never awaited."""
    with pytest.raises(UsageError, match="awaitable"):
        sync_result(make(), argument="hook")


def test_sync_guard_asks_the_type_only() -> None:
    """A value whose class lies or raises is judged by what it is."""
    liar = hostile_object(__class__=property(broken))
    assert sync_result(liar, argument="hook") is liar


@pytest.mark.anyio
async def test_resolving_asks_the_type_only() -> None:
    """A host's object that nobody may look at comes back as it is; an old coroutine is awaited."""
    value = untouchable()
    assert await resolve(value) is value
    assert await resolve(_old_coroutine()) == 1


def test_f21_an_attempt_is_spent_or_refused_and_never_given_back() -> None:
    """Limit 2 gives True, True, False, False, with 2, 1, 0, 0 left before each."""
    budget = AttemptBudget(2)
    assert [(budget.available, budget.take()) for _ in range(4)] == [(2, True), (1, True), (0, False), (0, False)]
    assert (budget.available, budget.limit) == (0, 2)


def test_f22_a_reading_is_no_claim() -> None:
    """Two that both saw one left get one True and one False; a budget of none is legal."""
    budget = AttemptBudget(1)
    seen = (budget.available, budget.available)
    assert seen == (1, 1)
    assert (budget.take(), budget.take()) == (True, False)
    assert AttemptBudget(0).take() is False
    with pytest.raises(InvalidValueError):
        AttemptBudget(-1)
