"""How inputs join the executing run."""

from collections.abc import Sequence

import pytest

from runlane.delivery import RunStateEvent, TerminalEvent
from runlane.models import AnyModelMessage, FinishReport, ModelMessage
from runlane.records import Message, ToolApprovalResponsePart
from runlane.runtime import RuntimeInput
from runlane.runtime._injection import Inbox, Offers
from runlane.testing import Hold, ScriptedModel
from tests.runtime.injecting import inject_second, standing, tool_call
from tests.runtime.scenes import CONVERSATION, asked, heard, opened

pytestmark = pytest.mark.anyio


async def test_an_input_is_taken_at_the_next_boundary_and_its_run_absorbed_by_the_end() -> None:
    """The next step sees it behind everything else; the end absorbs the run, and both tickets have one answer."""
    hold, model = standing()
    async with opened(model) as scene:
        two = await inject_second(scene, hold)
        first, second = await two.results()
        view = await scene.store.inner.load_run(CONVERSATION, two.second.run_id)
        snapshot = await scene.store.inner.load_snapshot(CONVERSATION)
    assert asked(model, 0) == ["first"]
    assert (asked(model, 1)[0], asked(model, 1)[-1]) == ("first", "second")
    assert (first.run, first.message, first.reason) == (second.run, second.message, "success")
    assert len(model.calls) == 2
    assert view is not None
    assert (view.run.state, view.run.terminal_reason, view.run.absorbed_into_run_id) == (
        "superseded",
        "absorbed",
        two.first.run_id,
    )
    assert first.run.input_message_ids == tuple(message.id for message in snapshot.messages if message.role == "user")
    assert [message.role for message in snapshot.messages] == ["user", "user", "assistant"]


async def test_an_absorbed_result_has_no_metrics() -> None:
    """Only the execution that wrote the end has metrics."""
    hold, model = standing()
    async with opened(model) as scene:
        first, second = await (await inject_second(scene, hold)).results()
    assert (first.metrics is None, second.metrics is None) == (False, True)


async def test_an_absorbed_run_is_told_as_superseded_before_the_terminal_event() -> None:
    """One run-state event for the absorbed run, then one terminal event; the absorbed run has none of its own."""
    hold, model = standing()
    async with opened(model) as scene, scene.runtime.subscribe(CONVERSATION) as events:
        two = await inject_second(scene, hold)
        await two.results()
        await scene.runtime.close()
        told = await heard(events)
    ends = [event for event in told if isinstance(event, TerminalEvent)]
    last = told[-2]
    assert isinstance(last, RunStateEvent)
    assert (last.run_id, last.state) == (two.second.run_id, "superseded")
    assert ([event.run_id for event in ends], told[-1]) == ([two.first.run_id], ends[0])


async def test_the_events_of_an_absorbed_ticket_end() -> None:
    """A listener to the absorbed run's ticket gets its state and is let go."""
    hold, model = standing()
    async with opened(model) as scene:
        two = await inject_second(scene, hold)
        events = two.second.events()
        await two.results()
        states = [event.state for event in await heard(events) if isinstance(event, RunStateEvent)]
    assert states == ["queued", "superseded"]


async def test_an_input_offered_before_the_first_step_is_part_of_the_first_prompt() -> None:
    """Every step is a boundary, the first one too."""
    model = ScriptedModel("one answer")
    async with opened(model) as scene:
        tickets = [scene.runtime.submit(CONVERSATION, "first")]
        tickets += [scene.runtime.submit(CONVERSATION, text, policy="inject") for text in ("second", "third")]
        results = [await ticket.result for ticket in tickets]
    assert asked(model) == ["first", "second", "third"]
    assert len({result.run.id for result in results}) == 1
    assert len(model.calls) == 1


async def test_an_injected_input_stands_once_in_each_later_prompt() -> None:
    """Over several later steps the same input is present exactly once, in its place."""
    hold = Hold()
    step = [*tool_call("a"), hold, FinishReport("tool-calls")]
    model = ScriptedModel(
        step, [*tool_call("b"), FinishReport("tool-calls")], [*tool_call("c"), FinishReport("tool-calls")], "x"
    )
    async with opened(model) as scene:
        await (await inject_second(scene, hold)).results()
    for call in range(1, 4):
        texts = asked(model, call)
        assert texts.count("second") == 1
        assert texts[3] == "second"


async def test_the_next_turn_shows_the_absorbed_input_once_before_the_answer() -> None:
    """History after an absorption: both inputs, then the answer."""
    hold, model = standing(calls=False, then=["next"])
    hold.release()
    async with opened(model) as scene:
        tickets = [scene.runtime.submit(CONVERSATION, "first")]
        tickets.append(scene.runtime.submit(CONVERSATION, "second", policy="inject"))
        for ticket in tickets:
            await ticket.result
        await scene.runtime.submit(CONVERSATION, "third").result
    assert asked(model, 1) == ["first", "second", "half ", "third"]


async def test_an_unrelated_queued_input_never_enters_the_prompt() -> None:
    """An input under `queue` waits for its own run, however many boundaries there are."""
    hold, model = standing()
    async with opened(model) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        queued = scene.runtime.submit(CONVERSATION, "queued", policy="queue")
        await queued.admission
        hold.release()
        await first.result
        await queued.result
    assert "queued" not in asked(model, 1)
    assert asked(model, 2)[-1] == "queued"


async def test_an_answer_to_an_approval_needs_a_run_of_its_own() -> None:
    """An input of role tool under `inject` is queued."""
    hold, model = standing()
    answer = RuntimeInput(role="tool", parts=(ToolApprovalResponsePart(approval_id="a", approved=True),))
    async with opened(model) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        second = scene.runtime.submit(CONVERSATION, answer, policy="inject")
        await second.admission
        hold.release()
        assert (await first.result).run.id != (await second.result).run.id


async def test_a_repeated_key_is_not_offered_again_and_has_the_absorbing_runs_answer() -> None:
    """After absorption the duplicate keeps its own input and gets the absorbing run's answer."""
    hold, model = standing()
    async with opened(model) as scene:
        two = await inject_second(scene, hold)
        first, _ = await two.results()
        again = scene.runtime.submit(CONVERSATION, "second", policy="inject", idempotency_key="2")
        admission, result = await again.admission, await again.result
    assert (admission.input.text, admission.run_id, result.message) == ("second", two.first.run_id, first.message)
    assert len(model.calls) == 2


def test_offers_are_kept_once_per_input() -> None:
    """The same input offered twice is taken once."""
    offers = Offers()
    message = _message("m")
    offers.offer("r", message)
    offers.offer("r", message)
    assert offers.take("other") == {"r": [message]}


async def test_a_run_does_not_take_its_own_offer() -> None:
    """A run takes what other runs offer."""
    offers = Offers()
    offers.offer("r", _message("m"))
    assert await Inbox(offers, "r", lambda _: True, _shown).take() == ()
    assert await Inbox(offers, "other", lambda _: True, _shown).take() == (ModelMessage.user("m"),)


async def _shown(messages: Sequence[Message], /) -> tuple[AnyModelMessage, ...]:
    return tuple(ModelMessage.user(message.text) for message in messages)


def _message(name: str) -> Message:
    return Message.model_validate(
        {
            "id": name,
            "conversation_id": CONVERSATION,
            "role": "user",
            "status": "committed",
            "parts": [{"type": "text", "text": name}],
            "created_at": "2026-01-01T00:00:00.000Z",
            "updated_at": "2026-01-01T00:00:00.000Z",
        }
    )
