"""What a model is told of a history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal, NamedTuple, TypeAlias, cast, overload

from typing_extensions import override

from runlane._native import ChatFragments, HistoryLog, HistoryPlan, HistorySelection, NativeError
from runlane.errors import InvalidValueError
from runlane.history._bridge import log_of, raise_refusal
from runlane.history._given import given_dict, given_texts, require_kind
from runlane.history._lazy import LazySequence
from runlane.history._policy import CallEffects, ProjectionOptions, packed_options
from runlane.models import AnyModelMessage, FileItem, ModelImage, StoredMessages
from runlane.records import Message

__all__ = [
    "DEFAULT_PROJECTION",
    "OpenAIChatBodyWriter",
    "ProjectedMessages",
    "Projection",
    "ProjectionDecision",
    "ProjectionReason",
    "ProjectionResult",
    "ResolvedFiles",
    "project_history",
    "project_history_detailed",
    "project_log",
]

DEFAULT_PROJECTION: Final = ProjectionOptions()
"""The options of the bare functions."""

ResolvedFiles: TypeAlias = Mapping[tuple[str, int], FileItem | ModelImage]
"""Data of users' files, by message id and the file part's place in the message; `resolve_files` makes it."""

ProjectionReason: TypeAlias = Literal[
    "projected",
    "draft-or-failed",
    "empty",
    "leading-assistant",
    "incomplete-tool-turn",
    "interrupted",
    "superseded",
]

_NO_PIECES: Final[dict[tuple[str, int], bytes]] = {}


class ProjectionDecision(NamedTuple):
    """What became of one record in a projection.

    Attributes:
        omitted_parts: Of a projected record: its part types that nothing in the messages stands for, each once, in
            the order they first appear. Empty on an omitted record.
    """

    message_id: str
    action: Literal["projected", "omitted"]
    reason: ProjectionReason
    omitted_parts: tuple[str, ...] = ()


class ProjectedMessages(Sequence[AnyModelMessage], StoredMessages):
    """User, assistant and tool messages in order, never a system message.

    The objects are made together when the first one is read; `openai_chat_body` needs none of them. Equal to any
    sequence of equal messages.

    Attributes:
        plan: The plan of the native half.
    """

    __slots__ = ("_files", "_made", "_writers", "plan")

    def __init__(self, plan: HistoryPlan, /, *, files: ResolvedFiles | None = None) -> None:
        """Stand for the messages of a plan and the users' files it was made with."""
        self.plan = plan
        self._files = files or {}
        self._writers: dict[bool, OpenAIChatBodyWriter] = {}
        self._made: tuple[AnyModelMessage, ...] | None = None

    def _all(self) -> tuple[AnyModelMessage, ...]:
        if self._made is None:
            try:
                self._made = cast("tuple[AnyModelMessage, ...]", self.plan.messages())
            except NativeError as refusal:
                raise_refusal(refusal)
        return self._made

    @override
    def __len__(self) -> int:
        return self.plan.message_count

    @overload
    def __getitem__(self, index: int, /) -> AnyModelMessage: ...
    @overload
    def __getitem__(self, index: slice, /) -> tuple[AnyModelMessage, ...]: ...
    @override
    def __getitem__(self, index: int | slice, /) -> AnyModelMessage | tuple[AnyModelMessage, ...]:
        return self._all()[index]

    @override
    def __iter__(self) -> Iterator[AnyModelMessage]:
        return iter(self._all())

    @override
    def __eq__(self, other: object) -> bool:
        if isinstance(other, ProjectedMessages):
            return self._all() == other._all()
        if isinstance(other, Sequence) and not isinstance(other, str | bytes):
            return self._all() == tuple(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have no hash

    @override
    def __repr__(self) -> str:
        return f"ProjectedMessages({list(self._all())!r})"

    def openai_chat_body(
        self,
        head: bytes,
        tail: bytes,
        /,
        *,
        follows: bool = False,
        send_reasoning: bool = True,
        pieces: Mapping[tuple[str, int], bytes] = _NO_PIECES,
    ) -> bytes:
        """Write the messages in the form of chat completions, straight from the stored text.

        What `runlane.models.openai_chat.encode_message` gives for each message, with commas between, once the results
        of each round stand directly behind its calls: a late one is moved there, and a call that waits for approval
        gets one that says so. Output of tools is copied as it is stored.

        Args:
            head: What stands before the messages, such as `{"model":"m","messages":[`.
            tail: What stands behind them, such as `]}`.
            follows: Whether a message already stands at the end of `head`.
            send_reasoning: Whether reasoning of this protocol's providers is given back beside the calls it led to.
            pieces: The encoded content piece of each resolved file, keyed like `ResolvedFiles`.

        Raises:
            UsageError: A resolved file has no piece, or a record was replaced or removed since.
        """
        try:
            return self.plan.openai_chat(
                head, tail, follows=follows, send_reasoning=send_reasoning, pieces=dict(pieces)
            )
        except NativeError as refusal:
            raise_refusal(refusal)

    def keep_fragments_in(self, writers: dict[bool, OpenAIChatBodyWriter], /) -> None:
        """Go on from what a handle keeps from one request to the next, by whether reasoning is given back."""
        self._writers = writers

    @override
    def openai_chat_fragments(
        self, encode_file: Callable[[FileItem | ModelImage], bytes], /, *, send_reasoning: bool = True
    ) -> bytes:
        """Write the messages in the form of chat completions, with commas between.

        What was written for an earlier projection of the same handle is kept: one more turn costs that turn and one
        copy of the text.

        Args:
            encode_file: Writes the content piece of a resolved file.
            send_reasoning: As for `openai_chat_body`.

        Raises:
            UsageError: A record was replaced or removed since.
        """
        writer = self._writers.get(send_reasoning)
        if writer is None:
            writer = self._writers[send_reasoning] = OpenAIChatBodyWriter(send_reasoning=send_reasoning)
        pieces = {place: encode_file(file) for place, file in self._files.items()}
        return writer.body(self, b"", b"", pieces=pieces)


class OpenAIChatBodyWriter:
    """Writes request bodies of one conversation and keeps its encoded messages from one request to the next.

    One more turn then costs that turn and one copy of the body. The writer holds about as many bytes as its last body;
    it starts over by itself where the history is another one or was changed. What it writes is what
    `ProjectedMessages.openai_chat_body` writes.

    Args:
        send_reasoning: Whether reasoning of this protocol's providers is given back beside the calls it led to.
    """

    __slots__ = ("_fragments",)

    def __init__(self, *, send_reasoning: bool = True) -> None:
        """Start with nothing kept."""
        self._fragments = ChatFragments(send_reasoning=send_reasoning)

    def body(
        self,
        messages: ProjectedMessages,
        head: bytes,
        tail: bytes,
        /,
        *,
        follows: bool = False,
        pieces: Mapping[tuple[str, int], bytes] = _NO_PIECES,
    ) -> bytes:
        """Write a body; the arguments are those of `ProjectedMessages.openai_chat_body`.

        Raises:
            UsageError: A resolved file has no piece, or a record was replaced or removed since the projection.
        """
        try:
            return self._fragments.body(messages.plan, head, tail, follows=follows, pieces=dict(pieces))
        except NativeError as refusal:
            raise_refusal(refusal)


class Projection:
    """What a model is told of a history: a view that costs nothing until it is read.

    A view of a `History` reads the handle's records: read it before a record is replaced or removed (appending does
    no harm); messages once made stay.

    Attributes:
        messages: User, assistant and tool messages in order; never a system message.
    """

    __slots__ = ("_plan", "messages")

    messages: ProjectedMessages

    def __init__(self, plan: HistoryPlan, /, *, files: ResolvedFiles | None = None) -> None:
        """Stand for a plan of the native half and the users' files it was made with."""
        self._plan = plan
        self.messages = ProjectedMessages(plan, files=files)

    @property
    def system(self) -> tuple[str, ...]:
        """Texts for the provider's instructions channel: system and summary records, notes on interrupted answers.

        Raises:
            UsageError: A record was replaced or removed since the projection.
        """
        try:
            return self._plan.system()
        except NativeError as refusal:
            raise_refusal(refusal)

    @property
    def decisions(self) -> Sequence[ProjectionDecision]:
        """One decision per record, in order; each is made when it is read.

        Reading raises `UsageError` if a record was replaced or removed since the projection.
        """
        return LazySequence(len(self._plan), self._decision)

    def _decision(self, place: int) -> ProjectionDecision:
        try:
            message_id, reason, omitted = self._plan.decision(place)
        except NativeError as refusal:
            raise_refusal(refusal)
        action: Literal["projected", "omitted"] = "projected" if reason == "projected" else "omitted"
        return ProjectionDecision(message_id, action, cast("ProjectionReason", reason), omitted)


ProjectionResult: TypeAlias = Projection


def project_log(
    log: HistoryLog,
    options: ProjectionOptions,
    active_runs: AbstractSet[str],
    effects: CallEffects | None,
    files: ResolvedFiles | None,
    selection: HistorySelection | None,
) -> Projection:
    """Project the records of a native handle."""
    if selection is not None:
        require_kind(selection, HistorySelection, "selection")
    packed, active = packed_options(options), given_texts(active_runs, "active_runs")
    known, resolved = given_dict(effects, "effects"), given_dict(files, "files")
    try:
        plan = log.project(
            packed,
            options.provider,
            active,
            known,
            resolved or None,
            selection,
        )
    except NativeError as refusal:
        raise_refusal(refusal)
    except (TypeError, UnicodeEncodeError) as error:
        raise InvalidValueError(str(error), argument="effects") from None
    return Projection(plan, files=files)


def project_history(
    messages: Iterable[Message], options: ProjectionOptions = DEFAULT_PROJECTION, /
) -> Sequence[AnyModelMessage]:
    """Return what a model is told of a list of records, without system texts and decisions.

    Raises:
        ProjectionRefusedError: An option is `error` and a record is such a case.
        InvalidValueError: A message holds what is not JSON.
    """
    return project_history_detailed(messages, options).messages


def project_history_detailed(
    messages: Iterable[Message],
    options: ProjectionOptions = DEFAULT_PROJECTION,
    /,
    *,
    active_runs: AbstractSet[str] = frozenset(),
    effects: CallEffects | None = None,
    files: ResolvedFiles | None = None,
) -> Projection:
    """Project a list of records, for those who keep their own history; the arguments are those of `History.project`.

    Records of several conversations may follow each other; each starts over.

    Raises:
        ProjectionRefusedError: An option is `error` and a record is such a case.
        InvalidValueError: A message holds what is not JSON, or an effect is not one of the words or named by
            something else.
    """
    return project_log(log_of(messages), options, active_runs, effects, files, None)
