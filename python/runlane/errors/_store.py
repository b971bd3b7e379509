"""What a store could not do."""

from __future__ import annotations

from collections.abc import Sequence

from runlane.errors._base import RunlaneError
from runlane.errors._formats import FormatError

__all__ = [
    "ArchiveInvalidError",
    "BranchDestinationTakenError",
    "ConversationActiveError",
    "ConversationPurgedError",
    "ImportTargetNotEmptyError",
    "LeaseLostError",
    "RecordCorruptError",
    "RecordTooNewError",
    "StoreBusyError",
    "StoreClosedError",
    "StoreCommitUnknownError",
    "StoreDamagedError",
    "StoreError",
    "StoreForeignError",
    "StoreFullError",
    "StoreTooNewError",
    "StoreUnavailableError",
]


class StoreError(RunlaneError):
    """The store could not do what was asked. A driver lets out no other kind of error.

    Attributes:
        store: Which store, as a path or URL without credentials, if known.
    """

    code = "store"

    def __init__(self, message: str, *, store: str | None = None) -> None:
        super().__init__(message if store is None else f"{store}: {message}")
        self.store = store


class StoreUnavailableError(StoreError):
    """The store cannot be reached or written now: missing rights, a lock held too long, a lost connection."""

    code = "store.unavailable"
    retryable: bool | None = True


class StoreBusyError(StoreUnavailableError):
    """Too many mutations are waiting; nothing was written. Try again shortly."""

    code = "store.busy"


class StoreFullError(StoreUnavailableError):
    """The disk is full; nothing of the refused mutation was written. Free space, then try again."""

    code = "store.full"


class StoreCommitUnknownError(StoreUnavailableError):
    """A commit was sent and its outcome is not known. Send the same commands, with the same ids, again."""

    code = "store.commit_unknown"


class StoreClosedError(StoreError):
    """The store was used before it was opened or after it was closed."""

    code = "store.closed"
    retryable: bool | None = False


class StoreForeignError(StoreError):
    """The file or database is not a runlane store; it was left untouched."""

    code = "store.foreign"
    retryable: bool | None = False


class StoreTooNewError(StoreError):
    """The store was written by a newer version of runlane; it was left untouched. Upgrade this program."""

    code = "store.too_new"
    retryable: bool | None = False


class StoreDamagedError(StoreError):
    """The store is corrupt. Stop writing, keep a copy, restore a backup."""

    code = "store.damaged"
    retryable: bool | None = False


class RecordCorruptError(StoreError):
    """A stored record contradicts itself or its hash; it is refused, never repaired silently."""

    code = "store.record_corrupt"
    retryable: bool | None = False


class RecordTooNewError(StoreError):
    """A stored record has a schema version this program does not know."""

    code = "store.record_too_new"
    retryable: bool | None = False


class LeaseLostError(StoreError):
    """The lease of an owner expired or was taken over; its runs belong to somebody else now.

    Attributes:
        owner: The owner whose lease is gone.
    """

    code = "store.lease_lost"
    retryable: bool | None = False

    def __init__(self, *, owner: str, store: str | None = None) -> None:
        super().__init__(f"the lease of owner {owner!r} is lost", store=store)
        self.owner = owner


class ConversationPurgedError(StoreError):
    """The conversation was purged; its id can never be used again.

    Attributes:
        conversation_id: The purged conversation.
    """

    code = "conversation.purged"
    retryable: bool | None = False

    def __init__(self, *, conversation_id: str) -> None:
        super().__init__(f"conversation {conversation_id!r} was purged; use a new conversation id")
        self.conversation_id = conversation_id


class ConversationActiveError(StoreError):
    """Turns of the conversation have begun and not ended, so it cannot be branched there. Wait, or choose another run.

    Attributes:
        conversation_id: The conversation.
        run_ids: The runs that have not ended.
    """

    code = "conversation.active"
    retryable: bool | None = True

    def __init__(self, *, conversation_id: str, run_ids: Sequence[str]) -> None:
        listed = ", ".join(map(repr, run_ids))
        super().__init__(f"conversation {conversation_id!r} is not settled there: {listed} has not ended")
        self.conversation_id = conversation_id
        self.run_ids = tuple(run_ids)


class BranchDestinationTakenError(StoreError):
    """The destination of a branch is a conversation already; choose a new id.

    Attributes:
        conversation_id: The destination.
    """

    code = "branch.destination_taken"
    retryable: bool | None = False

    def __init__(self, *, conversation_id: str) -> None:
        super().__init__(f"conversation {conversation_id!r} is not empty; a branch needs a new conversation id")
        self.conversation_id = conversation_id


class ImportTargetNotEmptyError(StoreError):
    """The conversation that an archive holds exists already; nothing was written.

    Attributes:
        conversation_id: The conversation.
    """

    code = "import.target_not_empty"
    retryable: bool | None = False

    def __init__(self, *, conversation_id: str) -> None:
        super().__init__(f"conversation {conversation_id!r} is not empty; import it where there is nothing")
        self.conversation_id = conversation_id


class ArchiveInvalidError(FormatError):
    """An archive is not one, contradicts itself, or holds what this program does not know; nothing was written.

    Attributes:
        field: Where, such as `events.3.seq`; empty for the archive as a whole.
        problem: What is wrong there.
    """

    code = "archive.invalid"

    def __init__(self, problem: str, *, field: str = "") -> None:
        super().__init__(f"the archive is not valid{f' at {field}' if field else ''}: {problem}")
        self.field = field
        self.problem = problem
