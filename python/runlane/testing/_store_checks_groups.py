"""Checks of transactions made of several commands, of their identities and of what they may hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from runlane.errors import InvalidValueError
from runlane.records import Ownership, RunOperation, TextPart
from runlane.store import (
    AcceptInput,
    AcquireRun,
    AppendEvent,
    Applied,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    Conflict,
    DraftPatch,
    Duplicate,
    GrownPart,
    RecordRunOperation,
    ReplaceCompactedRange,
    Store,
)
from runlane.testing._store_kit import START, Lane, StoreCheck, applied, conflict, expect, refused, same, store_check

__all__ = ["GROUP_CHECKS", "accepting", "acquiring"]


def accepting(lane: Lane, name: str, *, command_id: str | None = None) -> AcceptInput:
    """Return the admission of an input."""
    return AcceptInput(
        command_id=lane.ids.new("command") if command_id is None else command_id,
        at=lane.now(),
        idempotency_key=f"{name}-key",
        input=lane.message(f"{name}-in"),
        run=lane.proposal(name),
    )


def acquiring(lane: Lane, name: str, *, revision: int = 0) -> AcquireRun:
    """Return the acquisition of a run."""
    return AcquireRun(
        command_id=lane.ids.new("command"),
        at=lane.now(),
        run_id=name,
        expected_revision=revision,
        owner_id="owner-a",
    )


@store_check()
async def commands_are_applied_in_order_together(store: Store) -> None:
    """Several commands are one transaction, each its own version step and ledger entry."""
    lane = Lane(store)
    accepted, acquired = await store.apply("c1", [accepting(lane, "a"), acquiring(lane, "a")])
    same((applied(accepted).delta.version, applied(acquired).delta.version), (1, 2), "versions")
    same([message.id for message in applied(acquired).delta.messages], ["a-in"], "the executor's input")
    run = (await lane.view("a")).run
    same((run.state, run.revision, run.execution_sequence), ("running", 1, 2), "the run")
    ownership = applied(acquired).ownership
    expect(ownership is not None, "an acquisition must give an ownership")
    if ownership is None:
        return
    started = RunOperation(operation_id="o", kind="model-request", phase="started", step=0, started_at=START)
    commands: list[Command] = [
        CheckpointRunAssistant(
            command_id="k1",
            at=lane.now(),
            run_id="a",
            expected_revision=1,
            ownership=ownership,
            patch=DraftPatch(added=(TextPart(text="x"),)),
        ),
        RecordRunOperation(
            command_id="k2", at=lane.now(), run_id="a", expected_revision=2, ownership=ownership, operation=started
        ),
        CommitRunTerminal(
            command_id="k3",
            at=lane.now(),
            run_id="a",
            expected_revision=3,
            ownership=ownership,
            assistant=lane.message("a-out", "x", "assistant", "completed", run_id="a"),
            reason="success",
        ),
    ]
    outcomes = await store.apply("c1", commands)
    same([applied(outcome).delta.version for outcome in outcomes], [3, 4, 5], "versions")
    same([entry["type"] for entry in await lane.ledger()][2:], ["checkpoint", "operation", "terminal"], "the ledger")
    same((await lane.message_ids(), await store.load_draft("c1", "a")), (["a-in", "a-out"], None), "messages")


@store_check()
async def a_group_is_all_or_none(store: Store) -> None:
    """If one command of several is not applied, nothing is written, and the result ends with its outcome."""
    lane = Lane(store)
    await lane.accept("a")

    async def attempt() -> Applied | Conflict:
        outcomes = await store.apply("c1", [accepting(lane, "b"), acquiring(lane, "b"), accepting(lane, "c")])
        same(len(outcomes), 2, "outcomes")
        last = outcomes[-1]
        if isinstance(last, Applied | Conflict):
            return last
        raise AssertionError(f"wanted a conflict, got {last!r}")

    conflict(await lane.unchanged(attempt()), 0)
    taken = AcceptInput(
        command_id=lane.ids.new("command"),
        at=lane.now(),
        idempotency_key="another",
        input=lane.message("a-in"),
        run=lane.proposal("d"),
    )
    group: list[Command] = [accepting(lane, "b"), taken, accepting(lane, "c")]
    await lane.refused(store.apply("c1", group))
    await refused(store.apply("c1", []))
    await refused(store.apply("", [taken]), InvalidValueError)


@store_check()
async def an_idle_lane_is_entered_in_one_commit(store: Store) -> None:
    """Admission, acquisition, draft and first request are one transaction; a lane that is busy takes none of it."""
    lane = Lane(store)

    def entering(name: str) -> list[Command]:
        nobody = Ownership(owner="owner-a")
        started = RunOperation(operation_id="o", kind="model-request", phase="started", step=0, started_at=START)
        facts: dict[str, Any] = {"at": lane.now(), "run_id": name, "ownership": nobody}
        return [
            accepting(lane, name),
            acquiring(lane, name),
            CheckpointRunAssistant(
                **facts, command_id=lane.ids.new("command"), expected_revision=1, patch=DraftPatch()
            ),
            RecordRunOperation(**facts, command_id=lane.ids.new("command"), expected_revision=2, operation=started),
        ]

    group = entering("a")
    outcomes = await store.apply("c1", group)
    same([applied(outcome).delta.version for outcome in outcomes], [1, 2, 3, 4], "versions")
    same([entry["type"] for entry in await lane.ledger()], ["accept", "acquire", "checkpoint", "operation"], "ledger")
    same([applied(item).delta.version for item in await store.apply("c1", group)], [1, 2, 3, 4], "versions, sent again")
    repeated = await store.apply("c1", [replace(group[0], command_id="another"), *entering("a")[1:]])
    same([type(item) for item in repeated], [Duplicate], "a repeated key")
    behind = entering("b")
    blocked = await store.apply("c1", behind)
    same([type(item) for item in blocked], [Applied, Conflict], "on a busy lane")
    same(await lane.version(), 4, "the version after a refusal")
    same(applied((await store.apply("c1", behind[:1]))[0]).delta.version, 5, "the same admission alone")
    applied(await lane.try_end("a", ownership=applied(outcomes[1]).ownership))
    other = cast("AcceptInput", behind[0])
    behind[0] = replace(other, input=lane.message("b-in", "something else"))
    _, acquired, *_ = await store.apply("c1", behind)
    same([item.parts for item in applied(acquired).delta.messages], [other.input.parts], "what was admitted first")


@store_check()
async def a_command_sent_again_counts_as_applied(store: Store) -> None:
    """The same commands with the same ids are applied once; the second sending gives versions and ownership again."""
    lane = Lane(store)
    commands: list[Command] = [accepting(lane, "a"), acquiring(lane, "a")]
    first = await store.apply("c1", commands)
    ledger = await lane.ledger()
    again = await store.apply("c1", commands)
    same([applied(item).delta.version for item in again], [applied(item).delta.version for item in first], "versions")
    same(applied(again[1]).ownership, applied(first[1]).ownership, "the ownership")
    same([message.id for message in applied(again[1]).delta.messages], ["a-in"], "the executor's input")
    same(await lane.ledger(), ledger, "the ledger")
    event = AppendEvent(command_id="e1", at=lane.now(), kind="state/set", payload={"x": 1})
    for _ in range(2):
        same(applied((await store.apply("c1", [event]))[0]).delta.seq, 3, "the event's sequence")
    conflict((await store.apply("c1", [acquiring(lane, "a")]))[0], 1)


@store_check()
async def a_command_id_names_one_command(store: Store) -> None:
    """A second command under the id of a first one is refused, alone and within one group."""
    lane = Lane(store)
    applied((await store.apply("c1", [accepting(lane, "a", command_id="x")]))[0])
    await lane.refused(store.apply("c1", [accepting(lane, "b", command_id="x")]))
    await lane.refused(store.apply("c1", [accepting(lane, "b", command_id="y"), accepting(lane, "c", command_id="y")]))
    await lane.refused(store.apply("c1", [accepting(lane, "b", command_id="")]), InvalidValueError)
    applied(await lane.try_accept("b"))
    late = AcquireRun(command_id="x", at=lane.now(), run_id="a", expected_revision=7, owner_id="owner-a")
    await lane.refused(store.apply("c1", [late]))


@store_check()
async def a_group_names_each_identity_once(store: Store) -> None:
    """Two admissions of one key, or two entries of one id, cannot be one transaction; nothing of it is written."""
    lane = Lane(store)
    twice = accepting(lane, "a")
    await lane.refused(store.apply("c1", [twice, twice]))
    await lane.refused(store.apply("c1", [twice, replace(accepting(lane, "b"), idempotency_key=twice.idempotency_key)]))
    entry = AppendEvent(command_id="e1", at=lane.now(), kind="state/set", payload={}, event_id="e")
    await lane.refused(store.apply("c1", [entry, replace(entry, command_id="e2")]))
    same(await lane.version(), 0, "the version")
    applied((await store.apply("c1", [twice]))[0])


@store_check()
async def a_compaction_sees_what_it_replaces(store: Store) -> None:
    """In one transaction a compaction comes before whatever gives messages their place, or is refused."""
    lane = Lane(store)
    await lane.turn("a")

    def compact(version: int) -> ReplaceCompactedRange:
        return ReplaceCompactedRange(
            command_id=lane.ids.new("command"),
            at=lane.now(),
            expected_version=version,
            replaced_message_ids=("a-in", "a-out"),
            summary=lane.message("sum", role="summary"),
        )

    version = await lane.version()
    await lane.refused(store.apply("c1", [accepting(lane, "b"), compact(version + 1)]))
    outcomes = await store.apply("c1", [compact(version), accepting(lane, "b")])
    same([applied(outcome).delta.version for outcome in outcomes], [version + 1, version + 2], "versions")
    same(await lane.message_ids(), ["sum", "b-in"], "messages")


@store_check()
async def what_no_record_may_hold_is_refused(store: Store) -> None:
    """An identifier that a read would refuse is refused before it is written, and so is what is no command."""
    lane = Lane(store)
    await lane.accept("a")
    acquire = acquiring(lane, "a")
    end = CommitRunTerminal(
        command_id="end",
        at=lane.now(),
        run_id="a",
        expected_revision=1,
        ownership=Ownership(owner="owner-a"),
        assistant=lane.message("a-out", "x", "assistant", "completed", run_id="a"),
        reason="policy_stop",
        policy_name="p",
    )
    wrong: list[Command] = [replace(acquire, owner_id=text) for text in ("", "x" * 513, "\ud800")]
    wrong += [replace(end, policy_name=text) for text in ("", "\ud800")]
    wrong += [replace(acquire, command_id="\udfff"), replace(acquire, expected_revision=-1)]
    for command in wrong:
        await lane.refused(store.apply("c1", [command]), InvalidValueError)
    await lane.refused(store.apply("c1", [cast("Command", "acquire")]))
    await lane.start("a")
    grown = DraftPatch(keep=1, grown=(GrownPart(0, cast("str", ["x"])),))
    await lane.say("a", "so far")
    await lane.refused(lane.try_checkpoint("a", grown), InvalidValueError)
    applied(await lane.try_end("a"))


GROUP_CHECKS: tuple[StoreCheck, ...] = (
    commands_are_applied_in_order_together,
    a_group_is_all_or_none,
    an_idle_lane_is_entered_in_one_commit,
    a_command_sent_again_counts_as_applied,
    a_command_id_names_one_command,
    a_group_names_each_identity_once,
    a_compaction_sees_what_it_replaces,
    what_no_record_may_hold_is_refused,
)
