"""How an answer ended, in words and as an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from runlane.cli._exits import Exit, exit_for
from runlane.cli._failure import Failure
from runlane.cli._terminal import Json
from runlane.errors import RunlaneError, RuntimeClosedError
from runlane.records import Message, Run, TerminalReason
from runlane.runtime import RunResult, RunTicket

__all__ = ["Answer", "answered", "failure_of", "rejected"]

_SUCCESS: Final = frozenset[TerminalReason]({"success", "policy_stop"})

_WORDS: Final[Mapping[TerminalReason, str]] = {
    "provider_stop": "the model stopped before it was done (its length limit, or a content filter)",
    "interrupted": "interrupted; what came of the answer is kept",
    "superseded": "superseded by a newer input",
    "cancelled": "cancelled before the model was asked; the input is kept",
    "shutdown": "stopped because the program ended; what came of the answer is kept",
    "timeout": "the model was silent for too long; what came of the answer is kept",
    "abandoned": "given up: it was taken over too often",
    "provider_failure": "the provider failed",
    "context_overflow": "the conversation does not fit the model's context window; begin a new one",
    "storage_conflict": "another process took the run over; it is answered there",
    "runtime_failure": "runlane could not put the request together",
    "output_rejected": "the answer was refused",
}

# What somebody at a terminal can do about it, where the error itself does not say.
_ADVICE: Final[Mapping[str, str]] = {
    "provider.stream_cut": "what came is kept; send the message again",
    "model.protocol": "what came is kept; check that --base-url names a chat completions endpoint",
    "model.idle_timeout": "what came is kept; send the message again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one input.

    Attributes:
        run: The run that answers it; None if it was never accepted.
        failure: Why it did not succeed, or None if it did.
    """

    code: Exit
    run: Run | None = None
    message: Message | None = None
    failure: Failure | None = None

    def as_json(self) -> Json:
        """Return it as a machine reads it."""
        return {
            "run": None if self.run is None else self.run.id,
            "state": None if self.run is None else self.run.state,
            "reason": None if self.run is None else self.run.terminal_reason,
            "text": None if self.message is None else self.message.text,
        }


def failure_of(reason: TerminalReason, cause: Exception | None, /) -> Failure | None:
    """Describe how a run ended, or return None if it succeeded.

    Args:
        reason: What is recorded.
        cause: What failed, if it is known here.
    """
    if reason in _SUCCESS:
        return None
    if cause is not None:
        told = Failure.of(cause)
        advice = _ADVICE.get(told.code) or ("the message is kept; send it again later" if told.retryable else None)
        return told if advice is None else replace(told, message=f"{told.message}; {advice}")
    return Failure(code=f"run.{reason}", message=_WORDS.get(reason, reason))


def answered(result: RunResult, /) -> Answer:
    """Describe an input whose run has ended."""
    failure = failure_of(result.reason, result.error)
    code = Exit.DONE if failure is None else Exit.NOT_SUCCESSFUL
    return Answer(code=code, run=result.run, message=result.message, failure=failure)


def rejected(error: RunlaneError, ticket: RunTicket, /) -> Answer:
    """Describe an input that was not accepted, or whose end is not known here."""
    if ticket.admission.done and ticket.admission.error is None and isinstance(error, RuntimeClosedError):
        words = "it was not answered before you left; it is kept, and answered when the conversation is opened again"
        failure = Failure(code="run.queued", message=words)
        return Answer(code=Exit.NOT_SUCCESSFUL, failure=failure)
    failure = Failure.of(error)
    return Answer(code=exit_for(failure.code), failure=failure)
