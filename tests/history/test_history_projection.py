"""What a model is told: the worked examples, and what happens after failures, crashes and waiting."""

from __future__ import annotations

import pytest

from runlane.errors import ProjectionRefusedError
from runlane.history import (
    RUNTIME_EVIDENCE,
    CallEvidence,
    EvidencePolicy,
    History,
    ProjectionOptions,
    is_assistant_evidence,
    project_history,
    project_history_detailed,
    select_history,
)
from runlane.models import (
    AnyModelMessage,
    FileItem,
    ModelAssistantToolMessage,
    ModelMessage,
    ModelToolResultMessage,
    validate_messages,
)
from runlane.records import ControlPart, FilePart, Message, MessageStatus, Part, TextPart, TokenCount, ToolResultPart
from tests.history.records import STATUSES, assistant, call, message, request, response, result, stored, text, user

INTERRUPTED = "[interrupted: this turn was cut off before it finished]"
FAILED = "[failed: partial evidence from a run that did not complete successfully]"
RUNTIME = ProjectionOptions(evidence_policy=RUNTIME_EVIDENCE)
FILE = FilePart(media_type="application/pdf", reference="secret://place", filename="plan.pdf")


def shape(messages: object) -> list[tuple[str, list[str]]]:
    """Roles, and what each message holds, in short."""
    assert isinstance(messages, list | tuple) or hasattr(messages, "__iter__")
    return [(said.role, [_short(item) for item in said.items]) for said in messages]


def _short(item: object) -> str:
    kind = type(item).__name__.removesuffix("Part").removeprefix("Tool")
    name = getattr(item, "call_id", None) or getattr(item, "approval_id", None) or getattr(item, "text", "")
    output = getattr(item, "output", None)
    return f"{kind}:{name}" + (f"={output['message']}" if isinstance(output, dict) else "")


def test_rounds_of_calls_become_messages_in_order() -> None:
    """Parallel calls share a message, so do their results; what depends on them comes after."""
    parts: list[Part] = [call("a"), call("b"), result("a"), result("b"), call("c"), result("c"), text("done")]
    assert shape(project_history([user("go"), assistant("1", *parts)])) == [
        ("user", ["Text:go"]),
        ("assistant", ["Call:a", "Call:b"]),
        ("tool", ["Result:a", "Result:b"]),
        ("assistant", ["Call:c"]),
        ("tool", ["Result:c"]),
        ("assistant", ["Text:done"]),
    ]


def test_messages_are_never_merged_across_records() -> None:
    """An answered approval and the result after it stay two tool messages."""
    records = [
        user("go"),
        assistant("1", call("a"), request("p", "a")),
        message("2", "tool", response("p")),
        assistant("3", result("a"), text("done")),
    ]
    assert [role for role, _ in shape(project_history(records))] == ["user", "assistant", "tool", "tool", "assistant"]


@pytest.mark.parametrize(
    ("rule", "messages", "system", "decision"),
    [
        ("assistant-marked", ["user", "user"], (), ("omitted", "incomplete-tool-turn", ())),
        (
            "system-note",
            ["user", "user"],
            ("[interrupted] partial response: We are",),
            ("projected", "projected", ("tool-call",)),
        ),
        ("omit", ["user", "user"], (), ("omitted", "interrupted", ())),
    ],
)
def test_an_interrupted_answer_with_a_dangling_call(
    rule: str, messages: list[str], system: tuple[str, ...], decision: tuple[object, ...]
) -> None:
    """The worked example of an interruption, under each rule."""
    records = [user("Hi"), assistant("1", text("We are"), call("x"), status="interrupted"), user("other")]
    projection = project_history_detailed(records, ProjectionOptions(interrupted_assistant=rule))  # type: ignore[arg-type]
    assert [said.role for said in projection.messages] == messages
    assert projection.system == system
    assert projection.decisions[1] == ("1", *decision)


def test_what_was_said_before_an_interruption_is_kept_and_marked() -> None:
    """The text of an interrupted answer is in the next prompt, with a mark; without text there is no mark alone."""
    parts = (text("Once upon"), ControlPart(reason="run-interrupted"))
    records = [user("tell"), assistant("1", *parts, status="interrupted"), user("go on")]
    projection = project_history_detailed(records)
    assert shape(projection.messages)[1] == ("assistant", ["Text:Once upon", f"Text:{INTERRUPTED}"])
    assert projection.decisions[1].omitted_parts == ()
    bare = [user("tell"), assistant("1", ControlPart(reason="stale-run"), status="interrupted")]
    assert project_history_detailed(bare).decisions[1].reason == "empty"


def test_a_failed_answer_is_marked_even_when_it_says_nothing() -> None:
    """With failed answers shown, the mark stands there also without a word of the answer."""
    options = ProjectionOptions(evidence_policy=EvidencePolicy(failed_assistant="assistant-marked"))
    records = [user("go"), message("1", "assistant", status="failed")]
    assert shape(project_history(records, options))[1] == ("assistant", [f"Text:{FAILED}"])
    assert project_history_detailed(records).decisions[1].reason == "draft-or-failed"


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("failed", ["omit", "assistant-marked"])
def test_projection_and_budget_agree_on_every_status(status: MessageStatus, failed: str) -> None:
    """An answer is shown exactly when the budget keeps it, for every status there is."""
    policy = EvidencePolicy(failed_assistant=failed)  # type: ignore[arg-type]
    records = [user("go"), assistant("1", status=status)]
    shown = project_history_detailed(records, ProjectionOptions(evidence_policy=policy)).decisions[1].action
    one = TokenCount(value=1, provenance="measured")
    kept = select_history(records, 100, lambda _: one, evidence_policy=policy).decisions[1].action
    assert (shown == "projected") == (kept == "kept") == is_assistant_evidence(status, policy)


# --- crashes and cancellations ------------------------------------------------------------------------------------


def wire_valid(messages: object) -> None:
    """The messages are ones every provider takes."""
    validate_messages(list(messages))  # type: ignore[call-overload]


def test_a_cancelled_round_is_closed_and_the_conversation_goes_on() -> None:
    """Two calls cut off by a cancel have results directly after them; the records stay as they were."""
    records = [
        user("go"),
        assistant("1", call("c1"), call("c2"), status="interrupted", run_id="r1"),
        user("never mind"),
    ]
    history = History(map(stored, records))
    projection = history.project(RUNTIME)
    assert shape(projection.messages) == [
        ("user", ["Text:go"]),
        ("assistant", ["Call:c1", "Call:c2"]),
        ("tool", ["Result:c1=interrupted", "Result:c2=interrupted"]),
        ("assistant", [f"Text:{INTERRUPTED}"]),
        ("user", ["Text:never mind"]),
    ]
    wire_valid(projection.messages)
    assert [history.record(place) for place in range(3)] == [stored(record) for record in records]


def test_a_crash_in_the_middle_of_a_round_says_of_each_call_what_is_known() -> None:
    """A finished call keeps its result, a started one may have run, one that never began says so."""
    records = [
        user("go"),
        assistant("1", call("c1"), call("c2"), call("c3"), result("c1"), status="failed", run_id="r1"),
        user("and now?"),
    ]
    effects: dict[str, CallEvidence] = {"c2": "unknown", "c3": "not-started"}
    projection = project_history_detailed(records, RUNTIME, effects=effects)
    assert shape(projection.messages)[1:3] == [
        ("assistant", ["Call:c1", "Call:c2", "Call:c3"]),
        ("tool", ["Result:c1", "Result:c2=unknown: may have run", "Result:c3=not started"]),
    ]
    results = [item for said in projection.messages for item in said.items if isinstance(item, ToolResultPart)]
    assert [item.outcome for item in results] == ["success", "interrupted", "interrupted"]
    wire_valid(projection.messages)


def test_a_closing_result_stands_before_the_next_round() -> None:
    """A call skipped by the round that follows is closed before that round, not at the end."""
    parts = (call("a"), call("b"), result("a"), call("c"), result("c"))
    projection = project_history_detailed([user("go"), assistant("1", *parts, status="failed")], RUNTIME)
    assert [role for role, _ in shape(projection.messages)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert shape(projection.messages)[2] == ("tool", ["Result:a", "Result:b=unknown: may have run"])
    wire_valid(projection.messages)


def test_a_waiting_approval_is_left_alone() -> None:
    """A repair before the answer arrives touches nothing, and the answer then reaches its call."""
    waiting = [user("go"), assistant("1", call("a"), request("p", "a"), run_id="r1")]
    assert shape(project_history(waiting, RUNTIME))[1] == ("assistant", ["Call:a", "ApprovalRequest:a"])
    answered = [*waiting, message("2", "tool", response("p")), assistant("3", result("a"), run_id="r2")]
    projection = project_history_detailed(answered, RUNTIME)
    assert {decision.reason for decision in projection.decisions} == {"projected"}
    assert shape(projection.messages)[2:] == [("tool", ["ApprovalResponse:p"]), ("tool", ["Result:a"])]


def test_a_call_that_is_about_to_run_is_not_closed() -> None:
    """An approved call of an active run without a record yet stays open; once the run is gone it is closed."""
    records = [
        user("go"),
        assistant("1", call("a"), request("p", "a"), run_id="r1"),
        message("2", "tool", response("p")),
    ]
    about_to = project_history_detailed(records, RUNTIME, active_runs={"r2"})
    assert shape(about_to.messages)[2] == ("tool", ["ApprovalResponse:p"])
    gone = project_history_detailed(records, RUNTIME)
    assert shape(gone.messages)[2] == ("tool", ["ApprovalResponse:p", "Result:a=unknown: may have run"])


def test_a_run_that_has_not_ended_keeps_its_calls_open() -> None:
    """While a run of the turn is active its record with a dangling call is left out, under any policy."""
    records = [user("go"), assistant("1", call("a"), status="interrupted", run_id="r1")]
    assert project_history_detailed(records, RUNTIME, active_runs={"r1"}).decisions[1].reason == "incomplete-tool-turn"
    assert project_history_detailed(records, RUNTIME, active_runs={"r2"}).decisions[1].reason == "projected"


def test_a_superseded_answer_is_hidden_and_its_input_stays() -> None:
    """What a superseded answer said is in no prompt; what the user said is."""
    records = [user("one"), assistant("1", text("secret"), status="superseded"), user("two"), assistant("2")]
    for options in (ProjectionOptions(), RUNTIME):
        projection = project_history_detailed(records, options)
        assert shape(projection.messages) == [
            ("user", ["Text:one"]),
            ("user", ["Text:two"]),
            ("assistant", ["Text:2"]),
        ]
        assert projection.decisions[1].reason == "superseded"


# --- the other channels -------------------------------------------------------------------------------------------


def test_no_system_message_is_ever_among_the_messages() -> None:
    """System and summary records go to the instructions channel, in order."""
    records = [
        message("s", "summary", text("before"), text("that")),
        user("Hi"),
        message("i", "system", text("be kind")),
    ]
    projection = project_history_detailed(records)
    assert projection.system == ("before\nthat", "be kind")
    assert [said.role for said in projection.messages] == ["user"]


def test_the_storage_reference_of_a_file_never_reaches_a_model() -> None:
    """Left out, named or resolved, a file shows nothing of where it is kept."""
    records = [user("m", text("see"), FILE)]
    item = FileItem(media_type="application/pdf", data=b"%PDF", filename="plan.pdf")
    shown: list[tuple[AnyModelMessage, ...]] = [
        tuple(project_history(records)),
        tuple(project_history(records, ProjectionOptions(unresolved_file="text"))),
        tuple(project_history_detailed(records, files={("m", 1): item}).messages),
    ]
    assert shown[0] == (ModelMessage("user", (TextPart(text="see"),)),)
    assert shown[1] == (ModelMessage("user", (TextPart(text="see"), TextPart(text="[attachment: plan.pdf]"))),)
    assert shown[2] == (ModelMessage("user", (TextPart(text="see"), item)),)
    assert "secret" not in repr(shown)
    with pytest.raises(ProjectionRefusedError, match="secret://place"):
        project_history(records, ProjectionOptions(unresolved_file="error"))


def test_a_refusal_names_the_record() -> None:
    """With incomplete traffic refused, the error names the record and what is wrong with it."""
    records = [user("go"), assistant("the-answer", call("a"))]
    with pytest.raises(ProjectionRefusedError, match=r"the-answer.*incomplete tool chronology") as raised:
        project_history(records, ProjectionOptions(incomplete_tool_turn="error"))
    assert raised.value.message_id == "the-answer"


def test_a_refused_record_changes_nothing() -> None:
    """A record that is left out neither introduces calls nor consumes an approval."""
    records = [
        user("go"),
        assistant("1", call("a"), request("p", "a")),
        assistant("2", response("p"), call("b")),
        message("3", "tool", response("p")),
        assistant("4", result("a")),
    ]
    reasons = [decision.reason for decision in project_history_detailed(records).decisions]
    assert reasons == ["projected", "projected", "incomplete-tool-turn", "projected", "projected"]


def test_the_classes_are_the_neutral_ones() -> None:
    """What a projection makes without constructors is what the constructors make."""
    records = [user("go"), assistant("1", call("a"), result("a"), text("done"))]
    messages = tuple(project_history(records))
    assert messages == (
        ModelMessage("user", (TextPart(text="go"),)),
        ModelAssistantToolMessage((call("a"),)),
        ModelToolResultMessage((result("a"),)),
        ModelMessage("assistant", (TextPart(text="done"),)),
    )
    made = messages[1].items[0]
    assert made.model_dump() == call("a").model_dump()
    assert made.model_fields_set == call("a").model_fields_set | {"type"}


def test_records_of_each_conversation_start_over() -> None:
    """A list of two conversations is projected as two: calls and the first user do not carry over."""
    records = [user("1"), assistant("2", conversation_id="d"), user("3", conversation_id="d")]
    assert [decision.reason for decision in project_history_detailed(records).decisions] == [
        "projected",
        "leading-assistant",
        "projected",
    ]
    assert isinstance(records[0], Message)
