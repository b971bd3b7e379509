"""Threads for tools that block: a thread that nobody waits for any more is left to finish, and keeps its slot.

anyio's worker threads would give the slot of an abandoned call away at once, and on asyncio they keep a program from
exiting. These do neither: a hung tool costs one of its registry's slots, and ends with the process.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel

__all__ = ["BlockingSlots"]

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Waiter:
    """A task that waits for something another thread does; only its own loop touches the event."""

    event: anyio.Event = field(default_factory=anyio.Event)
    token: anyio.lowlevel.EventLoopToken = field(default_factory=anyio.lowlevel.current_token)
    thread: int = field(default_factory=threading.get_ident)

    def wake(self) -> bool:
        """Wake the task, from any thread but that of another event loop; False if its loop is gone."""
        if threading.get_ident() == self.thread:
            self.event.set()
            return True
        try:
            anyio.from_thread.run_sync(self.event.set, token=self.token)
        except RuntimeError:
            return False
        return True


@dataclass(eq=False, slots=True)
class _Call(Generic[T]):
    """One call on its way through a thread."""

    function: Callable[[], T]
    waiter: _Waiter = field(default_factory=_Waiter)
    value: list[T] = field(default_factory=list)
    error: BaseException | None = None
    abandoned: bool = False


class BlockingSlots:
    """Runs functions in threads of their own, at most so many at a time; the others wait in order.

    Tasks of several event loops may share the slots.
    """

    def __init__(self, slots: int, /) -> None:
        """Allow `slots` threads at a time."""
        self._free = slots
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()

    async def run(self, function: Callable[[], T], /) -> T:
        """Run a function in a thread, on a slot that was taken, and return what it returns.

        Cancellation returns at once and leaves the thread alone. The slot is free again once the thread has ended.
        """
        context = contextvars.copy_context()
        call = _Call(lambda: context.run(function))
        try:
            threading.Thread(target=self._work, args=(call,), name="runlane tool", daemon=True).start()
        except BaseException:
            self._give_back_elsewhere()
            raise
        try:
            await call.waiter.event.wait()
        except BaseException:
            call.abandoned = True
            raise
        if call.error is not None:
            raise call.error
        return call.value[0]

    def _work(self, call: _Call[T]) -> None:
        try:
            call.value.append(call.function())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            call.error = error
        self._give_back()
        if not call.abandoned:
            call.waiter.wake()

    def take_now(self) -> bool:
        """Take a slot if one is free; False otherwise."""
        with self._lock:
            if self._free <= 0:
                return False
            self._free -= 1
            return True

    async def take(self) -> None:
        """Wait for a slot; then either `run` or `release` must follow."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        waiter = _Waiter()
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            self._waiting.append(waiter)
        try:
            await waiter.event.wait()
        except BaseException:
            with self._lock:
                is_waiting = waiter in self._waiting
                if is_waiting:
                    self._waiting.remove(waiter)
            if not is_waiting:
                self._give_back_elsewhere()
            raise

    def release(self) -> None:
        """Give a slot back that was taken and is not needed."""
        self._give_back_elsewhere()

    def _give_back_elsewhere(self) -> None:
        """Hand a slot on from the thread of an event loop, which must not wait for another loop."""
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
        threading.Thread(target=self._give_back, name="runlane tool slot", daemon=True).start()

    def _give_back(self) -> None:
        """Hand a slot to whoever waits longest, or free it; from any thread."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                waiter = self._waiting.popleft()
            if waiter.wake():
                return
