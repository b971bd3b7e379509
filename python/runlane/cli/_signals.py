"""Ctrl-C and SIGTERM for commands that have nothing of their own to do about them."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from runlane.cli._exits import Exit

__all__ = ["ENDING", "ended_by_signal", "exit_of_signal"]

ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def exit_of_signal(number: int, /) -> Exit:
    """Return the exit code of a command that a signal ended.

    Example:
        >>> exit_of_signal(signal.SIGTERM)
        <Exit.TERMINATED: 143>
    """
    return Exit(128 + number)


async def ended_by_signal(work: Callable[[], Awaitable[int]], /) -> int:
    """Do some work; Ctrl-C or SIGTERM cancels it, and decides the exit code once all it started has ended."""
    code = int(Exit.UNEXPECTED)
    received: int | None = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            nonlocal received
            with anyio.open_signal_receiver(*ENDING) as signals:
                async for number in signals:
                    received = number
                    tasks.cancel_scope.cancel()
                    return

        tasks.start_soon(watch)
        code = await work()
        tasks.cancel_scope.cancel()
    return code if received is None else exit_of_signal(received)
