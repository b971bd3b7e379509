"""Loads a name of the façade when it is first asked for, so that `import runlane` costs almost nothing."""

from __future__ import annotations

import importlib
import sys
from typing import Final

__all__ = ["HOMES", "load", "names"]

HOMES: Final[dict[str, str]] = {
    "Admission": "runlane.runtime",
    "AdmissionEvent": "runlane.delivery",
    "AgentRuntime": "runlane.runtime",
    "AssistantDeltaEvent": "runlane.delivery",
    "BlockingRuntime": "runlane.runtime",
    "CancelToken": "runlane.contracts",
    "ChatProvider": "runlane.models",
    "CheckpointEvent": "runlane.delivery",
    "CloseConfig": "runlane.runtime",
    "CloseResult": "runlane.runtime",
    "FilePart": "runlane.records",
    "Gap": "runlane.delivery",
    "InvalidValueError": "runlane.errors",
    "LaneCoordinator": "runlane.runtime",
    "LoopConfig": "runlane.runtime",
    "MemoryStore": "runlane.store",
    "Message": "runlane.records",
    "ModelError": "runlane.errors",
    "ModelOptions": "runlane.models",
    "OpenAIChat": "runlane.models.openai_chat",
    "ProviderError": "runlane.errors",
    "ReasoningDeltaEvent": "runlane.delivery",
    "ResolvedModel": "runlane.models",
    "Run": "runlane.records",
    "RunResult": "runlane.runtime",
    "RunStateEvent": "runlane.delivery",
    "RunTicket": "runlane.runtime",
    "RunUnsettledError": "runlane.errors",
    "RunlaneError": "runlane.errors",
    "RuntimeClosedError": "runlane.errors",
    "RuntimeConfig": "runlane.runtime",
    "RuntimeConflictError": "runlane.errors",
    "RuntimeEvent": "runlane.delivery",
    "SqliteStore": "runlane.store.sqlite",
    "Store": "runlane.store",
    "StoreError": "runlane.errors",
    "Subscription": "runlane.delivery",
    "TerminalEvent": "runlane.delivery",
    "TextPart": "runlane.records",
    "ToolError": "runlane.errors",
    "ToolExecutionContext": "runlane.tools",
    "ToolStatusEvent": "runlane.delivery",
    "Usage": "runlane.records",
    "UsageError": "runlane.errors",
    "tool": "runlane.tools",
}
"""Where each name of the façade lives."""


def load(name: str, /) -> object:
    """Return a name of the façade, from its home (PEP 562).

    Raises:
        AttributeError: There is no such name.
    """
    home = HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'runlane' has no attribute {name!r}", name=name, obj=sys.modules["runlane"])
    value: object = getattr(importlib.import_module(home), name)
    setattr(sys.modules["runlane"], name, value)
    return value


def names() -> list[str]:
    """Return the names of the façade."""
    return sorted(HOMES)
