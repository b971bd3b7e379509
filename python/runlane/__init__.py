"""runlane: a durable agent runtime. Every accepted input ends in exactly one recorded answer.

These are the names a newcomer needs, each loaded when it is first used; the packages below hold the rest.
"""

from typing import TYPE_CHECKING

from runlane._lazy import load as __getattr__  # noqa: F401 - found by Python itself (PEP 562)
from runlane._lazy import names as __dir__  # noqa: F401 - likewise

if TYPE_CHECKING:
    from runlane.contracts import CancelToken
    from runlane.delivery import (
        AdmissionEvent,
        AssistantDeltaEvent,
        CheckpointEvent,
        Gap,
        ReasoningDeltaEvent,
        RunStateEvent,
        RuntimeEvent,
        Subscription,
        TerminalEvent,
        ToolStatusEvent,
    )
    from runlane.errors import (
        InvalidValueError,
        ModelError,
        ProviderError,
        RunlaneError,
        RuntimeClosedError,
        RuntimeConflictError,
        RunUnsettledError,
        StoreError,
        ToolError,
        UsageError,
    )
    from runlane.models import ChatProvider, ModelOptions, ResolvedModel
    from runlane.models.openai_chat import OpenAIChat
    from runlane.records import FilePart, Message, Run, TextPart, Usage
    from runlane.runtime import (
        Admission,
        AgentRuntime,
        BlockingRuntime,
        CloseConfig,
        CloseResult,
        LaneCoordinator,
        LoopConfig,
        RunResult,
        RunTicket,
        RuntimeConfig,
    )
    from runlane.store import MemoryStore, Store
    from runlane.store.sqlite import SqliteStore
    from runlane.tools import ToolExecutionContext, tool

__all__ = [
    "Admission",
    "AdmissionEvent",
    "AgentRuntime",
    "AssistantDeltaEvent",
    "BlockingRuntime",
    "CancelToken",
    "ChatProvider",
    "CheckpointEvent",
    "CloseConfig",
    "CloseResult",
    "FilePart",
    "Gap",
    "InvalidValueError",
    "LaneCoordinator",
    "LoopConfig",
    "MemoryStore",
    "Message",
    "ModelError",
    "ModelOptions",
    "OpenAIChat",
    "ProviderError",
    "ReasoningDeltaEvent",
    "ResolvedModel",
    "Run",
    "RunResult",
    "RunStateEvent",
    "RunTicket",
    "RunUnsettledError",
    "RunlaneError",
    "RuntimeClosedError",
    "RuntimeConfig",
    "RuntimeConflictError",
    "RuntimeEvent",
    "SqliteStore",
    "Store",
    "StoreError",
    "Subscription",
    "TerminalEvent",
    "TextPart",
    "ToolError",
    "ToolExecutionContext",
    "ToolStatusEvent",
    "Usage",
    "UsageError",
    "tool",
]
