"""What operators are told: when runs start, what each call of a model spent, how runs end.

Delivery tells a conversation's listeners what is true of it, and only the execution that ended a run says that it
ended. Operators are told of *every* execution, so that what a losing or failing one spent is not lost.

| event | when | id |
|---|---|---|
| `run-started` | an execution holds the run | run, fencing token |
| `step-finished` | a call of a model ended, in whichever way | run, fencing token, attempt, step |
| `run-terminal` | the execution is over: it ended the run | run, version |
| | it found the run ended, or could not end it | the same with the executor's epoch |

Nothing here holds what people, models or tools said. `internal_cause` may quote an error's message and is left out
unless a sink asks for it.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from runlane.errors import InvalidValueError
from runlane.records import (
    CostValue,
    JsonObject,
    ProviderResponse,
    Record,
    RecordId,
    RecordVersion,
    RunState,
    TerminalReason,
    Timestamp,
    Usage,
    UsageValue,
)

__all__ = [
    "RunEvent",
    "RunStartedEvent",
    "RunTerminalEvent",
    "StepFinishedEvent",
    "StepOutcome",
    "read_run_event",
    "span_id_of",
    "stated_usage",
    "trace_id_of",
]

StepOutcome: TypeAlias = Literal["completed", "failed", "cancelled"]

_Code: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
_Milliseconds: TypeAlias = Annotated[int, Field(ge=0, strict=True)]
_NO_TOKENS: Final = UsageValue(provenance="unavailable")
_NO_COST: Final = CostValue(provenance="unavailable")


def stated_usage(usage: Usage | None, /) -> Usage:
    """Return usage with all six figures; what nobody reported is `unavailable`, never 0.

    Example:
        >>> stated_usage(None).cost.value is None
        True
    """
    if usage is None:
        return Usage.unknown()
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens or _NO_TOKENS,
        cache_read_tokens=usage.cache_read_tokens or _NO_TOKENS,
        cache_write_tokens=usage.cache_write_tokens or _NO_TOKENS,
        cost=usage.cost or _NO_COST,
    )


def trace_id_of(run_id: str, /) -> str:
    """Return the trace a run belongs to, 32 hexadecimal digits: the same for every execution of it, anywhere."""
    return hashlib.sha256(f"trace:{run_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def span_id_of(run_id: str, *parts: object) -> str:
    """Return the span of a part of a run, 16 hexadecimal digits: the same wherever it is worked out."""
    text = ":".join(("span", run_id, *(str(part) for part in parts)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class _RunFact(Record):
    """What every operator event says.

    Attributes:
        event_id: Unique; an event that is told twice has the same one.
        trace_id: Of the run.
        span_id: Of the execution, or of the step.
        parent_span_id: Of the execution, on a step.
        state: Of the run, as this execution knows it.
        model_id: The model that answers, if one was chosen.
        duration_ms: Of the execution, or of the step.
        emitted_at: Wall time.
    """

    schema_version: Literal[1] = 1
    event_id: Annotated[str, Field(min_length=1)]
    conversation_id: RecordId
    run_id: RecordId
    trace_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    span_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    parent_span_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    state: RunState
    model_id: str | None = None
    duration_ms: _Milliseconds | None = None
    emitted_at: Timestamp


class RunStartedEvent(_RunFact):
    """An execution holds a run.

    Attributes:
        queue_wait_ms: From its admission until now, by wall clocks that may be of two machines.
    """

    type: Literal["run-started"] = "run-started"
    queue_wait_ms: _Milliseconds | None = None


class StepFinishedEvent(_RunFact):
    """A call of a model ended.

    Attributes:
        step: From 0 within an attempt.
        attempt: 1, or more once a failed attempt was tried again.
        outcome: How it ended. Not only a completed call may have been billed.
        provider_id: The wire protocol that was spoken.
        usage: Of this call alone, as the provider reported it.
        response: How the provider identified it.
        ttft_ms: From the start of the call to its first output.
        error_code: Of what made it fail.
    """

    type: Literal["step-finished"] = "step-finished"
    step: RecordVersion
    attempt: Annotated[int, Field(ge=1, strict=True)] = 1
    outcome: StepOutcome = "completed"
    provider_id: str | None = None
    usage: Usage
    response: ProviderResponse
    ttft_ms: _Milliseconds | None = None
    error_code: _Code | None = None

    _stated = field_validator("usage")(stated_usage)


class RunTerminalEvent(_RunFact):
    """An execution of a run is over.

    Attributes:
        terminal_reason: Why the run ended; of an execution that could not end it, why it would have.
        policy_name: Of the stop policy, with `policy_stop`.
        usage: What this execution knows of the run's spend.
        ttft_ms: From its start to the first output of a model.
        is_winner: Whether this execution ended the run. If not, another one did, or nobody knows yet.
        error_code: Of what made the run fail.
        internal_cause: That error in full; None unless a sink asked for it.
    """

    type: Literal["run-terminal"] = "run-terminal"
    terminal_reason: TerminalReason
    policy_name: str | None = None
    usage: Usage
    ttft_ms: _Milliseconds | None = None
    is_winner: bool = True
    error_code: _Code | None = None
    internal_cause: JsonObject | None = None

    _stated = field_validator("usage")(stated_usage)


RunEvent: TypeAlias = RunStartedEvent | StepFinishedEvent | RunTerminalEvent
"""What operators are told; tell them apart by `type`."""

_ADAPTER: Final[TypeAdapter[RunEvent]] = TypeAdapter(Annotated[RunEvent, Field(discriminator="type")])


def read_run_event(value: dict[str, Any] | bytes | str, /) -> RunEvent:
    """Read an operator event that was written as JSON.

    Raises:
        InvalidValueError: It is none; names the field.
    """
    try:
        if isinstance(value, bytes | str):
            return _ADAPTER.validate_json(value)
        return _ADAPTER.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidValueError(first["msg"], argument=f"event.{place}" if place else "event") from None
