"""Code of others that ends as if the program, or the task, were to end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import TracebackType

import anyio

from runlane.errors import UsageError

__all__ = ["StrayEnds", "stray_ends"]


def stray_ends(what: str, /) -> StrayEnds:
    """Make a failure of an end that is none, around code of others that is called or awaited.

    A library may call `sys.exit`, awaiting a task of the event loop that somebody else cancelled raises that
    cancellation here, and a generator's end may leak. Any of these would end whatever called the code, as if it had
    been told to.

    Args:
        what: Names the code in the error.

    Raises:
        UsageError: The code raised something that is no `Exception` and meant for nobody here. A cancellation that
            somebody asked for goes on as it is, and so do a keyboard interrupt and the closing of a coroutine whose
            event loop is gone.
    """
    return StrayEnds(what)


class StrayEnds:
    """The `with` block of `stray_ends`.

    Not made by `contextlib`, which writes to the errors that pass through: an error of others may not let itself be
    written to.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str, /) -> None:
        """Name the code."""
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        if error is None or kind is None or issubclass(kind, Exception):
            return
        problem = _problem(error)
        if problem is not None:
            raise UsageError(problem, argument=self._what) from error


def _problem(error: BaseException) -> str | None:
    """Say what is wrong with an end; None if it is meant."""
    ends = list(_leaves(error))
    if any(isinstance(end, KeyboardInterrupt) for end in ends):
        return None
    try:
        cancelled = anyio.get_cancelled_exc_class()
    except RuntimeError:
        # No event loop: whoever waits for a coroutine closes it, and a plain call has nobody to be cancelled by.
        return None if any(isinstance(end, GeneratorExit) for end in ends) else _named(ends[0])
    if not any(isinstance(end, cancelled) for end in ends):
        return _named(ends[0])
    if anyio.current_effective_deadline() == -math.inf:
        return None
    return "ended as cancelled, though nothing cancelled it"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _named(end: BaseException) -> str:
    return "tried to end the program" if isinstance(end, SystemExit) else f"raised {type(end).__name__}"
