"""Tools and their fence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from runlane.errors._base import RunlaneError

__all__ = [
    "ApprovalRejectedError",
    "ToolApprovalError",
    "ToolArgumentsError",
    "ToolDeniedError",
    "ToolError",
    "ToolFenceError",
    "ToolTimeoutError",
    "UnknownToolError",
]


class IssueFacts(Protocol):
    """What an error says of one thing that is wrong with a value; `runlane.contracts.Issue` satisfies it."""

    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def path(self) -> tuple[str | int, ...] | None: ...


class ToolError(RunlaneError):
    """A failure that a tool wants its model to see.

    Code, `retryable`, details and hint reach the model; the message is for people, and nothing else from a handler
    reaches the model either.

    Attributes:
        code: Stable dotted code, chosen by the tool.
        details: JSON object with safe facts, or None.
        hint: What the model could do about it, or None.
    """

    code = "tool.failed"

    def __init__(
        self,
        code: str,
        message: str | None = None,
        *,
        retryable: bool | None = None,
        details: dict[str, object] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message or code)
        self.code = code
        self.retryable = retryable
        self.details = details
        self.hint = hint


class UnknownToolError(ToolError):
    """There is no such tool, or not for this caller: unknown, switched off and invisible look the same.

    Attributes:
        tool_id: The name that was used.
    """

    code = "tool.unknown"

    def __init__(self, *, tool_id: str) -> None:
        hint = "No tool of that name is available. Use one of the tools you were given, or answer without."
        super().__init__("tool.unknown", f"there is no tool {tool_id!r}", retryable=False, hint=hint)
        self.tool_id = tool_id


class ToolArgumentsError(ToolError):
    """The input of a call does not fit the tool's schema; the tool did not run.

    Attributes:
        tool_id: The tool.
        issues: What is wrong with it, at least one.
    """

    code = "tool.arguments_invalid"

    def __init__(self, *, tool_id: str, issues: Sequence[IssueFacts]) -> None:
        found = [{"message": issue.message, **({"path": list(issue.path)} if issue.path else {})} for issue in issues]
        first = issues[0].message if issues else "invalid"
        super().__init__(
            "tool.arguments_invalid",
            f"the input of tool {tool_id!r} is not valid: {first}",
            retryable=False,
            details={"issues": found},
            hint="Call it again with arguments that fit its schema.",
        )
        self.tool_id = tool_id
        self.issues = tuple(issues)


class ToolDeniedError(ToolError):
    """A call was not allowed; the tool did not run.

    Attributes:
        tool_id: The tool.
        reason: Why, in the words of whoever refused, or None. The model is told.
    """

    code = "tool.denied"

    def __init__(self, *, tool_id: str, reason: str | None = None) -> None:
        super().__init__(
            "tool.denied",
            f"tool {tool_id!r} may not be called" + (f": {reason}" if reason else ""),
            retryable=False,
            details={"reason": reason} if reason else None,
            hint="Do not try the same call again.",
        )
        self.tool_id = tool_id
        self.reason = reason


class ToolTimeoutError(ToolError):
    """A tool took longer than its time-out; whether it had an effect is not known.

    Attributes:
        tool_id: The tool.
        timeout: Its limit in seconds.
    """

    code = "tool.timeout"

    def __init__(self, *, tool_id: str, timeout: float) -> None:
        super().__init__(
            "tool.timeout",
            f"tool {tool_id!r} did not return within {timeout:g} s",
            details={"timeout": timeout},
            hint="It may have had its effect all the same.",
        )
        self.tool_id = tool_id
        self.timeout = timeout


class ToolFenceError(RunlaneError):
    """A tool call no longer belongs to this run. It ends the run here and is never shown to a model.

    Attributes:
        code: `stale_run` (another owner, or ended) or `run_interrupted`.
    """

    retryable: bool | None = False

    def __init__(self, code: str, *, run_id: str) -> None:
        super().__init__(f"run {run_id!r}: {code}")
        self.code = code
        self.run_id = run_id


class ToolApprovalError(RunlaneError):
    """An answer to an approval fits no call that waits for one; nothing was run.

    Attributes:
        approval_id: What was answered.
        problem: `unknown` (nobody asked), `answered` (somebody answered before), or `forged` (the request is not the
            one that was signed, or its call is another one now).
    """

    code = "tool.approval"
    retryable: bool | None = False

    def __init__(self, *, approval_id: str, problem: str) -> None:
        super().__init__(f"approval {approval_id!r} is {problem}; answer a request that is still open")
        self.approval_id = approval_id
        self.problem = problem


class ApprovalRejectedError(RunlaneError):
    """Somebody may not answer an approval; the call still waits for one who may.

    Attributes:
        approval_id: What was answered.
        reason: Why the answer was refused, as the application said.
    """

    code = "approval.rejected"
    retryable: bool | None = False

    def __init__(self, *, approval_id: str, reason: str) -> None:
        super().__init__(f"the answer to approval {approval_id!r} was refused: {reason}")
        self.approval_id = approval_id
        self.reason = reason
