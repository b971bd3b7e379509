"""The handwritten stub of the native half."""

import os
import subprocess
import sys

import pytest

from tests.fixture_files import REPOSITORY


@pytest.mark.timeout(180)
def test_the_stub_and_the_binary_agree() -> None:
    """`_native.pyi` says of every name in the compiled module what is true of it, with no exceptions listed."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "runlane._native"],
        cwd=REPOSITORY,
        env={**os.environ, "MYPYPATH": "python"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
