"""The one retry that is about a rule and not about luck: a model that made several calls where one was asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from runlane.contracts import get_error_info

__all__ = ["retry_multiple_model_calls"]

T = TypeVar("T")

_MULTIPLE_CALLS: Final = "model.multiple_calls"


async def retry_multiple_model_calls(call: Callable[[], Awaitable[T]], fallback: Callable[[], Awaitable[T]], /) -> T:
    """Await a call, and another one if a model answered the first with several calls where one was asked for.

    What the other asks, and what it spends, is the caller's affair: it is an ordinary second call and is charged.

    Args:
        call: The call.
        fallback: Awaited at most once, only if `call` failed with the code `model.multiple_calls`; its result or its
            error is final.

    Raises:
        Exception: Whatever else `call` raised, the same object; or whatever `fallback` raised.
    """
    try:
        return await call()
    except Exception as error:
        if get_error_info(error).code != _MULTIPLE_CALLS:
            raise
    return await fallback()
