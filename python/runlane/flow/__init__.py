"""A bounded engine and workflow graphs: every round, visit, call and route is counted before it is spent."""

from runlane.contracts import AttemptBudget
from runlane.diagnostics import ExecutionEventDescriptor, ExecutionObserver
from runlane.flow._bindings import AgentModelBinding, AgentModelRuntime, ToolInvoker
from runlane.flow._branch import AgentBranch, AgentCheckpoint, AgentCheckpointRecord
from runlane.flow._cache import (
    MISSING,
    AgentCacheAddress,
    AgentCacheOptions,
    AgentCachePort,
    CacheContext,
    CacheReadOptions,
    EngineCacheOptions,
    NodeAgentCache,
    NodeCache,
)
from runlane.flow._chain_records import (
    WorkflowChain,
    WorkflowChainCoverage,
    WorkflowChainNode,
    WorkflowChainNodeEvent,
    WorkflowChainTransition,
    WorkflowSubflowRecord,
)
from runlane.flow._chains import WorkflowChainRequest, WorkflowChainSource, build_workflow_chain, read_workflow_chain
from runlane.flow._context import (
    CoreStep,
    CoreStepContext,
    StepComplete,
    StepContinue,
    StepOutcome,
    WorkflowContext,
    WorkflowFailure,
    WorkflowModel,
    WorkflowNodeReport,
)
from runlane.flow._definition import (
    AgentWorkflowDefinition,
    ExtraRoutes,
    WorkflowExtension,
    WorkflowNode,
    WorkflowRoute,
    require_workflow_value,
    route,
)
from runlane.flow._drawing import draw_html, draw_mermaid, draw_svg
from runlane.flow._engine import AgentCoreEngine
from runlane.flow._events import LoopEvent, WorkflowEvent
from runlane.flow._graph import WorkflowGraph, WorkflowGraphEdge, WorkflowGraphNode, WorkflowGraphRoute
from runlane.flow._options import (
    UNSET,
    AgentCoreEngineOptions,
    AgentCoreEngineSetup,
    EngineResult,
    RequestRuntime,
)
from runlane.flow._run_state import EngineErrors
from runlane.flow._workflow import AgentWorkflow, define_workflow

__all__ = [
    "MISSING",
    "UNSET",
    "AgentBranch",
    "AgentCacheAddress",
    "AgentCacheOptions",
    "AgentCachePort",
    "AgentCheckpoint",
    "AgentCheckpointRecord",
    "AgentCoreEngine",
    "AgentCoreEngineOptions",
    "AgentCoreEngineSetup",
    "AgentModelBinding",
    "AgentModelRuntime",
    "AgentWorkflow",
    "AgentWorkflowDefinition",
    "AttemptBudget",
    "CacheContext",
    "CacheReadOptions",
    "CoreStep",
    "CoreStepContext",
    "EngineCacheOptions",
    "EngineErrors",
    "EngineResult",
    "ExecutionEventDescriptor",
    "ExecutionObserver",
    "ExtraRoutes",
    "LoopEvent",
    "NodeAgentCache",
    "NodeCache",
    "RequestRuntime",
    "StepComplete",
    "StepContinue",
    "StepOutcome",
    "ToolInvoker",
    "WorkflowChain",
    "WorkflowChainCoverage",
    "WorkflowChainNode",
    "WorkflowChainNodeEvent",
    "WorkflowChainRequest",
    "WorkflowChainSource",
    "WorkflowChainTransition",
    "WorkflowContext",
    "WorkflowEvent",
    "WorkflowExtension",
    "WorkflowFailure",
    "WorkflowGraph",
    "WorkflowGraphEdge",
    "WorkflowGraphNode",
    "WorkflowGraphRoute",
    "WorkflowModel",
    "WorkflowNode",
    "WorkflowNodeReport",
    "WorkflowRoute",
    "WorkflowSubflowRecord",
    "build_workflow_chain",
    "define_workflow",
    "draw_html",
    "draw_mermaid",
    "draw_svg",
    "read_workflow_chain",
    "require_workflow_value",
    "route",
]
