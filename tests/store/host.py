"""A host whose clock is set by hand, and waiting for threads without an event loop."""

import threading
from collections.abc import Callable

from typing_extensions import override

from runlane.store.sqlite._host import Host


class FakeHost(Host):
    """A host whose clock is set by hand."""

    time = 1000.0

    @override
    def now(self) -> float:
        return FakeHost.time


def block_until(condition: Callable[[], object]) -> None:
    """Block this thread, event loop and all, until a thread of the store did its part."""
    pause = threading.Event()
    for _ in range(4000):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("no thread did it")
