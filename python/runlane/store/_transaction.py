"""One mutation: load what the commands name, decide each, write all or nothing."""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Final

from pydantic import ValidationError

from runlane.errors import RecordCorruptError, UsageError
from runlane.records import AdmissionReceipt, JsonObject, Message, Ownership, Run
from runlane.store._bodies import decode, decode_object, digest, same_content
from runlane.store._commands import (
    AcceptInput,
    AcquireRun,
    AppendEvent,
    CancelRun,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    RecordRunOperation,
    RecoverRun,
    ReplaceCompactedRange,
    RequestRunInterrupt,
    SeedConversation,
)
from runlane.store._driver import Rows
from runlane.store._ledger import TRANSITION, Transition, TransitionRecord
from runlane.store._order import in_order
from runlane.store._outcomes import Applied, Conflict, Delta, Duplicate, Outcome
from runlane.store._reducer import advance, names, reduce
from runlane.store._rows import Changes, EventRow, MessageRow, ReceiptRow, View
from runlane.store._step import Decision, Repeat

__all__ = ["RECORDED_AS", "read_message", "transact"]

_IDENTIFYING: Final = ("run_id", "idempotency_key", "seed_key")
RECORDED_AS: Final[dict[type[Command], Transition]] = {
    AcceptInput: "accept",
    AcquireRun: "acquire",
    CheckpointRunAssistant: "checkpoint",
    RecordRunOperation: "operation",
    RequestRunInterrupt: "interrupt",
    CancelRun: "cancel",
    RecoverRun: "recover",
    CommitRunTerminal: "terminal",
    ReplaceCompactedRange: "compact",
    SeedConversation: "seed",
}
"""What an entry of kind `runtime/transition` calls each command."""


def transact(rows: Rows, /, conversation_id: str, commands: tuple[Command, ...]) -> tuple[Outcome, ...]:
    """Carry out commands in order, all of them or none; see `Store.apply`."""
    view = rows.view(conversation_id, names(commands))
    outcomes: list[Applied] = []
    placed: list[tuple[int, tuple[str, ...]]] = []
    total: Changes | None = None
    for command in commands:
        decision = _decide(rows, view, command)
        if isinstance(decision, Applied):
            outcomes.append(decision)
            continue
        if not isinstance(decision.outcome, Applied):
            return (*outcomes, _completed(rows, view, command, decision))
        if decision.changes is not None:
            advance(view, decision.changes)
            total = _merged(total, decision.changes)
        if decision.placed:
            placed.append((len(outcomes), decision.placed))
        outcomes.append(decision.outcome)
    if total is not None:
        if placed:
            _put_messages(rows, conversation_id, outcomes, placed, {message_id for message_id, _ in total.removed})
        # The last that can fail: a driver that cannot take back what it saved need not.
        rows.save(conversation_id, total)
    return tuple(outcomes)


def _put_messages(
    rows: Rows,
    conversation_id: str,
    outcomes: list[Applied],
    placed: list[tuple[int, tuple[str, ...]]],
    removed: Container[str],
) -> None:
    """Put the messages that got their place into the outcomes at these indexes, but those that were removed again."""
    given = {message.id: message for outcome in outcomes for message in outcome.delta.messages}
    for index, message_ids in placed:
        kept = tuple([message_id for message_id in message_ids if message_id not in removed])
        outcomes[index] = _with_messages(rows, conversation_id, outcomes[index], kept, given)


def _decide(rows: Rows, view: View, command: Command) -> Decision | Applied:
    """Decide a command, or find that it was carried out before."""
    if isinstance(command, AppendEvent) and not view.head.purged:
        found = rows.entry(view.conversation_id, command.event_id or command.command_id)
        if found is not None:
            return _again(rows, view, command, found) or Decision(Conflict(actual_version=view.head.version))
    try:
        decision = reduce(view, command)
    except UsageError:
        before = _earlier(rows, view, command)
        if before is None:
            raise
        return before
    if isinstance(decision.outcome, Applied):
        return decision
    return _earlier(rows, view, command) or decision


def _earlier(rows: Rows, view: View, command: Command) -> Applied | None:
    found = rows.entry(view.conversation_id, command.command_id)
    return None if found is None else _again(rows, view, command, found)


def _again(rows: Rows, view: View, command: Command, found: EventRow) -> Applied | None:
    """Answer a command that is found under its own id; None if the entry is another command's."""
    if found.command_id != command.command_id:
        return None
    what = f"ledger entry {found.event_id!r} of conversation {view.conversation_id!r}"
    payload = decode_object(found.body, what=what)
    _refuse_another(command, found, payload)
    delta = Delta(version=found.version, seq=found.seq)
    if isinstance(command, AppendEvent):
        return Applied(delta=delta)
    record = _transition(payload, what)
    ended = () if record.absorbed is None else (absorbed.run_id for absorbed in record.absorbed)
    own = () if record.run_id is None else (record.run_id,)
    runs = {row.run.id: row.run for row in in_order(rows.runs(view.conversation_id, (*own, *ended)))}
    delta = delta._replace(runs=tuple(runs.values()), removed=record.removed or ())
    applied = Applied(delta=delta, ownership=_ownership(record, what))
    return _with_messages(rows, view.conversation_id, applied, _written(record, runs))


def _written(record: TransitionRecord, runs: Mapping[str, Run]) -> tuple[str, ...]:
    """Return the messages that a transition is answered with: what it wrote, or what the executor is to be shown."""
    if record.type == "acquire":
        return tuple(message_id for run in runs.values() for message_id in run.input_message_ids)
    one = () if record.message is None or record.type == "checkpoint" else (record.message.id,)
    return (*one, *(message.id for message in record.messages or ()))


def _transition(payload: JsonObject, what: str) -> TransitionRecord:
    try:
        return TransitionRecord.model_validate(payload)
    except ValidationError:
        raise RecordCorruptError(f"{what} is no transition") from None


def _refuse_another(command: Command, found: EventRow, payload: JsonObject) -> None:
    """Refuse a command whose id an earlier, different command has.

    Raises:
        UsageError: What was carried out under this id is something else.
    """
    if isinstance(command, AppendEvent):
        same = found.kind == command.kind
    else:
        same = found.kind == TRANSITION and payload.get("type") == RECORDED_AS[type(command)]
        for name in _IDENTIFYING:
            same = same and payload.get(name) == getattr(command, name, payload.get(name))
    if not same:
        raise UsageError(f"{command.command_id!r} was used by another command", argument="command_id")


def _ownership(record: TransitionRecord, what: str) -> Ownership | None:
    if record.type != "acquire":
        return None
    facts = {"owner": record.owner_id, "fencing_token": record.fencing_token, "lane_epoch": record.lane_epoch}
    try:
        return Ownership.model_validate(facts)
    except ValidationError:
        raise RecordCorruptError(f"{what} does not say who acquired") from None


def _merged(total: Changes | None, more: Changes) -> Changes:
    """Join what several commands write; a row that they change several times is written once."""
    if total is None:
        return more
    for run_id, (before, after) in more.runs.items():
        total.runs[run_id] = (total.runs[run_id][0] if run_id in total.runs else before, after)
    total.head = more.head
    total.messages += more.messages
    total.answers += more.answers
    total.moved += more.moved
    total.removed += more.removed
    total.receipts += more.receipts
    total.seeds += more.seeds
    total.drafts += more.drafts
    total.entries += more.entries
    return total


def _with_messages(
    rows: Rows,
    conversation_id: str,
    outcome: Applied,
    message_ids: tuple[str, ...],
    given: Mapping[str, Message] = MappingProxyType({}),
) -> Applied:
    """Put messages that just got their place into an outcome's delta; those compacted meanwhile stay out.

    Args:
        rows: To read them.
        conversation_id: The conversation.
        outcome: The outcome.
        message_ids: What got its place.
        given: What the same transaction brought, which is not read again.
    """
    unread = tuple(message_id for message_id in message_ids if message_id not in given)
    stored = {
        message_id: read_message(conversation_id, row)
        for message_id, row in (rows.bodies(conversation_id, unread) if unread else {}).items()
        if row.removed_at is None
    }
    found = [given.get(message_id) or stored.get(message_id) for message_id in message_ids]
    return outcome._replace(delta=outcome.delta._replace(messages=tuple(filter(None, found))))


def read_message(conversation_id: str, row: MessageRow, /) -> Message:
    """Parse a stored message, and refuse one that does not agree with its row.

    Raises:
        RecordCorruptError: It does not, or it is no message.
    """
    what = f"message {row.message_id!r} of conversation {conversation_id!r}"
    message = decode(Message, row.body or b"", what=what)
    agrees = (
        message.id == row.message_id
        and message.conversation_id == conversation_id
        and message.role == row.role
        and message.status == row.status
        and message.run_id == row.run_id
    )
    if not agrees:
        raise RecordCorruptError(f"{what} contradicts its row")
    return message


def _completed(rows: Rows, view: View, command: Command, decision: Decision) -> Outcome:
    outcome = decision.outcome
    if isinstance(outcome, Repeat):
        if not isinstance(command, AcceptInput):
            raise UsageError("only an input has a receipt", argument="command")
        return _duplicate(rows, view, command, outcome.receipt)
    return outcome


def _duplicate(rows: Rows, view: View, command: AcceptInput, receipt: ReceiptRow) -> Duplicate:
    conversation_id = view.conversation_id
    what = f"the receipt of key {receipt.key!r} in conversation {conversation_id!r}"
    admitted = view.run(receipt.run_id) or rows.run(conversation_id, receipt.run_id)
    body = rows.bodies(conversation_id, [receipt.message_id]).get(receipt.message_id)
    if admitted is None or body is None or body.body is None:
        raise RecordCorruptError(f"{what} names a run or an input that is not there")
    if digest(body.body) != receipt.sha256 or receipt.message_id not in admitted.run.input_message_ids:
        raise RecordCorruptError(f"{what} disagrees with its run or its input")
    first = read_message(conversation_id, body)
    run = admitted.run
    if run.absorbed_into_run_id is not None:
        absorbing = rows.run(conversation_id, run.absorbed_into_run_id)
        if absorbing is None or receipt.message_id not in absorbing.run.input_message_ids:
            raise RecordCorruptError(f"{what} leads to a run that did not absorb it")
        run = absorbing.run
    assistant = None
    if run.terminal_reason is not None:
        answer = rows.bodies(conversation_id, [run.assistant_message_id]).get(run.assistant_message_id)
        if answer is None:
            raise RecordCorruptError(f"{what} leads to an ended run without an answer")
        assistant = read_message(conversation_id, answer)
    return Duplicate(
        receipt=AdmissionReceipt(
            conversation_id=conversation_id,
            idempotency_key=receipt.key,
            input=first,
            input_sha256=receipt.sha256.hex(),
            run_id=receipt.run_id,
            assistant_message_id=admitted.run.assistant_message_id,
        ),
        run=run,
        assistant=assistant,
        version=view.head.version,
        input_matches=same_content(first, command.input),
    )
