"""A failed call is tried again when that could work and the policy still allows it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import (
    AbortedError,
    InvalidValueError,
    ModelIdleTimeoutError,
    ModelProtocolError,
    ProviderError,
    ProviderStreamCutError,
    UsageError,
)
from runlane.models import Backoff, RetryPolicy, RetryRequest, classify_provider_failure, decide_retry
from runlane.models._failure import ErrorReply, provider_error

LIMITED = {"status": 429}


@pytest.mark.parametrize(("attempt", "retries"), [(1, True), (2, True), (3, False), (4, False)])
def test_max_attempts_counts_the_first_try(attempt: int, retries: bool) -> None:  # noqa: FBT001
    """Three attempts are one try and two repetitions."""
    decision = decide_retry(RetryPolicy(max_attempts=3), LIMITED, attempt=attempt)
    assert decision.retries is retries
    assert decision.attempt == attempt + retries


def test_without_a_policy_nothing_is_repeated() -> None:
    """No policy, no second try."""
    assert not decide_retry(None, LIMITED, attempt=1).retries


@pytest.mark.parametrize(
    ("error", "reason", "retries"),
    [
        ({"status": 402}, "insufficient-credits", True),
        ({"status": 429}, "rate-limited", True),
        ({"status": 408}, "timeout", True),
        ({"status": 404}, "model-unavailable", False),
        ({"status": 413}, "context-overflow", False),
        ({"status": 500, "message": "boom"}, "unknown", False),
        (ProviderStreamCutError(), "stream-cut", True),
        (ModelIdleTimeoutError(idle_timeout=5), "timeout", True),
        (ModelProtocolError(detail="two calls with one id"), "unknown", False),
        (AbortedError(), "cancelled", False),
        (ValueError("boom"), "unknown", False),
    ],
)
def test_what_could_work_later_is_repeated(error: object, reason: str, retries: bool) -> None:  # noqa: FBT001
    """The table of reasons decides."""
    decision = decide_retry(RetryPolicy(max_attempts=2), error, attempt=1)
    assert (decision.failure.reason, decision.retries) == (reason, retries)


@pytest.mark.parametrize(("status", "retries"), [(503, True), (529, True), (500, True), (400, False), (401, False)])
def test_an_error_of_a_wire_protocol_knows_best(status: int, retries: bool) -> None:  # noqa: FBT001
    """What the adapter stated at the reply stands; the plain status alone would decide nothing."""
    error = provider_error(ErrorReply(where=f"answered {status}", status=status), provider="p")
    assert not classify_provider_failure({"status": status}).retryable
    decision = decide_retry(RetryPolicy(max_attempts=2), error, attempt=1)
    assert decision.retries is retries
    assert decision.failure.retryable is retries


def test_the_delay_is_asked_only_when_it_is_needed() -> None:
    """A last attempt and a failure that cannot get better ask nobody."""
    asked: list[RetryRequest] = []

    def delay(request: RetryRequest) -> float:
        asked.append(request)
        return 1.5

    policy = RetryPolicy(max_attempts=2, delay=delay)
    assert decide_retry(policy, LIMITED, attempt=2).delay == 0
    assert decide_retry(policy, {"status": 404}, attempt=1).delay == 0
    assert asked == []
    decision = decide_retry(policy, LIMITED, attempt=1)
    assert (decision.delay, decision.delay_ms) == (1.5, 1500)
    assert [(request.attempt, request.failure.status) for request in asked] == [(1, 429)]


@pytest.mark.parametrize("bad", [-0.001, math.nan, math.inf])
def test_a_wait_that_is_no_time_is_refused(bad: float) -> None:
    """Negative and endless waits are errors of the policy."""
    policy = RetryPolicy(max_attempts=2, delay=lambda _: bad)
    with pytest.raises(InvalidValueError) as caught:
        decide_retry(policy, LIMITED, attempt=1)
    assert caught.value.argument == "delay"


@pytest.mark.parametrize("bad", ["1", None, True])
def test_a_wait_that_is_no_number_is_misuse(bad: object) -> None:
    """A delay gives seconds."""
    policy = RetryPolicy(max_attempts=2, delay=lambda _: bad)  # type: ignore[arg-type,return-value]
    with pytest.raises(UsageError):
        decide_retry(policy, LIMITED, attempt=1)


@pytest.mark.parametrize("bad", [0, -1, 2**53])
def test_attempts_out_of_range_are_refused_at_construction(bad: int) -> None:
    """At least the first try."""
    with pytest.raises(InvalidValueError):
        RetryPolicy(max_attempts=bad)


@pytest.mark.parametrize("bad", [1.5, True, "3", None])
def test_attempts_that_are_no_integer_are_misuse(bad: object) -> None:
    """A bool is no number of attempts."""
    with pytest.raises(UsageError):
        RetryPolicy(max_attempts=bad)  # type: ignore[arg-type]


def test_attempts_are_counted_from_one() -> None:
    """There is no attempt 0."""
    with pytest.raises(InvalidValueError):
        decide_retry(RetryPolicy(max_attempts=2), LIMITED, attempt=0)


@given(attempt=st.integers(1, 2_000), asked=st.none() | st.floats(0, 1e6))
def test_a_backoff_grows_up_to_its_bounds(attempt: int, asked: float | None) -> None:
    """No wait is shorter than an earlier one or than what the provider asked, up to a bound for each."""
    backoff = Backoff(first=0.5, factor=2, most=20, most_asked=90)
    failure = classify_provider_failure(LIMITED)
    wait = backoff(RetryRequest(attempt=attempt, failure=failure, retry_after=asked))
    later = backoff(RetryRequest(attempt=attempt + 1, failure=failure, retry_after=asked))
    wish = min(90.0, asked or 0)
    assert max(0.5, wish) <= wait <= later <= max(20, wish)


@pytest.mark.parametrize("name", ["first", "most", "most_asked", "factor"])
@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_a_backoff_out_of_range_is_refused(name: str, bad: float) -> None:
    """The error names the field."""
    with pytest.raises(InvalidValueError) as refused:
        Backoff(**{name: bad})
    assert refused.value.argument == name


def test_what_the_provider_asked_reaches_the_policy() -> None:
    """`Retry-After` is a fact of the error."""
    error = provider_error(ErrorReply(where="answered 429", status=429, retry_after=7.0), provider="p")
    assert isinstance(error, ProviderError)
    assert decide_retry(RetryPolicy(max_attempts=2), error, attempt=1).delay == 7
