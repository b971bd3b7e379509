"""Checks of what everybody shares: the ledger, races, leases, waiting, purge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import cast

import anyio

from runlane.errors import ConversationPurgedError, InvalidValueError, LeaseLostError, UsageError
from runlane.records import Ownership, RunOperation
from runlane.store import (
    AlreadyPurged,
    AppendedEvent,
    AppendEvent,
    Applied,
    Conflict,
    ConversationReader,
    DraftPatch,
    DriverStore,
    Purged,
    PurgeResult,
    ReadEvents,
    StillActive,
    Store,
    TransitionRecord,
)
from runlane.testing._store_kit import (
    Lane,
    StoreCheck,
    applied,
    conflict,
    duplicate,
    expect,
    refused,
    same,
    store_check,
)

__all__ = ["SHARED_CHECKS"]


@store_check()
async def an_instant_has_a_zone(store: Store) -> None:
    """A command dated without a time zone is refused."""
    lane = Lane(store)
    naive = datetime.fromisoformat("2026-01-01T00:00:00")
    bad = AppendEvent(command_id="x", at=naive, kind="state/set", payload={})
    await lane.refused(store.apply("c1", [bad]), InvalidValueError)


# --- the ledger ---------------------------------------------------------------------------------------------------


@store_check()
async def every_applied_command_leaves_one_entry(store: Store) -> None:
    """The ledger is contiguous from 1, one entry an applied command, with its id; other outcomes leave none."""
    lane = Lane(store)
    await lane.accept("a")
    await lane.start("a")
    conflict(await lane.try_acquire("a"), 1)
    duplicate(await lane.try_accept("a"))
    await lane.say("a", "secret words")
    applied(await lane.try_interrupt("a"))
    applied(await lane.try_end("a", "interrupted", "secret words"))
    page = await store.read_events(ReadEvents(conversation_id="c1"))
    same([event.seq for event in page.items], [1, 2, 3, 4, 5], "sequences")
    same([event.version for event in page.items], [1, 2, 3, 4, 5], "versions")
    same(len({event.command_id for event in page.items}), 5, "command ids")
    same({event.kind for event in page.items}, {"runtime/transition"}, "kinds")
    records = [TransitionRecord.model_validate(event.payload) for event in page.items]
    same([record.type for record in records], ["accept", "acquire", "checkpoint", "interrupt", "terminal"], "types")
    same([record.revision for record in records], [0, 1, 2, 3, 4], "revisions")
    admitted, _, checkpointed, _, ended = records
    same(admitted.message and admitted.message.body and admitted.message.body.id, "a-in", "the admitted input")
    same(admitted.run and (admitted.run.state, admitted.run.revision, admitted.run.id), ("queued", 0, "a"), "its run")
    same(checkpointed.message and checkpointed.message.body, None, "a checkpoint's body")
    expect("secret" not in str(page.items[2].payload), "a checkpoint's entry must not hold the draft")
    same(ended.message and ended.message.body, (await lane.view("a")).assistant, "the answer")
    same((ended.state, ended.reason), ("interrupted", "interrupted"), "the end")


@store_check()
async def an_admission_is_remembered_as_it_was(store: Store) -> None:
    """An admission read from the ledger shows the run with the inputs it had then, whatever joined later."""
    lane = Lane(store)
    await lane.accept("a")
    applied(await lane.try_accept("b", into="a"))
    await lane.start("a")
    applied(await lane.try_end("a"))
    first, second = [TransitionRecord.model_validate(entry).run for entry in (await lane.ledger())[:2]]
    same(first and (first.input_message_ids, first.revision), (("a-in",), 0), "the first admission")
    same(second and (second.input_message_ids, second.revision), (("a-in", "b-in"), 1), "the second admission")


@store_check()
async def an_event_moves_the_sequence_only(store: Store) -> None:
    """An appended event gets the next sequence and leaves the version; what is not valid is refused unwritten."""
    lane = Lane(store)
    await lane.accept("a")
    when = datetime(2020, 2, 3, tzinfo=UTC)
    event = await store.append_event(
        conversation_id="c1", kind="child/state", payload={"n": 10**20}, occurred_at=when, ignorable=True
    )
    facts = (event.seq, event.version, event.kind, event.payload, event.ignorable, event.occurred_at)
    same(facts, (2, 1, "child/state", {"n": 10**20}, True, "2020-02-03T00:00:00.000Z"), "the event")
    same(await lane.version(), 1, "the version")
    same(await store.find_event("c1", event.event_id), event, "the event found by its id")
    for kind in ("nonsense", "runtime/transition", ""):
        bad = AppendEvent(command_id=f"x-{kind}", at=lane.now(), kind=kind, payload={})
        await lane.refused(store.apply("c1", [bad]), InvalidValueError)
    nan = AppendEvent(command_id="x", at=lane.now(), kind="state/set", payload={"x": float("nan")})
    await lane.refused(store.apply("c1", [nan]), InvalidValueError)


@store_check("c1", "c2")
async def a_once_only_event_is_appended_once(store: Store) -> None:
    """A repeated key gives the first event whatever the payload; the key belongs to its conversation and kind."""
    once = partial(store.append_event_once, conversation_id="c1", kind="state/set", key="k")
    first = await once(payload={"x": 1})
    again = await once(payload={"x": 2})
    same((first.outcome, again.outcome, again.event), ("applied", "duplicate", first.event), "the repetition")
    other_kind = await store.append_event_once(conversation_id="c1", kind="child/state", key="k", payload={})
    elsewhere = await store.append_event_once(conversation_id="c2", kind="state/set", key="k", payload={})
    same((other_kind.outcome, elsewhere.outcome), ("applied", "applied"), "other scopes")
    found = await store.find_event_once(conversation_id="c1", kind="state/set", key="k")
    same(found, first.event, "the event found by its key")
    same(await store.find_event_once(conversation_id="c1", kind="state/set", key="other"), None, "another key")
    await refused(store.append_event_once(conversation_id="c1", kind="state/set", key="", payload={}), ValueError)


@store_check()
async def events_are_read_in_ranges(store: Store) -> None:
    """Ranges are inclusive and ascending, pages continue exactly, and bounds out of range are refused."""
    for index in range(7):
        await store.append_event(conversation_id="c1", kind="state/set", payload={"n": index})

    async def read(first: int | None, last: int | None, limit: int = 1000) -> tuple[list[int], int | None]:
        page = await store.read_events(ReadEvents(conversation_id="c1", from_seq=first, to_seq=last, limit=limit))
        return [event.seq for event in page.items], page.next_seq

    same(await read(None, None), ([1, 2, 3, 4, 5, 6, 7], None), "everything")
    same(await read(3, 5), ([3, 4, 5], None), "a range")
    same(await read(None, None, 3), ([1, 2, 3], 4), "a page")
    same(await read(4, 6, 3), ([4, 5, 6], None), "a page that ends the range")
    same(await read(8, None), ([], None), "past the end")
    for first, last, limit in ((0, None, 1), (3, 2, 1), (None, None, 0), (None, None, 10_001)):
        await refused(read(first, last, limit), InvalidValueError)


@store_check()
async def events_after_a_version_are_found_among_appended_ones(store: Store) -> None:
    """Entries of later versions come back whole and alone, however many were appended between versions."""
    lane = Lane(store)
    await lane.accept("a")
    for index in range(5):
        await store.append_event(conversation_id="c1", kind="state/set", payload={"n": index})
    await lane.accept("b")
    await store.append_event(conversation_id="c1", kind="state/set", payload={"n": 5})

    async def read(after: int, first: int | None = None, limit: int = 1000) -> tuple[list[int], int | None]:
        query = ReadEvents(conversation_id="c1", after_version=after, from_seq=first, limit=limit)
        page = await store.read_events(query)
        return [event.seq for event in page.items], page.next_seq

    same(await read(0), ([1, 2, 3, 4, 5, 6, 7, 8], None), "everything")
    same(await read(1), ([7, 8], None), "what is later than the first version")
    same(await read(1, limit=1), ([7], 8), "a page of it")
    same(await read(1, 8), ([8], None), "the rest of it")
    same(await read(2), ([], None), "nothing is later than the newest version")
    same(await read(9), ([], None), "nor than one that never was")
    await refused(read(-1), InvalidValueError)


@store_check()
async def a_read_that_makes_no_sense_is_refused(store: Store) -> None:
    """Bounds, cursors and times of the wrong kind are refused by name, whatever a database would make of them."""
    wrong: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: store.load_head(cast("str", 5)),
        lambda: store.load_changes("c1", cast("int", "1")),
        lambda: store.load_changes("c1", True),  # noqa: FBT003  what is wrong with it
        lambda: store.read_messages("c1", before=cast("int", "x")),
        lambda: store.scan_recoverable(cursor=cast("tuple[str, str]", ("a",))),
        lambda: store.scan_recoverable(cursor=cast("tuple[str, str]", ("a", 1))),
        lambda: store.read_events(ReadEvents(conversation_id="c1", from_seq=cast("int", "1"))),
        lambda: store.wait_for_change("c1", 0, max_wait=float("nan")),
        lambda: store.wait_for_change("c1", 0, max_wait=-1),
        lambda: store.purge_conversation("c1", expected_version=cast("int", "0")),
    )
    for read in wrong:
        await refused(read(), InvalidValueError)


# --- races --------------------------------------------------------------------------------------------------------


@store_check()
async def concurrent_appends_leave_no_gap(store: Store) -> None:
    """Inputs and events committed at once by many tasks get contiguous sequences and versions, and none is lost."""
    lane = Lane(store)
    async with anyio.create_task_group() as group:
        for index in range(25):
            group.start_soon(lane.accept, f"r{index}")
            group.start_soon(partial(store.append_event, conversation_id="c1", kind="state/set", payload={"n": index}))
    page = await store.read_events(ReadEvents(conversation_id="c1"))
    same([event.seq for event in page.items], list(range(1, 51)), "sequences")
    versions = [event.version for event in page.items if event.kind == "runtime/transition"]
    same(versions, list(range(1, 26)), "versions")
    same(len(await store.list_active_runs("c1")), 25, "runs")


@store_check()
async def concurrent_commands_have_one_winner(store: Store) -> None:
    """Of many that acquire one run, append one key or end one run at once, exactly one wins."""
    lane = Lane(store)
    await lane.accept("a")
    outcomes: list[object] = []
    appended: list[AppendedEvent] = []

    async def acquire(owner: str) -> None:
        outcomes.append(await lane.try_acquire("a", owner, revision=0))

    async def once(index: int) -> None:
        appended.append(
            await store.append_event_once(conversation_id="c1", kind="state/set", key="k", payload={"n": index})
        )

    async with anyio.create_task_group() as group:
        for index in range(10):
            group.start_soon(acquire, f"owner-{index}")
            group.start_soon(once, index)
    winners = [outcome for outcome in outcomes if isinstance(outcome, Applied)]
    same(len(winners), 1, "winners of the acquisition")
    same(sum(item.outcome == "applied" for item in appended), 1, "winners of the append")
    same(len({item.event.event_id for item in appended}), 1, "events that were answered")
    ownership = winners[0].ownership
    ends: list[object] = []

    async def end() -> None:
        ends.append(await lane.try_end("a", ownership=ownership, revision=1))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(end)
    same(sum(isinstance(outcome, Applied) for outcome in ends), 1, "winners of the end")
    same(sum(outcome == Conflict(actual_version=2) for outcome in ends), 9, "losers of the end")


# --- ownership ----------------------------------------------------------------------------------------------------


@store_check()
async def a_swept_owner_commits_nothing_more(store: Store) -> None:
    """Once an owner's lease ended and it was swept, its owned writes conflict by epoch and it acquires nothing."""
    lane = Lane(store)
    await lane.accept("a")
    async with store.hold_lease("owner-a") as lease:
        expect(lease.held, "a lease is held inside its block")
        old = await lane.start("a", "owner-a")
        same([item.owner_alive for item in (await store.scan_recoverable()).items], [True], "a living owner")
        same(await store.sweep_owners(), (), "swept while it lives")
        applied(await lane.try_checkpoint("a", DraftPatch(), ownership=old))
    expect(not lease.held, "a lease is lost behind its block")
    same([item.owner_alive for item in (await store.scan_recoverable()).items], [False], "a gone owner")
    same(await store.sweep_owners(), ("owner-a",), "swept")
    same(await store.sweep_owners(), (), "swept again")
    conflict(await lane.unchanged(lane.try_checkpoint("a", DraftPatch(), ownership=old)), 2)
    conflict(await lane.unchanged(lane.try_end("a", ownership=old)), 2)
    requeued = await store.recover_run(
        conversation_id="c1", run_id="a", expected_revision=2, action="requeue", replay_safe=True
    )
    applied(requeued)
    await refused(lane.try_acquire("a", "owner-a"), LeaseLostError)
    async with store.hold_lease("owner-b"):
        new = await lane.start("a", "owner-b")
        expect((new.lane_epoch or 0) > (old.lane_epoch or 0), "the epoch must have been raised")
        conflict(await lane.unchanged(lane.try_end("a", ownership=old)), await lane.revision("a"))
        applied(await lane.try_end("a", ownership=new))


@store_check()
async def an_incarnation_has_a_name_of_its_own(store: Store) -> None:
    """An owner id cannot be registered twice, not even after its lease ended."""
    async with store.hold_lease("owner-a"):
        await refused(_hold(store, "owner-a"))
    await refused(_hold(store, "owner-a"))


async def _hold(store: Store, owner_id: str) -> None:
    async with store.hold_lease(owner_id):
        raise AssertionError("a used owner id was registered again")


@store_check()
async def waiting_ends_with_the_change(store: Store) -> None:
    """Waiting returns at once if the version is past, when it gets past, and in vain after its limit."""
    lane = Lane(store)
    expect(not await store.wait_for_change("c1", 0, max_wait=0.01), "nothing changed")
    woken: list[bool] = []

    async def wait() -> None:
        woken.append(await store.wait_for_change("c1", 0, max_wait=3600))

    with anyio.move_on_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            await lane.accept("a")
    same(woken, [True, True], "the woken tasks")
    expect(await store.wait_for_change("c1", 0, max_wait=0), "the version is past")


# --- purge --------------------------------------------------------------------------------------------------------


@store_check("c1", "c2")
async def a_purge_leaves_a_tombstone(store: Store) -> None:
    """After a purge reads are empty, every mutation is refused, other conversations are as they were."""
    lane, other = Lane(store), Lane(store, "c2")
    await lane.turn("a")
    await lane.turn("b")
    applied(await lane.try_compact("a-in", "a-out"))
    await store.append_event(conversation_id="c1", kind="state/set", payload={})
    await other.turn("a")
    kept = await store.load_snapshot("c2"), await other.ledger()
    same(await store.purge_conversation("c1", expected_version=3), Conflict(actual_version=7), "another version")
    same(await store.purge_conversation("c1", expected_version=7), Purged(), "the purge")
    same(await store.purge_conversation("c1", expected_version=99), AlreadyPurged(), "a second purge")
    await _check_purged(lane)
    same((await store.load_snapshot("c2"), await other.ledger()), kept, "the other conversation")
    duplicate(await other.try_accept("a"))


async def _check_purged(lane: Lane) -> None:
    store = lane.store
    snapshot = await store.load_snapshot("c1")
    same((snapshot.version, snapshot.messages, snapshot.runs), (0, (), ()), "the snapshot")
    same(await store.load_run("c1", "a"), None, "a run")
    same(await store.list_active_runs("c1"), (), "active runs")
    same((await store.read_messages("c1")).items, (), "messages")
    same(await lane.ledger(), [], "the ledger")
    same((await store.load_changes("c1", 0)).version, 0, "changes")
    same((await store.load_head("c1")).version, 0, "the head")
    same(await store.find_event_once(conversation_id="c1", kind="state/set", key="k"), None, "an event")
    same([item.conversation_id for item in (await store.scan_recoverable()).items], [], "what can be recovered")
    if isinstance(store, DriverStore):
        listed = [item.conversation_id for item in (await ConversationReader(store).list()).items]
        same(listed, ["c2"], "the list")
    gone = Ownership(owner="owner-a")
    started = RunOperation(operation_id="o", kind="compaction", phase="started", started_at=lane.now())
    for attempt in (
        lane.try_checkpoint("a", DraftPatch(), ownership=gone, revision=1),
        store.record_run_operation(
            conversation_id="c1", run_id="a", expected_revision=1, ownership=gone, operation=started
        ),
        lane.try_end("a", ownership=gone, revision=1),
        lane.try_accept("a"),
        lane.try_accept("z"),
        lane.try_acquire("a", revision=0),
        lane.try_compact("x", version=0),
        store.seed_conversation(conversation_id="c1", seed_key="k", inputs=[lane.message("s")]),
        store.append_event(conversation_id="c1", kind="state/set", payload={}),
        store.append_event_once(conversation_id="c1", kind="state/set", key="k", payload={}),
        store.cancel_run(conversation_id="c1", run_id="a", expected_revision=0),
        store.request_run_interrupt(conversation_id="c1", run_id="a", expected_revision=0),
        store.recover_run(conversation_id="c1", run_id="a", expected_revision=0, action="abandon"),
    ):
        error = await refused(attempt, ConversationPurgedError)
        same(error.conversation_id, "c1", "the purged conversation")


@store_check("c1", "c2")
async def a_purge_waits_for_active_runs(store: Store) -> None:
    """A conversation with an active run is not purged, and nothing in it is touched; an unknown id is reserved."""
    lane = Lane(store)
    await lane.accept("a", "b")
    before = await store.load_snapshot("c1")
    same(await store.purge_conversation("c1"), StillActive(run_ids=("a", "b")), "active runs")
    same(await store.load_snapshot("c1"), before, "the conversation")
    same(await store.purge_conversation("c2", expected_version=1), Conflict(actual_version=0), "an unknown id")
    same(await store.purge_conversation("c2"), Purged(), "an unknown id")
    await refused(Lane(store, "c2").try_accept("a"), ConversationPurgedError)
    await refused(store.purge_conversation(""), InvalidValueError)


@store_check("c1", "c2", "c3", "c4")
async def a_purge_and_an_admission_take_turns(store: Store) -> None:
    """Of a purge and a first admission at the same moment one is first: the run keeps the id, or the id stays gone."""
    purged: dict[str, PurgeResult] = {}
    admitted: dict[str, object] = {}

    async def purge(name: str) -> None:
        purged[name] = await store.purge_conversation(name)

    async def accept(name: str) -> None:
        try:
            admitted[name] = applied(await Lane(store, name).try_accept("a"))
        except ConversationPurgedError as error:
            admitted[name] = error

    names = ("c1", "c2", "c3", "c4")
    async with anyio.create_task_group() as group:
        for index, name in enumerate(names):
            for task in (purge, accept) if index % 2 else (accept, purge):
                group.start_soon(task, name)
    for name in names:
        active = [run.id for run in await store.list_active_runs(name)]
        if isinstance(admitted[name], Applied):
            same((purged[name], active), (StillActive(run_ids=("a",)), ["a"]), f"{name}, admitted first")
        else:
            same((purged[name], active), (Purged(), []), f"{name}, purged first")


@store_check()
async def misuse_is_a_type_error(store: Store) -> None:
    """Misuse can be caught as `TypeError`, a bad value as `ValueError`."""
    lane = Lane(store)
    await lane.accept("a")
    error = await refused(lane.try_accept("a", key="other"), TypeError)
    expect(isinstance(error, UsageError) and error.argument == "input.id", "misuse names its argument")
    await refused(store.load_head(""), ValueError)


SHARED_CHECKS: tuple[StoreCheck, ...] = (
    an_instant_has_a_zone,
    every_applied_command_leaves_one_entry,
    an_admission_is_remembered_as_it_was,
    an_event_moves_the_sequence_only,
    a_once_only_event_is_appended_once,
    events_are_read_in_ranges,
    events_after_a_version_are_found_among_appended_ones,
    a_read_that_makes_no_sense_is_refused,
    concurrent_appends_leave_no_gap,
    concurrent_commands_have_one_winner,
    a_swept_owner_commits_nothing_more,
    an_incarnation_has_a_name_of_its_own,
    waiting_ends_with_the_change,
    a_purge_leaves_a_tombstone,
    a_purge_waits_for_active_runs,
    a_purge_and_an_admission_take_turns,
    misuse_is_a_type_error,
)
