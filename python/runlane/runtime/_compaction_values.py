"""What goes into a compaction and what comes out of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from runlane.contracts import CancelToken, MaybeAwaitable, require_kind, require_port
from runlane.errors import InvalidValueError, UsageError
from runlane.history import (
    RUNTIME_EVIDENCE,
    CompactionBarrier,
    EvidencePolicy,
    History,
    ProjectionOptions,
    ProjectionResult,
    project_history_detailed,
)
from runlane.models import BYTE_BOUND, TokenCounter
from runlane.records import Message, Snapshot, TokenCount, Usage
from runlane.store import Store

__all__ = [
    "Compact",
    "CompactionContext",
    "CompactionOutcome",
    "CompactionProbe",
    "CompactionRefusal",
    "CompactionResult",
    "StructuredCompactionConfig",
    "Summarised",
    "SummaryDraft",
    "SummaryRequest",
]

S = TypeVar("S")

CompactionOutcome: TypeAlias = Literal["not_needed", "nothing_eligible", "applied", "conflict", "not_found", "refused"]

CompactionRefusal: TypeAlias = Literal["empty", "not-smaller", "in-progress", "backing-off"]
"""Why nothing was replaced although it was due.

`empty`: the summary said nothing. `not-smaller`: it counts as much as what it was to stand for. `in-progress`: another
compaction of the conversation runs in this process. `backing-off`: one failed a short while ago.
"""

_EVERYTHING: Final = 2**53 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionContext:
    """What a compaction is called with.

    Attributes:
        store: Where the conversation is.
        signal: Trips when it must stop; nothing is written after that.
        previous_summary: What the caller knows of an earlier summary; used at the first attempt only, and only where
            the history does not begin with a summary that can be read.
        report_usage: Told what each call of a summariser spent, as soon as that is known: what was spent is known even
            if the compaction then raises. Its sum is the result's `usage`; count one of them, not both.
    """

    conversation_id: str
    store: Store
    signal: CancelToken = field(default_factory=CancelToken)
    previous_summary: object = None
    report_usage: Callable[[Usage], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """How a compaction went.

    Attributes:
        outcome: `not_needed`: below the threshold. `nothing_eligible`: no complete turn may be replaced; `barrier` says
            what is in the way. `applied`. `conflict`: the conversation changed at every attempt. `not_found`: something
            to replace is gone. `refused`: see `refusal`. Whatever it is but `applied`, the history is as it was.
        attempts: How often the history was looked at; 0 if it was not.
        snapshot: The history afterwards, or as the last attempt saw it; None if it was not looked at.
        usage: What summarising spent, over all attempts; None if no summariser said so.
        barrier: The first turn that may not be replaced, if there is one.
        summary: The summary, if it was applied.
        replaced: Ids of the messages it stands for.
        closed_calls: Calls among these that never got a result, such as those of a process that died.
    """

    outcome: CompactionOutcome
    attempts: int = 0
    snapshot: Snapshot | None = None
    usage: Usage | None = None
    refusal: CompactionRefusal | None = None
    barrier: CompactionBarrier | None = None
    summary: Message | None = None
    replaced: tuple[str, ...] = ()
    closed_calls: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The result as one dotted code, as it is recorded: `compaction.applied`, `compaction.not_smaller`, ..."""
        return f"compaction.{(self.refusal or self.outcome).replace('-', '_')}"


class Compact(Protocol):
    """Something that compacts a conversation, such as a `StructuredCompaction`.

    It may also have a method `is_due(conversation_id, history, store)` like that of `StructuredCompaction`: a runtime
    asks it first with the records at hand, which costs next to nothing and records nothing.
    """

    def __call__(self, context: CompactionContext, /) -> Awaitable[CompactionResult]:
        """Compact if that is needed. An exception fails the run it happens in and leaves the history as it was."""
        ...


class CompactionProbe:
    """The size of a history, cheap to ask.

    Attributes:
        records: How many messages.
        stored_bytes: Their stored size.
    """

    __slots__ = ("_counter", "_history", "_policy", "records", "stored_bytes")

    def __init__(self, history: History, counter: TokenCounter, policy: EvidencePolicy, /) -> None:
        """Look at a handle."""
        self._history = require_kind(history, History, argument="history")
        self._counter = require_port(counter, TokenCounter, argument="counter")
        self._policy = require_kind(policy, EvidencePolicy, argument="policy")
        self.records = len(history)
        self.stored_bytes = history.stored_bytes

    @property
    def tokens(self) -> TokenCount:
        """What a model is told of it, counted when asked; each record is counted once as long as the handle lives."""
        return self._history.select(_EVERYTHING, counter=self._counter, evidence_policy=self._policy).total_tokens


@dataclass(frozen=True, kw_only=True)
class SummaryRequest(Generic[S]):
    """What a summariser is given.

    Attributes:
        snapshot: The whole active history; most summarisers need only `messages`.
        messages: What the summary is to stand for, as stored: failed answers have no mark, and calls without a result
            none; superseded answers are left out. Use `project` for what a model should be told.
        leading_summary: The summary that will be replaced together with them.
        previous_summary: What it says, or None if there is none or nobody can read it.
        signal: Trips when the run must stop; summarising is then cancelled.
        evidence_policy: How failures, crashes and superseded answers stand in the history.
    """

    conversation_id: str
    snapshot: Snapshot
    messages: tuple[Message, ...]
    leading_summary: Message | None
    previous_summary: S | None
    signal: CancelToken
    evidence_policy: EvidencePolicy

    def project(self, options: ProjectionOptions | None = None, /) -> ProjectionResult:
        """Return the messages as a model is told them, failures marked and open calls closed.

        Args:
            options: How; by default under this compaction's evidence policy, refusing what cannot be shown, so that
                nothing leaves the history that the summariser did not see.

        Raises:
            ProjectionRefusedError: A record cannot be shown.
        """
        chosen = options or ProjectionOptions(evidence_policy=self.evidence_policy, incomplete_tool_turn="error")
        return project_history_detailed(self.messages, chosen)


@dataclass(frozen=True, kw_only=True)
class Summarised(Generic[S]):
    """A summary together with what making it spent."""

    summary: S
    usage: Usage | None = None


@dataclass(frozen=True, kw_only=True)
class SummaryDraft(Generic[S]):
    """What a summary message is made of.

    Attributes:
        compacted_messages: All the messages it will stand for, a leading summary apart.
    """

    conversation_id: str
    summary: S
    compacted_messages: Sequence[Message]


@dataclass(frozen=True, kw_only=True)
class StructuredCompactionConfig(Generic[S]):
    """How conversations are compacted.

    Attributes:
        schema: The type of a summary: anything pydantic can validate, such as `str` or a model class.
        summarize: Makes one; a function, plain or coroutine, that gives the summary or `Summarised`. It runs outside
            any store transaction and may run again when the conversation changed meanwhile.
        due: Whether a history of this size is to be compacted; asked before anything is loaded.
        threshold: The same, asked with the loaded history. At least one of the two is needed; if both are there, both
            must say yes. On its own it costs the whole history at each turn: prefer `due`.
        keep_recent_turns: The newest complete turns that stay, at least 1.
        max_attempts: How often to begin again when the conversation changes while a summary is made; 1 by default.
            Each attempt makes a new summary of what is there then, and throws the old one away.
        evidence_policy: `RUNTIME_EVIDENCE` by default: a failure, a crash or a superseded answer blocks nothing for
            good. Use the same policy as the runtime's prompts.
        create_summary_message: Makes the message; by default one that holds the summary as text: a `str` as it is,
            anything else as JSON.
        read_previous_summary: Reads one back; by default what the default message holds. Needed with a
            `create_summary_message` of your own, unless `summarize` reads `leading_summary` itself.
        counter: Counts both sides when a summary is compared with what it stands for, and the probe's tokens.
        back_off: Seconds in which nothing is tried after a summariser failed or its summary was refused, doubled with
            each further failure up to 64 times; 60. With 0 every call tries again.

    Raises:
        UsageError: A number of the wrong type, something that cannot be called, or neither `due` nor `threshold`.
        InvalidValueError: A number outside its range.
    """

    schema: type[S] | Any
    summarize: Callable[[SummaryRequest[S]], MaybeAwaitable[S | Summarised[S]]]
    due: Callable[[CompactionProbe], bool] | None = None
    threshold: Callable[[Snapshot], MaybeAwaitable[bool]] | None = None
    keep_recent_turns: int = 1
    max_attempts: int = 1
    evidence_policy: EvidencePolicy = RUNTIME_EVIDENCE
    create_summary_message: Callable[[SummaryDraft[S]], Message] | None = None
    read_previous_summary: Callable[[Message], object] | None = None
    counter: TokenCounter = BYTE_BOUND
    back_off: float = 60.0

    def __post_init__(self) -> None:
        for name in ("keep_recent_turns", "max_attempts"):
            _positive(getattr(self, name), name)
        for name in ("due", "threshold", "create_summary_message", "read_previous_summary"):
            value: object = getattr(self, name)
            if value is not None and not callable(value):
                raise UsageError("must be callable or None", argument=name)
        if not callable(self.summarize):
            raise UsageError("must be callable", argument="summarize")
        require_kind(self.evidence_policy, EvidencePolicy, argument="evidence_policy")
        require_port(self.counter, TokenCounter, argument="counter")
        if self.due is None and self.threshold is None:
            raise UsageError("give due or threshold: when is a conversation too large?", argument="due")
        if isinstance(self.back_off, bool) or not isinstance(self.back_off, int | float):
            raise UsageError("must be seconds", argument="back_off")
        if not 0 <= self.back_off < float("inf"):
            raise InvalidValueError(f"must be finite and at least 0, got {self.back_off}", argument="back_off")


def _positive(value: object, argument: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"must be an integer, not {type(value).__name__}", argument=argument)
    if not 1 <= value < 2**53:
        raise InvalidValueError(f"must be from 1 to 2**53 - 1, got {value}", argument=argument)
