"""Code of others that ends as if the program, or the task, were to end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from runlane.errors import UsageError

__all__ = ["stray_ends"]


@contextmanager
def stray_ends(what: str, /) -> Iterator[None]:
    """Make a failure of an end that is none, around code of others that is awaited.

    A library may call `sys.exit`, and awaiting a task of the event loop that somebody else cancelled raises that
    cancellation here. Either would end whatever called the code, as if it had been told to.

    Args:
        what: Names the code in the error.

    Raises:
        UsageError: The code exited, or ended as cancelled though nothing around it is; a cancellation that somebody
            asked for goes on as it is.
    """
    try:
        yield
    except SystemExit as error:
        raise UsageError("tried to end the program", argument=what) from error
    except anyio.get_cancelled_exc_class() as error:
        if anyio.current_effective_deadline() == -math.inf:
            raise
        raise UsageError("ended as cancelled, though nothing cancelled it", argument=what) from error
