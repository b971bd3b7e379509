"""Imports every public module of the installed package and shows that none comes from the source.

Usage: python smoke_installed.py SOURCE_TREE, from a folder outside it.
"""

import importlib
import pkgutil
import sys
from importlib.metadata import metadata, version
from pathlib import Path


def main(source_tree: Path) -> int:
    """Import what can be imported; returns the number of modules that came from the wrong place."""
    # The folder of this script is on the path of Python by default.
    sys.path[:] = [entry for entry in sys.path if not Path(entry or ".").is_relative_to(source_tree)]
    runlane = importlib.import_module("runlane")
    extras = metadata("runlane").get_all("Provides-Extra") or []
    imported = ["runlane"]
    for found in pkgutil.walk_packages(runlane.__path__, "runlane."):
        if any(part.startswith("_") for part in found.name.split(".")):
            continue
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            # The clean environment has few extras; a module that needs another must say so by its name.
            if getattr(error, "extra", None) not in extras:
                raise
            print(f"{found.name}: {error}")
            continue
        imported.append(found.name)
    wrong = [name for name in imported if Path(sys.modules[name].__file__ or ".").resolve().is_relative_to(source_tree)]
    for name in wrong:
        print(f"{name} was imported from the source tree")
    print(f"runlane {version('runlane')}: {len(imported)} modules imported from the wheel")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
