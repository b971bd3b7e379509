"""The way in: checks that the `cli` extra is installed before anything imports it."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from runlane.errors import MissingDependencyError

__all__ = ["main"]

_NEEDED = ("typer", "rich")
_USAGE = 2


def main() -> int:
    """Run the command line on `sys.argv` and return its exit code; no exception leaves it.

    The codes are those of `runlane.cli._exits`. Without typer and rich (the `cli` extra) it says so and returns 2.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        print(f"runlane: {MissingDependencyError(package=' and '.join(missing), extra='cli')}", file=sys.stderr)
        return _USAGE
    from runlane.cli._app import run  # noqa: PLC0415 - only importable once the extra is known to be there

    return run(sys.argv[1:])
