"""Structured compaction: the oldest complete turns of a conversation give way to a summary, under compare-and-swap.

One attempt: load, ask whether it is due, select, summarise, check, replace under the very version that was loaded. The
summary is made outside any transaction, so new input is never held up; if some came, the version is another one, the
summary is thrown away, and a further attempt starts from what is there now.

| what happens | then |
|---|---|
| another compaction of the conversation runs in this process | `refused`, `in-progress`; nothing is loaded |
| one failed a short while ago | `refused`, `backing-off`; nothing is loaded |
| below the threshold | `not_needed` |
| no complete turn but the protected ones before the first barrier | `nothing_eligible`, with the barrier |
| the summariser raises, or its answer does not fit the schema | the error leaves, and a back-off begins |
| the summary is blank, or counts as much as what it stands for | `refused`, and a back-off begins |
| the conversation changed meanwhile | another attempt, or `conflict` after the last |
| the signal trips | its reason is raised |

In every case but `applied` the history is as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import anyio
from pydantic import TypeAdapter, ValidationError

from runlane.canonical import canonical_record_json
from runlane.contracts import require_kind, resolve
from runlane.errors import InvalidValueError, StoreError, UsageError
from runlane.history import (
    CompactableHistory,
    CompactionBarrier,
    EvidencePolicy,
    History,
    compaction_barrier,
    select_compactable_history,
)
from runlane.models import TokenCounter, add_usage
from runlane.records import Message, Snapshot, TextPart, ToolCallPart, ToolResultPart, Usage
from runlane.runtime._compaction_guards import FLIGHTS, BackOff
from runlane.runtime._compaction_values import (
    CompactionContext,
    CompactionOutcome,
    CompactionProbe,
    CompactionRefusal,
    CompactionResult,
    StructuredCompactionConfig,
    Summarised,
    SummaryDraft,
    SummaryRequest,
)
from runlane.runtime._store_calls import StoreCalls
from runlane.store import Applied, Conflict, Duplicate, NotFound, ReplaceCompactedRange, Store

__all__ = ["StructuredCompaction"]

S = TypeVar("S")


class StructuredCompaction(Generic[S]):
    """Compacts conversations as its configuration says; call it with a `CompactionContext`.

    Give it to a runtime as its compaction, or call it yourself between turns. It keeps nothing but the back-off of
    conversations whose summaries failed, and may be shared by many tasks and runtimes.

    Example:
        >>> def shorten(request: SummaryRequest[str]) -> str:
        ...     return f"{len(request.messages)} earlier messages"
        >>> compaction = StructuredCompaction(
        ...     StructuredCompactionConfig(schema=str, summarize=shorten, due=lambda probe: probe.records > 200)
        ... )
    """

    def __init__(self, config: StructuredCompactionConfig[S], /) -> None:
        """Compact by a configuration."""
        self.config = require_kind(config, StructuredCompactionConfig, argument="config")
        self._adapter: TypeAdapter[S] = TypeAdapter(config.schema)
        self._back_off = BackOff(config.back_off)

    def is_due(self, conversation_id: str, history: History, store: Store, /) -> bool:
        """Whether calling is worth it, by the records at hand; loads and records nothing.

        It is not while a back-off holds, below the threshold, and as long as nothing at hand could be replaced: a turn
        in a conversation that waits for an approval does not load all of it to find that out again.

        Args:
            conversation_id: Whose history it is.
            history: Its newest records, at least those since the last summary or as many as a prompt would hold.
            store: Where the conversation is; only its clock is asked.
        """
        config = self.config
        if self._back_off.holds(store, conversation_id):
            return False
        if config.due is not None and not config.due(CompactionProbe(history, config.counter, config.evidence_policy)):
            return False
        _, start, end = history.compactable(config.keep_recent_turns, evidence_policy=config.evidence_policy)
        return end > start

    async def __call__(self, context: CompactionContext, /) -> CompactionResult:
        """Compact a conversation if that is due; see the module for what can happen.

        Raises:
            InvalidValueError: A summary does not fit the schema.
            UsageError: The summary message is none.
            AbortedError: The signal tripped, or whatever error it was tripped with.
            StoreError: The conversation could not be read or written.
            Exception: What the summariser raised, as it is.
        """
        with FLIGHTS.only_one(context.store, context.conversation_id) as is_alone:
            if not is_alone:
                return CompactionResult(outcome="refused", refusal="in-progress")
            if self._back_off.holds(context.store, context.conversation_id):
                return CompactionResult(outcome="refused", refusal="backing-off")
            result = await self._compact(context)
        self._back_off.note(context.store, context.conversation_id, failed=result.refusal is not None)
        return result

    async def _compact(self, context: CompactionContext) -> CompactionResult:
        compacting = _Compacting(self.config, self._adapter, context)
        try:
            return await compacting.run()
        except StoreError:
            raise
        except Exception:
            if not context.signal.cancelled:
                self._back_off.note(context.store, context.conversation_id, failed=True)
            raise


class _Compacting(Generic[S]):
    """One call."""

    def __init__(
        self, config: StructuredCompactionConfig[S], adapter: TypeAdapter[S], context: CompactionContext
    ) -> None:
        self._config = config
        self._adapter = adapter
        self._context = context
        self._store = context.store
        self._calls = StoreCalls(context.store, context.store.clock)
        self._usage: Usage | None = None
        self._attempt = 0

    async def run(self) -> CompactionResult:
        result = await self._try()
        while result.outcome == "conflict" and self._attempt < self._config.max_attempts:
            result = await self._try()
        return result

    async def _try(self) -> CompactionResult:
        self._attempt += 1
        self._context.signal.raise_if_cancelled()
        snapshot = await self._calls.read(lambda store: store.load_snapshot(self._context.conversation_id))
        if not await self._is_due(snapshot):
            return self._result("not_needed", snapshot)
        active = frozenset(run.id for run in snapshot.runs if run.is_active)
        policy = self._config.evidence_policy
        selection = select_compactable_history(
            snapshot.messages, self._config.keep_recent_turns, evidence_policy=policy, active_runs=active
        )
        if not selection.compactable:
            return self._result("nothing_eligible", snapshot)
        message = await self._summarise(snapshot, selection)
        refusal = self._refusal(message, selection)
        if refusal is not None:
            return self._result("refused", snapshot, refusal=refusal)
        return await self._replace(snapshot, selection, message)

    async def _is_due(self, snapshot: Snapshot) -> bool:
        due, threshold = self._config.due, self._config.threshold
        if due is not None:
            history = _handle(snapshot.messages)
            if not due(CompactionProbe(history, self._config.counter, self._config.evidence_policy)):
                return False
        return threshold is None or await resolve(threshold(snapshot))

    # --- the summary ----------------------------------------------------------------------------------------------

    async def _summarise(self, snapshot: Snapshot, selection: CompactableHistory) -> Message:
        signal = self._context.signal
        request = SummaryRequest(
            conversation_id=snapshot.conversation_id,
            snapshot=snapshot,
            messages=selection.summarised,
            leading_summary=selection.leading_summary,
            previous_summary=self._previous(selection.leading_summary),
            signal=signal,
            evidence_policy=self._config.evidence_policy,
        )
        answer: object = None
        with anyio.CancelScope() as scope, signal.bind(scope):
            answer = await resolve(self._config.summarize(request))
        if isinstance(answer, Summarised):
            self._spent(answer.usage)
            answer = answer.summary
        signal.raise_if_cancelled()
        summary = self._validated(answer, "summary")
        draft = SummaryDraft(
            conversation_id=snapshot.conversation_id, summary=summary, compacted_messages=selection.compactable
        )
        create = self._config.create_summary_message
        return _checked(self._default_message(draft) if create is None else create(draft), snapshot)

    def _previous(self, leading: Message | None) -> S | None:
        config = self._config
        if leading is not None and config.read_previous_summary is not None:
            return self._validated(config.read_previous_summary(leading), "previous_summary")
        if leading is not None and config.create_summary_message is None:
            return self._read_default(leading)
        given = self._context.previous_summary
        return None if given is None or self._attempt > 1 else self._validated(given, "previous_summary")

    def _default_message(self, draft: SummaryDraft[S]) -> Message:
        value: object = self._adapter.dump_python(draft.summary, mode="json")
        text = value if isinstance(value, str) else canonical_record_json(value).decode()
        now = self._store.clock.now()
        return Message(
            id=self._store.ids.new("message"),
            conversation_id=draft.conversation_id,
            role="summary",
            status="committed",
            parts=(TextPart(text=text),),
            created_at=now,
            updated_at=now,
        )

    def _read_default(self, leading: Message) -> S:
        """Read what the default message holds: a text as it is, anything else from JSON."""
        try:
            return self._adapter.validate_python(leading.text, strict=True)
        except ValidationError:
            pass
        try:
            return self._adapter.validate_json(leading.text)
        except ValidationError as error:
            raise _refused(error, "previous_summary") from None

    def _validated(self, value: object, argument: str) -> S:
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            raise _refused(error, argument) from None

    def _spent(self, usage: Usage | None) -> None:
        if usage is None:
            return
        self._usage = add_usage(self._usage, usage)
        if self._context.report_usage is not None:
            self._context.report_usage(usage)

    def _refusal(self, message: Message, selection: CompactableHistory) -> CompactionRefusal | None:
        if not message.text.strip():
            return "empty"
        leading = () if selection.leading_summary is None else (selection.leading_summary,)
        replaced = _tokens((*leading, *selection.compactable), self._config.counter, self._config.evidence_policy)
        own = _tokens((message,), self._config.counter, self._config.evidence_policy)
        return None if own < replaced else "not-smaller"

    # --- the replacement ------------------------------------------------------------------------------------------

    async def _replace(self, snapshot: Snapshot, selection: CompactableHistory, message: Message) -> CompactionResult:
        leading = () if selection.leading_summary is None else (selection.leading_summary.id,)
        replaced = (*leading, *(record.id for record in selection.compactable))
        command = ReplaceCompactedRange(
            command_id=self._store.ids.new("command"),
            at=self._store.clock.now(),
            expected_version=snapshot.version,
            replaced_message_ids=replaced,
            summary=message,
        )
        outcome = (await self._calls.apply(snapshot.conversation_id, (command,)))[-1]
        if isinstance(outcome, Conflict):
            return self._result("conflict", snapshot)
        if isinstance(outcome, NotFound):
            return self._result("not_found", snapshot)
        if not isinstance(outcome, Applied | Duplicate):
            raise UsageError(f"gave {type(outcome).__name__}", argument="store")
        return dataclasses.replace(
            self._result("applied", _after(snapshot, replaced, message)),
            summary=message,
            replaced=replaced,
            closed_calls=_open_calls(selection.compactable),
        )

    def _result(
        self, outcome: CompactionOutcome, snapshot: Snapshot, *, refusal: CompactionRefusal | None = None
    ) -> CompactionResult:
        return CompactionResult(
            outcome=outcome,
            attempts=self._attempt,
            snapshot=snapshot,
            usage=self._usage,
            refusal=refusal,
            barrier=None if outcome == "not_needed" else _barrier(snapshot, self._config.evidence_policy),
        )


def _barrier(snapshot: Snapshot, policy: EvidencePolicy) -> CompactionBarrier | None:
    """Return what compaction may not go beyond."""
    active = [run for run in snapshot.runs if run.is_active]
    barrier = compaction_barrier(
        snapshot.messages, evidence_policy=policy, active_runs=frozenset(run.id for run in active)
    )
    if barrier is None or not any(barrier.message_id in run.input_message_ids for run in active):
        return barrier
    return CompactionBarrier(barrier.message_id, "active-run")


def _handle(messages: Iterable[Message]) -> History:
    return History(message.model_dump_json(exclude_none=True).encode() for message in messages)


def _tokens(messages: Sequence[Message], counter: TokenCounter, policy: EvidencePolicy) -> int:
    """Return what a model is told of messages, in tokens."""
    return CompactionProbe(_handle(messages), counter, policy).tokens.value or 0


def _checked(message: object, snapshot: Snapshot) -> Message:
    """Refuse what is no summary message of this conversation."""
    argument = "create_summary_message"
    if not isinstance(message, Message):
        raise UsageError(f"gave {type(message).__name__}, not a Message", argument=argument)
    if (message.role, message.status) != ("summary", "committed"):
        raise UsageError(
            f"gave a {message.role} of status {message.status}, not a committed summary", argument=argument
        )
    if message.conversation_id != snapshot.conversation_id or message.run_id is not None:
        raise UsageError("gave a message of another conversation, or of a run", argument=argument)
    return message


def _refused(error: ValidationError, argument: str) -> InvalidValueError:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    path = ".".join([argument, *(str(step) for step in first["loc"])])
    return InvalidValueError(first["msg"], argument=path)


def _after(snapshot: Snapshot, replaced: Sequence[str], summary: Message) -> Snapshot:
    """Return the snapshot as it is after a replacement: the version was the one it was made of."""
    gone = frozenset(replaced)
    place = next(index for index, message in enumerate(snapshot.messages) if message.id in gone)
    rest = [message for message in snapshot.messages if message.id not in gone]
    messages = (*rest[:place], summary, *rest[place:])
    owners = {message.run_id for message in messages}
    runs = tuple(run for run in snapshot.runs if run.is_active or run.id in owners)
    return snapshot.model_copy(update={"version": snapshot.version + 1, "messages": messages, "runs": runs})


def _open_calls(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the calls that never got a result, in order."""
    parts = [part for message in messages for part in message.parts]
    answered = {part.call_id for part in parts if isinstance(part, ToolResultPart)}
    return tuple(part.call_id for part in parts if isinstance(part, ToolCallPart) and part.call_id not in answered)
