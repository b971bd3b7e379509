"""Taking up what executors left behind when they died.

| the run | class | default |
|---|---|---|
| queued | | resume |
| held by a living owner, or by one nobody knows anything of | | skip |
| held by an owner that is gone, interrupt requested | I | settle as interrupted, with what its draft holds |
| the same, no model request recorded | E0 | requeue |
| the same, a model request open or closed | E1 | requeue; what it said so far is dropped, its spend stays |
| the same, a tool call recorded whose handler was not entered | E2 | requeue; the call is made now |
| the same, entered, no result, the tool is idempotent | E3 | requeue; made again under the same key |
| the same, the tool can `reconcile` | E4 | requeue; with proof the call has its result, without it is as below |
| the same, any other tool | E5 | requeue; not made again: asked about or told, as `tools.unknown_effect` says |
| the same, every call has its result | E6 | requeue; gone on from there |
| the same, taken over more than `recovery.max_takeovers` times | X | abandon |

Runs of one conversation are handled in their order; conversations side by side. A run whose predecessor was left alone
is left alone too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import anyio

from runlane.contracts import CancelToken, MaybeAwaitable, resolve, stray_ends
from runlane.errors import InvalidValueError, RuntimeClosedError, RuntimeConflictError, UsageError
from runlane.records import ControlPart, Message, Ownership, Run
from runlane.runtime._acquiring import abandon_command, ended_result
from runlane.runtime._closing import Gate
from runlane.runtime._core import Progress, RuntimeCore, Work
from runlane.runtime._execution import enqueue
from runlane.runtime._lane_table import LaneTable
from runlane.runtime._promise import Promise
from runlane.runtime._takeover import takeover_evidence
from runlane.runtime._tickets import RunResult
from runlane.store import AcquireRun, Applied, CommitRunTerminal, RecoverableDescriptor, RecoverRun

__all__ = [
    "Abandon",
    "Decide",
    "Recovery",
    "RecoveryDecision",
    "RecoveryInput",
    "RecoveryOutcome",
    "Requeue",
    "ResolveContext",
]

_SIDE_BY_SIDE: Final = 16
_CUT_OFF: Final = ControlPart(reason="run-interrupted")


@dataclass(frozen=True, slots=True)
class Requeue:
    """Run it again. The evidence is a promise: running it again is safe.

    Raises:
        UsageError: The promise is not given.
    """

    replay_safe: bool

    def __post_init__(self) -> None:
        if self.replay_safe is not True:
            raise UsageError("must be True", argument="replay_safe")


@dataclass(frozen=True, slots=True)
class Abandon:
    """End it. The evidence is a statement: its executor is gone for good.

    Raises:
        UsageError: The statement is not given.
    """

    stale_owner: bool

    def __post_init__(self) -> None:
        if self.stale_owner is not True:
            raise UsageError("must be True", argument="stale_owner")


RecoveryDecision: TypeAlias = Literal["skip", "resume", "settle"] | Requeue | Abandon
"""What to do with a run that was left behind. `resume` is for queued runs, `settle` for runs asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryInput:
    """What a decision is asked about.

    Attributes:
        owner_alive: Whether whoever holds it still lives; None if nobody holds it, or nobody knows.
        default: What happens without a decision.
    """

    conversation_id: str
    run: Run
    owner_alive: bool | None
    default: RecoveryDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOutcome:
    """What became of one run.

    Attributes:
        result: Of `resumed` and `requeued`: settles when the run has ended.
        error: Of `failed`.
    """

    conversation_id: str
    run_id: str
    action: Literal["resumed", "requeued", "settled", "abandoned", "skipped", "failed"]
    result: Promise[RunResult] | None = None
    error: Exception | None = None


Decide: TypeAlias = Callable[[RecoveryInput], MaybeAwaitable[RecoveryDecision]]
ResolveContext: TypeAlias = Callable[[RecoveryInput], MaybeAwaitable[object]]


class Recovery:
    """One pass over what was left behind."""

    def __init__(
        self,
        core: RuntimeCore,
        lanes: LaneTable,
        gate: Gate,
        *,
        decide: Decide | None = None,
        resolve_context: ResolveContext | None = None,
    ) -> None:
        """Prepare a pass; see `AgentRuntime.recover` for the arguments.

        Raises:
            UsageError: One of them cannot be called.
        """
        for name, function in (("decide", decide), ("resolve_context", resolve_context)):
            if function is not None and not callable(function):
                raise UsageError("must be callable or None", argument=name)
        self._core = core
        self._lanes = lanes
        self._gate = gate
        self._decide = decide
        self._resolve_context = resolve_context
        self._limiter = anyio.CapacityLimiter(_SIDE_BY_SIDE)

    async def collect(
        self, *, page_size: int, max_runs: int, signal: CancelToken | None, conversation_id: str | None = None
    ) -> dict[str, list[RecoverableDescriptor]]:
        """Sweep dead owners, then list active runs by conversation, in the order they were first seen.

        Args:
            page_size: Runs read at a time.
            max_runs: Runs listed at most.
            signal: Stops when it trips.
            conversation_id: List only this one's.

        Raises:
            InvalidValueError: `page_size` is not from 1 to 1,000, or `max_runs` not positive.
            UsageError: An argument is of the wrong kind.
            StoreError: The store could not be read.
        """
        _check_range(page_size, "page_size", 1000)
        _check_range(max_runs, "max_runs", 2**53 - 1)
        if signal is not None and not isinstance(signal, CancelToken):
            raise UsageError("must be a CancelToken or None", argument="signal")
        calls = self._core.calls
        await calls.read(lambda store: store.sweep_owners())
        groups: dict[str, list[RecoverableDescriptor]] = {}
        cursor = None if conversation_id is None else (conversation_id, "")
        left = max_runs
        while left > 0 and not self._gate.closed and not (signal is not None and signal.cancelled):
            at, limit = cursor, min(page_size, left)
            page = await calls.read(
                lambda store, at=at, limit=limit: store.scan_recoverable(cursor=at, limit=limit)  # type: ignore[misc]
            )
            items = [item for item in page.items if conversation_id in {None, item.conversation_id}]
            for item in items:
                groups.setdefault(item.conversation_id, []).append(item)
            left -= len(items)
            cursor = page.next_cursor
            if cursor is None or len(items) < len(page.items):
                break
        return groups

    def announce(self, groups: dict[str, list[RecoverableDescriptor]], /) -> None:
        """Say which runs are being dealt with, so that others wait for what comes of it."""
        for conversation_id, items in groups.items():
            progress = self._core.recovering.setdefault(conversation_id, Progress())
            progress.left[self] = {item.run.id for item in items}

    def conclude(self, conversation_id: str, /) -> None:
        """Say that a conversation is dealt with, as far as this recovery goes."""
        progress = self._core.recovering.get(conversation_id)
        if progress is None:
            return
        progress.left.pop(self, None)
        if not progress.left:
            del self._core.recovering[conversation_id]
        progress.step()

    async def handle(self, groups: dict[str, list[RecoverableDescriptor]], /) -> list[RecoveryOutcome]:
        """Deal with every group; an outcome for each run, groups in their order."""
        self.announce(groups)
        outcomes: dict[str, list[RecoveryOutcome]] = {conversation_id: [] for conversation_id in groups}

        async def work(conversation_id: str, items: list[RecoverableDescriptor]) -> None:
            try:
                async with self._limiter:
                    await self._group(conversation_id, items, outcomes[conversation_id])
            finally:
                self.conclude(conversation_id)

        async with anyio.create_task_group() as tasks:
            for conversation_id, items in groups.items():
                tasks.start_soon(work, conversation_id, items)
        return [outcome for group in outcomes.values() for outcome in group]

    async def _group(
        self, conversation_id: str, items: list[RecoverableDescriptor], outcomes: list[RecoveryOutcome]
    ) -> None:
        """Deal with the runs of one conversation, in their order."""
        by_id = {item.run.id: item for item in items}
        try:
            active = await self._core.calls.read(lambda store: store.list_active_runs(conversation_id))
        except Exception as error:  # noqa: BLE001 - reported for each of its runs
            outcomes.extend(self._outcome(item, "failed", error=error) for item in items)
            return
        progress = self._core.recovering[conversation_id]
        left_alone = False
        for run in active:
            item = by_id.get(run.id)
            is_here = (conversation_id, run.id) in self._core.here
            left_alone = left_alone or (item is None and not is_here)
            if item is None:
                continue
            if is_here or left_alone:
                outcome = self._outcome(item, "skipped")
            else:
                outcome = await self._item(
                    RecoverableDescriptor(conversation_id=conversation_id, run=run, owner_alive=item.owner_alive),
                    progress,
                )
                left_alone = outcome.action in {"skipped", "failed"}
            outcomes.append(outcome)
            # Should its lane lose it again, this recovery does not come back to it.
            progress.pass_by(self, run.id)

    async def _item(self, item: RecoverableDescriptor, progress: Progress) -> RecoveryOutcome:
        try:
            with self._gate.passing():
                asked = RecoveryInput(
                    conversation_id=item.conversation_id,
                    run=item.run,
                    owner_alive=item.owner_alive,
                    default=self._default(item),
                )
                decision = await self._decision(asked)
                if self._gate.closed:
                    raise RuntimeClosedError  # noqa: TRY301 - reported like every other failure
                outcome, work = await self._carry_out(item, asked, decision)
            # From here on the lane looks after it, and a close need not wait for its turn to come.
            if work is not None:
                progress.held_up[self] = work
                progress.step()
                try:
                    await work.accepted
                finally:
                    progress.held_up.pop(self, None)
        except Exception as error:  # noqa: BLE001 - one item's failure is its outcome
            return self._outcome(item, "failed", error=error)
        return outcome

    async def _decision(self, asked: RecoveryInput) -> RecoveryDecision:
        if self._decide is None:
            return asked.default
        with stray_ends("decide"):
            chosen: RecoveryDecision | Awaitable[RecoveryDecision] = self._decide(asked)
            return await resolve(chosen)

    def _default(self, item: RecoverableDescriptor) -> RecoveryDecision:
        run = item.run
        if not run.is_acquired:
            return "resume"
        is_gone = item.owner_alive is False or self._core.incarnation.is_own(run.owner_id)
        if not is_gone:
            return "skip"
        if (run.fencing_token or 0) > self._core.config.recovery.max_takeovers:
            return Abandon(stale_owner=True)
        if run.state == "interrupt_requested":
            return "settle"
        return Requeue(replay_safe=True)

    async def _carry_out(
        self, item: RecoverableDescriptor, asked: RecoveryInput, decision: RecoveryDecision
    ) -> tuple[RecoveryOutcome, Work | None]:
        """Do what was decided; work that was put into a lane still has to be acquired."""
        match decision:
            case "skip":
                return self._outcome(item, "skipped"), None
            case "settle":
                await self._settle(item.run)
                return self._outcome(item, "settled"), None
            case Abandon():
                await self._abandon(item.run)
                return self._outcome(item, "abandoned"), None
            case Requeue():
                run = await self._requeue(item.run)
                return await self._resume(item, asked, run, "requeued")
            case "resume":
                if item.run.is_acquired:
                    raise UsageError("only a queued run can be resumed; requeue this one", argument="decide")
                return await self._resume(item, asked, item.run, "resumed")

    async def _resume(
        self, item: RecoverableDescriptor, asked: RecoveryInput, run: Run, action: Literal["resumed", "requeued"]
    ) -> tuple[RecoveryOutcome, Work]:
        """Put a queued run into its lane."""
        context: object = run.request
        if self._resolve_context is not None:
            with stray_ends("resolve_context"):
                context = await resolve(self._resolve_context(asked))
        if self._gate.closed:
            raise RuntimeClosedError
        lane = self._core.lane_of(run.conversation_id, context)
        work = Work(run=run, context=self._core.config.protocol.parse_context(context), lane=lane)
        enqueue(self._core, self._lanes, work)
        return self._outcome(item, action, result=work.result), work

    async def _requeue(self, run: Run) -> Run:
        command = RecoverRun(
            command_id=self._core.ids.new("command"),
            at=self._core.clock.now(),
            run_id=run.id,
            expected_revision=run.revision,
            action="requeue",
            replay_safe=True,
            evidence=await takeover_evidence(self._core, run),
        )
        with self._lanes.use(run.conversation_id) as lane:
            outcome = (await lane.commit([command]))[-1]
        if not isinstance(outcome, Applied):
            raise RuntimeConflictError(f"run {run.id!r} changed meanwhile", operation="requeue")
        return outcome.delta.runs[-1]

    async def _abandon(self, run: Run) -> None:
        with self._lanes.use(run.conversation_id) as lane:
            outcomes = await lane.commit([abandon_command(self._core, run, await takeover_evidence(self._core, run))])
        if ended_result(run, outcomes[-1]) is None:
            raise RuntimeConflictError(f"run {run.id!r} changed meanwhile", operation="abandon")

    async def _settle(self, run: Run) -> None:
        """End a run that was asked to stop as interrupted, in one transaction: take it over, hold it, end it."""
        core, ids, at = self._core, self._core.ids, self._core.clock.now()
        owner_id = await core.incarnation.ensure()
        draft = await core.calls.read(lambda store: store.load_draft(run.conversation_id, run.id))
        commands = (
            RecoverRun(
                command_id=ids.new("command"),
                at=at,
                run_id=run.id,
                expected_revision=run.revision,
                action="requeue",
                replay_safe=True,
                evidence=await takeover_evidence(self._core, run),
            ),
            AcquireRun(
                command_id=ids.new("command"),
                at=at,
                run_id=run.id,
                expected_revision=run.revision + 1,
                owner_id=owner_id,
            ),
            CommitRunTerminal(
                command_id=ids.new("command"),
                at=at,
                run_id=run.id,
                expected_revision=run.revision + 2,
                ownership=Ownership(owner=owner_id, fencing_token=(run.fencing_token or 0) + 1),
                assistant=Message(
                    id=run.assistant_message_id,
                    conversation_id=run.conversation_id,
                    run_id=run.id,
                    role="assistant",
                    status="interrupted",
                    parts=(*(draft.parts if draft else ()), _CUT_OFF),
                    created_at=run.created_at,
                    updated_at=at,
                ),
                reason="interrupted",
            ),
        )
        with self._lanes.use(run.conversation_id) as lane:
            outcomes = await lane.commit(commands)
        if ended_result(run, outcomes[-1]) is None:
            raise RuntimeConflictError(f"run {run.id!r} changed meanwhile", operation="settle")

    def _outcome(
        self,
        item: RecoverableDescriptor,
        action: Literal["resumed", "requeued", "settled", "abandoned", "skipped", "failed"],
        *,
        result: Promise[RunResult] | None = None,
        error: Exception | None = None,
    ) -> RecoveryOutcome:
        return RecoveryOutcome(
            conversation_id=item.conversation_id, run_id=item.run.id, action=action, result=result, error=error
        )


def _check_range(value: int, argument: str, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"must be an integer, not {type(value).__name__}", argument=argument)
    if not 1 <= value <= most:
        raise InvalidValueError(f"must be from 1 to {most}, got {value}", argument=argument)
