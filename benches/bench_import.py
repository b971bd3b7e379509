"""What `import runlane` costs beside what it cannot do without: `import pydantic, anyio`."""

import subprocess
import sys
from typing import Any

import pytest


@pytest.mark.benchmark(group="import")
@pytest.mark.parametrize("modules", ["runlane", "pydantic, anyio"])
def bench_import(benchmark: Any, modules: str) -> None:  # noqa: ANN401 - the fixture has no public type
    """A new interpreter that imports the modules and ends; the start of the interpreter is in both numbers."""
    benchmark(subprocess.run, [sys.executable, "-c", f"import {modules}"], check=True)
