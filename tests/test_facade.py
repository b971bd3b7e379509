"""The names a newcomer imports."""

import ast
import importlib
import subprocess
import sys

import pytest

import runlane
from runlane._lazy import HOMES
from tests.source_files import PACKAGE, parse


def test_the_facade_offers_what_its_homes_do() -> None:
    """Every name of `runlane` is the very object of the package that defines it."""
    assert sorted(HOMES) == sorted(runlane.__all__)
    for name, home in HOMES.items():
        assert getattr(runlane, name) is getattr(importlib.import_module(home), name)


def test_type_checkers_see_the_same_names() -> None:
    """What is imported for type checkers is what is loaded at run time, from the same homes."""
    blocks = [node for node in parse(PACKAGE / "__init__.py").body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == HOMES


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    """A misspelt name fails as with any module."""
    with pytest.raises(AttributeError, match="AgentRuntme"):
        getattr(runlane, "AgentRuntme")  # noqa: B009 - a type checker would refuse the plain form


def test_the_import_alone_loads_nothing_else() -> None:
    """`import runlane` loads neither pydantic nor anyio; `dir` still shows the names."""
    program = "import runlane, sys; print('pydantic' in sys.modules, 'AgentRuntime' in dir(runlane))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "True"]
