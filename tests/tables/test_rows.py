"""Every row of the tables by which the life of a run is specified has tests of its own, and they exist."""

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from runlane.testing import STORE_CHECKS
from tests.fixture_files import REPOSITORY

_ROWS = Path(__file__).with_name("rows.txt")
_HEADING = re.compile(r"(?P<table>[0-9.]+/[0-9]+) (?P<count>[0-9]+) (?P<title>.+)")
_ROW = re.compile(r"(?P<number>[0-9]+) (?P<module>[a-z0-9_/]+) (?P<tests>.+)")
_TEST = re.compile(r"(?P<name>[a-z0-9_]+)(?:\[(?P<case>[a-z0-9_-]+)\])?")


@dataclass
class _Table:
    """One table: its rows by number, each with the tests that are named for it."""

    name: str
    count: int
    rows: dict[int, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))


def _read() -> list[_Table]:
    tables: list[_Table] = []
    for line in _ROWS.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        heading = _HEADING.fullmatch(line)
        if heading is not None:
            tables.append(_Table(heading["table"], int(heading["count"])))
            continue
        row = _ROW.fullmatch(line)
        assert row is not None, f"neither a table nor a row: {line}"
        tables[-1].rows[int(row["number"])] += [(row["module"], test) for test in row["tests"].split()]
    return tables


_TABLES = _read()


@cache
def _known(module: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the tests of a module and the texts in it, which the ids of cases are made of."""
    if module == "checks":
        return frozenset(check.__name__ for check in STORE_CHECKS), frozenset()
    folder, _, file = module.rpartition("/")
    tree = ast.parse((REPOSITORY / "tests" / folder / f"test_{file}.py").read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    tests = {
        node.name.removeprefix("test_")
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return frozenset(tests), frozenset(texts)


@pytest.mark.parametrize("table", _TABLES, ids=[table.name for table in _TABLES])
def test_every_row_of_a_table_has_tests_that_exist(table: _Table) -> None:
    """From the first row to the last, none left out; each names tests, and cases of tests, that are there."""
    assert sorted(table.rows) == list(range(1, table.count + 1))
    for number, tests in table.rows.items():
        for module, test in tests:
            found = _TEST.fullmatch(test)
            assert found is not None, f"row {number}: {test} names no test"
            names, texts = _known(module)
            assert found["name"] in names, f"row {number}: {module} has no test {found['name']}"
            assert found["case"] is None or found["case"] in texts, f"row {number}: {test} has no such case"


def test_no_table_is_there_twice() -> None:
    """A table that was added again would hide what the first one lacks."""
    assert len({table.name for table in _TABLES}) == len(_TABLES)
