"""Rules as tables."""

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import PolicyRejectedError, UsageError
from runlane.policy import (
    BreakCheck,
    BreakEvent,
    BreakWhileConfig,
    MatchRule,
    WalkRule,
    break_while,
    configure_break_while,
    match_rule,
    walk_rules,
)
from runlane.testing import FakeClock
from tests.hostile import broken, hostile_object


@pytest.fixture(autouse=True)
def nobody_watches() -> Iterator[None]:
    """Leave no observer behind."""
    yield
    configure_break_while()


async def later(*_: object) -> bool:
    """Answer too late."""
    return True


def hidden(*_: object) -> Any:  # noqa: ANN401 - hides that it must be awaited
    """Answer with a coroutine."""
    return later()


def _asked(log: list[str], name: str, answer: object) -> Callable[[], bool]:
    def predicate() -> Any:  # noqa: ANN401 - any answer
        log.append(name)
        return answer

    return predicate


def test_p1_nothing_is_asked_after_the_first_refusal() -> None:
    """In order, and only as far as needed."""
    log: list[str] = []
    with pytest.raises(PolicyRejectedError, match="no"):
        break_while([_asked(log, "p1", ""), _asked(log, "p2", 1), _asked(log, "p3", answer=True)], "no")
    assert log == ["p1", "p2"]
    break_while([_asked(log, "p4", None)], "no")
    assert log == ["p1", "p2", "p4"]


@given(st.lists(st.booleans(), max_size=6), st.sampled_from([list, tuple]), st.booleans())
def test_p1_a_table_refuses_at_its_first_row_that_holds(answers: list[bool], kind: type, checks: object) -> None:
    """Both kinds of table agree with a look at the answers; an empty one refuses nothing."""
    asked: list[str] = []
    events: list[BreakEvent] = []
    configure_break_while(BreakWhileConfig(observer=events.append))
    predicates = [_asked(asked, str(number), answer) for number, answer in enumerate(answers)]
    table: Any = kind([BreakCheck(when=when, group="g") for when in predicates] if checks else predicates)
    first = answers.index(True) if True in answers else None
    if first is None:
        break_while(table, "no")
    else:
        with pytest.raises(PolicyRejectedError):
            break_while(table, "no")
    assert [event.index for event in events] == ([] if first is None else [first])
    assert asked == [str(number) for number in range(len(answers) if first is None else first + 1)]


@pytest.mark.parametrize("value", [1, "x", [0], (None,), {"a": 1}, len, object()])
def test_p2_a_value_refuses_if_it_is_truthy(value: object) -> None:
    """A list of plain values is a value; a bare function is truthy and is not called."""
    with pytest.raises(PolicyRejectedError):
        break_while(value, "no")


@pytest.mark.parametrize("value", [0, "", None, [], (), {}, False])
def test_a_falsy_value_and_an_empty_table_pass(value: object) -> None:
    """Nothing is refused."""
    break_while(value, "no")


def test_p2_a_bare_function_is_not_called() -> None:
    """To have it asked, put it into a list."""
    with pytest.raises(PolicyRejectedError):
        break_while(broken, "no")
    with pytest.raises(ValueError, match="broken"):
        break_while([broken], "no")


@pytest.mark.parametrize(
    "table", [[len, 1], [len, BreakCheck(when=lambda: False, group="g")], [BreakCheck(when=broken, group="g"), None]]
)
def test_a_mixed_table_is_refused_before_anything_runs(table: list[object]) -> None:
    """Functions or checks, and nothing beside them."""
    with pytest.raises(UsageError, match="condition"):
        break_while(table, "no")


def test_p3_reasons_are_lazy() -> None:
    """A reason that raises is harmless in the passing case, and is evaluated once when something is refused."""
    break_while([lambda: False], broken)
    break_while(0, broken)
    calls: list[int] = []

    def reason() -> str:
        calls.append(1)
        return "no"

    with pytest.raises(PolicyRejectedError):
        break_while([lambda: True, lambda: True], reason)
    assert calls == [1]


def test_p4_every_form_of_reason() -> None:
    """An instance is raised as it is, a class is made, a text is a PolicyRejectedError, a function gives one."""
    instance = KeyError("k")
    for reason in (instance, lambda: instance):
        with pytest.raises(KeyError) as caught:
            break_while(1, reason)
        assert caught.value is instance
        assert caught.value.__context__ is None
    for reason in (OSError, lambda: OSError()):  # type: ignore[assignment]  # noqa: PLW0108
        with pytest.raises(OSError):  # noqa: PT011 - it has no text
            break_while(1, reason)
    for reason in ("text", lambda: "text"):  # type: ignore[assignment]
        with pytest.raises(PolicyRejectedError, match="text"):
            break_while(1, reason)
    with pytest.raises(ValueError, match="broken"):
        break_while(1, broken)


@pytest.mark.parametrize(
    "reason",
    [3, KeyboardInterrupt, lambda: None, lambda: lambda: "x", later, hidden],
    ids=["number", "interrupt", "none", "function of a function", "coroutine function", "coroutine"],
)
def test_p4_what_is_no_reason_is_misuse(reason: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """Also a function whose answer would have to be awaited; the coroutine is closed."""
    with pytest.raises(UsageError, match="reason"):
        break_while(1, reason)


def test_p5_a_checks_own_reason_wins() -> None:
    """Tags and group come from the check alone."""
    events: list[BreakEvent] = []
    configure_break_while(BreakWhileConfig(observer=events.append))
    own = BreakCheck(when=lambda: True, group="g", reason="own", tags=("t",))
    shared = BreakCheck(when=lambda: True, group="h")
    with pytest.raises(PolicyRejectedError, match="own"):
        break_while([own], "shared")
    with pytest.raises(PolicyRejectedError, match="shared"):
        break_while([shared], "shared")
    assert [(event.group, event.tags) for event in events] == [("g", ("t",)), ("h", ())]


def test_p5_a_missing_reason_is_found_before_the_first_row_runs() -> None:
    """In every form."""
    tables: list[Any] = [[BreakCheck(when=broken, group="g")], [broken], 1, 0]
    for table in tables:
        with pytest.raises(UsageError, match="reason"):
            break_while(table)
    break_while([BreakCheck(when=lambda: False, group="g", reason="own")])
    untyped: Any = break_while
    with pytest.raises(UsageError, match="tags"):
        untyped([BreakCheck(when=lambda: False, group="g", reason="own")], tags=["t"])


def test_p6_truth_is_pythons() -> None:
    """What a predicate or a truth value raises propagates, and the observer is not told."""
    events: list[BreakEvent] = []
    configure_break_while(BreakWhileConfig(observer=events.append))
    hostile = hostile_object(__bool__=broken)
    conditions: list[Any] = [[broken], [lambda: hostile], hostile]
    for condition in conditions:
        with pytest.raises(ValueError, match="broken"):
            break_while(condition, "no")
    assert events == []


def test_p7_a_predicate_is_synchronous() -> None:
    """A coroutine function is refused before the first row runs; a coroutine is closed and never truthy."""
    with pytest.raises(UsageError, match="condition"):
        break_while([broken, later], "no")
    with pytest.raises(UsageError, match="awaitable"):
        break_while([hidden], "no")
    wrong: Any = later
    with pytest.raises(UsageError):
        BreakCheck(when=wrong, group="g")
    with pytest.raises(UsageError):
        break_while([BreakCheck(when=hidden, group="g")], "no")


def test_p8_one_observer_per_process() -> None:
    """Installing replaces; nothing, or a config without an observer, removes."""
    first: list[BreakEvent] = []
    second: list[BreakEvent] = []
    configs = [BreakWhileConfig(observer=first.append), BreakWhileConfig(observer=second.append), None]
    for config in (*configs, configs[0], BreakWhileConfig()):
        configure_break_while(config)
        with pytest.raises(PolicyRejectedError):
            break_while(1, "no")
    assert (len(first), len(second)) == (2, 1)
    with pytest.raises(UsageError):
        BreakWhileConfig(observer=later)  # type: ignore[arg-type]


def test_p9_an_event_holds_nothing_of_the_rule() -> None:
    """Form, place, tags and the error's code; no input, no value, no message."""
    events: list[BreakEvent] = []
    configure_break_while(BreakWhileConfig(observer=events.append, clock=FakeClock()))
    with pytest.raises(PolicyRejectedError):
        break_while({"SECRET": 1}, "SECRET", tags=["t"])
    with pytest.raises(PolicyRejectedError):
        break_while([lambda: False, lambda: True], "SECRET")
    assert "SECRET" not in repr(events)
    assert [(event.form, event.index, event.tags, event.error_code, event.error_name) for event in events] == [
        ("value", 0, ("t",), "policy.rejected", "PolicyRejectedError"),
        ("predicates", 1, (), "policy.rejected", "PolicyRejectedError"),
    ]
    assert all(event.at > 0 for event in events)


@pytest.mark.parametrize("observer", [broken, hidden])
def test_p10_a_broken_observer_changes_nothing(observer: Any) -> None:  # noqa: ANN401 - any observer
    """The refusal is raised all the same."""
    configure_break_while(BreakWhileConfig(observer=observer))
    with pytest.raises(PolicyRejectedError):
        break_while(1, "no")


def test_p11_whoever_is_installed_at_the_refusal_is_told() -> None:
    """An observer installed by a predicate of the table is told of the table's refusal."""
    events: list[BreakEvent] = []

    def install() -> bool:
        thread = threading.Thread(target=configure_break_while, args=(BreakWhileConfig(observer=events.append),))
        thread.start()
        thread.join()
        return True

    with pytest.raises(PolicyRejectedError):
        break_while([install], "no")
    assert len(events) == 1


def _named(name: str, pattern: object) -> MatchRule[object, object, str]:
    return MatchRule(pattern=pattern, handle=lambda *_: name)


@pytest.mark.parametrize(
    ("pattern", "value", "matches"),
    [
        (int, 1, True),
        (int, "1", False),
        ((int, str), "1", True),
        (int | None, None, True),
        ((1, 2), (1, 2), True),
        ((), (), True),
        (re.compile("b"), "abc", True),
        (re.compile("b"), "xyz", False),
        (re.compile("b"), b"abc", False),
        (lambda value, state: value == state, "s", True),
        (lambda *_: 0, "s", False),
        (None, None, True),
        (None, 0, False),
        (True, 1, False),
        (1, True, False),
        (1, 1.0, False),
        ("x", "x", True),
        ([1], [1], True),
    ],
)
def test_patterns_of_every_kind(pattern: object, value: object, matches: object) -> None:
    """Classes, expressions, functions, and equality within one type."""
    found = match_rule([_named("hit", pattern)], value, "s", default="miss")
    assert (found == "hit") is matches


def test_p12_the_first_match_decides() -> None:
    """Also if its handler returns None: later patterns are not even tested."""
    rules: list[MatchRule[Any, Any, Any]] = [
        MatchRule(pattern=str, handle=broken),
        MatchRule(pattern=int, handle=lambda *_: None),
        MatchRule(pattern=broken, handle=broken),
        MatchRule(handle=broken),
    ]
    assert match_rule(rules, 1, default="default") is None


def test_p13_without_a_match_there_is_the_default() -> None:
    """A handler is called once at most, and what it raises propagates."""
    assert match_rule([_named("x", str)], 1, None) is None
    assert match_rule([_named("x", str)], 1, None, default="d") == "d"
    calls: list[tuple[object, object]] = []

    def handle(value: int, state: str) -> None:
        calls.append((value, state))
        raise KeyError("handler")

    with pytest.raises(KeyError):
        match_rule([MatchRule(pattern=int, handle=handle), MatchRule(handle=handle)], 1, "s")
    assert calls == [(1, "s")]


@pytest.mark.anyio
async def test_p13_an_asynchronous_handlers_awaitable_is_returned() -> None:
    """It is the caller's to await; a pattern has no such right."""
    waiting: Any = match_rule([MatchRule(handle=later)], 1)
    assert await waiting is True
    with pytest.raises(UsageError):
        MatchRule(pattern=later, handle=broken)
    with pytest.raises(UsageError):
        match_rule([MatchRule(pattern=hidden, handle=broken)], 1)
    wrong: Any = 3
    with pytest.raises(UsageError):
        MatchRule(handle=wrong)


def test_p14_every_rule_sees_what_the_one_before_changed() -> None:
    """The same object goes through all of them and comes back."""
    value: list[int] = []
    result = walk_rules([WalkRule(apply=lambda v: v.append(1)), lambda v: v.append(len(v) + 1)], value)
    assert result is value
    assert value == [1, 2]


def test_p15_a_walk_is_synchronous() -> None:
    """A coroutine function anywhere is found before the first rule; a coroutine is closed and ends the walk there."""
    value: list[int] = []
    rules: list[Any] = [lambda v: v.append(1), later]
    with pytest.raises(UsageError):
        walk_rules(rules, value)
    assert value == []
    with pytest.raises(UsageError):
        walk_rules([rules[0], hidden, rules[0]], value)
    assert value == [1]
    wrong: Any = later
    with pytest.raises(UsageError):
        WalkRule(apply=wrong)


def test_p16_a_raise_stops_the_walk() -> None:
    """What earlier rules changed stays; what a rule returns is ignored."""
    value: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        walk_rules([lambda v: v.append(1), lambda v: v.__len__(), broken, lambda v: v.append(2)], value)
    assert value == [1]


def test_p17_the_table_is_read_once() -> None:
    """A rule that appends to the table does not lengthen the walk; a generator is walked once."""
    value: list[int] = []
    rules: list[Any] = []

    def grow(walked: list[int]) -> None:
        walked.append(1)
        rules.append(grow)

    rules.append(grow)
    walk_rules(rules, value)
    assert value == [1]
    walk_rules((rule for rule in rules[:1]), value)
    assert value == [1, 1]
