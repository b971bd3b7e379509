"""One applied command in the making: the rows it writes, the delta it answers with, its ledger entry."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from operator import itemgetter
from types import EllipsisType
from typing import NamedTuple

from runlane.errors import InvalidValueError, UsageError
from runlane.records import JsonObject, Message, Ownership, Run, format_timestamp
from runlane.store._bodies import digest, encode_json
from runlane.store._commands import Command
from runlane.store._ledger import TRANSITION
from runlane.store._order import BLOCK, GAP, answer_position, in_order
from runlane.store._outcomes import Applied, Conflict, Delta, NotFound
from runlane.store._rows import Changes, DraftHead, EventRow, Head, MessageRow, ReceiptRow, RunRow, View, changed_run

__all__ = ["Decision", "Repeat", "Step", "moment", "next_head"]


class Repeat(NamedTuple):
    """An idempotency key that was accepted before; the store completes it to a `Duplicate`."""

    receipt: ReceiptRow


class Decision(NamedTuple):
    """What the reducer decided.

    Attributes:
        changes: What must be written; None unless the outcome is `Applied`, and then None if everything asked for was
            there already.
        placed: Ids of messages that got their place and belong into the delta; the store adds their bodies.
    """

    outcome: Applied | Repeat | Conflict | NotFound
    changes: Changes | None = None
    placed: tuple[str, ...] = ()


def moment(value: datetime, /, *, argument: str = "at") -> datetime:
    """Return an instant in UTC with the precision that is stored.

    Raises:
        InvalidValueError: It has no offset, or its year in UTC is none of 1 to 9999.
    """
    if value.tzinfo is not UTC:
        if value.utcoffset() is None:
            raise InvalidValueError("needs a time zone", argument=argument)
        try:
            value = value.astimezone(UTC)
        except OverflowError:
            raise InvalidValueError("is out of range in UTC", argument=argument) from None
    beyond = value.microsecond % 1000
    return value.replace(microsecond=value.microsecond - beyond) if beyond else value


def next_head(head: Head, version: int, at: str, /, *, admits: bool = False) -> Head:
    """Return a head after one more ledger entry, written at this time; `admits` if the entry is an admission."""
    return Head(
        version,
        head.seq + 1,
        head.lane_epoch,
        head.lane_owner,
        head.purged,
        head.lowest,
        head.next_place,
        head.gap,
        head.created_at or at,
        at,
        at if admits else head.active_at or at,
    )


class Step:
    """Collects what one command changes.

    Attributes:
        version: The conversation's version afterwards.
        at: When the command was issued, as it is stored.
        head: The head so far; `finish` sets version, sequence and times.
    """

    __slots__ = ("_messages", "at", "changes", "command_id", "head", "version")

    def __init__(self, view: View, command: Command, /) -> None:
        self.command_id = command.command_id
        self.at = moment(command.at)
        self.version = view.head.version + 1
        self.head = view.head
        self.changes = Changes(view.head, view.head)
        self._messages: list[tuple[int, Message]] = []

    def add(self, run: Run, /) -> RunRow:
        """Save a new run."""
        after = RunRow(run, self.version, self.version)
        self.changes.runs[run.id] = (None, after)
        return after

    def edit(
        self,
        before: RunRow,
        /,
        *,
        place: int | None = None,
        draft: DraftHead | EllipsisType | None = ...,
        **fields: object,
    ) -> RunRow:
        """Save a run with some fields changed, its revision raised and its time set.

        A place once given stays; `...` leaves the draft as it is.
        """
        run = before.run
        fields["revision"] = run.revision + 1
        fields["updated_at"] = self.at
        after = RunRow(
            changed_run(run, fields),
            before.arrival,
            self.version,
            before.place if place is None else place,
            before.draft if draft is ... else draft,
        )
        self.changes.runs[run.id] = (before, after)
        return after

    def give_place(self, row: RunRow, /, *, acquired: bool) -> int:
        """Return the run's place, giving it one, and its inputs theirs, if it leaves the queue for the first time."""
        if row.place is not None:
            return row.place
        place = self.head.next_place + GAP
        gap = self.head.next_place if acquired else self.head.gap
        self.head = self.head._replace(next_place=place + BLOCK, gap=gap)
        self.move(row.run.input_message_ids, place)
        return place

    def move(self, message_ids: Iterable[str], place: int, /) -> None:
        """Give queued inputs their final positions."""
        self.changes.moved.extend((message_id, place + index) for index, message_id in enumerate(message_ids))

    def insert(self, message: Message, position: int, /) -> JsonObject:
        """Add a message that is whole, and return its reference for the ledger."""
        body = encode_json(message, argument="message")
        self.changes.messages.append(_message_row(message, position, self.version, body))
        self._messages.append((position, message))
        return {"id": message.id, "sha256": digest(body).hex()}

    def reserve(self, message_id: str, run_id: str, /) -> None:
        """Reserve the id of an answer."""
        row = MessageRow(message_id, None, self.version, run_id, "assistant", "pending", None)
        self.changes.messages.append(row)

    def answer(self, message: Message, place: int, /) -> JsonObject:
        """Fill a reserved answer, and return its reference for the ledger."""
        body = encode_json(message, argument="assistant")
        position = answer_position(place)
        self.changes.answers.append(_message_row(message, position, self.version, body))
        self._messages.append((position, message))
        return {"id": message.id, "sha256": digest(body).hex()}

    def finish(
        self,
        kind: str,
        payload: JsonObject,
        /,
        *,
        ownership: Ownership | None = None,
        placed: tuple[str, ...] = (),
    ) -> Decision:
        """Close the step with its ledger entry, whose payload this adds the type to."""
        at, command_id, changes = format_timestamp(self.at), self.command_id, self.changes
        changes.head = head = next_head(self.head, self.version, at, admits=kind == "accept")
        payload["type"] = kind
        body = encode_json(payload, argument="command")
        changes.entries.append(EventRow(head.seq, head.version, command_id, command_id, TRANSITION, at, body))
        removed = tuple([message_id for message_id, _ in changes.removed]) if changes.removed else ()
        delta = Delta(head.version, head.seq, self._changed_runs(), self._changed_messages(), removed)
        return Decision(Applied(delta, ownership), changes, placed)

    def _changed_runs(self) -> tuple[Run, ...]:
        runs = self.changes.runs
        if len(runs) == 1:
            ((_, after),) = runs.values()
            return (after.run,)
        return tuple([row.run for row in in_order([after for _, after in runs.values()])])

    def _changed_messages(self) -> tuple[Message, ...]:
        if not self._messages:
            return ()
        self._messages.sort(key=itemgetter(0))
        return tuple([message for _, message in self._messages])


def _message_row(message: Message, position: int, version: int, body: bytes) -> MessageRow:
    return MessageRow(message.id, position, version, message.run_id, message.role, message.status, body)


def refuse_foreign(view: View, conversation_id: str, /, *, argument: str) -> None:
    """Refuse a record of another conversation.

    Raises:
        UsageError: It belongs to another one.
    """
    if conversation_id != view.conversation_id:
        raise UsageError(
            f"belongs to conversation {conversation_id!r}, not {view.conversation_id!r}", argument=argument
        )
