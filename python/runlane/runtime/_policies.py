"""What an input does to the run that executes when it comes in.

| policy | executing run | its output | the new input's run |
|---|---|---|---|
| `queue` | finishes | kept | after everything queued before it |
| `inject` | goes on | kept, extended | taken at the next boundary, else as `queue` |
| `interrupt` | stopped | kept, marked as cut off | ordinary place in the queue |
| `interrupt-next` | stopped | kept, marked as cut off | before ordinary runs, after earlier urgent ones |
| `supersede` | stopped | kept in the record, never shown to a model again | ordinary place in the queue |

With nothing executing, `interrupt`, `interrupt-next` and `supersede` only queue. What they stop is stopped after the
new input is durable, and only in this process: another process's run is not touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from runlane.contracts import MaybeAwaitable
from runlane.errors import InvalidValueError
from runlane.records import JsonObject, QueuePriority
from runlane.runtime._coordinator import StopReason
from runlane.runtime._inputs import RuntimeInput

__all__ = [
    "ABORTS",
    "ChoosePolicy",
    "InputPolicy",
    "LaneKey",
    "Preflight",
    "SubmittedInput",
    "check_policy",
    "priority_of",
]

InputPolicy: TypeAlias = Literal["queue", "inject", "interrupt", "interrupt-next", "supersede"]
"""What an input does to the run that executes when it comes in."""

POLICIES: Final[tuple[str, ...]] = get_args(InputPolicy)

ABORTS: Final[dict[InputPolicy, StopReason]] = {
    "interrupt": "user-interrupt",
    "interrupt-next": "user-interrupt",
    "supersede": "supersede",
}
"""Why each policy stops the executing run; the others leave it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedInput:
    """An input as it was submitted, before anything is written.

    Attributes:
        context: The application's own value, exactly as given to `submit`.
        request: What will be stored with the run.
    """

    conversation_id: str
    idempotency_key: str
    input: RuntimeInput
    context: object
    request: JsonObject | None


ChoosePolicy: TypeAlias = Callable[[SubmittedInput], InputPolicy]
"""Chooses the policy of one input. Called by `submit` itself, so it must not wait; what it raises, `submit` raises."""

Preflight: TypeAlias = Callable[[SubmittedInput], MaybeAwaitable[object]]
"""Checks an input before it is written; what it returns does not matter."""

LaneKey: TypeAlias = Callable[[str, Any], str]
"""Names the lane of a conversation, given its id and the context of the run.

The lane is the conversation by default. Several conversations may share one; one conversation must never be split, so
it must get the same name as long as any of its runs waits or executes here."""


def check_policy(value: object, argument: str, /) -> InputPolicy:
    """Return a policy.

    Raises:
        InvalidValueError: It is none.
    """
    if not isinstance(value, str) or value not in POLICIES:
        got = repr(value) if isinstance(value, str) else type(value).__name__
        raise InvalidValueError(f"must be one of {', '.join(POLICIES)}, got {got}", argument=argument)
    return cast("InputPolicy", value)


def priority_of(policy: InputPolicy, /) -> QueuePriority | None:
    """Return the durable mark of a policy's runs."""
    return "interrupt-next" if policy == "interrupt-next" else None
