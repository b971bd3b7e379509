"""Receipts: the proof that an invocation returned. What failed or was cancelled leaves an event, never a receipt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

from pydantic import Field

from runlane.contracts._record import ModelUsage, Record
from runlane.contracts._scalars import DurationMs, IdField, InvocationStatus, TimestampMs

__all__ = [
    "InvocationMetadata",
    "InvocationResult",
    "ModelCallRecord",
    "ModelResult",
    "ToolCallRecord",
    "ToolResult",
]

T = TypeVar("T")
R = TypeVar("R")

Count: TypeAlias = Annotated[int, Field(ge=0, strict=True)]
Duration: TypeAlias = Annotated[DurationMs, Field(ge=0, strict=True)]
Instant: TypeAlias = Annotated[TimestampMs, Field(strict=True)]


class InvocationMetadata(Record):
    """When an invocation ran, and how it ended.

    Attributes:
        invocation_id: Minted before any I/O; the same in the receipt, the trace, events, journal and error context.
        started_at: Wall clock, Unix milliseconds.
        duration_ms: From monotonic readings, never negative.
    """

    invocation_id: IdField
    span_id: IdField | None = None
    run_id: IdField | None = None
    started_at: Instant
    duration_ms: Duration
    status: InvocationStatus


class ModelCallRecord(InvocationMetadata):
    """The receipt of a model call that returned.

    Attributes:
        stage: What the call was for.
        transport: How output was asked for, such as `core:plain-text`.
        call_number: From 1, within the runner that made it.
        input_chars: Characters of all text sent, functions included.
        output_chars: Characters of all text received.
    """

    status: Literal["succeeded"] = "succeeded"
    stage: IdField
    transport: str
    call_number: Annotated[int, Field(ge=1, strict=True)]
    model_id: str | None = None
    finish_reason: str | None = None
    input_chars: Count
    output_chars: Count
    usage: ModelUsage | None = None


class ToolCallRecord(InvocationMetadata):
    """The receipt of a tool invocation that returned.

    Attributes:
        identity: What makes two calls of this tool "the same".
        call_id: The model's own id of the call, if a model asked for it.
    """

    status: Literal["succeeded"] = "succeeded"
    tool_id: IdField
    identity: str
    call_id: IdField | None = None


@dataclass(frozen=True)
class InvocationResult(Generic[T, R]):
    """What an invocation gave, with its receipt."""

    value: T
    receipt: R


ModelResult: TypeAlias = InvocationResult[T, ModelCallRecord]
ToolResult: TypeAlias = InvocationResult[T, ToolCallRecord]
