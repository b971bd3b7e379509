"""Between the steps of a run: prepare_step, stop policies, context usage."""

from collections.abc import Sequence
from typing import Any

import pytest

from runlane.errors import ContextOverflowError, InvalidValueError, ToolFenceError, UsageError
from runlane.models import (
    FinishReport,
    FunctionCallDelta,
    ModelMessage,
    ModelUsage,
    ResolvedModel,
    ResponseInfo,
    TextDelta,
    UsageReport,
)
from runlane.records import UsageValue
from runlane.runtime import (
    AgentRuntime,
    ContextUsage,
    FinishedStep,
    LoopConfig,
    RunContext,
    RuntimeConfig,
    StepChanges,
    StepPreparation,
    StopPolicy,
)
from runlane.store import MemoryStore
from runlane.testing import Hold, ScriptedModel, ScriptedStep
from tests.runtime.scenes import CONVERSATION, heard, looped, names, opened

pytestmark = pytest.mark.anyio

_UNKNOWN = UsageValue(provenance="unavailable")


def calling(text: str = "Let me see. ", *, input_tokens: int | None = None) -> list[ScriptedStep]:
    """Return a reply that calls a tool nobody mounted, and so leads to another step."""
    usage: list[ScriptedStep] = [UsageReport(ModelUsage(input_tokens=input_tokens))] if input_tokens else []
    return [
        ResponseInfo(response_id="resp-1", upstream_provider="up"),
        TextDelta(text),
        FunctionCallDelta(0, id=f"call_{input_tokens}", name="look_up", arguments="{}"),
        *usage,
        FinishReport("tool-calls"),
    ]


async def test_prepare_step_is_asked_before_every_step() -> None:
    """It learns the run, the steps before, and what the next one would be told; None changes nothing."""
    asked: list[StepPreparation[object]] = []
    model = ScriptedModel(calling(input_tokens=40), "Done.")
    async with opened(model, config=looped(prepare_step=asked.append)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi", context={"user": 7})
        assert (await ticket.result).reason == "success"
    assert [(about.index, len(about.steps), len(about.prompt.messages)) for about in asked] == [(0, 0, 1), (1, 1, 3)]
    assert {about.context.run.id for about in asked} == {ticket.run_id}
    assert asked[0].context.context == {"user": 7}
    [step] = asked[1].steps
    assert (step.index, step.model, step.text, step.response.response_id) == (
        0,
        "scripted-model",
        "Let me see. ",
        "resp-1",
    )
    assert ([call.tool_name for call in step.tool_calls], [result.outcome for result in step.tool_results]) == (
        ["look_up"],
        ["error"],
    )
    assert (step.usage.input_tokens, step.finish.reason) == (
        UsageValue(value=40, provenance="provider-reported"),
        "tool-calls",
    )


async def test_what_prepare_step_changes_stays_for_later_steps() -> None:
    """Another model, instructions and messages are used for the step and for those after it."""
    other = ScriptedModel(calling("Other. "), "Done.", model_id="other")

    def prepare(about: StepPreparation[object]) -> StepChanges | None:
        if about.index:
            return None
        return StepChanges(model=other, instructions="Be brief.", messages=(ModelMessage.user("Instead"),))

    model = ScriptedModel("never asked")
    async with opened(model, config=looped(prepare_step=prepare)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.text, len(model.calls), len(other.calls)) == ("Other. Done.", 0, 2)
    assert other.calls[0].messages == (ModelMessage.system("Be brief."), ModelMessage.user("Instead"))
    assert other.calls[1].messages[:2] == other.calls[0].messages
    assert len(other.calls[1].messages) == 4


async def test_prepare_step_may_be_a_coroutine_function_and_costs_one_commit() -> None:
    """The first request is recorded once it is prepared, and before the provider is called."""
    recorded: list[int] = []

    async def prepare(_: StepPreparation[object]) -> None:
        recorded.append(len(scene.store.applied))

    async with opened(ScriptedModel("Hello"), config=looped(prepare_step=prepare)) as scene:
        await scene.runtime.submit(CONVERSATION, "Hi").result
        applied = [names(call.commands) for call in scene.store.applied]
    assert recorded == [1]
    assert applied[:2] == [
        ["AcceptInput", "AcquireRun", "CheckpointRunAssistant"],
        ["AppendEvent", "RecordRunOperation"],
    ]
    assert len(applied) == 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ContextOverflowError("too long"), "context_overflow"),
        (ValueError("bug"), "provider_failure"),
        (UsageError("no", argument="x"), "runtime_failure"),
    ],
)
async def test_a_prepare_step_that_fails_ends_the_run_without_a_call(error: Exception, reason: str) -> None:
    """A typed overflow is `context_overflow`, also in the record and the event; no operation is recorded."""

    def prepare(_: StepPreparation[object]) -> None:
        raise error

    model = ScriptedModel("never asked")
    async with opened(model, config=looped(prepare_step=prepare)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        events = await heard(ticket)
        result = await ticket.result
        stored = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
    assert (result.reason, result.error, len(model.calls)) == (reason, error, 0)
    assert stored is not None
    assert stored.run.terminal_reason == reason
    assert [getattr(event, "reason", None) for event in events if event.type == "terminal"] == [reason]
    assert not [event for event in events if event.type == "run-operation"]


_WRONG: list[Any] = [
    {"model": "other"},
    {"active_tools": "one"},
    {"model": "x"},
    {"instructions": [1]},
    {"messages": ["x"]},
]


@pytest.mark.parametrize("fields", _WRONG)
async def test_a_prepare_step_that_returns_something_else_is_misuse(fields: dict[str, Any]) -> None:
    """What is no StepChanges, or holds a field of the wrong kind, ends the run with an error that names it."""
    changes = fields if fields == _WRONG[0] else StepChanges(**fields)
    async with opened(ScriptedModel("x"), config=looped(prepare_step=lambda _: changes)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, type(result.error)) == ("runtime_failure", UsageError)
    assert "prepare_step" in str(result.error)


async def test_a_stop_policy_ends_the_run_under_its_name() -> None:
    """Policies are asked after a step, in order, with the steps and the context; the first that fires names the end."""
    asked: list[tuple[str, int, object]] = []

    def policy(name: str, limit: int) -> StopPolicy:
        def when(steps: Sequence[FinishedStep], context: RunContext[object]) -> bool:
            asked.append((name, len(steps), context.context))
            return len(steps) >= limit

        return StopPolicy(name=name, when=when)

    model = ScriptedModel(lambda _: calling())
    policies = (policy("late", 3), policy("soon", 2), policy("too", 2))
    async with opened(model, config=looped(stop_policies=policies)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go", context="mine")
        result = await ticket.result
    assert (result.reason, result.policy_name, result.run.terminal_policy_name) == ("policy_stop", "soon", "soon")
    assert asked == [
        ("late", 1, "mine"),
        ("soon", 1, "mine"),
        ("too", 1, "mine"),
        ("late", 2, "mine"),
        ("soon", 2, "mine"),
    ]
    assert len(model.calls) == 2


async def test_max_steps_comes_before_the_other_policies() -> None:
    """When both would fire, the built-in one names the end and the other is not asked."""
    asked: list[object] = []

    def when(steps: Sequence[FinishedStep], _context: RunContext[object]) -> bool:
        asked.append(steps)
        return True

    policy = StopPolicy(name="mine", when=when)
    model = ScriptedModel(lambda _: calling())
    async with opened(model, config=looped(max_steps=1, stop_policies=(policy,))) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go").result
    assert (result.policy_name, asked) == ("max-steps", [])


async def test_a_step_that_ends_the_answer_asks_no_policy() -> None:
    """An answer that is complete by itself is a success, whatever a policy would have said."""
    policy = StopPolicy(name="always", when=lambda _steps, _context: True)
    async with opened(ScriptedModel("Done."), config=looped(stop_policies=(policy,), max_steps=1)) as scene:
        assert (await scene.runtime.submit(CONVERSATION, "Go").result).reason == "success"


async def test_an_abort_in_force_wins_over_a_stop_policy() -> None:
    """A run told to stop while a policy is being asked ends as interrupted, without the policy's name."""

    async def when(_steps: Sequence[FinishedStep], _context: RunContext[object]) -> bool:
        scene.runtime.stop(CONVERSATION)
        return True

    config = looped(stop_policies=(StopPolicy(name="mine", when=when),))
    async with opened(ScriptedModel(lambda _: calling()), config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go").result
    assert (result.reason, result.policy_name, result.run.terminal_policy_name) == ("interrupted", None, None)


async def test_a_stop_policy_that_fails_is_a_runtime_failure() -> None:
    """A policy's exception ends the run; what was said stays."""

    def when(_steps: Sequence[FinishedStep], _context: RunContext[object]) -> bool:
        raise ZeroDivisionError

    config = looped(stop_policies=(StopPolicy(name="mine", when=when),))
    async with opened(ScriptedModel(calling()), config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go").result
    assert (result.reason, result.text, type(result.error)) == ("runtime_failure", "Let me see. ", ZeroDivisionError)


@pytest.mark.parametrize(
    ("name", "error"), [("", InvalidValueError), ("max-steps", InvalidValueError), (1, UsageError)]
)
def test_a_policy_has_a_name_of_its_own(name: str, error: type[Exception]) -> None:
    """An empty or reserved name is refused where the policy is made."""
    with pytest.raises(error):
        StopPolicy(name=name, when=lambda _steps, _context: True)


def test_two_policies_with_one_name_are_refused() -> None:
    """A name on a run must say which policy it was."""
    policy = StopPolicy(name="mine", when=lambda _steps, _context: True)
    with pytest.raises(InvalidValueError, match=r"loop\.stop_policies"):
        LoopConfig(stop_policies=(policy, policy))
    for wrong in ([policy], ("mine",)):
        with pytest.raises(UsageError):
            LoopConfig(stop_policies=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        LoopConfig(prepare_step=1)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        LoopConfig(retry=3)  # type: ignore[arg-type]


async def test_context_usage_is_that_of_the_last_step_alone() -> None:
    """Prompts of 40k, 50k and 70k tokens in a window of 100k are seen as they are, unknown first, never summed."""
    seen: list[ContextUsage | None] = []
    model = ScriptedModel(*(calling(input_tokens=tokens) for tokens in (40_000, 50_000, 70_000)), "Done.")
    config = RuntimeConfig(loop=LoopConfig(prepare_step=lambda about: seen.append(about.context.context_usage)))
    resolved = ResolvedModel(model="m", provider=model, context_window=100_000)
    async with MemoryStore() as store, AgentRuntime(store, model=resolved, config=config) as runtime:
        await runtime.submit(CONVERSATION, "Go").result
    known = [UsageValue(value=tokens, provenance="provider-reported") for tokens in (40_000, 50_000, 70_000)]
    assert seen == [ContextUsage(used_tokens=used, context_window=100_000) for used in [_UNKNOWN, *known]]


async def test_an_interrupt_while_a_step_is_prepared_ends_the_run() -> None:
    """The run's signal is handed to prepare_step, and a run told to stop is not asked any more."""
    hold = Hold()
    signals: list[object] = []

    async def prepare(about: StepPreparation[object]) -> None:
        signals.append(about.context.signal)
        await hold.stand()

    model = ScriptedModel("never asked")
    async with opened(model, config=looped(prepare_step=prepare)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        scene.runtime.stop(CONVERSATION)
        result = await ticket.result
    assert (result.reason, len(model.calls), len(signals)) == ("interrupted", 0, 1)


async def test_prepare_step_may_guard_what_it_does_with_the_fence() -> None:
    """The run's context holds its tool fence: what an application does under it is refused once the run is lost."""
    done: list[str] = []

    async def charge() -> str:
        done.append("charged")
        return "receipt"

    async def prepare(about: StepPreparation[object]) -> None:
        assert await about.context.tool_fence.guard(charge, call_id="mine") == "receipt"
        scene.runtime.stop(CONVERSATION)
        with pytest.raises(ToolFenceError):
            await about.context.tool_fence.guard(charge, call_id="mine")
        raise ToolFenceError("stale_run", run_id=about.context.run.id)

    async with opened(ScriptedModel("never"), config=looped(prepare_step=prepare)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (done, result.reason) == (["charged"], "interrupted")
