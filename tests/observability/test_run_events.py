"""What operators are told of a run: a test for each row, with real runs on both loops."""

from collections.abc import Sequence

import anyio
import pytest

from runlane.errors import ProviderError, RunUnsettledError, StoreUnavailableError, UsageError
from runlane.models import (
    FinishReport,
    FunctionCallDelta,
    ModelUsage,
    ResponseInfo,
    RetryPolicy,
    TextDelta,
    UsageReport,
)
from runlane.observability import RunEvent, RunStartedEvent, RunTerminalEvent, StepFinishedEvent
from runlane.records import Usage
from runlane.runtime import AgentRuntime, LoopConfig, RunResult, RuntimeConfig
from runlane.store import Command, CommitRunTerminal, MemoryStore
from runlane.testing import Fault, Hold, ScriptedModel, ScriptedStep
from runlane.tools import tool
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio


class Operators:
    """Keeps what it is told."""

    def __init__(self, *, takes_causes: bool = False) -> None:
        self.events: list[RunEvent] = []
        self.takes_causes = takes_causes

    def emit(self, event: RunEvent) -> None:
        """Keep an event."""
        self.events.append(event)

    @property
    def types(self) -> list[str]:
        """What kinds of events came."""
        return [event.type for event in self.events]

    @property
    def steps(self) -> list[StepFinishedEvent]:
        """The steps."""
        return [event for event in self.events if isinstance(event, StepFinishedEvent)]

    @property
    def end(self) -> RunTerminalEvent:
        """The one end."""
        (event,) = (event for event in self.events if isinstance(event, RunTerminalEvent))
        return event


def spending(*, input_tokens: int, output_tokens: int, text: str = "x") -> list[ScriptedStep]:
    """A reply with everything a provider says of itself."""
    return [
        ResponseInfo(response_id="resp_1", model="m-2026", upstream_provider="somewhere"),
        TextDelta(text),
        UsageReport(ModelUsage(input_tokens=input_tokens, output_tokens=output_tokens)),
        FinishReport("stop", "end_turn"),
    ]


async def one_run(
    model: ScriptedModel, *observers: Operators, loop: LoopConfig | None = None, text: str = "Hi"
) -> RunResult:
    """Run one input to its end."""
    config = RuntimeConfig(observers=observers, loop=loop or LoopConfig())
    async with opened(model, config=config) as scene:
        return await scene.runtime.submit(CONVERSATION, text).result


async def test_a_run_is_told_of_as_started_stepped_and_ended() -> None:
    """Three events in order; each names conversation, run, trace and span, and the step its execution."""
    operators = Operators()
    result = await one_run(ScriptedModel(spending(input_tokens=10, output_tokens=2)), operators)
    assert operators.types == ["run-started", "step-finished", "run-terminal"]
    started, step, end = operators.events
    assert {(event.conversation_id, event.run_id, event.schema_version) for event in operators.events} == {
        (CONVERSATION, result.run.id, 1)
    }
    assert started.trace_id == step.trace_id == end.trace_id
    assert started.span_id == end.span_id == step.parent_span_id != step.span_id
    assert [event.state for event in operators.events] == ["running", "running", "completed"]


async def test_a_started_run_says_how_long_it_waited() -> None:
    """The wait is from admission to acquisition; it carries no usage."""
    operators, hold = Operators(), Hold()
    model = ScriptedModel([TextDelta("a"), hold, FinishReport("stop")], "b")
    async with opened(model, config=RuntimeConfig(observers=(operators,))) as scene:
        first = scene.runtime.submit(CONVERSATION, "one")
        await hold.reached()
        second = scene.runtime.submit(CONVERSATION, "two")
        await second.admission
        scene.clock.tick(2.5)
        hold.release()
        await first.result
        await second.result
    waits = [event.queue_wait_ms for event in operators.events if isinstance(event, RunStartedEvent)]
    assert waits == [0, 2500]


async def test_a_finished_step_says_what_the_provider_reported() -> None:
    """Usage keeps the provider's own label, the response its identity and the provider's word; content stays out."""
    operators = Operators()
    await one_run(ScriptedModel(spending(input_tokens=10, output_tokens=2, text="canary")), operators)
    (step,) = operators.steps
    assert (step.step, step.attempt, step.outcome, step.error_code) == (0, 1, "completed", None)
    assert (step.usage.input_tokens.value, step.usage.input_tokens.provenance) == (10, "provider-reported")
    assert step.usage.cost is not None
    assert step.usage.cost.provenance == "unavailable"
    assert step.response.to_json() == {
        "response_id": "resp_1",
        "model": "m-2026",
        "upstream_provider": "somewhere",
        "finish_reason": "stop",
        "raw_finish_reason": "end_turn",
    }
    assert "canary" not in "".join(event.model_dump_json() for event in operators.events)


async def test_a_step_is_timed_from_its_own_start() -> None:
    """Duration and time to first output are the step's, not the run's."""
    operators, hold, slow = Operators(), Hold(), Hold()
    model = ScriptedModel([hold, TextDelta("a"), slow, FinishReport("stop")])
    async with opened(model, config=RuntimeConfig(observers=(operators,))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "one")
        await hold.reached()
        scene.clock.tick(1)
        hold.release()
        await slow.reached()
        scene.clock.tick(2)
        slow.release()
        await ticket.result
    (step,) = operators.steps
    assert (step.ttft_ms, step.duration_ms) == (1000, 3000)
    assert (operators.end.ttft_ms, operators.end.duration_ms) == (1000, 3000)


async def test_an_end_always_states_usage() -> None:
    """A run in which nothing was reported has six unavailable figures, never 0 and never none."""
    operators = Operators()
    await one_run(ScriptedModel("Hello"), operators)
    assert operators.end.usage == Usage.unknown()
    assert operators.end.model_dump()["usage"]["cost"] == {"value": None, "currency": None, "provenance": "unavailable"}


async def test_an_end_sums_what_the_steps_spent() -> None:
    """Its figures are computed; its id is of the run and the version that ended it."""
    operators = Operators()
    result = await one_run(ScriptedModel(spending(input_tokens=10, output_tokens=2)), operators)
    usage = operators.end.usage
    assert (usage.input_tokens.value, usage.input_tokens.provenance) == (10, "computed")
    assert operators.end.event_id == f"{result.run.id}:terminal:{result.snapshot_version}"
    assert (operators.end.is_winner, operators.end.terminal_reason, operators.end.state) == (
        True, "success", "completed",
    )  # fmt: skip
    assert operators.end.model_id == operators.steps[0].model_id


@pytest.mark.parametrize("takes_causes", [True, False])
async def test_a_failed_run_says_its_code_and_the_cause_only_to_who_asked(*, takes_causes: bool) -> None:
    """The code is for everybody; the error in full, message included, for a sink that takes causes."""
    operators = Operators(takes_causes=takes_causes)
    model = ScriptedModel([TextDelta("a"), ProviderError("secret words", provider="scripted", status=500)])
    await one_run(model, operators)
    end = operators.end
    assert (end.terminal_reason, end.state) == ("provider_failure", "failed")
    assert end.error_code == operators.steps[0].error_code == ProviderError.code
    assert operators.steps[0].outcome == "failed"
    if takes_causes:
        assert end.internal_cause is not None
        assert "secret words" in str(end.internal_cause["message"])
    else:
        assert end.internal_cause is None
        assert "secret words" not in "".join(event.model_dump_json() for event in operators.events)


async def test_each_attempt_of_a_step_is_told_of() -> None:
    """A failed call that was billed is told with its usage; the repetition is attempt 2 of step 0."""
    operators = Operators()
    broken: Sequence[ScriptedStep] = [
        UsageReport(ModelUsage(input_tokens=7, output_tokens=0)),
        ProviderError("busy", provider="scripted", status=503, retryable=True),
    ]
    retry = RetryPolicy(max_attempts=2, delay=lambda _: 0.0)
    await one_run(ScriptedModel(list(broken), "fine"), operators, loop=LoopConfig(retry=retry))
    told = [(step.step, step.attempt, step.outcome, step.usage.input_tokens.value) for step in operators.steps]
    assert told == [(0, 1, "failed", 7), (0, 2, "completed", None)]
    assert len({event.event_id for event in operators.events}) == len(operators.events)


async def test_an_interrupted_run_is_told_of_as_interrupted() -> None:
    """Its step was cancelled, without an error code."""
    operators, hold = Operators(), Hold()
    model = ScriptedModel([TextDelta("a"), hold, FinishReport("stop")])
    async with opened(model, config=RuntimeConfig(observers=(operators,))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "one")
        await hold.reached()
        await scene.runtime.interrupt(CONVERSATION, ticket.run_id)
        await ticket.result
    assert (operators.steps[0].outcome, operators.steps[0].error_code) == ("cancelled", None)
    assert (operators.end.terminal_reason, operators.end.error_code) == ("interrupted", None)


_GONE = StoreUnavailableError("gone")


def _refuses_the_end(commands: Sequence[Command]) -> Fault | None:
    return Fault(error=_GONE) if any(isinstance(command, CommitRunTerminal) for command in commands) else None


async def test_an_execution_whose_end_was_not_written_still_tells_its_spend_once() -> None:
    """The result rejects; operators learn what was spent, under an id that no winner has."""
    operators = Operators()
    config = RuntimeConfig(observers=(operators,))
    async with opened(ScriptedModel(spending(input_tokens=9, output_tokens=1)), config=config) as scene:
        scene.store.plan = lambda call: _refuses_the_end(call.commands)
        ticket = scene.runtime.submit(CONVERSATION, "one")
        with anyio.fail_after(10):
            while not ticket.result.done:
                await scene.clock.advance(0.2)
        with pytest.raises(RunUnsettledError):
            await ticket.result
        scene.store.plan = None
        owner = scene.runtime.owner_id
    end = operators.end
    assert (end.is_winner, end.terminal_reason, end.usage.input_tokens.value) == (False, "success", 9)
    assert end.event_id.endswith(f":{owner}")


async def test_an_execution_that_lost_its_run_tells_its_own_spend() -> None:
    """Somebody else ended the run: the loser's end has the record's reason and an id of its own."""
    operators, others, hold = Operators(), Operators(), Hold()
    model = ScriptedModel([*spending(input_tokens=9, output_tokens=1)[:-1], hold, FinishReport("stop")])
    config = RuntimeConfig(observers=(operators,))
    async with MemoryStore() as store, opened(model, store=store, config=config) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "one")
        await hold.reached()
        view = await store.load_run(CONVERSATION, ticket.run_id)
        assert view is not None
        async with AgentRuntime(store, model=ScriptedModel("x"), config=RuntimeConfig(observers=(others,))) as other:
            await other.abandon(CONVERSATION, ticket.run_id, expected_revision=view.run.revision, stale_owner=True)
        hold.release()
        result = await ticket.result
    assert result.reason == "abandoned"
    assert (operators.end.is_winner, operators.end.terminal_reason) == (False, "abandoned")
    assert operators.end.usage.input_tokens.value == 9
    assert others.events == []


class Broken:
    """Fails at whatever it is told."""

    def emit(self, event: RunEvent) -> None:
        """Fail."""
        raise OSError(event.type)


async def test_a_sink_that_fails_costs_the_run_and_the_other_sinks_nothing() -> None:
    """What an observer raises is dropped; those after it are told all the same."""
    operators = Operators()
    config = RuntimeConfig(observers=(Broken(), operators))
    async with opened(ScriptedModel("Hello"), config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert result.reason == "success"
    assert operators.types == ["run-started", "step-finished", "run-terminal"]


@pytest.mark.parametrize("observers", [[Operators()], (print,), (None,), Operators()])
def test_observers_that_are_none_are_refused(observers: object) -> None:
    """A list, and what has no `emit`, is misuse that names its place."""
    with pytest.raises(UsageError, match="observers"):
        RuntimeConfig(observers=observers)  # type: ignore[arg-type]


@tool
async def look() -> str:
    """Look around."""
    return "nothing"


async def test_a_run_that_a_policy_stopped_names_it() -> None:
    """The name of the policy goes with the reason."""
    operators = Operators()
    call: list[ScriptedStep] = [FunctionCallDelta(0, id="c1", name="look", arguments="{}"), FinishReport("tool-calls")]
    config = RuntimeConfig(observers=(operators,), loop=LoopConfig(max_steps=1))
    async with opened(ScriptedModel(call), config=config, tools=(look,)) as scene:
        await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (operators.end.terminal_reason, operators.end.policy_name) == ("policy_stop", "max-steps")
