"""What happens to a run between the queue and its end. `runlane.store._reducer` says when each of these applies."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from runlane.errors import LeaseLostError, UsageError
from runlane.records import (
    COMPLETING_REASONS,
    JsonObject,
    Message,
    Ownership,
    Part,
    TerminalReason,
    message_status_for_terminal_reason,
    run_state_for_terminal_reason,
)
from runlane.store._commands import (
    Absorption,
    AcquireRun,
    CancelRun,
    CheckpointRunAssistant,
    CommitRunTerminal,
    RecordRunOperation,
    RecoverRun,
    RequestRunInterrupt,
)
from runlane.store._draft import draft_message, extend, read_draft
from runlane.store._order import order_key
from runlane.store._rows import DraftChange, Head, RunRow, View
from runlane.store._step import Decision, Step

__all__ = [
    "acquire",
    "answers_itself",
    "cancel",
    "checkpoint",
    "is_next",
    "never_acquired",
    "record_operation",
    "recover",
    "request_interrupt",
    "terminal",
]


def _run_payload(row: RunRow, /, **more: JsonValue) -> JsonObject:
    run = row.run
    facts: JsonObject = {"run_id": run.id, "revision": run.revision, "state": run.state}
    for name, value in more.items():
        if value is not None:
            facts[name] = value
    return facts


# --- acquisition --------------------------------------------------------------------------------------------------


def is_next(view: View, row: RunRow, command: AcquireRun, /) -> bool:
    """Whether a queued run's turn has come.

    Raises:
        LeaseLostError: The owner is known to be gone; what it started before belongs to others now.
    """
    if command.owner_id in view.swept:
        raise LeaseLostError(owner=command.owner_id)
    mine = order_key(row)
    return not any(
        other.run.is_acquired or order_key(other) < mine for other in view.active.values() if other.run.id != row.run.id
    )


def acquire(view: View, row: RunRow, command: AcquireRun, /) -> Decision:
    """Give the run to an executor; its inputs get their final place."""
    step = Step(view, command)
    place = step.give_place(row, acquired=True)
    token = (row.run.fencing_token or 0) + 1
    sequence = row.run.execution_sequence
    after = step.edit(
        row,
        place=place,
        state="running",
        owner_id=command.owner_id,
        fencing_token=token,
        execution_sequence=step.version if sequence is None else sequence,
    )
    step.head = _hand_over(step.head, command.owner_id)
    epoch = step.head.lane_epoch
    payload = _run_payload(
        after,
        owner_id=command.owner_id,
        fencing_token=token,
        lane_epoch=epoch,
        execution_sequence=after.run.execution_sequence,
    )
    ownership = Ownership(owner=command.owner_id, fencing_token=token, lane_epoch=epoch)
    return step.finish("acquire", payload, ownership=ownership, placed=row.run.input_message_ids)


def _hand_over(head: Head, owner: str | None) -> Head:
    """Give the lane to an owner, raising its epoch if it had another."""
    if head.lane_owner == owner:
        return head
    return head._replace(lane_owner=owner, lane_epoch=head.lane_epoch + 1)


# --- while it runs ------------------------------------------------------------------------------------------------


def checkpoint(view: View, row: RunRow, command: CheckpointRunAssistant, /) -> Decision:
    """Extend the draft; the ledger keeps its size and hash, never its text."""
    step = Step(view, command)
    draft, body, drops = extend(row.draft, command.patch)
    usage = row.run.usage if command.usage is None else command.usage
    after = step.edit(row, draft=draft, usage=usage)
    if drops and row.draft is not None and row.draft.patches:
        step.changes.drafts.append(DraftChange(row.run.id, 0))
    if body is not None:
        step.changes.drafts.append(DraftChange(row.run.id, draft.patches, body))
    reference: JsonObject = {
        "id": row.run.assistant_message_id,
        "sha256": draft.sha256.hex(),
        "parts": len(draft.kinds),
        "size": draft.size,
    }
    spent = None if command.usage is None else command.usage.to_json()
    return step.finish("checkpoint", _run_payload(after, message=reference, usage=spent))


def record_operation(view: View, row: RunRow, command: RecordRunOperation, /) -> Decision:
    """Replace what the run is doing."""
    step = Step(view, command)
    after = step.edit(row, last_operation=command.operation)
    return step.finish("operation", _run_payload(after, operation=command.operation.to_json()))


def request_interrupt(view: View, row: RunRow, command: RequestRunInterrupt, /) -> Decision:
    """Ask the executor, wherever it is, to stop."""
    step = Step(view, command)
    after = step.edit(row, state="interrupt_requested")
    return step.finish("interrupt", _run_payload(after))


# --- ends ---------------------------------------------------------------------------------------------------------


def answers_itself(view: View, row: RunRow, command: CommitRunTerminal, /) -> bool:
    """Whether the answer is the run's own and its status is the one its reason maps to."""
    if command.reason == "absorbed":
        raise UsageError("a run is absorbed by another run's end, never by its own", argument="reason")
    answer = command.assistant
    return (
        answer.id == row.run.assistant_message_id
        and answer.conversation_id == view.conversation_id
        and answer.run_id == row.run.id
        and answer.role == "assistant"
        and answer.status == message_status_for_terminal_reason(command.reason)
    )


def terminal(view: View, row: RunRow, command: CommitRunTerminal, /) -> Decision:
    """End the run with its whole answer, and with it the queued runs whose inputs it answered."""
    _check_terminal(row, command)
    step = Step(view, command)
    absorbed = [target for entry in command.absorb if (target := _matching(view, entry)) is not None]
    inputs = _absorb(step, row, absorbed)
    after = _end(
        step,
        row,
        command.reason,
        owner_id=row.run.owner_id,
        terminal_policy_name=command.policy_name,
        input_message_ids=inputs,
        usage=row.run.usage if command.usage is None else command.usage,
    )
    return step.finish(
        "terminal",
        _run_payload(
            after,
            reason=command.reason,
            policy_name=command.policy_name,
            message=step.answer(command.assistant, _place(after)),
            usage=None if after.run.usage is None else after.run.usage.to_json(),
            metrics=None if command.metrics is None else command.metrics.to_json(),
            absorbed=[{"run_id": other.run.id, "revision": other.run.revision + 1} for other in absorbed] or None,
        ),
    )


def _check_terminal(row: RunRow, command: CommitRunTerminal) -> None:
    if (command.reason == "policy_stop") != bool(command.policy_name):
        raise UsageError("is given exactly with reason policy_stop", argument="policy_name")
    if command.absorb and command.reason not in COMPLETING_REASONS:
        raise UsageError(f"a run that ends as {command.reason} absorbs nothing", argument="absorb")
    ids = [entry.run_id for entry in command.absorb]
    if len(set(ids)) != len(ids) or row.run.id in ids:
        raise UsageError("names a run twice, or the ending run itself", argument="absorb")


def _matching(view: View, entry: Absorption) -> RunRow | None:
    target = view.active.get(entry.run_id)
    if target is None or target.run.state != "queued" or target.run.input_message_ids != entry.input_message_ids:
        return None
    return target


def _absorb(step: Step, row: RunRow, absorbed: Sequence[RunRow]) -> tuple[str, ...]:
    """End the absorbed runs; return the inputs of the absorbing one, which now has theirs as well."""
    inputs = list(row.run.input_message_ids)
    for target in absorbed:
        new = [message_id for message_id in target.run.input_message_ids if message_id not in inputs]
        step.move(new, _place(row) + len(inputs))
        inputs += new
        step.edit(
            target,
            place=_place(row) + len(inputs),
            state=run_state_for_terminal_reason("absorbed"),
            terminal_reason="absorbed",
            absorbed_into_run_id=row.run.id,
            draft=None,
        )
        _drop_draft(step, target)
    return tuple(inputs)


def _place(row: RunRow) -> int:
    if row.place is None:
        raise UsageError("a run without a place cannot have an answer", argument="run")
    return row.place


def _end(step: Step, row: RunRow, reason: TerminalReason, /, **fields: object) -> RunRow:
    """End a run: its place if it never had one, its state, no draft."""
    place = step.give_place(row, acquired=False)
    state = run_state_for_terminal_reason(reason)
    _drop_draft(step, row)
    return step.edit(row, place=place, draft=None, state=state, terminal_reason=reason, **fields)


def _drop_draft(step: Step, row: RunRow) -> None:
    if row.draft is not None and row.draft.patches:
        step.changes.drafts.append(DraftChange(row.run.id, 0))


def never_acquired(_view: View, row: RunRow, _command: CancelRun, /) -> bool:
    """Whether a queued run was never given to an executor."""
    return row.run.execution_sequence is None


def cancel(view: View, row: RunRow, command: CancelRun, /) -> Decision:
    """End a queued run with an empty answer."""
    step = Step(view, command)
    after = _end(step, row, "cancelled")
    reference = step.answer(_closing_answer(after, "cancelled", ()), _place(after))
    return step.finish("cancel", _run_payload(after, reason="cancelled", message=reference))


def _closing_answer(row: RunRow, reason: TerminalReason, parts: tuple[Part, ...]) -> Message:
    """Return the answer of a run that somebody else than its executor ends."""
    status = message_status_for_terminal_reason(reason)
    return draft_message(row.run, parts).model_copy(update={"status": status})


def recover(view: View, row: RunRow, command: RecoverRun, /) -> Decision:
    """Take the run away from whoever held it: back into the queue, or to its end with what the draft holds."""
    step = Step(view, command)
    if row.run.is_acquired:
        step.head = _hand_over(step.head, None)
    if command.action == "requeue":
        if row.run.is_acquired and not command.replay_safe:
            raise UsageError("must be True to requeue a run that was acquired", argument="replay_safe")
        after = step.edit(row, state="queued", owner_id=None)
        return step.finish("recover", _run_payload(after, action="requeue", evidence=command.evidence))
    what = f"run {row.run.id!r} of conversation {view.conversation_id!r}"
    parts = () if row.draft is None else read_draft(row.draft, view.drafts.get(row.run.id, ()), what=what)
    after = _end(step, row, "abandoned", owner_id=None)
    reference = step.answer(_closing_answer(after, "abandoned", parts), _place(after))
    payload = _run_payload(after, action="abandon", reason="abandoned", message=reference, evidence=command.evidence)
    return step.finish("recover", payload)
