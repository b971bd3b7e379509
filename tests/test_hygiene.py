"""What must not stand in the repository."""

import ast
import re
from pathlib import Path

import pytest

from tests.source_files import PACKAGE, parse, relative, tracked_files

_MACHINE_PATH = re.compile(r"(^|[^\w./-])/(work|root|home|Users)/[\w.-]+")
_REGISTRY_HOST = re.compile(r"pypi\.org|pythonhosted\.org|(static|index)\.crates\.io|npmjs\.")
_BARE_SILENCER = re.compile(r"#\s*(noqa(?!:\s*[A-Z])|type:\s*ignore(?!\[)|pyright:\s*ignore(?!\[))", re.IGNORECASE)
_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError")
_SKIPPING = re.compile(r"pytest\.(skip|xfail|importorskip)\b|mark\.(skip|skipif|xfail)\b")

# A lock file names its sources, and this file names what it looks for.
_NOT_READ = {"Cargo.lock", Path(__file__).name}


def _texts() -> list[Path]:
    return [path for path in tracked_files() if path.name not in _NOT_READ and b"\0" not in path.read_bytes()]


def _lines_that_match(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]


def _python_files() -> list[Path]:
    return [path for path in _texts() if path.suffix in {".py", ".pyi"}]


@pytest.mark.parametrize("pattern", [_MACHINE_PATH, _REGISTRY_HOST], ids=["machine paths", "registry hosts"])
def test_no_file_names_a_place_of_one_machine(pattern: re.Pattern[str]) -> None:
    """No tracked file names a folder of somebody's machine or the host of a package registry."""
    assert _lines_that_match(pattern, _texts()) == []


def test_a_rule_is_silenced_only_by_name() -> None:
    """A comment that silences lint or a type checker names the rule that it silences."""
    assert _lines_that_match(_BARE_SILENCER, _python_files()) == []


def test_nothing_is_left_unfinished() -> None:
    """No source file carries a note to come back to it."""
    source = [path for path in _texts() if path.suffix in {".py", ".pyi", ".rs"}]
    assert _lines_that_match(_UNFINISHED, source) == []


def test_no_test_is_skipped() -> None:
    """No test is skipped or expected to fail: a test that cannot run somewhere is not collected there."""
    tests = [path for path in _python_files() if relative(path).startswith("tests/")]
    assert _lines_that_match(_SKIPPING, tests) == []


def _imported_modules(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_the_package_knows_no_event_loop() -> None:
    """The package imports neither asyncio nor trio: anyio stands between, so both loops can run it."""
    loops = {"asyncio", "trio"}
    offenders = {
        relative(path): sorted(known)
        for path in sorted(PACKAGE.rglob("*.py"))
        if (known := {name for name in _imported_modules(path) if name.partition(".")[0] in loops})
    }
    assert offenders == {}


def test_the_package_unpickles_nothing() -> None:
    """No module of the package imports a library that runs code found in data."""
    unsafe = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    offenders = {
        relative(path): sorted(known)
        for path in sorted(PACKAGE.rglob("*.py"))
        if (known := _imported_modules(path) & unsafe)
    }
    assert offenders == {}
