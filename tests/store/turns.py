"""Whole turns as lists of command groups, for tests that send them more than once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from runlane.records import Message, Ownership, Run, RunOperation, TextPart, ToolCallPart, ToolResultPart
from runlane.store import (
    AcceptInput,
    AcquireRun,
    AppendEvent,
    Applied,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    DraftPatch,
    GrownPart,
    Outcome,
    RecordRunOperation,
    ReplaceCompactedRange,
    RequestRunInterrupt,
    SeedConversation,
    Store,
)
from runlane.testing._store_kit import START

Group: TypeAlias = list[Command]

CALL = ToolCallPart(call_id="call-1", tool_name="weather", arguments='{"city":"Paris"}', input={"city": "Paris"})
RESULT = ToolResultPart(call_id="call-1", tool_name="weather", outcome="success", output={"sky": "rain"})


def message(conversation_id: str, message_id: str, text: str, role: str = "user", status: str = "committed") -> Message:
    """Make a message; an answer belongs to the run its id is named after."""
    run_id = message_id.removesuffix("-out") if role == "assistant" else None
    facts = {"id": message_id, "conversation_id": conversation_id, "run_id": run_id, "role": role, "status": status}
    return Message.model_validate({**facts, "parts": [TextPart(text=text)], "created_at": START, "updated_at": START})


def accept(conversation_id: str, name: str, text: str = "hello") -> Group:
    """Return the admission of an input."""
    run = Run(
        id=name,
        conversation_id=conversation_id,
        input_message_ids=(f"{name}-in",),
        assistant_message_id=f"{name}-out",
        state="queued",
        revision=0,
        created_at=START,
        updated_at=START,
    )
    key = f"{conversation_id}/{name}"
    given = message(conversation_id, f"{name}-in", text)
    return [AcceptInput(command_id=f"{name}/accept", at=START, idempotency_key=key, input=given, run=run)]


def _operation(name: str, step: int, phase: str) -> RunOperation:
    facts = {"operation_id": f"{name}/{step}", "kind": "model-request", "phase": phase, "step": step}
    times = {"first_output_at": START} if phase == "first-output" else {}
    times |= {"finished_at": START} if phase == "completed" else {}
    return RunOperation.model_validate({**facts, "started_at": START, **times})


def turn(conversation_id: str, name: str, owner: str = "owner-a", text: str = "It rains. ") -> list[Group]:
    """Return a whole turn with one tool call as six groups; `carry_out` fills in the ownership."""
    nobody = Ownership(owner=owner)

    def checkpoint(number: int, revision: int, patch: DraftPatch) -> Command:
        return CheckpointRunAssistant(
            command_id=f"{name}/checkpoint-{number}",
            at=START,
            run_id=name,
            expected_revision=revision,
            ownership=nobody,
            patch=patch,
        )

    def operation(step: int, phase: str, revision: int) -> Command:
        return RecordRunOperation(
            command_id=f"{name}/{step}-{phase}",
            at=START,
            run_id=name,
            expected_revision=revision,
            ownership=nobody,
            operation=_operation(name, step, phase),
        )

    answer = message(conversation_id, f"{name}-out", text * 2, "assistant", "completed")
    end = CommitRunTerminal(
        command_id=f"{name}/end",
        at=START,
        run_id=name,
        expected_revision=9,
        ownership=nobody,
        assistant=answer,
        reason="success",
    )
    acquire = AcquireRun(command_id=f"{name}/acquire", at=START, run_id=name, expected_revision=0, owner_id=owner)
    return [
        accept(conversation_id, name),
        [acquire, checkpoint(0, 1, DraftPatch()), operation(0, "started", 2)],
        [operation(0, "first-output", 3), checkpoint(1, 4, DraftPatch(added=(CALL,)))],
        [checkpoint(2, 5, DraftPatch(keep=1, added=(RESULT, TextPart(text=text)))), operation(0, "completed", 6)],
        [checkpoint(3, 7, DraftPatch(keep=3, grown=(GrownPart(2, text),))), operation(1, "started", 8)],
        [end],
    ]


def turn_at_once(conversation_id: str, name: str, owner: str = "owner-a") -> list[Group]:
    """Return the same turn on an idle lane: its admission and its acquisition are one group."""
    accepted, acquired, *rest = turn(conversation_id, name, owner)
    return [[*accepted, *acquired], *rest]


def story(conversation_id: str) -> list[Group]:
    """Return a conversation with turns, a queue, an interrupt, a seed, events and a compaction."""
    seed = SeedConversation(
        command_id="seed", at=START, seed_key="k", inputs=(message(conversation_id, "seeded", "be brief"),)
    )
    event = AppendEvent(command_id="event", at=START, kind="state/set", payload={"x": 1})
    interrupt = RequestRunInterrupt(command_id="b/interrupt", at=START, run_id="b", expected_revision=5)
    first, second = turn(conversation_id, "a"), turn(conversation_id, "b")
    end = second[5][0]
    assert isinstance(end, CommitRunTerminal)
    cut = message(conversation_id, "b-out", "It r", "assistant", "interrupted")
    stopped = replace(end, assistant=cut, reason="interrupted", expected_revision=6)
    compact = ReplaceCompactedRange(
        command_id="compact",
        at=START,
        expected_version=20,
        replaced_message_ids=("a-in", "a-out"),
        summary=message(conversation_id, "sum", "in short", "summary"),
    )
    return [
        first[0],
        second[0],
        [seed],
        *first[1:],
        [event],
        *second[1:3],
        [interrupt],
        [stopped],
        [compact],
        *turn_at_once(conversation_id, "c"),
    ]


async def send(store: Store, conversation_id: str, group: Sequence[Command], owned: dict[str, Ownership]) -> Outcome:
    """Send a group, with the ownership of its runs filled in; return the last outcome."""
    filled = [_owned(command, owned) for command in group]
    outcomes = await store.apply(conversation_id, filled)
    for command, outcome in zip(group, outcomes, strict=False):
        if isinstance(command, AcquireRun) and isinstance(outcome, Applied) and outcome.ownership is not None:
            owned[command.run_id] = outcome.ownership
    return outcomes[-1]


def _owned(command: Command, owned: dict[str, Ownership]) -> Command:
    if isinstance(command, CheckpointRunAssistant | RecordRunOperation | CommitRunTerminal):
        return replace(command, ownership=owned.get(command.run_id, command.ownership))
    return command
