"""What handlers, steps and predicates are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, overload

from runlane.clock import Clock
from runlane.contracts import CancelToken, ErrorInfo, Id, ModelResult, ToolResult
from runlane.diagnostics import DiagnosticContext, NodeReportingContext, ReportedStep, SubFlowValue
from runlane.flow._branch import AgentBranch, AgentCheckpoint
from runlane.flow._cache import CacheContext
from runlane.ids import IdSource
from runlane.runner import ModelCallRequest, ModelPrepareRequest, PreparedModelCall, TransportKey

if TYPE_CHECKING:
    from runlane.flow._workflow import AgentWorkflow

__all__ = [
    "CoreStep",
    "CoreStepContext",
    "StepComplete",
    "StepContinue",
    "StepOutcome",
    "WorkflowContext",
    "WorkflowFailure",
    "WorkflowModel",
    "WorkflowNodeReport",
]

App_co = TypeVar("App_co", covariant=True)
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFailure:
    """Why a node was entered to recover.

    Attributes:
        phase: The failure phase entered; None while recovery routes are being chosen.
        node_id: The node that failed.
        visit: Which visit of it.
        error: The live exception, as raised.
        info: The same as data.
    """

    phase: str | None
    node_id: str
    visit: int
    error: Exception
    info: ErrorInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowNodeReport:
    """What a node says of its work, for people; recorded only where content is accepted."""

    title: str | None = None
    summary: str | None = None
    values: SubFlowValue = None
    steps: tuple[ReportedStep, ...] = ()


class WorkflowModel(Protocol):
    """The model and the tools, as a node reaches them.

    Every call takes one from the run's allowance (`max_calls`) before anything else happens; preparing takes none.
    """

    async def prepare(
        self, request: ModelCallRequest, selection: ModelPrepareRequest | None = None, /
    ) -> PreparedModelCall[Any]:
        """Prepare a call: checked, resolved, measurable, and not made."""
        ...

    @overload
    async def call(self, call: PreparedModelCall[Out], /) -> ModelResult[Out]: ...
    @overload
    async def call(self, request: ModelCallRequest, /) -> ModelResult[str]: ...
    @overload
    async def call(self, request: ModelCallRequest, /, *, transport: TransportKey[Out]) -> ModelResult[Out]: ...
    @overload
    async def call(
        self, request: ModelCallRequest, /, *, transport: Literal["core:plain-text"]
    ) -> ModelResult[str]: ...
    @overload
    async def call(self, request: ModelCallRequest, /, *, transport: str) -> ModelResult[object]: ...
    async def call(self, *args: Any, **options: Any) -> ModelResult[Any]:
        """Call the model once.

        Raises:
            BudgetError: The run's calls are spent (`workflow_calls`); the provider was not called.
            WorkflowContractError: There is no model (`no_model`), or none of the node's name (`unknown_model`).
        """
        ...

    async def invoke_tool(
        self, tool_id: str, tool_input: object, /, *, call_id: str | None = None
    ) -> ToolResult[object]:
        """Invoke a tool of the engine's registry.

        Raises:
            BudgetError: The run's calls are spent (`workflow_calls`); the tool was not entered.
            WorkflowContractError: The engine has no tools (`no_tools`).
        """
        ...


class WorkflowContext(Protocol[App_co]):
    """What a handler is given for one visit. It may not be used afterwards."""

    @property
    def workflow_id(self) -> str:
        """The workflow."""
        ...

    @property
    def run_id(self) -> Id:
        """The run of the engine."""
        ...

    @property
    def branch(self) -> AgentBranch:
        """The engine's branch."""
        ...

    @property
    def node_id(self) -> str:
        """The node."""
        ...

    @property
    def visit(self) -> int:
        """Which entry of the node this is, from 1."""
        ...

    @property
    def round(self) -> int:
        """The engine's round, from 1."""
        ...

    @property
    def state(self) -> Mapping[str, object]:
        """The state, read-only; return the fields to change."""
        ...

    @property
    def failure(self) -> WorkflowFailure | None:
        """Why the node was entered, if it recovers."""
        ...

    @property
    def app(self) -> App_co:
        """The host's dependencies."""
        ...

    @property
    def signal(self) -> CancelToken:
        """Ends the run when it trips."""
        ...

    @property
    def diagnostics(self) -> DiagnosticContext:
        """Where the visit records."""
        ...

    @property
    def invocation_id(self) -> Id:
        """The visit's own id."""
        ...

    @property
    def clock(self) -> Clock:
        """The engine's clock."""
        ...

    @property
    def ids(self) -> IdSource:
        """The engine's source of ids."""
        ...

    @property
    def model(self) -> WorkflowModel:
        """The node's model, and the tools."""
        ...

    @property
    def cache(self) -> CacheContext:
        """The node's caches."""
        ...

    @property
    def reporting(self) -> NodeReportingContext:
        """Sub-steps of the visit."""
        ...

    def report(self, report: WorkflowNodeReport, /) -> None:
        """Say something of the visit's work, any number of times.

        Raises:
            OutOfTurnError: The visit is over.
        """
        ...

    async def run_workflow(self, workflow: AgentWorkflow[Any], state: Mapping[str, object], /) -> object:
        """Run another workflow inside this visit and return its value.

        It has a state of its own and shares the rounds, the calls, the token and the branch. What it fails with fails
        this handler.
        """
        ...


@dataclass(frozen=True, slots=True)
class StepContinue:
    """The step wants another round."""

    note: str | None = None


@dataclass(frozen=True, slots=True)
class StepComplete:
    """The step is done; `value` is the run's."""

    value: object


StepOutcome: TypeAlias = StepContinue | StepComplete


class CoreStepContext(Protocol):
    """What a step is given for one round."""

    @property
    def run_id(self) -> Id:
        """The run of the engine."""
        ...

    @property
    def round(self) -> int:
        """The round, from 1."""
        ...

    @property
    def max_rounds(self) -> int:
        """The last round there can be."""
        ...

    @property
    def branch(self) -> AgentBranch:
        """The engine's branch."""
        ...

    @property
    def app(self) -> object:
        """The host's object of the present request, or None."""
        ...

    @property
    def signal(self) -> CancelToken:
        """Ends the run when it trips."""
        ...

    @property
    def diagnostics(self) -> DiagnosticContext:
        """Where the round records."""
        ...

    @property
    def invocation_id(self) -> Id:
        """The round's own id."""
        ...

    @property
    def clock(self) -> Clock:
        """The engine's clock."""
        ...

    @property
    def ids(self) -> IdSource:
        """The engine's source of ids."""
        ...

    @property
    def cache(self) -> CacheContext:
        """Caches of the step; its node id is `$step`."""
        ...

    def checkpoint(self, data: object, /) -> AgentCheckpoint:
        """Remember lossless JSON under this round."""
        ...


class CoreStep(Protocol):
    """One round of work, called again and again: the same object each time, so what it keeps on itself lives on."""

    async def __call__(self, context: CoreStepContext, /) -> StepOutcome:
        """Do a round."""
        ...
