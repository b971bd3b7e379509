"""Tools and their fence."""

from __future__ import annotations

from runlane.errors._base import RunlaneError

__all__ = [
    "ToolError",
    "ToolFenceError",
    "UnknownToolError",
]


class ToolError(RunlaneError):
    """A failure that a tool wants its model to see.

    Everything given here reaches the model; nothing else from a handler does.

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
    """The model called a tool that is not mounted.

    Attributes:
        tool_name: The name it used.
    """

    def __init__(self, *, tool_name: str) -> None:
        super().__init__("tool.unknown", f"there is no tool named {tool_name!r}", retryable=False)
        self.tool_name = tool_name


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
