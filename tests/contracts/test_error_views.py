"""What can safely be said of an error."""

import gc
import pickle
import traceback
import weakref
from collections.abc import Callable
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.contracts import ErrorContext, ErrorInfo, annotate_error, error_contexts, get_error_info
from runlane.errors import BudgetError, RunlaneError
from tests.hostile import broken, dead_proxy, exits, hostile_error

UNINSPECTABLE = ErrorInfo(code="error.unknown", name="UnknownError", message="error could not be inspected")


def _interrupt(_: object) -> NoReturn:
    raise KeyboardInterrupt


def _endless(error: object) -> str:
    return str(error) + "x"


HOSTILE: dict[str, Callable[[], object]] = {
    "code": lambda: hostile_error(code=property(broken)),
    "retryable": lambda: hostile_error(retryable=property(broken)),
    "text": lambda: hostile_error(__str__=broken),
    "exit": lambda: hostile_error(__str__=exits),
    "endless": lambda: hostile_error(__str__=_endless),
    "class": lambda: hostile_error(__class__=property(broken)),
    "attributes": lambda: hostile_error(__getattribute__=broken),
    "proxy": dead_proxy,
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_d7_what_cannot_be_inspected_says_only_that(make: Callable[[], object]) -> None:
    """One throwing step makes the whole view the constant, without a half-read field."""
    info = get_error_info(make())
    assert info == UNINSPECTABLE
    assert "retryable" not in info.to_json()


def test_d7_only_a_keyboard_interrupt_passes_through() -> None:
    """Somebody who wants to stop the program is heard."""
    with pytest.raises(KeyboardInterrupt):
        get_error_info(hostile_error(__str__=_interrupt))


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"code": "x.y"}, "x.y"),
        ({"code": "ECONN-2"}, "ECONN-2"),
        ({"code": 429}, "error.unknown"),
        ({"code": "1x"}, "error.unknown"),
        ({"code": "x" * 129}, "error.unknown"),
        ({"code": "x\n"}, "error.unknown"),
        ({"code": None}, "error.unknown"),
        ({}, "error.unknown"),
        ({"code": type("Text", (str,), {"__str__": broken, "__len__": broken})("x.y")}, "x.y"),
    ],
)
def test_d6_a_code_is_text_of_a_known_form(attributes: dict[str, object], code: str) -> None:
    """An HTTP status is no code; a text subclass counts by the text it stores."""
    error = KeyError("k")
    error.__dict__.update(attributes)
    assert get_error_info(error).code == code
    assert type(get_error_info(error).code) is str


@pytest.mark.parametrize(("said", "seen"), [(True, True), (False, False), (1, None), ("no", None), (None, None)])
def test_d8_unknown_retryability_is_absent(said: object, seen: object) -> None:
    """Only exactly True and False are known; anything else is left out, never reported as False."""
    error = OSError("x")
    error.__dict__["retryable"] = said
    info = get_error_info(error)
    assert info.retryable is seen
    assert ("retryable" in info.model_dump(exclude_none=True)) is (seen is not None)


def test_d6_a_message_is_cut_and_made_text() -> None:
    """At most 2,000 characters, lone surrogates replaced."""
    info = get_error_info(ValueError("\ud800" + "x" * 3_000))
    assert info.message == "\ufffd" + "x" * 1_999
    assert info.name == "ValueError"


def test_what_is_no_exception_is_named_by_its_type() -> None:
    """Text is its own message; of any other object nothing but the type is told."""
    assert get_error_info("went wrong").message == "went wrong"
    secret = get_error_info({"password": "MARK"})
    assert (secret.name, "MARK" in secret.message) == ("dict", False)


@given(st.recursive(st.none() | st.text() | st.integers() | st.binary(), st.lists))
def test_d6_a_view_is_made_of_anything(value: object) -> None:
    """Never raises, and gives the same view of the same value."""
    assert get_error_info(value) == get_error_info(value)


def test_d9_a_view_holds_no_reference() -> None:
    """The exception, its traceback and its arguments can go while the view stays."""

    class Argument:
        pass

    argument = Argument()
    seen = weakref.ref(argument)
    error = ValueError(argument)
    info = get_error_info(error)
    del argument, error
    gc.collect()
    assert seen() is None
    assert info.name == "ValueError"


def test_d5_annotating_changes_nothing_else() -> None:
    """The same object comes back; type, arguments, cause, text and traceback are as they were."""
    error = KeyError("k", 1)
    error.__cause__ = cause = OSError("c")
    before = (error.args, str(error), traceback.format_exception(error))
    assert annotate_error(error, ErrorContext(operation="tool")) is error
    assert (error.args, str(error), traceback.format_exception(error)) == before
    assert error.__cause__ is cause
    assert [context.operation for context in error_contexts(error)] == ["tool"]


def test_d5_a_hostile_setattr_does_not_interfere() -> None:
    """Neither a throwing `__setattr__` nor a `__dict__` property of its own stands in the way."""
    error = hostile_error(__setattr__=broken, __dict__=property(broken))
    annotate_error(error, ErrorContext(operation="model"))
    assert [context.operation for context in error_contexts(error)] == ["model"]


def test_d5_sixteen_innermost_places_are_kept() -> None:
    """More are dropped from the outside; the same place twice in a row is one."""
    error = OSError("x")
    for number in range(20):
        for _ in range(2):
            annotate_error(error, ErrorContext(operation=f"step {number}"))
    assert [context.operation for context in error_contexts(error)] == [f"step {number}" for number in range(16)]
    assert get_error_info(error).contexts == error_contexts(error)


def test_a_forged_note_is_not_believed() -> None:
    """What somebody else put under the private key is no context, and does no harm."""
    error = OSError("x")
    error.__dict__["_runlane_contexts"] = [1]
    assert error_contexts(error) == ()
    annotate_error(error, ErrorContext(operation="tool"))
    assert [context.operation for context in error_contexts(error)] == ["tool"]
    assert error_contexts("no exception") == ()


def test_notes_travel_with_a_pickled_error() -> None:
    """A copy from another process passed through the same places."""
    error: RunlaneError = annotate_error(BudgetError(allowance="rounds"), ErrorContext(operation="round"))
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert error_contexts(copy) == error_contexts(error)


def test_e1_a_budget_error_has_one_code() -> None:
    """Whatever ran out, the code is the same and only the facts tell which."""
    error = BudgetError(allowance="rounds", limit=3)
    assert (error.code, error.retryable, error.allowance, error.limit) == ("budget.exhausted", False, "rounds", 3)
    assert BudgetError.__subclasses__() == []
