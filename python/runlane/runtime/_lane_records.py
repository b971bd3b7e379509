"""What this process knows of a conversation's records: the history its next run may see.

The handle holds exactly what the executing run may see: records no run owns, and those of runs that ended, in their
causal order, then the run's own inputs. Inputs of runs that still wait are held back until their turn comes.

Own commits keep it current. A version that is not the next one means that somebody else wrote: what changed since is
read before the next prompt. A conversation that is not known yet is read from its newest record backwards to the last
summary or the configured limits, never from its beginning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from runlane.history import (
    RUNTIME_EVIDENCE,
    CallEvidence,
    History,
    Projection,
    ProjectionOptions,
    ResolvedFiles,
    Selection,
)
from runlane.records import (
    Message,
    Run,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
    stored_json,
)
from runlane.runtime._config import HistoryConfig
from runlane.runtime._effects import effect_event_id
from runlane.runtime._record_chain import RecordChain, RecordRange
from runlane.runtime._store_calls import StoreCalls
from runlane.store import Applied, Delta, Store, StoredMessage
from runlane.tools import approval_kind

__all__ = ["LaneRecords"]

_PROJECTION: Final = ProjectionOptions(evidence_policy=RUNTIME_EVIDENCE)
_PAGE: Final = 100
_ATTEMPTS: Final = 3
_ASKS: Final = b'"tool-approval-request"'
_ANSWERS: Final = b'"tool-approval-response"'
_CALL: Final = b'"type":"tool-call"'
_RESULT: Final = b'"type":"tool-result"'


class _Asked(NamedTuple):
    """A call, where and by which run it was made, and whether its handler was entered before anybody was asked."""

    message_id: str
    run_id: str | None
    call_id: str
    was_entered: bool = False


def _stored(message: Message) -> bytes:
    """Return a message in the bytes a store keeps."""
    return stored_json(message)


class LaneRecords:
    """The records of one conversation, as far as a prompt needs them."""

    def __init__(self, calls: StoreCalls, conversation_id: str, limits: HistoryConfig, /) -> None:
        """Know nothing yet."""
        self._calls = calls
        self._conversation_id = conversation_id
        self._limits = limits
        self._forget()

    def _forget(self) -> None:
        self._version: int | None = None
        self._behind = False
        self._history = History()
        self._asked: dict[str, _Asked] = {}
        self._agreed: list[str] = []
        self._dangling: list[tuple[str, tuple[str, str]]] = []
        self._effects: dict[tuple[str, str], CallEvidence] = {}
        self._chain = RecordChain()
        self._bytes = 0
        self._has_runs = False
        self._omits = False
        self._held: dict[str, Message] = {}
        self._begun: str | None = None
        self._shown: list[Message] = []

    @property
    def size(self) -> int:
        """Bytes of the records kept."""
        return self._bytes

    @property
    def _is_large(self) -> bool:
        limits = self._limits
        return len(self._history) > 2 * limits.max_messages or self._bytes > 2 * limits.max_bytes

    def learn(self, applied: Iterable[Applied], /) -> None:
        """Take what the commands of an own commit changed; one that changed nothing names a version of others."""
        for delta, _ in applied:
            if self._version is None:
                if delta.version != 1:
                    return
                self._version = 0
            changes = delta.runs or delta.messages or delta.removed
            if changes and delta.version == self._version + 1:
                self._version = delta.version
                self._take(delta)
            elif delta.version > self._version:
                self._behind = True

    def doubt(self) -> None:
        """Take it that something changed which no delta told: an answer was lost and the commit sent again."""
        self._behind = self._version is not None

    async def catch_up(self) -> None:
        """Know everything committed so far.

        Raises:
            StoreError: The store could not be read.
        """
        if self._version is not None and self._is_large:
            self._forget()
        if self._version is not None and self._behind:
            since = self._version
            delta = await self._calls.read(lambda store: store.load_changes(self._conversation_id, since))
            self._behind = False
            self._version = delta.version
            self._take(delta)
        if self._version is None:
            await self._load()
        while self._dangling:
            event_id, call = self._dangling[-1]
            entered = await self._calls.read(lambda store: store.find_event(self._conversation_id, event_id))  # noqa: B023
            if entered is None:
                self._effects[call] = "not-started"
            self._dangling.pop()

    def foresee(self, run: Run, message: Message, /) -> int | None:
        """Show the input of a run that is about to be committed, as it will be the next to execute.

        A conversation that is not known yet is taken to be new. Whoever commits does so under the version returned,
        and calls `mistaken` if that was refused.

        Returns:
            The version that must be current; None if something has to be read first.
        """
        if self._version is None:
            self._version = 0
        elif self._behind or self._dangling or self._is_large:
            return None
        if message.id in self._history or message.id in self._held:
            return None
        self._held[message.id] = message
        self.begin(run)
        return self._version

    def mistaken(self, message_id: str, /) -> None:
        """Take a foreseen input back; what it was built on is read again."""
        if self._version == 0:
            self._forget()
            return
        self.withdraw()
        self._held.pop(message_id, None)
        self._behind = True

    def begin(self, run: Run, /) -> bool:
        """Show the inputs of the run whose turn it is; False if one of them is not known here."""
        if self._begun != run.id:
            self._begun = run.id
            self._shown = []
        self._show_inputs(run)
        return all(message_id in self._history for message_id in run.input_message_ids)

    def forget(self) -> None:
        """Know nothing any more; everything is read again when it is next needed."""
        self._forget()

    def withdraw(self) -> None:
        """Hide the inputs shown last again: it was not that run's turn."""
        shown = [message.id for message in self._shown]
        self._history.remove(shown)
        self._chain.remove(shown)
        for message in self._shown:
            self._held[message.id] = message
        self._shown, self._begun, self._agreed = [], None, []

    def _show_inputs(self, run: Run) -> None:
        for message_id in run.input_message_ids:
            message = self._held.pop(message_id, None)
            if message is not None:
                self._shown.append(message)
                self._append(message.id, _stored(message))

    @property
    def shown(self) -> tuple[Message, ...]:
        """The inputs of the run whose turn it is."""
        return tuple(self._shown)

    @property
    def is_current(self) -> bool:
        """Whether nothing is known to be missing."""
        return self._version is not None and not self._behind

    @property
    def history(self) -> History:
        """The records the executing run may see."""
        return self._history

    @property
    def has_runs(self) -> bool:
        """Whether a run of the conversation has ended before, as far as the records at hand can tell."""
        return self._has_runs

    def project(
        self,
        options: ProjectionOptions = _PROJECTION,
        /,
        *,
        files: ResolvedFiles | None = None,
        selection: Selection | None = None,
    ) -> Projection:
        """Return what a model is told; see `History.project`."""
        active = frozenset() if self._begun is None else frozenset({self._begun})
        return self._history.project(
            options, active_runs=active, effects=self._effects, files=files, selection=selection
        )

    def mentioning(self, word: str, /) -> Iterator[Message]:
        """Yield the records that hold a text without characters JSON escapes, newest first."""
        sought = word.encode()
        for index in reversed(range(len(self._history))):
            record = self._history.record(index)
            if sought in record:
                yield Message.model_validate_json(record)

    def knows(self, message_id: str, /) -> bool:
        """Whether a record may be shown."""
        return message_id in self._history

    def find(self, message_id: str, /) -> Message | None:
        """Return a record, or an input that is held back; None if neither is at hand."""
        held = self._held.get(message_id)
        if held is not None or message_id not in self._history:
            return held
        return next((message for message in self.mentioning(message_id) if message.id == message_id), None)

    def asked_ids(self) -> frozenset[str]:
        """Return the ids of calls among the records that waited, or wait, for consent."""
        return frozenset(asked.call_id for asked in self._asked.values())

    def records_of(self, selection: Selection | None, /, *, messages: int) -> RecordRange:
        """Return which stored records a prompt is made of.

        Args:
            selection: What of them was kept; None for all.
            messages: How many messages they became.
        """
        return self._chain.of(None if selection is None else selection.kept, messages=messages)

    def _append(self, message_id: str, record: bytes) -> None:
        if _ASKS in record or _ANSWERS in record:
            self._note_consent(Message.model_validate_json(record))
        self._history.append(record)
        self._chain.append(message_id, hashlib.sha256(record).digest())
        self._bytes += len(record)

    def _take(self, delta: Delta) -> None:
        """Apply a change: hold inputs back, and show every run that ended, in order.

        What a change puts into the conversation without a run, a seed or a summary, has a place that the change does
        not tell: then everything is read again. So it is once a run ends behind which
        something was left out.
        """
        ended = [run for run in delta.runs if not run.is_active]
        if not (delta.messages or delta.removed or ended):
            return
        inputs = {message_id for run in delta.runs for message_id in run.input_message_ids}
        if (
            delta.removed
            or self._omits
            or any(message.run_id is None and message.id not in inputs for message in delta.messages)
        ):
            self._forget()
            return
        answers: dict[str, Message] = {}
        for message in delta.messages:
            if message.run_id is not None:
                answers[message.run_id] = message
            elif message.id not in self._history:
                self._held[message.id] = message
        for run in ended:
            if not self._show_ended(run, answers.get(run.id)):
                self._forget()
                return

    def _show_ended(self, run: Run, answer: Message | None) -> bool:
        """Show an ended run; False if something of it is missing here."""
        if run.terminal_reason == "absorbed":
            return True
        if self._shown and self._begun != run.id:
            # It was ended without its turn while another run has its own: its place is behind that one's answer.
            return False
        if not self.begin(run):
            return False
        self._shown = []
        if answer is not None:
            self._has_runs = True
            self._append(answer.id, _stored(answer))
            self._note_dangling(answer)
        return answer is not None

    async def _load(self) -> None:
        """Read the newest records; once more if the conversation changed meanwhile."""
        for _ in range(_ATTEMPTS):
            if await self._calls.read(self._read):
                return
        self._behind = True

    async def _read(self, store: Store) -> bool:
        """Read newest first to the last summary or the limits; False if the reads do not fit together."""
        self._forget()
        active = await store.list_active_runs(self._conversation_id)
        waiting = {message_id for run in active for message_id in run.input_message_ids}
        begun = {message_id for run in active if run.execution_sequence for message_id in run.input_message_ids}
        newest_first: list[StoredMessage] = []
        before: str | None = None
        while True:
            limit = min(_PAGE, self._limits.max_messages - len(newest_first))
            page = await store.read_messages(self._conversation_id, before=before, limit=limit)
            if self._version is None:
                self._version = page.version
            newest_first.extend(page.items)
            before = page.next_before
            if before is None or self._is_enough(newest_first):
                break
        head = await store.load_head(self._conversation_id)
        self._fill(newest_first, waiting, begun)
        return head.version == self._version

    def _is_enough(self, newest_first: list[StoredMessage]) -> bool:
        return (
            len(newest_first) >= self._limits.max_messages
            or sum(len(message.body) for message in newest_first) >= self._limits.max_bytes
            or any(message.role == "summary" for message in newest_first)
        )

    def _fill(self, newest_first: list[StoredMessage], waiting: set[str], begun: set[str]) -> None:
        """Take what was read; what stands behind a run that began and has not ended is none of that run's business."""
        is_behind = False
        for stored in reversed(newest_first):
            is_behind = is_behind or stored.message_id in begun
            if stored.message_id in waiting:
                self._held[stored.message_id] = Message.model_validate_json(stored.body)
            elif is_behind:
                self._omits = True
            else:
                self._has_runs = self._has_runs or stored.run_id is not None or stored.role == "summary"
                self._append(stored.message_id, stored.body)
                is_open = stored.body.count(_CALL) > stored.body.count(_RESULT)
                if stored.role == "assistant" and (is_open or self._agreed):
                    self._note_dangling(Message.model_validate_json(stored.body))

    def _note_consent(self, message: Message) -> None:
        """Note what the message asks consent for, and what consent it gives to calls of others."""
        for part in message.parts:
            if isinstance(part, ToolApprovalRequestPart):
                was_entered = approval_kind(part) == "effect-unknown"
                self._asked[part.approval_id] = _Asked(message.id, message.run_id, part.call_id, was_entered)
            elif isinstance(part, ToolApprovalResponsePart) and part.approved and message.role == "tool":
                self._agreed.append(part.approval_id)

    def _note_dangling(self, answer: Message) -> None:
        """Note calls that never got a result, to be looked up before the next prompt; not those that wait.

        They are the answer's own, and those that its run was to carry out because somebody had agreed.
        """
        agreed, self._agreed = self._agreed, []
        run_id = answer.run_id
        if run_id is None:
            return
        calls = [_Asked(answer.id, run_id, part.call_id) for part in answer.parts if isinstance(part, ToolCallPart)]
        calls += [asked for approval_id in agreed if (asked := self._asked.get(approval_id)) and not asked.was_entered]
        done = {part.call_id for part in answer.parts if isinstance(part, ToolResultPart)}
        calls = [call for call in calls if call.call_id not in done]
        if not calls:
            return
        said = {part.approval_id for part in answer.parts if isinstance(part, ToolApprovalResponsePart)}
        waits = {
            part.call_id
            for part in answer.parts
            if isinstance(part, ToolApprovalRequestPart) and part.approval_id not in said
        }
        self._dangling.extend(
            (effect_event_id(run_id, f"{call.run_id}:{call.call_id}"), (call.message_id, call.call_id))
            for call in calls
            if call.call_id not in waits
        )
