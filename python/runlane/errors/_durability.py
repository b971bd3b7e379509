"""Steps, parks and effects that could not be carried out, or whose records cannot be read."""

from __future__ import annotations

from typing import Literal

from runlane.errors._base import AbortedError, RunlaneError
from runlane.errors._formats import FormatError

__all__ = [
    "EffectUnresolvedError",
    "ParkAbortedError",
    "ParkRecordDecodeError",
    "StepAbortedError",
    "StepResultDecodeError",
    "StepResultNotSerializableError",
]


class StepAbortedError(AbortedError):
    """A step or an effect was not begun, because its token had tripped; nothing was recorded.

    Attributes:
        step_name: The step or the effect.
        reason: The token's.
    """

    code = "step.aborted"

    def __init__(self, *, step_name: str, reason: object | None = None) -> None:
        super().__init__(reason=reason)
        self.args = (f"{step_name!r} was not begun: {self.args[0]}",)
        self.step_name = step_name


class ParkAbortedError(AbortedError):
    """A sleep or a wait ended because its token tripped; what is recorded of it stays.

    Attributes:
        park_name: The sleep's name, or the event that was waited for.
        reason: The token's.
    """

    code = "park.aborted"

    def __init__(self, *, park_name: str, reason: object | None = None) -> None:
        super().__init__(reason=reason)
        self.args = (f"{park_name!r} was waited for: {self.args[0]}",)
        self.park_name = park_name


class StepResultNotSerializableError(RunlaneError):
    """A step gave something that is not lossless JSON. Its body ran, and nothing was recorded: it would run again.

    Attributes:
        step_name: The step.
        path: Where in its result, as a JSON pointer.
    """

    code = "step.not_serializable"
    retryable: bool | None = False

    def __init__(self, message: str, *, step_name: str, path: str) -> None:
        super().__init__(f"step {step_name!r} must give lossless JSON: {message}")
        self.step_name = step_name
        self.path = path


class _RecordDecodeError(FormatError):
    """A ledger entry about steps or parks is damaged.

    Attributes:
        conversation_id: Whose ledger.
        seq: The entry.
    """

    def __init__(self, message: str, *, conversation_id: str, seq: int) -> None:
        super().__init__(
            f"conversation {conversation_id!r}, ledger entry {seq}: {message}; nothing of this conversation is carried "
            "out on such evidence, mend the entry first"
        )
        self.conversation_id = conversation_id
        self.seq = seq


class StepResultDecodeError(_RecordDecodeError):
    """A record of a step or an effect cannot be read; it is never taken for leave to run anything.

    Attributes:
        conversation_id: Whose ledger.
        seq: The entry.
    """

    code = "step.decode"


class ParkRecordDecodeError(_RecordDecodeError):
    """A record of a sleep, a wait or a delivery cannot be read; it is never taken for leave to run anything.

    Attributes:
        conversation_id: Whose ledger.
        seq: The entry.
    """

    code = "park.decode"


class EffectUnresolvedError(RunlaneError):
    """Nobody can say yet whether an effect happened. Its intent stands: the next call reconciles, it does not run it.

    Attributes:
        effect_name: The effect.
        problem: `run-failed`, `reconcile-failed`, `reconcile-timeout`, or `proof-rejected` (the proof is no lossless
            JSON, or too large).
    """

    code = "effect.unresolved"

    def __init__(
        self,
        *,
        effect_name: str,
        problem: Literal["run-failed", "reconcile-failed", "reconcile-timeout", "proof-rejected"],
    ) -> None:
        super().__init__(f"effect {effect_name!r}: {problem}; call it again to have it reconciled")
        self.effect_name = effect_name
        self.problem = problem
