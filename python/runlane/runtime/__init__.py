"""Lanes, submission, runs, recovery."""

from runlane.runtime._arguments import AbandonInput, CloseOptions, InterruptInput, RecoverOptions
from runlane.runtime._blocking import BlockingRuntime
from runlane.runtime._blocking_events import BlockingSubscription
from runlane.runtime._compaction import StructuredCompaction
from runlane.runtime._compaction_run import compact_in_run, compaction_is_due
from runlane.runtime._compaction_values import (
    Compact,
    CompactionContext,
    CompactionOutcome,
    CompactionProbe,
    CompactionRefusal,
    CompactionResult,
    StructuredCompactionConfig,
    Summarised,
    SummaryDraft,
    SummaryRequest,
)
from runlane.runtime._config import (
    CloseConfig,
    DeliveryConfig,
    LoopConfig,
    RecoveryConfig,
    RunsConfig,
    RuntimeConfig,
)
from runlane.runtime._context_usage import ContextUsage, context_usage
from runlane.runtime._coordinator import CloseResult, CoordinatedRun, LaneCoordinator, StopReason
from runlane.runtime._core import ModelRequest, ModelSource
from runlane.runtime._courier import OnPublishError, Publisher
from runlane.runtime._files import FilesConfig, GeneratedFile, KeepFile
from runlane.runtime._history_config import HistoryConfig, ProjectHistory, PromptConfig
from runlane.runtime._history_seeds import SeedPlacement
from runlane.runtime._inputs import InputLike, RuntimeInput
from runlane.runtime._managed_loop import ManagedLoopDriver
from runlane.runtime._model_choice import ModelChoice
from runlane.runtime._model_selections import LedgerModelSelectionStore
from runlane.runtime._policies import ChoosePolicy, InputPolicy, LaneKey, Preflight, SubmittedInput
from runlane.runtime._promise import Promise
from runlane.runtime._protocol import (
    AgentProtocol,
    ProtocolConfig,
    ProtocolInput,
    TerminalAcceptance,
    TerminalAcceptanceInput,
    define_protocol,
    has_terminal_output,
)
from runlane.runtime._recovery import (
    Abandon,
    Decide,
    RecoveryDecision,
    RecoveryInput,
    RecoveryOutcome,
    Requeue,
    ResolveContext,
)
from runlane.runtime._retry import record_retry_decision
from runlane.runtime._runtime import AgentRuntime
from runlane.runtime._steps import (
    FinishedStep,
    PrepareStep,
    RunContext,
    StepChanges,
    StepPreparation,
    StepPrompt,
    StopPolicy,
)
from runlane.runtime._summaries import summarize_with
from runlane.runtime._tickets import Admission, RecordIds, RunResult, RunTicket
from runlane.runtime._tool_source import ToolSource
from runlane.runtime._tools_config import ApprovalAnswer, AuthorizeAnswer, ToolsConfig
from runlane.runtime._turn import (
    Boundary,
    ChooseDriver,
    Turn,
    TurnDriver,
    TurnFinished,
    TurnOutcome,
    TurnPart,
    TurnStopped,
    TurnTools,
)

__all__ = [
    "Abandon",
    "AbandonInput",
    "Admission",
    "AgentProtocol",
    "AgentRuntime",
    "ApprovalAnswer",
    "AuthorizeAnswer",
    "BlockingRuntime",
    "BlockingSubscription",
    "Boundary",
    "ChooseDriver",
    "ChoosePolicy",
    "CloseConfig",
    "CloseOptions",
    "CloseResult",
    "Compact",
    "CompactionContext",
    "CompactionOutcome",
    "CompactionProbe",
    "CompactionRefusal",
    "CompactionResult",
    "ContextUsage",
    "CoordinatedRun",
    "Decide",
    "DeliveryConfig",
    "FilesConfig",
    "FinishedStep",
    "GeneratedFile",
    "HistoryConfig",
    "InputLike",
    "InputPolicy",
    "InterruptInput",
    "KeepFile",
    "LaneCoordinator",
    "LaneKey",
    "LedgerModelSelectionStore",
    "LoopConfig",
    "ManagedLoopDriver",
    "ModelChoice",
    "ModelRequest",
    "ModelSource",
    "OnPublishError",
    "Preflight",
    "PrepareStep",
    "ProjectHistory",
    "Promise",
    "PromptConfig",
    "ProtocolConfig",
    "ProtocolInput",
    "Publisher",
    "RecordIds",
    "RecoverOptions",
    "RecoveryConfig",
    "RecoveryDecision",
    "RecoveryInput",
    "RecoveryOutcome",
    "Requeue",
    "ResolveContext",
    "RunContext",
    "RunResult",
    "RunTicket",
    "RunsConfig",
    "RuntimeConfig",
    "RuntimeInput",
    "SeedPlacement",
    "StepChanges",
    "StepPreparation",
    "StepPrompt",
    "StopPolicy",
    "StopReason",
    "StructuredCompaction",
    "StructuredCompactionConfig",
    "SubmittedInput",
    "Summarised",
    "SummaryDraft",
    "SummaryRequest",
    "TerminalAcceptance",
    "TerminalAcceptanceInput",
    "ToolSource",
    "ToolsConfig",
    "Turn",
    "TurnDriver",
    "TurnFinished",
    "TurnOutcome",
    "TurnPart",
    "TurnStopped",
    "TurnTools",
    "compact_in_run",
    "compaction_is_due",
    "context_usage",
    "define_protocol",
    "has_terminal_output",
    "record_retry_decision",
    "summarize_with",
]
