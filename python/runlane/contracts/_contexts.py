"""What accompanies a call: optional on the way in, complete once it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from runlane.clock import Clock
from runlane.contracts._cancel import CancelToken
from runlane.contracts._scalars import Id, require_seconds
from runlane.ids import IdSource

__all__ = ["ExecutionContext", "ExecutionOptions", "OperationContext", "RecordingScope", "SpanIdentity"]

App = TypeVar("App")


class SpanIdentity(Protocol):
    """Which execution a fact belongs to."""

    @property
    def run_id(self) -> Id:
        """The run."""
        ...

    @property
    def span_id(self) -> Id:
        """The stretch of work within it."""
        ...


class RecordingScope(Protocol):
    """Where facts about a call are recorded: `runlane.diagnostics.DiagnosticContext`, seen from below it."""

    @property
    def enabled(self) -> bool:
        """Whether anybody listens."""
        ...

    @property
    def identity(self) -> SpanIdentity:
        """The span this scope stands for."""
        ...


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """What a caller may say about one call; every public call that can wait takes it.

    Attributes:
        signal: Ends the call when it trips.
        diagnostics: Where the call records what happens; nowhere by default.
        invocation_id: The name of the call; minted by default.
        timeout: Seconds; no limit by default.
    """

    signal: CancelToken | None = None
    diagnostics: RecordingScope | None = None
    invocation_id: Id | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        require_seconds(self.timeout, argument="options.timeout")


@dataclass(frozen=True, kw_only=True)
class ExecutionContext:
    """What running code may rely on: everything is there.

    Without a caller's token `signal` is one that never trips; without diagnostics the scope records nothing.
    """

    signal: CancelToken
    diagnostics: RecordingScope
    invocation_id: Id
    run_id: Id
    clock: Clock
    ids: IdSource


@dataclass(frozen=True, kw_only=True)
class OperationContext(ExecutionContext, Generic[App]):
    """An execution context with the host's own object.

    Attributes:
        app: The host's. It is handed through: never read, copied, compared, printed or serialised.
    """

    app: App = field(repr=False, compare=False)
