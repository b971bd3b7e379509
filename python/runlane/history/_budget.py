"""What of a history fits a token budget."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal, NamedTuple, TypeAlias, TypedDict, cast

from typing_extensions import Unpack

from runlane._native import HistoryLog, HistorySelection, NativeError
from runlane.errors import UsageError
from runlane.history._bridge import log_of, raise_refusal, require_count
from runlane.history._given import given_texts, require_names
from runlane.history._lazy import LazySequence
from runlane.history._policy import BARE_EVIDENCE, EvidencePolicy, is_assistant_evidence, packed_policy
from runlane.records import Message, TokenCount

__all__ = [
    "BudgetDecision",
    "BudgetOutcome",
    "BudgetReason",
    "BudgetResult",
    "SelectHistoryOptions",
    "Selection",
    "select_history",
    "select_log",
]

BudgetOutcome: TypeAlias = Literal["fits", "truncated", "oversized", "unavailable"]

BudgetReason: TypeAlias = Literal[
    "superseded",
    "not-evidence",
    "oldest-eligible-turn",
    "protected-system",
    "protected-incomplete-turn",
    "protected-recent-turn",
    "within-budget",
    "token-count-unavailable",
]

_UNAVAILABLE: Final = TokenCount(provenance="unavailable")
_NO_SCHEMAS: Final = TokenCount(value=0, provenance="computed")


class BudgetDecision(NamedTuple):
    """What became of one record in a budget selection.

    Attributes:
        tokens: What the record counts; `unavailable` for one that was not counted.
    """

    message_id: str
    action: Literal["kept", "removed"]
    reason: BudgetReason
    tokens: TokenCount


class Selection:
    """Which records of a history a token budget keeps; whole turns only, the oldest removed first.

    Attributes:
        outcome: `fits`; `truncated`, turns were removed and the rest fits; `oversized`, what may not be removed is
            still too much; `unavailable`, a count is not known and nothing was removed for the budget's sake.
        total_tokens: Of the kept records, tool schemas apart: `estimated` if any counted record was, else
            `computed`; `unavailable` with the outcome of that name.
        tool_schemas: What the tools of the request count, a line of its own; 0 unless it was given.
        native: The selection as the native half knows it.
    """

    __slots__ = ("native", "outcome", "tool_schemas", "total_tokens")

    native: HistorySelection
    outcome: BudgetOutcome
    total_tokens: TokenCount
    tool_schemas: TokenCount

    def __init__(self, native: HistorySelection, tool_schemas: TokenCount, /) -> None:
        """Stand for a selection of the native half."""
        self.native = native
        self.tool_schemas = tool_schemas
        self.outcome = cast("BudgetOutcome", native.outcome)
        if self.outcome == "unavailable":
            self.total_tokens = _UNAVAILABLE
        else:
            provenance: Literal["estimated", "computed"] = "estimated" if native.estimated else "computed"
            self.total_tokens = TokenCount(value=native.total, provenance=provenance)

    @property
    def kept(self) -> Sequence[int]:
        """Indices of the kept records, ascending; worked out when read, at the cost of what is kept.

        Raises:
            UsageError: A record was replaced or removed since the selection.
        """
        try:
            return self.native.kept()
        except NativeError as refusal:
            raise_refusal(refusal)

    @property
    def decisions(self) -> Sequence[BudgetDecision]:
        """One decision per record, in order; each is made when it is read."""
        return LazySequence(len(self.native), self._decision)

    def _decision(self, place: int) -> BudgetDecision:
        try:
            message_id, keeps, reason, tokens, provenance = self.native.decision(place)
        except NativeError as refusal:
            raise_refusal(refusal)
        count = (
            _UNAVAILABLE
            if tokens is None
            else TokenCount(value=tokens, provenance=cast("Literal['measured', 'computed', 'estimated']", provenance))
        )
        return BudgetDecision(message_id, "kept" if keeps else "removed", cast("BudgetReason", reason), count)


class BudgetResult(Selection):
    """A selection from a list of records.

    Attributes:
        messages: The kept records, in order.
    """

    __slots__ = ("messages",)

    messages: tuple[Message, ...]

    def __init__(self, native: HistorySelection, tool_schemas: TokenCount, messages: Sequence[Message], /) -> None:
        """Pick the kept records out of `messages`."""
        super().__init__(native, tool_schemas)
        self.messages = tuple(messages[place] for place in native.kept())


class SelectHistoryOptions(TypedDict, total=False):
    """Options of `select_history`.

    Attributes:
        keep_recent_turns: How many of the newest complete turns are never removed; 1 by default, 0 protects none.
        evidence_policy: See `EvidencePolicy`; `BARE_EVIDENCE` by default.
        active_runs: Ids of the runs that have not ended; their turns are never removed.
        tool_schemas: What the tools of the request count (`count_tool_schemas`), reported on its own line. The
            available tokens are those for records: take the schemas off them, as the window arithmetic does.
    """

    keep_recent_turns: int
    evidence_policy: EvidencePolicy
    active_runs: AbstractSet[str]
    tool_schemas: TokenCount


def select_history(
    messages: Iterable[Message],
    available_tokens: int,
    estimate_message: Callable[[Message], TokenCount],
    /,
    **options: Unpack[SelectHistoryOptions],
) -> BudgetResult:
    """Keep the newest turns of a list of records that fit a token budget; nothing is written, no turn is split.

    Removed are answers that are no evidence, and, oldest first until the rest fits, complete turns that are not
    protected. System and summary records, incomplete turns and the newest complete turns always stay.

    Args:
        messages: The records, oldest first.
        available_tokens: What there is for them, from 0 to 2**53 - 1.
        estimate_message: Counts one record. It is asked for each record that may stay, in order, up to the first whose
            count is unknown. An asynchronous estimator runs before: pass a look-up in its answers.
        options: See `SelectHistoryOptions`.

    Raises:
        UsageError: A number is no int, or the estimate no `TokenCount`.
        InvalidValueError: A number is negative or too large.
    """
    records = tuple(messages)
    policy = options.get("evidence_policy", BARE_EVIDENCE)
    packed_policy(policy)
    if not callable(estimate_message):
        raise UsageError(f"must be a function, not {type(estimate_message).__name__}", argument="estimate_message")
    log = log_of(records)
    counter = log.counter("given")
    log.set_counts(counter, _estimates(records, policy, estimate_message))
    native, schemas = select_log(log, available_tokens, counter, options)
    return BudgetResult(native, schemas, records)


def _estimates(
    records: Sequence[Message], policy: EvidencePolicy, estimate: Callable[[Message], TokenCount]
) -> list[tuple[int, int | None, str]]:
    counts: list[tuple[int, int | None, str]] = []
    for place, record in enumerate(records):
        if record.role == "assistant" and not is_assistant_evidence(record.status, policy):
            continue
        count: object = estimate(record)
        if not isinstance(count, TokenCount):
            if isinstance(count, Coroutine):
                count.close()
            raise UsageError(f"must give a TokenCount, not {type(count).__name__}", argument="estimate_message")
        counts.append((place, count.value, count.provenance))
        if count.value is None:
            break
    return counts


def select_log(
    log: HistoryLog, available_tokens: int, counter: int | None, options: SelectHistoryOptions
) -> tuple[HistorySelection, TokenCount]:
    """Select from a native handle whose counts are there."""
    require_names(options, SelectHistoryOptions.__annotations__)
    keep_recent_turns = require_count(options.get("keep_recent_turns", 1), "keep_recent_turns")
    schemas = options.get("tool_schemas", _NO_SCHEMAS)
    native = log.select(
        require_count(available_tokens, "available_tokens"),
        keep_recent_turns,
        packed_policy(options.get("evidence_policy", BARE_EVIDENCE)),
        given_texts(options.get("active_runs", ()), "active_runs"),
        counter,
    )
    return native, schemas
