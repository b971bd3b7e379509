"""What an application gives as `tools`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from runlane.errors import UsageError
from runlane.tools import ToolDefinition, ToolRegistry, ToolRegistryOptions

__all__ = ["ToolSource", "read_tools"]

ToolSource: TypeAlias = Iterable[ToolDefinition[Any, Any, Any] | Callable[..., Any]] | ToolRegistry[Any]
"""Tools of a runtime: typed functions and definitions, or a sealed registry with its own ports."""


def read_tools(source: object, /) -> ToolRegistry[Any] | None:
    """Return a sealed registry, or None if there are no tools.

    Raises:
        UsageError: The registry is not sealed, or it is a single tool.
        DuplicateRegistrationError: Two tools have one id.
        InvalidValueError: A tool is malformed.
    """
    if isinstance(source, ToolRegistry):
        if not source.sealed:
            raise UsageError("seal the registry first: registry.seal()", argument="tools")
        return source
    if isinstance(source, str | bytes | Mapping) or not isinstance(source, Iterable):
        raise UsageError("must be a list of tools, or a ToolRegistry", argument="tools")
    tools = tuple(source)
    if not tools:
        return None
    registry: ToolRegistry[Any] = ToolRegistry(ToolRegistryOptions(tools=tools))
    registry.seal()
    return registry
