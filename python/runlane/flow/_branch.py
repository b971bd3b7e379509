"""Where an engine's work stands, told as records: branches and checkpoints."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import JsonValue, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from runlane.canonical import decode_lossless, encode_lossless
from runlane.contracts import Id, IdField, Record, TimestampMs
from runlane.errors import InvalidValueError

__all__ = ["AgentBranch", "AgentCheckpoint", "AgentCheckpointRecord"]


class AgentBranch(Record):
    """A line of work. The ids of its origin are all there (it is a fork) or all absent.

    Attributes:
        parent_branch_id: The branch it forked from.
        origin_run_id: The run whose checkpoint it started at.
        origin_checkpoint_id: That checkpoint.
    """

    agent_id: IdField
    thread_id: IdField
    branch_id: IdField
    parent_branch_id: IdField | None = None
    origin_run_id: IdField | None = None
    origin_checkpoint_id: IdField | None = None

    @model_validator(mode="after")
    def _origin_is_whole(self) -> Self:
        origin = (self.parent_branch_id, self.origin_run_id, self.origin_checkpoint_id)
        if len({part is None for part in origin}) > 1:
            text = "parent_branch_id, origin_run_id and origin_checkpoint_id come together or not at all"
            raise PydanticCustomError("origin", text)
        return self


class AgentCheckpointRecord(Record):
    """A checkpoint as it is kept. It holds what the host put in, and nothing else of the engine.

    Attributes:
        round: The round it was made in; 0 outside of one.
        data: Lossless JSON.
    """

    version: Literal[1] = 1
    checkpoint_id: IdField
    run_id: IdField
    branch: AgentBranch
    round: int
    created_at: TimestampMs
    data: JsonValue


class AgentCheckpoint:
    """Data the host wanted to remember, detached: every read gives a copy of its own."""

    __slots__ = ("_branch", "_checkpoint_id", "_created_at", "_data", "_round", "_run_id")

    def __init__(
        self,
        data: object,
        /,
        *,
        checkpoint_id: Id,
        run_id: Id,
        branch: AgentBranch,
        round: int,  # noqa: A002 - the record's own word
        created_at: TimestampMs,
    ) -> None:
        """Take a copy of `data`.

        Raises:
            CanonicalJsonError: It is not lossless JSON; the error names the place.
        """
        self._data = encode_lossless(data)
        self._checkpoint_id = checkpoint_id
        self._run_id = run_id
        self._branch = branch
        self._round = round
        self._created_at = created_at

    @property
    def checkpoint_id(self) -> Id:
        """The checkpoint's id."""
        return self._checkpoint_id

    @property
    def run_id(self) -> Id:
        """The run it was made in."""
        return self._run_id

    @property
    def branch(self) -> AgentBranch:
        """The branch it was made on."""
        return self._branch

    @property
    def round(self) -> int:
        """The round it was made in."""
        return self._round

    @property
    def created_at(self) -> TimestampMs:
        """When it was made."""
        return self._created_at

    def read(self) -> JsonValue:
        """Return a fresh copy of the data."""
        data: JsonValue = decode_lossless(self._data)
        return data

    def to_record(self) -> AgentCheckpointRecord:
        """Return it as a record to keep."""
        return AgentCheckpointRecord(
            checkpoint_id=self._checkpoint_id,
            run_id=self._run_id,
            branch=self._branch,
            round=self._round,
            created_at=self._created_at,
            data=self.read(),
        )

    @classmethod
    def from_record(cls, record: AgentCheckpointRecord | object, /) -> AgentCheckpoint:
        """Make a checkpoint of a record, or of the JSON of one.

        Raises:
            InvalidValueError: It is no such record, or of another version.
        """
        if not isinstance(record, AgentCheckpointRecord):
            try:
                record = AgentCheckpointRecord.model_validate(record)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False, include_context=False)[0]
                path = ".".join(["checkpoint", *(str(step) for step in first["loc"])])
                raise InvalidValueError(first["msg"], argument=path) from None
        return cls(
            record.data,
            checkpoint_id=record.checkpoint_id,
            run_id=record.run_id,
            branch=record.branch,
            round=record.round,
            created_at=record.created_at,
        )
