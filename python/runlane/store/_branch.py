"""What a branch is asked for and answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from runlane.canonical import canonical_record_hash
from runlane.errors import InvalidValueError, RecordCorruptError, UsageError
from runlane.records import Record, RecordId, RecordVersion, Timestamp
from runlane.store._bodies import digest
from runlane.store._rows import BranchRow
from runlane.store._shape import check_id, check_kind

__all__ = ["BranchConversation", "BranchReceipt", "BranchResult", "check_branch", "fingerprint", "receipt"]

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchConversation:
    """A new conversation that begins as another one was after one of its turns; see `Store.branch_conversation`.

    A request for consent that nobody has answered by then stays with the source, where it can still be answered; in the
    branch its call counts as cut off.

    Attributes:
        request_key: Names this request for ever, in the whole store: a repetition makes no second branch.
        destination_id: The new conversation; it must be empty and never purged.
        source_id: The conversation to branch, or None if `archive` is given. Exactly one of both is.
        archive: The bytes of an archive to branch (`encode_archive`).
        run_id: The run whose end is the boundary; None takes everything, and then every run must have ended.
        artifacts: Ids of artefacts that the caller may take along: nothing is inherited from the source. This program
            cannot carry any under a new conversation id yet, so one that is named is refused.
    """

    request_key: str
    destination_id: str
    source_id: str | None = None
    archive: bytes | None = None
    run_id: str | None = None
    artifacts: tuple[str, ...] = ()


class BranchReceipt(Record):
    """Proof of a branch, kept as long as the new conversation.

    Attributes:
        fingerprint: SHA-256 of what was asked for, lower-case hexadecimal.
        source_id: The conversation that was branched; None once it was purged from this store.
        source_seq, source_version: The boundary in its ledger: the last entry, and the version after it.
        source_sha256: SHA-256 of the canonical JSON list of its ledger entries up to there, lower-case hexadecimal.
    """

    request_key: RecordId
    fingerprint: Digest
    source_id: RecordId | None = None
    destination_id: RecordId
    source_seq: RecordVersion
    source_version: RecordVersion
    source_sha256: Digest
    created_at: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchResult:
    """What a request for a branch came to: `created`, or `duplicate` with the receipt of the first request."""

    outcome: Literal["created", "duplicate"]
    receipt: BranchReceipt


def check_branch(request: BranchConversation, /) -> None:
    """Refuse a request that could not be carried out.

    Raises:
        UsageError: Not exactly one source is given.
        InvalidValueError: A field has a value it may not have, or an artefact is named.
    """
    check_kind(request, BranchConversation, "request")
    check_id(request.request_key, "request_key")
    check_id(request.destination_id, "destination_id")
    if (request.source_id is None) == (request.archive is None):
        raise UsageError("give exactly one of source_id and archive", argument="source_id")
    if request.source_id is not None:
        check_id(request.source_id, "source_id")
    else:
        check_kind(request.archive, bytes, "archive")
    if request.run_id is not None:
        check_id(request.run_id, "run_id")
    check_kind(request.artifacts, tuple, "artifacts")
    for index, artifact in enumerate(request.artifacts):
        check_id(artifact, f"artifacts.{index}")
        raise InvalidValueError(
            "artefacts cannot be carried into a branch yet; name none", argument=f"artifacts.{index}"
        )


def fingerprint(request: BranchConversation, /) -> bytes:
    """Return the SHA-256 of what is asked for, the key aside."""
    asked = {
        "destination_id": request.destination_id,
        "source_id": request.source_id,
        "archive_sha256": None if request.archive is None else digest(request.archive).hex(),
        "run_id": request.run_id,
        "artifacts": sorted(request.artifacts),
    }
    return bytes.fromhex(canonical_record_hash(asked))


def receipt(row: BranchRow, /) -> BranchReceipt:
    """Return a stored receipt as a record.

    Raises:
        RecordCorruptError: It is none.
    """
    facts = {
        "request_key": row.key,
        "fingerprint": row.fingerprint.hex(),
        "source_id": row.source_id,
        "destination_id": row.destination_id,
        "source_seq": row.source_seq,
        "source_version": row.source_version,
        "source_sha256": row.source_sha256.hex(),
        "created_at": row.created_at,
    }
    try:
        return BranchReceipt.model_validate(facts)
    except ValidationError as error:
        raise RecordCorruptError(
            f"the receipt of branch {row.key!r} is not valid: {error.errors()[0]['msg']}"
        ) from None
