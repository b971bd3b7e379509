"""The engine: rules F1 to F22, C1, C3, C4."""

# ruff: noqa: ANN401, ARG001, ARG002 - handlers and routes take a context of any app, also where they ignore it

from __future__ import annotations

import pickle
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from runlane.contracts import CancelToken, ExecutionOptions, Id, error_contexts
from runlane.diagnostics import CreateDiagnosticsOptions, create_diagnostics
from runlane.errors import (
    AbortedError,
    BudgetError,
    CanonicalJsonError,
    EngineBindingError,
    EngineBusyError,
    EngineTimeoutError,
    InvalidValueError,
    OutOfTurnError,
    UsageError,
    WorkflowContractError,
)
from runlane.flow import (
    AgentBranch,
    AgentCheckpoint,
    AgentCheckpointRecord,
    AgentCoreEngine,
    AgentCoreEngineOptions,
    AgentCoreEngineSetup,
    AgentModelBinding,
    AgentWorkflow,
    AttemptBudget,
    EngineErrors,
    RequestRuntime,
    StepComplete,
    StepContinue,
    define_workflow,
)
from runlane.ids import SequenceIds
from runlane.testing import ScriptedModel
from runlane.tools import ToolRegistry
from tests.flow.engines import Listener, Told, engine_of
from tests.flow.workflows import definition, node, passive, way

pytestmark = pytest.mark.anyio


class Steps:
    """A step that goes on for some rounds and keeps what it was given."""

    def __init__(self, rounds: int = 1, value: object = "done") -> None:
        self.rounds = rounds
        self.value = value
        self.contexts: list[Any] = []

    async def __call__(self, context: Any) -> StepContinue | StepComplete:
        """Do a round."""
        self.contexts.append(context)
        return StepComplete(self.value) if len(self.contexts) % self.rounds == 0 else StepContinue()


BINDING = AgentModelBinding(provider=ScriptedModel("x"))


def bare(**options: Any) -> AgentCoreEngine[Any]:
    """Return an engine that nothing is bound to."""
    return AgentCoreEngine(AgentCoreEngineOptions(ids=SequenceIds(), **options))


def simple() -> AgentWorkflow[Any]:
    """A workflow of one node."""
    return define_workflow(definition(node("a", way(complete=lambda context: context.app))))


# --- binding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_f1_a_slot_is_bound_once() -> None:
    """A second bind is refused and changes nothing."""
    engine = bare()
    engine.bind_workflow(simple(), "first")
    engine.bind_tools(ToolRegistry())
    with pytest.raises(EngineBindingError) as caught:
        engine.bind_workflow(simple(), "second")
    assert caught.value.slot == "workflow"
    with pytest.raises(EngineBindingError) as caught:
        engine.bind_tools(ToolRegistry())
    assert caught.value.slot == "tools"
    assert (await engine.run()).value == "first"


async def test_f1_nothing_is_bound_after_a_run_began() -> None:
    """Not even an open slot."""
    engine = engine_of(definition(node("a")))
    await engine.run()
    with pytest.raises(EngineBindingError) as caught:
        engine.bind_tools(ToolRegistry())
    assert caught.value.slot == "tools"


@pytest.mark.parametrize("shapes", [{}, {"models": {}}, {"model": BINDING, "models": {"a": BINDING}}, {"models": None}])
def test_f2_a_setup_has_exactly_one_shape_of_models(shapes: dict[str, Any]) -> None:
    """Both shapes, neither, or an empty catalogue are misuse; plain options leave the slot open for one bind."""
    with pytest.raises(UsageError):
        AgentCoreEngine(AgentCoreEngineSetup(**shapes))
    engine: AgentCoreEngine[object] = AgentCoreEngine(AgentCoreEngineOptions())
    engine.bind_models({"a": BINDING})
    with pytest.raises(EngineBindingError):
        engine.bind_model(BINDING)


async def test_f4_a_workflow_without_an_app_is_refused() -> None:
    """`app=None` must be said."""

    class Runtime:
        call_count = total_call_count = 0

        async def prepare(self, *args: Any, **options: Any) -> Any:
            raise AssertionError

        async def call(self, *args: Any, **options: Any) -> Any:
            raise AssertionError

        def child(self, *args: Any) -> Any:
            raise AssertionError

    binding = AgentModelBinding(runtime=Runtime())
    with pytest.raises(UsageError, match="app"):
        AgentCoreEngineSetup(model=binding, workflow=simple())
    engine: AgentCoreEngine[Any] = AgentCoreEngine(AgentCoreEngineSetup(model=binding, workflow=simple(), app=None))
    assert (await engine.run()).value is None
    for models in ({}, {"model": binding, "models": {"m": binding}}):
        with pytest.raises(UsageError, match="model"):
            AgentCoreEngineSetup(**models)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="models"):
        AgentCoreEngine(AgentCoreEngineSetup(models={}))


async def test_f5_a_run_has_a_workflow_or_a_step() -> None:
    """Both and neither are refused; the engine stays usable."""
    engine = engine_of(definition(node("a")))
    with pytest.raises(UsageError, match="step"):
        await engine.run(Steps())
    with pytest.raises(UsageError, match="step"):
        await bare().run()
    assert (await engine.run()).rounds == 1


async def test_f5_without_a_model_its_use_is_refused() -> None:
    """A run without a model is legal; using one ends it."""

    async def handler(context: Any) -> None:
        await context.model.call(object())

    with pytest.raises(WorkflowContractError) as caught:
        await engine_of(definition(node("a", run=handler))).run()
    assert caught.value.rule == "no_model"

    async def tools(context: Any) -> None:
        await context.model.invoke_tool("t", {})

    with pytest.raises(WorkflowContractError) as caught:
        await engine_of(definition(node("a", run=tools))).run()
    assert caught.value.rule == "no_tools"


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["engine", "request", "options"])
async def test_f6_each_of_three_tokens_ends_the_run(which: str) -> None:
    """With that very reason, while a step waits."""
    tokens = {name: CancelToken() for name in ("engine", "request", "options")}
    reason = ValueError("mine")

    async def step(context: Any) -> StepComplete:
        tokens[which].cancel(reason)
        await anyio.sleep_forever()
        raise AssertionError

    engine = bare(signal=tokens["engine"])
    with pytest.raises(ValueError, match="mine") as caught:
        await engine.run(
            step,
            request=RequestRuntime(signal=tokens["request"]),
            options=ExecutionOptions(signal=tokens["options"]),
        )
    assert caught.value is reason
    assert not engine.running


async def test_f6_of_two_tripped_tokens_the_engines_wins() -> None:
    """Its reason is the run's."""
    engine_token, request_token = CancelToken(), CancelToken()
    request_token.cancel("request")
    engine_token.cancel("engine")
    with pytest.raises(AbortedError) as caught:
        await bare(signal=engine_token).run(Steps(), request=RequestRuntime(signal=request_token))
    assert caught.value.reason == "engine"


async def test_f7_a_token_that_tripped_before_ends_the_run_before_anything() -> None:
    """No step is called and no round is spent; the end is told all the same."""
    token, step, listener = CancelToken(), Steps(), Listener()
    token.cancel("early")
    with pytest.raises(AbortedError):
        await bare(signal=token, diagnostics=listener.scope()).run(step)
    assert step.contexts == []
    assert [(e.name, getattr(e.payload, "status", None)) for e in listener.events] == [
        ("run.started", None),
        ("run.finished", "cancelled"),
    ]


async def test_f8_the_host_may_word_the_end_by_its_token() -> None:
    """`errors.aborted` gets the reason, and what it returns leaves; the run still counts as cancelled."""
    token, listener = CancelToken(), Listener()
    token.cancel("why")

    class HostError(Exception):
        """The host's own."""

    engine = bare(signal=token, errors=EngineErrors(aborted=HostError), diagnostics=listener.scope())
    with pytest.raises(HostError, match="why"):
        await engine.run(Steps())
    assert listener.events[-1].payload.status == "cancelled"  # type: ignore[union-attr]


async def test_f9_rounds_are_bounded() -> None:
    """`max_rounds` of 3 makes exactly 3 calls, numbered from 1; then the host's error, or a budget error, leaves."""
    step = Steps(rounds=9)
    with pytest.raises(BudgetError) as caught:
        await bare(max_rounds=3).run(step)
    assert (caught.value.allowance, caught.value.limit) == ("rounds", 3)
    assert [(context.round, context.max_rounds) for context in step.contexts] == [(1, 3), (2, 3), (3, 3)]
    errors = EngineErrors(rounds_exhausted=lambda rounds: TimeoutError(f"{rounds}!"))
    with pytest.raises(TimeoutError, match="3!"):
        await bare(max_rounds=3, errors=errors).run(Steps(rounds=9))


@pytest.mark.parametrize("rounds", [0, -1, True, 1.5])
async def test_f9_max_rounds_is_at_least_one(rounds: Any) -> None:
    """Anything else is refused when the engine is set up."""
    with pytest.raises(InvalidValueError, match="max_rounds"):
        AgentCoreEngineOptions(max_rounds=rounds)


async def test_f10_one_run_at_a_time() -> None:
    """A second run, also from within a step, is refused, and the first is unharmed; afterwards a new one may start."""
    engine = bare()

    async def step(context: Any) -> StepComplete:
        assert engine.running
        with pytest.raises(EngineBusyError):
            await engine.run(Steps())
        return StepComplete("unharmed")

    first = await engine.run(step)
    assert first.value == "unharmed"
    second = await engine.run(Steps(rounds=2))
    assert (second.rounds, second.run_id == first.run_id) == (2, False)


async def test_f10_after_a_failure_the_engine_may_run_again() -> None:
    """State and rounds are new, the branch stays."""

    def handler(context: Any) -> dict[str, object]:
        if context.state.get("fail"):
            raise ValueError("no")
        return {"value": sorted(context.state)}

    engine = engine_of(definition(node("a", run=handler)))
    branch = engine.branch
    with pytest.raises(ValueError, match="no"):
        await engine.run(state={"fail": True})
    result = await engine.run(state={"x": 1})
    assert (result.value, result.rounds, engine.branch) == (["x"], 1, branch)


async def test_f11_a_value_is_dropped_if_the_token_tripped_meanwhile() -> None:
    """Work that finished is not reported as done once the token tripped."""
    token = CancelToken()

    async def step(context: Any) -> StepComplete:
        token.cancel("late")
        return StepComplete("value")

    with pytest.raises(AbortedError):
        await bare(signal=token).run(step)


async def test_f12_a_steps_error_leaves_as_it_is() -> None:
    """The same object, with a note of where it passed."""
    wrong = KeyError("x")

    async def step(context: Any) -> StepComplete:
        raise wrong

    with pytest.raises(KeyError) as caught:
        await bare().run(step)
    assert caught.value is wrong
    assert [context.operation for context in error_contexts(wrong)] == ["round"]


async def test_f13_the_end_is_told_also_when_the_caller_is_cancelled() -> None:
    """An enclosing scope that is cancelled still leaves `run.finished` and every visit's end behind."""
    listener = Listener()

    async def handler(context: Any) -> None:
        scope.cancel()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        await engine_of(definition(node("a", run=handler)), diagnostics=listener.scope()).run()
    assert scope.cancelled_caught
    ends = [
        (event.name, getattr(event.payload, "status", None))
        for event in listener.named("node.finished", "workflow.finished", "run.finished")
    ]
    assert ends == [("node.finished", "cancelled"), ("workflow.finished", "cancelled"), ("run.finished", "cancelled")]


async def test_f14_the_same_step_is_called_every_round() -> None:
    """What it keeps on itself lives on; anything but an outcome ends the run."""
    step = Steps(rounds=3)
    assert (await bare().run(step)).rounds == 3
    for wrong in (None, True, "done"):

        async def forgetful(context: Any, wrong: Any = wrong) -> Any:
            return wrong

        with pytest.raises(WorkflowContractError) as caught:
            await bare().run(forgetful)
        assert caught.value.rule == "step_outcome"


async def test_f15_a_step_gets_what_a_round_needs() -> None:
    """The run, the branch, the host's object of the request, caches, and checkpoints of its round."""
    step = Steps()
    engine = bare()
    result = await engine.run(step, request=RequestRuntime(app="app"))
    context = step.contexts[0]
    assert (context.run_id, context.branch, context.app) == (result.run_id, engine.branch, "app")
    assert context.checkpoint({"x": 1}).round == 1
    assert context.tools is None
    assert dict(context.models) == {}


async def test_f16_a_round_is_told_twice() -> None:
    """Start and end, in order, with what was decided; an observer that fails ends the run with its error."""
    told = Told()
    await bare(on_loop=told.on_loop).run(Steps(rounds=2))
    assert [(event.round, event.phase, event.decision) for event in told.loop] == [
        (1, "started", None),
        (1, "finished", "continue"),
        (2, "started", None),
        (2, "finished", "complete"),
    ]
    assert len({event.span_id for event in told.loop}) == 2
    wrong = ValueError("observer")

    def failing(event: Any) -> None:
        raise wrong

    step = Steps()
    with pytest.raises(ValueError, match="observer") as caught:
        await bare(on_loop=failing).run(step)
    assert caught.value is wrong
    assert step.contexts == []


async def test_c4_an_earlier_failure_leaves_before_an_observers() -> None:
    """An observer that fails while an error is on its way changes nothing."""
    first = KeyError("first")

    def when_finished(event: Any) -> None:
        if event.phase == "finished":
            raise ValueError("observer")

    async def step(context: Any) -> StepComplete:
        raise first

    with pytest.raises(KeyError) as caught:
        await bare(on_loop=when_finished).run(step)
    assert caught.value is first


async def test_a_run_may_have_a_time_limit() -> None:
    """A limit in the options ends the run with a typed error."""

    async def step(context: Any) -> StepComplete:
        await anyio.sleep_forever()
        raise AssertionError

    with pytest.raises(EngineTimeoutError) as caught:
        await bare().run(step, options=ExecutionOptions(timeout=0.01))
    assert caught.value.timeout == 0.01


# --- scopes ----------------------------------------------------------------------------------------------------------


async def test_c1_a_run_takes_its_id_from_the_first_scope_given() -> None:
    """Options win over the request, the request over the engine; a scope that served a run opens a new root."""
    scopes = {name: Listener().scope(run_id=name) for name in ("engine", "request", "options")}
    engine = bare(diagnostics=scopes["engine"])
    request = RequestRuntime(diagnostics=scopes["request"])
    options = ExecutionOptions(diagnostics=scopes["options"])
    assert (await engine.run(Steps(), request=request, options=options)).run_id == "options"
    assert (await engine.run(Steps(), request=request)).run_id == "request"
    assert (await engine.run(Steps())).run_id == "engine"
    assert (await engine.run(Steps())).run_id not in {"engine", "request", "options"}


async def test_c1_the_requests_app_replaces_the_bound_one() -> None:
    """For that run only; None is an app like any other."""
    engine = engine_of(definition(node("a", way(complete=lambda context: context.app))), app="bound")
    assert (await engine.run(request=RequestRuntime(app="request"))).value == "request"
    assert (await engine.run(request=RequestRuntime(app=None))).value is None
    assert (await engine.run()).value == "bound"


async def test_d12_the_app_is_only_handed_through() -> None:
    """An object on which everything raises works as an app."""

    class Hostile:
        """Raises at every touch."""

        def _refuse(self, *args: object) -> Any:
            raise AssertionError

        __eq__ = __repr__ = __deepcopy__ = __bool__ = __getattr__ = _refuse
        __hash__ = None  # type: ignore[assignment]

    app = Hostile()
    engine = engine_of(definition(node("a", way(complete=lambda context: context.app))), app=app)
    assert (await engine.run()).value is app


async def test_an_engine_made_of_something_else_says_what_it_takes() -> None:
    """A mapping is refused by name."""
    with pytest.raises(UsageError, match="AgentCoreEngineOptions"):
        AgentCoreEngine({"max_rounds": 3})  # type: ignore[arg-type]


# --- branches and checkpoints ----------------------------------------------------------------------------------------


async def test_f17_an_engine_has_a_branch_of_its_own_or_a_restored_one() -> None:
    """Fresh ids for each engine."""
    ids = SequenceIds()
    first, second = (AgentCoreEngine(AgentCoreEngineOptions(ids=ids)).branch for _ in range(2))
    assert first.branch_id != second.branch_id
    assert first.parent_branch_id is None


async def test_f18_an_origin_is_whole_or_absent() -> None:
    """A mix is refused; a fork names the branch, the run and the checkpoint it comes from."""
    with pytest.raises(ValidationError):
        AgentBranch(agent_id=Id("a"), thread_id=Id("t"), branch_id=Id("b"), parent_branch_id=Id("p"))
    engine = bare()
    run_id = (await engine.run(Steps())).run_id
    checkpoint = engine.checkpoint({"x": [1]})
    fork = engine.fork(checkpoint)
    assert (fork.agent_id, fork.thread_id) == (engine.branch.agent_id, engine.branch.thread_id)
    assert (fork.parent_branch_id, fork.origin_run_id, fork.origin_checkpoint_id) == (
        engine.branch.branch_id,
        run_id,
        checkpoint.checkpoint_id,
    )
    assert fork.branch_id != engine.branch.branch_id


async def test_f19_a_checkpoint_is_detached() -> None:
    """Changing what went in, or what came out, changes nothing."""
    engine = bare()
    await engine.run(Steps())
    data: dict[str, Any] = {"x": [1]}
    checkpoint = engine.checkpoint(data)
    data["x"].append(2)
    first: Any = checkpoint.read()
    first["x"].append(3)
    assert checkpoint.read() == {"x": [1]}
    assert checkpoint.read() is not checkpoint.read()


@pytest.mark.parametrize("data", [object(), {1: 2}, float("nan"), -0.0, (1,), {"x": {1, 2}}])
async def test_f20_a_checkpoint_holds_lossless_json_only(data: Any) -> None:
    """Anything that would not come back the same is refused when it is made."""
    engine = bare()
    await engine.run(Steps())
    with pytest.raises(CanonicalJsonError):
        engine.checkpoint(data)


async def test_f20_a_checkpoint_goes_through_its_record() -> None:
    """The record has what the host put in and where it stood; another version is refused."""
    engine = bare()
    with pytest.raises(OutOfTurnError):
        engine.checkpoint({})
    await engine.run(Steps(rounds=2))
    record = engine.checkpoint({"big": 2**70, "x": 1.5}).to_record()
    assert (record.round, record.branch) == (2, engine.branch)
    again = AgentCheckpoint.from_record(AgentCheckpointRecord.model_validate_json(record.model_dump_json()))
    assert again.to_record() == record
    with pytest.raises(InvalidValueError, match=r"checkpoint\.version"):
        AgentCheckpoint.from_record(record.to_json() | {"version": 2})


async def test_f21_f22_an_attempt_is_taken_or_refused() -> None:
    """Refusals are not stored up, and a reading is not a claim."""
    budget = AttemptBudget(2)
    readings = [(budget.available, budget.take()) for _ in range(4)]
    assert readings == [(2, True), (1, True), (0, False), (0, False)]
    assert not AttemptBudget(0).take()


async def test_the_errors_of_the_engine_survive_pickling() -> None:
    """A timeout keeps its fact."""
    again = pickle.loads(pickle.dumps(EngineTimeoutError(timeout=2.0)))  # noqa: S301 - what was just written
    assert again.timeout == 2.0


async def test_a_scope_without_consumers_costs_no_events() -> None:
    """Nothing is recorded where nobody listens, and the run still has an id from its scope."""
    scope = create_diagnostics(CreateDiagnosticsOptions(run_id=Id("quiet")))
    assert (await engine_of(definition(node("a", run=passive)), diagnostics=scope).run()).run_id == "quiet"
