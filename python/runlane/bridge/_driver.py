"""A workflow that answers durable runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar, cast, get_args

import anyio
from pydantic import JsonValue

from runlane.bridge._nodes import DurableNodes, Streamed
from runlane.bridge._provider import TurnProvider
from runlane.bridge._tools import WAITS_FOR_CONSENT, TurnToolInvoker
from runlane.canonical import canonical_record_json
from runlane.clock import Clock
from runlane.contracts import CancelToken, Id, clock_or_system, ids_or_random, require_sync, sync_result
from runlane.diagnostics import CreateDiagnosticsOptions, create_diagnostics
from runlane.errors import AbortedError, BudgetError, ContextOverflowError, UsageError
from runlane.flow import (
    AgentCoreEngine,
    AgentCoreEngineOptions,
    AgentModelBinding,
    AgentWorkflow,
    RequestRuntime,
)
from runlane.ids import IdSource
from runlane.models import ModelPart, ResolvedModel, TextDelta, repair_text, repair_value
from runlane.records import TextPart, ToolResultPart
from runlane.runner import ModelOutputEvent
from runlane.runtime import Turn, TurnFinished, TurnOutcome, TurnStopped

__all__ = ["WorkflowTurnDriver"]

App = TypeVar("App")

_PARTS: Final = (TextPart, *get_args(ModelPart))
_STOPS: Final = ("rounds", "workflow_calls", "visits:")
_OVERFLOWS: Final = frozenset({"context_chars", "model_input_chars"})


class WorkflowTurnDriver(Generic[App]):
    """Answers each run by one run of a workflow, on an engine of its own.

    The run is admitted, ordered, recorded, recovered and ended as any other: the workflow knows nothing of it. Every
    call of a model is a durable step; tools are the runtime's, under its fence. The workflow's memory is not durable:
    after a crash, and after a call somebody had to consent to, it begins again, and calls of tools that it repeats
    give the results on record. With `durable_nodes` what a visit of a node returned is on record too: after a crash
    finished visits are not made again, and what they returned has to be lossless JSON.

    Inputs that want to join the run wait for its end: a workflow has no boundary to take them at.

    Example:
        ```python
        driver = WorkflowTurnDriver(workflow, app=None)
        async with AgentRuntime(store, model=provider, config=RuntimeConfig(driver=driver)) as runtime:
            ticket = runtime.submit("conversation-1", "Write a poem")
        ```
    """

    def __init__(  # noqa: PLR0913 - what a host may say about its workflow
        self,
        workflow: AgentWorkflow[App],
        /,
        app: App,
        *,
        name: str | None = None,
        input: Callable[[Turn], Mapping[str, object]] | None = None,  # noqa: A002 - what it is
        output: Callable[[object], Sequence[TextPart | ModelPart]] | None = None,
        stream_stages: Sequence[str] = (),
        durable_nodes: bool = False,
        models: Mapping[str, ResolvedModel] | None = None,
        options: AgentCoreEngineOptions | None = None,
        diagnostics: CreateDiagnosticsOptions | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        """Bind a workflow.

        Args:
            workflow: The workflow; one object serves any number of runs at once.
            app: Its dependencies.
            name: For logs and spans; the workflow's id by default.
            input: Makes the state the workflow starts from. By default `messages` (the projected history), `prompt`
                (the text of the run's inputs), `conversation_id`, `run_id`, and `resumed_call` if the run goes on after
                a tool call somebody consented to.
            output: Makes the answer of the value the workflow completed with: texts, and parts as a model would give
                them. By default a text is one text part, other
                JSON one text part that holds it canonically.
            stream_stages: Stages of model calls whose text is the answer as it comes, in the order of the calls; then
                the completion value adds no text of its own.
            durable_nodes: Make each visit of a node a durable step (`Turn.durability`) named `flow:<node>:<visit>`, at
                one commit a visit; the visits of nested workflows are part of it. A visit that raised, or that the
                process died in, is made again. The run that goes on after a consent is another run and has no visits
                on record.
            models: Models by the names nodes use. Without them nodes use the turn's own model.
            options: The engine's options; their token, caches and observers serve every run.
            diagnostics: Where runs are recorded, each under a root scope with its durable run id.
            clock: The system's by default.
            ids: Random ones by default.

        Raises:
            UsageError: An argument of the wrong kind.
        """
        if not isinstance(workflow, AgentWorkflow):
            raise UsageError(f"must be an AgentWorkflow, not {type(workflow).__name__}", argument="workflow")
        for argument, function in (("input", input), ("output", output)):
            if function is not None:
                require_sync(function, argument=argument)
        self._workflow = workflow
        self._app = app
        self._name = name or f"workflow {workflow.id}"
        self._input = input or start_state
        self._output = output or answer_of
        self._stages = frozenset(stream_stages)
        self._durable_nodes = durable_nodes
        self._models = None if models is None else dict(models)
        self._options = options or AgentCoreEngineOptions()
        self._diagnostics = diagnostics
        self._clock = clock_or_system(clock)
        self._ids = ids_or_random(ids)

    @property
    def name(self) -> str:
        """For logs and spans."""
        return self._name

    async def drive(self, turn: Turn, /) -> TurnOutcome:
        """Answer one turn; see `TurnDriver.drive`."""
        if not await turn.resume():
            return TurnFinished("tool-calls")
        waiting = CancelToken()
        streamed = Streamed(turn)
        engine = self._engine(turn, waiting, streamed)
        state = self._state(turn)
        try:
            result = await engine.run(state=state, request=self._request(turn, waiting))
        except BudgetError as error:
            return _stopped_by(error)
        except AbortedError as error:
            if error.reason is not WAITS_FOR_CONSENT:
                raise
            return TurnFinished("tool-calls")
        for part in self._parts(result.value):
            if not isinstance(part, TextPart):
                await turn.emit(part)
            elif not streamed.said:
                await turn.emit(TextDelta(part.text))
        return TurnFinished("stop")

    def _state(self, turn: Turn) -> Mapping[str, object]:
        state: object = sync_result(self._input(turn), argument="input")
        if not isinstance(state, Mapping):
            raise UsageError(f"must make a mapping, not {type(state).__name__}", argument="input")
        return state

    def _parts(self, value: object) -> Sequence[TextPart | ModelPart]:
        parts: object = sync_result(self._output(value), argument="output")
        if not isinstance(parts, Sequence) or not all(isinstance(part, _PARTS) for part in parts):
            raise UsageError("must make a sequence of texts and parts a model gives", argument="output")
        return parts

    def _engine(self, turn: Turn, waiting: CancelToken, streamed: Streamed) -> AgentCoreEngine[App]:
        engine: AgentCoreEngine[App] = AgentCoreEngine(self._options)
        gate = anyio.Lock()

        async def take(event: ModelOutputEvent) -> None:
            if event.stage in self._stages and isinstance(event.part, TextDelta) and event.part.text:
                await streamed.say(event.part.text)

        def binding(model: ResolvedModel | None) -> AgentModelBinding:
            return AgentModelBinding(provider=TurnProvider(turn, model, gate=gate), output=take)

        if self._models is None:
            engine.bind_model(binding(None))
        else:
            engine.bind_models({name: binding(model) for name, model in self._models.items()})
        tools = TurnToolInvoker(turn, waiting, self._clock, self._ids)
        engine.bind_tools(tools)
        workflow = self._workflow
        if self._durable_nodes:
            workflow = DurableNodes(turn, tools, streamed, waiting).bind(workflow)
        engine.bind_workflow(workflow, self._app)
        return engine

    def _request(self, turn: Turn, waiting: CancelToken) -> RequestRuntime:
        scope = None
        if self._diagnostics is not None:
            scope = create_diagnostics(replace(self._diagnostics, run_id=Id(turn.run.id)))
        return RequestRuntime(signal=CancelToken.any(turn.signal, waiting), diagnostics=scope)


def start_state(turn: Turn, /) -> dict[str, object]:
    """Return the state a workflow starts from, unless the host makes its own."""
    state: dict[str, object] = {
        "messages": turn.messages,
        "prompt": _last_text(turn),
        "conversation_id": turn.run.conversation_id,
        "run_id": turn.run.id,
    }
    resumed = [part for part in turn.step_parts() if isinstance(part, ToolResultPart)]
    if resumed:
        last = resumed[-1]
        state["resumed_call"] = {
            "call_id": last.call_id,
            "tool_name": last.tool_name,
            "outcome": last.outcome,
            "output": last.output,
        }
    return state


def answer_of(value: object, /) -> tuple[TextPart, ...]:
    """Return the answer a completion value stands for, unless the host makes its own; lone surrogates become U+FFFD.

    Raises:
        CanonicalJsonError: The value is neither text nor JSON.
    """
    text = (
        repair_text(value)
        if isinstance(value, str)
        else canonical_record_json(repair_value(cast("JsonValue", value))).decode()
    )
    return (TextPart(text=text),) if text else ()


def _last_text(turn: Turn) -> str:
    """Return the text of the run's inputs: of the user messages after the last answer."""
    texts: list[str] = []
    for message in reversed(turn.messages):
        if message.role != "user":
            break
        texts.append(message.text)
    return "\n\n".join(reversed(texts))


def _stopped_by(error: BudgetError) -> TurnOutcome:
    """Return how a turn ends whose workflow ran out of what it may spend.

    Raises:
        ContextOverflowError: What a model would have been told is too long.
        BudgetError: Any other allowance, which is the application's own.
    """
    allowance = error.allowance or ""
    if allowance.startswith(_STOPS):
        return TurnStopped("workflow-budget")
    if allowance in _OVERFLOWS:
        raise ContextOverflowError(str(error)) from error
    raise error
