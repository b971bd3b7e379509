"""Numbers events and brings them to the consumers, one at a time and in order.

A producer is one root scope with all its descendants. An event takes its number before anything is awaited. Delivery
goes by turns: an emitter waits until those before it are through, then delivers what synchronous code told meanwhile,
then its own event. An emitter that is cancelled while it waits takes its event along; the hole in the numbers proves
nothing. A consumer that tells a fact from within its own call is refused: it would wait for itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import Any, Final, cast

import anyio

from runlane.clock import SystemClock
from runlane.contracts import ErrorInfo, Id, TimestampMs, get_error_info, sync_result, timestamp_ms
from runlane.diagnostics._bounds import DiagnosticLimits
from runlane.diagnostics._catalog import CORE_EVENT_CATALOG, CoreEventDescriptor, CoreEventName
from runlane.diagnostics._consumers import CreateDiagnosticsOptions
from runlane.diagnostics._events import VERSION, CoreEvent, DiagnosticIdentity, ExecutionEventDescriptor
from runlane.diagnostics._payloads import PAYLOADS, CoreEventPayload
from runlane.diagnostics._recorder import SubFlowLogger, SubSteps
from runlane.diagnostics._reports import bounded_report
from runlane.errors import OutOfTurnError, UsageError

__all__ = ["Producer"]

_made: Final[Any] = tuple.__new__
"""Makes a tuple with names at half the cost of its constructor; all its fields are given."""

_DESCRIPTORS: Final = dict(CORE_EVENT_CATALOG)
_REPORTS: Final = frozenset({"node.report", "debug.steps"})
"""The events whose payload is bounded before anybody gets it."""

_ORDINARY: Final = {name: PAYLOADS[name] for name, about in _DESCRIPTORS.items() if not about.content}
"""The payloads of the events that hold no content."""

_WITH_CONTENT: Final[dict[CoreEventName, CoreEventDescriptor]] = {
    "node.finished": CoreEventDescriptor("node.finished", content=True),
    "tool.finished": CoreEventDescriptor("tool.finished", content=True),
}
"""The events that carry steps, as consumers are asked about the text of the steps."""


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
    """The consumers of one tree of scopes, and its numbers."""

    __slots__ = (
        "_asking",
        "_busy",
        "_current",
        "_noted",
        "_observer",
        "_output",
        "_prefix",
        "_sequence",
        "_spans",
        "_unix_ms",
        "_waiting",
        "enabled",
        "options",
        "output_errors",
        "producer_id",
    )

    def __init__(self, options: CreateDiagnosticsOptions) -> None:
        self.options = options
        self.producer_id = Id(options.ids.new("span"))
        self._prefix = f"{self.producer_id}:"
        clock = options.clock
        self._unix_ms: Callable[[], int] = (
            clock.unix_ms if type(clock) is SystemClock else lambda: timestamp_ms(clock.now())
        )
        self.enabled = options.observer is not None or options.output is not None
        self.output_errors = 0
        self._observer = options.observer
        self._output = options.output
        self._sequence = 0
        self._spans = 0
        self._busy = False
        self._current: object = None
        self._asking: _Delivery | None = None
        self._waiting: deque[anyio.Event] = deque()
        self._noted: deque[_Delivery] = deque()

    def next_span(self) -> Id:
        """Return a span id: unique, because the producer's own id is."""
        self._spans += 1
        return Id(f"{self.producer_id}.{self._spans}")

    def tell(  # noqa: C901 - written out: it is the path of every event of every visit
        self,
        identity: DiagnosticIdentity,
        name: CoreEventName,
        payload: CoreEventPayload | Callable[[], CoreEventPayload],
        sub_steps: SubFlowLogger | None,
    ) -> Coroutine[Any, Any, CoreEvent | None] | None:
        """Deliver an event at once, as far as no consumer has to be waited for; return what is left to await."""
        if (
            self._busy
            or self._asking
            or self._noted
            or sub_steps is not None
            or type(payload) is not _ORDINARY.get(name)
        ):
            return self.emit(identity, name, payload, sub_steps)
        self._sequence = sequence = self._sequence + 1
        observer, error = self._observer, None
        observes, marker = False, object()
        rest: Coroutine[Any, Any, CoreEvent] | None = None
        self._busy = True
        self._current = marker
        token = _UNDER_WAY.set(marker)
        try:
            if observer is not None:
                try:
                    answer: object = observer.accepts(_made(ExecutionEventDescriptor, (name, False, identity)))
                    observes = answer is True or bool(sync_result(answer, argument="observer.accepts"))
                except Exception as raised:  # noqa: BLE001 - reaches the teller, once the output has the event
                    error = raised
            writes = self._output is not None and self._writes(_DESCRIPTORS[name])
            if observes or writes:
                event: CoreEvent = _made(CoreEvent, (
                    f"{self._prefix}{sequence}", name, self.producer_id, sequence, self._unix_ms(), identity, payload,
                    None, None, None, VERSION,
                ))  # fmt: skip
                if observes and observer is not None:
                    try:
                        given: object = observer.on_event(event)
                        if given is not None and hasattr(type(given), "__await__"):
                            rest = self._await_observer(event, cast("Awaitable[object]", given), token, writes=writes)
                    except Exception as raised:  # noqa: BLE001 - likewise
                        error = raised
                if writes and rest is None:
                    given = self._begin_write(event)
                    if given is not None:
                        rest = self._await_output(event, cast("Awaitable[object]", given), token, error)
        finally:
            if rest is None:
                _UNDER_WAY.reset(token)
                self._leave()
        if rest is None and error is not None:
            raise error
        return rest

    async def _await_observer(
        self, event: CoreEvent, given: Awaitable[object], token: Token[object], *, writes: bool
    ) -> CoreEvent:
        """Wait for the observer, then let the output have the event."""
        error: Exception | None = None
        try:
            try:
                await given
            except Exception as raised:  # noqa: BLE001 - raised below, once the output has the event
                error = raised
            if writes:
                await self._write(event)
        finally:
            _UNDER_WAY.reset(token)
            self._leave()
        if error is not None:
            raise error
        return event

    async def _await_output(
        self, event: CoreEvent, given: Awaitable[object], token: Token[object], error: Exception | None
    ) -> CoreEvent:
        """Wait for the output; the observer had its turn, and may have failed."""
        try:
            await self._counted(given)
        finally:
            _UNDER_WAY.reset(token)
            self._leave()
        if error is not None:
            raise error
        return event

    async def emit(
        self,
        identity: DiagnosticIdentity,
        name: CoreEventName,
        payload: CoreEventPayload | Callable[[], CoreEventPayload],
        sub_steps: SubFlowLogger | None,
    ) -> CoreEvent | None:
        """Deliver an event, after everything that has a smaller number."""
        delivery = self._prepare(identity, name, payload, sub_steps)
        if delivery.idle and not self._noted:
            return None
        if self._busy:
            await self._wait()
        token = self._enter(delivery)
        try:
            earlier = await self._deliver_noted(delivery.sequence) if self._noted else None
            own = await self._deliver(delivery)
        finally:
            _UNDER_WAY.reset(token)
            self._leave()
        if earlier is not None or own is not None:
            raise own if earlier is None else earlier  # type: ignore[misc]  # one of the two is there
        return delivery.observed or delivery.written

    def note(
        self,
        identity: DiagnosticIdentity,
        name: CoreEventName,
        payload: CoreEventPayload | Callable[[], CoreEventPayload],
    ) -> None:
        """Take an event's number now, and deliver it before the next one that is awaited."""
        delivery = self._prepare(identity, name, payload, None)
        if not delivery.idle:
            self._noted.append(delivery)

    async def flush(self) -> None:
        """Deliver what was noted."""
        self._refuse_reentry()
        if not self._noted:
            return
        # What is noted while this waits has a larger number than emitters that wait behind it.
        last = self._sequence
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
        identity: DiagnosticIdentity,
        name: CoreEventName,
        payload: CoreEventPayload | Callable[[], CoreEventPayload],
        sub_steps: SubFlowLogger | None,
    ) -> _Delivery:
        self._refuse_reentry()
        descriptor = _DESCRIPTORS.get(name)
        if descriptor is None:
            raise UsageError(f"there is no event {name!r}", argument="name")
        if sub_steps is not None and name not in _WITH_CONTENT:
            raise UsageError(f"{name} carries no steps", argument="sub_steps")
        self._sequence += 1
        delivery = _Delivery(self._sequence)
        outer, self._asking = self._asking, delivery
        token = _UNDER_WAY.set(delivery)
        try:
            self._fill(delivery, identity, descriptor, payload, sub_steps)
        finally:
            _UNDER_WAY.reset(token)
            self._asking = outer
        return delivery

    def _fill(
        self,
        delivery: _Delivery,
        identity: DiagnosticIdentity,
        descriptor: CoreEventDescriptor,
        payload: CoreEventPayload | Callable[[], CoreEventPayload],
        sub_steps: SubFlowLogger | None,
    ) -> None:
        """Ask who takes an event, and build it if anybody does."""
        if descriptor.content and not self._content_accepted(descriptor):
            return
        observes = self._observes(delivery, identity, descriptor)
        writes = self._writes(descriptor)
        if not observes and not writes:
            return
        name = descriptor.name
        if type(payload) is not PAYLOADS[name] or name in _REPORTS:
            payload = _built(name, payload, self.options.limits)
        event = self._event(delivery.sequence, identity, name, payload)
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
        if self._observer is None:
            return False
        try:
            answer = self._observer.accepts(
                _made(ExecutionEventDescriptor, (descriptor.name, descriptor.content, identity))
            )
            return answer is True or bool(sync_result(answer, argument="observer.accepts"))
        except Exception as error:  # noqa: BLE001 - reaches the emitter, once the output has the event
            delivery.fail(error)
            return False

    def _writes(self, descriptor: CoreEventDescriptor) -> bool:
        if self._output is None:
            return False
        try:
            answer = self._output.accepts(descriptor)
            return answer is True or bool(sync_result(answer, argument="output.accepts"))
        except Exception as error:  # noqa: BLE001 - an output never stops a run
            self._count(error)
            return False

    def _event(self, sequence: int, identity: DiagnosticIdentity, name: CoreEventName, payload: Any) -> CoreEvent:  # noqa: ANN401 - checked before
        return CoreEvent(
            event_id=Id(f"{self._prefix}{sequence}"),
            name=name,
            producer_id=self.producer_id,
            sequence=sequence,
            occurred_at=TimestampMs(self._unix_ms()),
            identity=identity,
            payload=payload,
        )

    def _add_steps(self, delivery: _Delivery, event: CoreEvent, steps: SubSteps | None) -> None:
        """Give each consumer the steps with their text only if content was accepted for it."""
        if steps is None:
            return
        descriptor = _WITH_CONTENT[event.name]
        accepted = self._content_accepted(descriptor)
        whole = _with_steps(event, steps)
        bare = _with_steps(event, SubSteps(tuple(e.stripped() for e in steps.entries), steps.dropped, steps.truncated))
        if delivery.observed is not None:
            takes = accepted and self._observes(delivery, event.identity, descriptor)
            delivery.observed = whole if takes else bare
        if delivery.written is not None:
            delivery.written = whole if accepted and self._writes(descriptor) else bare

    # ---- taking turns

    def _refuse_reentry(self) -> None:
        under_way = _UNDER_WAY.get()
        if under_way is not None and (under_way is self._current or under_way is self._asking):
            raise OutOfTurnError("a consumer cannot tell a fact while it is given one", argument="emit")

    def _enter(self, delivery: _Delivery) -> Token[object]:
        self._busy = True
        self._current = delivery
        return _UNDER_WAY.set(delivery)

    async def _wait(self) -> None:
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
        self._current = None
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._busy = False

    # ---- delivering

    async def _deliver_noted(self, before: int) -> Exception | None:
        first: Exception | None = None
        while self._noted and self._noted[0].sequence < before:
            error = await self._deliver(self._noted.popleft())
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
            given: object = self._observer.on_event(event)  # type: ignore[union-attr]  # it accepted the event
        except Exception as error:  # noqa: BLE001 - raised to the emitter once the output has the event
            delivery.fail(error)
            return None
        return given if given is not None and hasattr(type(given), "__await__") else None

    def _begin_write(self, event: CoreEvent) -> object:
        """Give an event to the output; return what is to be awaited, or None."""
        try:
            write: Callable[[CoreEvent], object] = self._output.write  # type: ignore[union-attr]  # it accepted it
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


def _built(
    name: CoreEventName, payload: CoreEventPayload | Callable[[], CoreEventPayload], limits: DiagnosticLimits
) -> CoreEventPayload:
    kind = PAYLOADS[name]
    built: Any = payload if type(payload) is kind else _called(payload)
    if type(built) is not kind:
        raise UsageError(f"{name} says {kind.__name__}, not {type(built).__name__}", argument="payload")
    return bounded_report(built, limits)


def _called(payload: object) -> object:
    return sync_result(payload(), argument="payload") if callable(payload) else payload


def _with_steps(event: CoreEvent, steps: SubSteps) -> CoreEvent:
    return event._replace(
        sub_steps=steps.entries,
        sub_steps_dropped=steps.dropped or None,
        sub_steps_truncated=steps.truncated or None,
    )
