"""The engine: runs a workflow or a step, within its bounds."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar

import anyio

from runlane.contracts import CancelToken, ExecutionOptions, Id, RecordingScope
from runlane.diagnostics import CreateDiagnosticsOptions, DiagnosticContext, as_diagnostics, create_diagnostics
from runlane.errors import EngineBindingError, EngineBusyError, EngineTimeoutError, OutOfTurnError, UsageError
from runlane.flow._bindings import AgentModelBinding, ModelSlot, ToolInvoker
from runlane.flow._branch import AgentBranch, AgentCheckpoint
from runlane.flow._cache import EngineMemory
from runlane.flow._context import CoreStep
from runlane.flow._options import (
    UNSET,
    AgentCoreEngineOptions,
    AgentCoreEngineSetup,
    EngineResult,
    RequestRuntime,
)
from runlane.flow._run_state import RunState, made_error, status_of
from runlane.flow._steps import run_steps
from runlane.flow._telling import Telling, tell_end
from runlane.flow._traversal import run_workflow
from runlane.flow._workflow import AgentWorkflow

__all__ = ["AgentCoreEngine"]

App = TypeVar("App")

_NO_REQUEST = RequestRuntime()
_NO_OPTIONS = ExecutionOptions()


class AgentCoreEngine(Generic[App]):
    """Runs one workflow, or one step, again and again if asked; one run at a time.

    Its model, its tools and its workflow are bound once each, before the first run. Its memory and its branch live as
    long as it does; rounds, calls and the budgets of models are new for every run.

    Args:
        setup: What it is bound to, or options alone, which leave every slot open.

    Example:
        >>> async def main() -> object:
        ...     greet = WorkflowNode(
        ...         id="greet", run=lambda context: {"text": f"Hello, {context.app}"}, routes=[route(complete="text")]
        ...     )
        ...     engine = AgentCoreEngine(AgentCoreEngineOptions())
        ...     definition = AgentWorkflowDefinition(id="w", start="greet", nodes=[greet])
        ...     engine.bind_workflow(define_workflow(definition), "you")
        ...     return (await engine.run()).value
        >>> anyio.run(main)
        'Hello, you'
    """

    def __init__(self, setup: AgentCoreEngineSetup[App] | AgentCoreEngineOptions, /) -> None:
        given: object = setup
        if not isinstance(given, AgentCoreEngineOptions):
            names = ", ".join(field.name for field in fields(AgentCoreEngineOptions))
            raise UsageError(f"takes AgentCoreEngineOptions ({names}), not {type(given).__name__}", argument="setup")
        self._options = setup
        self._memory = EngineMemory(setup.caches.volatile, setup.clock)
        self._models: ModelSlot | None = None
        self._tools: ToolInvoker | None = None
        self._workflow: AgentWorkflow[Any] | None = None
        self._app: object = None
        self._started = False
        self._run: RunState | None = None
        self._running = False
        branch = None
        if isinstance(setup, AgentCoreEngineSetup):
            self._bind_setup(setup)
            branch = setup.branch
        self._branch = branch or AgentBranch(
            agent_id=Id(setup.ids.new("agent")),
            thread_id=Id(setup.ids.new("thread")),
            branch_id=Id(setup.ids.new("branch")),
        )

    @property
    def branch(self) -> AgentBranch:
        """The line of work it is on; it never changes."""
        return self._branch

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self._running

    # --- binding -------------------------------------------------------------------------------------------------

    def bind_model(self, binding: AgentModelBinding, /) -> None:
        """Bind the one model.

        Raises:
            EngineBindingError: The model slot is taken, or a run has begun.
        """
        self._require_free("model", self._models)
        self._set_models(ModelSlot(binding, None))

    def bind_models(self, catalog: Mapping[str, AgentModelBinding], /) -> None:
        """Bind a catalogue of models by name.

        Raises:
            EngineBindingError: The model slot is taken, or a run has begun.
            UsageError: The catalogue is empty.
        """
        self._require_free("model", self._models)
        self._set_models(ModelSlot(None, catalog))

    def bind_tools(self, registry: ToolInvoker, /) -> None:
        """Bind the tools: a registry, or whatever invokes tools as one does.

        Raises:
            EngineBindingError: The tools slot is taken, or a run has begun.
        """
        self._require_free("tools", self._tools)
        if not isinstance(registry, ToolInvoker):
            raise UsageError(f"must be a ToolRegistry, not {type(registry).__name__}", argument="tools")
        self._tools = registry

    def bind_workflow(self, workflow: AgentWorkflow[App], app: App, /) -> None:
        """Bind the workflow with its dependencies; say None if it needs none.

        Raises:
            EngineBindingError: The workflow slot is taken, or a run has begun.
            WorkflowContractError: A node names a model that is not there (`unknown_model`).
        """
        self._require_free("workflow", self._workflow)
        if not isinstance(workflow, AgentWorkflow):
            raise UsageError(f"must be an AgentWorkflow, not {type(workflow).__name__}", argument="workflow")
        if self._models is not None:
            self._models.check(workflow.list(), workflow.id)
        self._workflow, self._app = workflow, app

    def _bind_setup(self, setup: AgentCoreEngineSetup[App]) -> None:
        self._models = ModelSlot(setup.model, setup.models)
        if setup.tools is not None:
            self.bind_tools(setup.tools)
        app: Any = setup.app
        if setup.workflow is not None:
            self.bind_workflow(setup.workflow, app)
        elif app is not UNSET:
            self._app = app

    def _set_models(self, slot: ModelSlot) -> None:
        if self._workflow is not None:
            slot.check(self._workflow.list(), self._workflow.id)
        self._models = slot

    def _require_free(self, slot: str, held: object) -> None:
        if self._started:
            raise EngineBindingError("cannot be bound after a run has begun", slot=slot)
        if held is not None:
            raise EngineBindingError("is bound already", slot=slot)

    # --- running -------------------------------------------------------------------------------------------------

    async def run(
        self,
        step: CoreStep | None = None,
        /,
        *,
        state: Mapping[str, object] | None = None,
        request: RequestRuntime | None = None,
        options: ExecutionOptions | None = None,
    ) -> EngineResult:
        """Run the bound workflow, or a step.

        Args:
            step: Called every round, if no workflow is bound.
            state: What the workflow's state starts from; copied.
            request: What the host knows about the present request.
            options: A token, a scope and a time limit for this run.

        Returns:
            The value it completed with.

        Raises:
            UsageError: A step beside a bound workflow, or neither.
            EngineBusyError: A run is under way; it is unharmed.
            BudgetError: The rounds, or the visits of a node, are used up.
            EngineTimeoutError: The time limit of the options passed.
            Exception: Whatever a node or a step failed with and was not recovered, the same object; the reason of a
                token that tripped.
        """
        if (step is None) == (self._workflow is None):
            text = "a workflow is bound; it runs without a step" if step else "bind a workflow, or give a step"
            raise UsageError(text, argument="step")
        if self._running:
            raise EngineBusyError
        run = self._new_run(request or _NO_REQUEST, options or _NO_OPTIONS)
        self._started = self._running = True
        self._run = run
        make_aborted = self._options.errors.aborted
        try:
            return await self._bounded(run, step, {} if state is None else state, options or _NO_OPTIONS)
        except Exception as error:
            if make_aborted is None or not run.token.cancelled or error is not run.token.error():
                raise
        finally:
            self._running = False
        raise made_error(make_aborted(run.token.reason), "errors.aborted")

    async def _bounded(
        self, run: RunState, step: CoreStep | None, state: Mapping[str, object], options: ExecutionOptions
    ) -> EngineResult:
        """Carry a run out under its token and its time limit, and tell of both ends."""
        started = run.clock.monotonic()
        told = run.telling.enabled
        leaving: BaseException | None = None
        value: object = None
        if told:
            rest = run.telling.run_started(is_workflow=step is None, max_rounds=run.max_rounds)
            if rest is not None:
                await rest
        try:
            value = await self._cancellable(run, step, state, options.timeout)
        except BaseException as error:
            leaving = error
            raise
        finally:
            if told:
                await _tell_finished(run, started, leaving)
        return EngineResult(run_id=run.run_id, value=value, rounds=run.rounds)

    async def _cancellable(
        self, run: RunState, step: CoreStep | None, state: Mapping[str, object], limit: float | None
    ) -> object:
        deadline = anyio.move_on_after(limit)
        value: object = None
        with deadline, anyio.CancelScope() as scope, run.token.bind(scope):
            if not run.token.cancelled:
                value = await (self._walk(run, state) if step is None else run_steps(run, step))
        run.raise_if_cancelled()
        if limit is not None and deadline.cancelled_caught:
            raise EngineTimeoutError(timeout=limit)
        return value

    async def _walk(self, run: RunState, state: Mapping[str, object]) -> object:
        workflow = self._workflow
        if workflow is None:
            raise UsageError("bind a workflow, or give a step", argument="step")
        return await run_workflow(run, workflow, state, run.scope)

    def _new_run(self, request: RequestRuntime, options: ExecutionOptions) -> RunState:
        setup = self._options
        scope = self._scope(options.diagnostics or request.diagnostics or setup.diagnostics)
        workflow = self._workflow
        return RunState(
            scope=scope,
            token=CancelToken.any(setup.signal, request.signal, options.signal),
            branch=self._branch,
            max_rounds=setup.max_rounds,
            max_calls=0 if workflow is None else workflow.definition.max_calls,
            errors=setup.errors,
            telling=Telling(scope, setup.clock, on_loop=setup.on_loop, on_workflow=setup.on_workflow),
            app=self._app if request.app is UNSET else request.app,
            models=self._models,
            tools=self._tools,
            memory=self._memory,
            persistent=setup.caches.persistent,
            clock=setup.clock,
            ids=setup.ids,
        )

    def _scope(self, given: RecordingScope | None) -> DiagnosticContext:
        """Return the scope of a new run; one that served a run before opens another root."""
        if given is None:
            return create_diagnostics(CreateDiagnosticsOptions(clock=self._options.clock, ids=self._options.ids))
        return as_diagnostics(given).for_run()

    # --- branches ------------------------------------------------------------------------------------------------

    def checkpoint(self, data: object, /) -> AgentCheckpoint:
        """Remember lossless JSON at the present round of the run under way, or of the last one.

        Raises:
            OutOfTurnError: Nothing has run yet.
            CanonicalJsonError: The data is not lossless JSON.
        """
        if self._run is None:
            raise OutOfTurnError("belongs to a run, and none has begun", argument="checkpoint")
        return self._run.checkpoint(data, self._run.rounds)

    def fork(self, checkpoint: AgentCheckpoint, /) -> AgentBranch:
        """Return a branch that starts at a checkpoint; the engine stays on its own."""
        origin = checkpoint.branch
        return AgentBranch(
            agent_id=origin.agent_id,
            thread_id=origin.thread_id,
            branch_id=Id(self._options.ids.new("branch")),
            parent_branch_id=origin.branch_id,
            origin_run_id=checkpoint.run_id,
            origin_checkpoint_id=checkpoint.checkpoint_id,
        )


async def _tell_finished(run: RunState, started: float, leaving: BaseException | None) -> None:
    tell = functools.partial(run.telling.run_finished, status_of(leaving, run.token), run.rounds, started, leaving)
    if leaving is not None:
        await tell_end(tell)
        return
    rest = tell()
    if rest is not None:
        await rest
