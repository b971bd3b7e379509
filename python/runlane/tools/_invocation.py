"""Carrying out one invocation: journal, handlers, the tool itself, its output, journal.

The start is journalled before any handler, and if that fails none runs; the token is looked at before the start and
before each handler; the finish is journalled once, with how it really ended, and one that cannot be written after a
success leaves the result as it is. `execute_invocation` does it all in the calling thread; a registry does the same
around `await_steps`, or around `run_steps` in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from runlane.contracts import InvocationResult, ToolCallRecord, require_kind, require_port, resolve, sync_result
from runlane.tools._context import ToolExecutionContext
from runlane.tools._course import Course
from runlane.tools._definition import ErasedTool, InvocationHandler
from runlane.tools._journal import ToolJournal

__all__ = ["await_steps", "execute_invocation", "run_steps"]


def execute_invocation(
    tool: ErasedTool,
    value: object,
    context: ToolExecutionContext[Any],
    /,
    *,
    journal: ToolJournal | None = None,
    before: Sequence[InvocationHandler] = (),
    after: Sequence[InvocationHandler] = (),
) -> InvocationResult[object, ToolCallRecord]:
    """Carry out an invocation in the calling thread; returns when its effects are recorded.

    Args:
        tool: What to run.
        value: Its input, already parsed: it is not parsed again.
        context: What the handlers are given.
        journal: Told of the start and the finish.
        before: Steps that see the input first.
        after: Steps that see the output before it is checked.

    Returns:
        The output and its receipt.

    Raises:
        UsageError: A handler returned an awaitable; it was closed, and the invocation failed.
        CheckFailedError: The output is not of the declared type.
        Exception: Whatever the journal's `start` or a handler raised, the same object; or the reason of the tripped
            token.
    """
    require_port(tool, ErasedTool, argument="tool")
    require_kind(context, ToolExecutionContext, argument="context")
    course = Course(
        tool_id=context.tool_id, invocation_id=context.invocation_id, call_id=context.call_id, clock=context.clock
    )
    context.signal.raise_if_cancelled()
    course.start(journal, context.identity)
    try:
        output = run_steps(tool, value, context, before, after)
    except BaseException as error:
        course.fail(error, context.signal)
        course.close()
        raise
    course.settle("succeeded")
    course.close()
    return InvocationResult(output, course.receipt(identity=context.identity, run_id=context.run_id))


def run_steps(
    tool: ErasedTool,
    value: object,
    context: ToolExecutionContext[Any],
    before: Sequence[InvocationHandler],
    after: Sequence[InvocationHandler],
    /,
) -> object:
    """Run handlers and tool in the calling thread, without waiting for anything."""
    for step in _steps(tool, before, after):
        context.signal.raise_if_cancelled()
        value = step.keep(value, sync_result(step.call(value, context), argument=step.name))
    return tool.parse_output(value)


async def await_steps(
    tool: ErasedTool,
    value: object,
    context: ToolExecutionContext[Any],
    before: Sequence[InvocationHandler],
    after: Sequence[InvocationHandler],
    /,
) -> object:
    """Run handlers and tool in the calling task, awaiting what they return, once."""
    for step in _steps(tool, before, after):
        context.signal.raise_if_cancelled()
        returned = await resolve(step.call(value, context))
        value = step.keep(value, sync_result(returned, argument=step.name))
    return tool.parse_output(value)


class _Step(NamedTuple):
    """A handler, or the tool itself.

    Attributes:
        may_keep: Whether returning None keeps the value; so with handlers, but a tool may well return None.
    """

    name: str
    call: Callable[[Any, ToolExecutionContext[Any]], Any]
    may_keep: bool

    def keep(self, value: object, returned: object) -> object:
        return value if returned is None and self.may_keep else returned


def _steps(
    tool: ErasedTool, before: Sequence[InvocationHandler], after: Sequence[InvocationHandler]
) -> Iterator[_Step]:
    for handler in before:
        yield _Step(handler.name, handler.handle, may_keep=True)
    yield _Step(tool.id, tool.execute, may_keep=False)
    for handler in after:
        yield _Step(handler.name, handler.handle, may_keep=True)
