"""The machine's clocks."""

from datetime import UTC, datetime, timedelta

import pytest

from runlane.clock import SystemClock


def test_the_wall_time_is_in_whole_milliseconds_and_never_ahead() -> None:
    """What is read from the clock is what is stored: UTC, rounded down to milliseconds."""
    clock = SystemClock()
    for _ in range(1_000):
        before = datetime.now(UTC)
        now = clock.now()
        assert now.tzinfo is UTC
        assert now.microsecond % 1000 == 0
        assert before - timedelta(milliseconds=1) < now <= datetime.now(UTC)


@pytest.mark.parametrize("milliseconds", [0, 1, 999, 1_767_225_599_999, 1_767_225_600_001, 253_402_300_799_999])
def test_no_millisecond_is_lost_on_the_way(monkeypatch: pytest.MonkeyPatch, milliseconds: int) -> None:
    """The instant is the one that the system gives, to the last digit, from 1970 to 9999."""
    monkeypatch.setattr("time.time_ns", lambda: milliseconds * 1_000_000 + 999_999)
    passed = SystemClock().now() - datetime(1970, 1, 1, tzinfo=UTC)
    assert passed == timedelta(milliseconds=milliseconds)
