"""Spans: each tells facts of one execution, with the consumers and the numbers it shares with its whole tree."""
# ruff: noqa: SLF001 - an event, and a span, is filled in where it is made

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final, cast

from runlane.contracts import Id, require_id, sync_result
from runlane.diagnostics._catalog import CoreEventName
from runlane.diagnostics._consumers import CreateDiagnosticsOptions
from runlane.diagnostics._events import (
    CoreEvent,
    DiagnosticIdentity,
    DiagnosticSpanFields,
    Fact,
    Saying,
    SpanFacts,
    ToldEvent,
)
from runlane.diagnostics._producer import Producer
from runlane.diagnostics._recorder import SubFlowLogger
from runlane.diagnostics._steps import DebugStepsOutput, ReportedStep
from runlane.errors import OutOfTurnError, UsageError

__all__ = ["Reporting", "Span", "open_root"]

_PLACES: Final = {name: place for place, name in enumerate(DiagnosticIdentity._fields)}
_GIVEN: Final = frozenset({"run_id", "span_id", "parent_span_id"})
_ToldEvent: Final[Any] = ToldEvent


class Span:
    """A span. It keeps what it was opened with; its identity is worded when somebody asks.

    A visit of a workflow opens two and tells five events, whether or not anybody reads them: `child` and `tell` are
    written out, without the calls that would make them shorter.
    """

    __slots__ = ("_fields", "_identity", "_number", "_parent", "_producer", "_round", "_visit")

    _producer: Producer
    _identity: DiagnosticIdentity | None
    _parent: Span | None
    _number: int
    _fields: DiagnosticSpanFields | None
    _visit: int | None
    _round: int | None

    @classmethod
    def root(cls, producer: Producer, identity: DiagnosticIdentity) -> Span:
        """Return the span at the root."""
        span = cls()
        span._producer, span._identity, span._number = producer, identity, 0
        span._parent = span._fields = span._visit = span._round = None
        return span

    @property
    def identity(self) -> DiagnosticIdentity:
        known = self._identity
        if known is None:
            known = self._identity = self._worded()
        return known

    @property
    def enabled(self) -> bool:
        return self._producer.enabled

    @property
    def producer_id(self) -> Id:
        return self._producer.producer_id

    def event_id(self, sequence: int, /) -> Id:
        return Id(f"{self._producer.producer_id}:{sequence}")

    def child(
        self,
        fields: DiagnosticSpanFields | None = None,
        /,
        visit: int | None = None,
        round: int | None = None,  # noqa: A002 - the word of the identity
    ) -> Span:
        producer = self._producer
        producer.spans = number = producer.spans + 1
        span = Span()
        span._producer = producer
        span._identity = None
        span._parent = self
        span._number = number
        span._fields = fields
        span._visit = visit
        span._round = round
        return span

    def for_run(self) -> Span:
        served = self._producer.served
        if self._number not in served:
            served.add(self._number)
            return self
        said = {name: value for name, value in self.identity._asdict().items() if name not in _GIVEN}
        fields = DiagnosticSpanFields(**cast("SpanFacts", said))
        return open_root(replace(self._producer.options, run_id=None, fields=fields)).for_run()

    def emit(
        self, name: CoreEventName, payload: Saying, /, *, sub_steps: SubFlowLogger | None = None
    ) -> Coroutine[Any, Any, CoreEvent | None]:
        # Not a coroutine function around another one: this is called several times per visit.
        if not self._producer.enabled:
            return _nothing()
        return self._producer.emit(self, name, payload, sub_steps)

    def tell(self, fact: Fact, values: tuple[object, ...], /) -> Coroutine[Any, Any, CoreEvent | None] | None:
        producer = self._producer
        if producer.held or producer.asking:
            return producer.emit(self, fact.name, fact.payload(values), None) if producer.enabled else None
        producer.sequence = sequence = producer.sequence + 1
        observer, unix_ns = producer.observer, producer.unix_ns
        event: ToldEvent = _ToldEvent()
        event._fact = fact
        event._said = values
        event._sequence = sequence
        event._steps = None
        event._teller = self
        event._unix_ns = unix_ns()
        producer.held = True
        given, error = None, None
        try:
            answer: object = observer.accepts(event)
            if answer is True or sync_result(answer, argument="observer.accepts"):
                given = observer.on_event(event)
        except Exception as raised:  # noqa: BLE001 - reaches the teller, once the output has the event
            error = raised
        except BaseException:
            producer.held = producer.noted
            raise
        if given is None and error is None and producer.output is None:
            producer.held = producer.noted
            return None
        return producer.finish(event, given, error)

    def note(self, name: CoreEventName, payload: Saying, /) -> None:
        if self._producer.enabled:
            self._producer.note(self, name, payload)

    async def flush(self) -> None:
        if self._producer.enabled:
            await self._producer.flush()

    def reporting(self) -> Reporting:
        return Reporting(self, self._producer)

    def _worded(self) -> DiagnosticIdentity:
        """Return the parent's identity with what this span was opened with."""
        parent: Any = self._parent  # the root, which has none, was given its identity
        facts: list[Any] = [*parent.identity]
        facts[1], facts[2] = Id(f"{self._producer.producer_id}.{self._number}"), facts[1]
        given = {} if self._fields is None else self._fields.given
        for name, value in (*given.items(), ("visit", self._visit), ("round", self._round)):
            if value is not None:
                facts[_PLACES[name]] = value
        return DiagnosticIdentity._make(facts)


async def _nothing() -> None:
    """Nobody listens."""


class Reporting:
    __slots__ = ("_closed", "_logger", "_producer", "_scope")

    def __init__(self, scope: Span, producer: Producer) -> None:
        self._scope = scope
        self._producer = producer
        self._logger: SubFlowLogger | None = None
        self._closed = False

    @property
    def sub_flow(self) -> SubFlowLogger:
        if self._logger is None:
            options = self._producer.options
            self._logger = SubFlowLogger(
                limits=options.limits, on_progress=options.on_progress, clock=options.clock, ids=options.ids
            )
            if self._closed:
                self._logger.close()
        return self._logger

    def report(self, step: ReportedStep, /) -> None:
        self.sub_flow.report(step)

    def debug(self, output: DebugStepsOutput, /) -> None:
        if self._closed:
            raise OutOfTurnError("the visit is over", argument="debug")
        if type(output) is not DebugStepsOutput:
            raise UsageError(f"must be DebugStepsOutput, not {type(output).__name__}", argument="output")
        self._scope.note("debug.steps", output)

    def close(self) -> None:
        self._closed = True
        if self._logger is not None:
            self._logger.close()


def open_root(options: CreateDiagnosticsOptions) -> Span:
    producer = Producer(options)
    run_id = options.ids.new("run") if options.run_id is None else require_id(options.run_id, argument="run_id")
    given = {} if options.fields is None else cast("dict[str, Any]", options.fields.given)
    own = {name: value for name, value in given.items() if value is not None}
    return Span.root(producer, DiagnosticIdentity(run_id=Id(run_id), span_id=producer.producer_id, **own))
