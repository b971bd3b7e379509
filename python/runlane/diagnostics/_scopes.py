"""Scopes as their users know them: who tells facts, in a tree of spans under one run."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, runtime_checkable

from runlane.contracts import RecordingScope
from runlane.diagnostics._catalog import CoreEventName
from runlane.diagnostics._consumers import CreateDiagnosticsOptions
from runlane.diagnostics._events import CoreEvent, DiagnosticIdentity, DiagnosticSpanFields, Fact, Saying
from runlane.diagnostics._recorder import SubFlowLogger
from runlane.diagnostics._spans import Span, open_root
from runlane.diagnostics._steps import DebugStepsOutput, ReportedStep
from runlane.errors import UsageError

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

    def child(
        self,
        fields: DiagnosticSpanFields | None = None,
        /,
        visit: int | None = None,
        round: int | None = None,  # noqa: A002 - the word of the identity
    ) -> DiagnosticContext:
        """Open a span below this one. Fields not given are inherited, consumers and numbers are shared.

        Args:
            fields: What it says of itself.
            visit: As in the fields, for whoever opens many spans that differ in nothing else.
            round: Likewise.
        """
        ...

    def for_run(self) -> DiagnosticContext:
        """Return the scope of the next run: this one the first time, later a new root with the same consumers."""
        ...

    def emit(
        self,
        name: CoreEventName,
        payload: Saying,
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

    def tell(self, fact: Fact, values: tuple[object, ...], /) -> Coroutine[Any, Any, CoreEvent | None] | None:
        """Tell a fact as `emit` does, without a coroutine where no consumer has to be waited for.

        Args:
            fact: The event, and what words its payload if somebody reads it.
            values: What it is worded of. They must never change.

        Returns:
            What is left to await, at once and by the same task; None if everybody has the event.

        Raises:
            Exception: As for `emit`; here, or when the rest is awaited.
        """
        ...

    def note(self, name: CoreEventName, payload: Saying, /) -> None:
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


def create_diagnostics(options: CreateDiagnosticsOptions | None = None, /) -> DiagnosticContext:
    """Open a root scope.

    Without an output and an observer it records nothing: `enabled` is False, and only spans and ids go on.

    Example:
        >>> root = create_diagnostics(CreateDiagnosticsOptions(run_id=Id("run-1")))
        >>> child = root.child(DiagnosticSpanFields(node_id=Id("draft")))
        >>> child.identity.run_id, child.identity.parent_span_id == root.identity.span_id
        ('run-1', True)
    """
    return open_root(options or CreateDiagnosticsOptions())


def as_diagnostics(scope: RecordingScope | None, /) -> DiagnosticContext:
    """Return a scope given in options as what it is; without one, a scope that records nothing.

    Raises:
        UsageError: It is no scope of diagnostics.
    """
    if scope is None:
        return create_diagnostics()
    if type(scope) is not Span and not isinstance(scope, DiagnosticContext):
        raise UsageError(f"must be a DiagnosticContext, not {type(scope).__name__}", argument="diagnostics")
    return scope
