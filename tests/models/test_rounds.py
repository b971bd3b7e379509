"""Results stand directly behind their calls in every request, whatever the history looks like."""

from runlane.models import AnyModelMessage, ModelAssistantToolMessage, ModelMessage, ModelToolResultMessage
from runlane.models._rounds import settle_rounds
from runlane.records import ToolApprovalRequestPart, ToolApprovalResponsePart
from tests.models.messages import call, result

_USER = ModelMessage.user("On.")


def _results(*call_ids: str) -> ModelToolResultMessage:
    return ModelToolResultMessage(tuple(result(call_id, call_id) for call_id in call_ids))


def test_what_is_in_order_stays_as_it_is() -> None:
    """Nothing is moved or added in a conversation whose rounds are closed."""
    messages: list[AnyModelMessage] = [
        _USER,
        ModelAssistantToolMessage((call("a"), call("b"))),
        _results("b", "a"),
        ModelMessage.assistant("Done."),
    ]
    assert settle_rounds(messages) == messages


def test_the_results_of_a_round_are_one_message() -> None:
    """Results told in two messages are told in one."""
    settled = settle_rounds([ModelAssistantToolMessage((call("a"), call("b"))), _results("a"), _results("b")])
    assert settled[1:] == [_results("a", "b")]


def test_a_call_that_waits_for_approval_says_so() -> None:
    """The provider would refuse a call without a result; this one tells what is known."""
    asked = ModelAssistantToolMessage((call("a"), ToolApprovalRequestPart(approval_id="p", call_id="a")))
    (_, closed, *_) = settle_rounds([asked, _USER])
    assert isinstance(closed, ModelToolResultMessage)
    assert closed.results[0].output == {"message": "not run yet: the call waits for approval"}
    assert closed.results[0].outcome == "interrupted"


def test_a_late_result_goes_to_its_call() -> None:
    """An approval answered many turns later leaves its answer behind the call, and no empty message where it came."""
    asked = ModelAssistantToolMessage((call("a"), ToolApprovalRequestPart(approval_id="p", call_id="a")))
    late = ModelToolResultMessage((ToolApprovalResponsePart(approval_id="p", approved=True), result("a", 1)))
    settled = settle_rounds([asked, _USER, ModelMessage.assistant("Later."), late])
    assert settled == [asked, ModelToolResultMessage((result("a", 1),)), _USER, ModelMessage.assistant("Later.")]


def test_an_id_used_again_belongs_to_the_latest_call() -> None:
    """Providers that number their calls in each answer anew get each result behind its own call."""
    one, other = ModelAssistantToolMessage((call("a", n=1),)), ModelAssistantToolMessage((call("a", n=2),))
    first, second = (ModelToolResultMessage((result("a", number),)) for number in (1, 2))
    assert settle_rounds([one, first, other, second]) == [one, first, other, second]


def test_a_result_of_an_unknown_call_stays_where_it_is() -> None:
    """What nobody asked for is not dropped in silence; the provider says what it thinks of it."""
    assert settle_rounds([_USER, _results("x")]) == [_USER, _results("x")]
