"""What a command's exit code means, and which error ends with which: the one place that decides it."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from runlane.errors import RunlaneError

__all__ = ["Exit", "exit_for", "telling_error"]


class Exit(IntEnum):
    """Exit codes of every command; they are promised and never change their meaning."""

    DONE = 0
    UNEXPECTED = 1
    """A bug in runlane, and the message asks for a report; or the output could not be written."""
    USAGE = 2
    CHECK_FAILED = 3
    NOT_FOUND = 4
    REFUSED = 5
    """The present state forbids it, or somebody else was first."""
    NOT_ALLOWED = 6
    """Not authenticated, or not allowed."""
    UNREACHABLE = 7
    """The store cannot be reached or written now."""
    TIMED_OUT = 8
    NOT_SUCCESSFUL = 10
    """The run ended, but not in success."""
    DAMAGED = 74
    """The store is corrupt, or is no store of runlane."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    """Whoever read the output went away."""
    TERMINATED = 143


# An error's code, or what it starts with up to a dot; the longest entry that fits decides.
_BY_CODE: Final[dict[str, Exit]] = {
    "usage": Exit.USAGE,
    "stream.busy": Exit.USAGE,
    "engine": Exit.USAGE,
    "registry": Exit.USAGE,
    "value.invalid": Exit.USAGE,
    "dependency.missing": Exit.USAGE,
    "command.refused": Exit.REFUSED,
    "runtime": Exit.REFUSED,
    "run.unsettled": Exit.REFUSED,
    "conversation": Exit.REFUSED,
    "archive": Exit.USAGE,
    "import": Exit.REFUSED,
    "branch": Exit.REFUSED,
    "context.overflow": Exit.REFUSED,
    "history.refused": Exit.REFUSED,
    "budget.exhausted": Exit.REFUSED,
    "timeout": Exit.TIMED_OUT,
    "store": Exit.UNREACHABLE,
    "store.foreign": Exit.DAMAGED,
    "store.damaged": Exit.DAMAGED,
    "store.record_corrupt": Exit.DAMAGED,
    "store.too_new": Exit.REFUSED,
    "store.record_too_new": Exit.REFUSED,
    "store.lease_lost": Exit.REFUSED,
    "model": Exit.NOT_SUCCESSFUL,
    "model.credential_missing": Exit.NOT_ALLOWED,
    "model.unknown": Exit.NOT_FOUND,
    "model.idle_timeout": Exit.TIMED_OUT,
    "provider": Exit.NOT_SUCCESSFUL,
    "aborted": Exit.INTERRUPTED,
}


def exit_for(code: str, /) -> Exit:
    """Return the exit code of a command that an error with this dotted `code` ends.

    Example:
        >>> exit_for("store.busy"), exit_for("store.foreign"), exit_for("tool.failed")
        (<Exit.UNREACHABLE: 7>, <Exit.DAMAGED: 74>, <Exit.UNEXPECTED: 1>)
    """
    words = code.split(".")
    for length in range(len(words), 0, -1):
        found = _BY_CODE.get(".".join(words[:length]))
        if found is not None:
            return found
    return Exit.UNEXPECTED


def telling_error(error: BaseException, /) -> BaseException:
    """Return the error to tell a person about: out of a group, the first of runlane's own, else the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [telling_error(inner) for inner in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, RunlaneError)), leaves[0])
