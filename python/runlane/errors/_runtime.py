"""Runs that cannot be moved, or nobody moves."""

from __future__ import annotations

from typing import Protocol

from runlane.errors._base import RunlaneError

__all__ = [
    "ContextOverflowError",
    "RunUnsettledError",
    "RuntimeConflictError",
]


class RunFacts(Protocol):
    """What an error says of a run; `runlane.records.Run` satisfies it."""

    @property
    def id(self) -> str: ...
    @property
    def conversation_id(self) -> str: ...
    @property
    def revision(self) -> int: ...


class RuntimeConflictError(RunlaneError):
    """Somebody else changed the run or conversation first, or it does not exist; nothing was written.

    Attributes:
        operation: What was attempted.
    """

    code = "runtime.conflict"
    retryable: bool | None = False

    def __init__(self, message: str, *, operation: str) -> None:
        super().__init__(f"{operation}: {message}")
        self.operation = operation


class RunUnsettledError(RunlaneError):
    """A run has no executor left here and is not ended: it blocks its conversation until somebody decides.

    Read the run. If its owner is absent or equals `owner_id`, abandon it with its revision, or resume it if it is
    queued; if it has another owner, leave it alone.

    Attributes:
        run: The run as last read; the store may be ahead.
        owner_id: The owner that gave up.
    """

    code = "run.unsettled"

    def __init__(self, *, run: RunFacts, owner_id: str) -> None:
        super().__init__(
            f"run {run.id!r} of conversation {run.conversation_id!r} is not settled at revision {run.revision}; "
            "read it, then recover, resume or abandon it"
        )
        self.run = run
        self.owner_id = owner_id


class ContextOverflowError(RunlaneError):
    """What must be sent does not fit the model's context window."""

    code = "context.overflow"
    retryable: bool | None = False
