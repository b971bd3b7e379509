"""Makes an acquired run durable while it is answered: checkpoints and operation records, one transaction at a time.

What is written is chosen so that a turn costs few commits: the end of a step waits for whatever is written next (the
next step's start, or the end of the run), and the first output rides with the first checkpoint.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from runlane.contracts import CancelToken
from runlane.delivery import DraftView
from runlane.errors import RuntimeConflictError
from runlane.records import Ownership, Part, Run, RunOperation, RunOperationPhase, Usage
from runlane.runtime._announcing import Extras
from runlane.runtime._core import RuntimeCore
from runlane.runtime._draft import Draft, DraftMark
from runlane.runtime._lane import ConversationLane
from runlane.runtime._reporting import RunReport
from runlane.runtime._request_ledger import RecordedRequest
from runlane.runtime._spend import Spend
from runlane.store import AppendEvent, Applied, CheckpointRunAssistant, Command, DraftPatch, RecordRunOperation

__all__ = ["OwnershipLostError", "TurnWriter", "holds"]

_ATTEMPTS: Final = 32


class OwnershipLostError(RuntimeConflictError):
    """The run belongs to somebody else, or has ended: this execution writes nothing more."""


def holds(ownership: Ownership, run: Run, /) -> bool:
    """Whether an executor still holds a run, as far as the run itself can tell."""
    return run.is_acquired and (run.owner_id, run.fencing_token) == (ownership.owner, ownership.fencing_token)


class TurnWriter:
    """The durable side of one execution.

    Attributes:
        run: As last written.
        ownership: Goes with every write.
        draft: The answer so far.
        spend: Usage and durations.
        operation: The open provider call, or None.
        report: What operators are told of the execution.
        recorded_request: A request that was committed with the acquisition and not made yet.
    """

    def __init__(
        self,
        core: RuntimeCore,
        lane: ConversationLane,
        run: Run,
        ownership: Ownership,
        signal: CancelToken,
        kept: tuple[Part, ...] = (),
        /,
    ) -> None:
        """Take over a run that was just acquired; `kept` is what its draft held and still holds."""
        self._core = core
        self._lane = lane
        self._signal = signal
        self.run = run
        self.ownership = ownership
        self.draft = Draft(run, kept)
        self.spend = Spend(core.clock, run.usage)
        self.report = RunReport(core.config.observers, core.clock, run, ownership)
        self.operation: RunOperation | None = None
        self._owed: list[RunOperation] = []
        self._entries: list[AppendEvent] = []
        self._owes_first_output = False
        self.recorded_request: RecordedRequest | None = None
        self._written_usage = run.usage
        self._parts = 0
        self._written_at = core.clock.monotonic()

    async def start(self, operation: RunOperation, /, *, is_written: bool) -> None:
        """Have a call's start durable, with everything before it.

        Args:
            operation: In phase `started`.
            is_written: It was committed with the acquisition already.
        """
        if not is_written:
            await self._write((operation,))
        self.operation = operation

    async def record(self, operation: RunOperation, /) -> None:
        """Make a record of an operation beside the provider's calls durable, with everything before it.

        Raises:
            OwnershipLostError: The run is lost.
        """
        await self._write((operation,))

    def count_part(self) -> None:
        """Count a part of the stream, published or not."""
        self._parts += 1

    def first_output(self) -> None:
        """Note that the open call has put something out; written with the next checkpoint."""
        self.spend.first_output()
        self.report.first_output()
        operation = self.operation
        if operation is not None and operation.first_output_at is None:
            update = {"phase": "first-output", "first_output_at": self._core.clock.now()}
            self.operation = operation.model_copy(update=update)
            self._owes_first_output = True

    def end(self, *, finished: bool, given_up: bool = False) -> None:
        """Close the open call, if there is one; written with whatever is written next.

        Args:
            finished: The provider's answer is complete.
            given_up: This side ended the call, without the run being told to stop.
        """
        operation, self.operation = self.operation, None
        self._owes_first_output = False
        if operation is None:
            return
        phase: RunOperationPhase = "failed"
        if finished:
            phase = "completed"
        elif given_up or self._signal.cancelled:
            phase = "cancelled"
        self._owed.append(operation.model_copy(update={"phase": phase, "finished_at": self._core.clock.now()}))
        self.spend.end_step(finished=finished)

    def owe(self, entry: AppendEvent, /) -> None:
        """Have a ledger entry written with whatever is written next."""
        self._entries.append(entry)

    @property
    def entries(self) -> tuple[AppendEvent, ...]:
        """The ledger entries that the terminal commit takes along."""
        return tuple(self._entries)

    def give_up(self, parts: int, /) -> None:
        """Write no ledger entry that is owed, and no part of the answer from this index on: they were refused."""
        self._entries.clear()
        self.draft.cut(parts)

    def closing(self) -> tuple[RunOperation, ...]:
        """Return the operation records that the terminal commit takes along."""
        self.end(finished=False)
        return tuple(self._owed)

    async def checkpoint(self, *, proves: bool = False) -> None:
        """Make everything so far durable.

        Args:
            proves: Write under the run's ownership even if nothing but ledger entries is new.
        """
        await self._write((), proves=proves)

    def is_due(self) -> bool:
        """Whether enough has streamed since the last checkpoint for another one."""
        loop = self._core.config.loop
        if self._parts < loop.checkpoint_every_events:
            return False
        interval = loop.checkpoint_min_interval
        return interval is None or self._core.clock.monotonic() - self._written_at >= interval

    async def _write(self, operations: tuple[RunOperation, ...], *, proves: bool = False) -> None:
        for _ in range(_ATTEMPTS):
            async with self._lane.turn:
                if await self._try(operations, proves=proves):
                    return
            await self._look_up()
        raise OwnershipLostError("the run kept changing", operation="checkpoint")

    async def _try(self, operations: tuple[RunOperation, ...], *, proves: bool) -> bool:
        """Write what is new at this moment, with operations; False if that was refused."""
        patch, mark = self.draft.patch()
        closed = len(self._owed)
        owed = (*self._owed, *self._open_output(), *operations)
        usage = self.spend.so_far
        if patch is None and (proves or usage != self._written_usage):
            patch = DraftPatch(keep=self.draft.saved)
        entries = tuple(self._entries)
        if patch is None and not owed and not entries:
            return True
        at = self._core.clock.now()
        commands = [*entries, *self._commands(patch, owed, usage, at)]
        outcomes = await self._lane.carry_out(commands, **self._told(mark, at))
        last = outcomes[-1]
        if not isinstance(last, Applied) or len(outcomes) < len(commands):
            return False
        if last.delta.runs:
            self.run = last.delta.runs[-1]
        self.draft.committed(mark)
        del self._owed[:closed]
        del self._entries[: len(entries)]
        self._owes_first_output = False
        self._written_usage = usage
        self._parts = 0
        self._written_at = self._core.clock.monotonic()
        return True

    def _told(self, mark: DraftMark, at: datetime) -> Extras:
        """Return what a checkpoint's event says beyond its commit; nothing if nobody hears it."""
        if not self._core.publishing.wanted(self.run.conversation_id):
            return {}
        draft = DraftView(lambda: self.draft.view(mark, at))
        return {"metrics": self.spend.metrics(partial=True), "draft": draft}

    def _open_output(self) -> tuple[RunOperation, ...]:
        return (self.operation,) if self._owes_first_output and self.operation is not None else ()

    def _commands(
        self, patch: DraftPatch | None, operations: tuple[RunOperation, ...], usage: Usage | None, at: datetime
    ) -> list[Command]:
        commands: list[Command] = []
        revision = self.run.revision
        if patch is not None:
            commands.append(
                CheckpointRunAssistant(
                    command_id=self._core.ids.new("command"),
                    at=at,
                    run_id=self.run.id,
                    expected_revision=revision,
                    ownership=self.ownership,
                    patch=patch,
                    usage=usage,
                )
            )
        for operation in operations:
            commands.append(
                RecordRunOperation(
                    command_id=self._core.ids.new("command"),
                    at=at,
                    run_id=self.run.id,
                    expected_revision=revision + len(commands),
                    ownership=self.ownership,
                    operation=operation,
                )
            )
        return commands

    async def _look_up(self) -> None:
        """See why a write was refused; returns if it is worth trying again.

        Raises:
            OwnershipLostError: Somebody else holds the run, or it has ended.
            AbortedError: It was asked to stop.
        """
        run_id = self.run.id
        view = await self._core.calls.read(lambda store: store.load_run(self.run.conversation_id, run_id))
        if view is None or not holds(self.ownership, view.run):
            raise OwnershipLostError(f"run {run_id!r} is not held by this runtime any more", operation="checkpoint")
        self.run = view.run
        if view.run.state == "interrupt_requested":
            self._signal.cancel("user-interrupt")
            self._signal.raise_if_cancelled()
