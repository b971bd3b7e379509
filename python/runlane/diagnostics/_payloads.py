"""What each event says beyond its envelope. Who it is about stands in the envelope's identity, never here again.

Payloads are plain frozen dataclasses; those of every visit are tuples with names, which are made several times faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict, get_args

from runlane.contracts import DurationMs, Id, InvocationStatus, JsonObject, ModelUsage, get_error_info
from runlane.diagnostics._catalog import CORE_EVENT_CATALOG, CoreEventName
from runlane.diagnostics._steps import DebugStepsOutput, ReportedStep, SubFlowValue

__all__ = [
    "ORDINARY",
    "PAYLOADS",
    "BudgetRefused",
    "CacheRead",
    "CacheWritten",
    "CoreEventPayload",
    "CoreEventPayloads",
    "ErrorFacts",
    "JournalFailed",
    "ModelFinished",
    "ModelInput",
    "ModelOutput",
    "ModelPrepared",
    "ModelStarted",
    "NodeEntered",
    "NodeFinished",
    "NodeReported",
    "RecoveryTaken",
    "RoundFinished",
    "RoundStarted",
    "RouteTaken",
    "RunFinished",
    "RunStarted",
    "ToolFinished",
    "ToolInput",
    "ToolOutput",
    "ToolStarted",
    "WorkflowFinished",
    "WorkflowStarted",
]


Decision: TypeAlias = Literal["continue", "complete", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFacts:
    """An error without its message, which could hold what somebody said."""

    code: str
    name: str
    retryable: bool | None = None

    @classmethod
    def of(cls, error: object, /) -> ErrorFacts:
        """Return the facts of an error; never raises."""
        info = get_error_info(error)
        return cls(code=info.code, name=info.name, retryable=info.retryable)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """An engine began a run."""

    kind: Literal["workflow", "step"]
    max_rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """A run ended, in whichever way."""

    status: InvocationStatus
    rounds: int
    duration_ms: DurationMs
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """A round began; its number is in the identity."""


class RoundFinished(NamedTuple):
    """A round ended, and what it decided."""

    decision: Decision
    duration_ms: DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStarted:
    """A workflow began, with so many nodes, at this one."""

    nodes: int
    start: Id


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFinished:
    """A workflow ended. The counts tell a reader whether it holds every visit and every transition."""

    status: InvocationStatus
    visits: int
    transitions: int
    duration_ms: DurationMs
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True)
class NodeEntered:
    """A visit began; node and visit number are in the identity."""


class NodeFinished(NamedTuple):
    """A visit ended. The event may carry the steps it reported."""

    status: InvocationStatus
    duration_ms: DurationMs
    error: ErrorFacts | None = None


class RouteTaken(NamedTuple):
    """A route led on, or completed the workflow.

    Attributes:
        target_span_id: The span the next visit will have; no proof that it was entered.
    """

    route_index: int
    completes: bool
    target_node_id: Id | None = None
    target_span_id: Id | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTaken:
    """A recovery route led from a failure into a failure phase, or completed the workflow."""

    route_index: int
    completes: bool
    target_node_id: Id | None = None
    target_span_id: Id | None = None
    phase: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrepared:
    """A model call was prepared: how large it is, not what it says."""

    transport: str
    measurement: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStarted:
    """A model call was charged and is being sent.

    Attributes:
        provider_id: The wire protocol that is spoken.
        model_id: The model that is asked, as its provider calls it.
    """

    transport: str
    call_number: int
    provider_id: str | None = None
    model_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFinished:
    """A model call ended."""

    status: InvocationStatus
    duration_ms: DurationMs
    usage: ModelUsage | None = None
    finish_reason: str | None = None
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool's handler is about to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool invocation settled. The event may carry the steps it reported."""

    status: InvocationStatus
    duration_ms: DurationMs
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFailed:
    """A tool's journal could not be written; the result of the tool stands."""

    error: ErrorFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRead:
    """A cache was asked."""

    tier: Literal["memory", "persistent"]
    partition: str
    hit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheWritten:
    """A cache entry was set."""

    tier: Literal["memory", "persistent"]
    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRefused:
    """An allowance was spent."""

    allowance: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput:
    """What a model was told (content)."""

    messages: tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutput:
    """What a model said (content)."""

    parts: tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInput:
    """What a tool was given (content)."""

    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """What a tool gave (content)."""

    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReported:
    """What a node reported of its visit (content)."""

    title: str | None = None
    summary: str | None = None
    values: SubFlowValue = None
    steps: tuple[ReportedStep, ...] = ()


CoreEventPayload: TypeAlias = (
    RunStarted
    | RunFinished
    | RoundStarted
    | RoundFinished
    | WorkflowStarted
    | WorkflowFinished
    | NodeEntered
    | NodeFinished
    | RouteTaken
    | RecoveryTaken
    | ModelPrepared
    | ModelStarted
    | ModelFinished
    | ToolStarted
    | ToolFinished
    | JournalFailed
    | CacheRead
    | CacheWritten
    | BudgetRefused
    | ModelInput
    | ModelOutput
    | ToolInput
    | ToolOutput
    | NodeReported
    | DebugStepsOutput
)

CoreEventPayloads = TypedDict(
    "CoreEventPayloads",
    {
        "run.started": RunStarted,
        "run.finished": RunFinished,
        "round.started": RoundStarted,
        "round.finished": RoundFinished,
        "workflow.started": WorkflowStarted,
        "workflow.finished": WorkflowFinished,
        "node.entered": NodeEntered,
        "node.finished": NodeFinished,
        "route.taken": RouteTaken,
        "recovery.taken": RecoveryTaken,
        "model.prepared": ModelPrepared,
        "model.started": ModelStarted,
        "model.finished": ModelFinished,
        "tool.started": ToolStarted,
        "tool.finished": ToolFinished,
        "journal.failed": JournalFailed,
        "cache.read": CacheRead,
        "cache.written": CacheWritten,
        "budget.refused": BudgetRefused,
        "model.input": ModelInput,
        "model.output": ModelOutput,
        "tool.input": ToolInput,
        "tool.output": ToolOutput,
        "node.report": NodeReported,
        "debug.steps": DebugStepsOutput,
    },
)
"""The type of each event's payload, by the name of the event."""

PAYLOADS: Final[Mapping[CoreEventName, type[Any]]] = MappingProxyType(
    {name: CoreEventPayloads.__annotations__[name] for name in get_args(CoreEventName)}
)
"""The same, to check by."""

ORDINARY: Final = {name: kind for name, kind in PAYLOADS.items() if not CORE_EVENT_CATALOG[name].content}
"""Those of the events that hold no content."""
