"""What `import runlane` costs, and what it leaves alone."""

import statistics
import subprocess
import sys
import time

import pytest

_REPORT_MODULES = "import runlane, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
_REPORT_EVENTS = (
    "import sys; events = []; "
    "sys.addaudithook(lambda name, args: events.append(name) if name.startswith(('socket.', 'sqlite3.')) else None); "
    "import runlane; print(*events)"
)
_REPORT_THREADS = "import runlane, threading; print(threading.active_count())"


def _printed_by(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def test_importing_runlane_loads_no_driver() -> None:
    """The HTTP client, the SQLite driver and the command line's libraries load when they are first used."""
    heavy = {"apsw", "h11", "httpcore2", "httpx2", "rich", "sqlite3", "ssl", "typer"}
    assert heavy & set(_printed_by(_REPORT_MODULES).split()) == set()


def test_importing_runlane_touches_no_network() -> None:
    """No socket is opened, no name is looked up and no database is opened by the import."""
    assert _printed_by(_REPORT_EVENTS) == ""


def test_importing_runlane_starts_no_thread() -> None:
    """The import leaves the main thread alone in the process."""
    assert _printed_by(_REPORT_THREADS) == "1"


def _seconds(program: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    return time.perf_counter() - start


def test_the_cost_of_the_import_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`import runlane` is set beside `import pydantic, anyio`; the ratio is shown, for a busy machine lies."""
    rounds = [(_seconds("import runlane"), _seconds("import pydantic, anyio")) for _ in range(3)]
    ours, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
    with capsys.disabled():
        print(f"\nimport runlane: {ours / theirs:.2f} times import pydantic, anyio")  # noqa: T201
    assert ours > 0
