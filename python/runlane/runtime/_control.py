"""Ending a run from outside: interrupt, stop, cancel, abandon."""

from __future__ import annotations

from runlane.errors import RuntimeConflictError, UsageError
from runlane.records import Message, Run
from runlane.runtime._acquiring import abandon_command, cancel_command, ended_result
from runlane.runtime._coordinator import StopReason
from runlane.runtime._core import RuntimeCore
from runlane.runtime._history_seeds import SeedPlacement
from runlane.runtime._lane_table import LaneTable
from runlane.store import Applied, Command, Conflict, Outcome, RequestRunInterrupt, SeedConversation

__all__ = ["Control"]

_ROUNDS = 32


class Control:
    """What can be done to a run that somebody else executes, or nobody yet."""

    def __init__(self, core: RuntimeCore, lanes: LaneTable, /) -> None:
        """Act on the runs of a runtime's store."""
        self._core = core
        self._lanes = lanes

    async def interrupt(self, conversation_id: str, run_id: str, /) -> Outcome:
        """Ask for a durable interrupt; see `AgentRuntime.interrupt`."""
        run = await self._load(conversation_id, run_id, "interrupt")
        for _ in range(_ROUNDS):
            outcome = await self._commit(run, self._interrupt_command(run))
            if isinstance(outcome, Applied):
                token = self._core.token_of(conversation_id, run_id)
                if token is not None:
                    token.cancel("user-interrupt")
                return outcome
            if run.state != "running":
                return outcome
            run = await self._load(conversation_id, run_id, "interrupt")
        return Conflict(actual_version=run.revision)

    def stop(self, conversation_id: str, reason: StopReason, /) -> bool:
        """Stop what executes here; see `AgentRuntime.stop`."""
        return self._core.lanes.stop(conversation_id, reason)

    async def cancel(self, conversation_id: str, run_id: str, /) -> Outcome:
        """End a queued run, or interrupt a running one; see `AgentRuntime.cancel`."""
        run = await self._load(conversation_id, run_id, "cancel")
        for _ in range(_ROUNDS):
            if run.is_acquired:
                return await self.interrupt(conversation_id, run_id)
            outcome = await self._commit(run, cancel_command(self._core, run))
            if isinstance(outcome, Applied) or run.state != "queued" or run.execution_sequence is not None:
                return outcome
            run = await self._load(conversation_id, run_id, "cancel")
        return Conflict(actual_version=run.revision)

    async def abandon(self, conversation_id: str, run_id: str, expected_revision: int, *, stale_owner: bool) -> Outcome:
        """End a run whose executor is gone; see `AgentRuntime.abandon`."""
        if stale_owner is not True:
            raise UsageError(
                "must be True: only a run whose executor is known to be gone may be abandoned", argument="stale_owner"
            )
        if isinstance(expected_revision, bool) or not isinstance(expected_revision, int):
            raise UsageError("must be an integer", argument="expected_revision")
        run = await self._load(conversation_id, run_id, "abandon")
        stale = run.model_copy(update={"revision": expected_revision})
        return await self._commit(run, abandon_command(self._core, stale, {"stale_owner": True}))

    async def _load(self, conversation_id: str, run_id: str, operation: str) -> Run:
        view = await self._core.calls.read(lambda store: store.load_run(conversation_id, run_id))
        if view is None:
            raise RuntimeConflictError(f"conversation {conversation_id!r} has no run {run_id!r}", operation=operation)
        return view.run

    def _interrupt_command(self, run: Run) -> Command:
        return RequestRunInterrupt(
            command_id=self._core.ids.new("command"),
            at=self._core.clock.now(),
            run_id=run.id,
            expected_revision=run.revision,
        )

    async def _commit(self, run: Run, command: Command) -> Outcome:
        """Carry out a command; if it ended a run that waits here, the run's promises settle at once."""
        with self._lanes.use(run.conversation_id) as lane:
            outcomes = await lane.commit([command])
        result = ended_result(run, outcomes[-1])
        work = self._core.here.get((run.conversation_id, run.id))
        if result is not None and work is not None and work.item is not None:
            self._core.lanes.withdraw(work.lane, work.item, result)
        return outcomes[-1]

    async def seed(
        self, conversation_id: str, seed_key: str, messages: tuple[Message, ...], placement: SeedPlacement
    ) -> Outcome:
        """Place messages once for ever; see `AgentRuntime.seed`."""
        command = SeedConversation(
            command_id=self._core.ids.new("command"),
            at=self._core.clock.now(),
            seed_key=seed_key,
            inputs=messages,
            placement=placement,
        )
        with self._lanes.use(conversation_id) as lane:
            return (await lane.commit([command]))[-1]
