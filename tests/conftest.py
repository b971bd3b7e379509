"""What every test shares: both event loops, the Hypothesis profiles, and the handed fixtures."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.fixture_files import fixtures_dir as find_fixtures

# The machine may be shared and slow: no example has a deadline, and slowness alone is no failure.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, max_examples=50)
settings.register_profile("dev", _PATIENT)
# The same examples at every run: a red run is due to the change, and anyone can repeat it.
settings.register_profile("ci", settings(_PATIENT, max_examples=100, derandomize=True))
# New examples at every run, and many: where unknown faults are looked for (`make deep`).
settings.register_profile("deep", settings(_PATIENT, max_examples=2_000))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loops that runlane promises to run on; a test marked `anyio` runs once on each."""
    backend: str = request.param
    return backend


@pytest.fixture(scope="session")
def fixtures_dir() -> Path:
    """The handed fixtures; only tests in a `test_*_fixtures.py` may ask for it."""
    folder = find_fixtures()
    assert folder is not None, "only a test file named test_*_fixtures.py may use fixtures_dir"
    return folder


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave files named `test_*_fixtures.py` alone where the fixtures folder is missing."""
    wanted = collection_path.match("test_*_fixtures.py") and find_fixtures() is None
    return True if wanted else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is parametrised over fixtures that are not here; nothing is ever skipped."""
    empty = [item for item in items if _has_no_parameters(item)]
    if not empty:
        return
    if find_fixtures() is not None:
        names = ", ".join(item.nodeid for item in empty)
        raise pytest.UsageError(f"parametrised over nothing, so it would test nothing: {names}")
    items[:] = [item for item in items if item not in empty]
    config.hook.pytest_deselected(items=empty)


def _has_no_parameters(item: pytest.Item) -> bool:
    reasons: list[Any] = [mark.kwargs.get("reason", "") for mark in item.iter_markers("skip")]
    return any(str(reason).startswith("got empty parameter set") for reason in reasons)
