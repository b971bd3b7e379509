"""Into an idle lane in one commit: admission, acquisition and first request together.

| what the commit finds | then |
|---|---|
| the conversation as it was foreseen, and nobody ahead | the run is acquired, and its model is asked next |
| the key is known | the run it names is followed |
| another version, somebody ahead, another owner's lease | nothing was written: the input is admitted by itself |
| the store throws, retries spent | the same; a run whose acquisition nobody heard of is closed |
| nobody knows whether it was carried out | the ticket rejects, as for any admission |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from runlane.contracts import CancelToken
from runlane.errors import ConversationPurgedError, RuntimeConflictError, StoreCommitUnknownError
from runlane.records import Run
from runlane.runtime._acquiring import Acquired, Acquisition
from runlane.runtime._core import RuntimeCore, Work
from runlane.runtime._lane import ConversationLane
from runlane.runtime._policies import SubmittedInput
from runlane.runtime._preparing import Preparation
from runlane.runtime._steps import StepPrompt
from runlane.store import AcceptInput, Applied, Command, Duplicate, Outcome

__all__ = ["Entrance"]


class Entrance:
    """Admission, acquisition and first request in one commit, for an input that finds its lane idle.

    The run has its place in the lane already, so nothing overtakes it; its prompt is foreseen, and the commit demands
    the version it was foreseen at. Whatever comes in between, nothing is written then, and the input is admitted by
    itself and goes on like any other.

    Attributes:
        accept: The admission by itself.
        work: The run, in its lane.
    """

    def __init__(self, core: RuntimeCore, lane: ConversationLane, work: Work, accept: AcceptInput, /) -> None:
        """Prepare to admit an input whose run was just put into an idle lane."""
        self._core = core
        self._lane = lane
        self.accept = accept
        self._signal = CancelToken()
        if work.item is not None:
            work.item.keeps_place = True
            self._signal = work.item.token
        self._acquisition = Acquisition(core, lane, work, self._signal)
        self._acquired: Acquired | None = None
        self._is_open = False
        self._prompt: StepPrompt | None = None
        self.work = work

    @staticmethod
    def is_open(core: RuntimeCore, lane: str, given: SubmittedInput, /) -> bool:
        """Whether an input finds its lane idle, and nobody has to be asked what its model is told."""
        return (
            given.input.role == "user"
            and core.lanes.is_idle(lane)
            and given.conversation_id not in core.recovering
            and Preparation.is_immediate(core)
        )

    async def commit(self, settled: Callable[[tuple[Outcome, ...]], None], /) -> Outcome | None:
        """Try it once.

        Args:
            settled: As in `ConversationLane.commit`; the first outcome is that of the admission.

        Returns:
            The outcome of the admission; None if the input has to be admitted by itself.

        Raises:
            StoreCommitUnknownError, ConversationPurgedError: As for any admission.
        """
        message_id, records = self.accept.input.id, self._lane.records
        try:
            async with self._lane.turn:
                commands = self._foresee()
                if commands is None or self._prompt is None:
                    return None
                outcomes = await self._lane.carry_out(commands, settled=settled)
        except (StoreCommitUnknownError, ConversationPurgedError):
            records.mistaken(message_id)
            raise
        except Exception as error:  # noqa: BLE001 - if it lies with the input, its own admission meets it again
            records.mistaken(message_id)
            self.work.failure = error
            return None
        first, last = outcomes[0], outcomes[-1]
        if isinstance(last, Applied) and isinstance(outcomes[1], Applied):
            self._acquired = await self._acquisition.acquired(outcomes[1], last, self._prompt)
            return first
        records.mistaken(message_id)
        return first if isinstance(first, Duplicate) else None

    def open(self, run: Run, /) -> None:
        """Let the lane go on with the admitted run."""
        work = self.work
        if self._acquired is None:
            work.run = run
        if work.item is not None:
            work.item.keeps_place = False
        self._is_open = True

    def acquired(self) -> Acquired | None:
        """Return the run if it was acquired as it was admitted; None if that is still to be done.

        Raises:
            RuntimeConflictError: The input begins no run.
        """
        if not self._is_open:
            raise RuntimeConflictError("the input begins no run", operation="submit")
        return self._acquired

    def _foresee(self) -> list[Command] | None:
        if not self._core.incarnation.is_held or self._signal.cancelled:
            return None
        accept, records = self.accept, self._lane.records
        version = records.foresee(accept.run, accept.input)
        if version is None:
            return None
        try:
            self._prompt = self._acquisition.foreseen()
            commands = self._acquisition.commands(self._prompt)
        except Exception:  # noqa: BLE001 - becomes the end of the run once it is acquired
            records.mistaken(accept.input.id)
            return None
        return [replace(accept, expected_version=version), *commands]
