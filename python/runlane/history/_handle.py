"""`History`: the records of one conversation, parsed once and held for projection and selection."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import pydantic

from runlane.errors import InvalidValueError, ProjectionRefusedError, RecordCorruptError
from runlane.history._interim import Projector, Refused, select
from runlane.history._policy import BARE_EVIDENCE, CallEvidence, EvidencePolicy, ProjectionOptions
from runlane.history._results import BudgetDecision, BudgetOutcome, ProjectionDecision
from runlane.models import AnyModelMessage, FileItem, ModelImage
from runlane.records import Message, TokenCount

__all__ = ["DEFAULT_PROJECTION", "History", "Projection", "Selection"]

DEFAULT_PROJECTION: Final = ProjectionOptions()

_REFUSALS: Final = {
    "leading-assistant": "an assistant record stands before any user record",
    "incomplete-tool-turn": "incomplete tool chronology",
    "unresolved-file": "a file has no resolved data",
}


class Projection:
    """What a model is told of the history.

    Attributes:
        messages: User, assistant and tool messages in order; never a system message.
        system: Texts for the provider's instructions channel, in order: system and summary records, and notes on
            interrupted answers.
        decisions: One per record, in order; made when read.
    """

    def __init__(self, projector: Projector) -> None:
        self.messages: Sequence[AnyModelMessage] = tuple(projector.messages)
        self.system: tuple[str, ...] = tuple(projector.system)
        self._projector = projector

    @functools.cached_property
    def decisions(self) -> Sequence[ProjectionDecision]:
        return [
            ProjectionDecision(d.message_id, d.action, d.reason, d.omitted_parts)  # type: ignore[arg-type]
            for d in self._projector.decisions
        ]


class Selection:
    """Which records a token budget keeps.

    Attributes:
        outcome: `fits`, `truncated` (whole turns were removed), `oversized` (what may not be removed is still too
            much) or `unavailable` (a count is unknown; nothing is removed for the budget's sake).
        total_tokens: Of the kept records; `estimated` if any counted record was, else `computed`.
        kept: Indices of the kept records, ascending.
        decisions: One per record, in order; made when read.
    """

    def __init__(
        self, outcome: BudgetOutcome, total_tokens: TokenCount, kept: Sequence[int], decisions: list[BudgetDecision]
    ) -> None:
        self.outcome = outcome
        self.total_tokens = total_tokens
        self.kept = kept
        self.decisions: Sequence[BudgetDecision] = decisions


class History:
    """The records of one conversation, as stored bytes, parsed once each.

    A handle belongs to one task at a time. It never does I/O and never changes a record. Every method that refuses
    its input leaves the handle as it was.

    Args:
        records: Stored record bytes (JSON, UTF-8), oldest first.

    Raises:
        RecordCorruptError: Bytes that are not a stored message.
        RecordTooNewError: A record written by a newer release.
        InvalidValueError: A message id that is already there.

    Example:
        >>> history = History(message.model_dump_json(exclude_none=True).encode() for message in messages)
        >>> projection = history.project()
        >>> projection.messages, projection.system
    """

    def __init__(self, records: Iterable[bytes] = ()) -> None:
        self._messages: list[Message] = []
        self._bytes: list[bytes] = []
        self._revision = 0
        self.extend(records)

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message_id: object) -> bool:
        return any(message.id == message_id for message in self._messages)

    @property
    def revision(self) -> int:
        """A number that grows with every change of the handle."""
        return self._revision

    def append(self, record: bytes) -> int:
        """Add the newest record and return its index."""
        message = _parsed(record)
        if message.id in self:
            raise InvalidValueError(f"message {message.id!r} is already there; use replace", argument="record")
        self._messages.append(message)
        self._bytes.append(record)
        self._revision += 1
        return len(self._messages) - 1

    def extend(self, records: Iterable[bytes]) -> None:
        """Append records, oldest first; all or none."""
        before = len(self._messages), self._revision
        try:
            for record in records:
                self.append(record)
        except BaseException:
            del self._messages[before[0] :], self._bytes[before[0] :]
            self._revision = before[1]
            raise

    def replace(self, record: bytes) -> int:
        """Put a newer version of a record in the place of the one with the same message id; return its index.

        Raises:
            InvalidValueError: No record has this id.
        """
        message = _parsed(record)
        index = self._index(message.id)
        self._messages[index] = message
        self._bytes[index] = record
        self._revision += 1
        return index

    def put(self, record: bytes) -> int:
        """Replace the record with the same message id, or append if there is none; return its index."""
        return self.replace(record) if _parsed(record).id in self else self.append(record)

    def insert(self, index: int, record: bytes) -> None:
        """Add a record before the one at `index`, such as a summary in the place of what it replaced."""
        message = _parsed(record)
        if message.id in self:
            raise InvalidValueError(f"message {message.id!r} is already there; use replace", argument="record")
        self._messages.insert(index, message)
        self._bytes.insert(index, record)
        self._revision += 1

    def remove(self, message_ids: Iterable[str]) -> None:
        """Take records out by their message ids; all or none.

        Raises:
            InvalidValueError: No record has one of the ids.
        """
        indices = {self._index(message_id) for message_id in message_ids}
        self._messages = [message for i, message in enumerate(self._messages) if i not in indices]
        self._bytes = [record for i, record in enumerate(self._bytes) if i not in indices]
        self._revision += 1

    def record(self, index: int) -> bytes:
        """Return the stored bytes of one record."""
        return self._bytes[index]

    def project(
        self,
        options: ProjectionOptions = DEFAULT_PROJECTION,
        *,
        active_runs: AbstractSet[str] = frozenset(),
        effects: Mapping[str, CallEvidence] | None = None,
        files: Mapping[tuple[str, int], FileItem | ModelImage] | None = None,
        selection: Selection | None = None,
    ) -> Projection:
        """Turn the records into what a model is told.

        Args:
            options: How; the defaults are those of the bare functions.
            active_runs: Ids of the runs of this conversation that have not ended. Their calls are never closed.
            effects: Per call id, what is known of a call that never got a result. A call that is not named counts as
                `interrupted` on an interrupted record, as `not-started` after a denial, else as `unknown`.
            files: What `resolve_files` gave.
            selection: Project only what a budget selection of this handle kept.

        Raises:
            ProjectionRefusedError: An option is `error` and a record is such a case.
            UsageError: `selection` was made before the handle last changed.
        """
        records = self._messages if selection is None else [self._messages[i] for i in selection.kept]
        return _projected(records, options, active_runs, effects, files)

    def select(
        self,
        available_tokens: int,
        *,
        count: Callable[[Message], TokenCount],
        keep_recent_turns: int = 1,
        evidence_policy: EvidencePolicy = BARE_EVIDENCE,
        active_runs: AbstractSet[str] = frozenset(),
    ) -> Selection:
        """Keep the newest turns that fit a token budget; no turn is ever split.

        Raises:
            InvalidValueError: A negative number.
        """
        counts = [count(message) for message in self._messages]
        selected = select(
            self._messages,
            counts,
            available_tokens,
            keep_recent_turns=keep_recent_turns,
            policy=evidence_policy,
            active_runs=active_runs,
        )
        decisions = [BudgetDecision(*decision) for decision in selected.decisions]  # type: ignore[arg-type]
        return Selection(selected.outcome, selected.total, selected.kept, decisions)  # type: ignore[arg-type]

    def _index(self, message_id: str) -> int:
        for index, message in enumerate(self._messages):
            if message.id == message_id:
                return index
        raise InvalidValueError(f"no record has the message id {message_id!r}", argument="message_id")


def _projected(
    records: Sequence[Message],
    options: ProjectionOptions,
    active_runs: AbstractSet[str],
    effects: Mapping[str, CallEvidence] | None,
    files: Mapping[tuple[str, int], FileItem | ModelImage] | None,
) -> Projection:
    try:
        return Projection(Projector(records, options, active_runs=active_runs, effects=effects, files=files))
    except Refused as refused:
        raise ProjectionRefusedError(
            f"record {refused.message_id!r}: {_REFUSALS[refused.reason]}",
            message_id=refused.message_id,
            reason=refused.reason,
        ) from None


def _parsed(record: bytes) -> Message:
    try:
        return Message.model_validate_json(record)
    except pydantic.ValidationError as error:
        raise RecordCorruptError(str(error)) from None


def project_history(
    messages: Sequence[Message], options: ProjectionOptions = DEFAULT_PROJECTION
) -> Sequence[AnyModelMessage]:
    """Return only the messages of `project_history_detailed`."""
    return project_history_detailed(messages, options).messages


def project_history_detailed(
    messages: Sequence[Message],
    options: ProjectionOptions = DEFAULT_PROJECTION,
    *,
    active_runs: AbstractSet[str] = frozenset(),
    effects: Mapping[str, CallEvidence] | None = None,
    files: Mapping[tuple[str, int], FileItem | ModelImage] | None = None,
) -> Projection:
    """Project a list of records, for those who keep their own history; see `History.project`."""
    return _projected(messages, options, active_runs, effects, files)
