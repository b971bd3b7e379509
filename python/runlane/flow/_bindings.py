"""What an engine is bound to: a model, or a catalogue of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from runlane.clock import Clock
from runlane.contracts import AsyncSink, ExecutionOptions, ModelResult, Observer, ToolResult
from runlane.errors import EngineBindingError, UsageError, WorkflowContractError
from runlane.flow._definition import WorkflowNode
from runlane.ids import IdSource
from runlane.models import ChatProvider, ModelOptions
from runlane.runner import (
    MODEL_RUNNER_DEFAULTS,
    ModelCallRequest,
    ModelCallTrace,
    ModelOutputEvent,
    ModelPrepareRequest,
    ModelRunner,
    ModelRunnerOptions,
    ModelRunnerPorts,
    ModelRunnerSettings,
    ModelTokenBudget,
    ModelTransportDefinition,
    PreparedModelCall,
)
from runlane.tools import ToolInvocationRequest

__all__ = ["AgentModelBinding", "AgentModelRuntime", "ModelSlot", "ToolInvoker"]


@runtime_checkable
class AgentModelRuntime(Protocol):
    """What an engine drives: `runlane.runner.ModelRunner`, or something that behaves like it."""

    @property
    def call_count(self) -> int:
        """Calls of its own."""
        ...

    @property
    def total_call_count(self) -> int:
        """Its own and those of all its descendants."""
        ...

    async def prepare(
        self,
        request: ModelCallRequest,
        selection: ModelPrepareRequest | None = None,
        /,
        *,
        options: ExecutionOptions | None = None,
    ) -> PreparedModelCall[Any]:
        """Prepare a call; see `ModelRunner.prepare`."""
        ...

    async def call(self, *args: Any, **options: Any) -> ModelResult[Any]:  # noqa: ANN401 - the overloads of the runner
        """Make a call; see `ModelRunner.call`."""
        ...

    def child(self, *args: Any) -> Any:  # noqa: ANN401 - whatever its children are
        """Return a runtime below this one; see `ModelRunner.child`."""
        ...


@runtime_checkable
class ToolInvoker(Protocol):
    """What invokes tools for an engine: `runlane.tools.ToolRegistry`, or something that stands before one."""

    async def invoke(self, request: ToolInvocationRequest, options: ExecutionOptions, /) -> ToolResult[object]:
        """Carry one call out; see `ToolRegistry.invoke`."""
        ...


@dataclass(frozen=True, kw_only=True)
class AgentModelBinding:
    """A model as an engine is bound to it: what a runner is made of, or a ready runtime instead.

    It says nothing of who is told and when a call ends: that is the run's. From a provider each run makes a runner of
    its own, with budgets of its own; a ready runtime is used as it is.

    Attributes:
        provider: Where calls go.
        transports: Beside plain text.
        default_transport: Used by `prepare`.
        options: Of every call, beneath those of the request.
        settings: Limits of calls.
        output: Takes what streams, before it is checked.
        on_trace: Told of every charged call.
        tokens: Counts what is sent, if it shall be counted.
        runtime: A ready runtime; then nothing else may be given.

    Raises:
        UsageError: Both a provider and a runtime were given, or neither.
        EngineBindingError: The runtime has a token or diagnostics of its own.
    """

    provider: ChatProvider | None = None
    transports: Sequence[ModelTransportDefinition[Any]] = ()
    default_transport: str = "core:plain-text"
    options: ModelOptions = field(default_factory=ModelOptions)
    settings: ModelRunnerSettings = MODEL_RUNNER_DEFAULTS
    output: AsyncSink[ModelOutputEvent] | None = None
    on_trace: Observer[ModelCallTrace] | None = None
    tokens: ModelTokenBudget | None = None
    runtime: AgentModelRuntime | None = None

    def __post_init__(self) -> None:
        if (self.provider is None) == (self.runtime is None):
            raise UsageError("takes a provider or a runtime, exactly one", argument="binding")
        if self.runtime is not None:
            for name in ("signal", "diagnostics"):
                if getattr(self.runtime, name, None) is not None:
                    text = f"a bound runtime has no {name} of its own; the engine gives the run's to every call"
                    raise EngineBindingError(text, slot="model")

    def start(self, *, clock: Clock, ids: IdSource) -> AgentModelRuntime:
        """Return the runtime of one run."""
        if self.runtime is not None:
            return self.runtime
        assert self.provider is not None  # noqa: S101 - __post_init__ refuses a binding without either
        ports = ModelRunnerPorts(output=self.output, on_trace=self.on_trace, tokens=self.tokens, clock=clock, ids=ids)
        return ModelRunner(
            ModelRunnerOptions(
                provider=self.provider,
                transports=self.transports,
                default_transport=self.default_transport,
                options=self.options,
                settings=self.settings,
                ports=ports,
            )
        )


class ModelSlot:
    """What fills an engine's model slot: one binding, or a catalogue by name."""

    __slots__ = ("_catalog", "_single")

    def __init__(self, single: AgentModelBinding | None, catalog: Mapping[str, AgentModelBinding] | None) -> None:
        bindings = [single] if catalog is None else [*catalog.values()]
        if not bindings:
            raise UsageError("names no model; give at least one", argument="models")
        for binding in bindings:
            if not isinstance(binding, AgentModelBinding):
                text = f"must be an AgentModelBinding, not {type(binding).__name__}"
                raise UsageError(text, argument="model" if catalog is None else "models")
        self._single = single
        self._catalog = None if catalog is None else MappingProxyType(dict(catalog))

    @property
    def names(self) -> tuple[str | None, ...]:
        """The names there are; None stands for the one model of an engine that has one."""
        return (None,) if self._catalog is None else tuple(self._catalog)

    def binding(self, name: str | None) -> AgentModelBinding:
        """Return the binding of a name.

        Raises:
            WorkflowContractError: There is none of that name, or a name is needed, or none can be given.
        """
        if self._catalog is None:
            if name is not None or self._single is None:
                raise _unknown(f"the engine has one model; {name!r} names none")
            return self._single
        found = None if name is None else self._catalog.get(name)
        if found is None:
            known = ", ".join(map(repr, self._catalog))
            raise _unknown(f"{'no model is named' if name is None else f'{name!r} is no model'}; there are {known}")
        return found

    def check(self, nodes: Sequence[WorkflowNode[Any]], workflow_id: str) -> None:
        """Refuse a workflow whose nodes name models that are not there.

        Raises:
            WorkflowContractError: A node names an unknown model, or a model though the engine has a single one.
        """
        for node in nodes:
            if node.model is not None:
                try:
                    self.binding(node.model)
                except WorkflowContractError as error:
                    text = str(error).removeprefix(f"{error.rule}: ")
                    raise WorkflowContractError(
                        text, rule=error.rule, workflow_id=workflow_id, node_id=node.id
                    ) from None


def _unknown(text: str) -> WorkflowContractError:
    return WorkflowContractError(text, rule="unknown_model")
