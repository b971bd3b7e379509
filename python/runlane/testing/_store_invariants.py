"""What holds of every conversation at every moment, checked from what a store tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runlane.contracts import require_kind
from runlane.records import (
    Run,
    Snapshot,
    message_status_for_terminal_reason,
)
from runlane.store import EventEnvelope, ReadEvents, RunView, Store, TransitionRecord
from runlane.testing._store_kit import expect, same

__all__ = ["check_conversation"]

_PAGE: Final = 1_000


async def check_conversation(store: Store, conversation_id: str, /) -> None:
    """Check the invariants of a whole conversation: its ledger, its runs, its messages, and that they agree.

    Reads everything, so it is for tests and for looking into a store, not for every turn.

    Args:
        store: An open store, without writers on this conversation.
        conversation_id: The conversation; an unknown one is empty and passes.

    Raises:
        UsageError: `store` is no store.
        AssertionError: An invariant is broken.
        RecordCorruptError: A row contradicts itself.
    """
    require_kind(store, Store, argument="store")
    version = (await store.load_head(conversation_id)).version
    events = await _ledger(store, conversation_id)
    _check_ledger(events, version)
    snapshot = await store.load_snapshot(conversation_id)
    same(snapshot.version, version, "the snapshot's version")
    _check_snapshot(snapshot)
    for run_id, records in _by_run(events).items():
        view = await store.load_run(conversation_id, run_id)
        if view is None:
            raise AssertionError(f"the ledger names run {run_id!r}, which is not there")
        _check_run(view, records)
        if not view.run.is_active:
            same(await store.load_draft(conversation_id, run_id), None, f"the draft of ended run {run_id!r}")
    active = await store.list_active_runs(conversation_id)
    same([run for run in snapshot.runs if run.is_active], list(active), "active runs")


async def _ledger(store: Store, conversation_id: str) -> list[EventEnvelope]:
    events: list[EventEnvelope] = []
    following: int | None = 1
    while following is not None:
        query = ReadEvents(conversation_id=conversation_id, from_seq=following, limit=_PAGE)
        page = await store.read_events(query)
        events += page.items
        following = page.next_seq
    return events


def _check_ledger(events: Sequence[EventEnvelope], version: int) -> None:
    same([event.seq for event in events], list(range(1, len(events) + 1)), "sequences")
    versions = [event.version for event in events if event.kind == "runtime/transition"]
    same(versions, list(range(1, version + 1)), "versions of transitions")
    ids = [event.event_id for event in events]
    expect(len(set(ids)) == len(ids), "event ids are unique")


def _by_run(events: Sequence[EventEnvelope]) -> dict[str, list[TransitionRecord]]:
    found: dict[str, list[TransitionRecord]] = {}
    for event in events:
        if event.kind != "runtime/transition":
            continue
        record = TransitionRecord.model_validate(event.payload)
        if record.run_id is not None:
            found.setdefault(record.run_id, []).append(record)
        for absorbed in record.absorbed or ():
            mark = TransitionRecord(
                type="terminal",
                run_id=absorbed.run_id,
                revision=absorbed.revision,
                state="superseded",
                reason="absorbed",
            )
            found.setdefault(absorbed.run_id, []).append(mark)
    return found


def _check_run(view: RunView, records: Sequence[TransitionRecord]) -> None:
    run = view.run
    what = f"run {run.id!r}"
    same([record.revision for record in records], list(range(run.revision + 1)), f"revisions of {what}")
    same(records[-1].state, run.state, f"the state of {what}")
    tokens = [record.fencing_token for record in records if record.type == "acquire"]
    same(tokens, list(range(1, len(tokens) + 1)), f"fencing tokens of {what}")
    ends = [record for record in records if record.reason is not None]
    expect(len(ends) == (0 if run.is_active else 1), f"{what} ends once")
    if run.terminal_reason is None or run.terminal_reason == "absorbed":
        same(view.assistant, None, f"the answer of {what}")
        return
    status = None if view.assistant is None else view.assistant.status
    same(status, message_status_for_terminal_reason(run.terminal_reason), f"the answer's status of {what}")


def _check_snapshot(snapshot: Snapshot) -> None:
    ids = [message.id for message in snapshot.messages]
    expect(len(set(ids)) == len(ids), "message ids are unique")
    runs = {run.id: run for run in snapshot.runs}
    expect(len(runs) == len(snapshot.runs), "run ids are unique")
    answers = {run.assistant_message_id: run for run in snapshot.runs}
    expect(len(answers) == len(runs), "reserved answers are unique")
    for message in snapshot.messages:
        owner = answers.get(message.id)
        same(message.run_id, None if owner is None else owner.id, f"the run of message {message.id!r}")
    expect(sum(run.is_acquired for run in snapshot.runs) <= 1, "at most one run is acquired")
    _check_order(ids, snapshot.runs)


def _check_order(ids: Sequence[str], runs: Sequence[Run]) -> None:
    """Messages of runs stand in the order of their runs, inputs before the answer."""
    place = {message_id: index for index, message_id in enumerate(ids)}
    found: list[int] = []
    for run in runs:
        if run.terminal_reason == "absorbed":
            continue
        own = [*run.input_message_ids, run.assistant_message_id]
        found += [place[message_id] for message_id in own if message_id in place]
    expect(found == sorted(found), "messages follow their runs")
