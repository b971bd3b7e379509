"""What somebody who watches sees: a test for each row of the reducer's table, and what holds for any stream."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.delivery import (
    ControlView,
    ConversationCursor,
    Gap,
    RunPosition,
    RuntimeEvent,
    StreamingRun,
    StreamingTool,
    ToolReport,
    reduce_control_event,
)
from runlane.records import Snapshot
from tests.delivery.telling import (
    delta,
    one_of_each,
    progress,
    reasoning,
    reset,
    snapshot,
    state,
    terminal,
    tool_status,
)


def fold(
    given_: Iterable[Snapshot | RuntimeEvent | Gap], views: Mapping[str, ControlView] | None = None
) -> Mapping[str, ControlView]:
    """Return the views after everything that came."""
    views = views or {}
    for one in given_:
        views = reduce_control_event(views, one)
    return views


def seen(*given_: Snapshot | RuntimeEvent | Gap) -> ControlView:
    """Return the one view after everything that came."""
    return fold(given_)["c"]


def test_a_snapshot_is_kept_and_everything_starts_from_it() -> None:
    """Its version goes into the cursor, ids are cleared, no resync is needed, nothing streams; sequences go on."""
    view = seen(state(3), delta(1), snapshot(4))
    cursor = ConversationCursor(snapshot_version=4, runs={"r": RunPosition("e", 1)})
    assert view == ControlView(snapshot=snapshot(4), cursor=cursor)
    assert reduce_control_event({"c": view}, delta(2))["c"].streaming["r"].text == "x"


def test_a_snapshot_older_than_what_was_seen_leaves_the_resync_on() -> None:
    """A load that was overtaken by an event cannot hide what it lacks."""
    view = seen(snapshot(3), state(5), snapshot(4))
    assert (view.snapshot, view.resync_required, view.cursor.snapshot_version) == (snapshot(4), True, 5)
    assert seen(snapshot(3), state(5), snapshot(5)).resync_required is False


@pytest.mark.parametrize("event", [state(4), delta(1)], ids=["durable", "transient"])
def test_a_duplicate_changes_nothing(event: RuntimeEvent) -> None:
    """What was seen is not applied again: the very same views come back."""
    views = fold([snapshot(4), delta(1), state(4)])
    assert reduce_control_event(views, event) is views


def test_a_gap_advances_the_cursor_asks_for_a_resync_and_applies_nothing() -> None:
    """Text after a hole would read as if it were whole."""
    view = seen(snapshot(4), delta(1, "a"), delta(3, "c"))
    assert view.streaming["r"].text == "a"
    assert (view.resync_required, view.cursor.runs["r"].sequence) == (True, 3)


@pytest.mark.parametrize("reason", ["slow", "retention", "ahead"])
def test_the_news_of_a_loss_asks_for_a_resync(reason: str) -> None:
    """An explicit gap of a subscription counts like one that was noticed."""
    view = seen(snapshot(4), Gap(conversation_id="c", reason=reason))  # type: ignore[arg-type]
    assert view == ControlView(
        snapshot=snapshot(4), resync_required=True, cursor=ConversationCursor(snapshot_version=4)
    )


def test_deltas_are_appended_text_and_reasoning_apart() -> None:
    """Both grow in the order they came."""
    view = seen(snapshot(4), delta(1, "Hel"), reasoning(2, "hm"), delta(3, "lo"), reasoning(4, "m"))
    assert view.streaming["r"] == StreamingRun(text="Hello", reasoning="hmm")


def test_an_attempt_reset_withdraws_what_streamed() -> None:
    """Text, reasoning and calls of the run are gone; what follows counts anew, without a gap."""
    view = seen(snapshot(4), delta(1), reasoning(2, "hm"), tool_status(3, "started"), reset(4), delta(5, "new"))
    assert view.streaming["r"] == StreamingRun(text="new")
    assert view.resync_required is False


def test_the_last_report_of_a_call_is_kept() -> None:
    """A later report takes the place of an earlier one; the input stays."""
    view = seen(snapshot(4), tool_status(1, "started"), progress(2, "half"), progress(3, "most"))
    expected = StreamingTool(tool_name="look", input={"at": 1}, report=ToolReport("most"))
    assert view.streaming["r"].tools == {"t": expected}


@pytest.mark.parametrize("status", ["completed", "failed", "interrupted"])
def test_the_end_of_a_call_removes_its_report(status: str) -> None:
    """An ended call keeps input, output and status; a report that comes later is nothing."""
    view = seen(
        snapshot(4), tool_status(1, "started"), progress(2, "half"), tool_status(3, status), progress(4, "late")
    )
    tool = view.streaming["r"].tools["t"]
    assert (tool.status, tool.report, tool.input, tool.output) == (status, None, {"at": 1}, {"seen": 2})


def test_a_report_of_an_unknown_call_begins_it() -> None:
    """Whoever came later sees the call from its first report on."""
    assert seen(snapshot(4), progress(1, "half")).streaming["r"].tools["t"].report == ToolReport("half")


@pytest.mark.parametrize(
    ("first", "version", "required"),
    [(snapshot(4), 4, False), (snapshot(4), 5, True), (None, 4, True)],
    ids=["same version", "another version", "no snapshot"],
)
def test_a_durable_event_of_another_version_asks_for_a_resync(
    first: Snapshot | None, version: int, *, required: bool
) -> None:
    """The snapshot that is held says less than the conversation by now."""
    view = seen(*([] if first is None else [first]), state(version))
    assert view.resync_required is required


def test_a_terminal_event_ends_the_streaming_of_its_run_alone() -> None:
    """The answer is in the record now; another run's text stays."""
    view = seen(snapshot(4), delta(1, run_id="r"), delta(1, run_id="s"), terminal(5))
    assert set(view.streaming) == {"s"}
    assert view.resync_required is True


def test_events_that_show_nothing_only_move_the_cursor() -> None:
    """The begin and end of reasoning are positions in the stream, no content."""
    for event in one_of_each()[6:9:2]:
        view = seen(snapshot(4), delta(1), delta(2), event)
        assert view.streaming["r"] == StreamingRun(text="xx")
        assert view.cursor.runs["r"].sequence == 3


def test_conversations_are_seen_apart() -> None:
    """An event of one conversation leaves the views of others as they are."""
    views = fold([delta(1, conversation_id="a"), delta(1, conversation_id="b")])
    after = reduce_control_event(views, delta(2, conversation_id="a"))
    assert after["b"] is views["b"]
    assert after["a"].streaming["r"].text == "xx"


_SEQUENCES = st.lists(st.integers(1, 12), max_size=14)


@given(sequences=_SEQUENCES)
def test_text_is_never_doubled_out_of_order_or_joined_over_a_hole(sequences: list[int]) -> None:
    """Whatever arrives in whatever order, text is a contiguous beginning, or a resync is required."""
    view = fold([snapshot(1), *(delta(number, f"<{number}>") for number in sequences)])["c"]
    text = view.streaming["r"].text if "r" in view.streaming else ""
    whole = "".join(f"<{number}>" for number in range(1, 13))
    assert view.resync_required or whole.startswith(text)
    if not view.resync_required and sequences:
        assert view.cursor.runs["r"].sequence == max(sequences)
        assert text == "".join(f"<{number}>" for number in range(1, max(sequences) + 1))


@given(data=st.data())
def test_what_is_told_twice_is_seen_once(data: st.DataObject) -> None:
    """A stream with any events repeated later folds to the same views as without the repetition."""
    events: list[RuntimeEvent] = [
        state(2),
        delta(1, "a"),
        tool_status(2, "started"),
        progress(3, "half"),
        state(4),
        tool_status(4, "completed"),
        delta(5, "b"),
        reset(6),
        delta(7, "c"),
    ]
    if data.draw(st.booleans()):
        events.append(terminal(6))
    repeated: list[RuntimeEvent] = []
    for place, event in enumerate(events):
        repeated.append(event)
        repeated.extend(data.draw(st.lists(st.sampled_from(events[: place + 1]), max_size=3)))
    assert fold(repeated) == fold(events)
