"""Who gets events: an observer lives with the run, an output keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from runlane.clock import Clock, SystemClock
from runlane.contracts import ErrorInfo, Id, MaybeAwaitable, require_sync
from runlane.diagnostics._bounds import DiagnosticLimits
from runlane.diagnostics._catalog import CoreEventDescriptor
from runlane.diagnostics._events import CoreEvent, DiagnosticSpanFields, ExecutionEventDescriptor
from runlane.diagnostics._steps import SubStepProgress
from runlane.errors import UsageError
from runlane.ids import IdSource, RandomIds

__all__ = ["CoreLogOutput", "CreateDiagnosticsOptions", "ExecutionObserver"]


_LIMITS: Final = DiagnosticLimits()


class ExecutionObserver(Protocol):
    """Watches a run live. What it raises reaches the run."""

    def accepts(self, descriptor: ExecutionEventDescriptor, /) -> bool:
        """Whether it wants this event; synchronous."""
        ...

    def on_event(self, event: CoreEvent, /) -> MaybeAwaitable[None]:
        """Take an event. The next one of the same producer waits until this returned."""
        ...


class CoreLogOutput(Protocol):
    """Keeps events. What it raises is counted and reported; the run goes on."""

    def accepts(self, descriptor: CoreEventDescriptor, /) -> bool:
        """Whether it wants this event; synchronous."""
        ...

    def write(self, event: CoreEvent, /) -> Awaitable[None]:
        """Keep an event. Filtering, batching and durability are its own business."""
        ...


@dataclass(frozen=True, kw_only=True)
class CreateDiagnosticsOptions:
    """How a tree of scopes records.

    Attributes:
        run_id: The run it belongs to; minted by default.
        fields: What the root span says of itself.
        output: Keeps events.
        observer: Watches them; it is asked first.
        accept_content: Whether content events, and the text of reported steps, may be delivered at all: True, False,
            or decided by the event. A consumer must accept them as well.
        on_output_error: Told what the output raised; what it raises itself is dropped.
        on_progress: Told of every recorded step at once, synchronously; what it raises reaches whoever reported.
        limits: How much of a value is recorded.

    Raises:
        UsageError: A callback that must be synchronous is a coroutine function, or a consumer lacks a method.
    """

    run_id: Id | None = None
    fields: DiagnosticSpanFields | None = None
    output: CoreLogOutput | None = None
    observer: ExecutionObserver | None = None
    accept_content: bool | Callable[[CoreEventDescriptor], bool] = False
    on_output_error: Callable[[ErrorInfo], None] | None = None
    on_progress: Callable[[SubStepProgress], None] | None = None
    limits: DiagnosticLimits = _LIMITS
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=RandomIds)

    def __post_init__(self) -> None:
        for name, hook in (("on_output_error", self.on_output_error), ("on_progress", self.on_progress)):
            if hook is not None:
                require_sync(hook, argument=name)
        if not isinstance(self.accept_content, bool):
            require_sync(self.accept_content, argument="accept_content")
        for name, consumer, takes in (("observer", self.observer, "on_event"), ("output", self.output, "write")):
            if consumer is not None:
                require_sync(getattr(consumer, "accepts", None), argument=f"{name}.accepts")  # type: ignore[arg-type]
                if not callable(getattr(consumer, takes, None)):
                    raise UsageError(f"has no method {takes}", argument=name)
