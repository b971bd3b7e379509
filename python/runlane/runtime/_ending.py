"""Why a run ends: the reason for each failure, decided by type and origin, never by text.

| situation | reason |
|---|---|
| the run's token tripped | `shutdown`, `timeout`, `superseded`, anything else `interrupted` |
| the request does not fit the model's window | `context_overflow` |
| the store refused an owned write | `storage_conflict` |
| it came out of the provider, or what came makes no sense | `provider_failure`; its silence is `timeout` |
| anything else | `runtime_failure` |
| the provider finished for another cause than `stop` | `provider_stop` |
| a stop policy fired | `policy_stop` |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from runlane.contracts import CancelToken
from runlane.errors import ContextOverflowError, ModelIdleTimeoutError, ModelProtocolError, RuntimeConflictError
from runlane.records import ControlPart, TerminalReason
from runlane.runtime._turn import TurnOutcome, TurnStopped

__all__ = ["Ending", "ending_for_error", "ending_for_outcome", "ending_for_signal", "ending_under"]

_BY_SIGNAL: Final[dict[object, TerminalReason]] = {
    "shutdown": "shutdown",
    "timeout": "timeout",
    "supersede": "superseded",
}
_CUT_OFF: Final = ControlPart(reason="run-interrupted")


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
    """Return the ending of a turn whose driver returned."""
    if isinstance(outcome, TurnStopped):
        return Ending(reason="policy_stop", policy_name=outcome.policy)
    return Ending(reason="success" if outcome.reason == "stop" else "provider_stop")


def ending_for_error(error: Exception, provider_error: Exception | None, /) -> Ending:
    """Return the ending of a turn that failed.

    Args:
        error: What the driver or the preparation raised.
        provider_error: What came out of the provider, if something did.
    """
    reason: TerminalReason
    if isinstance(error, ModelIdleTimeoutError) and error is provider_error:
        return Ending(reason="timeout", control=_CUT_OFF, error=error)
    if isinstance(error, ContextOverflowError):
        reason = "context_overflow"
    elif isinstance(error, RuntimeConflictError):
        reason = "storage_conflict"
    elif error is provider_error or isinstance(error, ModelProtocolError):
        # A call without a name is found out when the calls are put together, after the stream has ended well.
        reason = "provider_failure"
    else:
        reason = "runtime_failure"
    return Ending(reason=reason, error=error)
