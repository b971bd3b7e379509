"""What a package offers is what its `__all__` says."""

import ast
import importlib
from types import ModuleType

import pytest

from tests.source_files import PACKAGE, parse, public_modules, public_packages


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]


def _is_import_for_types(node: ast.stmt) -> bool:
    imports = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse
    return imports and all(isinstance(inner, ast.Import | ast.ImportFrom) for inner in getattr(node, "body", ()))


@pytest.fixture(params=public_packages())
def package(request: pytest.FixtureRequest) -> ModuleType:
    """Each public package in turn."""
    return importlib.import_module(request.param)


def test_an_init_only_re_exports(package: ModuleType) -> None:
    """A public package's `__init__` holds a docstring, imports and `__all__`, and nothing that does anything."""
    tree = parse(PACKAGE.parent.joinpath(*package.__name__.split("."), "__init__.py"))
    others = [
        ast.unparse(node)
        for node in tree.body
        if not (
            isinstance(node, ast.Import | ast.ImportFrom)
            or _is_docstring(node)
            or _is_all(node)
            or _is_import_for_types(node)
        )
    ]
    assert others == []


@pytest.mark.parametrize("name", public_modules())
def test_all_names_what_is_there_once_and_in_order(name: str) -> None:
    """Every name of `__all__` can be imported, stands there once, is public, and is where the eye looks for it."""
    module = importlib.import_module(name)
    exported: list[str] = list(getattr(module, "__all__", []))
    assert [entry for entry in exported if not hasattr(module, entry)] == []
    assert [entry for entry in exported if entry.startswith("_")] == []
    assert len(exported) == len(set(exported))


@pytest.mark.parametrize("name", public_modules())
def test_a_public_module_says_what_it_is_for(name: str) -> None:
    """Every public module has a docstring whose first line is a sentence."""
    documentation = importlib.import_module(name).__doc__ or ""
    assert documentation.strip(), f"{name} has no docstring"
    assert documentation.split("\n\n")[0].strip().endswith((".", ":")), documentation.split("\n\n")[0]
