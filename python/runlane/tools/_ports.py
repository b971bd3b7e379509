"""What a host registers around its tools, and how it asks for one invocation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, Self, TypeVar

from runlane.clock import Clock, SystemClock
from runlane.contracts import (
    CancelToken,
    Id,
    MaybeAwaitable,
    Observer,
    RecordingScope,
    require_callable,
    require_kind,
    require_limit,
    require_port,
)
from runlane.ids import IdSource, RandomIds
from runlane.tools._context import ToolInvocationPorts
from runlane.tools._definition import RegisteredTool, ToolDefinition
from runlane.tools._journal import ToolExecutionEvent, ToolJournal

__all__ = ["ToolAuthorization", "ToolInvocationRequest", "ToolRegistryOptions", "ToolRegistryPorts"]

Ctx = TypeVar("Ctx")

_CALLBACKS: Final = ("visible", "authorize", "invocation_ports", "journal", "observer")


@dataclass(frozen=True, slots=True)
class ToolAuthorization:
    """Whether a call may be made.

    Attributes:
        verdict: `allow`; `deny`; `ask`: a person decides, which only a durable run can wait for; `approve`: as if a
            person had agreed, on record as an automatic approval.
        reason: Why not, for the model.
    """

    verdict: Literal["allow", "deny", "ask", "approve"]
    reason: str | None = None

    @classmethod
    def allow(cls) -> Self:
        """The call may be made."""
        return cls("allow")

    @classmethod
    def deny(cls, reason: str | None = None, /) -> Self:
        """It may not; the model is told the reason."""
        return cls("deny", reason)

    @classmethod
    def ask(cls) -> Self:
        """A person decides."""
        return cls("ask")

    @classmethod
    def approve(cls) -> Self:
        """A tool that asks for approval has it, without a person."""
        return cls("approve")


@dataclass(frozen=True, kw_only=True)
class ToolRegistryPorts(Generic[Ctx]):
    """What a host decides about tools. Without a port: visible, allowed, not written down.

    Attributes:
        visible: Whether a tool exists at all for a host context; asked for every listing and every call.
        authorize: Whether a call with this parsed input may be made.
        invocation_ports: Makes the helpers of one invocation.
        journal: Gives the journal of one invocation.
        observer: Told of every settled invocation; what it raises reaches the caller.
        diagnostics: Where invocations are recorded unless the request says otherwise.
        signal: Ends invocations unless the request brings its own token.

    Raises:
        UsageError: Something that must be callable is not, or is of the wrong kind.
    """

    visible: Callable[[RegisteredTool, Ctx], MaybeAwaitable[bool]] | None = None
    authorize: Callable[[RegisteredTool, Any, Ctx], MaybeAwaitable[ToolAuthorization]] | None = None
    invocation_ports: Callable[[Ctx], ToolInvocationPorts] | None = None
    journal: Callable[[Ctx], ToolJournal | None] | None = None
    observer: Observer[ToolExecutionEvent] | None = None
    diagnostics: RecordingScope | None = None
    signal: CancelToken | None = None
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=RandomIds)

    def __post_init__(self) -> None:
        for name in _CALLBACKS:
            require_callable(getattr(self, name), argument=f"ports.{name}")
        if self.diagnostics is not None:
            require_port(self.diagnostics, RecordingScope, argument="ports.diagnostics")
        require_kind(self.signal, CancelToken | None, argument="ports.signal")
        require_port(self.clock, Clock, argument="ports.clock")
        require_port(self.ids, IdSource, argument="ports.ids")


@dataclass(frozen=True, kw_only=True)
class ToolRegistryOptions(Generic[Ctx]):
    """What a registry is made of.

    Attributes:
        tools: Registered at once, in order; definitions or typed functions.
        max_blocking_threads: Threads of tools that are plain functions; further calls wait.
        call_log_size: Settled invocations the registry remembers.

    Raises:
        InvalidValueError, UsageError: A number is out of range, or something of the wrong kind.
    """

    tools: Sequence[ToolDefinition[Any, Any, Any] | Callable[..., Any]] = ()
    ports: ToolRegistryPorts[Ctx] = field(default_factory=ToolRegistryPorts)
    max_blocking_threads: int = 8
    call_log_size: int = 1_000

    def __post_init__(self) -> None:
        require_kind(self.tools, Sequence, argument="options.tools")
        require_kind(self.ports, ToolRegistryPorts, argument="options.ports")
        require_limit(self.max_blocking_threads, argument="options.max_blocking_threads", minimum=1)
        require_limit(self.call_log_size, argument="options.call_log_size")


@dataclass(frozen=True, kw_only=True)
class ToolInvocationRequest:
    """One call of a tool.

    Attributes:
        input: A JSON value, parsed once by the tool's schema.
        app: The host's own value; handed through.
        signal: Ends the call when it trips.
        invocation_id: Names the call; minted by default.
        call_id: The model's own id of the call, if a model made it.
        journal: Written instead of the registry's.
        ports: Used instead of the registry's.
    """

    tool_id: str
    input: object
    app: Any = field(default=None, repr=False, compare=False)
    signal: CancelToken | None = None
    diagnostics: RecordingScope | None = None
    invocation_id: Id | None = None
    call_id: str | None = None
    journal: ToolJournal | None = None
    ports: ToolInvocationPorts | None = None
