"""What the tests of tools share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runlane.tools import (
    ToolDefinition,
    ToolExecutionContext,
    ToolInvocationRequest,
    ToolJournalFinish,
    ToolJournalStart,
    ToolRegistry,
    ToolRegistryOptions,
    ToolRegistryPorts,
    tool,
)


@dataclass(kw_only=True)
class Journal:
    """A journal in memory that can fail."""

    starts: list[ToolJournalStart] = field(default_factory=list)
    finishes: list[ToolJournalFinish] = field(default_factory=list)
    start_error: Exception | None = None
    finish_error: Exception | None = None

    def start(self, entry: ToolJournalStart, /) -> None:
        """Keep a start, or fail."""
        if self.start_error is not None:
            raise self.start_error
        self.starts.append(entry)

    def finish(self, entry: ToolJournalFinish, /) -> None:
        """Keep a finish, or fail."""
        self.finishes.append(entry)
        if self.finish_error is not None:
            raise self.finish_error


@dataclass(frozen=True)
class Handler:
    """A named step."""

    name: str
    does: Callable[[Any, ToolExecutionContext[Any]], Any]

    def handle(self, value: Any, context: ToolExecutionContext[Any], /) -> Any:  # noqa: ANN401 - any step
        """Do it."""
        return self.does(value, context)


@tool
async def add(left: int, right: int = 1) -> int:
    """Add two numbers."""
    return left + right


@tool
def double(number: int) -> int:
    """Double a number, in a thread."""
    return 2 * number


def registry_of(
    *tools: ToolDefinition[Any, Any, Any] | Callable[..., Any],
    ports: ToolRegistryPorts[Any] | None = None,
    threads: int = 8,
    log: int = 1_000,
) -> ToolRegistry[Any]:
    """Return a registry with some tools."""
    return ToolRegistry(
        ToolRegistryOptions(
            tools=tools, ports=ports or ToolRegistryPorts(), max_blocking_threads=threads, call_log_size=log
        )
    )


def asking(tool_id: str, /, **given: Any) -> ToolInvocationRequest:  # noqa: ANN401 - any input
    """Return a request with an object as input."""
    return ToolInvocationRequest(tool_id=tool_id, input=given)
