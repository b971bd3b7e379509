"""How a stream ends: its source is closed, and trouble in doing so never replaces why it ended."""

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from anyio import move_on_after

from runlane.errors import UsageError

__all__ = [
    "CLEANUP_TIMEOUT",
    "close_source",
    "refuse_awaitable",
    "require_sync",
    "tell",
]

CLEANUP_TIMEOUT: Final = 1.0
"""How long closing a source may take, in seconds."""


def require_sync(callback: object, argument: str) -> None:
    """Refuse a callback that cannot be called without awaiting it.

    Raises:
        UsageError: `callback` is not callable, or is a coroutine function.
    """
    if callback is None:
        return
    if not callable(callback):
        raise UsageError("must be callable", argument=argument)
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004 - the method is wanted, not the answer
    ):
        raise UsageError("must be a plain function, not an async one", argument=argument)


def refuse_awaitable(result: object, argument: str) -> None:
    """Refuse what a callback returned if it would have to be awaited.

    Raises:
        UsageError: `result` is awaitable; a coroutine is closed first.
    """
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise UsageError("must not return an awaitable", argument=argument)


async def close_source(
    source: AsyncIterable[object] | AsyncIterator[object] | None,
    report: Callable[[Exception], object] | None,
) -> None:
    """Close a source that can be closed, shielded, within `CLEANUP_TIMEOUT` seconds.

    Args:
        source: What was read; anything without `aclose` is left alone.
        report: Told of an error or an overrun. What it raises itself is dropped.
    """
    close = getattr(source, "aclose", None)
    if close is None:
        return
    failure: Exception | None = None
    with move_on_after(CLEANUP_TIMEOUT, shield=True) as scope:
        try:
            await close()
        except Exception as error:  # noqa: BLE001 - whatever a foreign source raises is reported
            failure = error
    if failure is None and scope.cancelled_caught:
        failure = TimeoutError(f"closing the source took over {CLEANUP_TIMEOUT:g} s")
    tell(report, failure)


def tell(report: Callable[[Exception], object] | None, failure: Exception | None) -> None:
    """Report a clean-up failure; nothing that goes wrong in the report is raised."""
    if report is not None and failure is not None:
        with suppress(Exception):
            report(failure)
