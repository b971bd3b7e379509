"""The native half against slow, obvious Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import ProjectionRefusedError
from runlane.history import (
    EvidencePolicy,
    History,
    OpenAIChatBodyWriter,
    Projection,
    ProjectionOptions,
    Selection,
    compaction_turns,
    is_complete_turn,
    project_history_detailed,
    select_compactable_history,
    select_history,
)
from runlane.models import FileItem
from runlane.models._rounds import settle_rounds
from runlane.models.openai_chat import encode_message
from runlane.records import Message, TokenCount
from tests.history.records import ACTIVE, EFFECTS, OPTIONS, POLICIES, histories, stored
from tests.oracles import selection as oracle
from tests.oracles.projection import Projector, Refused

FILE = FileItem(media_type="application/pdf", data=b"x")
FILES = st.dictionaries(
    st.tuples(st.sampled_from([f"m{n}" for n in range(10)]), st.integers(0, 2)), st.just(FILE), max_size=3
)


def assert_same(projection: Projection, expected: Projector) -> None:
    """Compare everything a projection says."""
    assert list(projection.messages) == expected.messages
    assert list(projection.system) == expected.system
    decisions = [(d.message_id, d.action, d.reason, d.omitted_parts) for d in expected.decisions]
    assert list(projection.decisions) == decisions


@given(histories(), OPTIONS, ACTIVE, EFFECTS, FILES)
def test_a_projection_is_what_the_rules_say(
    records: list[Message],
    options: ProjectionOptions,
    active: frozenset[str],
    effects: dict[str, Any],
    files: dict[tuple[str, int], FileItem],
) -> None:
    """For any records, options and context the projection is that of the oracle."""
    projection = project_history_detailed(records, options, active_runs=active, effects=effects, files=files)
    assert_same(projection, Projector(records, options, files=files, active_runs=active, effects=effects))


@given(histories(6), OPTIONS, st.sampled_from(["leading_assistant", "incomplete_tool_turn", "unresolved_file"]))
def test_a_projection_refuses_where_the_rules_say(
    records: list[Message], options: ProjectionOptions, strict: str
) -> None:
    """With an option of `error` the projection stops at the record at which the oracle does."""
    values = {name: getattr(options, name) for name in options.__dataclass_fields__}
    options = ProjectionOptions(**values | {strict: "error"})
    expected = projected_or_refused(records, options)
    if isinstance(expected, Projector):
        assert_same(project_history_detailed(records, options), expected)
        return
    with pytest.raises(ProjectionRefusedError) as raised:
        project_history_detailed(records, options)
    assert (raised.value.message_id, raised.value.reason) == expected


def projected_or_refused(records: list[Message], options: ProjectionOptions) -> Projector | tuple[str, str]:
    """The oracle's projection, or at which record it refuses and why."""
    try:
        return Projector(records, options)
    except Refused as refused:
        return refused.message_id, refused.reason


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """A life of a handle: appended, replaced, removed, inserted, asked in between."""
    spare = draw(histories(14))
    steps: list[tuple[str, Any]] = []
    for record in spare:
        kind = draw(st.sampled_from(["append"] * 6 + ["replace", "remove", "insert", "ask", "ask"]))
        steps.append((kind, (record, draw(st.integers(0, 13)))))
    return steps


def applied(history: History, kept: list[Message], kind: str, record: Message, place: int) -> None:
    """Do one step on the handle and on the list beside it."""
    place = min(place, len(kept) - 1)
    if kind == "replace" and kept:
        newer = record.model_copy(update={"id": kept[place].id})
        assert history.replace(stored(newer)) == place
        kept[place] = newer
    elif kind == "remove" and kept:
        history.remove([kept[place].id])
        del kept[place]
    elif kind == "insert":
        history.insert(max(0, place), stored(record))
        kept.insert(max(0, place), record)
    elif kind != "ask":
        assert history.append(stored(record)) == len(kept)
        kept.append(record)


def counts_of(kept: list[Message]) -> dict[str, TokenCount]:
    """Some counts, unknown for a few."""
    return {
        record.id: TokenCount(provenance="unavailable")
        if record.id == "m9"
        else TokenCount(value=int(record.id[1:]) % 4, provenance="measured")
        for record in kept
    }


@given(edits(), OPTIONS, st.lists(st.tuples(ACTIVE, EFFECTS, FILES), min_size=1, max_size=3))
def test_a_handle_never_remembers_wrongly(
    steps: list[tuple[str, Any]],
    options: ProjectionOptions,
    contexts: list[tuple[frozenset[str], dict[str, Any], Mapping[tuple[str, int], FileItem]]],
) -> None:
    """However a handle came to its records, and whatever it was asked before, it answers as a new one would."""
    history, kept, writer = History(), list[Message](), OpenAIChatBodyWriter()
    for turn, (kind, (record, place)) in enumerate(steps):
        applied(history, kept, kind, record, place)
        active, effects, files = contexts[turn % len(contexts)]
        options = replace(options, provider=(options.provider, "anthropic", None)[turn % 4 % 3])
        if turn % 3 != 1:
            projection = history.project(options, active_runs=active, effects=effects, files=files)
            assert_same(projection, Projector(kept, options, files=files, active_runs=active, effects=effects))
            pieces = {key: json.dumps({"turn": turn}).encode() for key in files}
            written = writer.body(projection.messages, b"[", b"]", pieces=pieces)
            assert written == projection.messages.openai_chat_body(b"[", b"]", pieces=pieces)
        if turn % 3 != 2:
            history.give_counts("t", counts_of(kept))
            selected = history.select(
                place,
                counter="t",
                evidence_policy=options.evidence_policy,
                active_runs=active,
                keep_recent_turns=turn % 3,
            )
            expected = oracle.select(
                kept,
                [counts_of(kept)[r.id] for r in kept],
                place,
                keep_recent_turns=turn % 3,
                policy=options.evidence_policy,
                active_runs=active,
            )
            assert_same_selection(selected, expected)
            chosen = history.project(options, active_runs=active, effects=effects, selection=selected)
            seen = [kept[i] for i in expected.kept]
            assert_same(chosen, Projector(seen, options, active_runs=active, effects=effects, known=kept))
    assert [history.record(i) for i in range(len(history))] == [stored(record) for record in kept]


def assert_same_selection(selected: Selection, expected: oracle.Selected) -> None:
    """Compare everything a selection says."""
    assert selected.outcome == expected.outcome
    assert list(selected.kept) == expected.kept
    assert selected.total_tokens == expected.total
    assert list(selected.decisions) == expected.decisions


COUNTS = st.one_of(
    st.builds(TokenCount, value=st.integers(0, 5), provenance=st.sampled_from(["measured", "measured", "estimated"])),
    st.builds(TokenCount, value=st.integers(0, 5), provenance=st.just("measured")),
    st.builds(TokenCount, value=st.integers(0, 5), provenance=st.just("measured")),
    st.builds(TokenCount, value=st.integers(0, 5), provenance=st.just("measured")),
    st.just(TokenCount(provenance="unavailable")),
)


@given(histories(), st.lists(COUNTS, min_size=10, max_size=10), st.integers(0, 30), st.integers(0, 3), POLICIES, ACTIVE)
def test_a_selection_is_what_the_rules_say(
    records: list[Message],
    counts: list[TokenCount],
    available: int,
    keep: int,
    policy: EvidencePolicy,
    active: frozenset[str],
) -> None:
    """For any records, counts and limits the selection is that of the oracle."""
    by_id = {record.id: count for record, count in zip(records, counts, strict=False)}
    selected = select_history(
        records,
        available,
        lambda record: by_id[record.id],
        keep_recent_turns=keep,
        evidence_policy=policy,
        active_runs=active,
    )
    expected = oracle.select(
        records, counts[: len(records)], available, keep_recent_turns=keep, policy=policy, active_runs=active
    )
    assert_same_selection(selected, expected)
    assert list(selected.messages) == [records[i] for i in expected.kept]


@given(histories(), st.integers(0, 3), POLICIES, ACTIVE)
def test_what_may_be_compacted_is_what_the_rules_say(
    records: list[Message], keep: int, policy: EvidencePolicy, active: frozenset[str]
) -> None:
    """For any records the compactable prefix, the turns and their completeness are those of the oracle."""
    found = select_compactable_history(records, keep, evidence_policy=policy, active_runs=active)
    start, end = oracle.compactable(records, keep, policy, active)
    assert (list(found.compactable), list(found.retained)) == (records[start:end], records[end:])
    assert (found.leading_summary is None) == (start == 0)
    turns = oracle.compaction_turns(records)
    assert compaction_turns(records) == tuple(tuple(records[i] for i in turn) for turn in turns)
    for turn in turns:
        alone = [records[i] for i in turn]
        expected = oracle.is_complete(alone, range(len(alone)), policy, active)
        assert is_complete_turn(alone, policy, active_runs=active) == expected


@given(histories(), OPTIONS)
def test_a_body_is_what_the_encoder_writes(records: list[Message], options: ProjectionOptions) -> None:
    """The body copied from stored text says what the wire encoder says, each round's results behind its calls."""
    projection = History(map(stored, records)).project(options)
    body = json.loads(projection.messages.openai_chat_body(b"[", b"]"))
    fragments = [encoded for message in settle_rounds(projection.messages) if (encoded := encode_message(message))]
    assert body == json.loads(b"[" + b",".join(fragments) + b"]")
