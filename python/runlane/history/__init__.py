"""What a model sees of a conversation: projection, token budget, evidence, and what may be compacted."""

from runlane.history._handle import (
    DEFAULT_PROJECTION,
    History,
    Projection,
    Selection,
    project_history,
    project_history_detailed,
)
from runlane.history._policy import (
    BARE_EVIDENCE,
    RUNTIME_EVIDENCE,
    CallEvidence,
    EvidencePolicy,
    ProjectionOptions,
    is_assistant_evidence,
)
from runlane.history._results import (
    BudgetDecision,
    BudgetOutcome,
    BudgetReason,
    ProjectionDecision,
    ProjectionReason,
)

__all__ = [
    "BARE_EVIDENCE",
    "DEFAULT_PROJECTION",
    "RUNTIME_EVIDENCE",
    "BudgetDecision",
    "BudgetOutcome",
    "BudgetReason",
    "CallEvidence",
    "EvidencePolicy",
    "History",
    "Projection",
    "ProjectionDecision",
    "ProjectionOptions",
    "ProjectionReason",
    "Selection",
    "is_assistant_evidence",
    "project_history",
    "project_history_detailed",
]
