"""How tools of a runtime behave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from runlane.contracts import MaybeAwaitable, require_sync
from runlane.errors import InvalidValueError, UsageError
from runlane.records import ToolApprovalRequestPart, ToolCallPart
from runlane.runtime._config_checks import whole
from runlane.tools import ApprovalSeal, OnToolFailure

__all__ = ["ApprovalAnswer", "AuthorizeAnswer", "ToolsConfig"]

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer(Generic[C]):
    """An answer to a request for approval, before it counts.

    Attributes:
        request: What was asked, as it is on record.
        call: The call it is about.
        approved: The decision.
        reason: Why, for the model.
        context: The application's own value, as given to `respond_to_approval`: who answers, for instance.
    """

    conversation_id: str
    request: ToolApprovalRequestPart
    call: ToolCallPart
    approved: bool
    reason: str | None
    context: C


AuthorizeAnswer: TypeAlias = Callable[[ApprovalAnswer[Any]], MaybeAwaitable[str | None]]
"""Says why somebody may not answer an approval, or None: then the answer counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsConfig:
    """Options of tools in durable runs.

    Attributes:
        approval_key: Signs requests for approval; at least 16 secret bytes, the same in every process that shares the
            store. Without one a request is sealed by a digest, which whoever can write to the store could make too.
        unknown_effect: What becomes of a call whose process died after its handler was entered, if its tool is not
            `idempotent`: nobody knows whether it ran, and it is never run again by itself. `ask` ends the run with a
            request for approval: to run it again, or not. `tell` lets the model know and go on.
        max_output_bytes: How large the JSON of one call's output may be, in canonical form; 1 MiB (as much as a call's
            arguments), None for any size. A larger one is neither kept nor shown: the model is told
            `tool.output_too_large`, the size and the limit, and that the tool has run.
        authorize_answer: Asked before the answer to an open approval counts, whoever submits it; or None. It says why
            the answer is refused: then the submission rejects with `ApprovalRejectedError`, the refusal is on record,
            and the call still waits.
        on_error: Told of a failed call and of what was really raised, which neither the model nor the record learns;
            a plain function. What it raises is swallowed.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    approval_key: bytes | None = field(default=None, repr=False)
    unknown_effect: Literal["ask", "tell"] = "ask"
    max_output_bytes: int | None = 1_048_576
    authorize_answer: AuthorizeAnswer | None = None
    on_error: OnToolFailure | None = None

    def __post_init__(self) -> None:
        ApprovalSeal(self.approval_key)
        if self.unknown_effect not in ("ask", "tell"):
            raise InvalidValueError(
                f"must be ask or tell, got {self.unknown_effect!r}", argument="tools.unknown_effect"
            )
        if self.max_output_bytes is not None:
            whole(self.max_output_bytes, "tools.max_output_bytes")
        if self.authorize_answer is not None and not callable(self.authorize_answer):
            raise UsageError("must be callable or None", argument="tools.authorize_answer")
        if self.on_error is not None:
            require_sync(self.on_error, argument="tools.on_error")

    @property
    def seal(self) -> ApprovalSeal:
        """What signs and recognises requests."""
        return ApprovalSeal(self.approval_key)
