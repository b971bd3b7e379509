"""What the store checks are written with: a lane whose every word is short, and expectations that say what failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final, Protocol, TypeAlias, TypeVar

import anyio

from runlane.errors import StoreError, UsageError
from runlane.ids import RandomIds
from runlane.records import (
    JsonObject,
    Message,
    MessageRole,
    MessageStatus,
    Ownership,
    Part,
    QueuePriority,
    Run,
    TerminalReason,
    TextPart,
    Usage,
    message_status_for_terminal_reason,
)
from runlane.store import (
    Absorption,
    Applied,
    Conflict,
    DraftPatch,
    Duplicate,
    GrownPart,
    NotFound,
    Outcome,
    ReadEvents,
    RunView,
    Store,
)

__all__ = [
    "Lane",
    "StoreCheck",
    "StoreMaker",
    "applied",
    "at_once",
    "conflict",
    "duplicate",
    "expect",
    "not_found",
    "paged",
    "refused",
    "same",
    "store_check",
]

StoreMaker: TypeAlias = Callable[[Sequence[str]], AbstractAsyncContextManager[Store]]
"""Gives an open, empty store for a block, and cleans up behind it. It is told which conversations will be used."""

Scenario: TypeAlias = Callable[[Store], Awaitable[None]]
ErrorT = TypeVar("ErrorT", bound=BaseException)
T = TypeVar("T")
C = TypeVar("C")

_SECONDS: Final = 120
"""For one check, on the slowest machine."""
_PAGES: Final = 200
"""Of one list, more than any check writes."""

START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class StoreCheck(Protocol):
    """One rule that every store keeps; raises `AssertionError` if it does not."""

    __name__: str

    async def __call__(self, maker: StoreMaker, /) -> None:
        """Check the rule on a store of its own."""
        ...


class _Check:
    """A scenario with a store of its own."""

    def __init__(self, scenario: Scenario, conversation_ids: tuple[str, ...]) -> None:
        self.__name__ = getattr(scenario, "__name__", "check")
        self.__doc__ = scenario.__doc__
        self._scenario = scenario
        self._conversation_ids = conversation_ids

    async def __call__(self, maker: StoreMaker, /) -> None:
        manager = maker(self._conversation_ids)
        store = await manager.__aenter__()
        failure: BaseException | None = None
        try:
            with anyio.move_on_after(_SECONDS) as scope:
                await self._scenario(store)
            expect(not scope.cancelled_caught, f"{self.__name__} came to no end within {_SECONDS} seconds")
        except BaseException as error:  # noqa: BLE001  raised again below, whatever it is
            failure = error
        try:
            await manager.__aexit__(None, None, None)
        except Exception as cleanup:
            if failure is not None:
                raise BaseExceptionGroup("the check failed, and so did its cleanup", [failure, cleanup]) from None
            raise
        if failure is not None:
            raise failure


def store_check(*conversation_ids: str) -> Callable[[Scenario], StoreCheck]:
    """Make a check of a scenario: a store of its own, one cleanup, and no failure that hides another."""

    def make(scenario: Scenario) -> StoreCheck:
        return _Check(scenario, conversation_ids or ("c1",))

    return make


# --- expectations -------------------------------------------------------------------------------------------------


def expect(condition: object, sentence: str, /) -> None:
    """Fail with a sentence unless something holds."""
    if not condition:
        raise AssertionError(sentence)


def same(actual: object, wanted: object, what: str, /) -> None:
    """Fail unless two values are equal."""
    expect(actual == wanted, f"{what}: wanted {wanted!r}, got {actual!r}")


def applied(outcome: Outcome, /) -> Applied:
    """Fail unless a command was applied."""
    if isinstance(outcome, Applied):
        return outcome
    raise AssertionError(f"wanted Applied, got {outcome!r}")


def conflict(outcome: Outcome, actual_version: int, /) -> None:
    """Fail unless a command lost a race against this version."""
    same(outcome, Conflict(actual_version=actual_version), "the outcome")


def not_found(outcome: Outcome, /) -> None:
    """Fail unless a command found nothing."""
    same(outcome, NotFound(), "the outcome")


def duplicate(outcome: Outcome, /) -> Duplicate:
    """Fail unless a key was known."""
    if isinstance(outcome, Duplicate):
        return outcome
    raise AssertionError(f"wanted Duplicate, got {outcome!r}")


async def refused(attempt: Awaitable[object], kind: type[ErrorT] = UsageError, /) -> ErrorT:  # type: ignore[assignment]
    """Fail unless an attempt raises this error; return it."""
    try:
        result = await attempt
    except kind as error:
        return error
    raise AssertionError(f"wanted {kind.__name__}, got {result!r}")


async def paged(read: Callable[[C | None], Awaitable[tuple[Iterable[T], C | None]]], /) -> list[T]:
    """Return what all pages of a list hold; fail if they come to no end.

    Args:
        read: Reads the page behind a cursor; returns what is on it, and the cursor of the next one.
    """
    found: list[T] = []
    cursor: C | None = None
    for _ in range(_PAGES):
        items, cursor = await read(cursor)
        found += items
        if cursor is None:
            return found
    raise AssertionError(f"pages come to no end: {found[:10]!r} and so on")


async def at_once(*attempts: Callable[[], Awaitable[object]]) -> list[object]:
    """Make attempts at once; return results and refusals in their order."""
    results: list[object] = [None] * len(attempts)

    async def one(index: int) -> None:
        try:
            results[index] = await attempts[index]()
        except (StoreError, UsageError) as error:
            results[index] = error

    async with anyio.create_task_group() as group:
        for index in range(len(attempts)):
            group.start_soon(one, index)
    return results


# --- the lane -----------------------------------------------------------------------------------------------------


class Lane:
    """One conversation of a store, spoken to in short words.

    A run named `a` has the input `a-in` and reserves the answer `a-out`.
    """

    def __init__(self, store: Store, conversation_id: str = "c1", /) -> None:
        self.store = store
        self.id = conversation_id
        self.ids = RandomIds()
        self._ticks = count()
        self._ownership: dict[str, Ownership] = {}

    def now(self) -> datetime:
        """Return an instant later than all before."""
        return START + timedelta(milliseconds=next(self._ticks))

    def message(
        self,
        message_id: str,
        text: str = "hello",
        role: MessageRole = "user",
        status: MessageStatus = "committed",
        *,
        run_id: str | None = None,
        parts: tuple[Part, ...] | None = None,
    ) -> Message:
        """Make a message."""
        return Message(
            id=message_id,
            conversation_id=self.id,
            run_id=run_id,
            role=role,
            status=status,
            parts=(TextPart(text=text),) if parts is None else parts,
            created_at=START,
            updated_at=START,
        )

    def proposal(
        self,
        name: str,
        /,
        *,
        created_at: datetime | None = None,
        priority: QueuePriority | None = None,
        request: JsonObject | None = None,
    ) -> Run:
        """Make the run that an input proposes."""
        at = created_at or self.now()
        return Run(
            id=name,
            conversation_id=self.id,
            input_message_ids=(f"{name}-in",),
            assistant_message_id=f"{name}-out",
            state="queued",
            revision=0,
            queue_priority=priority,
            request=request,
            created_at=at,
            updated_at=at,
        )

    async def try_accept(
        self,
        name: str,
        text: str = "hello",
        /,
        *,
        key: str | None = None,
        run: Run | None = None,
        into: str | None = None,
        expected_version: int | None = None,
    ) -> Outcome:
        """Offer an input."""
        return await self.store.accept_input(
            idempotency_key=key or f"{name}-key",
            input=self.message(f"{name}-in", text),
            run=run or self.proposal(name),
            expected_version=expected_version,
            coalesce_into_run_id=into,
        )

    async def accept(self, *names: str) -> None:
        """Commit inputs with runs of their own."""
        for name in names:
            applied(await self.try_accept(name))

    async def view(self, name: str) -> RunView:
        """Return a run that must be there."""
        view = await self.store.load_run(self.id, name)
        if view is None:
            raise AssertionError(f"run {name!r} is missing")
        return view

    async def revision(self, name: str) -> int:
        """Return a run's revision."""
        return (await self.view(name)).run.revision

    async def version(self) -> int:
        """Return the conversation's version."""
        return (await self.store.load_head(self.id)).version

    async def try_acquire(self, name: str, owner: str = "owner-a", /, *, revision: int | None = None) -> Outcome:
        """Try to become a run's executor."""
        return await self.store.acquire_run(
            conversation_id=self.id,
            run_id=name,
            expected_revision=await self.revision(name) if revision is None else revision,
            owner_id=owner,
        )

    async def start(self, name: str, owner: str = "owner-a") -> Ownership:
        """Become a run's executor."""
        return self.hold(name, applied(await self.try_acquire(name, owner)))

    def hold(self, name: str, acquisition: Applied) -> Ownership:
        """Remember what an acquisition gave, for the owned writes that follow."""
        if acquisition.ownership is None:
            raise AssertionError("an acquisition must give an ownership")
        self._ownership[name] = acquisition.ownership
        return acquisition.ownership

    def ownership(self, name: str) -> Ownership:
        """Return what the last acquisition of a run gave."""
        return self._ownership[name]

    async def try_checkpoint(
        self,
        name: str,
        patch: DraftPatch,
        /,
        *,
        ownership: Ownership | None = None,
        revision: int | None = None,
        usage: Usage | None = None,
    ) -> Outcome:
        """Offer a checkpoint."""
        return await self.store.checkpoint_run_assistant(
            conversation_id=self.id,
            run_id=name,
            expected_revision=await self.revision(name) if revision is None else revision,
            ownership=ownership or self._ownership[name],
            patch=patch,
            usage=usage,
        )

    async def say(self, name: str, text: str, /) -> None:
        """Checkpoint more text: a new part first, then the same one growing."""
        draft = await self.store.load_draft(self.id, name)
        if draft is None or not draft.parts:
            patch = DraftPatch(added=(TextPart(text=text),))
        else:
            last = len(draft.parts) - 1
            patch = DraftPatch(keep=len(draft.parts), grown=(GrownPart(last, text),))
        applied(await self.try_checkpoint(name, patch))

    async def try_end(  # noqa: PLR0913  one keyword for each thing a check varies
        self,
        name: str,
        reason: TerminalReason = "success",
        text: str = "answer",
        /,
        *,
        ownership: Ownership | None = None,
        revision: int | None = None,
        absorb: Sequence[str] = (),
        policy_name: str | None = None,
        usage: Usage | None = None,
    ) -> Outcome:
        """Offer a run's end; absorbed runs are named with all the inputs they have now."""
        entries = [Absorption(other, (await self.view(other)).run.input_message_ids) for other in absorb]
        status = message_status_for_terminal_reason(reason) or "completed"
        return await self.store.commit_run_terminal(
            conversation_id=self.id,
            run_id=name,
            expected_revision=await self.revision(name) if revision is None else revision,
            ownership=ownership or self._ownership[name],
            assistant=self.message(f"{name}-out", text, "assistant", status, run_id=name),
            reason=reason,
            policy_name=policy_name,
            usage=usage,
            absorb=tuple(entries),
        )

    async def turn(self, *names: str) -> None:
        """Take inputs through whole turns."""
        for name in names:
            await self.accept(name)
            await self.start(name)
            applied(await self.try_end(name))

    async def try_interrupt(self, name: str) -> Outcome:
        """Ask a run to stop."""
        return await self.store.request_run_interrupt(
            conversation_id=self.id, run_id=name, expected_revision=await self.revision(name)
        )

    async def try_cancel(self, name: str) -> Outcome:
        """Take a queued run back."""
        return await self.store.cancel_run(
            conversation_id=self.id, run_id=name, expected_revision=await self.revision(name)
        )

    async def try_compact(self, *ids: str, summary: str = "sum", version: int | None = None) -> Outcome:
        """Offer a summary for messages."""
        return await self.store.replace_compacted_range(
            expected_version=await self.version() if version is None else version,
            replaced_message_ids=ids,
            summary=self.message(summary, "in short", "summary"),
        )

    async def message_ids(self) -> list[str]:
        """Return the ids of the active history in order."""
        return [message.id for message in (await self.store.load_snapshot(self.id)).messages]

    async def ledger(self) -> list[JsonObject]:
        """Return the payloads of all ledger entries."""
        page = await self.store.read_events(ReadEvents(conversation_id=self.id, limit=10_000))
        return [event.payload for event in page.items]

    async def unchanged(self, attempt: Awaitable[Outcome], /) -> Outcome:
        """Make an attempt and fail if it left anything behind."""
        before = await self._before(attempt)
        outcome = await attempt
        same(await self._everything(), before, f"the store after {outcome!r}")
        return outcome

    async def refused(self, attempt: Awaitable[object], kind: type[ErrorT] = UsageError, /) -> ErrorT:  # type: ignore[assignment]
        """Make an attempt that must raise, and fail if it left anything behind."""
        before = await self._before(attempt)
        error = await refused(attempt, kind)
        same(await self._everything(), before, f"the store after {error!r}")
        return error

    async def _before(self, attempt: Awaitable[object]) -> object:
        """Return everything; an attempt that is not come to is let go of."""
        try:
            return await self._everything()
        except BaseException:
            if isinstance(attempt, Coroutine):
                attempt.close()
            raise

    async def _everything(self) -> object:
        return await self.store.load_snapshot(self.id), await self.ledger()
