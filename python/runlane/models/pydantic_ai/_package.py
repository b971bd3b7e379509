"""The optional package, or an error that says how to get it."""

from __future__ import annotations

from runlane.errors import MissingDependencyError

try:
    from pydantic_ai import exceptions, messages, models, settings, tools
except ModuleNotFoundError as error:
    if error.name != "pydantic_ai":
        raise
    raise MissingDependencyError(package="pydantic-ai-slim", extra="pydantic-ai") from error

__all__ = ["exceptions", "messages", "models", "settings", "tools"]
