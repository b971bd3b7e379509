"""The tools of a registry as capabilities: choosing one proposes a call and executes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pydantic import JsonValue

from runlane.contracts import Id, require_sync, sync_result
from runlane.errors import CheckFailedError, ToolArgumentsError
from runlane.runner._capabilities import ModelToolRegistration, ModelToolRegistry, ToolProposal
from runlane.tools import RegisteredTool, ToolRegistry

__all__ = ["selectable_tools"]


class _ProposalSchema:
    """Checks arguments as the tool itself will, and keeps them as JSON: a proposal is parsed when it is invoked."""

    __slots__ = ("_registry", "_tool_id", "json_schema")

    def __init__(self, registry: ToolRegistry[Any], entry: RegisteredTool) -> None:
        self._registry = registry
        self._tool_id = entry.id
        self.json_schema = entry.input_schema

    def parse(self, value: object, /) -> object:
        """Return the arguments as they are.

        Raises:
            CheckFailedError: The tool would refuse them.
        """
        try:
            self._registry.parse(self._tool_id, value)
        except ToolArgumentsError as error:
            raise CheckFailedError(issues=error.issues) from error
        return value


def selectable_tools(
    registry: ToolRegistry[Any], /, keep: Collection[Id] | Callable[[RegisteredTool], bool] | None = None
) -> ModelToolRegistry[ToolProposal]:
    """Return the tools of a registry as capabilities whose choice proposes a call; choosing never executes.

    Invoke the proposal with `ToolRegistry.invoke(ToolInvocationRequest(tool_id=..., input=proposal.arguments))`, which
    parses and authorises it as any other call.

    Args:
        registry: The tools, as they are now.
        keep: The ids, or what says yes to a tool; all by default.

    Raises:
        MissingEntryError: One of the ids is unknown.
    """
    projected = ModelToolRegistry([_proposing(registry, entry) for entry in _chosen(registry, keep)])
    projected.seal()
    return projected


def _chosen(
    registry: ToolRegistry[Any], keep: Collection[Id] | Callable[[RegisteredTool], bool] | None
) -> list[RegisteredTool]:
    if keep is None:
        return list(registry)
    if callable(keep):
        require_sync(keep, argument="keep")
        return [entry for entry in registry if sync_result(keep(entry), argument="keep")]
    for tool_id in keep:
        registry.require(tool_id)
    return [entry for entry in registry if entry.id in keep]


def _proposing(registry: ToolRegistry[Any], entry: RegisteredTool) -> ModelToolRegistration[ToolProposal]:
    tool_id = entry.id

    def propose(arguments: JsonValue) -> ToolProposal:
        return ToolProposal(tool_id=tool_id, arguments=arguments)

    return ModelToolRegistration(
        id=tool_id,
        description=entry.description,
        schema=_ProposalSchema(registry, entry),
        resolve=propose,
        intent=entry.as_intent,
    )
