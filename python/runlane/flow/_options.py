"""How an engine is set up, what the host knows of a request, and what a run gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from typing_extensions import override

from runlane.clock import Clock, SystemClock
from runlane.contracts import CancelToken, Id, Observer, require_limit
from runlane.diagnostics import DiagnosticContext
from runlane.errors import UsageError
from runlane.flow._bindings import AgentModelBinding, ToolInvoker
from runlane.flow._branch import AgentBranch
from runlane.flow._cache import AgentCacheOptions
from runlane.flow._events import LoopEvent, WorkflowEvent
from runlane.flow._run_state import EngineErrors
from runlane.flow._workflow import AgentWorkflow
from runlane.ids import IdSource, RandomIds

__all__ = [
    "UNSET",
    "AgentCoreEngineOptions",
    "AgentCoreEngineSetup",
    "EngineResult",
    "RequestRuntime",
    "Unset",
]

App = TypeVar("App")


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET
"""Says that something was not given, where None is a value."""

_MaybeUnset: TypeAlias = Literal[Unset.UNSET]


@dataclass(frozen=True, kw_only=True)
class AgentCoreEngineOptions:
    """What every engine has.

    Attributes:
        max_rounds: Rounds of one run, at least 1; a visit of a node is a round.
        errors: The host's own errors for two ends.
        signal: Ends every run of the engine when it trips.
        caches: The engine's memory, and the host's cache.
        diagnostics: The root scope of its runs; nothing is recorded by default.
        on_loop: Told of every round.
        on_workflow: Told of every step of a workflow, metadata only.

    Raises:
        InvalidValueError: `max_rounds` is no integer of at least 1.
    """

    max_rounds: int = 16
    errors: EngineErrors = field(default_factory=EngineErrors)
    signal: CancelToken | None = None
    caches: AgentCacheOptions = field(default_factory=AgentCacheOptions)
    diagnostics: DiagnosticContext | None = None
    on_loop: Observer[LoopEvent] | None = None
    on_workflow: Observer[WorkflowEvent] | None = None
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=RandomIds)

    def __post_init__(self) -> None:
        require_limit(self.max_rounds, argument="max_rounds", minimum=1)


@dataclass(frozen=True, kw_only=True)
class AgentCoreEngineSetup(AgentCoreEngineOptions, Generic[App]):
    """An engine with what it is bound to from the start.

    Attributes:
        model: Its one model; or `models`.
        models: Its models by name; exactly one of the two is given.
        tools: What nodes invoke.
        branch: Where it goes on, instead of on a branch of its own.
        workflow: What it runs; then `app` must be said, None included.
        app: The workflow's dependencies.

    Raises:
        UsageError: Both or neither of `model` and `models`, or a workflow without `app`.
    """

    model: AgentModelBinding | None = None
    models: Mapping[str, AgentModelBinding] | None = None
    tools: ToolInvoker | None = None
    branch: AgentBranch | None = None
    workflow: AgentWorkflow[App] | None = None
    app: App | _MaybeUnset = field(default=UNSET, repr=False, compare=False)

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.model is None) == (self.models is None):
            text = "give model or models, exactly one; AgentCoreEngineOptions leaves the model open"
            raise UsageError(text, argument="model")
        if self.workflow is not None and self.app is UNSET:
            raise UsageError("a workflow comes with its app; say app=None if it needs none", argument="app")


@dataclass(frozen=True, kw_only=True)
class RequestRuntime:
    """What the host knows about the present request.

    Attributes:
        signal: Ends the run when it trips.
        diagnostics: Where the run records, unless the options of the call say otherwise.
        app: Replaces the bound app for this run.
    """

    signal: CancelToken | None = None
    diagnostics: DiagnosticContext | None = None
    app: object = field(default=UNSET, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineResult:
    """How a run ended that reached its end.

    Attributes:
        value: What the workflow completed with, or the step.
        rounds: How many it took.
    """

    run_id: Id
    value: object
    rounds: int
