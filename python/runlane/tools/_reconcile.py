"""Finding out what came of a call whose process died after its tool was entered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from runlane.contracts import MaybeAwaitable, is_async_callable, resolve, stray_ends
from runlane.errors import ToolTimeoutError, UsageError
from runlane.tools._context import ToolExecutionContext

__all__ = ["RECONCILE_WITHIN", "Reconcile", "Reconciled", "reconciled"]

In = TypeVar("In")
Out = TypeVar("Out")
Ctx = TypeVar("Ctx")

RECONCILE_WITHIN: Final = 30.0
"""Seconds a tool may take to find out."""


@dataclass(frozen=True, slots=True)
class Reconciled(Generic[Out]):
    """Proof that a call had its effect.

    Attributes:
        output: What the tool returned then, or would have.
    """

    output: Out


Reconcile: TypeAlias = Callable[[In, ToolExecutionContext[Ctx]], MaybeAwaitable["Reconciled[Out] | None"]]
"""Finds out, from outside, whether a call that was entered had its effect; None if nobody can tell.

It gets the parsed input and a context with the idempotency key of the call. It must change nothing: it may be asked
again. A plain function is called in a thread.
"""


async def reconciled(
    ask: Reconcile[Any, Any, Any], value: object, context: ToolExecutionContext[Any], /
) -> Reconciled[Any] | None:
    """Ask a tool what came of a call.

    Raises:
        ToolTimeoutError: It took longer than `RECONCILE_WITHIN` seconds.
        UsageError: It gave neither proof nor None.
        Exception: Whatever it raised; or the reason of the tripped token.
    """
    outcome: list[object] = []
    failures: list[Exception] = []
    signal = context.signal
    with anyio.CancelScope() as scope, signal.bind(scope):
        async with anyio.create_task_group() as tasks:

            async def expire() -> None:
                await context.clock.sleep(RECONCILE_WITHIN)
                tasks.cancel_scope.cancel()

            tasks.start_soon(expire)
            try:
                with stray_ends(f"{context.tool_id}.reconcile"):
                    outcome.append(await _asked(ask, value, context))
            except Exception as error:  # noqa: BLE001 - raised below, outside the group
                failures.append(error)
            tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    if not outcome:
        signal.raise_if_cancelled()
        raise ToolTimeoutError(tool_id=context.tool_id, timeout=RECONCILE_WITHIN)
    found = outcome[0]
    if found is not None and not isinstance(found, Reconciled):
        raise UsageError(
            f"must give a Reconciled or None, not {type(found).__name__}", argument=f"{context.tool_id}.reconcile"
        )
    return found


async def _asked(ask: Reconcile[Any, Any, Any], value: object, context: ToolExecutionContext[Any]) -> object:
    if is_async_callable(ask):
        return await resolve(ask(value, context))
    found: object = await anyio.to_thread.run_sync(lambda: ask(value, context), abandon_on_cancel=True)
    return await resolve(found)
