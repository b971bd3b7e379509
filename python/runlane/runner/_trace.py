"""What is told of a call while it runs, and once it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from runlane.contracts import DurationMs, ErrorInfo, Id, InvocationStatus, ModelUsage, TimestampMs
from runlane.models import FunctionCallDelta, ReasoningDelta, TextDelta
from runlane.runner._measurement import ModelInputMeasurement

__all__ = ["ModelCallTrace", "ModelOutputEvent", "OutputPart"]

OutputPart: TypeAlias = TextDelta | ReasoningDelta | FunctionCallDelta


@dataclass(frozen=True, slots=True)
class ModelOutputEvent:
    """A piece of what a model says, as it comes. It is not validated: it may belong to a call that is then refused.

    Attributes:
        sequence: From 1 within the call.
    """

    invocation_id: Id
    stage: Id
    transport: str
    sequence: int
    part: OutputPart


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallTrace:
    """How one charged call went; made exactly once, whatever its end.

    Attributes:
        started_at: Wall clock, Unix milliseconds.
        duration_ms: From the charge to the end.
        first_output_ms: From the charge to the first word, thought or call; None if there was none.
        measurement: The input.
        parts: How many parts came, of any kind.
        output_chars: Characters received.
        usage: What the provider reported last, or None.
        error: What ended it, with an empty message.
    """

    invocation_id: Id
    stage: Id
    transport: str
    call_number: int
    started_at: TimestampMs
    duration_ms: DurationMs
    first_output_ms: DurationMs | None = None
    status: InvocationStatus
    measurement: ModelInputMeasurement
    parts: int
    output_chars: int
    usage: ModelUsage | None = None
    finish_reason: str | None = None
    error: ErrorInfo | None = None
