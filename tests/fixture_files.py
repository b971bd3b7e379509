"""Where the handed test data lies: recorded provider streams, SSE cases and RFC 8785 vectors.

The folder is not part of the repository. It is read in place from the environment variable
``RUNLANE_FIXTURES``, or from ``shared/fixtures`` beside the repository. Tests that need it are
collected only where it exists: name such a file ``test_*_fixtures.py``, or parametrise over
``fixture_files`` (without the folder the empty parameter set is deselected by
``tests/conftest.py``, never skipped).
"""

import os
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
"""The root of the source tree."""


def fixtures_dir() -> Path | None:
    """The fixtures folder, or ``None`` where there is none.

    Raises:
        NotADirectoryError: ``RUNLANE_FIXTURES`` is set but names no folder.
    """
    named = os.environ.get("RUNLANE_FIXTURES")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "fixtures"
    if folder.is_dir():
        return folder.resolve()
    if named:
        message = f"RUNLANE_FIXTURES names {named}, which is not a folder"
        raise NotADirectoryError(message)
    return None


def fixture_files(pattern: str) -> list[Path]:
    """The fixture files that match a glob below the folder, sorted; none without a folder."""
    folder = fixtures_dir()
    return [] if folder is None else sorted(folder.glob(pattern))
