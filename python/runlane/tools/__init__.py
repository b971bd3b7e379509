"""The one definition of a tool, its registry, and the way a call is carried out, alone or inside a durable run."""

from runlane.tools._approvals import ApprovalKind, ApprovalSeal, approval_kind
from runlane.tools._compiled import CompiledTool
from runlane.tools._context import (
    TOOL_PROGRESS_MESSAGE_MAX,
    TOOL_PROGRESS_SPACING,
    ToolCache,
    ToolDurability,
    ToolExecutionContext,
    ToolInvocationPorts,
    ToolModel,
    ToolProgress,
)
from runlane.tools._definition import (
    AsIntent,
    ErasedTool,
    ExecutableTool,
    IntentOptions,
    InvocationHandler,
    RegisteredTool,
    ToolCondition,
    ToolContext,
    ToolDefinition,
)
from runlane.tools._envelope import error_envelope
from runlane.tools._fence import ToolFenceConfig, ToolFenceContext, ToolFenceLifecycle
from runlane.tools._invocation import execute_invocation
from runlane.tools._journal import ToolExecutionEvent, ToolJournal, ToolJournalFinish, ToolJournalStart
from runlane.tools._mount import (
    MountedCall,
    MountedTools,
    OnToolFailure,
    TellCallProgress,
    ToolTurnFacts,
    mount_tools,
)
from runlane.tools._ports import ToolAuthorization, ToolInvocationRequest, ToolRegistryOptions, ToolRegistryPorts
from runlane.tools._reconcile import Reconcile, Reconciled
from runlane.tools._registry import ToolRegistry
from runlane.tools._signature import FunctionTool, ToolOptions, tool

__all__ = [
    "TOOL_PROGRESS_MESSAGE_MAX",
    "TOOL_PROGRESS_SPACING",
    "ApprovalKind",
    "ApprovalSeal",
    "AsIntent",
    "CompiledTool",
    "ErasedTool",
    "ExecutableTool",
    "FunctionTool",
    "IntentOptions",
    "InvocationHandler",
    "MountedCall",
    "MountedTools",
    "OnToolFailure",
    "Reconcile",
    "Reconciled",
    "RegisteredTool",
    "TellCallProgress",
    "ToolAuthorization",
    "ToolCache",
    "ToolCondition",
    "ToolContext",
    "ToolDefinition",
    "ToolDurability",
    "ToolExecutionContext",
    "ToolExecutionEvent",
    "ToolFenceConfig",
    "ToolFenceContext",
    "ToolFenceLifecycle",
    "ToolInvocationPorts",
    "ToolInvocationRequest",
    "ToolJournal",
    "ToolJournalFinish",
    "ToolJournalStart",
    "ToolModel",
    "ToolOptions",
    "ToolProgress",
    "ToolRegistry",
    "ToolRegistryOptions",
    "ToolRegistryPorts",
    "ToolTurnFacts",
    "approval_kind",
    "error_envelope",
    "execute_invocation",
    "mount_tools",
    "tool",
]
