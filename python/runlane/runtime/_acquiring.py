"""Becoming the one executor of a run: preparation, the acquiring commit, and waiting for the run's turn.

The acquisition, the empty draft and the first model request are one commit. What a model is told is prepared before
it; if somebody else wrote to the conversation in between, it is prepared again afterwards, before the model is asked.

| what happens | then |
|---|---|
| the run has ended meanwhile | its result is read from the record |
| another executor holds it | `RuntimeConflictError`, the record is left alone |
| a run of a living executor is ahead | waited for |
| a queued run that waits in this runtime is ahead | it goes first |
| a queued run nobody starts is ahead, or one of an executor that is gone | `RunUnsettledError` |
| the store throws, retries spent | the run is closed as `abandoned`; if that throws too, `RunUnsettledError` |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import anyio

from runlane.contracts import CancelToken, stray_ends
from runlane.errors import (
    ConversationPurgedError,
    LeaseLostError,
    RuntimeClosedError,
    RuntimeConflictError,
    RunUnsettledError,
    StoreCommitUnknownError,
    StoreError,
)
from runlane.records import JsonObject, Ownership, Part, Run, RunOperation
from runlane.runtime._coordinator import NotYet
from runlane.runtime._core import RuntimeCore, Work
from runlane.runtime._lane import ConversationLane
from runlane.runtime._left_open import LeftOpen, answered_calls, kept_parts
from runlane.runtime._live_turn import first_operation
from runlane.runtime._preparing import Preparation
from runlane.runtime._rejoining import joined_before
from runlane.runtime._request_ledger import ProviderCall, RecordedRequest, RequestLedger
from runlane.runtime._settling import result_from_view
from runlane.runtime._steps import StepPrompt
from runlane.runtime._tickets import RunResult
from runlane.runtime._turn_writer import TurnWriter
from runlane.store import (
    AcquireRun,
    Applied,
    CancelRun,
    CheckpointRunAssistant,
    Command,
    DraftPatch,
    Outcome,
    RecordRunOperation,
    RecoverablePage,
    RecoverRun,
)

__all__ = ["Acquired", "Acquisition", "abandon_command", "acquire", "cancel_command", "ended_result"]

_PATIENCE: Final = 10.0
"""Seconds a queued run ahead that nobody holds may take to move before it counts as left behind, for all who wait."""

_LOOK: Final = 1.0
"""Seconds between two looks at who is ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """A run this runtime holds.

    Attributes:
        prompt: What the model is told; the failure to prepare it; or how it is prepared inside the run.
        operation: The first step's operation, if it was committed with the acquisition.
        left: What is to be dealt with before the model is asked.
    """

    writer: TurnWriter
    prompt: StepPrompt | Preparation | Exception
    operation: RunOperation | None
    left: LeftOpen


async def acquire(
    core: RuntimeCore, lane: ConversationLane, work: Work, signal: CancelToken, /
) -> Acquired | RunResult:
    """Become the executor of a queued run, or find that it needs none.

    Raises:
        NotYet: Another run that waits in this lane goes first.
        RuntimeConflictError: The run is missing, or held by another executor.
        RunUnsettledError: It cannot be executed now, and nobody here will try again.
        RuntimeClosedError: The runtime closed while the run waited for its turn; it stays queued.
    """
    acquisition = Acquisition(core, lane, work, signal)
    try:
        return await acquisition.run()
    except ConversationPurgedError:
        raise
    except StoreError as error:
        return await acquisition.close(error)


class Acquisition:
    """One run on its way to an executor."""

    def __init__(self, core: RuntimeCore, lane: ConversationLane, work: Work, signal: CancelToken, /) -> None:
        """Prepare to acquire a run."""
        self._core = core
        self._lane = lane
        self._work = work
        self._signal = signal
        self._left = LeftOpen()
        self._request: RecordedRequest | None = None
        self._operation: RunOperation | None = None

    async def run(self) -> Acquired | RunResult:
        """Acquire it; see `acquire`."""
        while True:
            prompt = await self._prepare()
            await self._core.incarnation.ensure()
            try:
                commands = self.commands(prompt)
            except Exception as error:  # noqa: BLE001 - what cannot be put into words ends the run, on record
                prompt = error
                commands = self.commands(prompt)
            try:
                outcomes = await self._lane.commit(commands)
            except LeaseLostError:
                # Found out by the store first: go on as a new owner.
                await self._core.incarnation.ensure(lost=True)
                continue
            last = outcomes[-1]
            if isinstance(last, Applied) and isinstance(outcomes[0], Applied):
                return await self.acquired(outcomes[0], last, prompt)
            self._lane.records.withdraw()
            result = await self._refused()
            if result is not None:
                return result

    # --- preparation ---------------------------------------------------------------------------------------------

    async def _prepare(self) -> StepPrompt | Preparation | Exception:
        """Return what the model is told, what has to be done first inside the run, or why it cannot be said."""
        if self._signal.cancelled:
            return self._signal.error()
        await self._lane.show(self._work.run)
        try:
            with anyio.CancelScope() as scope, self._signal.bind(scope), stray_ends("prompt"):
                return await self._prompt()
        except Exception as error:  # noqa: BLE001 - becomes the end of the run
            return error
        return self._signal.error()

    async def _prompt(self) -> StepPrompt | Preparation:
        self._left = await self._left_open()
        preparation = Preparation(self._core, self._lane, self._work, self._signal)
        prompt = await preparation.before()
        return preparation if prompt is None else prompt

    async def _left_open(self) -> LeftOpen:
        """Return what an earlier execution and the approvals among the inputs leave to be done first."""
        run, records = self._work.run, self._lane.records
        kept: tuple[Part, ...] = ()
        if run.fencing_token is not None:
            draft = await self._core.calls.read(lambda store: store.load_draft(run.conversation_id, run.id))
            kept = kept_parts(draft)
        joined = await joined_before(self._core.calls, records, run, kept) if kept else ()
        self._left = LeftOpen(kept=kept, asked_ids=records.asked_ids(), joined=joined)
        if all(message.role != "tool" for message in records.shown):
            return self._left
        answered, waits = answered_calls(records, self._core.config.tools.seal, run.conversation_id)
        return replace(self._left, answered=answered, waits=waits)

    def foreseen(self) -> StepPrompt:
        """Return what the model will be told of a run whose input is shown, and not committed yet."""
        self._left = LeftOpen(asked_ids=self._lane.records.asked_ids())
        return Preparation(self._core, self._lane, self._work, self._signal).immediately()

    # --- the commit ----------------------------------------------------------------------------------------------

    def commands(self, prompt: StepPrompt | Preparation | Exception) -> list[Command]:
        """Return the acquisition and what goes with it: the draft, and the first request if it is known."""
        core, run, at = self._core, self._work.run, self._core.clock.now()
        revision = run.revision
        ids = core.ids
        self._request = self._operation = None
        commands: list[Command] = [
            AcquireRun(
                command_id=ids.new("command"),
                at=at,
                run_id=run.id,
                expected_revision=revision,
                owner_id=core.owner_id,
            )
        ]
        if isinstance(prompt, Exception):
            return commands
        ownership = Ownership(owner=core.owner_id, fencing_token=(run.fencing_token or 0) + 1)
        commands.append(
            CheckpointRunAssistant(
                command_id=ids.new("command"),
                at=at,
                run_id=run.id,
                expected_revision=revision + 1,
                ownership=ownership,
                patch=DraftPatch(keep=len(self._left.kept)),
                usage=run.usage,
            )
        )
        if isinstance(prompt, StepPrompt) and self._begins_with_step():
            spoken = prompt.spoken()
            ledger = RequestLedger(run.id, prompt.messages, prompt.records)
            request = ledger.request(ProviderCall(model=prompt.model), spoken)
            self._request = RecordedRequest(request.body_sha256, spoken)
            commands.append(request.command(ids, core.clock))
            self._operation = first_operation(core)
            commands.append(
                RecordRunOperation(
                    command_id=ids.new("command"),
                    at=at,
                    run_id=run.id,
                    expected_revision=revision + 2,
                    ownership=ownership,
                    operation=self._operation,
                )
            )
        return commands

    def _begins_with_step(self) -> bool:
        """Whether the model is asked before anything else can be written."""
        core = self._core
        begins: bool = getattr(core.driver, "begins_with_step", False)
        return begins and core.config.loop.prepare_step is None and not self._left

    async def acquired(
        self, acquired: Applied, last: Applied, prompt: StepPrompt | Preparation | Exception
    ) -> Acquired:
        """Return the run that was acquired by a commit, the first and the last of whose outcomes are given."""
        run = last.delta.runs[-1]
        ownership = acquired.ownership or Ownership(owner=self._core.owner_id, fencing_token=run.fencing_token)
        self._work.run = run
        if isinstance(prompt, StepPrompt) and not self._lane.records.is_current:
            self._lane.records.withdraw()
            prompt = await self._prepare_again()
            if self._lane.records.knows(run.assistant_message_id):
                # Somebody ended it between the commit and here: its model is not asked any more.
                prompt = RuntimeConflictError(f"run {run.id!r} has ended meanwhile", operation="acquire")
        writer = TurnWriter(self._core, self._lane, run, ownership, self._signal, self._left.kept)
        writer.recorded_request = self._request
        return Acquired(
            writer=writer,
            prompt=prompt,
            operation=self._operation,
            left=self._left,
        )

    async def _prepare_again(self) -> StepPrompt | Preparation | Exception:
        try:
            return await self._prepare()
        except StoreError as error:
            return error

    # --- refused -------------------------------------------------------------------------------------------------

    async def _refused(self) -> RunResult | None:
        """See why the acquisition was refused; None if it is worth trying again."""
        run_id = self._work.run.id
        view = await self._core.calls.read(lambda store: store.load_run(self._lane.conversation_id, run_id))
        if view is None:
            raise RuntimeConflictError(f"there is no run {run_id!r}", operation="acquire")
        if view.run.absorbed_into_run_id is not None:
            into = view.run.absorbed_into_run_id
            view = await self._core.calls.read(lambda store: store.load_run(self._lane.conversation_id, into))
        if view is None or not view.run.is_active:
            if view is None:
                raise RuntimeConflictError(f"the run that answered {run_id!r} is missing", operation="acquire")
            return result_from_view(view)
        if view.run.is_acquired:
            if self._work.failure is not None and self._core.incarnation.is_own(view.run.owner_id):
                problem = "a commit acquired the run, and its reply was lost"
                raise StoreCommitUnknownError(problem) from self._work.failure
            raise RuntimeConflictError(
                f"run {run_id!r} is held by another executor, {view.run.owner_id!r}", operation="acquire"
            )
        is_unchanged = view.run.revision == self._work.run.revision
        self._work.run = view.run
        return await self._wait_for_turn() if is_unchanged else None

    async def _wait_for_turn(self) -> RunResult | None:
        """Wait while a run is ahead that somebody will end; None when it is worth trying again."""
        calls, conversation_id = self._core.calls, self._lane.conversation_id
        head = await calls.read(lambda store: store.load_head(conversation_id))
        active = await calls.read(lambda store: store.list_active_runs(conversation_id))
        ahead = active[0] if active else self._work.run
        if ahead.id == self._work.run.id:
            return None
        await self._expect_progress(ahead)
        with anyio.CancelScope() as scope, self._signal.bind(scope):
            await calls.store.wait_for_change(conversation_id, head.version, max_wait=_LOOK)
        if not self._signal.cancelled:
            return None
        if self._signal.reason == "shutdown" or self._core.lanes.closed:
            raise RuntimeClosedError
        if self._renewed():
            return None
        outcomes = await self._lane.commit([cancel_command(self._core, self._work.run)])
        result = ended_result(self._work.run, outcomes[-1])
        if result is None:
            raise self._signal.error()
        return result

    def _renewed(self) -> bool:
        """Go on waiting if only another input wanted this run, which does not execute yet, to stop."""
        item = self._work.item
        if item is None or not item.renew():
            return False
        self._signal = item.token
        return True

    async def _expect_progress(self, ahead: Run) -> None:
        """Return if the run ahead will end without our doing."""
        here = self._core.here.get((self._lane.conversation_id, ahead.id))
        if here is not None and here.item is not None and self._core.lanes.is_waiting(here.lane, here.item):
            raise NotYet(here.item)
        recovery = self._core.recovering.get(ahead.conversation_id)
        if recovery is not None and recovery.comes_to(ahead.id):
            return
        for other in () if recovery is None else recovery.before(ahead.id):
            if other.item is not None and self._core.lanes.is_waiting(other.lane, other.item):
                # Not ahead of this run any more; the recovery takes up the one that is once it has seen that.
                raise NotYet(other.item)
        stays = recovery is not None and recovery.has_passed(ahead.id, self._work)
        if ahead.is_acquired:
            stays = self._core.incarnation.is_own(ahead.owner_id) or not await self._may_end(ahead)
        elif not stays:
            # Nobody holds it, which does not mean that nobody will start it: another process may have admitted it.
            looked = self._lane.looked(ahead, self._core.clock.monotonic(), within=2 * _LOOK)
            stays = looked >= _PATIENCE
        if stays:
            raise RunUnsettledError(run=self._work.run, owner_id=self._core.owner_id)

    async def _may_end(self, run: Run) -> bool:
        """Whether the owner of an acquired run still lives, or the run has moved on meanwhile."""
        cursor: tuple[str, str] | None = (run.conversation_id, "")
        while cursor is not None:
            page = await self._page(cursor)
            for item in page.items:
                if item.conversation_id != run.conversation_id:
                    return True
                if item.run.id == run.id:
                    return item.owner_alive is True or item.run.owner_id != run.owner_id
            cursor = page.next_cursor
        return True

    async def _page(self, cursor: tuple[str, str]) -> RecoverablePage:
        return await self._core.calls.read(lambda store: store.scan_recoverable(cursor=cursor))

    # --- the store failed ----------------------------------------------------------------------------------------

    async def close(self, error: StoreError) -> RunResult:
        """End a run whose acquisition did not go through, so that it does not block its conversation."""
        run = self._work.run
        unsettled = RunUnsettledError(run=run, owner_id=self._core.owner_id)
        try:
            view = await self._core.calls.read(lambda store: store.load_run(run.conversation_id, run.id))
            if view is None or not view.run.is_active:
                if view is None:
                    raise unsettled from error
                return result_from_view(view)
            if view.run.owner_id is not None and not self._core.incarnation.is_own(view.run.owner_id):
                raise RuntimeConflictError(f"run {run.id!r} is held by another executor", operation="acquire")
            evidence: JsonObject = {"cause": "acquisition-failed", "code": error.code}
            outcomes = await self._lane.commit([abandon_command(self._core, view.run, evidence)])
            abandoned = ended_result(view.run, outcomes[-1])
        except StoreError:
            raise unsettled from error
        if abandoned is None:
            raise unsettled from error
        return replace(abandoned, error=error)


def abandon_command(core: RuntimeCore, run: Run, evidence: JsonObject, /) -> RecoverRun:
    """Return the command that ends a run whose executor is gone."""
    return RecoverRun(
        command_id=core.ids.new("command"),
        at=core.clock.now(),
        run_id=run.id,
        expected_revision=run.revision,
        action="abandon",
        evidence=evidence,
    )


def cancel_command(core: RuntimeCore, run: Run, /) -> CancelRun:
    """Return the command that ends a queued run which was never acquired."""
    return CancelRun(
        command_id=core.ids.new("command"), at=core.clock.now(), run_id=run.id, expected_revision=run.revision
    )


def ended_result(run: Run, outcome: Outcome, /) -> RunResult | None:
    """Return the result of a run that a command ended; None if it ended nothing."""
    if not isinstance(outcome, Applied):
        return None
    ended = next((changed for changed in outcome.delta.runs if changed.id == run.id), run)
    message = next((message for message in outcome.delta.messages if message.run_id == run.id), None)
    if ended.terminal_reason is None or message is None:
        return None
    return RunResult(run=ended, message=message, reason=ended.terminal_reason, snapshot_version=outcome.delta.version)
