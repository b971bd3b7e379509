"""How messages come in: accepted inputs and seeds."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from runlane.errors import UsageError
from runlane.records import JsonObject, Run
from runlane.store._commands import AcceptInput, SeedConversation
from runlane.store._order import GAP, QUEUED
from runlane.store._outcomes import Applied, Conflict, Delta, NotFound
from runlane.store._rows import Changes, Head, ReceiptRow, RunRow, SeedRow, View
from runlane.store._step import Decision, Repeat, Step, refuse_foreign

__all__ = ["accept", "seed"]

_INPUT_ROLES: Final = frozenset({"user", "tool"})
_FRESH: Final = frozenset(
    {
        "schema_version",
        "id",
        "conversation_id",
        "input_message_ids",
        "assistant_message_id",
        "state",
        "revision",
        "queue_priority",
        "request",
        "created_at",
        "updated_at",
    }
)
"""What a run may have when it is proposed."""
_LATER: Final = tuple(Run.model_fields.keys() - _FRESH)
_SET_LATER: Final = attrgetter(*_LATER)
_NEVER_SET: Final = (None,) * len(_LATER)


def accept(view: View, command: AcceptInput, /) -> Decision:
    """Commit an input: with a new run, or into a queued one.

    A known key answers first, whatever else the command says. Then identities are checked, then the races, and the
    proposal last.
    """
    key = command.idempotency_key
    receipt = view.receipts.get(key)
    if receipt is not None:
        return Decision(Repeat(receipt))
    if command.input.id in view.messages:
        raise UsageError(f"message id {command.input.id!r} is taken", argument="input.id")
    joins = command.coalesce_into_run_id
    if joins is None:
        _refuse_taken_run(view, command.run)
    if command.expected_version not in {None, view.head.version}:
        return Decision(Conflict(actual_version=view.head.version))
    target = None if joins is None else view.run(joins)
    if joins is not None and target is None:
        return Decision(NotFound())
    if target is not None and target.run.state != "queued":
        return Decision(Conflict(actual_version=target.run.revision))
    _check_assignment(view, command)
    return _admit(view, command, target)


def _refuse_taken_run(view: View, run: Run) -> None:
    if view.run(run.id) is not None:
        raise UsageError(f"run id {run.id!r} is taken", argument="run.id")
    if run.assistant_message_id in view.messages:
        raise UsageError(f"message id {run.assistant_message_id!r} is taken", argument="run.assistant_message_id")


def _check_assignment(view: View, command: AcceptInput) -> None:
    message, run = command.input, command.run
    refuse_foreign(view, message.conversation_id, argument="input")
    if message.role not in _INPUT_ROLES or message.status != "committed" or message.run_id is not None:
        raise UsageError("must be a committed user or tool message of no run", argument="input")
    if command.coalesce_into_run_id is not None:
        return
    refuse_foreign(view, run.conversation_id, argument="run")
    if run.input_message_ids != (message.id,) or run.assistant_message_id == message.id:
        raise UsageError("must list exactly its own input, and reserve another id for its answer", argument="run")
    if run.state != "queued" or run.revision or _SET_LATER(run) != _NEVER_SET:
        raise UsageError("must be queued at revision 0, with nothing set but priority and request", argument="run")


def _admit(view: View, command: AcceptInput, target: RunRow | None) -> Decision:
    step = Step(view, command)
    message = command.input
    if target is None:
        row = step.add(command.run)
    else:
        row = step.edit(target, input_message_ids=(*target.run.input_message_ids, message.id))
    last = len(row.run.input_message_ids) - 1
    position = QUEUED + step.version if row.place is None else row.place + last
    reference = step.insert(message, position)
    if target is None:
        step.reserve(row.run.assistant_message_id, row.run.id)
    step.changes.receipts.append(
        ReceiptRow(command.idempotency_key, row.run.id, message.id, bytes.fromhex(str(reference["sha256"])))
    )
    payload: JsonObject = {
        "run_id": row.run.id,
        "revision": row.run.revision,
        "state": "queued",
        "message": reference,
        "idempotency_key": command.idempotency_key,
        "inputs": len(row.run.input_message_ids),
    }
    return step.finish("accept", payload)


# --- seeds --------------------------------------------------------------------------------------------------------


def seed(view: View, command: SeedConversation, /) -> Decision:
    """Place messages once for ever; a repetition is applied without a change."""
    unchanged = Applied(delta=Delta(version=view.head.version, seq=view.head.seq))
    if command.seed_key in view.seeds:
        return Decision(unchanged)
    _check_seed(view, command)
    ids = tuple(message.id for message in command.inputs)
    receipt = SeedRow(command.seed_key, ids)
    known = [message_id for message_id in ids if message_id in view.messages]
    for message_id in known:
        place = view.messages[message_id]
        if place.position is None and place.removed_at is None:
            raise UsageError(f"message id {message_id!r} is reserved for a run's answer", argument="inputs")
    if len(known) == len(ids):
        return Decision(unchanged, Changes(before=view.head, head=view.head, seeds=[receipt]))
    if known:
        raise UsageError(f"message id {known[0]!r} is taken and others are not", argument="inputs")
    return _place_seed(view, command, receipt)


def _check_seed(view: View, command: SeedConversation) -> None:
    if not command.inputs or len({message.id for message in command.inputs}) != len(command.inputs):
        raise UsageError("needs at least one message, each with an id of its own", argument="inputs")
    allowed = {("user", "committed")}
    if command.placement == "after-settled":
        allowed.add(("assistant", "completed"))
    for index, message in enumerate(command.inputs):
        refuse_foreign(view, message.conversation_id, argument=f"inputs.{index}")
        if (message.role, message.status) not in allowed or message.run_id is not None:
            raise UsageError(
                f"a {message.role} message of status {message.status} cannot be seeded as {command.placement}",
                argument=f"inputs.{index}",
            )


def _place_seed(view: View, command: SeedConversation, receipt: SeedRow) -> Decision:
    step = Step(view, command)
    step.head, position = _room(view, step.head, command)
    references: list[JsonObject] = [
        step.insert(message, position + index) for index, message in enumerate(command.inputs)
    ]
    step.changes.seeds.append(receipt)
    payload: JsonObject = {
        "seed_key": command.seed_key,
        "placement": command.placement,
        "messages": [*references],
    }
    return step.finish("seed", payload)


def _room(view: View, head: Head, command: SeedConversation) -> tuple[Head, int]:
    """Return the head with the room taken, and the first position of it."""
    count = len(command.inputs)
    if command.placement == "lead":
        return head._replace(lowest=head.lowest - count), head.lowest - count
    places = [row.place for row in view.active.values() if row.place is not None]
    if not places:
        return head._replace(next_place=head.next_place + count), head.next_place
    if head.gap + count > min(places):
        raise UsageError(f"more than {GAP} messages cannot be placed ahead of one active run", argument="inputs")
    return head._replace(gap=head.gap + count), head.gap
