"""What went wrong, as a command tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from runlane.errors import RunlaneError

__all__ = ["Failure"]

# What somebody at a command line can do, where an error, which does not know of one, cannot say it.
_ADVICE: Final[Mapping[str, str]] = {
    "store.damaged": "keep a copy of it and restore a backup, or choose another file with --store",
    "store.foreign": "it was left as it is; choose another file with --store",
    "store.full": "free some space and try again",
    "store.unavailable": "make it accessible, or choose another place with --store",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, as every command tells it.

    Attributes:
        code: Dotted, stable.
        retryable: Whether the same command could succeed later; None if nobody knows.
    """

    code: str
    message: str
    retryable: bool | None = None

    @classmethod
    def of(cls, error: BaseException, /) -> Failure:
        """Describe an error; one that runlane did not raise on purpose is told as the bug it is."""
        if isinstance(error, RunlaneError):
            advice = _ADVICE.get(error.code)
            message = str(error) if advice is None else f"{error}; {advice}"
            return cls(code=error.code, message=message, retryable=error.retryable)
        return cls(
            code="error.unknown",
            message=f"unexpected {type(error).__name__}: {error}; this is a bug, please report it with the traceback "
            "that --verbose shows",
        )
