"""The named operations of a store: keyword arguments in, one command out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from runlane.clock import Clock
from runlane.errors import ConversationPurgedError
from runlane.ids import IdSource
from runlane.records import (
    JsonObject,
    Message,
    Ownership,
    Run,
    RunMetrics,
    RunOperation,
    TerminalReason,
    Usage,
)
from runlane.store._commands import (
    Absorption,
    AcceptInput,
    AcquireRun,
    AppendEvent,
    CancelRun,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    DraftPatch,
    RecordRunOperation,
    RecoverRun,
    ReplaceCompactedRange,
    RequestRunInterrupt,
    SeedConversation,
)
from runlane.store._ledger import EventKind, once_event_id
from runlane.store._outcomes import Applied, EventEnvelope, Outcome
from runlane.store._shape import check_kind, listed

__all__ = ["AppendedEvent", "NamedOperations"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedEvent:
    """What a once-only append gave: the entry of the first append, whoever made it."""

    outcome: Literal["applied", "duplicate"]
    event: EventEnvelope


class NamedOperations(ABC):
    """Each is `Store.apply` with one command, named by the store's `IdSource` and dated by its `Clock`.

    Use `apply` itself to join several commands in one transaction, or to choose the command ids.
    """

    clock: Clock
    ids: IdSource

    @abstractmethod
    async def apply(self, conversation_id: str, commands: Sequence[Command], /) -> tuple[Outcome, ...]:
        """Carry out commands; see `Store.apply`."""

    @abstractmethod
    async def find_event(self, conversation_id: str, event_id: str, /) -> EventEnvelope | None:
        """Return one ledger entry, or None."""

    async def _one(self, conversation_id: str, command: Command) -> Outcome:
        return (await self.apply(conversation_id, (command,)))[-1]

    def _command_id(self) -> str:
        return self.ids.new("command")

    async def accept_input(
        self,
        *,
        idempotency_key: str,
        input: Message,  # noqa: A002  the field's name everywhere
        run: Run,
        expected_version: int | None = None,
        coalesce_into_run_id: str | None = None,
    ) -> Outcome:
        """Commit an input and assign it to a run; see `AcceptInput`."""
        check_kind(input, Message, "input")
        command = AcceptInput(
            command_id=self._command_id(),
            at=self.clock.now(),
            idempotency_key=idempotency_key,
            input=input,
            run=run,
            expected_version=expected_version,
            coalesce_into_run_id=coalesce_into_run_id,
        )
        return await self._one(input.conversation_id, command)

    async def acquire_run(self, *, conversation_id: str, run_id: str, expected_revision: int, owner_id: str) -> Outcome:
        """Make an owner the only executor of a run; see `AcquireRun`."""
        command = AcquireRun(
            command_id=self._command_id(),
            at=self.clock.now(),
            run_id=run_id,
            expected_revision=expected_revision,
            owner_id=owner_id,
        )
        return await self._one(conversation_id, command)

    async def checkpoint_run_assistant(
        self,
        *,
        conversation_id: str,
        run_id: str,
        expected_revision: int,
        ownership: Ownership,
        patch: DraftPatch,
        usage: Usage | None = None,
    ) -> Outcome:
        """Extend a run's draft; see `CheckpointRunAssistant`."""
        command = CheckpointRunAssistant(
            command_id=self._command_id(),
            at=self.clock.now(),
            run_id=run_id,
            expected_revision=expected_revision,
            ownership=ownership,
            patch=patch,
            usage=usage,
        )
        return await self._one(conversation_id, command)

    async def record_run_operation(
        self,
        *,
        conversation_id: str,
        run_id: str,
        expected_revision: int,
        ownership: Ownership,
        operation: RunOperation,
    ) -> Outcome:
        """Record what a run is doing; see `RecordRunOperation`."""
        command = RecordRunOperation(
            command_id=self._command_id(),
            at=self.clock.now(),
            run_id=run_id,
            expected_revision=expected_revision,
            ownership=ownership,
            operation=operation,
        )
        return await self._one(conversation_id, command)

    async def request_run_interrupt(self, *, conversation_id: str, run_id: str, expected_revision: int) -> Outcome:
        """Ask a run's executor to stop; see `RequestRunInterrupt`."""
        command = RequestRunInterrupt(
            command_id=self._command_id(), at=self.clock.now(), run_id=run_id, expected_revision=expected_revision
        )
        return await self._one(conversation_id, command)

    async def cancel_run(self, *, conversation_id: str, run_id: str, expected_revision: int) -> Outcome:
        """End a queued run; see `CancelRun`."""
        command = CancelRun(
            command_id=self._command_id(), at=self.clock.now(), run_id=run_id, expected_revision=expected_revision
        )
        return await self._one(conversation_id, command)

    async def recover_run(
        self,
        *,
        conversation_id: str,
        run_id: str,
        expected_revision: int,
        action: Literal["requeue", "abandon"],
        replay_safe: bool = False,
        evidence: JsonObject | None = None,
    ) -> Outcome:
        """Take a run away from an executor that is gone; see `RecoverRun`."""
        command = RecoverRun(
            command_id=self._command_id(),
            at=self.clock.now(),
            run_id=run_id,
            expected_revision=expected_revision,
            action=action,
            replay_safe=replay_safe,
            evidence=evidence,
        )
        return await self._one(conversation_id, command)

    async def commit_run_terminal(  # noqa: PLR0913  one keyword for each field of the command
        self,
        *,
        conversation_id: str,
        run_id: str,
        expected_revision: int,
        ownership: Ownership,
        assistant: Message,
        reason: TerminalReason,
        policy_name: str | None = None,
        usage: Usage | None = None,
        metrics: RunMetrics | None = None,
        absorb: tuple[Absorption, ...] = (),
    ) -> Outcome:
        """End a run with its answer; see `CommitRunTerminal`."""
        command = CommitRunTerminal(
            command_id=self._command_id(),
            at=self.clock.now(),
            run_id=run_id,
            expected_revision=expected_revision,
            ownership=ownership,
            assistant=assistant,
            reason=reason,
            policy_name=policy_name,
            usage=usage,
            metrics=metrics,
            absorb=absorb,
        )
        return await self._one(conversation_id, command)

    async def replace_compacted_range(
        self, *, expected_version: int, replaced_message_ids: Sequence[str], summary: Message
    ) -> Outcome:
        """Replace messages by a summary; see `ReplaceCompactedRange`."""
        check_kind(summary, Message, "summary")
        command = ReplaceCompactedRange(
            command_id=self._command_id(),
            at=self.clock.now(),
            expected_version=expected_version,
            replaced_message_ids=listed(replaced_message_ids, "replaced_message_ids"),
            summary=summary,
        )
        return await self._one(summary.conversation_id, command)

    async def seed_conversation(
        self,
        *,
        conversation_id: str,
        seed_key: str,
        inputs: Sequence[Message],
        placement: Literal["lead", "after-settled"] = "lead",
    ) -> Outcome:
        """Place messages once for ever; see `SeedConversation`."""
        command = SeedConversation(
            command_id=self._command_id(),
            at=self.clock.now(),
            seed_key=seed_key,
            inputs=listed(inputs, "inputs"),
            placement=placement,
        )
        return await self._one(conversation_id, command)

    # --- the ledger -----------------------------------------------------------------------------------------------

    async def append_event(
        self,
        *,
        conversation_id: str,
        kind: EventKind,
        payload: JsonObject,
        occurred_at: datetime | None = None,
        ignorable: bool = False,
    ) -> EventEnvelope:
        """Append a ledger entry and return it; see `AppendEvent`."""
        appended = await self._append(conversation_id, self._event(kind, payload, occurred_at, ignorable, None))
        return appended.event

    async def append_event_once(
        self,
        *,
        conversation_id: str,
        kind: EventKind,
        key: str,
        payload: JsonObject,
        occurred_at: datetime | None = None,
        ignorable: bool = False,
    ) -> AppendedEvent:
        """Append a ledger entry unless this key of this kind was appended to the conversation before.

        The first entry answers every repetition, whatever payload it brings.
        """
        event_id = once_event_id(kind, key)
        return await self._append(conversation_id, self._event(kind, payload, occurred_at, ignorable, event_id))

    async def find_event_once(self, *, conversation_id: str, kind: EventKind, key: str) -> EventEnvelope | None:
        """Return the entry that `append_event_once` appended, or None; one look-up."""
        return await self.find_event(conversation_id, once_event_id(kind, key))

    def _event(
        self,
        kind: EventKind,
        payload: JsonObject,
        occurred_at: datetime | None,
        ignorable: bool,  # noqa: FBT001  internal
        event_id: str | None,
    ) -> AppendEvent:
        return AppendEvent(
            command_id=self._command_id(),
            at=self.clock.now(),
            kind=kind,
            payload=payload,
            occurred_at=occurred_at,
            ignorable=ignorable,
            event_id=event_id,
        )

    async def _append(self, conversation_id: str, command: AppendEvent) -> AppendedEvent:
        outcome = await self._one(conversation_id, command)
        event = await self.find_event(conversation_id, command.event_id or command.command_id)
        if event is None:
            raise ConversationPurgedError(conversation_id=conversation_id)  # nothing else takes an entry away
        return AppendedEvent(outcome="applied" if isinstance(outcome, Applied) else "duplicate", event=event)
