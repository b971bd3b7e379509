"""Event loops whose clock jumps to the next deadline instead of waiting for it.

A test that needs time to pass overrides the fixture `anyio_backend`:

    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(request):
        return jumping(request.param)
"""

import asyncio
import selectors
from typing import Any

import trio.testing
from typing_extensions import override


class _JumpingSelector(selectors.DefaultSelector):
    """Reports what is ready now, and moves the clock by the time it should have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self.now += timeout
            timeout = 0
        return super().select(timeout)


class _JumpingLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on a jumping selector's time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    @override
    def time(self) -> float:
        return self._jumping.now


def jumping(backend: str) -> tuple[str, dict[str, Any]]:
    """Return an anyio back-end, with its options, on which no time is spent waiting."""
    if backend == "trio":
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}
    return "asyncio", {"loop_factory": _JumpingLoop}
