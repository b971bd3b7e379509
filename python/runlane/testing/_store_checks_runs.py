"""Checks of a run's life: acquisition, ownership, checkpoints, operations, ends, recovery."""

from __future__ import annotations

from typing import Literal, get_args

from runlane.records import (
    COMPLETING_REASONS,
    Ownership,
    ReasoningPart,
    RunOperation,
    TerminalReason,
    TextPart,
    Usage,
    UsageValue,
    message_status_for_terminal_reason,
    run_state_for_terminal_reason,
)
from runlane.store import Absorption, DraftPatch, GrownPart, Outcome, Store
from runlane.testing._store_kit import (
    START,
    Lane,
    StoreCheck,
    applied,
    conflict,
    duplicate,
    expect,
    not_found,
    same,
    store_check,
)

__all__ = ["RUN_CHECKS"]

SPENT = Usage.unknown().model_copy(update={"input_tokens": UsageValue(value=7, provenance="provider-reported")})


def _operation(phase: str = "started") -> RunOperation:
    ended = phase in {"completed", "failed", "cancelled"}
    facts: dict[str, object] = {
        "operation_id": "op-1",
        "kind": "model-request",
        "phase": phase,
        "step": 0,
        "started_at": START,
        "first_output_at": START if phase == "first-output" else None,
        "finished_at": START if ended else None,
    }
    return RunOperation.model_validate(facts)


async def _record(lane: Lane, name: str, ownership: Ownership, phase: str = "started") -> Outcome:
    return await lane.store.record_run_operation(
        conversation_id=lane.id,
        run_id=name,
        expected_revision=await lane.revision(name),
        ownership=ownership,
        operation=_operation(phase),
    )


@store_check()
async def acquisition_is_exclusive(store: Store) -> None:
    """An acquired run has an owner, token 1 and the version as its sequence; nobody else can acquire anything."""
    lane = Lane(store)
    await lane.accept("a", "b")
    outcome = applied(await lane.try_acquire("a", "owner-a"))
    run = (await lane.view("a")).run
    same((run.state, run.owner_id, run.fencing_token, run.revision), ("running", "owner-a", 1, 1), "the run")
    same(run.execution_sequence, outcome.delta.version, "the execution sequence")
    expect(run.updated_at > run.created_at, "the run says when it was last changed")
    ownership = outcome.ownership
    expect(ownership is not None, "an acquisition must give an ownership")
    same([message.id for message in outcome.delta.messages], ["a-in"], "what the executor may see now")
    conflict(await lane.unchanged(lane.try_acquire("a", "owner-b")), 1)
    conflict(await lane.unchanged(lane.try_acquire("b", "owner-a")), 0)
    conflict(await lane.unchanged(lane.try_acquire("a", "owner-b", revision=0)), 1)


@store_check()
async def a_lane_that_changes_hands_has_another_epoch(store: Store) -> None:
    """Its epoch stays while one owner goes on; another owner, or the same after a recovery, gets a higher one."""
    lane = Lane(store)
    epochs: list[int | None] = []
    for name, owner in (("a", "owner-a"), ("b", "owner-a"), ("c", "owner-b"), ("d", "owner-a")):
        await lane.accept(name)
        epochs.append((await lane.start(name, owner)).lane_epoch)
        applied(await lane.try_end(name))
    await lane.accept("e")
    await lane.start("e", "owner-a")
    applied(await _recover(lane, "e", "requeue"))
    epochs.append((await lane.start("e", "owner-a")).lane_epoch)
    first, same_owner, other, back, recovered = (epoch or 0 for epoch in epochs)
    expect(first == same_owner < other < back < recovered, f"the epochs are {epochs}")


@store_check()
async def every_owned_write_is_compared_whole(store: Store) -> None:
    """A wrong owner, token, lane epoch or revision alone makes each owned write conflict; absent ones do not."""
    lane = Lane(store)
    await lane.accept("a")
    good = await lane.start("a")
    wrong = [
        good.model_copy(update={"owner": "somebody"}),
        good.model_copy(update={"fencing_token": (good.fencing_token or 0) + 1}),
        good.model_copy(update={"lane_epoch": (good.lane_epoch or 0) + 1}),
    ]
    for ownership in wrong:
        conflict(await lane.unchanged(lane.try_checkpoint("a", DraftPatch(), ownership=ownership)), 1)
        conflict(await lane.unchanged(_record(lane, "a", ownership)), 1)
        conflict(await lane.unchanged(lane.try_end("a", ownership=ownership)), 1)
    conflict(await lane.unchanged(lane.try_checkpoint("a", DraftPatch(), revision=0)), 1)
    conflict(await lane.unchanged(lane.try_end("a", revision=2)), 1)
    bare = Ownership(owner=good.owner)
    applied(await lane.try_checkpoint("a", DraftPatch(), ownership=bare))
    applied(await _record(lane, "a", bare))
    applied(await lane.try_end("a", ownership=bare))


@store_check()
async def a_checkpoint_extends_the_draft(store: Store) -> None:
    """Checkpoints append parts and text, a read puts them together, usage is kept, and no draft shows as an answer."""
    lane = Lane(store)
    await lane.accept("a")
    await lane.start("a")
    same(await store.load_draft("c1", "a"), None, "the draft before the first checkpoint")
    outcome = applied(await lane.try_checkpoint("a", DraftPatch()))
    same(outcome.delta.messages, (), "a checkpoint repeats no draft")
    draft = await store.load_draft("c1", "a")
    expect(draft is not None and draft.parts == () and draft.status == "streaming", "an empty draft")
    first = DraftPatch(added=(ReasoningPart(text="hm"), TextPart(text="He")))
    applied(await lane.try_checkpoint("a", first, usage=SPENT))
    grown = DraftPatch(keep=2, grown=(GrownPart(1, "llo"), GrownPart(0, "m")), added=(TextPart(text="!"),))
    applied(await lane.try_checkpoint("a", grown))
    draft = await store.load_draft("c1", "a")
    wanted = (ReasoningPart(text="hmm"), TextPart(text="Hello"), TextPart(text="!"))
    same(draft and draft.parts, wanted, "the draft")
    view = await lane.view("a")
    same((view.assistant, view.run.usage, view.run.revision), (None, SPENT, 4), "the running run")
    same(await lane.message_ids(), ["a-in", "a-out"], "the snapshot shows the draft")
    same([item.message_id for item in (await store.read_messages("c1")).items], ["a-in"], "the reader does not")


@store_check()
async def a_draft_can_be_taken_back(store: Store) -> None:
    """A patch that keeps fewer parts removes the others; one that keeps none begins anew."""
    lane = Lane(store)
    await lane.accept("a")
    await lane.start("a")
    applied(await lane.try_checkpoint("a", DraftPatch(added=(TextPart(text="one"), TextPart(text="two")))))
    applied(await lane.try_checkpoint("a", DraftPatch(keep=1, added=(TextPart(text="three"),))))
    draft = await store.load_draft("c1", "a")
    same(draft and draft.text, "onethree", "after keeping one part")
    applied(await lane.try_checkpoint("a", DraftPatch()))
    draft = await store.load_draft("c1", "a")
    same(draft and draft.parts, (), "after keeping nothing")
    applied(await lane.try_checkpoint("a", DraftPatch(added=(TextPart(text="four"),))))
    draft = await store.load_draft("c1", "a")
    same(draft and draft.text, "four", "after beginning anew")


@store_check()
async def a_patch_must_fit_its_draft(store: Store) -> None:
    """A patch that keeps or grows what is not there, or grows what cannot, is misuse and changes nothing."""
    lane = Lane(store)
    await lane.accept("a")
    await lane.start("a")
    patches = [
        DraftPatch(keep=1),
        DraftPatch(keep=-1),
        DraftPatch(grown=(GrownPart(0, "x"),)),
    ]
    for patch in patches:
        await lane.refused(lane.try_checkpoint("a", patch))
    await lane.say("a", "text")
    for grown in (GrownPart(1, "x"), GrownPart(-1, "x")):
        await lane.refused(lane.try_checkpoint("a", DraftPatch(keep=1, grown=(grown,))))


@store_check()
async def a_new_execution_decides_about_the_old_draft(store: Store) -> None:
    """A requeued run keeps its draft until its next execution drops it or goes on with it."""
    for name, patch, wanted in (
        ("a", DraftPatch(added=(TextPart(text="new"),)), "new"),
        ("b", DraftPatch(keep=1, grown=(GrownPart(0, "er"),)), "older"),
    ):
        lane = Lane(store)
        await lane.accept(name)
        await lane.start(name)
        await lane.say(name, "old")
        await _recover(lane, name, "requeue")
        await lane.start(name)
        draft = await store.load_draft("c1", name)
        same(draft and draft.text, "old", "the draft after the second acquisition")
        applied(await lane.try_checkpoint(name, patch))
        draft = await store.load_draft("c1", name)
        same(draft and draft.text, wanted, "the draft of the second execution")
        applied(await lane.try_end(name))


@store_check()
async def operations_are_recorded_while_acquired(store: Store) -> None:
    """An operation replaces the last one while the run runs or was asked to stop, and at no other time."""
    lane = Lane(store)
    await lane.accept("a")
    nobody = Ownership(owner="owner-a")
    conflict(await lane.unchanged(_record(lane, "a", nobody)), 0)
    ownership = await lane.start("a")
    applied(await _record(lane, "a", ownership))
    same((await lane.view("a")).run.last_operation, _operation(), "the operation")
    applied(await lane.try_interrupt("a"))
    applied(await _record(lane, "a", ownership, "cancelled"))
    same((await lane.view("a")).run.last_operation, _operation("cancelled"), "the closed operation")
    applied(await lane.try_end("a", "interrupted"))
    conflict(await lane.unchanged(_record(lane, "a", ownership)), 5)


@store_check()
async def an_interrupt_is_asked_once(store: Store) -> None:
    """A running run can be asked to stop once; then it takes no checkpoint; queued and ended runs conflict."""
    lane = Lane(store)
    await lane.accept("a")
    conflict(await lane.unchanged(lane.try_interrupt("a")), 0)
    await lane.start("a")
    await lane.say("a", "so far")
    applied(await lane.try_interrupt("a"))
    same((await lane.view("a")).run.state, "interrupt_requested", "the state")
    conflict(await lane.unchanged(lane.try_interrupt("a")), 3)
    conflict(await lane.unchanged(lane.try_checkpoint("a", DraftPatch(keep=1))), 3)
    applied(await lane.try_end("a", "success"))
    conflict(await lane.unchanged(lane.try_interrupt("a")), 4)


@store_check()
async def each_reason_has_its_state_and_status(store: Store) -> None:
    """A run ends in the state its reason maps to, with an answer of the mapped status; any other status conflicts."""
    lane = Lane(store)
    reasons: list[TerminalReason] = [reason for reason in get_args(TerminalReason) if reason != "absorbed"]
    for reason in reasons:
        name = f"run-{reason}"
        await lane.accept(name)
        ownership = await lane.start(name)
        status = message_status_for_terminal_reason(reason)
        wrong = lane.message(f"{name}-out", "x", "assistant", "superseded", run_id=name)
        if status != "superseded":
            attempt = store.commit_run_terminal(
                conversation_id="c1",
                run_id=name,
                expected_revision=1,
                ownership=ownership,
                assistant=wrong,
                reason=reason,
                policy_name="limit" if reason == "policy_stop" else None,
            )
            conflict(await lane.unchanged(attempt), 1)
        outcome = applied(await lane.try_end(name, reason, policy_name="limit" if reason == "policy_stop" else None))
        view = await lane.view(name)
        same(view.run.state, run_state_for_terminal_reason(reason), f"the state after {reason}")
        same(view.run.terminal_reason, reason, "the reason")
        same(view.assistant and view.assistant.status, status, f"the status after {reason}")
        same(outcome.delta.messages, (view.assistant,), "the delta's message")
        same((view.run.owner_id, view.run.fencing_token), (ownership.owner, ownership.fencing_token), "who ended it")
    same(await store.list_active_runs("c1"), (), "active runs")


@store_check()
async def an_end_keeps_what_was_spent(store: Store) -> None:
    """An end without usage keeps the checkpointed one; an end with usage replaces it; the draft is gone."""
    lane = Lane(store)
    for name, usage, wanted in (("a", None, SPENT), ("b", Usage.unknown(), Usage.unknown())):
        await lane.accept(name)
        await lane.start(name)
        applied(await lane.try_checkpoint(name, DraftPatch(added=(TextPart(text="draft"),)), usage=SPENT))
        applied(await lane.try_end(name, "success", "whole answer", usage=usage))
        view = await lane.view(name)
        same((view.run.usage, view.assistant and view.assistant.text), (wanted, "whole answer"), "the ended run")
        same(await store.load_draft("c1", name), None, "the draft of an ended run")


@store_check()
async def an_answer_is_the_runs_own(store: Store) -> None:
    """An answer of another run, role, id or conversation conflicts; it is never written."""
    lane = Lane(store)
    await lane.accept("a")
    ownership = await lane.start("a")
    good = lane.message("a-out", "x", "assistant", "completed", run_id="a")
    changes: list[dict[str, object]] = [
        {"id": "other"},
        {"run_id": None},
        {"run_id": "b"},
        {"role": "user"},
        {"conversation_id": "c2"},
    ]
    for change in changes:
        attempt = store.commit_run_terminal(
            conversation_id="c1",
            run_id="a",
            expected_revision=1,
            ownership=ownership,
            assistant=good.model_copy(update=change),
            reason="success",
        )
        conflict(await lane.unchanged(attempt), 1)


@store_check()
async def an_end_can_be_misused(store: Store) -> None:
    """Reason `absorbed`, a policy name without policy stop or the reverse: misuse, and nothing is written."""
    lane = Lane(store)
    await lane.accept("a")
    await lane.start("a")
    await lane.refused(lane.try_end("a", "absorbed"))
    await lane.refused(lane.try_end("a", "policy_stop"))
    await lane.refused(lane.try_end("a", "success", policy_name="limit"))
    same((await lane.view("a")).run.state, "running", "the run")


@store_check()
async def an_end_absorbs_answered_runs(store: Store) -> None:
    """Absorbed runs end with a pointer and no message; their inputs join the absorbing run, before its answer."""
    lane = Lane(store)
    await lane.accept("a")
    await lane.start("a")
    await lane.accept("b", "c")
    applied(await lane.try_accept("c2", into="c"))
    outcome = applied(await lane.try_end("a", absorb=["b", "c"]))
    same([run.id for run in outcome.delta.runs], ["a", "b", "c"], "changed runs")
    absorbing = (await lane.view("a")).run
    same(absorbing.input_message_ids, ("a-in", "b-in", "c-in", "c2-in"), "the absorbing run's inputs")
    for name in ("b", "c"):
        view = await lane.view(name)
        facts = (view.run.state, view.run.terminal_reason, view.run.absorbed_into_run_id, view.run.revision)
        revision = 1 if name == "b" else 2
        same((facts, view.assistant), (("superseded", "absorbed", "a", revision), None), f"the absorbed run {name}")
        same(await store.load_draft("c1", name), None, "its draft")
    same(await lane.message_ids(), ["a-in", "b-in", "c-in", "c2-in", "a-out"], "messages")
    same(await store.list_active_runs("c1"), (), "active runs")
    found = duplicate(await lane.try_accept("x", key="b-key"))
    same((found.run.id, found.receipt.input.id, found.assistant), ("a", "b-in", (await lane.view("a")).assistant), "b")
    same([run.id for run in (await store.load_snapshot("c1")).runs], ["a"], "runs of the snapshot")
    await lane.turn("d")


@store_check()
async def a_stale_absorption_is_dropped(store: Store) -> None:
    """An entry whose run has other inputs, is unknown or not queued is dropped; the end still commits."""
    lane = Lane(store)
    await lane.accept("a")
    ownership = await lane.start("a")
    await lane.accept("b")
    applied(await lane.try_accept("c", into="b"))
    outcome = await store.commit_run_terminal(
        conversation_id="c1",
        run_id="a",
        expected_revision=1,
        ownership=ownership,
        assistant=lane.message("a-out", "x", "assistant", "completed", run_id="a"),
        reason="success",
        absorb=(Absorption("b", ("b-in",)), Absorption("nobody", ("x",))),
    )
    same([run.id for run in applied(outcome).delta.runs], ["a"], "changed runs")
    same((await lane.view("b")).run.state, "queued", "the run that had one more input")


@store_check()
async def absorption_can_be_misused(store: Store) -> None:
    """Absorbing oneself, a run twice, or with a reason that answers nothing: misuse, and nothing is written."""
    lane = Lane(store)
    await lane.accept("a")
    await lane.start("a")
    await lane.accept("b")
    await lane.refused(lane.try_end("a", absorb=["b", "b"]))
    await lane.refused(lane.try_end("a", absorb=["a"]))
    for reason in sorted(set(get_args(TerminalReason)) - COMPLETING_REASONS - {"absorbed"}):
        await lane.refused(lane.try_end("a", reason, absorb=["b"]))


async def _recover(
    lane: Lane, name: str, action: Literal["requeue", "abandon"], /, *, replay_safe: bool = True
) -> Outcome:
    return await lane.store.recover_run(
        conversation_id=lane.id,
        run_id=name,
        expected_revision=await lane.revision(name),
        action=action,
        replay_safe=replay_safe,
        evidence={"why": "a check"},
    )


@store_check()
async def a_requeued_run_keeps_its_place(store: Store) -> None:
    """Requeueing removes the owner and nothing else; the run goes first again, before urgent ones, with token 2."""
    lane = Lane(store)
    await lane.accept("a")
    old = await lane.start("a")
    applied(await lane.try_checkpoint("a", DraftPatch(), usage=SPENT))
    before = (await lane.view("a")).run
    applied(await lane.try_accept("u", run=lane.proposal("u", priority="interrupt-next")))
    applied(await _recover(lane, "a", "requeue"))
    run = (await lane.view("a")).run
    same((run.state, run.owner_id, run.revision), ("queued", None, before.revision + 1), "the run")
    kept = (run.fencing_token, run.execution_sequence, run.usage)
    same(kept, (1, before.execution_sequence, SPENT), "what is carried")
    same([item.id for item in await store.list_active_runs("c1")], ["a", "u"], "the order")
    conflict(await lane.unchanged(lane.try_acquire("u")), 0)
    new = await lane.start("a", "owner-b")
    same((new.fencing_token, new.owner), (2, "owner-b"), "the new ownership")
    same((await lane.view("a")).run.execution_sequence, before.execution_sequence, "the sequence")
    revision = await lane.revision("a")
    conflict(await lane.unchanged(lane.try_checkpoint("a", DraftPatch(), ownership=old)), revision)
    conflict(await lane.unchanged(lane.try_end("a", ownership=old)), revision)
    applied(await lane.try_end("a", ownership=new))


@store_check()
async def a_requeue_needs_evidence(store: Store) -> None:
    """An acquired run is requeued only by a caller that says it is safe; a queued one needs no saying."""
    lane = Lane(store)
    await lane.accept("a")
    applied(await _recover(lane, "a", "requeue", replay_safe=False))
    await lane.start("a")
    await lane.refused(_recover(lane, "a", "requeue", replay_safe=False))
    stale = store.recover_run(conversation_id="c1", run_id="a", expected_revision=0, action="requeue")
    conflict(await lane.unchanged(stale), 2)


@store_check()
async def an_abandoned_run_keeps_what_it_said(store: Store) -> None:
    """Abandoning ends a run in any active state: without owner, with a failed answer that holds the draft's parts."""
    lane = Lane(store)
    await lane.accept("a", "b", "c")
    await lane.start("a")
    await lane.say("a", "so ")
    await lane.say("a", "far")
    applied(await _recover(lane, "a", "abandon"))
    view = await lane.view("a")
    same((view.run.state, view.run.terminal_reason, view.run.owner_id), ("abandoned", "abandoned", None), "the run")
    same(view.assistant and (view.assistant.status, view.assistant.text), ("failed", "so far"), "its answer")
    same(await store.load_draft("c1", "a"), None, "its draft")
    await lane.start("b")
    applied(await lane.try_interrupt("b"))
    applied(await _recover(lane, "b", "abandon"))
    applied(await _recover(lane, "c", "abandon"))
    answer = (await lane.view("c")).assistant
    same(answer and (answer.parts, answer.created_at), ((), (await lane.view("c")).run.created_at), "c's answer")
    same(await store.list_active_runs("c1"), (), "active runs")
    same((await store.scan_recoverable()).items, (), "recoverable runs")
    conflict(await lane.unchanged(_recover(lane, "a", "abandon")), await lane.revision("a"))
    same(await lane.message_ids(), ["a-in", "a-out", "b-in", "b-out", "c-in", "c-out"], "messages")


@store_check()
async def a_queued_run_can_be_cancelled(store: Store) -> None:
    """Cancelling ends a run that never started, with an empty interrupted answer; any other run conflicts."""
    lane = Lane(store)
    await lane.accept("a", "b")
    await lane.start("a")

    async def cancel(name: str) -> Outcome:
        return await store.cancel_run(conversation_id="c1", run_id=name, expected_revision=await lane.revision(name))

    conflict(await lane.unchanged(cancel("a")), 1)
    outcome = applied(await cancel("b"))
    view = await lane.view("b")
    same((view.run.state, view.run.terminal_reason), ("cancelled", "cancelled"), "the run")
    same(view.assistant and (view.assistant.status, view.assistant.parts), ("interrupted", ()), "its answer")
    same(outcome.delta.messages, (view.assistant,), "the delta's message")
    conflict(await lane.unchanged(cancel("b")), 1)
    applied(await lane.try_end("a"))
    same(await lane.message_ids(), ["a-in", "a-out", "b-in", "b-out"], "messages")
    await lane.accept("c")
    await lane.start("c")
    applied(await _recover(lane, "c", "requeue"))
    conflict(await lane.unchanged(cancel("c")), 2)


@store_check("c1", "c2")
async def an_unknown_run_is_not_found(store: Store) -> None:
    """Every command on a run that the conversation does not have finds nothing, whatever revision it expects."""
    lane = Lane(store, "c2")
    await Lane(store).accept("a")
    owner = Ownership(owner="o")
    answer = lane.message("a-out", "x", "assistant", "completed", run_id="a")
    run_id, revision = "a", 0
    outcomes = [
        await store.acquire_run(conversation_id="c2", run_id=run_id, expected_revision=revision, owner_id="o"),
        await store.request_run_interrupt(conversation_id="c2", run_id=run_id, expected_revision=revision),
        await store.cancel_run(conversation_id="c2", run_id=run_id, expected_revision=revision),
        await store.recover_run(conversation_id="c2", run_id=run_id, expected_revision=revision, action="abandon"),
        await store.checkpoint_run_assistant(
            conversation_id="c2", run_id=run_id, expected_revision=revision, ownership=owner, patch=DraftPatch(keep=3)
        ),
        await store.record_run_operation(
            conversation_id="c2", run_id=run_id, expected_revision=revision, ownership=owner, operation=_operation()
        ),
        await store.commit_run_terminal(
            conversation_id="c2",
            run_id=run_id,
            expected_revision=revision,
            ownership=owner,
            assistant=answer,
            reason="success",
        ),
    ]
    for outcome in outcomes:
        not_found(outcome)
    same(await store.load_run("c2", run_id), None, "the run of another conversation")


RUN_CHECKS: tuple[StoreCheck, ...] = (
    acquisition_is_exclusive,
    a_lane_that_changes_hands_has_another_epoch,
    every_owned_write_is_compared_whole,
    a_checkpoint_extends_the_draft,
    a_draft_can_be_taken_back,
    a_patch_must_fit_its_draft,
    a_new_execution_decides_about_the_old_draft,
    operations_are_recorded_while_acquired,
    an_interrupt_is_asked_once,
    each_reason_has_its_state_and_status,
    an_end_keeps_what_was_spent,
    an_answer_is_the_runs_own,
    an_end_can_be_misused,
    an_end_absorbs_answered_runs,
    a_stale_absorption_is_dropped,
    absorption_can_be_misused,
    a_requeued_run_keeps_its_place,
    a_requeue_needs_evidence,
    an_abandoned_run_keeps_what_it_said,
    a_queued_run_can_be_cancelled,
    an_unknown_run_is_not_found,
)
