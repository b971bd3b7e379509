"""What the rest of runlane sees of a store."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self

from typing_extensions import override

from runlane.records import ConversationHead, Message, Run, Snapshot
from runlane.store._archive import ConversationArchive
from runlane.store._branch import BranchConversation, BranchResult
from runlane.store._commands import Command, PurgeConversation, ReadEvents
from runlane.store._named import NamedOperations
from runlane.store._outcomes import (
    Delta,
    EventEnvelope,
    EventPage,
    ImportResult,
    MessagePage,
    Outcome,
    PurgeResult,
    RecoverablePage,
    RunView,
)

__all__ = ["Lease", "Store"]


class Lease(Protocol):
    """Proof that an owner's process lives, renewed by a thread of its own for as long as it is held."""

    @property
    def owner_id(self) -> str:
        """The owner."""
        ...

    @property
    def held(self) -> bool:
        """Whether the lease is still held; once False, for ever False: stop acting for this owner."""
        ...


class Store(NamedOperations):
    """Durable conversations: one mutation, bounded reads.

    A store is opened by `async with` and closed by leaving it. All methods may be called from many tasks at once and
    run on asyncio and trio. A driver lets out only `StoreError`s; misuse raises `UsageError` or `InvalidValueError`
    and leaves every record as it was.

    Attributes:
        clock: Dates the commands of the named operations.
        ids: Names them.
    """

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Open the store, creating or migrating what it needs.

        Raises:
            StoreUnavailableError: It cannot be reached or written.
            StoreForeignError, StoreTooNewError, StoreDamagedError: It is not ours to write.
        """

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Finish what was begun and close; idempotent."""

    # --- the one mutation ---------------------------------------------------------------------------------------

    @override
    @abstractmethod
    async def apply(self, conversation_id: str, commands: Sequence[Command], /) -> tuple[Outcome, ...]:
        """Carry out commands in order, in one transaction: all of them or none.

        Each applied command is its own version step with its own ledger entry.

        On an idle lane an input may be accepted and its run acquired in one commit: send `AcceptInput`, `AcquireRun`
        (expected revision 0) and, if wanted, the first `CheckpointRunAssistant` (revision 1) and `RecordRunOperation`
        (revision 2), both with `Ownership(owner)`, whose token the acquisition gives. A crash leaves all of it or
        nothing. If the lane turns out not to be idle the result is `(Applied, Conflict)` and nothing was written: send
        the same `AcceptInput` again alone. A repeated key gives `(Duplicate,)` at once.

        Returns:
            One outcome a command, in order. If a command is not applied nothing at all is written, and the result
            ends with that command's outcome.

        Raises:
            UsageError, InvalidValueError: A command is malformed or misuses an identity.
            ConversationPurgedError: The conversation was purged.
            StoreCommitUnknownError: Nobody knows whether it committed; send the same commands again.
            StoreError: It could not be carried out; nothing was written.
        """

    @abstractmethod
    async def purge(self, command: PurgeConversation, /) -> PurgeResult:
        """Remove everything under a conversation id and reserve the id for ever.

        Nothing is removed while a run is active, and nothing is interrupted.

        Returns:
            `Purged`, `AlreadyPurged`, `Conflict` (with the version) or `StillActive`.
        """

    async def purge_conversation(self, conversation_id: str, /, *, expected_version: int | None = None) -> PurgeResult:
        """Purge a conversation; see `purge`."""
        return await self.purge(PurgeConversation(conversation_id=conversation_id, expected_version=expected_version))

    # --- whole conversations --------------------------------------------------------------------------------------

    @abstractmethod
    async def export_conversation(self, conversation_id: str, /) -> ConversationArchive:
        """Return a whole conversation, read in one transaction: ledger, runs, messages, drafts, compacted ones too.

        An unknown or purged one gives an archive without events. What is exported can be imported: it is looked through
        as an import is. A run that is under way is exported as it stands; that does not stop it.

        Rows are read in one transaction, and put together in a worker thread: nobody else waits, but the memory that
        takes, and the time, grow with the conversation. On SQLite the read must end within
        `SqliteOptions.read_limit`.

        Raises:
            RecordCorruptError: What is stored contradicts itself.
            StoreUnavailableError: It could not be read, or took too long.
        """

    @abstractmethod
    async def import_conversation(self, archive: ConversationArchive | bytes, /) -> ImportResult:
        """Put an exported conversation, or the bytes of one, into this store, under its own id.

        Afterwards it is the same conversation: the same snapshot, ledger and archive; retried keys are answered with
        their duplicates. A run that was under way is still held by its old owner, of whom this store knows nothing:
        `scan_recoverable` lists it with `owner_alive` None, and whoever imports decides to requeue or to abandon it.
        A seed key that found all of its messages placed already left no ledger entry and is forgotten; a repetition
        finds them again.

        The archive is checked in a worker thread first, whole (`decode_archive`, then whether its parts agree); then
        one write transaction looks whether the conversation is empty and writes its rows. Only for these writes others
        wait. If the outcome of the commit is not known, compare `export_conversation` with the archive.

        Raises:
            ArchiveInvalidError: The archive is not valid; `field` says where. Spilled artefacts and projections that
                this program does not know are refused, never dropped.
            ImportTargetNotEmptyError: The conversation exists, if only by one ledger entry.
            ConversationPurgedError: The id was purged.
            InvalidValueError: It is no archive.
        """

    @abstractmethod
    async def branch_conversation(self, request: BranchConversation, /) -> BranchResult:
        """Begin a new conversation as another one was after one of its turns. The source is not changed.

        The boundary must be settled: the run has ended, and no other turn had begun by then and ended later. Inputs
        that only waited stay behind, and so does what belongs to the source alone: schedules, children, provider calls,
        invocations, artefacts. Messages and runs keep their ids, idempotency keys their duplicates; ledger entries get
        new ids, and sequences and versions count from 1.

        The receipt is written with the branch and stays as long as the branch does: purging the branch removes it,
        purging the source removes the source's id from it. So an outcome that is not known is found by asking again.
        The source is read in one transaction and prepared in a worker thread; others wait only for the last one,
        which writes the new rows.

        Returns:
            `created`; or `duplicate` with the first receipt, if the same request was carried out before.

        Raises:
            UsageError: The key was used for another request, or not exactly one source is given.
            InvalidValueError: A field is not valid, the source is empty, has no such run, or an artefact is named.
            ConversationActiveError: The boundary lies inside a turn that has not ended.
            BranchDestinationTakenError: The destination exists.
            ConversationPurgedError: The destination or the source was purged.
            ArchiveInvalidError: The archive is not valid; `field` says where.
        """

    # --- reads, each bounded but load_snapshot ---------------------------------------------------------------------

    @abstractmethod
    async def load_head(self, conversation_id: str, /) -> ConversationHead:
        """Return the conversation's head; version 0 for an unknown or purged one."""

    @abstractmethod
    async def load_run(self, conversation_id: str, run_id: str, /) -> RunView | None:
        """Return one run, with its answer if it ended; None if the conversation has no such run."""

    @abstractmethod
    async def list_active_runs(self, conversation_id: str, /) -> tuple[Run, ...]:
        """Return the queued and acquired runs in causal order."""

    @abstractmethod
    async def load_draft(self, conversation_id: str, run_id: str, /) -> Message | None:
        """Return the checkpointed draft of an acquired run's answer, or None."""

    @abstractmethod
    async def load_snapshot(self, conversation_id: str, /) -> Snapshot:
        """Return everything active of the conversation, drafts included: for people and exports."""

    @abstractmethod
    async def load_changes(self, conversation_id: str, since_version: int, /) -> Delta:
        """Return what changed after a version the caller holds."""

    @abstractmethod
    async def read_messages(
        self, conversation_id: str, /, *, before: int | str | None = None, limit: int = 100
    ) -> MessagePage:
        """Return stored messages of the active history, newest first; drafts are left out.

        Args:
            conversation_id: The conversation.
            before: `next_before` of the page before, or a position: only those below it. None starts at the newest.
            limit: 1 to 1,000.
        """

    @abstractmethod
    async def scan_recoverable(self, *, cursor: tuple[str, str] | None = None, limit: int = 100) -> RecoverablePage:
        """Return active runs of all conversations, ordered by (conversation id, run id).

        Args:
            cursor: Continue after this pair.
            limit: 1 to 1,000.
        """

    @abstractmethod
    async def read_events(self, query: ReadEvents, /) -> EventPage:
        """Return ledger entries, ascending."""

    @override
    @abstractmethod
    async def find_event(self, conversation_id: str, event_id: str, /) -> EventEnvelope | None:
        """Return one ledger entry by its id, or None; one look-up."""

    # --- ownership ------------------------------------------------------------------------------------------------

    @abstractmethod
    def hold_lease(self, owner_id: str, /) -> AbstractAsyncContextManager[Lease]:
        """Register an owner as living for the length of a block.

        The lease is renewed by a thread of its own; leaving the block releases it, so that the owner's runs can be
        taken over at once.
        """

    @abstractmethod
    async def sweep_owners(self) -> tuple[str, ...]:
        """Take their lanes away from owners that are provably gone; return those owners.

        A swept owner commits nothing more: the epoch of its lanes is raised.
        """

    # --- notification ---------------------------------------------------------------------------------------------

    @abstractmethod
    async def wait_for_change(self, conversation_id: str, version: int, /, *, max_wait: float) -> bool:
        """Wait until the conversation is past `version`, whoever changes it; False after `max_wait` seconds."""
