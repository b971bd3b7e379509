"""Why a run ends: the reason for each failure, decided by type and origin, never by text.

| situation | reason |
|---|---|
| the run's token tripped | `shutdown`, `timeout`, `superseded`, anything else `interrupted` |
| a durable interrupt of a run that is still held | `interrupted` |
| the tool fence found the run stale, or asked to stop | `interrupted` |
| the request does not fit the model's window (a `ContextOverflowError`, from whomever) | `context_overflow` |
| the store refused an owned write | `storage_conflict` |
| the provider was silent for too long | `timeout` |
| it came out of the provider, or what came makes no sense | `provider_failure` |
| `prepare_step`, or the record of a request, raised something that is no error of runlane | `provider_failure` |
| a request that the provider's own port refuses before it is sent | `runtime_failure` |
| anything else: preparation, the first draft, a callback, the store | `runtime_failure` |
| the provider finished for another cause than `stop` | `provider_stop` |
| a stop policy fired | `policy_stop` |
| the finished answer was not accepted | `output_rejected` |

A provider that says itself that a request is too long is a provider that failed: only who measures before asking knows
that nothing was spent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, get_args

from runlane.contracts import CancelToken
from runlane.errors import (
    ContextOverflowError,
    ModelIdleTimeoutError,
    ModelProtocolError,
    RunlaneError,
    RuntimeConflictError,
    ToolFenceError,
    UsageError,
)
from runlane.models import FinishReason
from runlane.records import ControlPart, TerminalReason
from runlane.runtime._inputs import read_text
from runlane.runtime._live_step import FailureOrigin
from runlane.runtime._turn import TurnFinished, TurnOutcome, TurnStopped

__all__ = ["Ending", "ending_for_error", "ending_for_outcome", "ending_for_signal", "ending_under"]

_BY_SIGNAL: Final[dict[object, TerminalReason]] = {
    "shutdown": "shutdown",
    "timeout": "timeout",
    "supersede": "superseded",
}
_FINISHES: Final[tuple[str, ...]] = get_args(FinishReason)
_CUT_OFF: Final = ControlPart(reason="run-interrupted")
_STALE: Final = ControlPart(reason="stale-run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What the end of a run will say.

    Attributes:
        control: The mark left on an answer that was cut off.
        error: What failed; for the caller's result only, never stored.
    """

    reason: TerminalReason
    policy_name: str | None = None
    control: ControlPart | None = None
    error: Exception | None = None

    def interrupted(self) -> Ending:
        """Return the ending once a durable interrupt won: interrupted, unless the run was superseded anyway."""
        if self.reason == "superseded":
            return self
        return replace(self, reason="interrupted", policy_name=None, control=_CUT_OFF)


def ending_for_signal(signal: CancelToken, /) -> Ending:
    """Return the ending of a run whose token tripped."""
    reason = signal.reason if isinstance(signal.reason, str) else None
    return Ending(reason=_BY_SIGNAL.get(reason, "interrupted"), control=_CUT_OFF)


def ending_under(signal: CancelToken, ending: Ending | None, /) -> Ending:
    """Return what the end really is: an abort in force wins over whatever the turn came to."""
    return ending_for_signal(signal) if ending is None or signal.cancelled else ending


def ending_for_outcome(outcome: TurnOutcome, /) -> Ending:
    """Return the ending of a turn whose driver returned.

    Raises:
        UsageError: It returned something else than an outcome.
    """
    given: object = outcome
    if isinstance(given, TurnStopped):
        return Ending(reason="policy_stop", policy_name=read_text(given.policy, "driver.policy"))
    if not isinstance(given, TurnFinished):
        raise UsageError(f"must return TurnFinished or TurnStopped, not {type(given).__name__}", argument="driver")
    if given.reason not in _FINISHES:
        words = ", ".join(_FINISHES)
        raise UsageError(f"must finish with one of {words}, not {str(given.reason)[:40]!r}", argument="driver")
    return Ending(reason="success" if given.reason == "stop" else "provider_stop")


def ending_for_error(error: Exception, origin: FailureOrigin = "run", /) -> Ending:
    """Return the ending of a turn that failed.

    Args:
        error: What the driver or the preparation raised.
        origin: Where it came from.
    """
    if isinstance(error, ToolFenceError):
        return Ending(reason="interrupted", control=_STALE if error.code == "stale_run" else _CUT_OFF, error=error)
    if isinstance(error, ModelIdleTimeoutError) and origin == "provider":
        return Ending(reason="timeout", control=_CUT_OFF, error=error)
    return Ending(reason=_reason(error, origin), error=error)


def _reason(error: Exception, origin: FailureOrigin) -> TerminalReason:
    if isinstance(error, ContextOverflowError):
        return "context_overflow"
    if isinstance(error, RuntimeConflictError):
        return "storage_conflict"
    if origin == "provider":
        return "provider_failure"
    if origin == "request":
        return "runtime_failure"
    if origin in ("prepare-step", "admission") and not isinstance(error, RunlaneError):
        return "provider_failure"
    # A call without a name is found out when the calls are put together, after the stream has ended well.
    return "provider_failure" if isinstance(error, ModelProtocolError) else "runtime_failure"
