"""From an input to a durable admission, in the order of submission.

1. closed: everything rejects, nothing is written; 2. the input is parsed, errors are raised at once; 3. a key that is
still on its way gets the very same ticket; 4. policy and lane are chosen, and with coalescing the successor the input
will join; 5. `runs.preflight` may refuse the input; 6. it is committed, one conversation's inputs one after another,
together with the acquisition of its run if its lane is idle;
7. `admission` settles, the events are told, `accepted` settles; 8. a repeated key follows the run it named; an input to
be injected is offered; an input that joined a successor follows that run, any other's run goes into its lane; 9. the
policy stops what executes there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial

import anyio
from anyio.abc import TaskGroup, TaskStatus

from runlane.contracts import resolve, stray_ends, sync_result
from runlane.delivery import Subscription, placeholder_for
from runlane.errors import RuntimeClosedError, RuntimeConflictError
from runlane.records import Message, Run
from runlane.runtime._acquiring import Acquired
from runlane.runtime._approval_answers import authorize_answers, refuse_other_decision
from runlane.runtime._core import RuntimeCore
from runlane.runtime._entrance import Entrance
from runlane.runtime._execution import enqueue
from runlane.runtime._inputs import RuntimeInput
from runlane.runtime._lane import ConversationLane
from runlane.runtime._lane_table import LaneTable
from runlane.runtime._policies import ABORTS, ChoosePolicy, InputPolicy, SubmittedInput, check_policy, priority_of
from runlane.runtime._promise import Promise
from runlane.runtime._settling import answering_view, result_from_view
from runlane.runtime._tickets import Admission, RecordIds, RunResult, RunTicket
from runlane.runtime._work import Batch, Work
from runlane.store import AcceptInput, Applied, Conflict, Duplicate, NotFound, Outcome, RunView, Store

__all__ = ["Submissions"]


@dataclass(eq=False, slots=True, kw_only=True)
class Submission:
    """One input on its way to the store.

    Attributes:
        policy: What it does to the run that executes.
        context: The application's own value, as the protocol reads it.
        lane: The name of its lane.
        batch: The successor it will join or begin, or None if it shares its run with nobody.
        entrance: Its run's place in an idle lane, or None if it gets one once it is admitted.
    """

    ticket: RunTicket
    input: SubmittedInput
    ids: RecordIds
    policy: InputPolicy
    context: object
    lane: str
    batch: Batch | None = None
    entrance: Entrance | None = None

    @property
    def joins(self) -> Work | None:
        """The run it joins, or None if it begins one."""
        return None if self.batch is None else self.batch.work


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
        self._idle: anyio.Event | None = None

    @property
    def underway(self) -> int:
        """How many inputs are not admitted yet."""
        return sum(len(door) for door in self._doors.values())

    def next_idle(self) -> anyio.Event:
        """Return what is set once every input that is underway now is admitted or refused."""
        if self._idle is None or self._idle.is_set():
            self._idle = anyio.Event()
        return self._idle

    def submit(
        self,
        tasks: TaskGroup | None,
        given: SubmittedInput,
        ids: RecordIds,
        policy: InputPolicy | None,
        /,
    ) -> RunTicket:
        """Return the ticket of an input, a new one or the one that is underway.

        Raises:
            UsageError, InvalidValueError: The policy or the lane is none; nothing was written.
        """
        conversation_id, key = given.conversation_id, given.idempotency_key
        known = self._tickets.get((conversation_id, key))
        if known is not None and not self._asks_who(given, known[0]):
            return self._shared(known[0], known[1], given, ids)
        if self.closed or tasks is None:
            ticket = self._ticket(given, ids)
            ticket.reject(RuntimeClosedError() if self.closed else RuntimeClosedError.not_entered())
            return ticket
        submission = self._enter(given, ids, policy)
        ticket = submission.ticket
        self._tasks = tasks
        self._tickets[conversation_id, key] = (ticket, given.input)
        ticket.result.then(partial(self._forget, (conversation_id, key)))
        door = self._doors.get(conversation_id)
        if door is not None:
            door.append(submission)
            return ticket
        self._doors[conversation_id] = deque([submission])
        if self._core.config.runs.preflight is not None or not self._enter_idle(submission):
            tasks.start_soon(self._admit_all, conversation_id, name=f"admissions {conversation_id}")
        return ticket

    def _forget(self, key: tuple[str, str], _: Promise[RunResult]) -> None:
        self._tickets.pop(key, None)

    def _enter(self, given: SubmittedInput, ids: RecordIds, policy: InputPolicy | None) -> Submission:
        """Choose how an input goes on, and have its conversation underway."""
        with stray_ends("context"):
            context = self._core.config.protocol.parse_context(given.context)
        runs, conversation_id = self._core.config.runs, given.conversation_id
        if policy is None:
            policy = runs.policy if isinstance(runs.policy, str) else _chosen(runs.policy, given)
        lane = self._core.lane_of(conversation_id, given.context)
        conversation = self._core.conversations.enter(conversation_id, lane)
        shares = runs.coalesce_pending and policy != "interrupt-next" and conversation.users > 1
        return Submission(
            ticket=self._ticket(given, ids),
            input=given,
            ids=ids,
            policy=policy,
            context=context,
            lane=lane,
            batch=conversation.reserve() if shares else None,
        )

    def _ticket(self, given: SubmittedInput, ids: RecordIds) -> RunTicket:
        return RunTicket(given.conversation_id, given.idempotency_key, ids.run_id, self._listen)

    def _listen(self, conversation_id: str, run_id: str, after: int | None, /) -> Subscription:
        return Subscription(
            self._store,
            self._core.publishing.hub,
            conversation_id,
            run_id=run_id,
            after=after,
            capacity=self._core.config.delivery.capacity,
        )

    def _asks_who(self, given: SubmittedInput, ticket: RunTicket) -> bool:
        """Whether an input is judged by who gives it, so that it may not share what became of an earlier one yet."""
        asks = self._core.config.tools.authorize_answer is not None
        return asks and given.input.role == "tool" and not ticket.admission.done

    def _shared(self, ticket: RunTicket, first: RuntimeInput, given: SubmittedInput, ids: RecordIds) -> RunTicket:
        """Return the ticket that is underway under a key, or one that is rejected if it does not fit."""
        try:
            refuse_other_decision(first.parts, given.input)
            if self._core.config.key_reuse == "refuse" and first != given.input:
                raise _reused(given.idempotency_key)
        except RuntimeConflictError as error:
            refused = self._ticket(given, ids)
            refused.reject(error)
            return refused
        return ticket

    async def _admit_all(
        self, conversation_id: str, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Admit what waits at a conversation's door, in order; up to an input that finds its lane idle."""
        task_status.started()
        door = self._doors[conversation_id]
        try:
            with self._lanes.use(conversation_id) as lane:
                while door:
                    submission = door[0]
                    if await self._passes(lane, submission):
                        if self._enter_idle(submission):
                            return
                        await self._admit(lane, submission)
                    self._let_in(door)
        except BaseException:
            self._turn_away(door)
            raise

    async def _admit_idle(self, lane: ConversationLane, submission: Submission, entrance: Entrance) -> Acquired | None:
        """Admit an input in the task of its idle lane, and have others see to whoever came after it.

        Raises:
            RuntimeConflictError: It begins no run.
        """
        door = self._doors[submission.input.conversation_id]
        try:
            await self._admit(lane, submission)
        except BaseException:
            self._turn_away(door)
            raise
        self._let_in(door)
        if door and self._tasks is not None:
            conversation_id = submission.input.conversation_id
            with anyio.CancelScope(shield=True):  # what came in together is on its way before the first is answered
                await self._tasks.start(self._admit_all, conversation_id, name=f"admissions {conversation_id}")
        return entrance.acquired()

    def _let_in(self, door: deque[Submission]) -> None:
        """Take the first input from its door, which goes with the last one."""
        submission = door.popleft()
        if submission.batch is not None:
            submission.batch.leave()
        self._core.conversations.leave(submission.input.conversation_id)
        if not door:
            del self._doors[submission.input.conversation_id]
            if not self._doors and self._idle is not None:
                self._idle.set()

    def _turn_away(self, door: deque[Submission]) -> None:
        """Refuse whatever waits at a door: nobody is left to admit it."""
        while door:
            door[0].ticket.reject(RuntimeClosedError())
            self._let_in(door)

    async def _passes(self, lane: ConversationLane, submission: Submission) -> bool:
        """Whether the application lets an input in; if not, its ticket is rejected."""
        given, preflight = submission.input, self._core.config.runs.preflight
        try:
            if preflight is not None and not self.closed:
                with stray_ends("runs.preflight"):
                    await resolve(preflight(given))
            if not self.closed:
                await authorize_answers(self._core, lane, given)
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the ticket
            submission.ticket.reject(error)
            return False
        return True

    def _enter_idle(self, submission: Submission) -> bool:
        """Put an input's run into its lane before it is admitted, and have it admitted there; False if that is busy."""
        core = self._core
        if submission.batch is not None or not Entrance.is_open(core, submission.lane, submission.input):
            return False
        try:
            accept = self._command(submission, self._message(submission))
        except Exception:  # noqa: BLE001 - the admission meets it again, and rejects the ticket
            return False
        work = Work(run=accept.run, context=submission.context, lane=submission.lane)
        lane = enqueue(core, self._lanes, work)
        submission.entrance = Entrance(core, lane, work, accept)
        work.entry = partial(self._admit_idle, lane, submission, submission.entrance)
        return True

    async def _admit(self, lane: ConversationLane, submission: Submission) -> None:
        ticket, entrance = submission.ticket, submission.entrance
        try:
            if self.closed:
                raise RuntimeClosedError  # noqa: TRY301 - handled like every other refusal
            outcome: Outcome | None = None
            if entrance is None:
                accept = self._command(submission, self._message(submission))
            else:
                accept = entrance.accept
                outcome = await entrance.commit(partial(self._admitted, ticket, accept))
            if outcome is None:
                outcome = await self._commit(lane, submission, accept)
            while submission.joins is not None and isinstance(outcome, Conflict | NotFound):
                # It started elsewhere, was absorbed or withdrawn meanwhile: the input begins a run like any other.
                self._begin_anew(submission)
                outcome = await self._commit(lane, submission, self._command(submission, accept.input))
            self._follow(submission, accept.input, outcome)
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the ticket
            ticket.reject(error)

    async def _commit(self, lane: ConversationLane, submission: Submission, accept: AcceptInput) -> Outcome:
        outcomes = await lane.commit([accept], settled=partial(self._admitted, submission.ticket, accept))
        return outcomes[0]

    def _begin_anew(self, submission: Submission) -> None:
        """Leave a successor that cannot be joined any more."""
        if submission.batch is not None:
            submission.batch.close()
            submission.batch.leave()
        submission.batch = self._core.conversations.entry(submission.input.conversation_id).reserve()

    def _message(self, submission: Submission) -> Message:
        given, at = submission.input, self._core.clock.now()
        return Message(
            id=submission.ids.input_message_id,
            conversation_id=given.conversation_id,
            role=given.input.role,
            status="committed",
            parts=given.input.parts,
            metadata=given.input.metadata,
            created_at=at,
            updated_at=at,
        )

    def _command(self, submission: Submission, message: Message) -> AcceptInput:
        ids, joins, at = submission.ids, submission.joins, message.created_at
        return AcceptInput(
            command_id=self._core.ids.new("command"),
            at=at,
            idempotency_key=submission.input.idempotency_key,
            input=message,
            run=Run(
                id=ids.run_id,
                conversation_id=message.conversation_id,
                input_message_ids=(message.id,),
                assistant_message_id=ids.assistant_message_id,
                state="queued",
                revision=0,
                queue_priority=priority_of(submission.policy),
                request=submission.input.request,
                created_at=at,
                updated_at=at,
            ),
            coalesce_into_run_id=None if joins is None else joins.run.id,
        )

    def _admitted(self, ticket: RunTicket, command: AcceptInput, outcomes: tuple[Outcome, ...]) -> None:
        """Settle `admission`, before anything is told; not if what was to be committed with the input was refused."""
        outcome = outcomes[0]
        if not isinstance(outcomes[-1], Applied | Duplicate):
            return
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

    def _follow(self, submission: Submission, message: Message, outcome: Outcome) -> None:
        """Have the run executed, or follow whoever does."""
        ticket = submission.ticket
        if isinstance(outcome, Duplicate):
            refuse_other_decision(outcome.receipt.input.parts, submission.input.input)
            if self._refuses(outcome):
                raise _reused(ticket.idempotency_key)
            ticket.accepted.follow(ticket.admission)
            self._follow_duplicate(ticket, outcome)
        elif isinstance(outcome, Applied):
            self._accept(ticket)
            self._start(submission, message, outcome.delta.runs[-1])
        else:
            raise RuntimeConflictError("the conversation or the run to join has changed", operation="submit")

    def _accept(self, ticket: RunTicket) -> None:
        """Settle `accepted` once the publisher has been told, without anything else waiting for that."""
        courier = self._core.publishing.courier
        if courier is None or not courier.is_behind or self._tasks is None:
            ticket.accepted.follow(ticket.admission)
            return

        async def settle() -> None:
            try:
                await courier.flush()
            finally:
                ticket.accepted.follow(ticket.admission)

        self._tasks.start_soon(settle, name=f"publishing of {ticket.run_id}")

    def _start(self, submission: Submission, message: Message, run: Run) -> None:
        """Put a run into its lane, or note that it has grown; offer the input; stop what executes, if that is meant."""
        core, work, entrance = self._core, submission.joins, submission.entrance
        if entrance is not None:
            work = entrance.work
            entrance.open(run)
        elif work is None:
            work = Work(run=run, context=submission.context, lane=submission.lane, batch=submission.batch)
            if submission.batch is not None:
                submission.batch.work = work
            enqueue(core, self._lanes, work)
        else:
            work.run = run
        work.result.then(submission.ticket.follow)
        if submission.policy == "inject" and core.waits(run.conversation_id, run.id):
            core.conversations.offer(run, message)
        reason = ABORTS.get(submission.policy)
        if reason is not None:
            core.lanes.give_way(submission.lane, reason, to=work.item)

    def _follow_duplicate(self, ticket: RunTicket, outcome: Duplicate) -> None:
        run = outcome.run
        here = self._core.here.get((run.conversation_id, run.id))
        if not run.is_active:
            view = RunView(snapshot_version=outcome.version, run=run, assistant=outcome.assistant)
            ticket.resolve(result_from_view(view))
        elif here is not None:
            here.result.then(ticket.follow)
        elif self._is_recovered(run) and self._tasks is not None:
            self._tasks.start_soon(self._follow_recovered, ticket, run, name=f"recovered {run.id}")
        else:
            raise _executed_elsewhere(run)

    def _is_recovered(self, run: Run) -> bool:
        """Whether a recovery has yet to say what becomes of a run."""
        progress = self._core.recovering.get(run.conversation_id)
        return progress is not None and progress.awaits(run.id)

    async def _follow_recovered(self, ticket: RunTicket, run: Run) -> None:
        """Follow a run that was left behind and is being taken up at this moment."""
        key = (run.conversation_id, run.id)
        try:
            while key not in self._core.here and self._is_recovered(run):
                await self._core.recovering[run.conversation_id].wait()
            here = self._core.here.get(key)
            if here is not None:
                here.result.then(ticket.follow)
                return
            view = await answering_view(self._core.calls, run.conversation_id, run.id)
            if view is None or view.run.is_active:
                raise _executed_elsewhere(run)  # noqa: TRY301 - handled like every other refusal
            ticket.resolve(result_from_view(view))
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the ticket
            ticket.reject(error)


def _executed_elsewhere(run: Run) -> RuntimeConflictError:
    if run.is_acquired:
        problem = (
            f"run {run.id!r} was accepted before and is executed by another runtime, {run.owner_id!r}: subscribe to "
            "it, or submit the same input again once it has ended; if that runtime is gone, recover"
        )
    else:
        problem = (
            f"run {run.id!r} was accepted before and is queued, but does not wait here: whoever accepted it executes "
            "it, and recover or resume does if that process is gone"
        )
    return RuntimeConflictError(problem, operation="submit")


def _reused(key: str) -> RuntimeConflictError:
    return RuntimeConflictError(f"idempotency key {key!r} was used for another input", operation="submit")


def _chosen(choose: ChoosePolicy, given: SubmittedInput) -> InputPolicy:
    with stray_ends("runs.policy"):
        return check_policy(sync_result(choose(given), argument="runs.policy"), "runs.policy")
