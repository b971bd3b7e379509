"""Whether a failed provider call is tried again, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import isfinite

from runlane.contracts import require_kind
from runlane.errors import InvalidValueError, ModelError, ProviderError, UsageError
from runlane.models._failure import ProviderFailure, classify_provider_failure

__all__ = ["Backoff", "RetryDecision", "RetryPolicy", "RetryRequest", "decide_retry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRequest:
    """What a retry policy is told of the attempt that failed.

    Attributes:
        attempt: 1 for the first try.
        failure: What is known of the failure.
        retry_after: Seconds the provider asked to wait, or None.
    """

    attempt: int
    failure: ProviderFailure
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits longer after each attempt, and at least as long as the provider asks, each within a bound of its own.

    Attributes:
        first: Seconds after the first attempt.
        factor: By which each further wait is longer.
        most: Seconds to which these waits grow.
        most_asked: Seconds up to which the provider's own wish is followed. To ask again sooner is of no use, but the
            conversation stands still that long.

    Raises:
        InvalidValueError: A number that is negative, infinite or, for `factor`, below 1.

    Example:
        >>> failure = ProviderFailure("rate-limited", retryable=True, evidence="status", status=429)
        >>> Backoff()(RetryRequest(attempt=3, failure=failure))
        2.0
        >>> Backoff()(RetryRequest(attempt=1, failure=failure, retry_after=7.5))
        7.5
    """

    first: float = 0.5
    factor: float = 2.0
    most: float = 30.0
    most_asked: float = 300.0

    def __post_init__(self) -> None:
        for name in ("first", "most", "most_asked"):
            _seconds(getattr(self, name), name)
        if _seconds(self.factor, "factor") < 1:
            raise InvalidValueError(f"must be at least 1, got {self.factor}", argument="factor")

    def __call__(self, request: RetryRequest, /) -> float:
        """Return the seconds to wait after an attempt."""
        try:
            grown = self.first * self.factor ** (request.attempt - 1)
        except OverflowError:
            grown = self.most
        return max(min(self.most, grown), min(self.most_asked, request.retry_after or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a provider call is tried, and how long to wait in between.

    Attributes:
        max_attempts: Tries at most, the first one included.
        delay: Gives the seconds to wait after an attempt that is to be repeated; asked for no other attempt.

    Raises:
        UsageError: `max_attempts` is no int, or `delay` cannot be called.
        InvalidValueError: `max_attempts` is below 1 or above 2**53 - 1.

    Example:
        >>> RetryPolicy(max_attempts=3, delay=lambda request: 0.25 * request.attempt).max_attempts
        3
    """

    max_attempts: int
    delay: Callable[[RetryRequest], float] = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        if isinstance(self.max_attempts, bool) or not isinstance(self.max_attempts, int):
            raise UsageError(f"must be an integer, not {type(self.max_attempts).__name__}", argument="max_attempts")
        if not 1 <= self.max_attempts < 2**53:
            raise InvalidValueError(f"must be from 1 to 2**53 - 1, got {self.max_attempts}", argument="max_attempts")
        if not callable(self.delay):
            raise UsageError("must be callable", argument="delay")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """What becomes of a failed attempt.

    Attributes:
        attempt: The number of the next attempt; of the failed one if there is no next.
        delay: Seconds to wait before it; 0 without a next attempt.
        failure: What the decision rests on.
    """

    retries: bool
    attempt: int
    delay: float
    failure: ProviderFailure

    @property
    def delay_ms(self) -> int:
        """The wait in whole milliseconds, as it is recorded."""
        return round(self.delay * 1000)


def decide_retry(policy: RetryPolicy | None, error: object, /, *, attempt: int) -> RetryDecision:
    """Say whether a failed attempt is repeated, and after which wait. Pure; nothing is recorded or waited for.

    Whether a repetition could work is answered by `classify_provider_failure`, and before it by a `ModelError` that
    states `retryable` itself: such an error was made where the whole reply was at hand, so an overloaded server (503)
    is tried again although its status alone decides nothing.

    Args:
        policy: None never repeats.
        error: What the provider call raised.
        attempt: The number of the failed attempt, 1 for the first.

    Raises:
        UsageError: The policy's delay is no number, or an argument is of the wrong kind.
        InvalidValueError: It is negative or not finite, or `attempt` is below 1.
    """
    require_kind(policy, RetryPolicy | None, argument="policy")
    if require_kind(attempt, int, argument="attempt") < 1:
        raise InvalidValueError(f"must be at least 1, got {attempt}", argument="attempt")
    failure = classify_provider_failure(error)
    stated = error.retryable if isinstance(error, ModelError) else None
    if stated is not None and stated is not failure.retryable:
        failure = replace(failure, retryable=stated)
    if policy is None or not failure.retryable or attempt >= policy.max_attempts:
        return RetryDecision(retries=False, attempt=attempt, delay=0.0, failure=failure)
    retry_after = error.retry_after if isinstance(error, ProviderError) else None
    asked = RetryRequest(attempt=attempt, failure=failure, retry_after=retry_after)
    delay = _seconds(policy.delay(asked), "delay")
    return RetryDecision(retries=True, attempt=attempt + 1, delay=delay, failure=failure)


def _seconds(value: object, argument: str) -> float:
    """Return a finite, non-negative number of seconds, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"must be a number, not {type(value).__name__}", argument=argument)
    if not (isfinite(value) and value >= 0):
        raise InvalidValueError(f"must be finite and at least 0, got {value}", argument=argument)
    return float(value)
