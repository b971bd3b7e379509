"""Waiting for the host's own code without forgetting the token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import CancelScope
from anyio.lowlevel import checkpoint_if_cancelled

from runlane.contracts import CancelToken

__all__ = ["heeding"]

T = TypeVar("T")


async def heeding(token: CancelToken, work: Callable[[], Awaitable[T]], /) -> T:
    """Return what `work` gives, or end it when the token trips.

    Raises:
        Exception: The token's error, also if the work ended in the same moment; or what the work raised.
    """
    values: list[T] = []
    failure: Exception | None = None
    with CancelScope() as scope, token.bind(scope):
        try:
            values.append(await work())
        except Exception as error:  # noqa: BLE001 - raised below, outside the scope and this block
            failure = error
    if token.cancelled:
        await checkpoint_if_cancelled()
        token.raise_if_cancelled()
    if failure is not None:
        raise failure
    return values[0]
