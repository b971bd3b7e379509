"""`History`: the records of one conversation, parsed once and held for projection and selection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from typing_extensions import Unpack

from runlane._native import HistoryLog, NativeError
from runlane.errors import UsageError
from runlane.history._bridge import MAX_COUNT, raise_refusal
from runlane.history._budget import SelectHistoryOptions, Selection, select_log
from runlane.history._compaction import CompactableRange, SelectCompactableHistoryOptions, compactable_range
from runlane.history._given import given_texts, require_kind, require_text
from runlane.history._policy import CallEffects, ProjectionOptions
from runlane.history._projection import (
    DEFAULT_PROJECTION,
    OpenAIChatBodyWriter,
    Projection,
    ResolvedFiles,
    project_log,
)
from runlane.history._tokens import BYTE_BOUND, TokenCounter, count_record
from runlane.records import FilePart, Message, TokenCount

__all__ = ["History"]


class History:
    """The records of one conversation, as stored bytes, each parsed once.

    What was worked out for one projection or selection is gone on from at the next, so one more turn costs that turn.
    A handle never does I/O and never changes a record; a method that refuses its input leaves the handle as it was.
    A handle belongs to one task at a time.

    Args:
        records: Stored record bytes (JSON in UTF-8), oldest first.

    Raises:
        RecordCorruptError: Bytes that are not a stored message.
        RecordTooNewError: A record written by a later release.
        InvalidValueError: A message id that is already there.
        UsageError: Something that is not bytes.

    Example:
        >>> from datetime import UTC, datetime
        >>> from runlane.records import TextPart
        >>> now = datetime(2026, 1, 2, tzinfo=UTC)
        >>> said = Message(
        ...     id="m1",
        ...     conversation_id="c1",
        ...     role="user",
        ...     status="committed",
        ...     parts=(TextPart(text="Hello"),),
        ...     created_at=now,
        ...     updated_at=now,
        ... )
        >>> history = History([said.model_dump_json(exclude_none=True).encode()])
        >>> [message.text for message in history.project().messages]
        ['Hello']
    """

    __slots__ = ("_log", "_writers")

    def __init__(self, records: Iterable[bytes] = (), /) -> None:
        """Take the first records."""
        self._log = HistoryLog()
        self._writers: dict[bool, OpenAIChatBodyWriter] = {}
        self.extend(records)

    def __len__(self) -> int:
        return len(self._log)

    def __contains__(self, message_id: object) -> bool:
        return isinstance(message_id, str) and self.index(message_id) is not None

    @property
    def revision(self) -> int:
        """A number that is another one after every change of the handle."""
        return self._log.revision

    @property
    def stored_bytes(self) -> int:
        """The bytes of all records together: what a compaction probe asks."""
        return self._log.stored_bytes

    @property
    def held_bytes(self) -> int:
        """The memory the handle holds, spare capacity included."""
        return self._log.held_bytes

    @property
    def message_ids(self) -> tuple[str, ...]:
        """The message ids, in order."""
        return tuple(self.message_id(index) for index in range(len(self)))

    def message_id(self, index: int, /) -> str:
        """Return the message id of one record.

        Raises:
            IndexError: There is no such record.
        """
        message_id = self._log.message_id(_place(index))
        if message_id is None:
            raise IndexError(index)
        return message_id

    def index(self, message_id: str, /) -> int | None:
        """Return the index of the record with a message id, or None."""
        try:
            return self._log.find(message_id)
        except UnicodeEncodeError:
            return None
        except TypeError as error:
            raise UsageError(str(error), argument="message_id") from None

    def record(self, index: int, /) -> bytes:
        """Return the stored bytes of one record.

        Raises:
            IndexError: There is no such record.
        """
        record = self._log.record(_place(index))
        if record is None:
            raise IndexError(index)
        return record

    # --- changes ------------------------------------------------------------------------------------------------

    def append(self, record: bytes, /) -> int:
        """Add the newest record and return its index.

        Raises:
            RecordCorruptError, RecordTooNewError: See the class.
            InvalidValueError: A record with this message id is already there.
        """
        try:
            return self._log.append(record)
        except NativeError as refusal:
            raise_refusal(refusal)
        except TypeError as error:
            raise UsageError(str(error), argument="record") from None

    def extend(self, records: Iterable[bytes], /) -> None:
        """Add records, oldest first; all or none. Raises what `append` raises."""
        try:
            self._log.extend(list(records))
        except NativeError as refusal:
            raise_refusal(refusal)
        except TypeError as error:
            raise UsageError(str(error), argument="records") from None

    def replace(self, record: bytes, /) -> int:
        """Put a newer version in the place of the record with the same message id, and return its index.

        Raises:
            RecordCorruptError, RecordTooNewError: See the class.
            InvalidValueError: No record has this message id.
        """
        try:
            return self._log.replace(record)
        except NativeError as refusal:
            raise_refusal(refusal)
        except TypeError as error:
            raise UsageError(str(error), argument="record") from None

    def put(self, record: bytes, /) -> int:
        """Replace the record with the same message id, or add the newest one if there is none; return its index.

        Raises:
            RecordCorruptError, RecordTooNewError: See the class.
        """
        try:
            return self._log.put(record)
        except NativeError as refusal:
            raise_refusal(refusal)
        except TypeError as error:
            raise UsageError(str(error), argument="record") from None

    def insert(self, index: int, record: bytes, /) -> None:
        """Put a record before the one at `index`, such as a summary where what it stands for was.

        Raises:
            RecordCorruptError, RecordTooNewError: See the class.
            InvalidValueError: A record with this message id is already there, or there is no such index.
        """
        place = _place(index)
        try:
            self._log.insert(place, record)
        except NativeError as refusal:
            raise_refusal(refusal)
        except TypeError as error:
            raise UsageError(str(error), argument="record") from None

    def remove(self, message_ids: Iterable[str], /) -> None:
        """Take records out by their message ids; all or none.

        Raises:
            InvalidValueError: No record has one of the ids.
        """
        try:
            self._log.remove(given_texts(message_ids, "message_ids"))
        except NativeError as refusal:
            raise_refusal(refusal)

    # --- questions ----------------------------------------------------------------------------------------------

    def project(
        self,
        options: ProjectionOptions = DEFAULT_PROJECTION,
        /,
        *,
        active_runs: AbstractSet[str] = frozenset(),
        effects: CallEffects | None = None,
        files: ResolvedFiles | None = None,
        selection: Selection | None = None,
    ) -> Projection:
        """Turn the records into what a model is told.

        Args:
            options: How; the defaults are those of the bare functions, `RUNTIME_EVIDENCE` is a runtime's.
            active_runs: Ids of the conversation's runs that have not ended. A call to which one of them may still give
                a result is not closed: one that it made, or one whose answer is among its inputs. An active run
                without an assistant record has the inputs behind the last assistant record.
            effects: By call id, or by message id and call id, what is known of calls that never got a result. One that
                is not named counts as `not-started` after a denial, as `interrupted` on an interrupted record, else as
                `unknown`.
            files: Data of users' files, from `resolve_files`.
            selection: Project only what a selection of this handle kept.

        Raises:
            ProjectionRefusedError: An option is `error` and a record is such a case.
            InvalidValueError: An effect is not one of the words, or named by something else.
            UsageError: The handle changed since the selection.
        """
        if selection is not None:
            require_kind(selection, Selection, "selection")
        chosen = None if selection is None else selection.native
        projection = project_log(self._log, options, active_runs, effects, files, chosen)
        projection.messages.keep_fragments_in(self._writers)
        return projection

    def select(
        self,
        available_tokens: int,
        /,
        *,
        counter: TokenCounter | str = BYTE_BOUND,
        **options: Unpack[SelectHistoryOptions],
    ) -> Selection:
        """Keep the newest turns that fit a token budget; see `select_history` for the rules.

        Args:
            available_tokens: What there is for the records, from 0 to 2**53 - 1.
            counter: Counts records that were not counted yet under its name; or the name of counts that were given
                with `give_counts`. By default a bound in bytes, never too low.
            options: See `SelectHistoryOptions`.

        Raises:
            UsageError: A number is no int.
            InvalidValueError: A number is negative or too large.
        """
        place = self._counted(counter)
        return Selection(*select_log(self._log, available_tokens, place, options))

    def give_counts(self, name: str, counts: Mapping[str, TokenCount], /) -> None:
        """Say what records count, by message id, under a name; for estimators that need time or a network.

        A record that is replaced loses its count. Unknown ids are ignored.
        """
        require_kind(counts, Mapping, "counts")
        for count in counts.values():
            require_kind(count, TokenCount, "counts")
        found = ((self.index(message_id), count) for message_id, count in counts.items())
        given = [(place, count.value, count.provenance) for place, count in found if place is not None]
        self._log.set_counts(self._log.counter(require_text(name, "name")), given)

    def uncounted(self, name: str, /) -> tuple[str, ...]:
        """Return the message ids of records without a count under this name, in order."""
        return tuple(
            self.message_id(place) for place in self._log.uncounted(self._log.counter(require_text(name, "name")))
        )

    def compactable(
        self, keep_recent_turns: int, /, **options: Unpack[SelectCompactableHistoryOptions]
    ) -> CompactableRange:
        """Say which records may be replaced by a summary; see `select_compactable_history` for the rules.

        Raises:
            UsageError: `keep_recent_turns` is no int.
            InvalidValueError: It is negative or too large.
        """
        return compactable_range(self._log, keep_recent_turns, options)

    def file_parts(self) -> list[tuple[Message, int, FilePart]]:
        """Return the files that users sent, with their messages and their places in them; for `resolve_files`."""
        found = []
        for place, part in self._log.files():
            message = Message.model_validate_json(self.record(place))
            file = message.parts[part]
            if isinstance(file, FilePart):
                found.append((message, part, file))
        return found

    def _counted(self, counter: TokenCounter | str) -> int | None:
        """Return where the counts are kept, all of them there; None for the byte bound, which needs none."""
        if isinstance(counter, str):
            return self._log.counter(require_text(counter, "counter"))
        if counter is BYTE_BOUND:
            return None
        place = self._log.counter(counter.name)
        counts: list[tuple[int, int | None, str]] = []
        for record in self._log.uncounted(place):
            texts, frames = self._log.said(record)
            counts.append((record, count_record(texts, frames, counter), counter.provenance))
        if counts:
            self._log.set_counts(place, counts)
        return place


def _place(index: object) -> int:
    """Return an index that the native half takes; one that nothing has for what is out of its range.

    Raises:
        UsageError: It is no int.
    """
    if isinstance(index, bool) or not isinstance(index, int):
        raise UsageError(f"must be an int, not {type(index).__name__}", argument="index")
    return index if 0 <= index <= MAX_COUNT else MAX_COUNT
