"""A failure of a provider is told by type, then status, then words, then honestly not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from runlane.errors import (
    AbortedError,
    ContextOverflowError,
    ModelCallTimeoutError,
    ModelIdleTimeoutError,
    ProviderError,
    ProviderStreamCutError,
    SseIdleTimeoutError,
)
from runlane.models import ProviderFailure, classify_provider_failure, is_tool_result_failure


@pytest.mark.parametrize(
    ("status", "reason", "retryable"),
    [
        (402, "insufficient-credits", True),
        (429, "rate-limited", True),
        (404, "model-unavailable", False),
        (413, "context-overflow", False),
        (408, "timeout", True),
    ],
)
@pytest.mark.parametrize("field", ["status_code", "statusCode", "status", "code"])
def test_a_known_status_decides(status: int, reason: str, retryable: bool, field: str) -> None:  # noqa: FBT001
    """Whatever field it stands in, and whatever the words say."""
    failure = classify_provider_failure({field: status, "message": "insufficient funds"})
    assert (failure.reason, failure.retryable, failure.evidence, failure.status) == (
        reason,
        retryable,
        "status",
        status,
    )


@pytest.mark.parametrize("link", ["cause", "response", "error"])
def test_a_status_is_found_inside(link: str) -> None:
    """Libraries wrap the response; the first link that is there is followed."""
    assert classify_provider_failure({link: {"error": {"status": 429}}}).reason == "rate-limited"


def test_a_status_behind_an_exception_is_found() -> None:
    """`raise ... from` keeps the evidence."""
    origin = ProviderError("x", provider="p", status=429)
    error = RuntimeError("wrapped")
    error.__cause__ = origin
    assert classify_provider_failure(error).reason == "rate-limited"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("You have Insufficient balance, too many requests", "insufficient-credits"),
        ("not enough credit", "insufficient-credits"),
        ("Payment Required", "insufficient-credits"),
        ("quota exceeded", "insufficient-credits"),
        ("Rate limit reached", "rate-limited"),
        ("RATE_LIMIT", "rate-limited"),
        ("ratelimited", "rate-limited"),
        ("rate-limit", "rate-limited"),
        ("rate.limit", "rate-limited"),
        ("Too many requests", "rate-limited"),
        ("please slow down", "rate-limited"),
        ("No endpoints found for x", "model-unavailable"),
        ("model not found", "model-unavailable"),
        ("unknown model", "model-unavailable"),
        ("no allowed providers", "model-unavailable"),
        ("context length exceeded", "context-overflow"),
        ("maximum context is 8k", "context-overflow"),
        ("too many tokens", "context-overflow"),
        ("prompt is too long", "context-overflow"),
        ("request timed out", "timeout"),
        ("time out", "timeout"),
        ("deadline exceeded", "timeout"),
        ("ETIMEDOUT", "timeout"),
        ("The operation was aborted", "cancelled"),
        ("canceled", "cancelled"),
        ("cancelled", "cancelled"),
        ("boom", "unknown"),
    ],
)
def test_words_decide_where_no_status_does(message: str, reason: str) -> None:
    """As a text, as an exception and as the message of an object."""
    for failure in (message, RuntimeError(message), {"message": message, "status": 500}):
        found = classify_provider_failure(failure)
        assert (found.reason, found.evidence) == (reason, "none" if reason == "unknown" else "message")


def test_an_unmapped_status_is_reported_and_decides_nothing() -> None:
    """500 with any other words stays unknown."""
    assert classify_provider_failure({"status": 500, "message": "boom"}) == ProviderFailure(
        "unknown", retryable=False, evidence="none", status=500
    )


@pytest.mark.parametrize(
    "nothing", [None, 0, "", [], {"nothing": True}, Exception(), {"status": True}, {"status": 200}]
)
def test_nothing_known_is_unknown(nothing: object) -> None:
    """No evidence gives no reason."""
    assert classify_provider_failure(nothing) == ProviderFailure("unknown", retryable=False, evidence="none")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ProviderStreamCutError(), "stream-cut"),
        (ModelIdleTimeoutError(idle_timeout=3), "timeout"),
        (ProviderError("x", provider="p", reason="context-overflow", status=400), "context-overflow"),
        (ProviderError("x", provider="p", status=429), "rate-limited"),
        (AbortedError(), "cancelled"),
        (ModelCallTimeoutError(timeout=3), "timeout"),
        (SseIdleTimeoutError(idle_timeout=3), "timeout"),
        (ContextOverflowError("91 tokens where 60 are left"), "context-overflow"),
    ],
)
def test_types_of_our_own_come_first(error: Exception, reason: str) -> None:
    """Their type, or the reason they carry, says more than their text."""
    assert classify_provider_failure(error).reason == reason


@pytest.mark.parametrize(
    ("message", "retryable"),
    [
        ("insufficient", True),
        ("too many requests", True),
        ("model not found", False),
        ("context length", False),
        ("timed out", True),
        ("abort", False),
        ("boom", False),
    ],
)
def test_each_reason_says_whether_a_repetition_could_work(message: str, retryable: bool) -> None:  # noqa: FBT001
    """The column of the table, for reasons found by words."""
    assert classify_provider_failure(message).retryable is retryable


PHRASES = ("insufficient", "slow down", "unknown model", "too many tokens", "timeout", "cancelled")
REASONS = ("insufficient-credits", "rate-limited", "model-unavailable", "context-overflow", "timeout", "cancelled")


@pytest.mark.parametrize("place", range(len(PHRASES)))
def test_of_several_phrases_the_first_of_the_table_decides(place: int) -> None:
    """Whatever their order in the message."""
    assert classify_provider_failure(" ".join(reversed(PHRASES[place:]))).reason == REASONS[place]


def test_words_count_at_the_top_only() -> None:
    """A message inside a cause or response is not the failure's own."""
    for link in ("cause", "response", "error"):
        assert classify_provider_failure({link: {"message": "timed out"}}).reason == "unknown"


def test_the_first_link_that_is_there_is_followed_and_no_other() -> None:
    """A cause that holds nothing hides the response beside it."""
    assert classify_provider_failure({"cause": {}, "response": {"status": 429}}).reason == "unknown"
    assert classify_provider_failure({"cause": None, "response": {"status": 429}}).reason == "rate-limited"


def test_a_status_outside_the_range_is_none() -> None:
    """The first field that holds one from 400 to 599 counts."""
    assert classify_provider_failure({"statusCode": 200, "status": 600, "code": 429.0}).status == 429
    assert classify_provider_failure({"status": "429"}) == ProviderFailure("unknown", retryable=False, evidence="none")


def test_an_unmapped_status_is_reported_beside_the_words() -> None:
    """The words decide, the status is kept."""
    assert classify_provider_failure({"status": 503, "message": "slow down"}) == ProviderFailure(
        "rate-limited", retryable=True, evidence="message", status=503
    )


def test_a_circle_of_causes_ends() -> None:
    """An object that is its own cause is no trap."""
    circle: dict[str, object] = {"message": "boom"}
    circle["cause"] = circle
    assert classify_provider_failure(circle).reason == "unknown"


class _Hostile(Exception):  # noqa: N818 - it stands for somebody else's exception
    @property
    def status(self) -> int:
        raise RuntimeError

    @override
    def __str__(self) -> str:
        raise RuntimeError


def test_a_hostile_object_is_unknown() -> None:
    """A property or a text that raises does not break the classification."""
    assert classify_provider_failure(_Hostile()).reason == "unknown"


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.floats(),
        lambda inner: st.dictionaries(st.sampled_from(["status", "code", "cause", "error", "message"]), inner),
    )
)
def test_every_object_is_classified(failure: object) -> None:
    """The answer is total, and says `none` exactly when it is unknown or a type of our own."""
    found = classify_provider_failure(failure)
    assert (found.evidence == "none") == (found.reason == "unknown")


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        ({"error": None}, True),
        ({"value": {"error": 1}}, True),
        ('{"error":"x"}', True),
        ({"value": "error"}, False),
        ("error", False),
        (["error"], False),
        ('["error"]', False),
        (None, False),
        ({}, False),
    ],
)
def test_a_tool_result_that_looks_like_a_failure(output: object, failed: bool) -> None:  # noqa: FBT001 - a table
    """A key `error`, in the object, in its `value` or in the JSON text of it."""
    assert is_tool_result_failure(output) is failed
