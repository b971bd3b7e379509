"""Runs a piece of work again and again, and acts at its first, second, third … await, until it gets through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_ENOUGH = 2_000
"""Awaits of one piece of work at most: more is no small scene."""


class _ActingAt(Generic[T]):
    """Work that acts just before one of its awaits, of itself or of what it calls, suspends it."""

    def __init__(self, work: Awaitable[T], place: int, act: Callable[[], object]) -> None:
        self._work = work
        self._place = place
        self._act = act
        self.has_acted = False

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self._work.__await__()
        count, resume = 0, _sending(steps, None)
        while True:
            try:
                asked = resume()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            count += 1
            if count == self._place:
                self.has_acted = True
                self._act()
            try:
                given = yield asked
            except BaseException as error:  # noqa: BLE001 - handed on
                resume = _throwing(steps, error)
            else:
                resume = _sending(steps, given)


def _throwing(steps: Any, error: BaseException) -> Callable[[], Any]:  # noqa: ANN401 - a generator's
    return lambda: steps.throw(error)


def _sending(steps: Any, given: object) -> Callable[[], Any]:  # noqa: ANN401 - likewise
    return lambda: steps.send(given)


async def at_every_await(
    scene: Callable[[Callable[[Callable[[], Awaitable[T]], Callable[[], object]], Awaitable[T]]], Awaitable[None]],
) -> int:
    """Play a scene once for each await of its work, and once more undisturbed.

    Args:
        scene: Given a function that does some work and acts at an await of it: `await doing(work, act)`. It is to check
            what is right whether or not the act came.

    Returns:
        How many awaits the work has.
    """
    for place in range(1, _ENOUGH):
        acted = False

        async def doing(work: Callable[[], Awaitable[T]], act: Callable[[], object], place: int = place) -> T:
            nonlocal acted
            watched = _ActingAt(work(), place, act)
            try:
                return await watched
            finally:
                acted = acted or watched.has_acted

        await scene(doing)
        if not acted:
            return place - 1
    raise AssertionError("the work never ends")
