"""Cursors: a test for each row of their table, and what holds for any stream."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.delivery import (
    ConversationCursor,
    CursorAdvance,
    DurableEvent,
    EventCursor,
    RuntimeEvent,
    advance_conversation_cursor,
    advance_event_cursor,
    durable_event_id,
)
from tests.delivery.telling import AT, delta, one_of_each, state, terminal

_AT_FIVE = EventCursor(
    snapshot_version=5, durable_event_ids=frozenset({"r:run-state:5"}), runtime_epoch="e", sequence=7
)


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: str(event.type))
def test_every_event_says_whose_it_is_when_it_was_and_where_it_stands(event: RuntimeEvent) -> None:
    """Durable events carry id and version, transient ones epoch and sequence, none both."""
    assert (event.conversation_id, event.run_id, event.emitted_at) == ("c", "r", AT)
    if isinstance(event, DurableEvent):
        assert event.event_id == durable_event_id("r", event.type, 3) == f"r:{event.type}:3"
        assert not hasattr(event, "sequence")
    else:
        assert (event.runtime_epoch, event.sequence) == ("e", 3)
        assert not hasattr(event, "snapshot_version")


def test_the_types_of_events_are_the_twelve_of_the_table() -> None:
    """Five durable types and seven transient ones, each with its own name."""
    assert [event.type for event in one_of_each()] == [
        "admission",
        "run-state",
        "run-operation",
        "assistant-checkpoint",
        "terminal",
        "assistant-delta",
        "reasoning-start",
        "reasoning-delta",
        "reasoning-end",
        "tool-status",
        "tool-progress",
        "attempt-reset",
    ]


def _unchanged(advance: CursorAdvance[EventCursor]) -> bool:
    return advance == CursorAdvance("duplicate", _AT_FIVE)


def test_a_durable_event_of_a_lower_version_is_a_duplicate() -> None:
    """What lies before the cursor was seen."""
    assert _unchanged(advance_event_cursor(_AT_FIVE, state(4)))


def test_a_durable_event_seen_at_the_same_version_is_a_duplicate() -> None:
    """The same event told twice counts once."""
    assert _unchanged(advance_event_cursor(_AT_FIVE, state(5)))


def test_another_durable_event_of_the_same_version_is_accepted() -> None:
    """One commit may tell several things; each is remembered."""
    advance = advance_event_cursor(_AT_FIVE, terminal(5))
    ids = frozenset({"r:run-state:5", "r:terminal:5"})
    assert advance == CursorAdvance("accepted", replace(_AT_FIVE, durable_event_ids=ids))


@pytest.mark.parametrize("version", [6, 7, 500])
def test_a_durable_event_of_a_higher_version_is_accepted_at_any_distance(version: int) -> None:
    """Versions of other runs lie between; the seen ids start again."""
    advance = advance_event_cursor(_AT_FIVE, state(version))
    ids = frozenset({f"r:run-state:{version}"})
    assert advance == CursorAdvance("accepted", replace(_AT_FIVE, snapshot_version=version, durable_event_ids=ids))


@pytest.mark.parametrize("sequence", [1, 6, 7])
def test_a_transient_event_up_to_the_last_sequence_is_a_duplicate(sequence: int) -> None:
    """What has that number in the same epoch was seen."""
    assert _unchanged(advance_event_cursor(_AT_FIVE, delta(sequence)))


def test_the_next_transient_event_is_accepted() -> None:
    """One more in the same epoch."""
    assert advance_event_cursor(_AT_FIVE, delta(8)) == CursorAdvance("accepted", replace(_AT_FIVE, sequence=8))


@pytest.mark.parametrize("sequence", [9, 100])
def test_a_transient_event_further_on_is_a_gap_and_the_cursor_advances(sequence: int) -> None:
    """Something between was lost; what follows is measured from here."""
    advance = advance_event_cursor(_AT_FIVE, delta(sequence))
    assert advance == CursorAdvance("gap", replace(_AT_FIVE, sequence=sequence))
    assert advance_event_cursor(advance.cursor, delta(sequence + 1)).status == "accepted"


@pytest.mark.parametrize("cursor", [_AT_FIVE, EventCursor()], ids=["another epoch", "no epoch"])
@pytest.mark.parametrize("sequence", [1, 3, 99])
def test_a_transient_event_of_another_epoch_is_accepted_at_any_sequence(cursor: EventCursor, sequence: int) -> None:
    """Another executor counts anew."""
    advance = advance_event_cursor(cursor, delta(sequence, epoch="f"))
    assert advance == CursorAdvance("accepted", replace(cursor, runtime_epoch="f", sequence=sequence))


@pytest.mark.parametrize(("sequence", "status"), [(1, "accepted"), (2, "gap"), (9, "gap")])
def test_the_first_transient_event_of_a_run_must_be_number_one(sequence: int, status: str) -> None:
    """A cursor over all runs of a conversation sees each from its beginning; else something was lost."""
    advance = advance_conversation_cursor(ConversationCursor(), delta(sequence))
    assert advance.status == status
    assert advance_conversation_cursor(advance.cursor, delta(sequence + 1)).status == "accepted"


def test_runs_of_a_conversation_are_counted_apart_and_its_versions_together() -> None:
    """Two runs have their own sequences; a version seen of one is seen."""
    cursor = ConversationCursor()
    for event in (delta(1, run_id="a"), delta(1, run_id="b"), delta(2, run_id="a"), state(4, run_id="a")):
        advance = advance_conversation_cursor(cursor, event)
        assert advance.status == "accepted"
        cursor = advance.cursor
    assert advance_conversation_cursor(cursor, state(3, run_id="b")).status == "duplicate"
    assert advance_conversation_cursor(cursor, state(4, run_id="b")).status == "accepted"
    assert advance_conversation_cursor(cursor, delta(4, run_id="a")).status == "gap"


def _told(count: int) -> list[RuntimeEvent]:
    """A run's events in order: two durable ones at every other version, transients between."""
    events: list[RuntimeEvent] = []
    for number in range(1, count + 1):
        events.extend((delta(number), state(2 * number)))
    return [*events, terminal(2 * count)]


@given(count=st.integers(1, 6), data=st.data())
def test_whatever_is_told_again_changes_nothing(count: int, data: st.DataObject) -> None:
    """Any event repeated at any later place is a duplicate, and the cursor is as without it."""
    events = _told(count)
    cursor = EventCursor()
    for place, event in enumerate(events):
        advance = advance_event_cursor(cursor, event)
        assert advance.status == "accepted"
        cursor = advance.cursor
        for again in data.draw(st.lists(st.sampled_from(events[: place + 1]), max_size=4)):
            assert advance_event_cursor(cursor, again) == CursorAdvance("duplicate", cursor)


@given(count=st.integers(1, 8), lost=st.sets(st.integers(1, 8)))
def test_a_lost_transient_event_shows_at_the_next_one(count: int, lost: set[int]) -> None:
    """Between two transient events that arrive there is a gap exactly when one between them did not."""
    cursor, last = EventCursor(), None
    for number in range(1, count + 1):
        if number in lost:
            continue
        advance = advance_event_cursor(cursor, delta(number))
        assert (advance.status == "gap") == (last is not None and number > last + 1)
        cursor, last = advance.cursor, number
