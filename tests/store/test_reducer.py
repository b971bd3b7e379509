"""The reducer over the whole product of run states and commands."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import get_args

import pytest

from runlane.errors import ConversationPurgedError, UsageError
from runlane.records import (
    ACQUIRED_RUN_STATES,
    ACTIVE_RUN_STATES,
    Message,
    Ownership,
    Run,
    RunOperation,
    RunState,
    TextPart,
    Usage,
)
from runlane.store import (
    AcceptInput,
    AcquireRun,
    AppendEvent,
    Applied,
    CancelRun,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    Conflict,
    DraftPatch,
    NotFound,
    RecordRunOperation,
    RecoverRun,
    ReplaceCompactedRange,
    RequestRunInterrupt,
    SeedConversation,
)
from runlane.store._reducer import TRANSITIONS, advance, names, reduce
from runlane.store._rows import Head, RunRow, View
from runlane.store._step import Repeat

AT = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = Ownership(owner="o", fencing_token=1, lane_epoch=1)
STATES: tuple[RunState, ...] = get_args(RunState)
REASONS = {
    "completed": "success",
    "interrupted": "interrupted",
    "superseded": "superseded",
    "cancelled": "shutdown",
    "abandoned": "abandoned",
    "failed": "runtime_failure",
}


def _run(state: RunState, run_id: str = "r") -> Run:
    acquired = state != "queued"
    return Run.model_validate(
        {
            "id": run_id,
            "conversation_id": "c",
            "input_message_ids": [f"{run_id}-in"],
            "assistant_message_id": f"{run_id}-out",
            "state": state,
            "revision": 3,
            "owner_id": "o" if acquired else None,
            "fencing_token": 1 if acquired else None,
            "execution_sequence": 2 if acquired else None,
            "terminal_reason": REASONS.get(state),
            "created_at": AT,
            "updated_at": AT,
        }
    )


def _view(state: RunState) -> View:
    run = _run(state)
    row = RunRow(run, arrival=1, version=2, place=None if state == "queued" else 1 << 16)
    view = View(conversation_id="c", head=Head(version=5, seq=6, lane_epoch=1, lane_owner="o", next_place=1 << 20))
    (view.active if run.is_active else view.ended)["r"] = row
    return view


def _message(message_id: str, role: str = "user", status: str = "committed", run_id: str | None = None) -> Message:
    return Message.model_validate(
        {
            "id": message_id,
            "conversation_id": "c",
            "run_id": run_id,
            "role": role,
            "status": status,
            "parts": [TextPart(text="x")],
            "created_at": AT,
            "updated_at": AT,
        }
    )


def _run_commands() -> list[Command]:
    operation = RunOperation(operation_id="op", kind="compaction", phase="started", started_at=AT)
    return [
        AcquireRun(command_id="k", at=AT, run_id="r", expected_revision=3, owner_id="o"),
        CheckpointRunAssistant(
            command_id="k", at=AT, run_id="r", expected_revision=3, ownership=OWNER, patch=DraftPatch()
        ),
        RecordRunOperation(
            command_id="k", at=AT, run_id="r", expected_revision=3, ownership=OWNER, operation=operation
        ),
        RequestRunInterrupt(command_id="k", at=AT, run_id="r", expected_revision=3),
        CancelRun(command_id="k", at=AT, run_id="r", expected_revision=3),
        RecoverRun(command_id="k", at=AT, run_id="r", expected_revision=3, action="requeue", replay_safe=True),
        RecoverRun(command_id="k", at=AT, run_id="r", expected_revision=3, action="abandon"),
        CommitRunTerminal(
            command_id="k",
            at=AT,
            run_id="r",
            expected_revision=3,
            ownership=OWNER,
            assistant=_message("r-out", "assistant", "completed", "r"),
            reason="success",
        ),
    ]


def _conversation_commands() -> list[Command]:
    return [
        AcceptInput(
            command_id="k",
            at=AT,
            idempotency_key="key",
            input=_message("n-in"),
            run=Run(
                id="n",
                conversation_id="c",
                input_message_ids=("n-in",),
                assistant_message_id="n-out",
                state="queued",
                revision=0,
                created_at=AT,
                updated_at=AT,
            ),
        ),
        ReplaceCompactedRange(
            command_id="k", at=AT, expected_version=5, replaced_message_ids=("x",), summary=_message("s", "summary")
        ),
        SeedConversation(command_id="k", at=AT, seed_key="seed", inputs=(_message("z"),)),
        AppendEvent(command_id="k", at=AT, kind="state/set", payload={}),
    ]


def _name(value: object) -> str:
    action = getattr(value, "action", "")
    return value if isinstance(value, str) else f"{type(value).__name__}{action}"


# What the table of the specification says, written down a second time.
ALLOWED: dict[type[Command], set[str]] = {
    AcquireRun: {"queued"},
    CheckpointRunAssistant: {"running"},
    RecordRunOperation: {"running", "interrupt_requested"},
    RequestRunInterrupt: {"running"},
    CancelRun: {"queued"},
    RecoverRun: {"queued", "running", "interrupt_requested"},
    CommitRunTerminal: {"running", "interrupt_requested"},
}
TARGETS: dict[str, str] = {
    "AcquireRun": "running",
    "CheckpointRunAssistant": "running",
    "RequestRunInterrupt": "interrupt_requested",
    "CancelRun": "cancelled",
    "CommitRunTerminal": "completed",
}


@pytest.mark.parametrize(("state", "command"), list(product(STATES, _run_commands())), ids=_name)
def test_the_table_is_the_specification(state: RunState, command: Command) -> None:
    """Each command is applied in exactly the states it may be, leads where it must, and conflicts elsewhere."""
    view = _view(state)
    decision = reduce(view, command)
    if state not in ALLOWED[type(command)]:
        assert decision.outcome == Conflict(actual_version=3)
        assert decision.changes is None
        return
    assert isinstance(decision.outcome, Applied)
    assert decision.changes is not None
    _, after = decision.changes.runs["r"]
    wanted = TARGETS.get(type(command).__name__, state)
    if isinstance(command, RecoverRun):
        wanted = "queued" if command.action == "requeue" else "abandoned"
    assert after.run.state == wanted
    assert after.run.revision == 4
    assert (decision.changes.head.version, decision.changes.head.seq) == (6, 7)
    assert len(decision.changes.entries) == 1
    Run.model_validate(after.run.model_dump())


def test_every_row_of_the_table_is_named_here() -> None:
    """The table has a row for every command on a run, and its states agree with the specification."""
    assert {kind: set(rule.sources) for kind, rule in TRANSITIONS.items()} == ALLOWED
    assert {type(command) for command in _run_commands()} == set(TRANSITIONS)
    everything = {type(command) for command in (*_run_commands(), *_conversation_commands())}
    assert everything == set(get_args(Command))
    for rule in TRANSITIONS.values():
        assert rule.sources <= ACTIVE_RUN_STATES
        assert not rule.owned or rule.sources <= ACQUIRED_RUN_STATES


@pytest.mark.parametrize("command", [*_run_commands(), *_conversation_commands()], ids=_name)
@pytest.mark.parametrize("state", STATES)
def test_a_decision_never_changes_what_it_looked_at(state: RunState, command: Command) -> None:
    """The reducer is pure: the same view gives the same decision, and stays as it was."""
    view = _view(state)
    before = repr(view)
    first = reduce(view, command)
    assert repr(view) == before
    assert reduce(view, command) == first
    assert names((command,)) is not None


@pytest.mark.parametrize("command", [*_run_commands(), *_conversation_commands()], ids=_name)
def test_a_purged_conversation_refuses_first(command: Command) -> None:
    """Whatever else is wrong with a command, a purged conversation says so before anything is looked at."""
    view = _view("running")
    view.head = view.head._replace(purged=True)
    broken = replace(command, command_id="")
    for attempt in (command, broken):
        with pytest.raises(ConversationPurgedError):
            reduce(view, attempt)


_SET: dict[str, object] = {
    "state": "running",
    "revision": 1,
    "execution_sequence": 1,
    "owner_id": "o",
    "fencing_token": 1,
    "terminal_reason": "success",
    "terminal_policy_name": "p",
    "absorbed_into_run_id": "x",
    "usage": Usage.unknown(),
    "last_operation": RunOperation(operation_id="op", kind="compaction", phase="started", started_at=AT),
}
_FREE: dict[str, object] = {
    "schema_version": 1,
    "queue_priority": "interrupt-next",
    "request": {"k": 1},
    "created_at": AT,
    "updated_at": AT,
}
_IDENTITY = {"id", "conversation_id", "input_message_ids", "assistant_message_id"}


def _proposed(name: str, value: object) -> AcceptInput:
    (accept,) = (command for command in _conversation_commands() if isinstance(command, AcceptInput))
    return replace(accept, run=Run.model_construct(**{**accept.run.__dict__, name: value}))


def test_each_field_of_a_proposed_run_is_free_or_must_be_unset() -> None:
    """No field of a run is left out below."""
    assert {*_SET, *_FREE, *_IDENTITY} == set(Run.model_fields)


@pytest.mark.parametrize("name", _SET)
def test_a_proposed_run_that_did_something_is_refused(name: str) -> None:
    """A run that is proposed has no past: whatever only the store sets must be unset."""
    with pytest.raises(UsageError, match="with nothing set but priority and request"):
        reduce(_view("running"), _proposed(name, _SET[name]))


@pytest.mark.parametrize("name", _FREE)
def test_a_proposed_run_may_say_what_it_wants(name: str) -> None:
    """Priority, request and times are the caller's."""
    assert isinstance(reduce(_view("running"), _proposed(name, _FREE[name])).outcome, Applied)


@pytest.mark.parametrize("command", _run_commands(), ids=_name)
def test_an_unknown_run_is_not_found(command: Command) -> None:
    """A command on a run that is not there finds nothing."""
    assert reduce(View(conversation_id="c"), command).outcome == NotFound()


@pytest.mark.parametrize("command", [*_run_commands(), *_conversation_commands()], ids=_name)
def test_a_view_can_be_brought_up_to_a_decision(command: Command) -> None:
    """After `advance` the view shows what was decided, and the same command no longer applies as it did."""
    for state in STATES:
        view = _view(state)
        decision = reduce(view, command)
        if decision.changes is None:
            continue
        advance(view, decision.changes)
        assert view.head == decision.changes.head
        if isinstance(command, AppendEvent):
            continue
        try:
            again = reduce(view, command)
        except UsageError:
            continue
        assert again.changes is None
        assert isinstance(again.outcome, Conflict | NotFound | Repeat | Applied)
