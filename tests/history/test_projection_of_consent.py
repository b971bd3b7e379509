"""What is told of calls that waited for consent, beside calls that were cut off: phase by phase, whoever asks."""

from __future__ import annotations

import pytest

from runlane.history import (
    CallEvidence,
    EvidencePolicy,
    History,
    ProjectionOptions,
    is_complete_turn,
    project_history_detailed,
)
from runlane.records import Message
from tests.history.records import assistant, call, message, request, response, result, stored, text, user
from tests.history.test_history_projection import FAILED, INTERRUPTED, RUNTIME, shape

UNKNOWN = "unknown: may have run"
CUT = assistant("1", call("c1"), call("c2"), request("p", "c1"), status="interrupted", run_id="r1")
TOLD = [
    ("user", ["Text:go"]),
    ("assistant", ["Call:c1", "Call:c2", "ApprovalRequest:c1"]),
    ("tool", ["Result:c2=interrupted"]),
    ("assistant", [f"Text:{INTERRUPTED}"]),
]
AGREED = message("2", "tool", response("p"))
DENIED = message("2", "tool", response("p", approved=False))
BOTH = assistant("1", call("c1"), call("c2"), request("p", "c1"), request("q", "c2"), run_id="r1")


def everywhere(records: list[Message], active: set[str] | None = None) -> tuple[object, list[str]]:
    """Project a list, and a handle that was asked after every record: both say the same; return what."""
    runs = frozenset(active or ())
    plain = project_history_detailed(records, RUNTIME, active_runs=runs)
    grown = History()
    for record in records:
        grown.append(stored(record))
        for asked in (frozenset({"r1", "r2", "r3"}), runs):
            grown.project(RUNTIME, active_runs=asked)
    for history in (grown, History(map(stored, records))):
        other = history.project(RUNTIME, active_runs=runs)
        assert list(other.messages) == list(plain.messages)
        assert list(other.decisions) == list(plain.decisions)
    return shape(plain.messages), [decision.reason for decision in plain.decisions]


@pytest.mark.parametrize(
    ("records", "active", "told"),
    [
        pytest.param([user("go"), CUT], {"r2"}, TOLD, id="asked"),
        pytest.param([user("go"), CUT, AGREED], {"r2"}, [*TOLD, ("tool", ["ApprovalResponse:p"])], id="approved"),
        pytest.param([user("go"), CUT, DENIED], {"r2"}, [*TOLD, ("tool", ["ApprovalResponse:p"])], id="denied"),
        pytest.param(
            [user("go"), CUT, AGREED],
            set(),
            [*TOLD, ("tool", ["ApprovalResponse:p", f"Result:c1={UNKNOWN}"])],
            id="approved, and nobody carried it out",
        ),
        pytest.param(
            [user("go"), CUT, DENIED],
            set(),
            [*TOLD, ("tool", ["ApprovalResponse:p", "Result:c1=not started"])],
            id="denied, and nobody said so",
        ),
        pytest.param(
            [user("go"), CUT, AGREED, assistant("3", result("c1"), call("x"), result("x"), run_id="r2"), user("so")],
            {"r3"},
            [
                *TOLD,
                ("tool", ["ApprovalResponse:p"]),
                ("tool", ["Result:c1"]),
                ("assistant", ["Call:x"]),
                ("tool", ["Result:x"]),
                ("user", ["Text:so"]),
            ],
            id="answered",
        ),
        pytest.param(
            [user("go"), CUT, AGREED, assistant("3", result("c1"), status="superseded", run_id="r2"), user("so")],
            {"r3"},
            [*TOLD, ("tool", ["ApprovalResponse:p", f"Result:c1={UNKNOWN}"]), ("user", ["Text:so"])],
            id="carried out by an answer that was superseded",
        ),
        pytest.param(
            [
                user("go"),
                BOTH,
                AGREED,
                assistant("3", status="failed", run_id="r2"),
                message("4", "tool", response("q")),
            ],
            {"r3"},
            [
                ("user", ["Text:go"]),
                ("assistant", ["Call:c1", "Call:c2", "ApprovalRequest:c1", "ApprovalRequest:c2"]),
                ("tool", ["ApprovalResponse:p", f"Result:c1={UNKNOWN}"]),
                ("assistant", ["Text:3", f"Text:{FAILED}"]),
                ("tool", ["ApprovalResponse:q"]),
            ],
            id="agreed to, its run died, and the other answer came",
        ),
        pytest.param(
            [user("go"), CUT, user("else"), assistant("3", call("c2"), result("c2"), text("done"), run_id="r2")],
            {"r3"},
            [
                *TOLD,
                ("user", ["Text:else"]),
                ("assistant", ["Call:c2"]),
                ("tool", ["Result:c2"]),
                ("assistant", ["Text:done"]),
            ],
            id="something else meanwhile, with an id used again",
        ),
        pytest.param(
            [
                user("go"),
                assistant("1", call("c1"), request("p", "c1"), run_id="r1"),
                user("and"),
                assistant("3", call("c3"), request("q", "c3"), run_id="r2"),
                message("4", "tool", response("p")),
                assistant("5", result("c1"), call("x"), result("x"), run_id="r3"),
            ],
            set(),
            [
                ("user", ["Text:go"]),
                ("assistant", ["Call:c1", "ApprovalRequest:c1"]),
                ("user", ["Text:and"]),
                ("assistant", ["Call:c3", "ApprovalRequest:c3"]),
                ("tool", ["ApprovalResponse:p"]),
                ("tool", ["Result:c1"]),
                ("assistant", ["Call:x"]),
                ("tool", ["Result:x"]),
            ],
            id="one of two questions answered, and more done then",
        ),
    ],
)
def test_every_phase_is_told(records: list[Message], active: set[str], told: object) -> None:
    """Every record is shown, a call that was cut is closed, one that may still be answered is left open."""
    shown, reasons = everywhere(records, active)
    assert shown == told
    assert set(reasons) <= {"projected", "superseded"}


def test_while_the_run_that_asked_goes_on_its_cut_calls_stay_open() -> None:
    """A call of an active run may still get its result: the record is left out until the run has ended."""
    assert everywhere([user("go"), CUT], {"r1"})[1] == ["projected", "incomplete-tool-turn"]


def test_under_barriers_the_text_of_the_rules_holds() -> None:
    """Without closing, a waiting call holds later rounds back, and the id of a finished call stays taken."""
    waits = assistant("1", call("c1"), call("c2"), request("p", "c1"), result("c2"), run_id="r1")
    later = assistant("3", call("x"), result("x"), run_id="r2")
    reasons = [d.reason for d in project_history_detailed([user("go"), waits, user("else"), later]).decisions]
    assert reasons == ["projected", "projected", "projected", "incomplete-tool-turn"]
    again = assistant("3", result("c1"), call("c2"), result("c2"), run_id="r2")
    turn = [user("go"), waits, AGREED, again]
    assert not is_complete_turn(turn)
    closing = EvidencePolicy(dangling_calls="close")
    assert is_complete_turn(turn, closing)
    options = ProjectionOptions(evidence_policy=closing)
    assert {d.reason for d in project_history_detailed(turn, options).decisions} == {"projected"}


def test_what_is_known_of_a_call_may_name_its_record() -> None:
    """Where ids of calls repeat, evidence about one says nothing about the other."""
    records = [
        user("go"),
        assistant("1", call("c"), status="failed", run_id="r1"),
        user("again"),
        assistant("3", call("c"), status="failed", run_id="r2"),
    ]
    known: dict[str | tuple[str, str], CallEvidence] = {("1", "c"): "not-started"}
    told = project_history_detailed(records, RUNTIME, effects=known)
    assert [items for role, items in shape(told.messages) if role == "tool"] == [
        ["Result:c=not started"],
        [f"Result:c={UNKNOWN}"],
    ]
    told = project_history_detailed(records, RUNTIME, effects=known | {"c": "interrupted"})
    assert [items for role, items in shape(told.messages) if role == "tool"] == [
        ["Result:c=not started"],
        ["Result:c=interrupted"],
    ]


def test_a_selection_knows_of_the_answers_it_leaves_out() -> None:
    """Who carried an agreed call out is told by all records, not by those that were kept."""
    records = [user("go"), CUT, AGREED, assistant("3", result("c1"), status="superseded", run_id="r2"), user("so")]
    history = History(map(stored, records))
    selection = history.select(10**6, evidence_policy=RUNTIME.evidence_policy, active_runs={"r3"})
    assert list(selection.kept) == [0, 1, 2, 4]
    kept = history.project(RUNTIME, active_runs={"r3"}, selection=selection)
    assert list(kept.messages) == list(history.project(RUNTIME, active_runs={"r3"}).messages)
