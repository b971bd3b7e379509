"""The layers of the package."""

import subprocess
import sys

import pytest

from tests.fixture_files import REPOSITORY

_LINT_IMPORTS = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"


@pytest.mark.timeout(180)
def test_a_module_imports_only_the_layers_below_it() -> None:
    """Every import inside runlane points down the layers that pyproject.toml lists, and no module is unplaced."""
    done = subprocess.run(
        [sys.executable, "-c", _LINT_IMPORTS], cwd=REPOSITORY, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
