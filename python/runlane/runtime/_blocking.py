"""The same runtime for programs without an event loop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from runlane.contracts import CancelToken
from runlane.delivery import EventCursor, Gap, RuntimeEvent, Subscription
from runlane.errors import RuntimeClosedError, UsageError
from runlane.runtime._blocking_events import BlockingSubscription
from runlane.runtime._config import RuntimeConfig
from runlane.runtime._config_checks import one_of
from runlane.runtime._coordinator import CloseResult, StopReason
from runlane.runtime._core import ModelSource
from runlane.runtime._history_seeds import SeedPlacement
from runlane.runtime._inputs import InputLike
from runlane.runtime._policies import InputPolicy
from runlane.runtime._recovery import Decide, RecoveryOutcome, ResolveContext
from runlane.runtime._runtime import AgentRuntime
from runlane.runtime._tickets import RecordIds, RunResult, RunTicket
from runlane.runtime._tool_source import ToolSource
from runlane.store import Outcome, Store

__all__ = ["BlockingRuntime"]

T = TypeVar("T")


class BlockingRuntime:
    """An `AgentRuntime` in a thread of its own, with calls that block.

    Entering opens the store and starts the runtime; leaving closes both. It may be used from several threads.

    Example:
        >>> with BlockingRuntime(MemoryStore(), model=ScriptedModel("Hello!")) as runtime:
        ...     runtime.ask("a conversation", "Hi").text
        'Hello!'
    """

    def __init__(  # noqa: PLR0913 - what a runtime is made of
        self,
        store: Store,
        *,
        model: ModelSource,
        tools: ToolSource = (),
        instructions: str | None = None,
        config: RuntimeConfig | None = None,
        recover_on_start: bool = False,
        backend: Literal["asyncio", "trio"] = "asyncio",
    ) -> None:
        """Prepare a runtime; see `AgentRuntime` for the arguments.

        Args:
            store: A store that is not open yet.
            model: See `AgentRuntime`.
            tools: See `AgentRuntime`.
            instructions: See `AgentRuntime`.
            config: See `AgentRuntime`.
            recover_on_start: See `AgentRuntime`.
            backend: The event loop to run in the thread.

        Raises:
            UsageError, InvalidValueError: See `AgentRuntime`; or `backend` is no event loop.
        """
        one_of(backend, "backend", ("asyncio", "trio"))
        self._store = store
        self._runtime = AgentRuntime(
            store,
            model=model,
            tools=tools,
            instructions=instructions,
            config=config,
            recover_on_start=recover_on_start,
        )
        self._backend = backend
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._thread: int | None = None

    def __enter__(self) -> Self:
        """Start the thread, open the store and the runtime in it.

        Raises:
            StoreError: The store cannot be opened.
        """
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal(self._backend))
            store: AbstractAsyncContextManager[Any] = self._store
            stack.enter_context(portal.wrap_async_context_manager(store))
            stack.callback(self._leave)
            stack.enter_context(portal.wrap_async_context_manager(self._runtime))
            self._thread = portal.call(threading.get_ident)
            self._portal = portal
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Close the runtime and the store, and end the thread.

        Threads that listen are told how runs end meanwhile; what they have not read by then they read afterwards.
        """
        self._stack.__exit__(kind, error, traceback)

    def _leave(self) -> None:
        """Call nothing any more: the runtime has closed, and whoever waited was answered."""
        self._portal = None

    def ask(  # noqa: PLR0913 - as `AgentRuntime.submit`
        self,
        conversation_id: str,
        input: InputLike,  # noqa: A002 - the word of the field
        /,
        *,
        idempotency_key: str | None = None,
        metadata: Mapping[str, object] | None = None,
        request: Mapping[str, object] | None = None,
        context: object = None,
        policy: InputPolicy | None = None,
        record_ids: RecordIds | None = None,
    ) -> RunResult:
        """Submit an input and wait for its end; see `AgentRuntime.submit` for the arguments.

        Returns:
            How the run ended; look at `reason`, for a failed run is not an exception.

        Raises:
            RunlaneError: The input was refused, or the run did not end here.
        """
        ticket = self._call(
            lambda: self._runtime.submit(
                conversation_id,
                input,
                idempotency_key=idempotency_key,
                metadata=metadata,
                request=request,
                context=context,
                policy=policy,
                record_ids=record_ids,
            )
        )
        return self._call(ticket.result.wait)

    def respond_to_approval(
        self,
        conversation_id: str,
        approval_id: str,
        /,
        *,
        approved: bool,
        reason: str | None = None,
        context: object = None,
    ) -> RunResult:
        """Answer a request for approval and wait for what comes of it; see `AgentRuntime.respond_to_approval`.

        Raises:
            RunlaneError: The answer was refused, or the run did not end here.
        """
        ticket = self._call(
            lambda: self._runtime.respond_to_approval(
                conversation_id, approval_id, approved=approved, reason=reason, context=context
            )
        )
        return self._call(ticket.result.wait)

    def stream(  # noqa: PLR0913 - as `AgentRuntime.submit`
        self,
        conversation_id: str,
        input: InputLike,  # noqa: A002 - the word of the field
        /,
        *,
        idempotency_key: str | None = None,
        metadata: Mapping[str, object] | None = None,
        request: Mapping[str, object] | None = None,
        context: object = None,
        policy: InputPolicy | None = None,
        record_ids: RecordIds | None = None,
    ) -> Iterator[RuntimeEvent | Gap]:
        """Submit an input and yield the events of its run until it ends.

        The last one is a `TerminalEvent`, or the state `superseded` of a run that another one absorbed. The input is
        submitted when the iteration begins. Leaving the iteration early does not stop the run.

        Raises:
            RunlaneError: The input was refused, or the run did not end here.
        """

        def begin() -> tuple[RunTicket, Subscription]:
            ticket = self._runtime.submit(
                conversation_id,
                input,
                idempotency_key=idempotency_key,
                metadata=metadata,
                request=request,
                context=context,
                policy=policy,
                record_ids=record_ids,
            )
            return ticket, ticket.events()

        ticket, events = self._call(begin)
        with BlockingSubscription(events, self._call, self._later) as heard:
            yield from heard
        if not ticket.result.done:
            self._call(ticket.result.wait)
        elif ticket.result.error is not None:
            raise ticket.result.error

    def subscribe(
        self, conversation_id: str, /, *, run_id: str | None = None, after: int | EventCursor | None = None
    ) -> BlockingSubscription:
        """Listen to a conversation; use it as `with`, and iterate it.

        Args:
            conversation_id: What to listen to.
            run_id: Only this run, until it ends.
            after: Where to begin; see `AgentRuntime.subscribe`. Whoever keeps the `snapshot_version` of the last event,
                or an `EventCursor`, goes on from there after a restart. None starts with what happens from now on.

        Returns:
            The subscription, which listens already: nothing committed from now on is missed. It yields the events and,
            where some were lost to a listener that was too slow, a `Gap`; the iteration waits for the next one until
            the subscription is closed, the run has ended, or the runtime closes.

        Raises:
            UsageError, InvalidValueError: An argument is malformed; names it.
            RuntimeClosedError: The runtime is not entered, or was left.

        Example:
            >>> with BlockingRuntime(MemoryStore(), model=ScriptedModel("Hello!")) as runtime:
            ...     answer = runtime.ask("a conversation", "Hi")
            ...     with runtime.subscribe("a conversation", run_id=answer.run.id, after=0) as events:
            ...         print(*[event.type for event in events if not isinstance(event, Gap)][:3])
            admission run-state run-state
        """

        async def begin() -> Subscription:
            return await self._runtime.subscribe(conversation_id, run_id=run_id, after=after).__aenter__()

        return BlockingSubscription(self._call(begin), self._call, self._later)

    def seed(
        self,
        conversation_id: str,
        messages: Sequence[InputLike],
        /,
        *,
        seed_key: str,
        placement: SeedPlacement = "lead",
    ) -> Outcome:
        """Put messages into a conversation once for ever; see `AgentRuntime.seed`."""
        seed = partial(self._runtime.seed, seed_key=seed_key, placement=placement)
        return self._call(partial(seed, conversation_id, messages))

    def interrupt(self, conversation_id: str, run_id: str, /) -> Outcome:
        """Ask a running run to stop, durably, whichever process executes it; see `AgentRuntime.interrupt`."""
        return self._call(partial(self._runtime.interrupt, conversation_id, run_id))

    def stop(self, conversation_id: str, /, *, reason: StopReason = "user-interrupt") -> bool:
        """Stop what executes on a conversation; see `AgentRuntime.stop`."""
        return self._call(lambda: self._runtime.stop(conversation_id, reason=reason))

    def cancel(self, conversation_id: str, run_id: str, /) -> Outcome:
        """End a queued run, or interrupt a running one; see `AgentRuntime.cancel`."""
        return self._call(partial(self._runtime.cancel, conversation_id, run_id))

    def abandon(self, conversation_id: str, run_id: str, /, *, expected_revision: int, stale_owner: bool) -> Outcome:
        """End a run whose executor is known to be gone; see `AgentRuntime.abandon`."""
        abandon = partial(self._runtime.abandon, expected_revision=expected_revision, stale_owner=stale_owner)
        return self._call(partial(abandon, conversation_id, run_id))

    def resume(self, conversation_id: str, run_id: str, /, *, context: object = None) -> RunResult:
        """Execute a queued run that no process will start by itself, and wait for its end; see `AgentRuntime.resume`.

        Raises:
            RunlaneError: There is no such run, it is not queued, or it did not end here.
        """
        resumed = self._call(lambda: self._runtime.resume(conversation_id, run_id, context=context))
        return self._call(resumed.result.wait)

    def recover(
        self,
        *,
        conversation_id: str | None = None,
        resolve_context: ResolveContext | None = None,
        decide: Decide | None = None,
        page_size: int = 100,
        max_runs: int = 1000,
        signal: CancelToken | None = None,
    ) -> list[RecoveryOutcome]:
        """Take up what dead executors left behind; see `AgentRuntime.recover`."""
        return self._call(
            partial(
                self._runtime.recover,
                conversation_id=conversation_id,
                resolve_context=resolve_context,
                decide=decide,
                page_size=page_size,
                max_runs=max_runs,
                signal=signal,
            )
        )

    def close(self, *, grace: float | None = None, force: float | None = None) -> CloseResult:
        """Admit nothing more, end what executes within the budgets, and say what is left; see `AgentRuntime.close`.

        The store stays open until the `with` block is left.
        """
        return self._call(partial(self._runtime.close, grace=grace, force=force))

    def _later(self, function: Callable[[], Awaitable[object]]) -> None:
        """Call something in the runtime's thread, some time."""
        if self._portal is not None:
            self._portal.start_task_soon(function)

    @overload
    def _call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T: ...
    @overload
    def _call(self, function: Callable[[], T]) -> T: ...
    def _call(self, function: Callable[[], Any]) -> Any:
        """Call something in the runtime's thread, and wait for what it gives.

        Raises:
            UsageError: This is the runtime's own thread, which would wait for itself.
            RuntimeClosedError: It was not entered, or was left.
        """
        portal = self._portal
        if portal is None:
            if self._thread is not None:
                raise RuntimeClosedError
            raise RuntimeClosedError.not_entered("with BlockingRuntime(...) as runtime")
        if threading.get_ident() == self._thread:
            raise UsageError(
                "its calls block, and this is the thread of the runtime: a tool or callback that uses it must be a "
                "plain function in a thread of its own",
                argument="BlockingRuntime",
            )
        try:
            return portal.call(function)
        except RuntimeError as error:
            if type(error) is RuntimeError and self._portal is None:
                raise RuntimeClosedError from error
            raise
