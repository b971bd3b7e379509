"""How the tools' API looks to a type checker. Never run, only checked."""

from typing import Any, assert_type

from runlane.contracts import ToolResult
from runlane.errors import ToolError
from runlane.records import ToolCallPart, ToolResultPart
from runlane.runtime import AgentRuntime, RunResult, RunTicket
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel
from runlane.tools import (
    CompiledTool,
    ErasedTool,
    ExecutableTool,
    FunctionTool,
    MountedTools,
    RegisteredTool,
    ToolDefinition,
    ToolExecutionContext,
    ToolInvocationRequest,
    ToolRegistry,
    ToolRegistryOptions,
    tool,
)


@tool
def bare(left: int, right: int = 1) -> int:
    """Add."""
    return left + right


@tool(id="named", timeout=3, needs_approval=lambda given, context: context.app is None or bool(given))
async def named(text: str, context: ToolExecutionContext[dict[str, int]]) -> str:
    """Repeat."""
    context.report_progress(text, 1, total=2)
    if context.app["n"]:
        raise ToolError("text.bad", hint="Say it differently.")
    return text


assert_type(bare(1, right=2), int)


def positional(left: int, right: int, /) -> int:
    """Add."""
    return left + right


assert_type(tool(positional), FunctionTool[[int, int], int])


def written(value: int, context: ToolExecutionContext[str]) -> str:
    """Write a definition out."""
    return context.app * value


definition = ToolDefinition(id="times", description="Repeat.", input=int, run=written)
assert_type(definition, ToolDefinition[int, str, str])

compiled = CompiledTool(definition)
executable: ExecutableTool[int, str, str, str] = compiled
erased: ErasedTool = compiled
assert_type(compiled.parse(1), int)

registry: ToolRegistry[str] = ToolRegistry(ToolRegistryOptions(tools=[definition, bare, named]))
assert_type(registry.require("times"), RegisteredTool)


async def calls(mounted: MountedTools, call: ToolCallPart) -> None:
    """Call tools, alone and mounted."""
    assert_type(await registry.invoke(ToolInvocationRequest(tool_id="times", input=3, app="a")), ToolResult[object])
    assert_type(await mounted.execute(call), ToolResultPart)


def runs() -> None:
    """Mount tools into a runtime."""
    AgentRuntime(MemoryStore(), model=ScriptedModel("."), tools=[bare, named, written, definition])
    AgentRuntime(MemoryStore(), model=ScriptedModel("."), tools=(definition,))
    runtime = AgentRuntime(MemoryStore(), model=ScriptedModel("."), tools=registry)
    assert_type(runtime.respond_to_approval("c", "a", approved=True), RunTicket)


def results(result: RunResult) -> Any:  # noqa: ANN401 - the id of a request
    """Read what waits for consent."""
    return [request.approval_id for request in result.approvals]
