"""What the tests of stores share."""

import pytest

from tests.store.host import FakeHost


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[FakeHost]:
    """Give stores a host whose clock is set by hand."""
    monkeypatch.setattr("runlane.store.sqlite._driver.Host", FakeHost)
    monkeypatch.setattr(FakeHost, "time", 1000.0)
    return FakeHost
