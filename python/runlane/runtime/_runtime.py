"""`AgentRuntime`: durable conversations with a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self, get_args

import anyio

from runlane.clock import Clock
from runlane.contracts import CancelToken, clock_or_system, ids_or_random
from runlane.delivery import EventCursor, EventHub, Subscription, check_after
from runlane.errors import InvalidValueError, RuntimeClosedError, UsageError
from runlane.ids import IdSource
from runlane.models import ChatProvider, ResolvedModel
from runlane.runtime._announcing import Publishing
from runlane.runtime._approval_answers import approval_key, check_key
from runlane.runtime._closing import Gate, close_runtime
from runlane.runtime._config import RuntimeConfig
from runlane.runtime._config_checks import one_of
from runlane.runtime._control import Control
from runlane.runtime._coordinator import CloseResult, CoordinatedRun, LaneCoordinator, StopReason
from runlane.runtime._core import ModelSource, RuntimeCore
from runlane.runtime._courier import Courier
from runlane.runtime._following import Followers
from runlane.runtime._history_seeds import SeedPlacement, seed_messages
from runlane.runtime._host import TaskHost
from runlane.runtime._idle_watch import IdleWatch
from runlane.runtime._incarnation import Incarnation
from runlane.runtime._inputs import InputLike, read_id, read_input, read_object, read_text
from runlane.runtime._interrupt_watch import InterruptWatch
from runlane.runtime._lane_table import LaneTable
from runlane.runtime._managed_loop import ManagedLoopDriver
from runlane.runtime._policies import InputPolicy, SubmittedInput, check_policy
from runlane.runtime._recovery import Decide, Recovery, RecoveryOutcome, ResolveContext
from runlane.runtime._recovery_on_start import recover_until_done
from runlane.runtime._resuming import resume
from runlane.runtime._store_calls import StoreCalls
from runlane.runtime._submission import Submissions
from runlane.runtime._tickets import RecordIds, RunResult, RunTicket
from runlane.runtime._tool_source import ToolSource, read_tools
from runlane.store import Outcome, Store

__all__ = ["AgentRuntime"]

_CLOSE_WITHIN: Final = 1.0


class AgentRuntime:
    """Accepts inputs durably, has a model answer them one at a time per conversation, and ends each exactly once.

    Nothing starts before it is entered; leaving it stops what still executes and waits for that (`CloseConfig`). What
    a runtime does it does between the two: before and after, tickets reject with `RuntimeClosedError` and every other
    method but `close` raises it. Only `subscribe` may come before. The store must be open while the runtime is;
    several runtimes, in one process or many, may share one.

    Example:
        >>> async def main() -> None:
        ...     async with MemoryStore() as store, AgentRuntime(store, model=ScriptedModel("Hello!")) as runtime:
        ...         ticket = runtime.submit("a conversation", "Hi")
        ...         async for event in ticket.events():
        ...             if isinstance(event, AssistantDeltaEvent):
        ...                 print(event.text_delta, end="")
        ...         result = await ticket.result
    """

    def __init__(  # noqa: PLR0913 - what a runtime is made of
        self,
        store: Store,
        *,
        model: ModelSource,
        tools: ToolSource = (),
        instructions: str | None = None,
        config: RuntimeConfig | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        recover_on_start: bool = False,
    ) -> None:
        """Prepare a runtime.

        Args:
            store: Where everything is kept; open it first.
            model: A `ChatProvider`, a `ResolvedModel`, or a function (plain or coroutine) that gets a `ModelRequest`
                and returns one of these for each run. The connections of a provider that is given directly are closed
                when the runtime is left; share one between runtimes by giving a function.
            tools: What the model may call: typed functions, `ToolDefinition`s, or a sealed `ToolRegistry`.
            instructions: The system text of every prompt, or None.
            config: Every other option.
            clock: The system's by default.
            ids: Random ones by default.
            recover_on_start: Take up what dead executors left behind, with the default decisions of `recover`, before
                anything is admitted, and try again while the store fails. Otherwise entering recovers nothing.

        Raises:
            UsageError: An argument of the wrong kind.
            InvalidValueError: `instructions` is no text that can be stored.
        """
        _check_arguments(store, model, instructions, config)
        _check_flag(recover_on_start)
        self._store = store
        self._config = config or RuntimeConfig()
        self._clock = clock_or_system(clock)
        self._ids = ids_or_random(ids)
        self._recovers = recover_on_start
        delivery = self._config.delivery
        self._hub = EventHub()
        courier = None
        if delivery.publisher is not None:
            courier = Courier(delivery.publisher, delivery.on_publish_error, delivery.capacity)
        publishing = Publishing(self._hub, courier)
        calls = StoreCalls(store, self._clock)
        self._core = RuntimeCore(
            incarnation=Incarnation(store, self._ids),
            calls=calls,
            clock=self._clock,
            ids=self._ids,
            config=self._config,
            publishing=publishing,
            lanes=LaneCoordinator(clock=self._clock),
            idle_watch=IdleWatch(self._clock),
            interrupt_watch=InterruptWatch(calls, self._clock),
            driver=self._config.driver or ManagedLoopDriver(),
            model=model,
            instructions=instructions,
            tools=read_tools(tools),
        )
        self._lanes = LaneTable(calls, publishing, self._clock, self._config.history)
        self._followers = Followers(store, self._hub, self._lanes, self._clock)
        self._submissions = Submissions(self._core, self._lanes, store)
        self._control = Control(self._core, self._lanes)
        self._gate = Gate()
        self._host = TaskHost()
        self._stack = AsyncExitStack()
        self._entered = False

    @property
    def owner_id(self) -> str:
        """How this runtime signs the runs it executes; also the `runtime_epoch` of its transient events.

        It changes if the lease of the owner is lost, because the machine slept for instance.
        """
        return self._core.owner_id

    async def __aenter__(self) -> Self:
        """Start: register as a living owner, and recover if that was asked for.

        Raises:
            StoreError: The store cannot be used.
        """
        if self._entered:
            raise UsageError("a runtime is entered once; make a new one", argument="AgentRuntime")
        self._entered = True
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._host)
            tasks = self._host.tasks
            if tasks is None:
                raise RuntimeClosedError
            stack.callback(self._host.cancel)
            stack.callback(self._core.incarnation.end)
            await self._core.incarnation.begin(tasks)
            if self._core.publishing.courier is not None:
                await stack.enter_async_context(self._core.publishing.courier)
            await stack.enter_async_context(self._core.lanes)
            self._core.idle_watch.start(tasks)
            self._core.interrupt_watch.start(tasks)
            self._lanes.start(tasks)
            self._followers.start(tasks)
            if self._recovers:
                recovery = Recovery(self._core, self._lanes, self._gate)
                groups = await recovery.collect(page_size=100, max_runs=1000, signal=None)
                recovery.announce(groups)
                tasks.start_soon(recover_until_done, recovery, self._gate, self._clock, groups)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Close as `CloseConfig` says, then end every task.

        What is still at work then is cancelled. A thread that blocks is let go; a task that shields itself even from
        that holds the block open until it is done, for an event loop has no means against it. A process that must not
        wait calls `close` with a force budget and leaves by `os._exit` if something remains.
        """
        with anyio.CancelScope(shield=True):
            budgets = self._config.close
            result = await self.close(grace=budgets.grace, force=budgets.force)
        if result.remaining:
            self._core.lanes.abandon()
        await self._stack.aclose()
        await self._close_provider()

    def _check_entered(self) -> None:
        """Refuse to act before the runtime is entered, and after it was left.

        Raises:
            RuntimeClosedError: Says which.
        """
        if self._host.tasks is None:
            raise RuntimeClosedError if self._gate.closed else RuntimeClosedError.not_entered()

    async def _close_provider(self) -> None:
        """Release the connections of a provider that was given directly; it opens new ones if it is used again."""
        model = self._core.model
        provider = model.provider if isinstance(model, ResolvedModel) else model
        if isinstance(provider, ChatProvider):
            with anyio.move_on_after(_CLOSE_WITHIN, shield=True):
                await provider.aclose()

    # --- working -------------------------------------------------------------------------------------------------

    def submit(  # noqa: PLR0913 - each argument is an independent fact of one input
        self,
        conversation_id: str,
        input: InputLike,  # noqa: A002 - the word of the field
        /,
        *,
        idempotency_key: str | None = None,
        metadata: Mapping[str, object] | None = None,
        context: object = None,
        request: Mapping[str, object] | None = None,
        record_ids: RecordIds | None = None,
        policy: InputPolicy | None = None,
    ) -> RunTicket:
        """Hand over an input. Returns at once; the ticket tells when it is durable and when it is answered.

        Inputs of one conversation are admitted in the order they were submitted, and answered in that order unless
        their policy says otherwise.

        Args:
            conversation_id: 1 to 512 characters; a new one begins a conversation.
            input: A text, parts, or a message; see `InputLike`.
            idempotency_key: Names the input: submitting it again under its key, after a crash for instance, returns
                the first admission and its answer instead of asking twice. One is made if none is given.
            metadata: A JSON object kept with the message.
            context: Anything; handed to the model callable and the driver, never stored.
            request: A JSON object stored with the run, for whoever executes it after a crash.
            record_ids: The ids of the records to be made, if the application chooses them.
            policy: What the input does to the run that executes when it comes in; `RunsConfig.policy` by default.

        Returns:
            The ticket; for a key that is still on its way, the very same one. Once the runtime is closed, and before
            it is entered, its promises are rejected with `RuntimeClosedError`.

        Raises:
            InvalidValueError, UsageError: An argument is malformed, or what `runs.policy` or `runs.key` chose; names
                the field. Nothing was written.
        """
        conversation_id = read_id(conversation_id, "conversation_id")
        key = self._ids.new("key") if idempotency_key is None else read_id(idempotency_key, "idempotency_key")
        given = self._config.protocol.read_metadata(read_input(input, metadata))
        check_key(key, given)
        stored_request = read_object(request, "request")
        ids = self._record_ids(record_ids)
        submitted = SubmittedInput(
            conversation_id=conversation_id, idempotency_key=key, input=given, context=context, request=stored_request
        )
        chosen = None if policy is None else check_policy(policy, "policy")
        return self._submissions.submit(self._host.tasks, submitted, ids, chosen)

    def _record_ids(self, given: RecordIds | None) -> RecordIds:
        if given is None:
            new = self._ids.new
            return RecordIds(input_message_id=new("message"), run_id=new("run"), assistant_message_id=new("message"))
        if not isinstance(given, RecordIds):
            raise UsageError("must be a RecordIds or None", argument="record_ids")
        ids = RecordIds(
            input_message_id=read_id(given.input_message_id, "record_ids.input_message_id"),
            run_id=read_id(given.run_id, "record_ids.run_id"),
            assistant_message_id=read_id(given.assistant_message_id, "record_ids.assistant_message_id"),
        )
        if ids.input_message_id == ids.assistant_message_id:
            raise InvalidValueError("must not be the input's", argument="record_ids.assistant_message_id")
        return ids

    def respond_to_approval(
        self,
        conversation_id: str,
        approval_id: str,
        /,
        *,
        approved: bool,
        reason: str | None = None,
        context: object = None,
    ) -> RunTicket:
        """Answer a request for approval; a run of its own then carries the call out, or tells the model it was refused.

        The first answer counts, whoever gives it. The same decision again returns the run of the first; the opposite
        one is refused. `tools.authorize_answer` says who may answer. An answer stops nothing, whatever `runs.policy`
        says of inputs: it waits for its turn.

        Args:
            conversation_id: The conversation.
            approval_id: Of a request in `RunResult.approvals`.
            approved: Whether the call may be made.
            reason: Why, for the model; not empty.
            context: As for `submit`.

        Returns:
            The ticket. Its run ends as `runtime_failure` if the request is unknown, or was not signed here. It rejects
            with `RuntimeConflictError` if the request was decided the other way before, and with
            `ApprovalRejectedError` if `tools.authorize_answer` refuses the answer: then the call still waits.

        Raises:
            InvalidValueError, UsageError: An argument is malformed; names the field.
        """
        approval_id = read_id(approval_id, "approval_id")
        if not isinstance(approved, bool):
            raise UsageError(f"must be a bool, not {type(approved).__name__}", argument="approved")
        response = {"type": "tool-approval-response", "approval_id": approval_id, "approved": approved}
        part = response if reason is None else {**response, "reason": read_text(reason, "reason")}
        answer: InputLike = {"role": "tool", "parts": [part]}
        key = read_id(approval_key(approval_id), "approval_id")
        return self.submit(conversation_id, answer, idempotency_key=key, context=context, policy="queue")

    def subscribe(
        self, conversation_id: str, /, *, run_id: str | None = None, after: int | EventCursor | None = None
    ) -> Subscription:
        """Listen to a conversation; use it as `async with`, and iterate it.

        Args:
            conversation_id: What to listen to.
            run_id: Only this run, until it ends.
            after: Replay the durable events of later conversation versions first: the `snapshot_version` of the last
                event that was seen, or 0 for all. One commit may tell several events; whoever may stop between them
                keeps an `EventCursor` and gives that. None starts with what happens from now on.

        Returns:
            The subscription, which listens already. It yields the events of runs this runtime executes as they
            happen, and the durable events of whatever others commit to the conversation (another process on the same
            store, another runtime) once the store says so: on SQLite at once, or within a second where no socket can
            be bound beside the file. Texts of answers are streamed only where a run executes; elsewhere they come
            with its terminal event. Inside `async with` nothing committed from then on is missed.

        Raises:
            UsageError: `after` is no version.
            InvalidValueError: `conversation_id` or `run_id` is no identifier.
        """
        check_after(after)
        if run_id is not None:
            run_id = read_id(run_id, "run_id")
        conversation_id = read_id(conversation_id, "conversation_id")
        return Subscription(
            self._store,
            self._hub,
            conversation_id,
            run_id=run_id,
            after=after,
            capacity=self._config.delivery.capacity,
            following=None if self._gate.closed else self._followers.follow(conversation_id),
        )

    async def seed(
        self,
        conversation_id: str,
        messages: Sequence[InputLike],
        /,
        *,
        seed_key: str,
        placement: SeedPlacement = "lead",
    ) -> Outcome:
        """Put messages into a conversation once for ever, without a run and without asking a model.

        Args:
            conversation_id: The conversation; a new one begins with the seed.
            messages: At least one, in order. Each is what `submit` takes, and with `after-settled` may also have the
                role `assistant`.
            seed_key: Names the seed. A repetition changes nothing, even after the messages were compacted.
            placement: `lead`, ahead of everything; or `after-settled`, after every turn that ended and before the
                first message of a run that is active.

        Returns:
            `Applied`, the first time and at every repetition; its delta holds messages only if they were placed now.

        Raises:
            InvalidValueError, UsageError: An argument is malformed, a role does not fit the placement, or only some of
                the messages are known. Nothing was written.
            ConversationPurgedError: The conversation was purged.
            RuntimeClosedError: The runtime is closed, or not entered.
            StoreError: The store failed.
        """
        conversation_id = read_id(conversation_id, "conversation_id")
        one_of(placement, "placement", ("lead", "after-settled"))
        read = seed_messages(conversation_id, seed_key, messages, self._clock.now())
        self._check_entered()
        with self._gate.passing():
            return await self._control.seed(conversation_id, seed_key, read, placement)

    # --- ending runs from outside --------------------------------------------------------------------------------

    async def interrupt(self, conversation_id: str, run_id: str, /) -> Outcome:
        """Ask a running run to stop, durably, whichever process executes it; what it said so far is kept.

        Returns:
            `Applied` if the request was written (then it also stops at once if it executes here); `Conflict` if the
            run is queued, was asked before, or has ended.

        Raises:
            RuntimeConflictError: There is no such run.
            InvalidValueError: An id is no identifier; nothing was read.
            RuntimeClosedError: The runtime is not entered, or was left.
            StoreError: The store failed.
        """
        conversation_id, run_id = read_id(conversation_id, "conversation_id"), read_id(run_id, "run_id")
        self._check_entered()
        return await self._control.interrupt(conversation_id, run_id)

    def stop(self, conversation_id: str, /, *, reason: StopReason = "user-interrupt") -> bool:
        """Stop what executes on a conversation in this process; nothing is written before it has stopped.

        Args:
            conversation_id: The conversation, or the name of the lane if `RunsConfig.key` names lanes.
            reason: What the run will say; its output is never shown to a model again after `supersede`.

        Returns:
            Whether something was executing. Waiting runs are untouched.

        Raises:
            UsageError, InvalidValueError: An argument is malformed.
            RuntimeClosedError: The runtime is not entered, or was left.
        """
        if not isinstance(conversation_id, str):
            raise UsageError(f"must be a text, not {type(conversation_id).__name__}", argument="conversation_id")
        if reason not in get_args(StopReason):
            raise InvalidValueError(f"must be one of {', '.join(get_args(StopReason))}", argument="reason")
        self._check_entered()
        return self._control.stop(conversation_id, reason)

    async def cancel(self, conversation_id: str, run_id: str, /) -> Outcome:
        """End a queued run without executing it, with reason `cancelled`; a running one is interrupted.

        Returns:
            `Applied`, or `Conflict` if the run has ended, or was executed before and requeued.

        Raises:
            RuntimeConflictError: There is no such run.
            InvalidValueError: An id is no identifier; nothing was read.
            RuntimeClosedError: The runtime is not entered, or was left.
            StoreError: The store failed.
        """
        conversation_id, run_id = read_id(conversation_id, "conversation_id"), read_id(run_id, "run_id")
        self._check_entered()
        return await self._control.cancel(conversation_id, run_id)

    async def abandon(
        self, conversation_id: str, run_id: str, /, *, expected_revision: int, stale_owner: bool
    ) -> Outcome:
        """End a run whose executor is known to be gone, with reason `abandoned`.

        Args:
            conversation_id: The conversation.
            run_id: The run.
            expected_revision: As read; a run that moved since is left alone.
            stale_owner: Must be True: the caller states that nobody executes the run any more.

        Returns:
            `Applied`, or `Conflict` if the run moved or has ended.

        Raises:
            UsageError: `stale_owner` is not True; nothing was read or written.
            RuntimeConflictError: There is no such run.
            RuntimeClosedError: The runtime is closed, or not entered.
            StoreError: The store failed.
        """
        conversation_id, run_id = read_id(conversation_id, "conversation_id"), read_id(run_id, "run_id")
        self._check_entered()
        with self._gate.passing():
            return await self._control.abandon(conversation_id, run_id, expected_revision, stale_owner=stale_owner)

    # --- after a crash -------------------------------------------------------------------------------------------

    def resume(
        self, conversation_id: str, run_id: str, /, *, context: object = None
    ) -> CoordinatedRun[object, RunResult]:
        """Execute a queued run that no process will start by itself.

        Args:
            conversation_id: The conversation.
            run_id: The run.
            context: As for `submit`.

        Returns:
            `accepted` settles once the run is held by this runtime (or needs no execution), `result` once it has
            ended. Both reject with `RuntimeConflictError` if there is no such run or it is not queued, and with
            `RuntimeClosedError` once the runtime is closed.

        Raises:
            InvalidValueError, UsageError: An id is no identifier, or `runs.key` gave no lane; nothing was read.
        """
        conversation_id, run_id = read_id(conversation_id, "conversation_id"), read_id(run_id, "run_id")
        return resume(self._core, self._lanes, self._gate, self._host.tasks, conversation_id, run_id, context)

    async def recover(
        self,
        *,
        conversation_id: str | None = None,
        resolve_context: ResolveContext | None = None,
        decide: Decide | None = None,
        page_size: int = 100,
        max_runs: int = 1000,
        signal: CancelToken | None = None,
    ) -> list[RecoveryOutcome]:
        """Take up what executors left behind when they died.

        Runs of owners that are provably gone are requeued and run again, or settled if they were asked to stop; queued
        runs are resumed; runs of living owners are left alone (`runlane.runtime.RecoveryInput.default` says which).

        Args:
            conversation_id: Look only at this conversation; None looks at all of them.
            resolve_context: Gives the `context` of a run that is executed again; the run's stored `request` by default.
            decide: Decides instead of the default, run by run.
            page_size: Runs read at a time, 1 to 1,000.
            max_runs: Runs dealt with at most.
            signal: Stops collecting when it trips.

        Returns:
            An outcome for each run dealt with. `resumed` and `requeued` are reported once the run is held by this
            runtime, and carry the promise of its result.

        Raises:
            RuntimeClosedError: The runtime is closed, or not entered.
            InvalidValueError, UsageError: `conversation_id` is no identifier, or a limit is out of range.
            StoreError: The list of runs could not be read.
        """
        if conversation_id is not None:
            conversation_id = read_id(conversation_id, "conversation_id")
        self._check_entered()
        if self._gate.closed:
            raise RuntimeClosedError
        recovery = Recovery(self._core, self._lanes, self._gate, decide=decide, resolve_context=resolve_context)
        groups = await recovery.collect(
            page_size=page_size, max_runs=max_runs, signal=signal, conversation_id=conversation_id
        )
        return await recovery.handle(groups)

    async def close(self, *, grace: float | None = None, force: float | None = None) -> CloseResult:
        """Admit nothing more, end what executes, and say honestly what is left.

        | budgets | executing runs | may come back with work in flight |
        |---|---|---|
        | neither | stopped now, waited for | no |
        | `grace` | may finish that long, then stopped, waited for | no |
        | `force` | stopped now, waited for that long | yes |
        | both | may finish, then stopped, waited for `force` seconds after that | yes |

        Inputs that are being admitted are waited for first, which counts against both budgets. Runs that wait stay
        queued in the store. Closing again is harmless.

        Args:
            grace: Seconds.
            force: Seconds.

        Raises:
            UsageError, InvalidValueError: A budget is no non-negative number; then nothing was changed.
        """
        result = await close_runtime(self._core, self._submissions, self._gate, grace=grace, force=force)
        self._hub.close()
        return result


def _check_arguments(store: object, model: object, instructions: object, config: object) -> None:
    if not isinstance(store, Store):
        raise UsageError(f"must be a Store, not {type(store).__name__}", argument="store")
    if not isinstance(model, ChatProvider | ResolvedModel) and not callable(model):
        raise UsageError("must be a ChatProvider, a ResolvedModel or a callable", argument="model")
    if instructions is not None and not isinstance(instructions, str):
        raise UsageError("must be a text or None", argument="instructions")
    if instructions:
        read_text(instructions, "instructions")
    if config is not None and not isinstance(config, RuntimeConfig):
        raise UsageError("must be a RuntimeConfig or None", argument="config")


def _check_flag(recover_on_start: object) -> None:
    if not isinstance(recover_on_start, bool):
        raise UsageError("must be True or False", argument="recover_on_start")
