"""Decides what a command does to a conversation: the one place where runs change state.

Theory of operation
===================

`reduce` is pure. It gets a `View`, which holds the conversation's head, its active runs and the rows that the command
names, and answers with an outcome and the rows to write. It never sees the history, so its cost follows the turn and
not the conversation. A driver stores what it says and decides nothing.

A conversation has a *version*, raised by one with every command that is applied, and a *sequence*, the number of its
ledger entries; `AppendEvent` raises only the latter. A run has a *revision*, raised with every change of that run.

A run is *queued* when it is accepted. At most one run of a conversation is *acquired* (running, or asked to stop), and
only the first of the queue can be: that gives the lane its order. Acquisition raises the run's fencing token, and the
lane's epoch if the lane changes hands. The owner, the token and the epoch are one value, `Ownership`; every write on
behalf of an acquired run is compared with it here, in `owns`, and nowhere else. A run *ends* exactly once, with a
reason, and never changes again.

How a command on a run is decided, in this order:

1. The conversation is purged: refused before anything is looked at (`ConversationPurgedError`).
2. The conversation has no such run: `NotFound`.
3. Its revision is not the expected one, or its row in `TRANSITIONS` does not admit its state, its ownership or
   whatever else the row demands: `Conflict` with the run's revision.
4. The command contradicts itself: `UsageError`. Races come first, so a loser never learns of a misuse it did not
   commit.
5. `Applied`.

| command | from | to | owned |
|---|---|---|---|
| accept | (none), or queued when it joins | queued | |
| acquire | queued, first in order, no other acquired | running | gives ownership |
| checkpoint | running | running | yes |
| record operation | running, interrupt_requested | the same | yes |
| request interrupt | running | interrupt_requested | |
| cancel | queued, never acquired | cancelled | |
| recover, requeue | queued, running, interrupt_requested | queued | takes ownership away |
| recover, abandon | queued, running, interrupt_requested | abandoned | takes ownership away |
| commit terminal | running, interrupt_requested | what the reason maps to | yes |
| (absorbed by another run's terminal) | queued | superseded | |

Accepting, compacting, seeding and appending entries are about the conversation; they have functions of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from runlane.errors import ConversationPurgedError
from runlane.records import ACQUIRED_RUN_STATES, ACTIVE_RUN_STATES, Ownership, RunState
from runlane.store._admission import accept, seed
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
from runlane.store._compaction import append_event, replace_range
from runlane.store._execution import (
    acquire,
    answers_itself,
    cancel,
    checkpoint,
    is_next,
    never_acquired,
    record_operation,
    recover,
    request_interrupt,
    terminal,
)
from runlane.store._outcomes import Conflict, NotFound
from runlane.store._rows import Changes, Head, MessagePlace, Names, RunRow, View
from runlane.store._step import Decision

__all__ = ["TRANSITIONS", "RunTransition", "advance", "names", "owns", "reduce"]

RunCommand: TypeAlias = (
    AcquireRun
    | CheckpointRunAssistant
    | RecordRunOperation
    | RequestRunInterrupt
    | CancelRun
    | RecoverRun
    | CommitRunTerminal
)
CommandT = TypeVar("CommandT", bound=RunCommand)


@dataclass(frozen=True, slots=True)
class RunTransition:
    """A row of the table.

    Attributes:
        sources: States the run may be in.
        targets: States it may be in afterwards; empty: the same as before.
        owned: Whether the command carries an `Ownership` that must hold.
        admits: What else must hold; if it does not, the command lost a race.
        carry_out: Builds the change.
    """

    sources: frozenset[RunState]
    targets: frozenset[RunState]
    owned: bool
    admits: Callable[..., bool] | None
    carry_out: Callable[..., Decision]


_QUEUED: Final[frozenset[RunState]] = frozenset({"queued"})
_RUNNING: Final[frozenset[RunState]] = frozenset({"running"})
_ENDED: Final[frozenset[RunState]] = frozenset(
    {"completed", "interrupted", "superseded", "cancelled", "abandoned", "failed"}
)

TRANSITIONS: Final[dict[type[Command], RunTransition]] = {
    AcquireRun: RunTransition(_QUEUED, _RUNNING, owned=False, admits=is_next, carry_out=acquire),
    CheckpointRunAssistant: RunTransition(_RUNNING, _RUNNING, owned=True, admits=None, carry_out=checkpoint),
    RecordRunOperation: RunTransition(
        ACQUIRED_RUN_STATES, frozenset(), owned=True, admits=None, carry_out=record_operation
    ),
    RequestRunInterrupt: RunTransition(
        _RUNNING, frozenset({"interrupt_requested"}), owned=False, admits=None, carry_out=request_interrupt
    ),
    CancelRun: RunTransition(_QUEUED, frozenset({"cancelled"}), owned=False, admits=never_acquired, carry_out=cancel),
    RecoverRun: RunTransition(
        ACTIVE_RUN_STATES, frozenset({"queued", "abandoned"}), owned=False, admits=None, carry_out=recover
    ),
    CommitRunTerminal: RunTransition(
        ACQUIRED_RUN_STATES, _ENDED, owned=True, admits=answers_itself, carry_out=terminal
    ),
}
"""Every command on a run. What is not here is not about one run."""


_ON_CONVERSATION: Final[dict[type[Command], Callable[..., Decision]]] = {
    AcceptInput: accept,
    ReplaceCompactedRange: replace_range,
    SeedConversation: seed,
    AppendEvent: append_event,
}


def owns(ownership: Ownership, row: RunRow, head: Head, /) -> bool:
    """Whether an executor still holds a run: the owner, and the token and lane epoch if they are given."""
    run = row.run
    return (
        ownership.owner == run.owner_id
        and ownership.fencing_token in {None, run.fencing_token}
        and ownership.lane_epoch in {None, head.lane_epoch}
    )


def reduce(view: View, command: Command, /) -> Decision:
    """Decide one command. Nothing is changed, the view included.

    Raises:
        ConversationPurgedError: The conversation was purged.
        UsageError, InvalidValueError: The command is malformed or misuses an identity.
    """
    if view.head.purged:
        raise ConversationPurgedError(conversation_id=view.conversation_id)
    decide = _ON_CONVERSATION.get(type(command), _on_run)
    return decide(view, command)


def _on_run(view: View, command: RunCommand) -> Decision:
    row = view.run(command.run_id)
    if row is None:
        return Decision(NotFound())
    rule = TRANSITIONS[type(command)]
    if not (command.expected_revision == row.run.revision and _admits(view, row, command, rule)):
        return Decision(Conflict(actual_version=row.run.revision))
    return rule.carry_out(view, row, command)


def _admits(view: View, row: RunRow, command: RunCommand, rule: RunTransition) -> bool:
    if row.run.state not in rule.sources:
        return False
    if rule.owned and not owns(command.ownership, row, view.head):  # type: ignore[union-attr]
        return False
    return rule.admits is None or rule.admits(view, row, command)


def names(commands: tuple[Command, ...], /) -> Names:
    """Return the rows that commands name, which a driver loads before they are decided."""
    wanted = Names()
    for command in commands:
        kind = type(command)
        if kind in TRANSITIONS:
            wanted.runs.add(command.run_id)  # type: ignore[union-attr]
        collect = _NAMED.get(kind)
        if collect is not None:
            collect(wanted, command)
    return wanted


def _of_accept(wanted: Names, command: AcceptInput) -> None:
    wanted.receipts.add(command.idempotency_key)
    wanted.messages.add(command.input.id)
    if command.coalesce_into_run_id is not None:
        wanted.runs.add(command.coalesce_into_run_id)
        return
    wanted.runs.add(command.run.id)
    wanted.messages.add(command.run.assistant_message_id)


def _of_acquire(wanted: Names, command: AcquireRun) -> None:
    wanted.lane = True
    wanted.owners.add(command.owner_id)


def _of_recover(wanted: Names, command: RecoverRun) -> None:
    if command.action == "abandon":
        wanted.drafts.add(command.run_id)


def _of_terminal(wanted: Names, command: CommitRunTerminal) -> None:
    wanted.runs.update([entry.run_id for entry in command.absorb])


def _of_compaction(wanted: Names, command: ReplaceCompactedRange) -> None:
    wanted.lane = True
    wanted.messages.update(command.replaced_message_ids, (command.summary.id,))
    wanted.span = command.replaced_message_ids


def _of_seed(wanted: Names, command: SeedConversation) -> None:
    wanted.lane = True
    wanted.seeds.add(command.seed_key)
    wanted.messages.update([message.id for message in command.inputs])


_NAMED: Final[dict[type[Command], Callable[[Names, Any], None]]] = {
    AcceptInput: _of_accept,
    AcquireRun: _of_acquire,
    RecoverRun: _of_recover,
    CommitRunTerminal: _of_terminal,
    ReplaceCompactedRange: _of_compaction,
    SeedConversation: _of_seed,
}
"""What each command names beside its run."""


def advance(view: View, changes: Changes, /) -> None:
    """Bring a view up to what was just decided, for the next command of the same transaction."""
    view.head = changes.head
    for run_id, (_, after) in changes.runs.items():
        view.active.pop(run_id, None)
        (view.active if after.run.is_active else view.ended)[run_id] = after
    for receipt in changes.receipts:
        view.receipts[receipt.key] = receipt
    for seeded in changes.seeds:
        view.seeds[seeded.key] = seeded
    for row in changes.messages + changes.answers:
        view.messages[row.message_id] = MessagePlace(row.message_id, row.position, None)
    for message_id, position in changes.moved:
        view.messages[message_id] = MessagePlace(message_id, position, None)
    for message_id, version in changes.removed:
        view.messages[message_id] = MessagePlace(message_id, None, version)
    for change in changes.drafts if view.drafts else ():
        kept = () if change.patch == 0 else view.drafts.get(change.run_id, ())
        view.drafts[change.run_id] = kept if change.patch == 0 else (*kept, change.body)
