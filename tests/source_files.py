"""What the repository consists of, for the tests that read it."""

import ast
import subprocess
from pathlib import Path

from tests.fixture_files import REPOSITORY

PACKAGE = REPOSITORY / "python" / "runlane"


def tracked_files() -> list[Path]:
    """The files that the repository holds or is about to hold; in an unpacked sdist, every file of it."""
    if not (REPOSITORY / ".git").exists():
        return sorted(path for path in REPOSITORY.rglob("*") if path.is_file())
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],  # noqa: S607
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return sorted(path for name in listing.split("\0") if name and (path := REPOSITORY / name).is_file())


def relative(path: Path) -> str:
    """The path as the repository names it."""
    return path.relative_to(REPOSITORY).as_posix()


def line_count(path: Path) -> int:
    """The number of lines of a text file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def parse(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def public_packages() -> list[str]:
    """The import names of the packages of runlane whose names have no underscore in front."""
    found = (path.parent.relative_to(PACKAGE.parent).parts for path in PACKAGE.rglob("__init__.py"))
    return sorted(".".join(parts) for parts in found if not any(part.startswith("_") for part in parts))


def public_modules() -> list[str]:
    """The import names of the public modules and packages of runlane."""
    modules = (path.relative_to(PACKAGE.parent).with_suffix("").parts for path in PACKAGE.rglob("*.py"))
    return sorted(
        {".".join(parts) for parts in modules if not any(part.startswith("_") for part in parts)}
        | set(public_packages())
    )
