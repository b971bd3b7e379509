"""The projection, slow and obvious: every rule once, nothing cached, state copied before each record."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from runlane.history import ProjectionOptions, is_assistant_evidence
from runlane.models import (
    AnyModelMessage,
    FileItem,
    ModelAssistantToolMessage,
    ModelImage,
    ModelMessage,
    ModelToolResultMessage,
)
from runlane.records import FilePart, Message, TextPart, ToolResultPart

INTERRUPTED = "[interrupted: this turn was cut off before it finished]"
FAILED = "[failed: partial evidence from a run that did not complete successfully]"
CLOSED = {"interrupted": "interrupted", "not-started": "not started", "unknown": "unknown: may have run"}
ROLE_OF = {
    "text": "assistant",
    "reasoning": "assistant",
    "tool-call": "assistant",
    "tool-approval-request": "assistant",
    "tool-result": "tool",
    "tool-approval-response": "tool",
}


class Refused(Exception):  # noqa: N818 - a signal inside the oracle
    """The options say that this record must stop the projection."""

    def __init__(self, message_id: str, reason: str) -> None:
        super().__init__(message_id, reason)
        self.message_id = message_id
        self.reason = reason


class _Violation(Exception):  # noqa: N818 - a signal inside the oracle
    """A part breaks the tool chronology."""


@dataclass
class Call:
    """One call as far as it got."""

    tool_name: str
    phase: str = "called"


@dataclass
class Chronology:
    """Which calls and approvals are open."""

    calls: dict[str, Call] = field(default_factory=dict)
    approvals: dict[str, str] = field(default_factory=dict)
    results_started: bool = False
    earlier: set[str] = field(default_factory=set)
    """Calls that take no part in rounds any more."""

    @property
    def pending(self) -> int:
        """Calls without a result."""
        return sum(call.phase != "result" for call in self.calls.values())

    @property
    def owed(self) -> int:
        """Calls without a result that hold the next round back."""
        return sum(call.phase != "result" and call_id not in self.earlier for call_id, call in self.calls.items())

    def start_record(self) -> None:
        """Let rounds be the record's own, and forget what is finished."""
        self.calls = {call_id: call for call_id, call in self.calls.items() if call.phase != "result"}
        self.approvals = {name: call_id for name, call_id in self.approvals.items() if call_id in self.calls}
        self.earlier = set(self.calls)
        self.results_started = False

    def finish(self, call_id: str) -> None:
        """Give a call its result."""
        self.calls[call_id].phase = "result"
        if call_id not in self.earlier:
            self.results_started = True

    def apply(self, part: Any) -> None:  # noqa: C901, ANN401 - one table, read top down
        """Take one part, or raise."""
        match part.type:
            case "tool-call":
                if part.call_id in self.calls or (self.results_started and self.owed > 0):
                    raise _Violation
                if self.owed == 0:
                    self.results_started = False
                self.calls[part.call_id] = Call(part.tool_name)
            case "tool-approval-request":
                call = self.calls.get(part.call_id)
                if call is None or call.phase != "called" or part.approval_id in self.approvals:
                    raise _Violation
                self.approvals[part.approval_id] = part.call_id
                call.phase = "requested"
            case "tool-approval-response":
                if part.approval_id not in self.approvals:
                    raise _Violation
                call = self.calls[self.approvals[part.approval_id]]
                if call.phase != "requested":
                    raise _Violation
                call.phase = "approved" if part.approved else "denied"
            case "tool-result":
                call = self.calls.get(part.call_id)
                if call is None or call.tool_name != part.tool_name or call.phase in {"result", "requested"}:
                    raise _Violation
                if call.phase == "denied" and part.outcome == "success":
                    raise _Violation
                self.finish(part.call_id)
            case _:
                pass


@dataclass
class Decision:
    """What became of one record."""

    message_id: str
    action: str
    reason: str
    omitted_parts: tuple[str, ...] = ()


class Projector:
    """Walks the records once."""

    def __init__(
        self,
        records: Sequence[Message],
        options: ProjectionOptions,
        *,
        files: Mapping[tuple[str, int], FileItem | ModelImage] | None = None,
        active_runs: AbstractSet[str] = frozenset(),
        effects: Mapping[Any, str] | None = None,
        known: Sequence[Message] | None = None,
    ) -> None:
        """Project at once; the results are the attributes.

        Args:
            records: What is projected.
            options: How.
            files: Resolved files.
            active_runs: Runs that have not ended.
            effects: What is known of calls without a result.
            known: All records there are, where `records` are chosen from them.
        """
        self.records = records
        self.known = records if known is None else known
        self.options = options
        self.files = files or {}
        self.active_runs = active_runs
        self.effects = effects or {}
        self.messages: list[AnyModelMessage] = []
        self.system: list[str] = []
        self.decisions: list[Decision] = []
        self.state = Chronology()
        self.user_seen = False
        self._made_in: dict[str, str] = {}
        for index in range(len(records)):
            self.decisions.append(self._decide(index))

    # --- one record ---------------------------------------------------------------------------------------------

    def _decide(self, index: int) -> Decision:  # noqa: C901, PLR0911 - the order of the checks is the rule
        record, options = self.records[index], self.options
        if index > 0 and record.conversation_id != self.records[index - 1].conversation_id:
            self.state, self.user_seen = Chronology(), False
        evidence = is_assistant_evidence(record.status, options.evidence_policy)
        if record.role == "assistant" and not evidence:
            return self._omit(record, "superseded" if record.status == "superseded" else "draft-or-failed")
        if record.status in {"streaming", "failed"} and not evidence:
            return self._omit(record, "draft-or-failed")
        if record.role == "user":
            return self._user(record)
        if record.role in {"system", "summary"}:
            return self._system(record)
        if not self.user_seen:
            if options.leading_assistant == "error":
                raise Refused(record.id, "leading-assistant")
            if options.leading_assistant == "omit":
                return self._omit(record, "leading-assistant")
        if record.status == "interrupted" and options.interrupted_assistant == "omit":
            return self._omit(record, "interrupted")
        if record.status == "interrupted" and options.interrupted_assistant == "system-note":
            return self._note(record)
        return self._exchange(index)

    @staticmethod
    def _omit(record: Message, reason: str) -> Decision:
        return Decision(record.id, "omitted", reason)

    @staticmethod
    def _projected(record: Message, represented: AbstractSet[str]) -> Decision:
        missing: dict[str, None] = {part.type: None for part in record.parts if part.type not in represented}
        return Decision(record.id, "projected", "projected", tuple(missing))

    @staticmethod
    def _text(record: Message) -> str:
        return "\n".join(part.text for part in record.parts if isinstance(part, TextPart))

    def _user(self, record: Message) -> Decision:
        if self.state.pending == 0:
            self.state = Chronology()
        self.user_seen = True
        items: list[TextPart | FileItem | ModelImage] = []
        represented = set()
        if text := self._text(record):
            items.append(TextPart(text=text))
            represented.add("text")
        for position, part in enumerate(record.parts):
            if isinstance(part, FilePart):
                item = self._file(record, position, part)
                if item is not None:
                    items.append(item)
                    represented.add("file")
        if not items:
            return self._omit(record, "empty")
        self.messages.append(ModelMessage("user", tuple(items)))
        return self._projected(record, represented)

    def _file(self, record: Message, position: int, part: FilePart) -> TextPart | FileItem | ModelImage | None:
        if (resolved := self.files.get((record.id, position))) is not None:
            return resolved
        if self.options.unresolved_file == "error":
            raise Refused(record.id, "unresolved-file")
        if self.options.unresolved_file == "text":
            return TextPart(text=f"[attachment: {part.filename or part.media_type}]")
        return None

    def _system(self, record: Message) -> Decision:
        text = self._text(record)
        if not text:
            return self._omit(record, "empty")
        self.system.append(text)
        return self._projected(record, {"text"})

    def _note(self, record: Message) -> Decision:
        text = self._text(record)
        if not text:
            return self._omit(record, "empty")
        self.system.append(f"[interrupted] partial response: {text}")
        return self._projected(record, {"text", "control"})

    # --- tool traffic -------------------------------------------------------------------------------------------

    def _exchange(self, index: int) -> Decision:
        record = self.records[index]
        before = copy.deepcopy(self.state)
        try:
            rounds = self._rounds(index)
        except _Violation:
            self.state = before
            if self.options.incomplete_tool_turn == "error":
                raise Refused(record.id, "incomplete-tool-turn") from None
            return self._omit(record, "incomplete-tool-turn")
        represented = {part.type for part in record.parts if self._role_of(part) is not None}
        if record.status == "failed":
            rounds.append(("assistant", TextPart(text=FAILED)))
            represented.add("control")
        if record.status == "interrupted" and rounds:
            rounds.append(("assistant", TextPart(text=INTERRUPTED)))
            represented.add("control")
        if not rounds:
            return self._omit(record, "empty")
        self._emit(rounds)
        return self._projected(record, represented)

    def _role_of(self, part: Any) -> str | None:  # noqa: ANN401 - a part
        if part.type == "provider":
            return "assistant" if part.envelope.provider == self.options.provider else None
        return ROLE_OF.get(part.type)

    def _rounds(self, index: int) -> list[tuple[str, Any]]:  # noqa: C901 - one walk, read top down
        record = self.records[index]
        may_close = self._may_close(index)
        rounds: list[tuple[str, Any]] = []
        self._touched: set[str] = set()
        if self.options.evidence_policy.dangling_calls == "close":
            self.state.start_record()
        for part in record.parts:
            role = self._role_of(part)
            if role is None:
                continue
            if may_close and role == "assistant" and self.state.results_started:
                rounds += self._close(index)
            self.state.apply(part)
            rounds.append((role, part))
            if part.type == "tool-call":
                self._made_in[part.call_id] = record.id
                self._touched.add(part.call_id)
            if part.type == "tool-approval-response":
                self._touched.add(self.state.approvals[part.approval_id])
        if may_close:
            rounds += self._close(index)
        if any(call.phase == "called" for call in self.state.calls.values()):
            raise _Violation
        return rounds

    def _close(self, index: int) -> list[tuple[str, Any]]:
        """Give every dead call that this record made or answered its result."""
        record = self.records[index]
        closed: list[tuple[str, Any]] = []
        for call_id, call in self.state.calls.items():
            if call_id in self._touched and self._is_dead(index, call_id, call):
                known = self.effects.get((self._made_in[call_id], call_id), self.effects.get(call_id))
                if known is None and call.phase == "denied":
                    known = "not-started"
                if known is None:
                    known = "interrupted" if record.status == "interrupted" else "unknown"
                self.state.finish(call_id)
                result = ToolResultPart(
                    call_id=call_id,
                    tool_name=call.tool_name,
                    outcome="interrupted",
                    output={"message": CLOSED[known]},
                )
                closed.append(("tool", result))
        return closed

    def _is_dead(self, index: int, call_id: str, call: Call) -> bool:
        """Whether nobody is asked about the call and no result of it comes, in this turn or the next."""
        if call.phase in {"requested", "result"}:
            return False
        if call.phase == "called" and any(
            part.type == "tool-approval-request" and part.call_id == call_id for part in self.records[index].parts
        ):
            return False
        end = turn_end(self.records, index)
        if end < len(self.records) and _same_conversation(self.records, end):
            while end + 1 < len(self.records) and continues(self.records, end + 1):
                end += 1
            end = turn_end(self.records, end)
        return not self._gets_result(index, end, call_id)

    def _gets_result(self, index: int, end: int, call_id: str) -> bool:
        """Whether a result of the call made or answered at `index` comes before another call has its id."""
        for place in range(index, end):
            record = self.records[place]
            if record.role != "tool" and not self._is_evidence(record):
                continue
            for part in record.parts:
                if part.type == "tool-call" and part.call_id == call_id and place != index:
                    return False
                if part.type == "tool-result" and part.call_id == call_id:
                    return True
        return False

    def _is_evidence(self, record: Message) -> bool:
        return record.role == "assistant" and is_assistant_evidence(record.status, self.options.evidence_policy)

    def _may_close(self, index: int) -> bool:
        if self.options.evidence_policy.dangling_calls != "close":
            return False
        place = next(i for i, record in enumerate(self.known) if record is self.records[index])
        return run_has_ended(self.known, place, self.active_runs)

    def _emit(self, rounds: list[tuple[str, Any]]) -> None:
        """Adjacent parts of one role share one message."""
        start = 0
        for stop in range(1, len(rounds) + 1):
            if stop == len(rounds) or rounds[stop][0] != rounds[start][0]:
                items = tuple(part for _, part in rounds[start:stop])
                if rounds[start][0] == "tool":
                    self.messages.append(ModelToolResultMessage(items))
                elif any(part.type in {"tool-call", "tool-approval-request"} for part in items):
                    self.messages.append(ModelAssistantToolMessage(items))
                else:
                    self.messages.append(ModelMessage("assistant", items))
                start = stop


def turn_end(records: Sequence[Message], index: int) -> int:
    """Where the turn that holds the record at `index`, which is not a user record, ends."""
    end = index + 1
    while end < len(records) and records[end].role != "user" and _same_conversation(records, end):
        end += 1
    return end


def turn_start(records: Sequence[Message], index: int) -> int:
    """Where that turn starts: at its newest user record."""
    while index > 0 and records[index].role != "user" and _same_conversation(records, index):
        index -= 1
    return index


def continues(records: Sequence[Message], index: int) -> bool:
    """Whether a user record strictly follows another of its conversation, and so joins its turn."""
    return index > 0 and records[index - 1].role == records[index].role == "user" and _same_conversation(records, index)


def _same_conversation(records: Sequence[Message], index: int) -> bool:
    return records[index].conversation_id == records[index - 1].conversation_id


def run_has_ended(records: Sequence[Message], index: int, active_runs: AbstractSet[str]) -> bool:
    """Whether the run has ended that made the record at `index`, or whose input it is: the one that answers next.

    An active run with no assistant record yet belongs to the inputs behind the last assistant record.
    """
    here = index
    while here < len(records) and (here == index or _same_conversation(records, here)):
        if records[here].role == "assistant":
            return records[here].run_id not in active_runs
        here += 1
    return not active_runs - {record.run_id for record in records if record.role == "assistant"}


def has_ended(records: Sequence[Message], index: int, active_runs: AbstractSet[str]) -> bool:
    """Whether every run of the turn that holds the record at `index` has ended.

    An active run with no assistant record yet belongs to the inputs behind the last assistant record.
    """
    start, end = turn_start(records, index), turn_end(records, index)
    runs = {record.run_id for record in records if record.role == "assistant"}
    if any(record.role == "assistant" and record.run_id in active_runs for record in records[start:end]):
        return False
    answered = max((i + 1 for i, record in enumerate(records) if record.role == "assistant"), default=0)
    return not (active_runs - runs and end > answered)
