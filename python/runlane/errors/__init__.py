"""Every error that runlane raises, in one tree.

Each class carries a stable dotted `code` (what is stored, sent and compared) and `retryable`: True when repeating the
same request later could work, False when it could not, None when nobody knows. Catch by class or compare `code`; the
text of a message is for people and may change.

Facts are keyword-only and kept as attributes. Errors pickle.
"""

from runlane.errors._base import (
    AbortedError,
    BudgetError,
    CommandRefusedError,
    InvalidValueError,
    MissingDependencyError,
    ProjectionRefusedError,
    RunlaneError,
    RuntimeClosedError,
    StreamBusyError,
    UsageError,
)
from runlane.errors._core import (
    CheckFailedError,
    DuplicateRegistrationError,
    EngineBindingError,
    EngineBusyError,
    MissingEntryError,
    OutOfTurnError,
    PolicyRejectedError,
    PreparedCallError,
    RegistrySealedError,
    RunnerBusyError,
    WorkflowContractError,
)
from runlane.errors._formats import (
    CanonicalJsonError,
    FormatError,
    SseEncodingError,
    SseIdleTimeoutError,
    SseLimitError,
)
from runlane.errors._models import (
    MissingCredentialError,
    ModelCallTimeoutError,
    ModelError,
    ModelIdleTimeoutError,
    ModelProtocolError,
    ProviderError,
    ProviderStreamCutError,
    UnknownModelError,
    UnknownTransportError,
)
from runlane.errors._runtime import (
    ContextOverflowError,
    RuntimeConflictError,
    RunUnsettledError,
)
from runlane.errors._store import (
    ConversationPurgedError,
    LeaseLostError,
    RecordCorruptError,
    RecordTooNewError,
    StoreBusyError,
    StoreClosedError,
    StoreCommitUnknownError,
    StoreDamagedError,
    StoreError,
    StoreForeignError,
    StoreFullError,
    StoreTooNewError,
    StoreUnavailableError,
)
from runlane.errors._tools import (
    ToolError,
    ToolFenceError,
    UnknownToolError,
)

__all__ = [
    "AbortedError",
    "BudgetError",
    "CanonicalJsonError",
    "CheckFailedError",
    "CommandRefusedError",
    "ContextOverflowError",
    "ConversationPurgedError",
    "DuplicateRegistrationError",
    "EngineBindingError",
    "EngineBusyError",
    "FormatError",
    "InvalidValueError",
    "LeaseLostError",
    "MissingCredentialError",
    "MissingDependencyError",
    "MissingEntryError",
    "ModelCallTimeoutError",
    "ModelError",
    "ModelIdleTimeoutError",
    "ModelProtocolError",
    "OutOfTurnError",
    "PolicyRejectedError",
    "PreparedCallError",
    "ProjectionRefusedError",
    "ProviderError",
    "ProviderStreamCutError",
    "RecordCorruptError",
    "RecordTooNewError",
    "RegistrySealedError",
    "RunUnsettledError",
    "RunlaneError",
    "RunnerBusyError",
    "RuntimeClosedError",
    "RuntimeConflictError",
    "SseEncodingError",
    "SseIdleTimeoutError",
    "SseLimitError",
    "StoreBusyError",
    "StoreClosedError",
    "StoreCommitUnknownError",
    "StoreDamagedError",
    "StoreError",
    "StoreForeignError",
    "StoreFullError",
    "StoreTooNewError",
    "StoreUnavailableError",
    "StreamBusyError",
    "ToolError",
    "ToolFenceError",
    "UnknownModelError",
    "UnknownToolError",
    "UnknownTransportError",
    "UsageError",
    "WorkflowContractError",
]
