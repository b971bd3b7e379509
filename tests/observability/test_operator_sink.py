"""The sink of operator events: a test for each thing it does on the way, on both loops."""

from dataclasses import replace
from typing import Any

import anyio
import pytest

from runlane.errors import InvalidValueError, UsageError
from runlane.observability import (
    Observability,
    RunEvent,
    RunSinkConfig,
    RunSinkDrop,
    RunSinkError,
    RunStartedEvent,
    RunTerminalEvent,
    StepFinishedEvent,
    read_run_event,
    span_id_of,
    stated_usage,
    trace_id_of,
)
from runlane.records import ProviderResponse, Usage, UsageValue
from tests.delivery.telling import AT

pytestmark = pytest.mark.anyio

_COMMON: dict[str, Any] = {
    "conversation_id": "c",
    "run_id": "r",
    "trace_id": trace_id_of("r"),
    "span_id": span_id_of("r", 1),
    "emitted_at": AT,
}


def started(event_id: str = "s") -> RunStartedEvent:
    """A start."""
    return RunStartedEvent(**_COMMON, event_id=event_id, state="running", queue_wait_ms=3)


def step(event_id: str = "p") -> StepFinishedEvent:
    """A step, of which only the input was reported."""
    usage = Usage(
        input_tokens=UsageValue(value=4, provenance="provider-reported"),
        output_tokens=UsageValue(provenance="unavailable"),
    )
    response = ProviderResponse(response_id="x")
    return StepFinishedEvent(**_COMMON, event_id=event_id, state="running", step=0, usage=usage, response=response)


def ended(event_id: str = "t") -> RunTerminalEvent:
    """An end with a cause."""
    return RunTerminalEvent(
        **_COMMON,
        event_id=event_id,
        state="failed",
        terminal_reason="runtime_failure",
        usage=Usage.unknown(),
        internal_cause={"message": "secret words"},
    )


async def written(*events: RunEvent, **options: Any) -> list[RunEvent]:  # noqa: ANN401 - options of the sink
    """Return what a sink wrote."""
    kept: list[RunEvent] = []
    async with Observability(RunSinkConfig(write=kept.append, **options)) as sink:
        for event in events:
            sink.emit(event)
    return kept


async def test_events_are_written_in_order() -> None:
    """All three kinds, as they came."""
    assert [event.type for event in await written(started(), step(), ended())] == [
        "run-started",
        "step-finished",
        "run-terminal",
    ]


async def test_an_event_that_comes_again_is_left_out() -> None:
    """Two events of one id are one; the repetition is counted."""
    kept: list[RunEvent] = []
    async with Observability(RunSinkConfig(write=kept.append)) as sink:
        for event in (started(), started(), step()):
            sink.emit(event)
        status = await sink.close()
    assert kept == [started(), step()]
    assert (status.received, status.duplicates, status.completed) == (3, 1, 2)


async def test_repetitions_are_kept_if_that_is_wanted() -> None:
    """Without deduplication every event is written."""
    assert len(await written(started(), started(), deduplicate=False)) == 2


async def test_only_the_last_ten_thousand_ids_are_remembered() -> None:
    """An id that lies further back is new again; memory stays bounded."""
    async with Observability(RunSinkConfig(write=lambda _: None, max_pending=20_000)) as sink:
        first = started("first")
        sink.emit(first)
        for number in range(10_000):
            sink.emit(first.model_copy(update={"event_id": str(number)}))
        assert sink.status.duplicates == 0
        sink.emit(first)
        sink.emit(first)
        assert sink.status.duplicates == 1
        assert sink._seen is not None
        assert len(sink._seen) == 10_000


@pytest.mark.parametrize("wanted", [True, False])
async def test_an_internal_cause_is_stripped_unless_the_sink_opted_in(*, wanted: bool) -> None:
    """By default nobody outside reads what an error said."""
    (event,) = await written(ended(), include_internal_causes=wanted)
    assert isinstance(event, RunTerminalEvent)
    assert event.internal_cause == ({"message": "secret words"} if wanted else None)


async def _only_ends(event: RunEvent) -> bool:
    await anyio.lowlevel.checkpoint()
    return event.type == "run-terminal"


@pytest.mark.parametrize("chosen", [lambda event: event.type == "run-terminal", _only_ends])
async def test_a_filter_leaves_events_out(chosen: Any) -> None:  # noqa: ANN401
    """What it does not want is filtered, whether it answers at once or later."""
    kept: list[RunEvent] = []
    async with Observability(RunSinkConfig(write=kept.append, filter=chosen)) as sink:
        for event in (started(), step(), ended()):
            sink.emit(event)
        status = await sink.close()
    assert [event.type for event in kept] == ["run-terminal"]
    assert (status.filtered, status.accepted) == (2, 1)


def _fails(_: object) -> bool:
    raise OSError("unplugged")


async def _fails_later(_: object) -> bool:
    raise OSError("unplugged")


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"filter": _fails}, "preparation_failed"),
        ({"filter": _fails_later}, "preparation_failed"),
        ({"write": _fails}, "failed"),
        ({"write": _fails_later}, "failed"),
    ],
)
async def test_a_failing_filter_or_write_is_counted_and_reported(options: dict[str, Any], count: str) -> None:
    """The emitter notices nothing; the error and its event reach `on_sink_error`."""
    errors: list[RunSinkError] = []
    config = replace(RunSinkConfig(write=lambda _: None, on_sink_error=errors.append), **options)
    async with Observability(config) as sink:
        sink.emit(started())
        status = await sink.close()
    assert getattr(status, count) == 1
    assert [(report.event, str(report.error)) for report in errors] == [(started(), "unplugged")]


async def test_without_room_an_event_is_dropped() -> None:
    """Reason `capacity`, and a filter that waits is let go of; reason `closed` after the end."""
    drops: list[RunSinkDrop] = []
    config = RunSinkConfig(write=lambda _: None, filter=_only_ends, max_pending=1, on_drop=drops.append)
    async with Observability(config) as sink:
        sink.emit(started("a"))
        sink.emit(started("b"))
        await sink.close()
        sink.emit(started("c"))
    assert [(drop.event.event_id, drop.reason) for drop in drops] == [("b", "capacity"), ("c", "closed")]


@pytest.mark.parametrize("event", [None, {}, "run-started"])
async def test_what_is_no_operator_event_is_refused(event: Any) -> None:  # noqa: ANN401
    """Misuse raises from `emit`."""
    async with Observability(RunSinkConfig(write=print)) as sink:
        with pytest.raises(UsageError, match="event"):
            sink.emit(event)


async def test_an_event_before_the_sink_was_entered_is_misuse_and_not_remembered() -> None:
    """The same event counts once the sink runs."""
    kept: list[RunEvent] = []
    sink = Observability(RunSinkConfig(write=kept.append))
    with pytest.raises(UsageError, match="async with"):
        sink.emit(started())
    async with sink:
        sink.emit(started())
    assert kept == [started()]


@pytest.mark.parametrize("event", [started(), step(), ended()])
def test_events_survive_json(event: RunEvent) -> None:
    """What is written as JSON is read back equal."""
    assert read_run_event(event.model_dump_json()) == event
    assert read_run_event(event.model_dump(mode="json")) == event


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"type": "other"}, "event"),
        ({"usage": None}, "usage"),
        ({"terminal_reason": "boredom"}, "terminal_reason"),
        ({"event_id": ""}, "event_id"),
        ({"duration_ms": -1}, "duration_ms"),
        ({"duration_ms": True}, "duration_ms"),
        ({"schema_version": 2}, "schema_version"),
        ({"trace_id": "x"}, "trace_id"),
        ({"extra": 1}, "extra"),
    ],
)
def test_an_invalid_event_is_refused_by_the_name_of_its_field(change: dict[str, object], field: str) -> None:
    """Usage and reason are required at the end; versions, ids and figures are checked."""
    with pytest.raises(InvalidValueError, match=field):
        read_run_event({**ended().model_dump(mode="json"), **change})


def test_usage_is_stated_whole() -> None:
    """Figures that nobody reported are there as unavailable; those reported keep their label."""
    assert step().usage.reasoning_tokens == UsageValue(provenance="unavailable")
    assert step().usage.input_tokens.provenance == "provider-reported"
    assert stated_usage(None) == Usage.unknown()


def test_trace_and_span_ids_have_the_shape_of_a_trace_context_and_depend_on_what_they_name() -> None:
    """The same run has the same trace everywhere; parts have different spans."""
    assert trace_id_of("r") == trace_id_of("r") != trace_id_of("s")
    assert len({span_id_of("r", 1), span_id_of("r", 2), span_id_of("s", 1), span_id_of("r", 1, 0)}) == 4
