"""What a run spends: added over its steps, known as well as its provider said, and never invented."""

import pytest

from runlane.delivery import CheckpointEvent, TerminalEvent
from runlane.models import FinishReport, FunctionCallDelta, ModelUsage, TextDelta, UsageReport
from runlane.records import CostValue, Usage, UsageValue
from runlane.testing import Hold, ScriptedModel, ScriptedStep
from tests.runtime.scenes import CONVERSATION, heard, looped, opened, spending

pytestmark = pytest.mark.anyio

_UNKNOWN = UsageValue(provenance="unavailable")
_NO_COST = CostValue(provenance="unavailable")


def _known(tokens: int) -> UsageValue:
    return UsageValue(value=tokens, provenance="computed")


def _step(usage: ModelUsage | None, *, last: bool = False) -> list[ScriptedStep]:
    """Return a step that reports this; any but the last calls a tool nobody mounted."""
    reports: list[ScriptedStep] = [] if usage is None else [UsageReport(usage)]
    if last:
        return [TextDelta("Done."), *reports, FinishReport("stop")]
    return [
        FunctionCallDelta(0, id=f"call_{id(reports)}", name="look_up", arguments="{}"),
        *reports,
        FinishReport("stop"),
    ]


def _steps(*usages: ModelUsage | None) -> ScriptedModel:
    last = len(usages) - 1
    return ScriptedModel(*(_step(usage, last=place == last) for place, usage in enumerate(usages)))


def _dollars(tokens: int, cost: float | None, currency: str | None = "USD") -> ModelUsage:
    return ModelUsage(input_tokens=tokens, output_tokens=tokens // 10, cost=cost, currency=currency)


async def _spent(model: ScriptedModel) -> Usage:
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go")
        events = await heard(ticket)
        result = await ticket.result
        view = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
    assert (result.reason, isinstance(events[-1], TerminalEvent)) == ("success", True)
    assert result.metrics is not None
    assert view is not None
    assert getattr(events[-1], "metrics", None) == result.metrics
    assert view.run.usage == result.metrics.usage
    return result.metrics.usage


async def test_steps_add_up() -> None:
    """Three priced steps give their sums, `computed`, in result, record and event alike."""
    usage = await _spent(_steps(_dollars(1000, 0.5), _dollars(2000, 1.0), _dollars(3000, 1.5)))
    assert (usage.input_tokens, usage.output_tokens) == (_known(6000), _known(600))
    assert usage.cost == CostValue(value=3.0, currency="USD", provenance="computed")


async def test_the_figures_of_a_single_step_are_computed_too_at_the_end() -> None:
    """A terminal figure never claims to be the provider's own, cost included."""
    usage = await _spent(_steps(_dollars(1000, 0.5)))
    assert (usage.input_tokens, usage.cost) == (
        _known(1000),
        CostValue(value=0.5, currency="USD", provenance="computed"),
    )


@pytest.mark.parametrize("known_first", [True, False])
async def test_a_step_nobody_reported_makes_tokens_a_floor_and_cost_unknown(known_first: bool) -> None:  # noqa: FBT001
    """The total of the tokens is what is known, in either order; no later price brings the cost back."""
    reports = [_dollars(1000, 1.0), None] if known_first else [None, _dollars(1000, 1.0)]
    usage = await _spent(_steps(*reports))
    assert (usage.input_tokens, usage.cost) == (_known(1000), _NO_COST)


async def test_different_currencies_have_no_sum() -> None:
    """The tokens still add up, the cost is unknown."""
    usage = await _spent(_steps(_dollars(1, 1.0), _dollars(2, 2.0, "EUR"), _dollars(4, 4.0)))
    assert (usage.input_tokens, usage.cost) == (_known(7), _NO_COST)


async def test_nothing_reported_is_unknown_and_not_zero() -> None:
    """All six figures are unavailable."""
    assert await _spent(_steps(None)) == Usage.unknown()


async def test_a_figure_that_makes_no_sense_is_unknown_and_costs_no_answer() -> None:
    """A negative or fractional figure of a provider never fails the run it is about."""
    wrong = ModelUsage(input_tokens=-1, output_tokens=1.5, cost=-2.0)  # type: ignore[arg-type]
    usage = await _spent(_steps(wrong))
    assert (usage.input_tokens, usage.output_tokens, usage.cost) == (_UNKNOWN, _UNKNOWN, _NO_COST)


async def test_a_figure_reported_twice_within_a_response_is_not_added() -> None:
    """The later report replaces the earlier one."""
    twice: list[ScriptedStep] = [
        UsageReport(ModelUsage(input_tokens=25, output_tokens=1)),
        TextDelta("x"),
        UsageReport(ModelUsage(input_tokens=25, output_tokens=15)),
        FinishReport("stop"),
    ]
    usage = await _spent(ScriptedModel(twice))
    assert (usage.input_tokens, usage.output_tokens) == (_known(25), _known(15))


async def test_a_superseded_run_has_spent_what_its_steps_did() -> None:
    """Two steps finished, the third was cut: the two count, `computed`, and the metrics are partial."""
    hold = Hold()
    model = ScriptedModel(
        _step(_dollars(1000, 0.5)), _step(_dollars(2000, 1.0)), [TextDelta("x"), hold, FinishReport("stop")]
    )
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go")
        await hold.reached()
        assert scene.runtime.stop(CONVERSATION, reason="supersede") is True
        result = await ticket.result
    assert result.reason == "superseded"
    assert result.metrics is not None
    usage = result.metrics.usage
    assert (usage.input_tokens, usage.output_tokens, result.metrics.partial) == (_known(3000), _known(300), True)
    assert usage.cost == CostValue(value=1.5, currency="USD", provenance="computed")


async def test_a_run_that_ended_before_any_step_did_spent_an_unknown_sum() -> None:
    """Its terminal event says so for every figure."""
    hold = Hold()
    async with opened(ScriptedModel([hold, FinishReport("stop")])) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go")
        await hold.reached()
        scene.runtime.stop(CONVERSATION)
        result = await ticket.result
    assert result.metrics is not None
    assert (result.metrics.usage, result.metrics.partial) == (Usage.unknown(), True)


async def test_every_checkpoint_says_what_was_spent_so_far() -> None:
    """Partial metrics with the provider's own figures, also in the record, so that a crash leaves them."""
    hold = Hold()
    steps: list[ScriptedStep] = [UsageReport(ModelUsage(input_tokens=9)), *[TextDelta("x")] * 3, hold]
    model = ScriptedModel([*steps, FinishReport("stop")])
    async with opened(model, config=looped(checkpoint_every_events=2)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go")
        subscription = ticket.events()
        await hold.reached()
        view = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
        hold.release()
        events = await heard(subscription)
    assert view is not None
    assert view.run.usage is not None
    assert view.run.usage.input_tokens == UsageValue(value=9, provenance="provider-reported")
    checkpoints = [event.metrics for event in events if isinstance(event, CheckpointEvent)]
    assert checkpoints
    assert all(metrics.partial for metrics in checkpoints)


async def test_time_to_first_output_and_duration_are_of_the_run() -> None:
    """Both count from the acquisition, on a clock that never goes back."""
    hold = Hold()
    model = ScriptedModel([hold, TextDelta("x"), FinishReport("stop")], spending("y", input_tokens=1, output_tokens=1))
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go")
        await hold.reached()
        await scene.clock.advance(1.5)
        hold.release()
        result = await ticket.result
    assert result.metrics is not None
    assert (result.metrics.ttft_ms, result.metrics.duration_ms) == (1500, 1500)


async def test_who_missed_the_end_learns_the_metrics_all_the_same() -> None:
    """A terminal event that is rebuilt from the ledger equals the one that was told live."""
    async with opened(ScriptedModel(spending("x", input_tokens=5, output_tokens=2, cost=0.1))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go")
        live = await heard(ticket)
        await ticket.result
        rebuilt = await heard(scene.runtime.subscribe(CONVERSATION, run_id=ticket.run_id, after=0))
    assert (live[-1], live[-1].type) == (rebuilt[-1], "terminal")
