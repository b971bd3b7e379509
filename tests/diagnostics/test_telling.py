"""Telling a fact without a coroutine: the same promises as for one that is awaited from the start."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

from runlane.contracts import Id, JsonObject
from runlane.diagnostics import (
    CoreEvent,
    CreateDiagnosticsOptions,
    DiagnosticContext,
    DiagnosticSpanFields,
    ExecutionEventDescriptor,
    Fact,
    NodeFinished,
    RoundStarted,
    ToolInput,
    create_diagnostics,
)
from runlane.errors import OutOfTurnError, UsageError
from tests.diagnostics.listening import Log, Watcher

pytestmark = pytest.mark.anyio

STARTED = Fact("round.started", RoundStarted)
FINISHED = Fact("node.finished", NodeFinished)


def _scope(**options: Any) -> DiagnosticContext:  # noqa: ANN401 - as the options are
    return create_diagnostics(CreateDiagnosticsOptions(**options))


async def _told(scope: DiagnosticContext) -> CoreEvent | None:
    rest = scope.tell(STARTED, ())
    return None if rest is None else await rest


async def _tell_by(root: DiagnosticContext, way: str) -> None:
    if way == "note":
        root.note("round.started", RoundStarted())
    elif way == "emit":
        await root.emit("round.started", RoundStarted())
    else:
        await _told(root)


def _run_at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    with pytest.raises(StopIteration):
        coroutine.send(None)


async def test_nothing_is_left_to_await_where_nobody_waits() -> None:
    """G10, G13: an observer that takes it at once leaves nothing; no consumer, nothing is numbered."""
    watcher = Watcher()
    assert _scope().tell(STARTED, ()) is None
    root = _scope(observer=watcher)
    assert root.tell(STARTED, ()) is None
    assert [(event.sequence, event.name, event.identity) for event in watcher.events] == [
        (1, "round.started", root.identity)
    ]


async def test_told_and_emitted_events_are_alike() -> None:
    """G2: the same envelope whichever way an event went."""
    watcher = Watcher()
    root = _scope(observer=watcher)
    root.tell(FINISHED, ("succeeded", 3))
    await root.emit("node.finished", NodeFinished("succeeded", 3))  # type: ignore[arg-type]
    first, second = watcher.events
    same: JsonObject = {"event_id": "", "sequence": 0, "occurred_at": 0}
    assert first.to_record() | same == second.to_record() | same
    assert first.to_record()["payload"] == {"status": "succeeded", "duration_ms": 3}


async def _later(order: list[str]) -> None:
    await anyio.lowlevel.checkpoint()
    order.append("observer")


@pytest.mark.parametrize("waits", [True, False])
async def test_g13_the_observer_is_first_and_both_get_the_same_event(waits: bool) -> None:  # noqa: FBT001 - a parameter
    """Whether or not it has to be awaited."""
    order: list[str] = []

    def observe(_: CoreEvent) -> Awaitable[None] | None:
        if waits:
            return _later(order)
        order.append("observer")
        return None

    watcher, log = Watcher(then=observe), Log(then=lambda _: order.append("output"))
    event = await _told(_scope(observer=watcher, output=log))
    assert order == ["observer", "output"]
    assert watcher.events[0] is log.events[0] is event


@pytest.mark.parametrize("with_output", [True, False])
@pytest.mark.parametrize("waits", [True, False])
async def test_g14_an_observers_error_reaches_the_teller(with_output: bool, waits: bool) -> None:  # noqa: FBT001 - parameters
    """The same object, after the output had the event; the next event is delivered as ever."""
    broken, log = ValueError("observer"), Log()

    async def fail() -> None:
        raise broken

    def observe(event: CoreEvent) -> Awaitable[None] | None:
        if event.sequence > 1:
            return None
        if waits:
            return fail()
        raise broken

    root = _scope(observer=Watcher(then=observe), output=log if with_output else None)
    with pytest.raises(ValueError, match="observer") as caught:
        await _told(root)
    assert caught.value is broken
    await _told(root)
    assert [event.sequence for event in log.events] == ([1, 2] if with_output else [])


async def test_g14_an_observer_that_fails_to_say_what_it_takes_is_told_last() -> None:
    """Its error reaches the teller once the output has the event, or at once without one."""
    broken, log = ValueError("accepts"), Log()

    def accepts(_: object) -> bool:
        raise broken

    for output in (log, None):
        with pytest.raises(ValueError, match="accepts"):
            await _told(_scope(observer=Watcher(wanted=accepts), output=output))
    assert len(log.events) == 1


async def test_g14_an_outputs_error_never_does() -> None:
    """Raised at once or while it is awaited: it is counted, and the teller hears nothing."""
    reports: list[object] = []

    class Sync:
        def accepts(self, _: object, /) -> bool:
            return True

        def write(self, _: CoreEvent, /) -> None:
            raise ValueError("at once")

    def then(_: CoreEvent) -> None:
        raise ValueError("later")

    for output in (Sync(), Log(then=then)):
        await _told(_scope(output=output, on_output_error=reports.append))
    assert len(reports) == 2


@pytest.mark.parametrize("way", ["emit", "tell", "note"])
@pytest.mark.parametrize("place", ["accepts", "on_event", "awaited", "task"])
@pytest.mark.parametrize("first", ["emit", "tell"])
async def test_g4_a_consumer_cannot_tell_a_fact_while_it_is_given_one(way: str, place: str, first: str) -> None:
    """When it is asked, from its own code, what it leaves to await, or a task it started: refused, nothing is stuck."""
    seen: list[Exception] = []

    async def again() -> None:
        with pytest.raises(OutOfTurnError) as caught:
            await _tell_by(root, way)
        seen.append(caught.value)

    async def in_a_task() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(again)

    def at_once() -> None:
        _run_at_once(again())

    acts: dict[str, Callable[[], Any]] = {"on_event": at_once, "awaited": again, "task": in_a_task}

    def observe(event: CoreEvent) -> Awaitable[None] | None:
        act = acts.get(place) if event.sequence == 1 else None
        return None if act is None else act()

    def wanted(_: object) -> bool:
        if place == "accepts" and not seen:
            at_once()
        return True

    watcher = Watcher(wanted=wanted, then=observe)
    root = _scope(observer=watcher)
    await _tell_by(root, first)
    assert len(seen) == 1
    await _told(root)
    assert [event.sequence for event in watcher.events] == [1, 2]


def test_g4_a_task_an_observer_left_to_be_awaited_is_the_observer() -> None:
    """It began before anybody could know that it would be waited for, and is refused all the same."""
    seen: list[Exception] = []

    async def main() -> None:
        async def again() -> None:
            with pytest.raises(OutOfTurnError) as caught:
                await root.emit("round.started", RoundStarted())
            seen.append(caught.value)

        watcher = Watcher(then=lambda event: asyncio.ensure_future(again()) if event.sequence == 1 else None)
        root = _scope(observer=watcher)
        with anyio.fail_after(5):
            await _told(root)
            await _told(root)
        assert [event.sequence for event in watcher.events] == [1, 3]

    anyio.run(main, backend="asyncio")
    assert len(seen) == 1


async def test_g4_who_tells_while_another_is_awaited_waits_its_turn() -> None:
    """Numbers ascend, deliveries do not overlap, and a teller that is cancelled leaves the turn to the next."""
    inside, go = 0, anyio.Event()

    async def slow() -> None:
        nonlocal inside
        assert inside == 0
        inside += 1
        try:
            await go.wait()
        finally:
            inside -= 1

    watcher = Watcher(then=lambda event: slow() if event.sequence == 1 else None)
    root = _scope(observer=watcher)
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as first:
                first.start_soon(_told, root)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(_told, root)
                tasks.start_soon(_told, root)
                await anyio.wait_all_tasks_blocked()
                assert len(watcher.events) == 1
                scope.cancel()
    assert [event.sequence for event in watcher.events] == [1, 2, 3]


async def test_c20_what_was_noted_is_delivered_first() -> None:
    """A fact that synchronous code told before has the smaller number and goes ahead."""
    watcher = Watcher()
    root = _scope(observer=watcher)
    root.note("round.started", RoundStarted())
    await _told(root)
    assert [event.sequence for event in watcher.events] == [1, 2]


def test_g11_what_has_content_is_no_fact_that_is_told_without_a_question() -> None:
    """Content goes with its payload through `emit`, which asks; nor is there a fact without an event."""
    for name, word in (("tool.input", ToolInput), ("no.event", RoundStarted)):
        with pytest.raises(UsageError, match=name):
            Fact(name, word)  # type: ignore[arg-type]


async def test_g12_a_payload_is_worded_once_and_only_if_somebody_reads_it() -> None:
    """Of the values that were told, whatever became of the names that held them."""
    worded: list[object] = []

    def word(status: Any, duration: Any) -> NodeFinished:  # noqa: ANN401 - as told
        worded.append(status)
        return NodeFinished(status, duration)

    watcher = Watcher()
    status = "succeeded"
    _scope(observer=watcher).tell(Fact("node.finished", word), (status, 3))
    status = "failed"
    (event,) = watcher.events
    assert (event.name, event.content, event.sequence, worded) == ("node.finished", False, 1, [])
    assert event.payload is event.payload == NodeFinished("succeeded", 3)  # type: ignore[arg-type]
    assert worded == ["succeeded"]


async def test_what_words_no_payload_of_its_event_fails_who_reads_it() -> None:
    """And nobody else: the reader is told the event and what it got."""
    watcher = Watcher()
    root = _scope(observer=watcher)
    assert root.tell(Fact("round.started", lambda: 5), ()) is None  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match=r"round\.started says RoundStarted, not int"):
        _ = watcher.events[0].payload
    assert await _told(root) is None


async def test_g4_another_thread_may_note_a_fact_while_a_consumer_has_one() -> None:
    """It does not come from within the consumer, and waits for nobody; its fact is delivered next."""

    def observe(event: CoreEvent) -> None:
        if event.sequence == 1:
            thread = threading.Thread(target=root.note, args=("round.started", RoundStarted()))
            thread.start()
            thread.join()

    watcher = Watcher(then=observe)
    root = _scope(observer=watcher)
    await _told(root)
    assert [event.sequence for event in watcher.events] == [1]
    await _told(root)
    assert [event.sequence for event in watcher.events] == [1, 2, 3]


async def test_g4_a_consumer_may_tell_facts_of_another_producer() -> None:
    """Whoever is called by two producers at once is refused by both of them and by no third."""
    refused: list[str] = []

    def inner(_: CoreEvent) -> None:
        for name, scope in (("outer", outer_root), ("inner", inner_root), ("third", third)):
            try:
                scope.note("round.started", RoundStarted())
            except OutOfTurnError:
                refused.append(name)

    third = _scope(observer=Watcher())
    inner_root = _scope(observer=Watcher(then=inner))

    def outer(_: CoreEvent) -> None:
        assert inner_root.tell(STARTED, ()) is None

    outer_root = _scope(observer=Watcher(then=outer))
    assert await _told(outer_root) is None
    assert refused == ["outer", "inner"]


def test_an_event_is_a_value() -> None:
    """Equal to one made of its fields, copied and pickled as one; nothing of it can be changed."""
    watcher = Watcher()
    root = _scope(observer=watcher)
    root.child(DiagnosticSpanFields(node_id=Id("n")), 2, 3).tell(FINISHED, ("succeeded", 3))
    (event,) = watcher.events
    assert (event.identity.node_id, event.identity.visit, event.identity.round) == ("n", 2, 3)
    assert event.identity.parent_span_id == root.identity.span_id
    copies = [copy.copy(event), copy.deepcopy(event), pickle.loads(pickle.dumps(event))]  # noqa: S301 - our own
    made = CoreEvent(
        event_id=event.event_id,
        name="node.finished",
        producer_id=event.producer_id,
        sequence=1,
        occurred_at=event.occurred_at,
        identity=event.identity,
        payload=NodeFinished("succeeded", 3),  # type: ignore[arg-type]
    )
    for other in (*copies, made):
        assert other == event
        assert hash(other) == hash(event)
        assert repr(other) == repr(event)
        assert other.to_record() == event.to_record()
    assert event != event.identity
    for name in ("sequence", "payload", "identity", "other"):
        with pytest.raises(AttributeError):
            setattr(event, name, None)


async def test_an_observer_is_asked_about_the_event_it_gets() -> None:
    """A descriptor says the name, whether there is content, and whose it is; to the payload it is no key."""
    asked: list[ExecutionEventDescriptor] = []

    def wanted(descriptor: ExecutionEventDescriptor) -> bool:
        asked.append(descriptor)
        return True

    watcher = Watcher(wanted=wanted)
    root = _scope(observer=watcher, accept_content=True)
    await _told(root)
    await root.emit("round.started", RoundStarted())
    await root.emit("tool.input", ToolInput(value=1))
    assert [(about.name, about.content, about.identity) for about in asked] == [
        (event.name, event.content, root.identity) for event in watcher.events
    ]
    assert not hasattr(asked[2], "payload")
    assert asked[1] == ExecutionEventDescriptor("round.started", content=False, identity=root.identity)
