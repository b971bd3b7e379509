"""Sinks: a test for each row of their rules, on both loops."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.delivery import (
    BoundedSink,
    EventSink,
    EventSinkConfig,
    RuntimeEvent,
    SinkDrop,
    SinkError,
    SinkLimits,
    SinkStatus,
)
from runlane.errors import InvalidValueError, UsageError
from tests.delivery.telling import delta, state

pytestmark = pytest.mark.anyio


class Transport:
    """Writes when it is let."""

    def __init__(self, *, held: bool = False) -> None:
        self.written: list[RuntimeEvent] = []
        self.entered = 0
        self._open = anyio.Event()
        if not held:
            self._open.set()

    def release(self) -> None:
        """Let every write finish."""
        self._open.set()

    async def write(self, event: RuntimeEvent) -> None:
        """Write once it is let."""
        self.entered += 1
        await self._open.wait()
        self.written.append(event)


def adds_up(status: SinkStatus) -> bool:
    """Whether every received event is in exactly one place."""
    apart = ("filtered", "duplicates", "preparing", "preparation_failed", "pending", "completed", "failed", "dropped")
    return bool(status.received == sum(getattr(status, name) for name in apart))


async def test_a_sink_writes_every_event_in_order() -> None:
    """With one writer, what comes first is written first."""
    transport, events = Transport(), [delta(number) for number in range(1, 50)]
    async with EventSink(EventSinkConfig(write=transport.write)) as sink:
        for event in events:
            sink.publish(event)
        assert await sink.flush()
    assert transport.written == events


async def test_publishing_never_waits_for_the_transport() -> None:
    """Events are taken by a plain call while the transport stands still."""
    transport = Transport(held=True)
    async with EventSink(EventSinkConfig(write=transport.write)) as sink:
        for number in range(1, 11):
            sink.publish(delta(number))
        await anyio.wait_all_tasks_blocked()
        assert (transport.entered, transport.written, sink.status.pending) == (1, [], 10)
        transport.release()


@pytest.mark.parametrize(
    ("event", "error", "argument"),
    [
        ("text", UsageError, "event"),
        (None, UsageError, "event"),
        (replace(delta(1), conversation_id=""), InvalidValueError, "event.conversation_id"),
        (replace(delta(1), run_id=3), UsageError, "event.run_id"),  # type: ignore[arg-type]
        (replace(delta(1), sequence=0), InvalidValueError, "event.sequence"),
        (replace(delta(1), sequence=True), UsageError, "event.sequence"),
        (replace(delta(1), runtime_epoch=""), InvalidValueError, "event.runtime_epoch"),
        (replace(state(1), snapshot_version=-1), InvalidValueError, "event.snapshot_version"),
        (replace(state(1), snapshot_version="1"), UsageError, "event.snapshot_version"),  # type: ignore[arg-type]
        (replace(state(1), emitted_at=state(1).emitted_at.replace(tzinfo=None)), InvalidValueError, "event.emitted_at"),
    ],
)
async def test_a_malformed_event_is_refused(event: Any, error: type[Exception], argument: str) -> None:  # noqa: ANN401
    """What is no event raises from `publish`, naming the field, and is counted nowhere."""
    transport = Transport()
    async with EventSink(EventSinkConfig(write=transport.write)) as sink:
        with pytest.raises(error, match=argument):
            sink.publish(event)
        assert sink.status.received == 0
    assert transport.written == []


async def _later(event: RuntimeEvent) -> RuntimeEvent | None:
    await anyio.lowlevel.checkpoint()
    return None if event.run_id == "secret" else replace(event, run_id="shown")


def _now(event: RuntimeEvent) -> RuntimeEvent | None:
    return None if event.run_id == "secret" else replace(event, run_id="shown")


@pytest.mark.parametrize("project", [_now, _later])
async def test_a_projection_changes_events_or_leaves_them_out(project: Callable[..., Any]) -> None:
    """What it returns is written instead; nothing returned is filtered, and order stays."""
    transport = Transport()
    async with EventSink(EventSinkConfig(write=transport.write, project=project)) as sink:
        for event in (delta(1), delta(1, run_id="secret"), delta(2)):
            sink.publish(event)
        status = await sink.close()
    assert transport.written == [delta(1, run_id="shown"), delta(2, run_id="shown")]
    assert (status.accepted, status.filtered, status.completed) == (2, 1, 2)
    assert adds_up(status)


async def _broken_later(_: RuntimeEvent) -> RuntimeEvent | None:
    raise OSError("no")


def _broken(_: RuntimeEvent) -> RuntimeEvent | None:
    raise OSError("no")


async def _nonsense_later(_: RuntimeEvent) -> Any:  # noqa: ANN401
    return {"type": "terminal"}


@pytest.mark.parametrize(
    ("project", "kind"),
    [
        (_broken, OSError),
        (_broken_later, OSError),
        (lambda _: {"type": "terminal"}, UsageError),
        (_nonsense_later, UsageError),
        (lambda event: replace(event, sequence=0), InvalidValueError),
    ],
)
async def test_a_failed_projection_is_counted_and_reported(project: Callable[..., Any], kind: type[Exception]) -> None:
    """What it raises, or returns that is no event, reaches `on_sink_error` and nobody else."""
    transport, errors = Transport(), list[SinkError[RuntimeEvent]]()
    config = EventSinkConfig(write=transport.write, project=project, on_sink_error=errors.append)
    async with EventSink(config) as sink:
        sink.publish(delta(1))
        status = await sink.close()
    assert [(report.event, type(report.error)) for report in errors] == [(delta(1), kind)]
    assert (status.preparation_failed, status.accepted, transport.written) == (1, 0, [])
    assert adds_up(status)


async def test_beyond_capacity_the_new_event_is_dropped() -> None:
    """With `max_pending` in flight the next one goes, reason `capacity`; those before it are written."""
    transport, drops = Transport(held=True), list[SinkDrop[RuntimeEvent]]()
    async with EventSink(EventSinkConfig(write=transport.write, max_pending=2, on_drop=drops.append)) as sink:
        for number in range(1, 5):
            sink.publish(delta(number))
        assert drops == [SinkDrop(delta(3), "capacity"), SinkDrop(delta(4), "capacity")]
        transport.release()
        await sink.flush()
        sink.publish(delta(5))
    assert transport.written == [delta(1), delta(2), delta(5)]


async def test_what_a_projection_waits_for_takes_room_too() -> None:
    """Events that are being prepared count against the bound, and a dropped preparation is let go of."""
    gate = anyio.Event()

    async def project(event: RuntimeEvent) -> RuntimeEvent:
        await gate.wait()
        return event

    transport, drops = Transport(), list[SinkDrop[RuntimeEvent]]()
    config = EventSinkConfig(write=transport.write, project=project, max_pending=2, on_drop=drops.append)
    async with EventSink(config) as sink:
        for number in range(1, 4):
            sink.publish(delta(number))
        await anyio.wait_all_tasks_blocked()
        status = sink.status
        assert (status.preparing, status.pending, status.dropped) == (2, 0, 1)
        assert adds_up(status)
        gate.set()
    assert transport.written == [delta(1), delta(2)]


async def test_after_close_events_are_dropped() -> None:
    """A closed sink takes nothing, reason `closed`, also once its context was left."""
    transport, drops = Transport(), list[SinkDrop[RuntimeEvent]]()
    async with EventSink(EventSinkConfig(write=transport.write, on_drop=drops.append)) as sink:
        await sink.close()
        sink.publish(delta(1))
    sink.publish(delta(2))
    assert drops == [SinkDrop(delta(1), "closed"), SinkDrop(delta(2), "closed")]
    assert (transport.written, sink.status.dropped, sink.status.closed) == ([], 2, True)


async def test_a_failing_write_is_counted_and_reported_and_the_others_go_on() -> None:
    """One event's failure is its own."""
    written, errors = list[RuntimeEvent](), list[SinkError[RuntimeEvent]]()

    async def write(event: RuntimeEvent) -> None:
        await anyio.lowlevel.checkpoint()
        if event == delta(2):
            raise OSError("unplugged")
        written.append(event)

    async with EventSink(EventSinkConfig(write=write, on_sink_error=errors.append)) as sink:
        for number in (1, 2, 3):
            sink.publish(delta(number))
        status = await sink.close()
    assert written == [delta(1), delta(3)]
    assert [(report.event, str(report.error)) for report in errors] == [(delta(2), "unplugged")]
    assert (status.completed, status.failed) == (2, 1)


async def test_a_write_that_takes_too_long_fails_and_the_others_go_on() -> None:
    """A transport that hangs costs its events, not the sink."""
    written: list[RuntimeEvent] = []

    async def write(event: RuntimeEvent) -> None:
        if event == delta(1):
            await anyio.sleep_forever()
        written.append(event)

    async with EventSink(EventSinkConfig(write=write, write_timeout=0.01)) as sink:
        sink.publish(delta(1))
        sink.publish(delta(2))
        status = await sink.close()
    assert (written, status.failed, status.completed) == ([delta(2)], 1, 1)


async def test_failures_of_the_hooks_are_swallowed() -> None:
    """A hook that raises harms neither the publisher nor the sink."""

    def fails(_: object) -> None:
        raise ValueError("hook")

    async def write(_: RuntimeEvent) -> None:
        raise OSError("unplugged")

    async with EventSink(EventSinkConfig(write=write, max_pending=1, on_drop=fails, on_sink_error=fails)) as sink:
        sink.publish(delta(1))
        sink.publish(delta(2))
        status = await sink.close()
    assert (status.failed, status.dropped) == (1, 1)


async def test_flush_waits_for_what_came_before_it_and_for_nothing_else() -> None:
    """Events published during a flush do not prolong it."""
    gates = {number: anyio.Event() for number in (1, 2, 3)}

    async def write(event: RuntimeEvent) -> None:
        await gates[event.sequence].wait()  # type: ignore[union-attr]

    async with EventSink(EventSinkConfig(write=write, concurrency=3)) as sink, anyio.create_task_group() as tasks:
        done = anyio.Event()

        async def flush() -> None:
            assert await sink.flush()
            done.set()

        sink.publish(delta(1))
        sink.publish(delta(2))
        tasks.start_soon(flush)
        await anyio.wait_all_tasks_blocked()
        sink.publish(delta(3))
        gates[2].set()
        await anyio.wait_all_tasks_blocked()
        assert not done.is_set()
        gates[1].set()
        with anyio.fail_after(5):
            await done.wait()
        assert sink.status.pending == 1
        gates[3].set()


async def test_flush_says_whether_it_was_in_time() -> None:
    """A bounded flush answers False while something is pending, True once nothing is."""
    transport = Transport(held=True)
    async with EventSink(EventSinkConfig(write=transport.write)) as sink:
        assert await sink.flush(0) is True
        sink.publish(delta(1))
        assert await sink.flush(0.01) is False
        transport.release()
        assert await sink.flush(5) is True


async def test_close_stops_admission_waits_and_may_be_repeated() -> None:
    """It returns what became of everything; a second close returns the same."""
    transport = Transport(held=True)
    async with EventSink(EventSinkConfig(write=transport.write)) as sink:
        sink.publish(delta(1))
        early = await sink.close(0.01)
        assert (early.closed, early.pending) == (True, 1)
        transport.release()
        status = await sink.close()
        assert status == await sink.close()
    assert (status.pending, status.completed, status.closed) == (0, 1, True)


async def test_leaving_gives_up_what_hangs_and_says_so() -> None:
    """Past `close_timeout` what was not written is dropped, reported, and nothing is left running."""
    transport, drops = Transport(held=True), list[SinkDrop[RuntimeEvent]]()
    config = EventSinkConfig(write=transport.write, close_timeout=0.01, write_timeout=None, on_drop=drops.append)
    with anyio.fail_after(5):
        async with EventSink(config) as sink:
            sink.publish(delta(1))
            sink.publish(delta(2))
            await anyio.wait_all_tasks_blocked()
    assert drops == [SinkDrop(delta(1), "closed"), SinkDrop(delta(2), "closed")]
    assert (sink.status.pending, sink.status.dropped) == (0, 2)
    assert adds_up(sink.status)


async def test_what_was_published_before_a_cancellation_is_written() -> None:
    """The cancellation of the surroundings does not tear a write, nor lose what waits."""
    transport = Transport(held=True)
    with anyio.CancelScope() as scope:
        async with EventSink(EventSinkConfig(write=transport.write)) as sink:
            for number in (1, 2):
                sink.publish(delta(number))
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            sink.publish(delta(3))
            transport.release()
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert transport.written == [delta(1), delta(2), delta(3)]


async def test_the_status_of_a_new_sink_names_its_bound() -> None:
    """All counts start at zero; the default bound is 1,000."""
    assert EventSink(EventSinkConfig(write=print)).status == SinkStatus(capacity=1000)
    names = {field.name for field in fields(SinkStatus)}
    assert names == {
        "capacity", "received", "accepted", "filtered", "duplicates", "completed", "dropped", "failed",
        "preparation_failed", "preparing", "pending", "closed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("max_pending", 0, InvalidValueError),
        ("max_pending", True, UsageError),
        ("max_pending", 1.5, UsageError),
        ("concurrency", -1, InvalidValueError),
        ("write_timeout", -0.1, InvalidValueError),
        ("write_timeout", float("nan"), InvalidValueError),
        ("close_timeout", "1", UsageError),
    ],
)
async def test_a_bad_bound_is_refused(option: str, value: object, error: type[Exception]) -> None:
    """A bound of the wrong type or out of range is named."""
    with pytest.raises(error, match=option):
        EventSinkConfig(write=print, **{option: value})  # type: ignore[arg-type]


async def _hook(_: object) -> None: ...


@pytest.mark.parametrize(
    "config",
    [
        EventSinkConfig(write=None),  # type: ignore[arg-type]
        EventSinkConfig(write=print, on_drop=_hook),
        EventSinkConfig(write=print, on_sink_error=_hook),
    ],
)
async def test_a_function_that_cannot_be_used_is_refused(config: EventSinkConfig) -> None:
    """A write that cannot be called and hooks that would have to be awaited are misuse."""
    with pytest.raises(UsageError):
        EventSink(config)


async def test_a_sink_is_entered_before_its_first_event_and_once() -> None:
    """Publishing into a sink that does not run yet would lose the event silently."""
    sink = EventSink(EventSinkConfig(write=print))
    with pytest.raises(UsageError, match="async with"):
        sink.publish(delta(1))
    async with sink:
        pass
    with pytest.raises(UsageError, match="once"):
        await sink.__aenter__()


def _prepare(event: str) -> str | None:
    if event == "break":
        raise OSError(event)
    return None if event == "filter" else event


async def _prepare_later(event: str) -> str | None:
    await anyio.lowlevel.checkpoint()
    return _prepare(event)


async def _write(event: str) -> None:
    if event == "fail":
        raise OSError(event)


async def _play(script: list[str], flushes: set[int], *, capacity: int, later: bool) -> SinkStatus:
    limits = SinkLimits(max_pending=capacity)
    async with BoundedSink(_write, limits=limits, prepare=_prepare_later if later else _prepare) as sink:
        for place, event in enumerate(script):
            sink.offer(event)
            assert adds_up(sink.status)
            if place in flushes:
                assert await sink.flush()
    return sink.status


@given(
    script=st.lists(st.sampled_from(["write", "fail", "filter", "break"]), max_size=12),
    flushes=st.sets(st.integers(0, 12)),
    capacity=st.integers(1, 4),
    later=st.booleans(),
)
def test_every_event_is_accounted_for(script: list[str], flushes: set[int], *, capacity: int, later: bool) -> None:
    """Whatever fails, is left out or does not fit, each event is in exactly one count."""
    status = anyio.run(partial(_play, script, flushes, capacity=capacity, later=later))
    assert adds_up(status)
    assert (status.received, status.pending, status.preparing) == (len(script), 0, 0)
    assert status.accepted == status.completed + status.failed
