"""The fence around tools of a durable run: who lost the run neither starts a tool nor keeps what one gave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from runlane.contracts import MaybeAwaitable, require_callable, require_id, require_kind, resolve
from runlane.errors import ToolFenceError, UsageError

__all__ = ["ToolFenceConfig", "ToolFenceContext", "ToolFenceLifecycle"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFenceContext:
    """Which call is about to begin, or has just returned.

    Attributes:
        step_id: The step of the run that asked for it, if known.
        call_id: The model's id of the call, if known.
        idempotency_key: The same over every attempt at the call.
        fencing_token: Of the execution that makes it.
    """

    run_id: str
    step_id: str | None = None
    call_id: str | None = None
    idempotency_key: str | None = None
    fencing_token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFenceConfig:
    """How a fence finds out whether a run still belongs to its executor.

    Attributes:
        run_id: The run.
        assert_current: Asked before a handler and again after it; answers None, or why the run is lost: `stale_run`
            or `run_interrupted`.
        context: Facts that every call of the run shares.
        on_settled: Told of each call whose result passed the second check.

    Raises:
        UsageError, InvalidValueError: A field of the wrong kind; names it.
    """

    run_id: str
    assert_current: Callable[[ToolFenceContext], MaybeAwaitable[str | None]]
    context: ToolFenceContext | None = None
    on_settled: Callable[[ToolFenceContext], MaybeAwaitable[None]] | None = None

    def __post_init__(self) -> None:
        require_id(self.run_id, argument="run_id")
        if not callable(self.assert_current):
            raise UsageError("must be callable", argument="assert_current")
        require_kind(self.context, ToolFenceContext | None, argument="context")
        require_callable(self.on_settled, argument="on_settled")


class ToolFenceLifecycle:
    """Checks before a handler and after it; compose it exactly once around each.

    It cannot take back what a handler has begun.

    Example:
        >>> async def charge(fence: ToolFenceLifecycle, key: str) -> str:
        ...     async def handler() -> str:
        ...         return await payments.charge(key)
        ...     return await fence.guard(handler, call_id="c1", idempotency_key=key)
    """

    def __init__(self, config: ToolFenceConfig, /) -> None:
        """Guard the tools of one execution."""
        self._config = require_kind(config, ToolFenceConfig, argument="config")
        self._facts = config.context or ToolFenceContext(run_id=config.run_id)

    def context(self, *, call_id: str | None = None, idempotency_key: str | None = None) -> ToolFenceContext:
        """Return what `assert_current` and `on_settled` are told of a call."""
        return replace(self._facts, call_id=call_id, idempotency_key=idempotency_key)

    async def check(self, context: ToolFenceContext, /) -> None:
        """Raise if the run is lost.

        Raises:
            ToolFenceError: It is. This ends the turn and is never shown to a model.
        """
        answer: MaybeAwaitable[str | None] = self._config.assert_current(context)
        verdict = await resolve(answer)
        if verdict is not None:
            raise ToolFenceError(verdict, run_id=self._config.run_id)

    async def settled(self, context: ToolFenceContext, /) -> None:
        """Check once more, then tell that a call's result counts.

        Raises:
            ToolFenceError: The run is lost: the result must be discarded.
        """
        await self.check(context)
        if self._config.on_settled is not None:
            told: MaybeAwaitable[None] = self._config.on_settled(context)
            await resolve(told)

    async def guard(
        self,
        handler: Callable[[], Awaitable[T]],
        /,
        *,
        call_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> T:
        """Run a handler inside the fence and return its result unchanged.

        Raises:
            ToolFenceError: The run is lost, before (the handler did not run) or after (its result is discarded).
        """
        context = self.context(call_id=call_id, idempotency_key=idempotency_key)
        await self.check(context)
        result = await handler()
        await self.settled(context)
        return result
