"""One tree of errors, told apart by type and code."""

import inspect
import pickle

import pytest

import runlane.errors
from runlane.errors import (
    CanonicalJsonError,
    InvalidValueError,
    ModelProtocolError,
    ProviderError,
    RunlaneError,
    SseLimitError,
    StoreBusyError,
    StoreUnavailableError,
    ToolError,
    UsageError,
)

CLASSES = [
    value
    for name in runlane.errors.__all__
    if inspect.isclass(value := getattr(runlane.errors, name)) and issubclass(value, RunlaneError)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_has_a_dotted_lower_case_code(kind: type[RunlaneError]) -> None:
    """A code is stable, lower-case and dotted, and retryable is True, False or unknown."""
    assert kind.code == kind.code.lower()
    assert kind.code.replace(".", "").replace("_", "").isalpha()
    assert kind.retryable in (True, False, None)
    assert kind.__name__.endswith("Error")


def test_codes_are_unique() -> None:
    """No two classes that add a code of their own share it."""
    codes = [kind.code for kind in CLASSES if "code" in kind.__dict__]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    "error",
    [
        SseLimitError(scope="line", limit=3),
        CanonicalJsonError(path="/a/0", problem="NaN"),
        ModelProtocolError(detail="two calls", code="model.multiple_calls"),
        ProviderError("no", provider="openai-chat", reason="rate-limited", status=429, retryable=True),
        ToolError("card.declined", "declined", retryable=False, details={"code": 1}, hint="ask"),
        UsageError("no", argument="x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_pickle_with_their_facts(error: RunlaneError) -> None:
    """A copy from another process has the same class, message, facts, code and retryability."""
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert (copy.code, copy.retryable) == (error.code, error.retryable)


def test_misuse_and_bad_values_are_also_what_python_calls_them() -> None:
    """UsageError is a TypeError, InvalidValueError a ValueError, and both name the argument."""
    misuse = UsageError("is not awaitable", argument="context")
    bad = InvalidValueError("must be positive", argument="loop.max_steps")
    assert isinstance(misuse, TypeError)
    assert isinstance(bad, ValueError)
    assert str(bad) == "loop.max_steps: must be positive"
    assert misuse.argument == "context"


def test_a_class_tells_whether_to_try_again() -> None:
    """A busy store is an unavailable store, and both may be tried again."""
    assert issubclass(StoreBusyError, StoreUnavailableError)
    assert StoreBusyError("full", store="x.db").retryable is True
    assert ProviderError("no", provider="p").retryable is None
