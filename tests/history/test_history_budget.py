"""What fits a token budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import InvalidValueError, UsageError
from runlane.history import (
    EvidencePolicy,
    History,
    OpenAITokens,
    count_tool_schemas,
    project_history,
    select_compactable_history,
    select_history,
)
from runlane.models import ModelFunction
from runlane.records import Message, TokenCount, ToolCallPart, ToolResultPart
from tests.history.records import (
    ACTIVE,
    POLICIES,
    assistant,
    call,
    histories,
    message,
    request,
    response,
    result,
    stored,
    text,
    user,
)

ONE = TokenCount(value=1, provenance="measured")
UNKNOWN = TokenCount(provenance="unavailable")


def one(_: Message) -> TokenCount:
    """Every record counts 1."""
    return ONE


def test_the_oldest_turn_goes_first_and_instructions_stay() -> None:
    """The worked example: a system record and the newest turn are protected."""
    records = [message("S", "system", text("be kind")), user("U1"), assistant("A1"), user("U2"), assistant("A2")]
    selected = select_history(records, 3, one)
    assert selected.outcome == "truncated"
    assert selected.total_tokens == TokenCount(value=3, provenance="computed")
    assert [(d.message_id, d.action, d.reason) for d in selected.decisions] == [
        ("S", "kept", "protected-system"),
        ("U1", "removed", "oldest-eligible-turn"),
        ("A1", "removed", "oldest-eligible-turn"),
        ("U2", "kept", "protected-recent-turn"),
        ("A2", "kept", "protected-recent-turn"),
    ]
    assert [record.id for record in selected.messages] == ["S", "U2", "A2"]


def test_a_turn_that_a_handle_already_asked_about_still_grows_over_a_change_of_conversation() -> None:
    """Asked after each record or once at the end, a budget finds the same turns, whoever's records they hold."""
    foreign = assistant("A0", status="superseded", conversation_id="other")
    records = [user("U1"), foreign, assistant("A1"), user("U2"), assistant("A2")]
    grown = History()
    for record in records:
        grown.append(stored(record))
        grown.give_counts("t", {record.id: ONE})
        grown.select(2, counter="t", keep_recent_turns=1)
    expected = select_history(records, 2, one, keep_recent_turns=1)
    assert list(grown.select(2, counter="t", keep_recent_turns=1).kept) == list(expected.kept) == [3, 4]


@pytest.mark.parametrize(
    ("superseded", "outcome", "first"),
    [("barrier", "oversized", "protected-incomplete-turn"), ("drop", "truncated", "oldest-eligible-turn")],
)
def test_a_superseded_answer_leaves_its_question(superseded: str, outcome: str, first: str) -> None:
    """The worked example: the question is real history; whether its turn can go is the policy's to say."""
    records = [
        user("U1"),
        assistant("A1", status="superseded"),
        user("U2"),
        assistant("A2"),
        user("U3"),
        assistant("A3"),
    ]
    policy = EvidencePolicy(superseded=superseded)  # type: ignore[arg-type]
    selected = select_history(records, 2, one, evidence_policy=policy)
    assert selected.outcome == outcome
    assert [d.reason for d in selected.decisions] == [
        first,
        "superseded",
        "oldest-eligible-turn",
        "oldest-eligible-turn",
        "protected-recent-turn",
        "protected-recent-turn",
    ]


def test_an_approval_turn_goes_as_one() -> None:
    """The worked example: a turn of four records with an approval in it is removed whole."""
    records = [
        user("U"),
        assistant("1", call("a"), request("p", "a")),
        message("2", "tool", response("p")),
        assistant("3", result("a"), text("done")),
        user("U'"),
        assistant("A'"),
    ]
    selected = select_history(records, 2, one)
    assert selected.outcome == "truncated"
    assert list(selected.kept) == [4, 5]


def test_a_result_is_never_kept_without_its_call() -> None:
    """A budget for the last three items keeps a call and its result together or removes both, and says why."""
    records = [user("1"), assistant("2", call("a"), result("a"), text("ok")), user("3"), assistant("4")]
    selected = select_history(records, 3, one, keep_recent_turns=0)
    assert [d.action for d in selected.decisions] == ["removed", "removed", "kept", "kept"]
    assert {d.reason for d in selected.decisions[:2]} == {"oldest-eligible-turn"}


def test_no_recent_turn_is_protected_when_none_is_asked_for() -> None:
    """`keep_recent_turns=0` protects no turn."""
    selected = select_history([user("1"), assistant("2")], 0, one, keep_recent_turns=0)
    assert (selected.outcome, list(selected.kept)) == ("truncated", [])


def test_an_unknown_count_makes_no_sum() -> None:
    """At the first unknown count nothing more is counted, nothing removed, and no total is given."""
    asked: list[str] = []

    def count(record: Message) -> TokenCount:
        asked.append(record.id)
        return UNKNOWN if record.id == "2" else ONE

    records = [user("1"), assistant("x", status="superseded"), assistant("2"), user("3")]
    selected = select_history(records, 0, count)
    assert asked == ["1", "2"]
    assert (selected.outcome, selected.total_tokens) == ("unavailable", UNKNOWN)
    assert [(d.action, d.reason, d.tokens) for d in selected.decisions] == [
        ("kept", "token-count-unavailable", ONE),
        ("removed", "superseded", UNKNOWN),
        ("kept", "token-count-unavailable", UNKNOWN),
        ("kept", "token-count-unavailable", UNKNOWN),
    ]


def test_an_estimate_anywhere_makes_the_total_an_estimate() -> None:
    """The total is estimated if any counted record was, also one that was removed."""
    guess = TokenCount(value=5, provenance="estimated")
    records = [user("1"), assistant("2"), user("3"), assistant("4")]
    selected = select_history(records, 2, lambda record: guess if record.id == "1" else ONE)
    assert selected.total_tokens == TokenCount(value=2, provenance="estimated")


@pytest.mark.parametrize(("value", "error"), [(-1, InvalidValueError), (2**53, InvalidValueError), (1.5, UsageError)])
def test_numbers_are_checked(value: int, error: type[Exception]) -> None:
    """A negative, huge or fractional number is refused, wherever it is given."""
    with pytest.raises(error, match="available_tokens"):
        select_history([], value, one)
    with pytest.raises(error, match="keep_recent_turns"):
        select_history([], 0, one, keep_recent_turns=value)
    with pytest.raises(error, match="keep_recent_turns"):
        select_compactable_history([], value)


# --- counting -----------------------------------------------------------------------------------------------------


def test_a_text_of_digits_and_newlines_is_not_underestimated() -> None:
    """The text that characters divided by three got to a third of the truth."""
    said = "1\n" * 30_000
    history = History([stored(user("m", text(said)))])
    bound = history.select(10**9).total_tokens
    exact = history.select(10**9, counter=OpenAITokens()).total_tokens
    assert (bound.provenance, exact.provenance) == ("estimated", "computed")
    assert (bound.value or 0) >= (exact.value or 0) >= 60_000


def test_each_count_says_where_it_is_from() -> None:
    """A tokenizer's counts are measured, the bound's estimated, and each record is counted once per tokenizer."""
    history = History([stored(user("m", text("Hello, world!")))])
    counter = OpenAITokens()
    for _ in range(2):
        [decision] = history.select(100, counter=counter).decisions
        assert decision.tokens == TokenCount(value=counter.count("Hello, world!") + 4, provenance="measured")
    assert history.uncounted("o200k_base") == ()
    assert history.select(100).decisions[0].tokens.provenance == "estimated"
    history.replace(stored(user("m", text("Bye"))))
    assert history.uncounted("o200k_base") == ("m",)


def test_tool_schemas_are_a_line_of_their_own() -> None:
    """Twenty tools with large schemas beside a short chat are counted apart from it."""
    schema = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(30)}}
    tools = [ModelFunction(name=f"tool_{n}", description="Does things.", parameters=schema) for n in range(20)]
    schemas = count_tool_schemas(tools, OpenAITokens())
    history = History([stored(user("m", text("Hi")))])
    selected = history.select(100, counter=OpenAITokens(), tool_schemas=schemas)
    assert selected.tool_schemas == schemas
    assert (schemas.value or 0) > 5_000 > (selected.total_tokens.value or 0)
    assert schemas.provenance == "computed"
    assert count_tool_schemas(tools).provenance == "estimated"


# --- whatever the records are -------------------------------------------------------------------------------------


@given(histories(), st.lists(st.integers(0, 5), min_size=10, max_size=10), st.integers(0, 25), POLICIES, ACTIVE)
def test_a_selection_keeps_its_promises(
    records: list[Message],
    sizes: list[int],
    available: int,
    policy: EvidencePolicy,
    active: frozenset[str],
) -> None:
    """Order is kept, the limit holds unless it says oversized, and a larger limit never keeps less."""
    size = {record.id: TokenCount(value=n, provenance="measured") for record, n in zip(records, sizes, strict=False)}

    def selected(limit: int) -> list[int]:
        result_ = select_history(
            records, limit, lambda record: size[record.id], evidence_policy=policy, active_runs=active
        )
        kept = list(result_.kept)
        assert kept == sorted(set(kept))
        total = sum(size[records[place].id].value or 0 for place in kept)
        assert result_.total_tokens.value == total
        assert (total > limit) == (result_.outcome == "oversized")
        return kept

    assert set(selected(available)) <= set(selected(available + 3))


@given(histories(), st.integers(0, 25), POLICIES)
def test_what_a_budget_keeps_never_has_a_result_without_its_call(
    records: list[Message], available: int, policy: EvidencePolicy
) -> None:
    """After any selection the projection is one that providers take, results never without their calls."""
    kept = select_history(records, available, one, evidence_policy=policy).messages
    same = [record for record in kept if record.conversation_id == "c"]
    known: set[str] = set()
    for said in project_history(same):
        for item in said.items:
            if isinstance(item, ToolCallPart):
                known.add(item.call_id)
            if isinstance(item, ToolResultPart):
                assert item.call_id in known
