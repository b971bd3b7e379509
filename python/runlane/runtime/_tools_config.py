"""How tools of a runtime behave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from runlane.contracts import require_sync
from runlane.errors import InvalidValueError
from runlane.tools import ApprovalSeal, OnToolFailure

__all__ = ["ToolsConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsConfig:
    """Options of tools in durable runs.

    Attributes:
        approval_key: Signs requests for approval; at least 16 secret bytes, the same in every process that shares the
            store. Without one a request is sealed by a digest, which whoever can write to the store could make too.
        unknown_effect: What becomes of a call whose process died after its handler was entered, if its tool is not
            `idempotent`: nobody knows whether it ran, and it is never run again by itself. `ask` ends the run with a
            request for approval: to run it again, or not. `tell` lets the model know and go on.
        on_error: Told of a failed call and of what was really raised, which neither the model nor the record learns;
            a plain function. What it raises is swallowed.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    approval_key: bytes | None = field(default=None, repr=False)
    unknown_effect: Literal["ask", "tell"] = "ask"
    on_error: OnToolFailure | None = None

    def __post_init__(self) -> None:
        ApprovalSeal(self.approval_key)
        if self.unknown_effect not in ("ask", "tell"):
            raise InvalidValueError(
                f"must be ask or tell, got {self.unknown_effect!r}", argument="tools.unknown_effect"
            )
        if self.on_error is not None:
            require_sync(self.on_error, argument="tools.on_error")

    @property
    def seal(self) -> ApprovalSeal:
        """What signs and recognises requests."""
        return ApprovalSeal(self.approval_key)
