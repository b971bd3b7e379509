"""The window keeps its sign, and what is not known decides nothing."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import InvalidValueError, UsageError
from runlane.models import BYTE_BOUND, ModelFunction, count_tool_schemas
from runlane.prompt import (
    ContextDecision,
    OversizePolicy,
    PromptBudget,
    PromptSection,
    available_history_tokens,
    compose_prompt,
    decide_window,
    sum_tokens,
)
from runlane.records import TokenCount

UNKNOWN = TokenCount(provenance="unavailable")
known = st.builds(
    lambda value, provenance: TokenCount(value=value, provenance=provenance),
    st.integers(0, 10_000),
    st.sampled_from(["measured", "computed", "estimated"]),
)
counts = st.just(UNKNOWN) | known
policies = st.sampled_from(get_args(OversizePolicy))


def counted(value: int, provenance: str = "measured") -> TokenCount:
    """Return a count."""
    return TokenCount(value=value, provenance=provenance)  # type: ignore[arg-type]


def budget(window: int, reserved: int, tools: int = 0, attachments: int = 0, overhead: int = 0) -> PromptBudget:
    """Return a budget with measured lines and an estimated overhead."""
    return PromptBudget(
        context_window=window,
        reserved_output=reserved,
        tool_schemas=counted(tools),
        attachments=counted(attachments),
        provider_overhead=counted(overhead, "estimated"),
    )


@pytest.mark.parametrize(("policy", "decision"), [("compact", "requires-compaction"), ("reject", "oversized")])
@pytest.mark.anyio
async def test_a_history_too_large_is_compacted_or_refused(policy: OversizePolicy, decision: str) -> None:
    """Window 100, reserved 10, tools 5, overhead 5, instructions 20 leave 60; a history of 91 does not fit."""
    section = PromptSection[object](name="s", render="x", estimate_tokens=lambda _: counted(20))
    composed = await compose_prompt(
        [section], budget=budget(100, 10, 5, 0, 5), history_tokens=counted(91), oversize_policy=policy
    )
    assert (composed.available_history_tokens, composed.context_decision) == (60, decision)


@pytest.mark.parametrize("policy", ["compact", "reject"])
@pytest.mark.anyio
async def test_a_window_overdrawn_by_reservations_alone_is_oversized(policy: OversizePolicy) -> None:
    """Window 100, reserved 101: one token short, even with an empty history, and no compaction could help."""
    composed = await compose_prompt([], budget=budget(100, 101), history_tokens=counted(0), oversize_policy=policy)
    assert (composed.available_history_tokens, composed.context_decision) == (-1, "oversized")


@pytest.mark.parametrize(
    ("available", "history", "decision"),
    [(60, 60, "fits"), (60, 61, "oversized"), (0, 0, "fits"), (0, 1, "oversized"), (-1, 0, "oversized")],
)
def test_equality_fits(available: int, history: int, decision: str) -> None:
    """Nothing in a window of nothing fits; one token more than there is does not."""
    assert decide_window(available, counted(history)) == decision


@pytest.mark.parametrize(
    ("available", "history"), [(None, counted(0)), (10, None), (10, UNKNOWN), (-5, UNKNOWN), (None, None)]
)
def test_an_unknown_figure_decides_nothing(available: int | None, history: TokenCount | None) -> None:
    """Not even that the window is overdrawn, while the history is not known."""
    assert decide_window(available, history, "compact") == "unavailable"


@pytest.mark.anyio
async def test_what_is_left_is_told_although_the_history_is_not_known() -> None:
    """The figure is there, the decision is not."""
    composed = await compose_prompt([], budget=budget(100, 30))
    assert (composed.available_history_tokens, composed.context_decision) == (70, "unavailable")


@pytest.mark.parametrize("line", ["tool_schemas", "attachments", "provider_overhead"])
@pytest.mark.anyio
async def test_an_unknown_reservation_leaves_the_figure_absent(line: str) -> None:
    """All five must be known."""
    lines = {name: counted(0) for name in ("tool_schemas", "attachments", "provider_overhead")} | {line: UNKNOWN}
    known_so_far = PromptBudget(context_window=100, reserved_output=0, **lines)
    composed = await compose_prompt([], budget=known_so_far, history_tokens=counted(0))
    assert (composed.available_history_tokens, composed.context_decision) == (None, "unavailable")


@pytest.mark.anyio
async def test_unknown_instructions_leave_the_figure_absent() -> None:
    """A section nobody counted is one of the five."""
    composed = await compose_prompt(
        [PromptSection(name="s", render="x")], budget=budget(100, 0), history_tokens=counted(0)
    )
    assert (composed.available_history_tokens, composed.context_decision) == (None, "unavailable")


@pytest.mark.anyio
async def test_a_seed_takes_room_only_when_it_was_inserted() -> None:
    """Window 70, brief 40, history 40: fits before, 30 is left after, and a replay changes nothing."""
    brief = PromptSection[object](name="brief", render="b", role="user", estimate_tokens=lambda _: counted(40))
    composed = await compose_prompt([brief], budget=budget(70, 0), history_tokens=counted(40))
    assert composed.context_decision == "fits"
    assert composed.finalize_seed(True) == (30, "oversized")  # noqa: FBT003
    assert composed.finalize_seed(False) == (70, "fits")  # noqa: FBT003


@pytest.mark.anyio
async def test_a_seed_of_unknown_size_makes_the_window_unknown() -> None:
    """No figure is invented for it."""
    brief = PromptSection[object](name="brief", render="b", role="user")
    composed = await compose_prompt([brief], budget=budget(70, 0), history_tokens=counted(40))
    assert composed.finalize_seed(True) == (None, "unavailable")  # noqa: FBT003
    assert composed.finalize_seed(False) == (70, "fits")  # noqa: FBT003


@pytest.mark.anyio
async def test_tool_schemas_are_a_line_of_their_own() -> None:
    """Twenty tools beside a short chat show where the room goes, with the source of the figure."""
    schema = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(50)}}
    tools = [ModelFunction(name=f"tool_{n}", description="Does it.", parameters=schema) for n in range(20)]
    window = PromptBudget.for_request(context_window=200_000, reserved_output=1_000, functions=tools)
    composed = await compose_prompt([], budget=window, estimate=BYTE_BOUND, history_tokens=counted(50))
    line = composed.lines["tool_schemas"]
    assert line == count_tool_schemas(tools)
    assert (line.provenance, (line.value or 0) > 20_000) == ("estimated", True)
    assert composed.lines["history"] == counted(50)
    assert composed.available_history_tokens == 199_000 - (line.value or 0)


@pytest.mark.parametrize("name", ["context_window", "reserved_output"])
@pytest.mark.parametrize("bad", [-1, 2**53, 1.5, True, None])
def test_a_window_is_a_whole_number(name: str, bad: object) -> None:
    """Negative, fractional and boolean sizes are refused, and the error names the field."""
    sizes = {"context_window": 1, "reserved_output": 1, name: bad}
    with pytest.raises((InvalidValueError, UsageError)) as refused:
        PromptBudget.for_request(**sizes)  # type: ignore[arg-type]
    assert getattr(refused.value, "argument", None) == name


def test_a_reservation_is_a_token_count() -> None:
    """A bare number has no provenance."""
    with pytest.raises(UsageError) as refused:
        PromptBudget.for_request(context_window=1, reserved_output=0, attachments=0)  # type: ignore[arg-type]
    assert refused.value.argument == "attachments"


# --- properties ---------------------------------------------------------------------------------------------------


@given(parts=st.lists(counts, max_size=8))
def test_a_sum_of_counts_knows_what_its_parts_know(parts: list[TokenCount]) -> None:
    """Unknown stays unknown, a guess stays a guess, and nothing added up is called measured."""
    total = sum_tokens(parts)
    if any(part.value is None for part in parts):
        assert total == UNKNOWN
        return
    assert total.value == sum(part.value or 0 for part in parts)
    guessed = any(part.provenance == "estimated" for part in parts)
    assert total.provenance == ("estimated" if guessed else "computed")


@given(parts=st.lists(counts, max_size=6), data=st.data())
def test_a_sum_of_counts_does_not_care_for_order_or_grouping(parts: list[TokenCount], data: st.DataObject) -> None:
    """The algebra is commutative and associative."""
    shuffled = data.draw(st.permutations(parts))
    cut = data.draw(st.integers(0, len(parts)))
    assert sum_tokens(shuffled) == sum_tokens(parts)
    assert sum_tokens([sum_tokens(parts[:cut]), sum_tokens(parts[cut:])]) == sum_tokens(parts)


@given(
    window=st.integers(0, 10_000),
    reserved=st.integers(0, 10_000),
    lines=st.tuples(known, known, known),
    instructions=known,
    history=known,
    policy=policies,
)
def test_the_figure_is_the_plain_difference(
    window: int,
    reserved: int,
    lines: tuple[TokenCount, TokenCount, TokenCount],
    instructions: TokenCount,
    history: TokenCount,
    policy: OversizePolicy,
) -> None:
    """Never clamped; and whether it fits is one comparison, but for a window that is overdrawn already."""
    tools, attachments, overhead = lines
    given_budget = PromptBudget(
        context_window=window,
        reserved_output=reserved,
        tool_schemas=tools,
        attachments=attachments,
        provider_overhead=overhead,
    )
    available = available_history_tokens(given_budget, instructions)
    taken = reserved + sum(count.value or 0 for count in (*lines, instructions))
    assert available == window - taken
    decision: ContextDecision = decide_window(available, history, policy)
    assert (decision == "fits") == (0 <= (history.value or 0) <= window - taken)
    assert (decision == "requires-compaction") == (policy == "compact" and 0 <= window - taken < (history.value or 0))


@given(available=st.none() | st.integers(-100, 100), history=st.none() | counts, policy=policies, more=known)
def test_a_larger_history_never_fits_better(
    available: int | None, history: TokenCount | None, policy: OversizePolicy, more: TokenCount
) -> None:
    """Adding to a history that does not fit does not make it fit; an unknown one stays unknown."""
    before = decide_window(available, history, policy)
    after = decide_window(available, None if history is None else sum_tokens([history, more]), policy)
    if before == "fits":
        assert after in {"fits", "oversized", "requires-compaction"}
    else:
        assert after == before
