"""Cancellation with a reason.

A cancel token does what a cancel scope cannot: it carries *why*. Awaiting code that a token stopped sees the very
object that was given to `CancelToken.cancel`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import anyio

from runlane.errors import AbortedError, UsageError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["CancelToken", "TokenBinding"]


class CancelToken:
    """A one-way switch that stops work and says why.

    The first `cancel` wins. A reason that is an exception *is* the error awaiting code sees; any other object is
    wrapped once in `AbortedError`. Tokens belong to the thread of the event loop; other threads use
    `anyio.from_thread.run_sync(token.cancel, reason)`.

    Example:
        >>> token = CancelToken()
        >>> token.cancel("user-interrupt"), token.cancel("too late")
        (True, False)
        >>> token.reason
        'user-interrupt'
    """

    __slots__ = ("__weakref__", "_derived", "_error", "_listeners", "_reason", "_sources")

    def __init__(self) -> None:
        """Create a token that has not tripped."""
        self._reason: object | None = None
        self._error: Exception | None = None
        self._listeners: dict[object, Callable[[], object]] = {}
        self._derived: weakref.WeakSet[CancelToken] | None = None
        self._sources: tuple[CancelToken, ...] = ()

    @property
    def cancelled(self) -> bool:
        """Whether the token has tripped."""
        return self._error is not None

    @property
    def reason(self) -> object | None:
        """Exactly the object given to `cancel`, or None while the token has not tripped."""
        return self._reason

    def cancel(self, reason: object = None, /) -> bool:
        """Trip the token.

        Args:
            reason: Why. An exception becomes the error itself; None stands for one `AbortedError`.

        Returns:
            True if this call tripped it, False if it had tripped before (then nothing changes).

        Raises:
            UsageError: `reason` is a `BaseException` that is not an `Exception`, such as `KeyboardInterrupt`.
        """
        if self._error is not None:
            return False
        kind: type = type(reason)  # what an object says of its class is not asked
        if issubclass(kind, BaseException) and not issubclass(kind, Exception):
            raise UsageError("must not be an exception that ends the program", argument="reason")
        if reason is None:
            reason, kind = AbortedError(), AbortedError
        self._reason = reason
        self._error = cast("Exception", reason) if issubclass(kind, Exception) else AbortedError(reason=reason)
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener()
        for token in tuple(self._derived or ()):
            token.cancel(reason)
        return True

    def error(self) -> Exception:
        """Return what awaiting code sees; the same object every time.

        Raises:
            UsageError: The token has not tripped.
        """
        if self._error is None:
            raise UsageError("the token has not tripped", argument="error")
        return self._error

    def raise_if_cancelled(self) -> None:
        """Raise `error()` if the token has tripped."""
        if self._error is not None:
            raise self._error

    async def wait(self) -> None:
        """Wait until the token trips; return at once if it has."""
        if self._error is not None:
            return
        event = anyio.Event()
        self._listeners[event] = event.set
        try:
            await event.wait()
        finally:
            self._listeners.pop(event, None)

    def bind(self, scope: anyio.CancelScope, /) -> TokenBinding:
        """Cancel `scope` when the token trips, for the length of a `with` block.

        The scope must be entered and left within the same call frame. A token that has tripped cancels it at once.
        """
        return TokenBinding(self, scope)

    @classmethod
    def any(cls, *tokens: CancelToken | None) -> CancelToken:
        """Return a token that trips with the first of `tokens`, handing its reason on by identity.

        None is ignored. Of several that tripped before, the first in argument order gives the reason. Cancelling the
        result never touches its sources, and sources hold results weakly.
        """
        result = cls()
        result._sources = tuple(token for token in tokens if token is not None)
        for source in result._sources:
            source._lead(result)  # noqa: SLF001 - of the same class
        return result

    def _lead(self, derived: CancelToken) -> None:
        """Trip another token whenever this one trips."""
        if self._error is not None:
            derived.cancel(self._reason)
        elif self._derived is None:
            self._derived = weakref.WeakSet((derived,))
        else:
            self._derived.add(derived)


class TokenBinding:
    """The `with` block made by `CancelToken.bind`."""

    __slots__ = ("_scope", "_token")

    def __init__(self, token: CancelToken, scope: anyio.CancelScope, /) -> None:
        """Tie a scope to a token; nothing happens before the block is entered."""
        self._token = token
        self._scope = scope

    def __enter__(self) -> None:
        if self._token.cancelled:
            self._scope.cancel()
        else:
            self._token._listeners[self] = self._scope.cancel  # noqa: SLF001 - one object in two classes

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self._token._listeners.pop(self, None)  # noqa: SLF001 - one object in two classes
