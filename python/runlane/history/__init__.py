"""What a model sees of a conversation: projection, token budget, evidence, and what may be compacted.

A `History` holds stored records as bytes and parses each once; the functions do the same for lists of
`runlane.records.Message`. Everything here is synchronous and pure except `resolve_files`, which fetches what users
attached before a projection.
"""

from runlane.history._barrier import BarrierReason, CompactionBarrier, compaction_barrier
from runlane.history._budget import (
    BudgetDecision,
    BudgetOutcome,
    BudgetReason,
    BudgetResult,
    SelectHistoryOptions,
    Selection,
    select_history,
)
from runlane.history._compaction import (
    CompactableHistory,
    CompactableRange,
    SelectCompactableHistoryOptions,
    compaction_turns,
    is_complete_turn,
    select_compactable_history,
)
from runlane.history._files import FileResolver, resolve_files
from runlane.history._handle import History
from runlane.history._policy import (
    BARE_EVIDENCE,
    RUNTIME_EVIDENCE,
    CallEvidence,
    EvidencePolicy,
    ProjectionOptions,
    is_assistant_evidence,
)
from runlane.history._projection import (
    DEFAULT_PROJECTION,
    OpenAIChatBodyWriter,
    ProjectedMessages,
    Projection,
    ProjectionDecision,
    ProjectionReason,
    ProjectionResult,
    ResolvedFiles,
    project_history,
    project_history_detailed,
)
from runlane.history._tokens import (
    BYTE_BOUND,
    ByteBound,
    OpenAITokens,
    TokenCounter,
    count_tool_schemas,
)

__all__ = [
    "BARE_EVIDENCE",
    "BYTE_BOUND",
    "DEFAULT_PROJECTION",
    "RUNTIME_EVIDENCE",
    "BarrierReason",
    "BudgetDecision",
    "BudgetOutcome",
    "BudgetReason",
    "BudgetResult",
    "ByteBound",
    "CallEvidence",
    "CompactableHistory",
    "CompactableRange",
    "CompactionBarrier",
    "EvidencePolicy",
    "FileResolver",
    "History",
    "OpenAIChatBodyWriter",
    "OpenAITokens",
    "ProjectedMessages",
    "Projection",
    "ProjectionDecision",
    "ProjectionOptions",
    "ProjectionReason",
    "ProjectionResult",
    "ResolvedFiles",
    "SelectCompactableHistoryOptions",
    "SelectHistoryOptions",
    "Selection",
    "TokenCounter",
    "compaction_barrier",
    "compaction_turns",
    "count_tool_schemas",
    "is_assistant_evidence",
    "is_complete_turn",
    "project_history",
    "project_history_detailed",
    "resolve_files",
    "select_compactable_history",
    "select_history",
]
