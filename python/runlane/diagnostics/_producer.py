"""Numbers events and brings them to the consumers, one at a time and in order.

A producer is one root scope with all its descendants. An event takes its number before anything is awaited. Delivery
goes by turns: an emitter waits until those before it are through, then delivers what synchronous code told meanwhile,
then its own event. An emitter that is cancelled while it waits takes its event along; the hole in the numbers proves
nothing. A consumer that tells a fact from within its own call is refused: it would wait for itself.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import Any, Final, cast

import anyio

from runlane.clock import SystemClock
from runlane.contracts import ErrorInfo, Id, get_error_info, sync_result, timestamp_ms
from runlane.diagnostics._bounds import DiagnosticLimits
from runlane.diagnostics._catalog import CORE_EVENT_CATALOG, CoreEventDescriptor, CoreEventName
from runlane.diagnostics._consumers import CreateDiagnosticsOptions, ExecutionObserver
from runlane.diagnostics._events import (
    CoreEvent,
    DiagnosticIdentity,
    ExecutionEventDescriptor,
    Saying,
    Teller,
    carrying,
    event_of,
)
from runlane.diagnostics._payloads import PAYLOADS, CoreEventPayload
from runlane.diagnostics._recorder import SubFlowLogger, SubSteps
from runlane.diagnostics._reports import bounded_report
from runlane.errors import OutOfTurnError, UsageError

__all__ = ["Producer"]

_DESCRIPTORS: Final = dict(CORE_EVENT_CATALOG)
_REPORTS: Final = frozenset({"node.report", "debug.steps"})
"""The events whose payload is bounded before anybody gets it."""

_WITH_CONTENT: Final[dict[CoreEventName, CoreEventDescriptor]] = {
    "node.finished": CoreEventDescriptor("node.finished", content=True),
    "tool.finished": CoreEventDescriptor("tool.finished", content=True),
}
"""The events that carry steps, as consumers are asked about the text of the steps."""


_NOBODY: Final = "nobody listens"


class _NoObserver:
    """Stands for the observer where there is none."""

    __slots__ = ()

    @staticmethod
    def accepts(_: object, /) -> bool:
        return False

    @staticmethod
    def on_event(_: object, /) -> None:
        """Never called."""


class _Delivery:
    """One event on its way: who gets which form of it, and what an observer already said against it."""

    __slots__ = ("error", "observed", "sequence", "written")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.observed: CoreEvent | None = None
        self.written: CoreEvent | None = None
        self.error: Exception | None = None

    def fail(self, error: Exception) -> None:
        """Keep the first error an observer raised."""
        if self.error is None:
            self.error = error

    @property
    def idle(self) -> bool:
        """Whether nobody gets it and nobody spoke against it."""
        return self.observed is None and self.written is None and self.error is None


_UNDER_WAY: ContextVar[object] = ContextVar("runlane_delivery", default=None)


class Producer:
    """The consumers of one tree of scopes, and its numbers.

    Attributes:
        enabled: Whether there is a consumer.
        observer: Watches.
        output: Keeps.
        unix_ns: Reads the wall clock.
        sequence: The number that was given last.
        spans: How many spans were opened below the root.
        held: What keeps an event from being delivered at once: True while `Span.tell` calls a consumer, else the
            delivery that is awaited, else what was noted; or that nobody listens.
        asking: The event that is being prepared.
        noted: What synchronous code told.
        served: The numbers of the spans that served a run.
    """

    __slots__ = (
        "_busy",
        "_waiting",
        "_watching",
        "asking",
        "enabled",
        "held",
        "noted",
        "observer",
        "options",
        "output",
        "output_errors",
        "producer_id",
        "sequence",
        "served",
        "spans",
        "unix_ns",
    )

    def __init__(self, options: CreateDiagnosticsOptions) -> None:
        self.options = options
        self.producer_id = Id(options.ids.new("span"))
        clock = options.clock
        self.unix_ns: Callable[[], int] = (
            clock.unix_ns if type(clock) is SystemClock else lambda: timestamp_ms(clock.now()) * 1_000_000
        )
        self.observer: ExecutionObserver = options.observer or _NoObserver()
        self.output = options.output
        self.enabled = options.observer is not None or options.output is not None
        self.output_errors = 0
        self.sequence = 0
        self.spans = 0
        self.served: set[int] = set()
        self._busy = False
        self.asking: _Delivery | None = None
        self.noted: deque[_Delivery] = deque()
        self.held: object = self.noted if self.enabled else _NOBODY
        self._waiting: deque[anyio.Event] = deque()
        self._watching: object = None

    def finish(self, event: CoreEvent, given: object, error: Exception | None) -> Coroutine[Any, Any, CoreEvent] | None:
        """Bring an event the rest of its way, once the observer was called; return what is left to await.

        Args:
            event: On its way.
            given: What the observer returned.
            error: What it raised.
        """
        rest = None
        try:
            watching = given if given is not None and hasattr(type(given), "__await__") else None
            writing = self._offer(event) if watching is None else None
            if watching is not None or writing is not None:
                self._busy = True
                self.held = object()
                self._watching = watching
                rest = self._finish(event, watching, writing, error)
        finally:
            if rest is None:
                self.held = self.noted
        if rest is None and error is not None:
            raise error
        return rest

    async def _finish(self, event: CoreEvent, watching: object, writing: object, error: Exception | None) -> CoreEvent:
        token = _UNDER_WAY.set(self.held)
        try:
            if watching is not None:
                try:
                    await cast("Awaitable[object]", watching)
                except Exception as raised:  # noqa: BLE001 - raised below, once the output has the event
                    error = raised
                writing = self._offer(event)
            if writing is not None:
                await self._counted(cast("Awaitable[object]", writing))
        finally:
            _UNDER_WAY.reset(token)
            self._watching = None
            self._leave()
        if error is not None:
            raise error
        return event

    async def emit(
        self,
        teller: Teller,
        name: CoreEventName,
        payload: Saying,
        sub_steps: SubFlowLogger | None,
    ) -> CoreEvent | None:
        """Deliver an event, after everything that has a smaller number."""
        delivery = self._prepare(teller, name, payload, sub_steps)
        if delivery.idle and not self.noted:
            return None
        if self._busy:
            await self._wait()
        token = self._enter(delivery)
        try:
            earlier = await self._deliver_noted(delivery.sequence) if self.noted else None
            own = await self._deliver(delivery)
        finally:
            _UNDER_WAY.reset(token)
            self._leave()
        if earlier is not None or own is not None:
            raise own if earlier is None else earlier  # type: ignore[misc]  # one of the two is there
        return delivery.observed or delivery.written

    def note(
        self,
        teller: Teller,
        name: CoreEventName,
        payload: Saying,
    ) -> None:
        """Take an event's number now, and deliver it before the next one that is awaited."""
        delivery = self._prepare(teller, name, payload, None)
        if not delivery.idle:
            self.noted.append(delivery)

    async def flush(self) -> None:
        """Deliver what was noted."""
        self._refuse_reentry()
        if not self.noted:
            return
        # What is noted while this waits has a larger number than emitters that wait behind it.
        last = self.sequence
        if self._busy:
            await self._wait()
        token = self._enter(_Delivery(last))
        try:
            error = await self._deliver_noted(last + 1)
        finally:
            _UNDER_WAY.reset(token)
            self._leave()
        if error is not None:
            raise error

    # ---- who gets what

    def _prepare(
        self,
        teller: Teller,
        name: CoreEventName,
        payload: Saying,
        sub_steps: SubFlowLogger | None,
    ) -> _Delivery:
        self._refuse_reentry()
        descriptor = _DESCRIPTORS.get(name)
        if descriptor is None:
            raise UsageError(f"there is no event {name!r}", argument="name")
        if sub_steps is not None and name not in _WITH_CONTENT:
            raise UsageError(f"{name} carries no steps", argument="sub_steps")
        self.sequence += 1
        delivery = _Delivery(self.sequence)
        outer, self.asking = self.asking, delivery
        token = _UNDER_WAY.set(delivery)
        try:
            self._fill(delivery, teller, descriptor, payload, sub_steps)
        finally:
            _UNDER_WAY.reset(token)
            self.asking = outer
        return delivery

    def _fill(
        self,
        delivery: _Delivery,
        teller: Teller,
        descriptor: CoreEventDescriptor,
        payload: Saying,
        sub_steps: SubFlowLogger | None,
    ) -> None:
        """Ask who takes an event, and build it if anybody does."""
        if descriptor.content and not self._content_accepted(descriptor):
            return
        observes = self._observes(delivery, teller.identity, descriptor)
        writes = self._writes(descriptor)
        if not observes and not writes:
            return
        name = descriptor.name
        made: Any = payload
        if type(payload) is not PAYLOADS[name] or name in _REPORTS:
            made = _built(name, payload, self.options.limits)
        event = event_of(teller, name, made, delivery.sequence, self.unix_ns())
        delivery.observed = event if observes else None
        delivery.written = event if writes else None
        if sub_steps is not None:
            self._add_steps(delivery, event, sub_steps.for_event())

    def _content_accepted(self, descriptor: CoreEventDescriptor) -> bool:
        accept = self.options.accept_content
        if isinstance(accept, bool):
            return accept
        return bool(sync_result(accept(descriptor), argument="accept_content"))

    def _observes(self, delivery: _Delivery, identity: DiagnosticIdentity, descriptor: CoreEventDescriptor) -> bool:
        try:
            answer = self.observer.accepts(ExecutionEventDescriptor(descriptor.name, descriptor.content, identity))
            return answer is True or bool(sync_result(answer, argument="observer.accepts"))
        except Exception as error:  # noqa: BLE001 - reaches the emitter, once the output has the event
            delivery.fail(error)
            return False

    def _writes(self, descriptor: CoreEventDescriptor) -> bool:
        if self.output is None:
            return False
        try:
            answer = self.output.accepts(descriptor)
            return answer is True or bool(sync_result(answer, argument="output.accepts"))
        except Exception as error:  # noqa: BLE001 - an output never stops a run
            self._count(error)
            return False

    def _add_steps(self, delivery: _Delivery, event: CoreEvent, steps: SubSteps | None) -> None:
        """Give each consumer the steps with their text only if content was accepted for it."""
        if steps is None:
            return
        descriptor = _WITH_CONTENT[event.name]
        accepted = self._content_accepted(descriptor)
        whole = carrying(event, steps)
        bare = carrying(event, SubSteps(tuple(e.stripped() for e in steps.entries), steps.dropped, steps.truncated))
        if delivery.observed is not None:
            takes = accepted and self._observes(delivery, event.identity, descriptor)
            delivery.observed = whole if takes else bare
        if delivery.written is not None:
            delivery.written = whole if accepted and self._writes(descriptor) else bare

    # ---- taking turns

    def _refuse_reentry(self) -> None:
        under_way = _UNDER_WAY.get()
        if (under_way is not None and (under_way is self.held or under_way is self.asking)) or self._is_below():
            raise _out_of_turn()

    def _is_below(self) -> bool:
        """Whether this is called from within a consumer that `Span.tell` is calling: on the stack of this thread.

        A mark that says so to this thread and to no other would cost each event as much as all the rest of it.
        """
        frame = inspect.currentframe() if self.held is True else None
        while frame is not None:
            if frame.f_code.co_qualname == "Span.tell" and frame.f_locals["producer"] is self:
                return True
            frame = frame.f_back
        return False

    def _enter(self, delivery: _Delivery) -> Token[object]:
        self._busy = True
        self.held = delivery
        return _UNDER_WAY.set(delivery)

    async def _wait(self) -> None:
        # A task that an observer began and left to be awaited bears no mark of that.
        if self._watching is not None and anyio.get_current_task().id == id(self._watching):
            raise _out_of_turn()
        turn = anyio.Event()
        self._waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self._leave()
            else:
                self._waiting.remove(turn)
            raise

    def _leave(self) -> None:
        if self._waiting:
            self.held = turn = self._waiting.popleft()
            turn.set()
        else:
            self._busy = False
            self.held = self.noted

    # ---- delivering

    async def _deliver_noted(self, before: int) -> Exception | None:
        first: Exception | None = None
        while self.noted and self.noted[0].sequence < before:
            error = await self._deliver(self.noted.popleft())
            first = error if first is None else first
        return first

    async def _deliver(self, delivery: _Delivery) -> Exception | None:
        """Bring an event to the observer, then to the output; return what the observer raised."""
        if delivery.observed is not None:
            given = self._observe(delivery, delivery.observed)
            if given is not None:
                try:
                    await cast("Awaitable[object]", given)
                except Exception as error:  # noqa: BLE001 - raised to the emitter once the output has the event
                    delivery.fail(error)
        if delivery.written is not None:
            await self._write(delivery.written)
        return delivery.error

    def _observe(self, delivery: _Delivery, event: CoreEvent) -> object:
        """Give an event to the observer; return what is to be awaited, or None."""
        try:
            given: object = self.observer.on_event(event)
        except Exception as error:  # noqa: BLE001 - raised to the emitter once the output has the event
            delivery.fail(error)
            return None
        return given if given is not None and hasattr(type(given), "__await__") else None

    def _offer(self, event: CoreEvent) -> object:
        """Ask the output, and give it the event if it takes it; return what is to be awaited, or None."""
        if self.output is None or not self._writes(_DESCRIPTORS[event.name]):
            return None
        return self._begin_write(event)

    def _begin_write(self, event: CoreEvent) -> object:
        """Give an event to the output; return what is to be awaited, or None."""
        try:
            write: Callable[[CoreEvent], object] = self.output.write  # type: ignore[union-attr]  # it accepted it
            given = write(event)
        except Exception as error:  # noqa: BLE001 - an output never stops a run
            self._count(error)
            return None
        return given if given is not None and hasattr(type(given), "__await__") else None

    async def _write(self, event: CoreEvent) -> None:
        given = self._begin_write(event)
        if given is not None:
            await self._counted(cast("Awaitable[object]", given))

    async def _counted(self, given: Awaitable[object]) -> None:
        try:
            await given
        except Exception as error:  # noqa: BLE001 - an output never stops a run
            self._count(error)

    def _count(self, error: Exception) -> None:
        self.output_errors += 1
        tell: Callable[[ErrorInfo], object] | None = self.options.on_output_error
        if tell is not None:
            with suppress(Exception):  # a broken report of a broken output stops no run either
                sync_result(tell(get_error_info(error)), argument="on_output_error")


def _out_of_turn() -> OutOfTurnError:
    return OutOfTurnError("a consumer cannot tell a fact while it is given one", argument="emit")


def _built(name: CoreEventName, payload: Saying, limits: DiagnosticLimits) -> CoreEventPayload:
    kind = PAYLOADS[name]
    built: Any = payload if type(payload) is kind else _called(payload)
    if type(built) is not kind:
        raise UsageError(f"{name} says {kind.__name__}, not {type(built).__name__}", argument="payload")
    return bounded_report(built, limits)


def _called(payload: object) -> object:
    return sync_result(payload(), argument="payload") if callable(payload) else payload
