"""Scopes, numbers, and who gets what."""

from collections.abc import Callable
from typing import Any, get_args

import anyio
import pytest
from anyio.lowlevel import checkpoint

from runlane.contracts import ErrorInfo, Id
from runlane.diagnostics import (
    CORE_EVENT_CATALOG,
    BudgetRefused,
    CoreEvent,
    CoreEventDescriptor,
    CoreEventName,
    CoreEventPayloads,
    CreateDiagnosticsOptions,
    DebugStepsOutput,
    DiagnosticContext,
    DiagnosticIdentity,
    DiagnosticSpanFields,
    ModelInput,
    NodeEntered,
    NodeReported,
    RoundStarted,
    ToolInput,
    as_diagnostics,
    create_diagnostics,
)
from runlane.diagnostics._payloads import PAYLOADS
from runlane.errors import OutOfTurnError, UsageError
from runlane.ids import SequenceIds
from runlane.testing import FakeClock
from tests.diagnostics.listening import Log, Watcher

pytestmark = pytest.mark.anyio


def _scope(**options: Any) -> DiagnosticContext:  # noqa: ANN401 - the options of a scope
    return create_diagnostics(CreateDiagnosticsOptions(run_id=Id("run"), ids=SequenceIds(), **options))


def test_the_catalogue_the_names_and_the_payloads_agree() -> None:
    """The three key sets are equal, and every event that closes one names an event."""
    names = set(get_args(CoreEventName))
    assert set(CORE_EVENT_CATALOG) == names == set(CoreEventPayloads.__annotations__) == set(PAYLOADS)
    assert {entry.closes for entry in CORE_EVENT_CATALOG.values()} - {None} <= names
    with pytest.raises(TypeError):
        CORE_EVENT_CATALOG["run.started"] = CORE_EVENT_CATALOG["run.finished"]  # type: ignore[index]


def test_g1_exactly_six_events_are_content() -> None:
    """Everything else holds who, when, how many and how it ended."""
    content = {name for name, entry in CORE_EVENT_CATALOG.items() if entry.content}
    assert content == {"model.input", "model.output", "tool.input", "tool.output", "node.report", "debug.steps"}


async def test_g2_every_event_has_the_envelope() -> None:
    """Event ids are unique, the identity is the producing span's, and the event is frozen."""
    watcher = Watcher()
    root = _scope(observer=watcher, fields=DiagnosticSpanFields(agent_id=Id("a")))
    child = root.child(DiagnosticSpanFields(node_id=Id("n"), visit=1))
    await root.emit("round.started", RoundStarted())
    await child.emit("node.entered", NodeEntered())
    first, second = watcher.events
    assert (first.identity, second.identity) == (root.identity, child.identity)
    assert first.version == second.version == 1
    assert first.producer_id == second.producer_id
    assert len({first.event_id, second.event_id}) == 2
    with pytest.raises(AttributeError):
        first.sequence = 9  # type: ignore[misc]


async def test_g3_one_sequence_counts_the_whole_tree() -> None:
    """Children in turn give 1, 2, 3, 4, refused events included; a consumer of metadata sees holes."""
    watcher = Watcher()
    root = _scope(observer=watcher)
    left, right = root.child(), root.child()
    for scope in (left, right, left):
        await scope.emit("round.started", RoundStarted())
    await left.emit("tool.input", ToolInput(value="secret"))
    await right.emit("round.started", RoundStarted())
    assert [event.sequence for event in watcher.events] == [1, 2, 3, 5]


async def test_g4_two_tasks_deliver_in_the_order_of_their_numbers() -> None:
    """A number is given before anything is awaited, and delivery never overlaps or overtakes."""
    inside = 0

    async def slow(_: CoreEvent) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        for _turn in range(3):
            await checkpoint()
        inside -= 1

    watcher = Watcher(then=slow)
    root = _scope(observer=watcher)

    async def tell(scope: DiagnosticContext) -> None:
        for _ in range(5):
            await scope.emit("round.started", RoundStarted())

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(tell, root.child())
    assert [event.sequence for event in watcher.events] == list(range(1, 21))


@pytest.mark.parametrize("noted", [True, False], ids=["note", "emit"])
async def test_g4_a_consumer_cannot_tell_a_fact_while_it_is_given_one(noted: object) -> None:
    """Emitting on the same producer from within a consumer is refused at once, and the producer goes on."""
    seen: list[Exception] = []

    async def tell_again(_: CoreEvent) -> None:
        try:
            if noted:
                root.note("round.started", RoundStarted())
            else:
                await root.child().emit("round.started", RoundStarted())
        except OutOfTurnError as error:
            seen.append(error)

    root = _scope(observer=Watcher(then=tell_again))
    await root.emit("round.started", RoundStarted())
    await root.emit("round.started", RoundStarted())
    assert len(seen) == 2
    assert all(isinstance(error, RuntimeError) for error in seen)


async def test_g4_a_task_left_behind_by_a_consumer_may_tell_facts_later() -> None:
    """Only the call itself is re-entrant, not everything it ever started."""
    async with anyio.create_task_group() as tasks:
        started = anyio.Event()

        async def later() -> None:
            await started.wait()
            await root.emit("round.started", RoundStarted())

        def start(event: CoreEvent) -> None:
            if event.sequence == 1:
                tasks.start_soon(later)

        watcher = Watcher(then=start)
        root = _scope(observer=watcher)
        await root.emit("round.started", RoundStarted())
        started.set()
    assert [event.sequence for event in watcher.events] == [1, 2]


async def test_a_cancelled_emitter_leaves_the_others_their_turn() -> None:
    """Cancelled while it waits, or while it delivers, an emitter takes its own event along and nothing else."""
    gate = anyio.Event()

    async def hold(event: CoreEvent) -> None:
        if event.sequence == 1:
            await gate.wait()

    watcher = Watcher(then=hold)
    root = _scope(observer=watcher)

    async def tell(scope: anyio.CancelScope) -> None:
        with scope:
            await root.emit("round.started", RoundStarted())

    scopes = [anyio.CancelScope() for _ in range(4)]
    async with anyio.create_task_group() as tasks:
        for scope in scopes:
            tasks.start_soon(tell, scope)
            await anyio.wait_all_tasks_blocked()
        scopes[1].cancel()
        await anyio.wait_all_tasks_blocked()
        scopes[0].cancel()
    assert [event.sequence for event in watcher.events] == [1, 3, 4]
    await root.emit("round.started", RoundStarted())
    assert watcher.events[-1].sequence == 5


async def test_a_turn_given_to_a_cancelled_emitter_is_passed_on() -> None:
    """Cancelled in the very moment its turn came, an emitter delivers its event or not, and hands the turn on."""
    gate = anyio.Event()
    scopes = [anyio.CancelScope() for _ in range(3)]

    async def hold(event: CoreEvent) -> None:
        if event.sequence == 1:
            await gate.wait()

    watcher = Watcher(then=hold)
    root = _scope(observer=watcher)

    async def tell(scope: anyio.CancelScope, *, cancels: anyio.CancelScope | None = None) -> None:
        with scope:
            await root.emit("round.started", RoundStarted())
            if cancels is not None:
                cancels.cancel()

    async def first() -> None:
        await tell(scopes[0], cancels=scopes[1])

    async with anyio.create_task_group() as tasks:
        for work in (first, lambda: tell(scopes[1]), lambda: tell(scopes[2])):
            tasks.start_soon(work)
            await anyio.wait_all_tasks_blocked()
        gate.set()
    assert [event.sequence for event in watcher.events if event.sequence != 2] == [1, 3]
    await root.emit("round.started", RoundStarted())
    assert watcher.events[-1].sequence == 4


async def test_g5_wall_time_may_go_backwards() -> None:
    """Order is the sequence; the time of an event is what the clock says."""
    clock = FakeClock()
    watcher = Watcher()
    root = _scope(observer=watcher, clock=clock)
    await root.emit("round.started", RoundStarted())
    clock.jump(-3_600)
    await root.emit("round.started", RoundStarted())
    first, second = watcher.events
    assert first.occurred_at > second.occurred_at
    assert first.sequence < second.sequence


@pytest.mark.parametrize("kind", [DiagnosticIdentity, DiagnosticSpanFields])
def test_g6_identity_is_execution_identity_only(kind: Callable[..., object]) -> None:
    """Whose data it is has no field."""
    for field in ("user_id", "message_id"):
        with pytest.raises(TypeError):
            kind(**{"run_id": "r", "span_id": "s", field: "x"})


@pytest.mark.parametrize("field", ["run_id", "span_id", "parent_span_id"])
def test_g8_a_span_cannot_say_its_own_ids(field: str) -> None:
    """They are no fields of what a span may say."""
    with pytest.raises(TypeError):
        DiagnosticSpanFields(**{field: Id("x")})  # type: ignore[arg-type]


def test_g8_g9_a_child_inherits_everything_but_its_span() -> None:
    """The run and the fields are the parent's unless given anew, the span is fresh, its parent is the parent's span."""
    root = _scope(fields=DiagnosticSpanFields(agent_id=Id("a"), round=1))
    child = root.child(DiagnosticSpanFields(round=2, node_id=Id("n")))
    grandchild = child.child()
    assert child.identity.parent_span_id == root.identity.span_id
    assert grandchild.identity.parent_span_id == child.identity.span_id
    assert len({scope.identity.span_id for scope in (root, child, grandchild)}) == 3
    assert grandchild.identity._replace(span_id=Id("x"), parent_span_id=None) == DiagnosticIdentity(
        run_id=Id("run"), span_id=Id("x"), agent_id=Id("a"), round=2, node_id=Id("n")
    )


async def test_g10_without_consumers_nothing_is_built_or_numbered() -> None:
    """Scopes and ids go on; emitting gives None and builds no payload."""
    root = _scope()
    built: list[int] = []

    def build() -> ModelInput:
        built.append(1)
        return ModelInput(messages=())

    assert not root.enabled
    assert await root.emit("model.input", build) is None
    root.note("model.input", build)
    await root.flush()
    assert built == []
    assert root.child().identity.run_id == "run"


@pytest.mark.parametrize("accept_content", [False, lambda _: False])
async def test_g11_the_default_is_no_for_everybody(accept_content: object) -> None:
    """A consumer that would take everything never sees content nobody agreed to."""
    watcher, log = Watcher(), Log()
    root = _scope(observer=watcher, output=log, accept_content=accept_content)
    assert await root.emit("model.input", ModelInput(messages=("secret",))) is None
    await root.emit("round.started", RoundStarted())
    assert [event.name for event in watcher.events + log.events] == ["round.started"] * 2


async def test_g11_content_needs_both_yeses() -> None:
    """The options agree to one event, and each consumer is asked as well."""
    watcher = Watcher()
    log = Log(wanted=lambda descriptor: not descriptor.content)
    root = _scope(observer=watcher, output=log, accept_content=lambda entry: entry.name == "model.input")
    await root.emit("model.input", ModelInput(messages=("x",)))
    await root.emit("tool.input", ToolInput(value="y"))
    assert [event.name for event in watcher.events] == ["model.input"]
    assert log.events == []


async def test_g12_a_payload_nobody_takes_is_not_built() -> None:
    """A factory is called only if somebody will get the event, and then once."""
    built: list[int] = []

    def build() -> ModelInput:
        built.append(1)
        return ModelInput(messages=())

    refusing = _scope(observer=Watcher(wanted=lambda _: False), output=Log(wanted=lambda _: False), accept_content=True)
    await refusing.emit("model.input", build)
    assert built == []
    taking = _scope(observer=Watcher(), output=Log(), accept_content=True)
    await taking.emit("model.input", build)
    assert built == [1]


async def test_g13_the_observer_is_first_and_both_get_the_same_event() -> None:
    """The same frozen object, observer before output."""
    order: list[str] = []
    watcher = Watcher(then=lambda _: order.append("observer"))
    log = Log(then=lambda _: order.append("output"))
    emitted = await _scope(observer=watcher, output=log).emit("budget.refused", BudgetRefused(allowance="rounds"))
    assert order == ["observer", "output"]
    assert watcher.events[0] is log.events[0] is emitted


async def test_g14_an_observers_error_reaches_the_emitter() -> None:
    """The same object, and the output still got the event; the next event is delivered as ever."""
    broken = ValueError("observer")

    def fail(event: CoreEvent) -> None:
        if event.sequence == 1:
            raise broken

    log = Log()
    root = _scope(observer=Watcher(then=fail), output=log)
    with pytest.raises(ValueError, match="observer") as caught:
        await root.emit("round.started", RoundStarted())
    assert caught.value is broken
    await root.emit("round.started", RoundStarted())
    assert [event.sequence for event in log.events] == [1, 2]


async def test_g14_an_outputs_error_never_does() -> None:
    """It is reported as data, and a report that fails is dropped."""
    reports: list[ErrorInfo] = []

    def fail(_: CoreEvent) -> None:
        raise ValueError("disk")

    def report(info: ErrorInfo) -> None:
        reports.append(info)
        raise KeyError("report")

    root = _scope(output=Log(then=fail), on_output_error=report)
    assert await root.emit("round.started", RoundStarted()) is not None
    assert [info.message for info in reports] == ["disk"]


async def test_a_question_that_raises_is_the_consumers_failure() -> None:
    """`accepts` of an observer reaches the emitter, that of an output does not; the other one gets its event."""

    def fail(_: object) -> bool:
        raise ValueError("asked")

    log, watcher = Log(), Watcher()
    with pytest.raises(ValueError, match="asked"):
        await _scope(observer=Watcher(wanted=fail), output=log).emit("round.started", RoundStarted())
    assert len(log.events) == 1
    await _scope(observer=watcher, output=Log(wanted=fail)).emit("round.started", RoundStarted())
    assert len(watcher.events) == 1


async def test_an_awaitable_answer_is_closed_and_refused() -> None:
    """`accepts` must be plain: a coroutine function is refused at construction, a coroutine when it appears."""

    async def later(_: object) -> bool:
        return True

    hidden: Any = Watcher(wanted=later)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        await _scope(observer=hidden).emit("round.started", RoundStarted())
    shown: Any = type("Shown", (), {"accepts": staticmethod(later), "on_event": print})()
    for options in ({"observer": shown}, {"accept_content": later}, {"on_progress": later}, {"on_output_error": later}):
        with pytest.raises(UsageError):
            _scope(**options)
    with pytest.raises(UsageError):
        _scope(output=object())


async def test_c20_a_noted_fact_keeps_its_place() -> None:
    """It takes its number at once and is delivered before the next awaited fact; its errors surface there."""

    def fail(event: CoreEvent) -> None:
        if event.sequence == 1:
            raise ValueError("first")

    watcher, log = Watcher(then=fail), Log()
    root = _scope(observer=watcher, output=log, accept_content=True)
    root.child().note("node.report", NodeReported(title="x"))
    root.note("debug.steps", DebugStepsOutput(note="y"))
    assert watcher.events == []
    with pytest.raises(ValueError, match="first"):
        await root.emit("round.started", RoundStarted())
    assert [event.sequence for event in watcher.events] == [1, 2, 3]
    assert [event.sequence for event in log.events] == [1, 2, 3]


async def test_c20_flushing_delivers_what_was_noted() -> None:
    """At the latest before a visit ends."""
    watcher = Watcher()
    root = _scope(observer=watcher, accept_content=True)
    await root.flush()
    root.note("debug.steps", DebugStepsOutput())
    root.note("round.started", RoundStarted())
    await root.flush()
    await root.flush()
    assert [event.sequence for event in watcher.events] == [1, 2]


async def test_a_fact_noted_during_a_delivery_comes_after_what_has_a_smaller_number() -> None:
    """A waiting emitter delivers what was noted before it took its number, and not what came after."""
    gate = anyio.Event()

    async def hold(event: CoreEvent) -> None:
        if event.sequence == 1:
            await gate.wait()

    watcher = Watcher(then=hold)
    root = _scope(observer=watcher)

    async def tell() -> None:
        await root.emit("round.started", RoundStarted())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tell)
        await anyio.wait_all_tasks_blocked()
        root.note("round.started", RoundStarted())
        tasks.start_soon(tell)
        await anyio.wait_all_tasks_blocked()
        root.note("round.started", RoundStarted())
        gate.set()
    assert [event.sequence for event in watcher.events] == [1, 2, 3]
    await root.flush()
    assert [event.sequence for event in watcher.events] == [1, 2, 3, 4]


async def test_flushing_does_not_overtake_who_waits_behind_it() -> None:
    """What is noted while a flush waits for its turn comes after the emitters with smaller numbers."""
    gate = anyio.Event()

    async def hold(event: CoreEvent) -> None:
        if event.sequence == 1:
            await gate.wait()

    watcher = Watcher(then=hold)
    root = _scope(observer=watcher)

    async def tell() -> None:
        await root.emit("round.started", RoundStarted())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tell)
        await anyio.wait_all_tasks_blocked()
        root.note("round.started", RoundStarted())
        for work in (root.flush, tell):
            tasks.start_soon(work)
            await anyio.wait_all_tasks_blocked()
        root.note("round.started", RoundStarted())
        gate.set()
    await root.flush()
    assert [event.sequence for event in watcher.events] == [1, 2, 3, 4]


async def test_c1_a_scope_that_served_a_run_gives_a_new_root() -> None:
    """Same consumers and limits, same fields, a fresh run id and a sequence of its own."""
    watcher = Watcher()
    scope = _scope(observer=watcher, fields=DiagnosticSpanFields(agent_id=Id("a")))
    first, second, third = scope.for_run(), scope.for_run(), scope.for_run()
    assert first is scope
    assert len({first.identity.run_id, second.identity.run_id, third.identity.run_id}) == 3
    assert second.identity.agent_id == "a"
    for root in (first, second):
        await root.emit("round.started", RoundStarted())
    assert [event.sequence for event in watcher.events] == [1, 1]
    assert len({event.event_id for event in watcher.events}) == 2


async def test_what_does_not_exist_is_misuse() -> None:
    """An unknown name, a payload of another event, a payload of no event, steps on a wrong event."""
    root: Any = _scope(observer=Watcher())
    payloads: list[object] = [NodeEntered(), {"x": 1}, lambda: None, None]
    for payload in payloads:
        with pytest.raises(UsageError, match="payload"):
            await root.emit("round.started", payload)
    with pytest.raises(UsageError, match="name"):
        await root.emit("run.exploded", RoundStarted())
    with pytest.raises(UsageError, match="sub_steps"):
        await root.emit("round.started", RoundStarted(), sub_steps=root.reporting().sub_flow)


def test_a_scope_in_options_is_taken_for_what_it_is() -> None:
    """None gives a scope that records nothing, anything but a scope is refused."""
    scope = _scope()
    assert as_diagnostics(scope) is scope
    assert not as_diagnostics(None).enabled
    with pytest.raises(UsageError):
        as_diagnostics(object())  # type: ignore[arg-type]


async def test_g15_an_output_may_be_any_sink_of_the_hosts() -> None:
    """Filtering and batching are its own: a sink that keeps only some events, in batches, is an output."""
    batches: list[list[str]] = []

    class Batching:
        def __init__(self) -> None:
            self.held: list[str] = []

        def accepts(self, descriptor: CoreEventDescriptor, /) -> bool:
            return not descriptor.content

        async def write(self, event: CoreEvent, /) -> None:
            if event.name == "round.started":
                self.held.append(event.event_id)
            if len(self.held) == 2:
                batches.append(self.held)
                self.held = []

    root = _scope(output=Batching())
    for _ in range(2):
        await root.emit("round.started", RoundStarted())
        await root.emit("node.entered", NodeEntered())
    assert [len(batch) for batch in batches] == [2]
