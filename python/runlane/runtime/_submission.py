"""From an input to a durable admission, in the order of submission.

1. closed: everything rejects, nothing is written; 2. the input is parsed, errors are raised at once; 3. a key that is
still on its way gets the very same ticket; 4. the input is committed, one conversation's inputs one after another;
5. `admission` settles, the events are told, `accepted` settles; 6. a repeated key follows the run it named; anything
else goes into its lane.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from runlane.delivery import Subscription, placeholder_for
from runlane.errors import RuntimeClosedError, RuntimeConflictError
from runlane.records import JsonObject, Message, Run
from runlane.runtime._core import RuntimeCore, Work
from runlane.runtime._execution import enqueue
from runlane.runtime._inputs import RuntimeInput
from runlane.runtime._lane import ConversationLane
from runlane.runtime._lane_table import LaneTable
from runlane.runtime._settling import result_from_view
from runlane.runtime._tickets import Admission, Listening, RecordIds, RunTicket
from runlane.store import AcceptInput, Applied, Duplicate, Outcome, RunView, Store

__all__ = ["Submissions", "Submitted"]


@dataclass(eq=False, slots=True, kw_only=True)
class Submitted:
    """What was submitted, parsed."""

    input: RuntimeInput
    context: object
    request: JsonObject | None
    ids: RecordIds


@dataclass(eq=False, slots=True, kw_only=True)
class Submission:
    """One input on its way to the store."""

    ticket: RunTicket
    submitted: Submitted


class Submissions:
    """Admits inputs; one task per conversation that has some waiting."""

    def __init__(self, core: RuntimeCore, lanes: LaneTable, store: Store, /) -> None:
        """Admit nothing yet."""
        self._core = core
        self._lanes = lanes
        self._store = store
        self._tickets: dict[tuple[str, str], tuple[RunTicket, RuntimeInput]] = {}
        self._doors: dict[str, deque[Submission]] = {}
        self._tasks: TaskGroup | None = None
        self.closed = False
        self.idle = anyio.Event()

    @property
    def underway(self) -> int:
        """How many inputs are not admitted yet."""
        return sum(len(door) for door in self._doors.values())

    def submit(
        self,
        tasks: TaskGroup | None,
        conversation_id: str,
        key: str,
        submitted: Submitted,
        /,
    ) -> RunTicket:
        """Return the ticket of an input, a new one or the one that is underway."""
        given, ids = submitted.input, submitted.ids
        known = self._tickets.get((conversation_id, key))
        if known is not None:
            return known[0] if self._may_reuse(known[1], given) else self._refused(conversation_id, key, ids)
        ticket = RunTicket(conversation_id, key, ids.run_id, self._listener(conversation_id))
        if self.closed or tasks is None:
            ticket.reject(RuntimeClosedError())
            return ticket
        self._tasks = tasks
        self._tickets[conversation_id, key] = (ticket, given)
        ticket.result.then(lambda _: self._tickets.pop((conversation_id, key), None))
        submission = Submission(ticket=ticket, submitted=submitted)
        door = self._doors.get(conversation_id)
        if door is None:
            self.idle = anyio.Event()
            self._doors[conversation_id] = deque([submission])
            tasks.start_soon(self._admit_all, conversation_id, name=f"admissions {conversation_id}")
        else:
            door.append(submission)
        return ticket

    def _listener(self, conversation_id: str) -> Listening:
        def listen(run_id: str, after: int | None, /) -> Subscription:
            return Subscription(
                self._store,
                self._core.publishing.hub,
                conversation_id,
                run_id=run_id,
                after=after,
                capacity=self._core.config.delivery.capacity,
            )

        return listen

    def _may_reuse(self, first: RuntimeInput, given: RuntimeInput) -> bool:
        return self._core.config.key_reuse == "return" or first == given

    def _refused(self, conversation_id: str, key: str, ids: RecordIds) -> RunTicket:
        ticket = RunTicket(conversation_id, key, ids.run_id, self._listener(conversation_id))
        ticket.reject(_reused(key))
        return ticket

    async def _admit_all(self, conversation_id: str) -> None:
        """Admit what waits at a conversation's door, in order."""
        door = self._doors[conversation_id]
        try:
            with self._lanes.use(conversation_id) as lane:
                while door:
                    await self._admit(lane, door[0])
                    door.popleft()
        finally:
            del self._doors[conversation_id]
            for submission in door:
                submission.ticket.reject(RuntimeClosedError())
            if not self._doors:
                self.idle.set()

    async def _admit(self, lane: ConversationLane, submission: Submission) -> None:
        ticket = submission.ticket
        try:
            if self.closed:
                raise RuntimeClosedError  # noqa: TRY301 - handled like every other refusal
            command = self._command(lane.conversation_id, submission)
            outcomes = await lane.commit(
                [command], settled=lambda outcomes: self._admitted(ticket, command, outcomes[-1])
            )
            self._follow(ticket, submission, outcomes[-1])
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the ticket
            ticket.reject(error)

    def _command(self, conversation_id: str, submission: Submission) -> AcceptInput:
        submitted = submission.submitted
        ids, given, at = submitted.ids, submitted.input, self._core.clock.now()
        return AcceptInput(
            command_id=self._core.ids.new("command"),
            at=at,
            idempotency_key=submission.ticket.idempotency_key,
            input=Message(
                id=ids.input_message_id,
                conversation_id=conversation_id,
                role=given.role,
                status="committed",
                parts=given.parts,
                metadata=given.metadata,
                created_at=at,
                updated_at=at,
            ),
            run=Run(
                id=ids.run_id,
                conversation_id=conversation_id,
                input_message_ids=(ids.input_message_id,),
                assistant_message_id=ids.assistant_message_id,
                state="queued",
                revision=0,
                request=submitted.request,
                created_at=at,
                updated_at=at,
            ),
        )

    def _admitted(self, ticket: RunTicket, command: AcceptInput, outcome: Outcome) -> None:
        """Settle `admission`, before anything is told."""
        if isinstance(outcome, Applied):
            run, version = outcome.delta.runs[-1], outcome.delta.version
            ticket.admit(
                Admission(input=command.input, run=run, assistant=placeholder_for(run), snapshot_version=version),
                version - 1,
            )
        elif isinstance(outcome, Duplicate) and not self._refuses(outcome):
            run = outcome.run
            ticket.admit(
                Admission(
                    input=outcome.receipt.input,
                    run=run,
                    assistant=outcome.assistant or placeholder_for(run),
                    snapshot_version=outcome.version,
                    is_duplicate=True,
                    input_matches=outcome.input_matches,
                ),
                (run.execution_sequence or 1) - 1,
            )

    def _refuses(self, duplicate: Duplicate) -> bool:
        return self._core.config.key_reuse == "refuse" and not duplicate.input_matches

    def _follow(self, ticket: RunTicket, submission: Submission, outcome: Outcome) -> None:
        """Have the run executed, or follow whoever does."""
        if isinstance(outcome, Duplicate):
            if self._refuses(outcome):
                raise _reused(ticket.idempotency_key)
            ticket.accepted.follow(ticket.admission)
            self._follow_duplicate(ticket, outcome)
        elif isinstance(outcome, Applied):
            ticket.accepted.follow(ticket.admission)
            work = Work(run=outcome.delta.runs[-1], context=submission.submitted.context)
            work.result.then(ticket.follow)
            enqueue(self._core, self._lanes, work)
        else:
            raise RuntimeConflictError("the conversation or the run to join has changed", operation="submit")

    def _follow_duplicate(self, ticket: RunTicket, outcome: Duplicate) -> None:
        run = outcome.run
        here = self._core.here.get((run.conversation_id, run.id))
        if not run.is_active:
            view = RunView(snapshot_version=outcome.version, run=run, assistant=outcome.assistant)
            ticket.resolve(result_from_view(view))
        elif here is not None:
            here.result.then(ticket.follow)
        elif run.conversation_id in self._core.recovering and self._tasks is not None:
            self._tasks.start_soon(self._follow_recovered, ticket, run, name=f"recovered {run.id}")
        else:
            raise _executed_elsewhere(run)

    async def _follow_recovered(self, ticket: RunTicket, run: Run) -> None:
        """Follow a run that was left behind and is being taken up at this moment."""
        key = (run.conversation_id, run.id)
        try:
            while key not in self._core.here and (progress := self._core.recovering.get(run.conversation_id)):
                await progress.wait()
            here = self._core.here.get(key)
            if here is not None:
                here.result.then(ticket.follow)
                return
            view = await self._core.calls.read(lambda store: store.load_run(*key))
            if view is None or view.run.is_active:
                raise _executed_elsewhere(run)  # noqa: TRY301 - handled like every other refusal
            ticket.resolve(result_from_view(view))
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the ticket
            ticket.reject(error)


def _executed_elsewhere(run: Run) -> RuntimeConflictError:
    return RuntimeConflictError(
        f"run {run.id!r} was accepted before and is not executed by this runtime; recover or resume it",
        operation="submit",
    )


def _reused(key: str) -> RuntimeConflictError:
    return RuntimeConflictError(f"idempotency key {key!r} was used for another input", operation="submit")
