"""A store that fails where a test says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, TypeAlias, TypeVar

from typing_extensions import override

from runlane.contracts import require_callable, require_kind
from runlane.errors import StoreClosedError
from runlane.records import ConversationHead, Message, Run, Snapshot
from runlane.store import (
    BranchConversation,
    BranchResult,
    Command,
    ConversationArchive,
    Delta,
    EventEnvelope,
    EventPage,
    ImportResult,
    Lease,
    MessagePage,
    Outcome,
    PurgeConversation,
    PurgeResult,
    ReadEvents,
    RecoverablePage,
    RunView,
    Store,
)
from runlane.testing._scripted import Hold

__all__ = ["Fault", "FaultPlan", "FaultyStore", "StoreCall"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCall:
    """One call of a store's method.

    Attributes:
        number: From 1, over all methods.
        apply_number: From 1, over `apply` only; 0 for other methods.
        method: Its name.
        commands: Of `apply`.
    """

    number: int
    apply_number: int
    method: str
    conversation_id: str | None = None
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with a call.

    Attributes:
        when: `before` the inner store is called, or `after` it has answered, so that the reply is lost.
        error: Raised; None with `hold` only waits.
        hold: Waited for first.
        kills: The store is dead from then on, as for a process that was killed.
    """

    when: Literal["before", "after"] = "before"
    error: Exception | None = None
    hold: Hold | None = None
    kills: bool = False


FaultPlan: TypeAlias = Callable[[StoreCall], Fault | None]


class FaultyStore(Store):
    """Wraps a store; counts its calls and fails some of them.

    Attributes:
        calls: Every call made so far.

    Example:
        >>> def lose_the_second_reply(call: StoreCall) -> Fault | None:
        ...     return Fault(when="after", error=StoreUnavailableError("gone")) if call.apply_number == 2 else None
        >>> store = FaultyStore(MemoryStore(), lose_the_second_reply)
    """

    def __init__(self, inner: Store, plan: FaultPlan | None = None) -> None:
        """Wrap an open store, or one that is opened by opening this.

        Args:
            inner: The real store.
            plan: Asked at every call what goes wrong with it; None: nothing does.
        """
        self.inner = require_kind(inner, Store, argument="inner")
        require_callable(plan, argument="plan")
        self.clock = inner.clock
        self.ids = inner.ids
        self.plan = plan
        self.calls: list[StoreCall] = []
        self._dead = False

    @property
    def applied(self) -> list[StoreCall]:
        """The calls of `apply`."""
        return [call for call in self.calls if call.method == "apply"]

    def count(self, method: str, /) -> int:
        """Return how often a method was called."""
        return sum(call.method == method for call in self.calls)

    def kill(self) -> None:
        """Let every call from now on fail at once, as if the process were gone."""
        self._dead = True

    async def _call(
        self,
        method: str,
        call: Callable[[], Awaitable[T]],
        conversation_id: str | None = None,
        commands: Sequence[Command] = (),
    ) -> T:
        made = StoreCall(
            number=len(self.calls) + 1,
            apply_number=len(self.applied) + 1 if method == "apply" else 0,
            method=method,
            conversation_id=conversation_id,
            commands=tuple(commands),
        )
        self.calls.append(made)
        fault = None if self.plan is None or self._dead else self.plan(made)
        if fault is not None and fault.when == "before":
            await self._fail(fault)
        if self._dead:
            raise StoreClosedError("the process that used this store was killed")
        result = await call()
        if fault is not None and fault.when == "after":
            await self._fail(fault)
        return result

    async def _fail(self, fault: Fault) -> None:
        if fault.hold is not None:
            await fault.hold.stand()
        if fault.kills:
            self.kill()
            raise StoreClosedError("the process that used this store was killed")
        if fault.error is not None:
            raise fault.error

    @override
    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        await self.inner.__aexit__(kind, error, traceback)

    @override
    async def apply(self, conversation_id: str, commands: Sequence[Command], /) -> tuple[Outcome, ...]:
        return await self._call("apply", lambda: self.inner.apply(conversation_id, commands), conversation_id, commands)

    @override
    async def purge(self, command: PurgeConversation, /) -> PurgeResult:
        return await self._call("purge", lambda: self.inner.purge(command), command.conversation_id)

    @override
    async def export_conversation(self, conversation_id: str, /) -> ConversationArchive:
        return await self._call(
            "export_conversation", lambda: self.inner.export_conversation(conversation_id), conversation_id
        )

    @override
    async def import_conversation(self, archive: ConversationArchive | bytes, /) -> ImportResult:
        return await self._call("import_conversation", lambda: self.inner.import_conversation(archive))

    @override
    async def branch_conversation(self, request: BranchConversation, /) -> BranchResult:
        return await self._call(
            "branch_conversation", lambda: self.inner.branch_conversation(request), request.destination_id
        )

    @override
    async def load_head(self, conversation_id: str, /) -> ConversationHead:
        return await self._call("load_head", lambda: self.inner.load_head(conversation_id), conversation_id)

    @override
    async def load_run(self, conversation_id: str, run_id: str, /) -> RunView | None:
        return await self._call("load_run", lambda: self.inner.load_run(conversation_id, run_id), conversation_id)

    @override
    async def list_active_runs(self, conversation_id: str, /) -> tuple[Run, ...]:
        return await self._call(
            "list_active_runs", lambda: self.inner.list_active_runs(conversation_id), conversation_id
        )

    @override
    async def load_draft(self, conversation_id: str, run_id: str, /) -> Message | None:
        return await self._call("load_draft", lambda: self.inner.load_draft(conversation_id, run_id), conversation_id)

    @override
    async def load_snapshot(self, conversation_id: str, /) -> Snapshot:
        return await self._call("load_snapshot", lambda: self.inner.load_snapshot(conversation_id), conversation_id)

    @override
    async def load_changes(self, conversation_id: str, since_version: int, /) -> Delta:
        return await self._call(
            "load_changes", lambda: self.inner.load_changes(conversation_id, since_version), conversation_id
        )

    @override
    async def read_messages(
        self, conversation_id: str, /, *, before: int | str | None = None, limit: int = 100
    ) -> MessagePage:
        return await self._call(
            "read_messages",
            lambda: self.inner.read_messages(conversation_id, before=before, limit=limit),
            conversation_id,
        )

    @override
    async def scan_recoverable(self, *, cursor: tuple[str, str] | None = None, limit: int = 100) -> RecoverablePage:
        return await self._call("scan_recoverable", lambda: self.inner.scan_recoverable(cursor=cursor, limit=limit))

    @override
    async def read_events(self, query: ReadEvents, /) -> EventPage:
        return await self._call("read_events", lambda: self.inner.read_events(query), query.conversation_id)

    @override
    async def find_event(self, conversation_id: str, event_id: str, /) -> EventEnvelope | None:
        return await self._call("find_event", lambda: self.inner.find_event(conversation_id, event_id), conversation_id)

    @override
    def hold_lease(self, owner_id: str, /) -> AbstractAsyncContextManager[Lease]:
        return self.inner.hold_lease(owner_id)

    @override
    async def sweep_owners(self) -> tuple[str, ...]:
        return await self._call("sweep_owners", self.inner.sweep_owners)

    @override
    async def wait_for_change(self, conversation_id: str, version: int, /, *, max_wait: float) -> bool:
        return await self._call(
            "wait_for_change",
            lambda: self.inner.wait_for_change(conversation_id, version, max_wait=max_wait),
            conversation_id,
        )
