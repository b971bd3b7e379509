"""A SQLite file used by two stores at once, with stops and restarts, beside the store in memory."""

import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from typing_extensions import override

from runlane.errors import RunlaneError, StoreCommitUnknownError
from runlane.records import (
    ACTIVE_RUN_STATES,
    Message,
    Ownership,
    ReasoningPart,
    Run,
    RunOperation,
    Snapshot,
    TextPart,
    Usage,
    message_status_for_terminal_reason,
)
from runlane.store import (
    Absorption,
    AcceptInput,
    AcquireRun,
    AppendEvent,
    Applied,
    CancelRun,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    DraftPatch,
    GrownPart,
    MemoryStore,
    ReadEvents,
    RecordRunOperation,
    RecoverRun,
    ReplaceCompactedRange,
    RequestRunInterrupt,
    SeedConversation,
    Store,
    encode_archive,
)
from runlane.store.sqlite import SqliteStore
from runlane.testing import check_conversation
from runlane.testing._store_kit import START
from tests.stateful.carrying import check_carried

CONVERSATIONS: Final = ("c1", "c2")
REASONS: Final = ("success", "provider_stop", "interrupted", "superseded", "runtime_failure", "policy_stop", "timeout")
DEEP: Final = os.environ.get("HYPOTHESIS_PROFILE") == "deep"

conversations = st.sampled_from(CONVERSATIONS)
handles = st.integers(0, 1)
picks = st.integers(0, 9)
slips = st.sampled_from((0, 0, 0, 0, 1, -1))


class StoreMachine(RuleBasedStateMachine):
    """Sends the same commands to the model and to one of two stores on one file; both must answer the same."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._folder = Path(tempfile.mkdtemp())
        self._stack.callback(shutil.rmtree, self._folder)
        self._portal = self._stack.enter_context(start_blocking_portal())
        self.model = MemoryStore()
        self.files = [SqliteStore(self._folder / "store.db", durability="relaxed") for _ in range(2)]
        for store in self.files:
            self._portal.call(store.__aenter__)
        self._count = 0
        self._ownerships: dict[str, list[Ownership]] = {name: [] for name in CONVERSATIONS}
        self._touched = "c1"
        self._seen: dict[str, dict[int, Snapshot]] = {name: {} for name in CONVERSATIONS}

    @override
    def teardown(self) -> None:
        """Check everything once more on a store that was just opened, and clean up."""
        try:
            self._restart(0)
            for name in CONVERSATIONS:
                self._portal.call(check_conversation, self.files[0], name)
                self._portal.call(check_conversation, self.model, name)
                assert self._portal.call(_archive, self.files[0], name) == self._portal.call(_archive, self.model, name)
                self._portal.call(check_carried, self.model, name, self._seen[name])
        finally:
            for store in self.files:
                self._portal.call(store.__aexit__, None, None, None)
            self._stack.close()

    # --- doing the same twice -------------------------------------------------------------------------------------

    def _both(self, handle: int, do: Callable[[Store], Awaitable[object]]) -> object:
        wanted = self._portal.call(_outcome, do, self.model)
        actual = self._portal.call(_outcome, do, self.files[handle])
        assert actual == wanted
        return actual

    def _send(self, conversation: str, handle: int, *commands: Command) -> None:
        self._touched = conversation
        outcomes = self._both(handle, lambda store: store.apply(conversation, commands))
        for outcome in outcomes if isinstance(outcomes, tuple) else ():
            if isinstance(outcome, Applied) and outcome.ownership is not None:
                self._ownerships[conversation].append(outcome.ownership)

    def _new(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    def _facts(self) -> dict[str, Any]:
        return {"command_id": self._new("command"), "at": START}

    def _run(self, conversation: str, pick: int) -> Run | None:
        """Return some run, active or ended."""
        snapshot = self._portal.call(self.model.load_snapshot, conversation)
        return snapshot.runs[pick % len(snapshot.runs)] if snapshot.runs else None

    def _ownership(self, conversation: str, run: Run, pick: int) -> Ownership:
        """Return the run's own ownership, or sometimes an old one of the conversation."""
        known = self._ownerships[conversation]
        mine = [item for item in known if item.owner == run.owner_id and item.fencing_token == run.fencing_token]
        if mine and pick < 8:
            return mine[-1]
        return known[pick % len(known)] if known else Ownership(owner="nobody")

    def _message(
        self, conversation: str, message_id: str, role: str, status: str, run_id: str | None = None
    ) -> Message:
        facts = {"id": message_id, "conversation_id": conversation, "role": role, "status": status, "run_id": run_id}
        parts = [TextPart(text=f"text of {message_id}")]
        return Message.model_validate({**facts, "parts": parts, "created_at": START, "updated_at": START})

    # --- rules ----------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        """Give the first rules something to work on."""
        for conversation in CONVERSATIONS:
            self._send(conversation, 0, self._accept(conversation, urgent=False, into=None, key=None))

    def _accept(self, conversation: str, *, urgent: bool, into: str | None, key: str | None) -> AcceptInput:
        name = self._new("run")
        run = Run(
            id=name,
            conversation_id=conversation,
            input_message_ids=(f"{name}-in",),
            assistant_message_id=f"{name}-out",
            state="queued",
            revision=0,
            queue_priority="interrupt-next" if urgent else None,
            created_at=START,
            updated_at=START,
        )
        given = self._message(conversation, f"{name}-in", "user", "committed")
        return AcceptInput(
            **self._facts(), idempotency_key=key or name, input=given, run=run, coalesce_into_run_id=into
        )

    @rule(conversation=conversations, handle=handles, urgent=st.booleans(), pick=picks, joins=st.booleans())
    def accept(self, conversation: str, handle: int, pick: int, *, urgent: bool, joins: bool) -> None:
        """Commit an input, sometimes into another run."""
        target = self._run(conversation, pick) if joins else None
        into = None if target is None else target.id
        self._send(conversation, handle, self._accept(conversation, urgent=urgent, into=into, key=None))

    @rule(conversation=conversations, handle=handles, pick=picks)
    def repeat(self, conversation: str, handle: int, pick: int) -> None:
        """Use a key again."""
        run = self._run(conversation, pick)
        key = "nothing" if run is None else run.id
        self._send(conversation, handle, self._accept(conversation, urgent=False, into=None, key=key))

    @rule(conversation=conversations, handle=handles, pick=picks, slip=slips, draft=st.booleans())
    def acquire(self, conversation: str, handle: int, pick: int, slip: int, *, draft: bool) -> None:
        """Acquire a run, sometimes with its first draft in the same group."""
        run = self._run(conversation, pick)
        if run is None:
            return
        owner = f"owner-{pick % 3}"
        revision = run.revision + slip
        acquisition = AcquireRun(**self._facts(), run_id=run.id, expected_revision=revision, owner_id=owner)
        first = CheckpointRunAssistant(
            **self._facts(),
            run_id=run.id,
            expected_revision=revision + 1,
            ownership=Ownership(owner=owner),
            patch=DraftPatch(),
        )
        self._send(conversation, handle, acquisition, *([first] if draft else []))

    @rule(
        conversation=conversations, handle=handles, pick=picks, slip=slips, keep=st.integers(0, 3), grows=st.booleans()
    )
    def checkpoint(self, conversation: str, handle: int, pick: int, slip: int, keep: int, *, grows: bool) -> None:
        """Extend a draft, or take some of it back."""
        run = self._run(conversation, pick)
        if run is None:
            return
        added = (TextPart(text="more"), ReasoningPart(text="hm"))[: pick % 3]
        patch = DraftPatch(keep=keep, grown=(GrownPart(keep - 1, " and more"),) if grows else (), added=added)
        command = CheckpointRunAssistant(
            **self._facts(),
            run_id=run.id,
            expected_revision=run.revision + slip,
            ownership=self._ownership(conversation, run, pick),
            patch=patch,
            usage=Usage.unknown() if pick % 2 else None,
        )
        self._send(conversation, handle, command)

    @rule(conversation=conversations, handle=handles, pick=picks, slip=slips)
    def operate(self, conversation: str, handle: int, pick: int, slip: int) -> None:
        """Record an operation."""
        run = self._run(conversation, pick)
        if run is None:
            return
        operation = RunOperation(operation_id="op", kind="compaction", phase="started", started_at=START)
        command = RecordRunOperation(
            **self._facts(),
            run_id=run.id,
            expected_revision=run.revision + slip,
            ownership=self._ownership(conversation, run, pick),
            operation=operation,
        )
        self._send(conversation, handle, command)

    @rule(conversation=conversations, handle=handles, pick=picks, slip=slips, what=st.integers(0, 3))
    def steer(self, conversation: str, handle: int, pick: int, slip: int, what: int) -> None:
        """Interrupt, cancel, requeue or abandon a run."""
        run = self._run(conversation, pick)
        if run is None:
            return
        facts = {**self._facts(), "run_id": run.id, "expected_revision": run.revision + slip}
        commands: tuple[Command, ...] = (
            RequestRunInterrupt(**facts),
            CancelRun(**facts),
            RecoverRun(**facts, action="requeue", replay_safe=pick > 1),
            RecoverRun(**facts, action="abandon"),
        )
        self._send(conversation, handle, commands[what])

    @rule(conversation=conversations, handle=handles, pick=picks, slip=slips, reason=st.sampled_from(REASONS))
    def end(self, conversation: str, handle: int, pick: int, slip: int, reason: str) -> None:
        """End a run, sometimes absorbing what waits."""
        run = self._run(conversation, pick)
        if run is None:
            return
        active = self._portal.call(self.model.list_active_runs, conversation)
        absorb = tuple(Absorption(other.id, other.input_message_ids) for other in active if other.id != run.id)
        status = message_status_for_terminal_reason(reason)  # type: ignore[arg-type]
        command = CommitRunTerminal(
            **self._facts(),
            run_id=run.id,
            expected_revision=run.revision + slip,
            ownership=self._ownership(conversation, run, pick),
            assistant=self._message(conversation, run.assistant_message_id, "assistant", status or "", run.id),
            reason=reason,  # type: ignore[arg-type]
            policy_name="limit" if reason == "policy_stop" else None,
            absorb=absorb if pick % 3 == 0 and reason in {"success", "provider_stop"} else (),
        )
        self._send(conversation, handle, command)

    @rule(
        conversation=conversations,
        handle=handles,
        first=st.integers(0, 20),
        length=st.integers(1, 4),
        gap=st.booleans(),
    )
    def compact(self, conversation: str, handle: int, first: int, length: int, *, gap: bool) -> None:
        """Replace some messages by a summary."""
        snapshot = self._portal.call(self.model.load_snapshot, conversation)
        ids = [message.id for message in snapshot.messages]
        chosen = ids[first : first + length]
        command = ReplaceCompactedRange(
            **self._facts(),
            expected_version=snapshot.version,
            replaced_message_ids=tuple(chosen[::2] if gap else chosen),
            summary=self._message(conversation, self._new("summary"), "summary", "committed"),
        )
        self._send(conversation, handle, command)

    @rule(conversation=conversations, handle=handles, lead=st.booleans(), known=st.booleans())
    def seed(self, conversation: str, handle: int, *, lead: bool, known: bool) -> None:
        """Place a seed, sometimes under a key that is known."""
        key = "seed" if known else self._new("seed")
        inputs = (self._message(conversation, self._new("seeded"), "user", "committed"),)
        placement = "lead" if lead else "after-settled"
        command = SeedConversation(**self._facts(), seed_key=key, inputs=inputs, placement=placement)  # type: ignore[arg-type]
        self._send(conversation, handle, command)

    @rule(conversation=conversations, handle=handles, once=st.booleans())
    def note(self, conversation: str, handle: int, *, once: bool) -> None:
        """Append an event, sometimes one that is there."""
        facts = self._facts()
        command = AppendEvent(**facts, kind="state/set", payload={"n": 1}, event_id="once" if once else None)
        self._send(conversation, handle, command)

    @rule(conversation=conversations, handle=handles, after=st.booleans())
    def stop(self, conversation: str, handle: int, *, after: bool) -> None:
        """Stop a writer at a commit; the commands are sent again to the other store, and count once."""
        command = self._accept(conversation, urgent=False, into=None, key=None)
        probe = self.files[handle].driver.writer.probe

        def fail() -> None:
            raise StoreCommitUnknownError("stopped")

        setattr(probe, "after_commit" if after else "before_commit", fail)
        outcome = self._portal.call(_outcome, lambda store: store.apply(conversation, (command,)), self.files[handle])
        probe.before_commit = probe.after_commit = _nothing
        purged = self._portal.call(self.model.load_head, conversation).version == 0
        assert outcome is StoreCommitUnknownError or purged
        self._touched = conversation
        wanted = self._portal.call(_outcome, lambda store: store.apply(conversation, (command,)), self.model)
        actual = self._portal.call(
            _outcome, lambda store: store.apply(conversation, (command,)), self.files[1 - handle]
        )
        assert _versions(actual) == _versions(wanted)

    @rule(handle=handles)
    def restart(self, handle: int) -> None:
        """Close a store and open it again."""
        self._restart(handle)

    def _restart(self, handle: int) -> None:
        self._portal.call(self.files[handle].__aexit__, None, None, None)
        self._portal.call(self.files[handle].__aenter__)

    @rule(handle=handles, pick=picks)
    def purge(self, handle: int, pick: int) -> None:
        """Purge the second conversation, rarely."""
        if pick == 0:
            self._touched = "c2"
            self._both(handle, lambda store: store.purge_conversation("c2"))

    # --- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def both_tell_the_same(self) -> None:
        """Snapshot, ledger, pages, changes, drafts and the scan are equal."""
        name = self._touched
        snapshot = self._portal.call(self.model.load_snapshot, name)
        self._seen[name][snapshot.version] = snapshot
        for handle in range(2):
            self._both(handle, lambda store: store.load_snapshot(name))
        self._both(0, lambda store: store.read_events(ReadEvents(conversation_id=name)))
        self._both(1, lambda store: store.read_messages(name))
        self._both(0, lambda store: store.load_changes(name, 3))
        self._both(1, lambda store: store.scan_recoverable())
        for run in self._portal.call(self.model.list_active_runs, name):
            assert run.state in ACTIVE_RUN_STATES
            self._both(0, lambda store, run=run: store.load_draft(name, run.id))  # type: ignore[misc]


def _nothing() -> None:
    """Do not stop."""


async def _archive(store: Store, name: str) -> bytes:
    return encode_archive(await store.export_conversation(name))


def _versions(outcome: object) -> object:
    if not isinstance(outcome, tuple):
        return outcome
    return [item.delta.version if isinstance(item, Applied) else item for item in outcome]


async def _outcome(do: Callable[[Store], Awaitable[object]], store: Store) -> object:
    try:
        return await do(store)
    except RunlaneError as error:
        return type(error)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=400 if DEEP else 12, stateful_step_count=60 if DEEP else 25, deadline=None
)
