"""What a visit says of its own steps, and what the recorder keeps of it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, get_args

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from runlane.contracts import DurationMs, Id, IdField, Record, TimestampMs

__all__ = [
    "REPORTED_STEP_STATUSES",
    "REPORTED_STEP_STATUS_CATALOG",
    "DebugStepsOutput",
    "RecordedSubStep",
    "ReportedStep",
    "ReportedStepStatus",
    "ScopedSubFlowStepInput",
    "StatusFacts",
    "StoredSubStep",
    "SubFlowStepFix",
    "SubFlowStepInput",
    "SubFlowValue",
    "SubStepProgress",
]

ReportedStepStatus: TypeAlias = Literal["pending", "running", "succeeded", "failed", "skipped", "cancelled"]
"""How a step stands. The words are written here and nowhere else."""

SubFlowValue: TypeAlias = Any
"""Anything JSON-like. Recording never fails because of a value: it is bounded, and what is no JSON is named so."""

_OPEN: Final = frozenset({"pending", "running"})

Duration: TypeAlias = Annotated[DurationMs, Field(ge=0, strict=True)]
Number: TypeAlias = Annotated[int, Field(ge=1, strict=True)]
Instant: TypeAlias = Annotated[TimestampMs, Field(ge=0, strict=True)]


class StatusFacts(Record):
    """What a status means.

    Attributes:
        terminal: Whether nothing follows it.
    """

    terminal: bool


REPORTED_STEP_STATUS_CATALOG: Final[MappingProxyType[ReportedStepStatus, StatusFacts]] = MappingProxyType(
    {status: StatusFacts(terminal=status not in _OPEN) for status in get_args(ReportedStepStatus)}
)
"""Every status, by its word."""

REPORTED_STEP_STATUSES: Final[tuple[ReportedStepStatus, ...]] = tuple(REPORTED_STEP_STATUS_CATALOG)
"""The words, in order."""


class _Step(Record):
    title: str | None = None
    status: ReportedStepStatus | None = None
    kind: str | None = None
    group: str | None = None
    detail: SubFlowValue = None
    duration_ms: Duration | None = None


class ReportedStep(_Step):
    """A step as the code of a node names it; reporting the same id again changes the step.

    Attributes:
        id: The reporter's own name of the step.
        detail: Anything; it is bounded when it is recorded.
        sub_node_id: The part of the node it belongs to.
    """

    id: IdField
    sub_node_id: IdField | None = None


class SubFlowStepInput(_Step):
    """A step to record; the recorder gives it its id."""

    sub_node_id: IdField | None = None


class ScopedSubFlowStepInput(_Step):
    """A step to record for one sub-node, which the recorder knows."""


class SubFlowStepFix(Record):
    """A change of a recorded step: at least one of title, status, detail and duration; nothing else can change."""

    title: str | None = None
    status: ReportedStepStatus | None = None
    detail: SubFlowValue = None
    duration_ms: Duration | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.title is None and self.status is None and self.detail is None and self.duration_ms is None:
            raise PydanticCustomError("fix", "a fix changes the title, the status, the detail or the duration")
        return self


class RecordedSubStep(_Step):
    """One entry of a recorder: a step as written, or what a fix changed of it.

    Attributes:
        entry: `write` or `fix`. A fix has only the fields it changed.
        step_id: Given by the recorder; the same in a step's write and its fixes.
        sequence: From 1, over writes and fixes of one recorder.
        revision: 1 for the write, one more for each fix.
        truncated: Whether the title or the detail was bounded.
        reported_id: The reporter's own name of the step, if it was reported by one.
    """

    entry: Literal["write", "fix"]
    step_id: IdField
    sequence: Number
    revision: Number
    recorded_at: Instant
    truncated: bool
    sub_node_id: IdField | None = None
    reported_id: IdField | None = None

    def stripped(self) -> RecordedSubStep:
        """Return the entry without what its reporter wrote: text, detail, kind and group."""
        return self.model_copy(update=_SAID)


_SAID: Final = dict.fromkeys(("title", "detail", "kind", "group", "reported_id"))


class StoredSubStep(_Step):
    """An entry as it is read back. Older records lack some of what a recorder gives."""

    entry: Literal["write", "fix"] | None = None
    step_id: IdField | None = None
    sequence: Number | None = None
    revision: Number | None = None
    recorded_at: Instant | None = None
    truncated: Annotated[bool, Field(strict=True)] | None = None
    sub_node_id: IdField | None = None
    reported_id: IdField | None = None


class SubStepProgress(Record):
    """Tells somebody at once that an entry was recorded; no text and no detail."""

    step_id: Id
    sequence: int
    entry: Literal["write", "fix"]
    revision: int
    status: ReportedStepStatus | None = None
    sub_node_id: Id | None = None


class DebugStepsOutput(Record):
    """Extra material that a handler contributes; always content."""

    steps: tuple[ReportedStep, ...] = ()
    values: SubFlowValue = None
    note: str | None = None
