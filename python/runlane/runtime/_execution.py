"""Executing a run in its lane: acquire it, have it answered, end it."""

from __future__ import annotations

from functools import partial

import anyio

from runlane.contracts import CancelToken, stray_ends
from runlane.runtime._acquiring import Acquired, acquire
from runlane.runtime._coordinator import LaneItem
from runlane.runtime._core import RuntimeCore, Work
from runlane.runtime._ending import Ending, ending_for_error, ending_for_outcome, ending_for_signal, ending_under
from runlane.runtime._injection import Inbox, Offers
from runlane.runtime._lane import ConversationLane
from runlane.runtime._lane_table import LaneTable
from runlane.runtime._live_turn import LiveTurn
from runlane.runtime._preparing import Preparation
from runlane.runtime._protocol import TerminalAcceptanceInput, is_accepted
from runlane.runtime._reporting_ends import report_begin, report_end, report_loss
from runlane.runtime._settling import settle
from runlane.runtime._showing import Showing
from runlane.runtime._steps import StepPrompt
from runlane.runtime._tickets import RunResult
from runlane.runtime._turn_writer import OwnershipLostError, TurnWriter

__all__ = ["enqueue"]


def enqueue(core: RuntimeCore, lanes: LaneTable, work: Work, /) -> ConversationLane:
    """Put a run into its lane; its promises settle when it does.

    Returns:
        The conversation, awake until the run has ended.

    Raises:
        UsageError: The conversation has something underway in another lane.
    """
    run = work.run
    conversation = core.conversations.enter(run.conversation_id, work.lane)
    lane = lanes.hold(run.conversation_id)
    execution = _Execution(core, lanes, lane, work, conversation.offers)
    work.item = LaneItem(
        create=execution.create,
        execute=execution.execute,
        accepted=work.accepted,
        result=work.result,
        priority=run.queue_priority,
        on_end=execution.end,
    )
    core.here[run.conversation_id, run.id] = work
    core.lanes.put(work.lane, work.item)
    return lane


class _Execution:
    """The two halves a lane runs: create is the acquisition, execute the rest."""

    __slots__ = ("_core", "_lane", "_lanes", "_offers", "_turn", "_work")

    def __init__(self, core: RuntimeCore, lanes: LaneTable, lane: ConversationLane, work: Work, offers: Offers) -> None:
        self._core = core
        self._lanes = lanes
        self._lane = lane
        self._work = work
        self._offers = offers
        self._turn: LiveTurn | None = None

    def end(self) -> None:
        """Let go of what was held for the run."""
        core, work, lane = self._core, self._work, self._lane
        core.here.pop((lane.conversation_id, work.run.id), None)
        work.item = None  # it leads back to its work: what has ended is freed at once, and no collector looks for it
        self._offers.withdraw(work.run.id)
        if work.batch is not None:
            work.batch.close()
        self._lanes.release(lane)
        core.conversations.leave(lane.conversation_id)

    async def create(self, signal: CancelToken) -> Acquired | RunResult:
        self._offers.withdraw(self._work.run.id)
        if self._work.batch is not None:
            # What is still underway when the run is told to stop finds it taken, and begins a run of its own.
            with anyio.CancelScope() as scope, signal.bind(scope):
                await self._work.batch.complete()
        entry, self._work.entry = self._work.entry, None
        acquired: Acquired | RunResult | None = None if entry is None else await entry()
        if acquired is None:
            acquired = await acquire(self._core, self._lane, self._work, signal)
        report_begin(self._core, acquired)
        return acquired

    async def execute(self, acquired: Acquired | RunResult, signal: CancelToken) -> RunResult:
        if isinstance(acquired, RunResult):
            return acquired
        ending: Ending | None = None
        conversation_id, run_id = self._lane.conversation_id, self._work.run.id
        core = self._core
        show = Showing(core.config, self._work).inputs
        inbox = Inbox(self._offers, run_id, partial(core.waits, conversation_id), show)
        try:
            with core.interrupt_watch.watch(acquired.writer, signal):
                ending = await self._answer(acquired, signal, inbox)
            result = await settle(core, self._lane, acquired.writer, ending, inbox)
        except Exception as error:
            report_loss(acquired.writer, ending, error)
            # Not ended as far as is known here: if it is executed here again, its events go on in number.
            if self._turn is not None:
                owner_id = acquired.writer.ownership.owner
                core.spoken[conversation_id, run_id] = (owner_id, self._turn.spoken)
            raise
        report_end(acquired.writer, ending, result)
        return result

    async def _answer(self, acquired: Acquired, signal: CancelToken, inbox: Inbox) -> Ending:
        """Have the run answered, and say how that went."""
        if signal.cancelled:
            return ending_for_signal(signal)
        prompt = acquired.prompt
        if isinstance(prompt, Preparation):
            prompt = await self._prepared(prompt, acquired.writer, signal)
        if isinstance(prompt, Exception):
            return ending_under(signal, ending_for_error(prompt))
        turn = self._turn = LiveTurn(
            self._core,
            acquired.writer,
            prompt,
            signal,
            acquired.operation,
            self._work.context,
            inbox,
            acquired.left,
        )
        ending: Ending | None = None
        try:
            with anyio.CancelScope() as scope, signal.bind(scope), stray_ends("driver"):
                await turn.tools.mount()
                driver = self._core.driver_of(turn.context)
                ending = await self._accepted(turn, ending_for_outcome(await driver.drive(turn)))
        except OwnershipLostError:
            raise
        except Exception as error:  # noqa: BLE001 - every failure becomes the end of the run
            ending = ending_for_error(error, turn.origin(error))
        finally:
            turn.close()
        return ending_under(signal, ending)

    async def _prepared(
        self, preparation: Preparation, writer: TurnWriter, signal: CancelToken
    ) -> StepPrompt | Exception:
        """Prepare inside the run: what has to be written first is."""
        try:
            with anyio.CancelScope() as scope, signal.bind(scope), stray_ends("prompt"):
                return await preparation.inside(writer)
        except OwnershipLostError:
            raise
        except Exception as error:  # noqa: BLE001 - every failure becomes the end of the run
            return error
        return signal.error()

    async def _accepted(self, turn: LiveTurn, ending: Ending) -> Ending:
        """Return how a finished answer really ends: as it is, or as `output_rejected`."""
        acceptance = self._core.config.protocol.terminal_acceptance
        if acceptance == "allow-empty" or turn.tools.waits:
            return ending
        answer = TerminalAcceptanceInput(
            message=turn.writer.draft.message("completed", self._core.clock.now()),
            reason=ending.reason,
            policy_name=ending.policy_name,
        )
        if await is_accepted(acceptance, answer):
            return ending
        return Ending(reason="output_rejected")
