"""The `runlane` command; nothing in the library needs it."""

from runlane.cli._main import main

__all__ = ["main"]
