"""The one registry of tools."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from runlane.contracts import (
    CancelToken,
    ExecutionOptions,
    Id,
    OrderedRegistry,
    ReadonlyCatalog,
    ToolResult,
    require_kind,
)
from runlane.diagnostics import as_diagnostics
from runlane.errors import ToolDeniedError, UsageError
from runlane.tools._blocking import BlockingSlots
from runlane.tools._compiled import AnyTool, CompiledTool
from runlane.tools._definition import RegisteredTool, ToolDefinition
from runlane.tools._journal import ToolExecutionEvent
from runlane.tools._pipeline import Asked, CallFacts, Pipeline
from runlane.tools._ports import ToolInvocationRequest, ToolRegistryOptions
from runlane.tools._signature import tool

__all__ = ["ToolRegistry", "pipeline_of"]

Ctx = TypeVar("Ctx")

_NO_OPTIONS: Final = ExecutionOptions()


class ToolRegistry(Generic[Ctx]):
    """Tools by id, in the order of registration: a `runlane.contracts.Registry`.

    It is mechanism: who sees a tool and who may call it is what its ports say. It may be used by many tasks at once;
    nothing waits for anything but tools that are plain functions, of which `max_blocking_threads` run at a time.

    Example:
        >>> @tool
        ... async def add(left: int, right: int) -> int:
        ...     '''Add two numbers.'''
        ...     return left + right
        >>> async def main() -> object:
        ...     registry = ToolRegistry(ToolRegistryOptions(tools=[add]))
        ...     request = ToolInvocationRequest(tool_id="add", input={"left": 1, "right": 2})
        ...     return (await registry.invoke(request)).value
        >>> anyio.run(main)
        3
    """

    def __init__(self, options: ToolRegistryOptions[Ctx] | None = None, /) -> None:
        """Register the tools of the options; more may follow until it is sealed.

        Raises:
            DuplicateRegistrationError: Two have one id.
            InvalidValueError, UsageError: A tool is malformed.
        """
        options = require_kind(options or ToolRegistryOptions(), ToolRegistryOptions, argument="options")
        self._pipeline = Pipeline(
            options.ports, BlockingSlots(options.max_blocking_threads), deque(maxlen=options.call_log_size)
        )
        self._tools: OrderedRegistry[AnyTool, RegisteredTool] = OrderedRegistry("tools", _entry)
        for place, item in enumerate(options.tools):
            _check_tool(item, f"tools.{place}")
            self.register(item)

    # --- the registry --------------------------------------------------------------------------------------------

    @property
    def sealed(self) -> bool:
        """Whether it takes no more."""
        return self._tools.sealed

    def register(self, item: ToolDefinition[Any, Any, Ctx] | Callable[..., Any], /) -> RegisteredTool:
        """Append a definition, or a typed function as `tool` would make it one, and return what readers see of it.

        Raises:
            DuplicateRegistrationError: The id is known.
            RegistrySealedError: The registry takes no more.
            InvalidValueError, UsageError: It is malformed; nothing was registered.
        """
        _check_tool(item, "item")
        compiled = CompiledTool(item if isinstance(item, ToolDefinition) else tool(item))
        entry = self._tools.register(compiled)
        self._pipeline.tools[compiled.id] = compiled
        return entry

    def seal(self) -> ReadonlyCatalog[RegisteredTool]:
        """Take no more from now on, and return what is there."""
        return self._tools.seal()

    def get(self, tool_id: str, /) -> RegisteredTool | None:
        """Return a tool, or None."""
        return self._tools.get(Id(tool_id))

    def require(self, tool_id: str, /) -> RegisteredTool:
        """Return a tool.

        Raises:
            MissingEntryError: There is none; also a `KeyError`.
        """
        return self._tools.require(Id(tool_id))

    def list(self) -> tuple[RegisteredTool, ...]:
        """Return all tools, in the order of registration."""
        return self._tools.list()

    def __contains__(self, tool_id: object, /) -> bool:
        return tool_id in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[RegisteredTool]:
        return iter(self._tools)

    def parse(self, tool_id: str, value: object, /) -> object:
        """Return a value as the input of a tool, as an invocation would parse it; nothing runs.

        Raises:
            MissingEntryError: There is no such tool.
            ToolArgumentsError: The tool would refuse it.
        """
        return self._pipeline.tools[self.require(tool_id).id].parse(value)

    # --- use -----------------------------------------------------------------------------------------------------

    @property
    def call_log(self) -> tuple[ToolExecutionEvent, ...]:
        """This registry's settled invocations, newest last, the last `call_log_size` of them."""
        return tuple(self._pipeline.log)

    async def list_visible(self, app: Ctx, options: ExecutionOptions = _NO_OPTIONS, /) -> tuple[RegisteredTool, ...]:
        """Return the tools that exist for a host context at this moment, in the order of registration."""
        if options.signal is not None:
            options.signal.raise_if_cancelled()
        return tuple(shown.registered for shown in await self._pipeline.visible(app))

    async def invoke(
        self, request: ToolInvocationRequest, options: ExecutionOptions = _NO_OPTIONS, /
    ) -> ToolResult[object]:
        """Carry one call out, outside any durable run.

        Args:
            request: Which tool, with what.
            options: Stand in for what the request leaves out; the time-out is for the handlers.

        Returns:
            What the tool returned, with its receipt.

        Raises:
            UnknownToolError: There is no such tool for this context.
            ToolArgumentsError: The input does not fit.
            ToolDeniedError: The call is not allowed, or would need an approval.
            ToolTimeoutError: It took too long.
            CheckFailedError: The output is not of the declared type.
            Exception: Whatever a port, the journal or the tool itself raised, the same object.
        """
        ports = self._pipeline.ports
        diagnostics = as_diagnostics(request.diagnostics or options.diagnostics or ports.diagnostics)
        asked = Asked(
            request=request,
            invocation_id=request.invocation_id or options.invocation_id or Id(ports.ids.new("invocation")),
            signal=request.signal or options.signal or ports.signal or CancelToken(),
            diagnostics=diagnostics,
            facts=CallFacts(run_id=diagnostics.identity.run_id, clock=ports.clock, ids=ports.ids),
            timeout=options.timeout,
        )
        call = await self._pipeline.admit(asked)
        if call.authorization.verdict == "ask":
            refusal = ToolDeniedError(tool_id=call.tool.id, reason="approval_required")
            await self._pipeline.refuse(call, refusal)
            raise refusal
        return await self._pipeline.carry_out(call)


def _check_tool(item: object, argument: str) -> None:
    if not isinstance(item, ToolDefinition) and not callable(item):
        raise UsageError(f"must be a typed function or a ToolDefinition, not {type(item).__name__}", argument=argument)


def _entry(compiled: AnyTool) -> tuple[Id, RegisteredTool]:
    return compiled.id, compiled.registered


def pipeline_of(registry: ToolRegistry[Any], /) -> Pipeline:
    """Return what carries a registry's invocations out.

    Raises:
        UsageError: It is not sealed.
    """
    if not registry.sealed:
        raise UsageError("must be sealed before it is mounted; call seal()", argument="tools")
    return registry._pipeline  # noqa: SLF001 - one object in two modules
