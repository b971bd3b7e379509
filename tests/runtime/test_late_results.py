"""Calls whose results come late, in a form every provider takes."""

from hypothesis import given
from hypothesis import strategies as st

from runlane.models import (
    AnyModelMessage,
    ModelAssistantToolMessage,
    ModelMessage,
    ModelToolResultMessage,
    validate_messages,
)
from runlane.records import ToolApprovalResponsePart, ToolCallPart, ToolResultPart
from runlane.runtime._late_results import with_late_results


def _call(name: str) -> ToolCallPart:
    return ToolCallPart(call_id=name, tool_name="t", arguments="{}", input={})


def _result(name: str) -> ToolResultPart:
    return ToolResultPart(call_id=name, tool_name="t", outcome="success", output=name)


@st.composite
def _conversations(draw: st.DrawFn) -> list[AnyModelMessage]:
    """Rounds of calls; each result comes at once, later, or never."""
    messages: list[AnyModelMessage] = [ModelMessage.user("Go.")]
    late: list[str] = []
    for number in range(draw(st.integers(1, 4))):
        names = [f"{number}-{place}" for place in range(draw(st.integers(1, 3)))]
        messages.append(ModelAssistantToolMessage(tuple(map(_call, names))))
        fates = [draw(st.sampled_from(["now", "late", "never"])) for _ in names]
        now = tuple(_result(name) for name, fate in zip(names, fates, strict=True) if fate == "now")
        late += [name for name, fate in zip(names, fates, strict=True) if fate == "late"]
        if now:
            messages.append(ModelToolResultMessage(now))
        if draw(st.booleans()):
            messages.append(ModelMessage.user("Meanwhile."))
        comes_now = draw(st.booleans())
        if late and comes_now:
            name = late.pop(0)
            messages.append(ModelToolResultMessage((ToolApprovalResponsePart(approval_id=name, approved=True),)))
            messages.append(ModelToolResultMessage((_result(name),)))
    return messages


@given(_conversations())
def test_every_call_gets_exactly_one_result_at_its_place(messages: list[AnyModelMessage]) -> None:
    """Whatever came when: the request adds up, no result is lost or told twice, and doing it again changes nothing."""
    placed = with_late_results(messages)
    validate_messages(placed)
    assert with_late_results(placed) == placed
    given_results = [
        item.call_id for message in messages if isinstance(message, ModelToolResultMessage) for item in message.results
    ]
    for name in given_results:
        in_place = sum(
            result.outcome == "success" and result.call_id == name
            for message in placed
            if isinstance(message, ModelToolResultMessage)
            for result in message.results
        )
        told = sum(isinstance(message, ModelMessage) and f'"call_id":"{name}"' in message.text for message in placed)
        assert in_place + told == 1


def test_a_conversation_without_late_results_stays_as_it_is() -> None:
    """The very messages come back."""
    messages = (
        ModelMessage.user("Go."),
        ModelAssistantToolMessage((_call("a"),)),
        ModelToolResultMessage((_result("a"),)),
    )
    assert with_late_results(messages) == messages
    assert all(one is other for one, other in zip(with_late_results(messages), messages, strict=True))
