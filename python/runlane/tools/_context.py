"""What a handler is given beside its input."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from runlane.contracts import Id, OperationContext
from runlane.diagnostics import NodeReportingContext

__all__ = [
    "TOOL_PROGRESS_MESSAGE_MAX",
    "TOOL_PROGRESS_SPACING",
    "ToolCache",
    "ToolDurability",
    "ToolExecutionContext",
    "ToolInvocationPorts",
    "ToolModel",
    "ToolProgress",
]

Ctx = TypeVar("Ctx")

TOOL_PROGRESS_MESSAGE_MAX: Final = 280
"""Characters of a progress message; what is longer is cut."""

TOOL_PROGRESS_SPACING: Final = 0.25
"""Seconds between two delivered reports of one call at least; closer ones are dropped."""


class ToolProgress(Protocol):
    """Takes progress reports; from the event loop and from a tool's own thread alike."""

    def __call__(self, message: str, /, progress: float | None = None, total: float | None = None) -> None:
        """Report; never waits, never raises for a report that is dropped."""
        ...


class ToolModel(Protocol):
    """A model that a handler may ask; `runlane.flow.WorkflowModel` is one."""

    async def call(self, call: Any, /) -> Any:  # noqa: ANN401 - typed where it is defined
        """Ask it."""
        ...


class ToolCache(Protocol):
    """Memory beside a handler; `runlane.flow.CacheContext` is one."""

    @property
    def memory(self) -> Any:  # noqa: ANN401 - typed where it is defined
        """What the process keeps."""
        ...

    @property
    def persistent(self) -> Any:  # noqa: ANN401 - typed where it is defined
        """What the host keeps."""
        ...


class ToolDurability(Protocol):
    """Named work whose results outlive the process, within one run."""

    async def step(self, name: str, body: Callable[[], Awaitable[Any]], /) -> Any:  # noqa: ANN401 - any JSON
        """Run a body once; later attempts get its recorded result."""
        ...

    async def sleep(self, seconds: float, /, name: str | None = None) -> None:
        """Wait until a recorded moment."""
        ...

    async def wait_for(self, event: str, id: str, /) -> Any:  # noqa: A002, ANN401 - the words of the field; any JSON
        """Wait until something is delivered."""
        ...

    async def effect(self, name: str, effect: Any, /) -> Any:  # noqa: ANN401 - typed where it is defined
        """Have an external effect at most once."""
        ...


@dataclass(frozen=True, kw_only=True)
class ToolInvocationPorts:
    """Optional helpers of one invocation; absent ones are None, and a tool must cope."""

    model: ToolModel | None = None
    cache: ToolCache | None = None
    durability: ToolDurability | None = None
    progress: ToolProgress | None = None


_NO_PORTS: Final = ToolInvocationPorts()


@dataclass(frozen=True, kw_only=True)
class ToolExecutionContext(OperationContext[Ctx], Generic[Ctx]):
    """What a handler knows of its call.

    A parameter of a function given to `tool` that is annotated with this class receives it; a model never sees such a
    parameter.

    Attributes:
        app: The host's own value; of a durable run, the context that was submitted with the input.
        signal: Trips when the call must end. A task is cancelled as well; a thread has to look.
        tool_id: The tool.
        identity: What makes two calls the same.
        call_id: The model's id of the call, if a model made it.
        reporting: Records steps of the call in diagnostics, until it has settled.
        ports: See `ToolInvocationPorts`.
        idempotency_key: Names the call over every attempt to carry it out, also after a crash; hand it to whatever has
            the effect. None outside a durable run.
        fencing_token: Of the execution that makes the call; a later execution has a larger one. None outside a
            durable run.
    """

    tool_id: Id
    identity: str
    call_id: str | None = None
    reporting: NodeReportingContext
    ports: ToolInvocationPorts = field(default=_NO_PORTS)
    idempotency_key: str | None = None
    fencing_token: int | None = None

    def report_progress(self, message: str, progress: float | None = None, total: float | None = None) -> None:
        """Tell whoever listens how far the call is; may be called from the tool's own thread too.

        Long messages are cut and reports that follow each other closely are dropped. Nothing of this is ever part of
        a prompt or of the history.

        Args:
            message: What is being done.
            progress: How far it is.
            total: Where `progress` will end, if that is known.
        """
        if self.ports.progress is not None:
            self.ports.progress(message, progress, total)
