"""Scopes: who tells facts, in a tree of spans under one run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, Protocol, cast, runtime_checkable

from runlane.contracts import Id, RecordingScope, require_id
from runlane.diagnostics._catalog import CoreEventName
from runlane.diagnostics._consumers import CreateDiagnosticsOptions
from runlane.diagnostics._events import CoreEvent, DiagnosticIdentity, DiagnosticSpanFields, SpanFacts
from runlane.diagnostics._payloads import CoreEventPayload
from runlane.diagnostics._producer import Producer
from runlane.diagnostics._recorder import SubFlowLogger
from runlane.diagnostics._steps import DebugStepsOutput, ReportedStep
from runlane.errors import OutOfTurnError, UsageError

__all__ = ["DiagnosticContext", "NodeReportingContext", "as_diagnostics", "create_diagnostics"]


class NodeReportingContext(Protocol):
    """How the code of one visit, or of one tool call, tells what it does. All of it is synchronous."""

    @property
    def sub_flow(self) -> SubFlowLogger:
        """The recorder of the visit's steps."""
        ...

    def report(self, step: ReportedStep, /) -> None:
        """Record a step under the reporter's own id, or change it.

        Raises:
            InvalidValueError: Kind, group or sub-node differ from what was reported first.
            OutOfTurnError: The visit is over.
        """
        ...

    def debug(self, output: DebugStepsOutput, /) -> None:
        """Contribute extra material, always content.

        Raises:
            OutOfTurnError: The visit is over.
        """
        ...

    def close(self) -> None:
        """End the visit: nothing is written from now on. For whoever runs the visit."""
        ...


@runtime_checkable
class DiagnosticContext(Protocol):
    """One span: it tells facts, and opens spans below it."""

    @property
    def identity(self) -> DiagnosticIdentity:
        """Whose facts these are."""
        ...

    @property
    def enabled(self) -> bool:
        """Whether anybody listens; if not, `emit` does nothing."""
        ...

    def child(self, fields: DiagnosticSpanFields | None = None, /) -> DiagnosticContext:
        """Open a span below this one. Fields not given are inherited, consumers and numbers are shared."""
        ...

    def for_run(self) -> DiagnosticContext:
        """Return the scope of the next run: this one the first time, later a new root with the same consumers."""
        ...

    def emit(
        self,
        name: CoreEventName,
        payload: CoreEventPayload | Callable[[], CoreEventPayload],
        /,
        *,
        sub_steps: SubFlowLogger | None = None,
    ) -> Coroutine[Any, Any, CoreEvent | None]:
        """Tell a fact and wait until its consumers took it.

        Args:
            name: The event.
            payload: Its payload, or what makes it, called only if somebody will take the event.
            sub_steps: What a visit reported; for `node.finished` and `tool.finished`.

        Returns:
            The event, or None if nobody took it.

        Raises:
            OutOfTurnError: A consumer calls this while it is given an event of the same producer.
            UsageError: The name or the payload does not exist.
            Exception: Whatever the observer raised.
        """
        ...

    def tell(
        self,
        name: CoreEventName,
        payload: CoreEventPayload | Callable[[], CoreEventPayload],
        /,
        *,
        sub_steps: SubFlowLogger | None = None,
    ) -> Coroutine[Any, Any, CoreEvent | None] | None:
        """Tell a fact as `emit` does, without a coroutine where no consumer has to be waited for.

        Returns:
            What is left to await, at once and by the same task; None if everybody has the event.

        Raises:
            Exception: As for `emit`; here, or when the rest is awaited.
        """
        ...

    def note(self, name: CoreEventName, payload: CoreEventPayload | Callable[[], CoreEventPayload], /) -> None:
        """Tell a fact from synchronous code: it takes its number now and is delivered before the next awaited one.

        What the observer raises surfaces there.
        """
        ...

    async def flush(self) -> None:
        """Deliver what was noted. What the observer raised for it is raised here."""
        ...

    def reporting(self) -> NodeReportingContext:
        """Return how the code of this span reports its steps."""
        ...


_made: Final[Any] = tuple.__new__
_PLACES: Final = {name: place for place, name in enumerate(DiagnosticIdentity._fields)}

_GIVEN: Final = frozenset({"run_id", "span_id", "parent_span_id"})


class _Scope:
    __slots__ = ("_fields", "_identity", "_parent", "_producer", "_served", "_span_id")

    def __init__(
        self, producer: Producer, span_id: Id, parent: DiagnosticIdentity | _Scope, fields: DiagnosticSpanFields | None
    ) -> None:
        self._producer = producer
        self._span_id = span_id
        self._parent = parent
        self._fields = fields
        self._served = False
        # Made when it is first asked for: a run without diagnostics opens a span per visit and looks at few of them.
        self._identity: DiagnosticIdentity | None = parent if isinstance(parent, DiagnosticIdentity) else None

    @property
    def identity(self) -> DiagnosticIdentity:
        known = self._identity
        if known is None:
            known = self._identity = _below(self._parent, self._span_id, self._fields)
        return known

    @property
    def enabled(self) -> bool:
        return self._producer.enabled

    def child(self, fields: DiagnosticSpanFields | None = None, /) -> DiagnosticContext:
        return _Scope(self._producer, self._producer.next_span(), self, fields)

    def for_run(self) -> DiagnosticContext:
        if not self._served:
            self._served = True
            return self
        said = {name: value for name, value in self.identity._asdict().items() if name not in _GIVEN}
        fields = DiagnosticSpanFields(**cast("SpanFacts", said))
        return _root(replace(self._producer.options, run_id=None, fields=fields)).for_run()

    def emit(
        self,
        name: CoreEventName,
        payload: CoreEventPayload | Callable[[], CoreEventPayload],
        /,
        *,
        sub_steps: SubFlowLogger | None = None,
    ) -> Coroutine[Any, Any, CoreEvent | None]:
        # Not a coroutine function around another one: this is called several times per visit.
        if not self._producer.enabled:
            return _nothing()
        return self._producer.emit(self.identity, name, payload, sub_steps)

    def tell(
        self,
        name: CoreEventName,
        payload: CoreEventPayload | Callable[[], CoreEventPayload],
        /,
        *,
        sub_steps: SubFlowLogger | None = None,
    ) -> Coroutine[Any, Any, CoreEvent | None] | None:
        producer = self._producer
        if not producer.enabled:
            return None
        return producer.tell(self._identity or self.identity, name, payload, sub_steps)

    def note(self, name: CoreEventName, payload: CoreEventPayload | Callable[[], CoreEventPayload], /) -> None:
        if self._producer.enabled:
            self._producer.note(self.identity, name, payload)

    async def flush(self) -> None:
        if self._producer.enabled:
            await self._producer.flush()

    def reporting(self) -> NodeReportingContext:
        return _Reporting(self, self._producer)


async def _nothing() -> None:
    """Nobody listens."""


class _Reporting:
    __slots__ = ("_closed", "_logger", "_producer", "_scope")

    def __init__(self, scope: _Scope, producer: Producer) -> None:
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


def create_diagnostics(options: CreateDiagnosticsOptions | None = None, /) -> DiagnosticContext:
    """Open a root scope.

    Without an output and an observer it records nothing: `enabled` is False, and only spans and ids go on.

    Example:
        >>> root = create_diagnostics(CreateDiagnosticsOptions(run_id=Id("run-1")))
        >>> child = root.child(DiagnosticSpanFields(node_id=Id("draft")))
        >>> child.identity.run_id, child.identity.parent_span_id == root.identity.span_id
        ('run-1', True)
    """
    return _root(options or CreateDiagnosticsOptions())


def as_diagnostics(scope: RecordingScope | None, /) -> DiagnosticContext:
    """Return a scope given in options as what it is; without one, a scope that records nothing.

    Raises:
        UsageError: It is no scope of diagnostics.
    """
    if scope is None:
        return create_diagnostics()
    if type(scope) is not _Scope and not isinstance(scope, DiagnosticContext):
        raise UsageError(f"must be a DiagnosticContext, not {type(scope).__name__}", argument="diagnostics")
    return scope


def _root(options: CreateDiagnosticsOptions) -> _Scope:
    producer = Producer(options)
    run_id = options.ids.new("run") if options.run_id is None else require_id(options.run_id, argument="run_id")
    own = {} if options.fields is None else _said(options.fields)
    identity = DiagnosticIdentity(run_id=Id(run_id), span_id=producer.producer_id, **own)
    return _Scope(producer, producer.producer_id, identity, None)


def _below(parent: DiagnosticIdentity | _Scope, span_id: Id, fields: DiagnosticSpanFields | None) -> DiagnosticIdentity:
    above = parent if isinstance(parent, DiagnosticIdentity) else parent.identity
    facts: list[object] = [*above]
    facts[1], facts[2] = span_id, above.span_id
    if fields is not None:
        for name, value in fields.given.items():
            if value is not None:
                facts[_PLACES[name]] = value
    identity: DiagnosticIdentity = _made(DiagnosticIdentity, facts)
    return identity


def _said(fields: DiagnosticSpanFields) -> dict[str, Any]:
    given = cast("dict[str, Any]", fields.given)
    return {name: value for name, value in given.items() if value is not None}
