"""An approval that was answered turns later holds its turns together, and holds nothing up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.history import (
    BARE_EVIDENCE,
    RUNTIME_EVIDENCE,
    CompactionBarrier,
    EvidencePolicy,
    History,
    compaction_barrier,
    select_compactable_history,
)
from runlane.records import Message
from tests.history.records import assistant as a
from tests.history.records import call, message, request, response, result, stored
from tests.history.records import user as u
from tests.oracles import selection as oracle


def consent(message_id: str, approval_id: str) -> Message:
    """A person's answer."""
    return message(message_id, "tool", response(approval_id))


LATE = [
    u("u1"),
    a("a1", call("k"), request("p", "k")),
    u("u2"),
    a("a2"),
    u("u3"),
    a("a3"),
    consent("t3", "p"),
    a("a4", result("k")),
    u("u5"),
    a("a5"),
]


def compacted(records: list[Message], keep: int, policy: EvidencePolicy = RUNTIME_EVIDENCE) -> list[str]:
    """Return the ids of what may be replaced, the same from a list and from a handle."""
    found = select_compactable_history(records, keep, evidence_policy=policy)
    handle = History(map(stored, records))
    leads, start, end = handle.compactable(keep, evidence_policy=policy)
    assert [record.id for record in found.compactable] == list(handle.message_ids[start:end])
    assert leads is (found.leading_summary is not None)
    return [record.id for record in found.compactable]


@pytest.mark.parametrize(
    ("keep", "last"), [(0, "a5"), (1, "a4"), (2, None)], ids=["all", "all but the newest", "the unit counts once"]
)
def test_from_the_question_to_its_answer_is_one_unit(keep: int, last: str | None) -> None:
    """It leaves whole or not at all, and counts as one of the recent turns."""
    ids = [record.id for record in LATE]
    assert compacted(LATE, keep) == (ids[: ids.index(last) + 1] if last else [])


def test_an_approval_nobody_answered_is_a_barrier() -> None:
    """However many turns follow."""
    records = [u("u0"), a("a0"), *LATE[:6]]
    assert compacted(records, 0) == ["u0", "a0"]
    barrier = compaction_barrier(records, evidence_policy=RUNTIME_EVIDENCE)
    assert barrier == CompactionBarrier("u1", "pending-approval")


def test_under_the_plain_policy_it_stays_a_barrier() -> None:
    """The bare functions keep to the turn alone."""
    assert compacted(LATE, 0, BARE_EVIDENCE) == []


def test_questions_within_a_unit_make_it_longer() -> None:
    """A second question asked before the first is answered, and answered after it, is part of the same unit."""
    records = [
        *LATE[:3],
        a("a2", call("l"), request("q", "l")),
        *LATE[4:8],
        u("u6"),
        a("a6"),
        consent("t6", "q"),
        a("a7", result("l")),
        u("u8"),
        a("a8"),
    ]
    ids = [record.id for record in records]
    assert compacted(records, 1) == ids[: ids.index("a7") + 1]
    assert compacted(records[: ids.index("t6")], 0) == []


def test_a_consent_whose_run_died_is_closed() -> None:
    """The answer came, the result never did: with its runs ended the call is closed and the unit complete."""
    records = [*LATE[:7], *LATE[8:]]
    assert compacted(records, 0) == [record.id for record in records]
    still = select_compactable_history(records[:7], 0, evidence_policy=RUNTIME_EVIDENCE, active_runs={"r"})
    assert still.compactable == ()


def test_a_late_answer_that_does_not_fit_stays_a_barrier() -> None:
    """An answer given twice adds up to nothing."""
    records = [*LATE[:8], consent("t9", "p"), *LATE[8:]]
    assert compacted(records, 0) == []


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([message("s1", "system"), u("u1"), a("a1")], "no-user-input"),
        ([u("u1"), a("a1", status="streaming")], "active-run"),
        ([u("u1")], "unanswered-input"),
        ([u("u1"), a("a1", status="failed")], "not-evidence"),
        ([u("u1"), a("a1", call("k"))], "open-call"),
        ([u("u1"), a("a1", call("k"), result("k"), result("k"))], "tool-chronology"),
    ],
)
def test_a_barrier_has_a_reason(records: list[Message], reason: str) -> None:
    """What stops compaction is named with the first message of its turn."""
    assert compaction_barrier(records) == CompactionBarrier(records[0].id, reason)  # type: ignore[arg-type]


def test_complete_turns_have_no_barrier() -> None:
    """Nothing is in the way."""
    assert compaction_barrier([u("u1"), a("a1"), u("u2"), a("a2")]) is None


@st.composite
def talks(draw: st.DrawFn) -> list[Message]:
    """Turns of which some ask for consent, and some answer what an earlier one asked."""
    records: list[Message] = []
    waiting: list[int] = []
    for number in range(draw(st.integers(1, 8))):
        records.append(u(f"u{number}"))
        kind = draw(st.sampled_from(["plain", "asks", "answers", "answers", "dies", "fails"]))
        if kind == "asks":
            waiting.append(number)
            records.append(a(f"a{number}", call(f"k{number}"), request(f"p{number}", f"k{number}")))
            continue
        records.append(a(f"a{number}", status="failed" if kind == "fails" else "completed"))
        if kind in {"answers", "dies"} and waiting:
            asked = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
            records.append(consent(f"t{number}", f"p{asked}"))
            parts = (result(f"k{asked}"),) if kind == "answers" else ()
            records.append(a(f"b{number}", *parts, status="completed" if parts else "failed"))
    return records


@given(records=talks(), keep=st.integers(0, 4), close=st.booleans(), runs=st.sampled_from([(), ("r",)]))
def test_units_are_those_of_the_rules_and_tear_nothing(
    records: list[Message],
    keep: int,
    close: bool,  # noqa: FBT001
    runs: tuple[str, ...],
) -> None:
    """For any late answers: what the slow rules say, and no answer or result loses its call."""
    policy = RUNTIME_EVIDENCE if close else BARE_EVIDENCE
    found = select_compactable_history(records, keep, evidence_policy=policy, active_runs=frozenset(runs))
    start, end = oracle.compactable(records, keep, policy, frozenset(runs))
    assert list(found.compactable) == records[start:end]
    gone = {part.call_id for record in found.compactable for part in record.parts if part.type == "tool-call"}
    kept = {part.call_id for record in found.retained for part in record.parts if part.type == "tool-call"}
    assert not {p.call_id for r in found.retained for p in r.parts if p.type == "tool-result"} & gone
    assert not {p.call_id for r in found.compactable for p in r.parts if p.type == "tool-result"} & kept
