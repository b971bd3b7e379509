"""Checks of branches: a new conversation that begins as another one was, made once, from what is settled."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast, get_args

from runlane.errors import (
    ArchiveInvalidError,
    BranchDestinationTakenError,
    ConversationActiveError,
    ConversationPurgedError,
    InvalidValueError,
    UsageError,
)
from runlane.records import Message, RunOperation, Snapshot
from runlane.store import (
    BranchConversation,
    BranchResult,
    EventEnvelope,
    EventKind,
    MemoryStore,
    ReadEvents,
    Store,
    encode_archive,
)
from runlane.testing._store_invariants import check_conversation
from runlane.testing._store_kit import Lane, StoreCheck, applied, at_once, duplicate, expect, refused, same, store_check

__all__ = ["BRANCH_CHECKS"]

_REQUEST: Final = BranchConversation(request_key="k", destination_id="c2", source_id="c1")


def _at(run_id: str | None, destination_id: str = "c2", request_key: str = "k") -> BranchConversation:
    return replace(_REQUEST, run_id=run_id, destination_id=destination_id, request_key=request_key)


async def _created(store: Store, request: BranchConversation) -> BranchResult:
    """Make a branch that must be new, and look it through."""
    result = await store.branch_conversation(request)
    same(result.outcome, "created", "the outcome")
    await check_conversation(store, request.destination_id)
    return result


async def _events(store: Store, conversation_id: str) -> tuple[EventEnvelope, ...]:
    return (await store.read_events(ReadEvents(conversation_id=conversation_id, limit=10_000))).items


def _said(snapshot: Snapshot) -> list[Message]:
    """Return a conversation's messages, whatever it is called."""
    return [message.model_copy(update={"conversation_id": "any"}) for message in snapshot.messages]


async def _ids(store: Store, conversation_id: str) -> list[str]:
    return await Lane(store, conversation_id).message_ids()


# --- what a branch is ---------------------------------------------------------------------------------------------


@store_check("c1", "c2")
async def a_branch_begins_as_its_source_was(store: Store) -> None:
    """A branch has the messages and runs of its source up to the boundary; then both go on, each by itself."""
    lane = Lane(store)
    await lane.turn("a", "b")
    then = await store.load_snapshot("c1")
    told = await _events(store, "c1")
    await lane.turn("c")
    before = await store.export_conversation("c1")
    result = await _created(store, _at("b"))
    same(await store.export_conversation("c1"), before, "the source")
    now = await store.load_snapshot("c2")
    same(_said(now), _said(then), "the messages")
    same({message.conversation_id for message in now.messages}, {"c2"}, "whose they are")
    same([run.to_json() for run in now.runs], [{**run.to_json(), "conversation_id": "c2"} for run in then.runs], "runs")
    receipt = result.receipt
    same((receipt.request_key, receipt.source_id, receipt.destination_id), ("k", "c1", "c2"), "the receipt")
    same((receipt.source_seq, receipt.source_version), (told[-1].seq, told[-1].version), "the boundary")
    branch = Lane(store, "c2")
    await branch.turn("d")
    same(await branch.message_ids(), ["a-in", "a-out", "b-in", "b-out", "d-in", "d-out"], "the branch")
    same((await lane.message_ids())[-1], "c-out", "the source's newest message")
    await check_conversation(store, "c2")


@store_check("c1", "c2")
async def a_branch_counts_anew_under_new_ids(store: Store) -> None:
    """Entries and commands of a branch have ids of their own, sequences and versions from 1, and the old times."""
    lane = Lane(store)
    await store.append_event(conversation_id="c1", kind="state/set", payload={"x": 1})
    await lane.turn("a")
    await _created(store, _at("a"))
    old, new = await _events(store, "c1"), await _events(store, "c2")
    same([event.seq for event in new], [1, 2, 3, 4], "sequences")
    same([event.version for event in new], [0, 1, 2, 3], "versions")
    same(
        [(event.kind, event.occurred_at) for event in new], [(event.kind, event.occurred_at) for event in old], "facts"
    )
    used = {event.event_id for event in old} | {event.command_id for event in old}
    expect(used.isdisjoint(event.event_id for event in new), "event ids are new")
    expect(used.isdisjoint(event.command_id for event in new), "command ids are new")


@store_check("c1", "c2")
async def a_branch_without_a_run_takes_everything(store: Store) -> None:
    """Without a boundary the whole conversation is branched: absorbed runs, seeds, summaries and what they replaced."""
    lane = Lane(store)
    applied(await store.seed_conversation(conversation_id="c1", seed_key="s", inputs=(lane.message("be-brief"),)))
    await lane.turn("a")
    await lane.accept("b", "c", "d")
    await lane.start("b")
    await lane.say("b", "hm")
    applied(await lane.try_end("b", absorb=("c",)))
    applied(await store.cancel_run(conversation_id="c1", run_id="d", expected_revision=0))
    applied(await lane.try_compact("a-in", "a-out"))
    await _created(store, _at(None))
    same(_said(await store.load_snapshot("c2")), _said(await store.load_snapshot("c1")), "the messages")
    branch = Lane(store, "c2")
    applied(await branch.try_compact("sum", "b-in", summary="sum-2"))
    seed = store.seed_conversation(conversation_id="c2", seed_key="s", inputs=(branch.message("other"),))
    applied(await branch.unchanged(seed))
    same((await branch.view("c")).run.absorbed_into_run_id, "b", "the absorbing run")
    await check_conversation(store, "c2")


@store_check("c1", "c2")
async def a_branch_knows_old_keys(store: Store) -> None:
    """A key that was accepted before the boundary is a duplicate in the branch; a later one is new there."""
    lane = Lane(store)
    await lane.turn("a", "b")
    await _created(store, _at("a"))
    branch = Lane(store, "c2")
    known = duplicate(await branch.try_accept("a"))
    same((known.run.conversation_id, known.receipt.conversation_id), ("c2", "c2"), "whose duplicate it is")
    await branch.accept("b")


@store_check("c1", "c2")
async def a_later_summary_is_undone(store: Store) -> None:
    """A compaction after the boundary is not in the branch, what it replaced is there; one before it is kept."""
    lane = Lane(store)
    await lane.turn("a", "b")
    applied(await lane.try_compact("a-in", "a-out", summary="early"))
    await lane.turn("c")
    applied(await lane.try_compact("b-in", "b-out", "c-in", summary="late"))
    await _created(store, _at("c"))
    same(await _ids(store, "c2"), ["early", "b-in", "b-out", "c-in", "c-out"], "the branch")
    same(await _ids(store, "c1"), ["early", "late", "c-out"], "the source")
    archive = await store.export_conversation("c2")
    kept = cast("list[dict[str, dict[str, str]]]", archive.projections[0]["messages"])
    expect("a-in" in [one["message"]["id"] for one in kept], "what the early summary replaced is kept")


@store_check("c1", "c2")
async def what_waited_stays_behind(store: Store) -> None:
    """An input that waited when the boundary was reached is not in the branch, whatever became of it since."""
    lane = Lane(store)
    await lane.accept("b")
    applied(await lane.try_accept("a", run=lane.proposal("a", priority="interrupt-next")))
    await lane.start("a")
    applied(await lane.try_accept("c", into="b"))
    applied(await lane.try_end("a"))
    await _created(store, _at("a"))
    same(await _ids(store, "c2"), ["a-in", "a-out"], "the branch")
    same(await store.list_active_runs("c2"), (), "its active runs")
    branch = Lane(store, "c2")
    await branch.accept("b")
    await lane.start("b")
    applied(await lane.try_end("b"))
    await branch.start("b")
    same([run.id for run in (await store.load_changes("c2", 3)).runs], ["b"], "runs changed since the branch")
    await check_conversation(store, "c2")


@store_check("c1", "c2")
async def what_is_the_sources_stays_with_it(store: Store) -> None:
    """Schedules, children, provider calls and artefacts stay; states and effects come along by their keys."""
    lane = Lane(store)
    kinds = [kind for kind in get_args(EventKind) if not kind.startswith("runtime/")]
    for kind in kinds:
        await store.append_event_once(conversation_id="c1", kind=kind, key="k", payload={"of": kind})
    await lane.accept("a", "b")
    await store.append_event(conversation_id="c1", kind="durability/step", payload={"run_id": "b"})
    await lane.start("a")
    applied(await lane.try_end("a"))
    await _created(store, _at("a"))
    came = {event.kind for event in await _events(store, "c2")} - {"runtime/transition"}
    wanted = {kind for kind in kinds if kind.startswith(("state/", "durability/", "approval/"))}
    same(came, wanted, "kinds that came along")
    found = await store.find_event_once(conversation_id="c2", kind="durability/effect", key="k")
    same(found and found.payload, {"of": "durability/effect"}, "an effect found by its key")
    about = [event for event in await _events(store, "c2") if event.payload.get("run_id") == "b"]
    same(about, [], "what is about a run that waited")


@store_check("c1", "c2")
async def an_artefact_must_be_allowed_anew(store: Store) -> None:
    """No artefact is inherited; one that is named is refused, since none can be carried yet."""
    lane = Lane(store)
    await lane.accept("a")
    payload = await store.append_event(conversation_id="c1", kind="provider/payload", payload={"sealed": "x"})
    await lane.start("a")
    applied(await lane.try_end("a"))
    named = replace(_at("a"), artifacts=(payload.event_id,))
    error = await refused(store.branch_conversation(named), InvalidValueError)
    same(error.argument, "artifacts.0", "the argument")
    same(await _events(store, "c2"), (), "the destination")
    await _created(store, _at("a"))
    same([event for event in await _events(store, "c2") if event.kind == "provider/payload"], [], "inherited artefacts")


# --- the boundary -------------------------------------------------------------------------------------------------


@store_check("c1", "c2")
async def a_boundary_lies_between_turns(store: Store) -> None:
    """A run that has not ended is no boundary, nor one that was cancelled while another was under way."""
    lane = Lane(store)
    await lane.accept("a", "b", "c")
    for run_id in ("a", None):
        error = await refused(store.branch_conversation(_at(run_id)), ConversationActiveError)
        same((error.conversation_id, error.run_ids[0]), ("c1", "a"), "what the error names")
    await lane.start("a")
    await store.record_run_operation(
        conversation_id="c1",
        run_id="a",
        expected_revision=await lane.revision("a"),
        ownership=lane.ownership("a"),
        operation=RunOperation(operation_id="o", kind="model-request", phase="started", step=0, started_at=lane.now()),
    )
    applied(await store.cancel_run(conversation_id="c1", run_id="b", expected_revision=0))
    error = await refused(store.branch_conversation(_at("b")), ConversationActiveError)
    same(error.run_ids, ("a",), "runs that had not ended")
    applied(await lane.try_end("a"))
    error = await refused(store.branch_conversation(_at("b")), ConversationActiveError)
    same(error.run_ids, ("a",), "runs that had not ended then")
    same(await _events(store, "c2"), (), "the destination")
    await _created(store, _at("a"))
    same(await _ids(store, "c2"), ["a-in", "a-out", "b-in", "b-out"], "the branch")


@store_check("c1", "c2")
async def a_summary_of_what_waited_is_no_boundary(store: Store) -> None:
    """If a summary took in an input that waited at the boundary, that boundary is refused."""
    lane = Lane(store)
    await lane.turn("a")
    await lane.accept("b", "c")
    applied(await lane.try_compact("a-in", "a-out", "b-in"))
    applied(await store.cancel_run(conversation_id="c1", run_id="c", expected_revision=0))
    error = await refused(store.branch_conversation(_at("c")), ConversationActiveError)
    same(error.run_ids, ("b",), "runs that waited")


@store_check("c1", "c2", "c3")
async def a_branch_needs_a_source(store: Store) -> None:
    """An unknown source, an unknown run, none or two sources, and fields of the wrong kind are refused by name."""
    await Lane(store).turn("a")
    archive = encode_archive(await store.export_conversation("c3"))
    cases: tuple[tuple[BranchConversation, type[UsageError | InvalidValueError], str], ...] = (
        (_at("nobody"), InvalidValueError, "run_id"),
        (replace(_REQUEST, source_id="c3"), InvalidValueError, "source_id"),
        (replace(_REQUEST, source_id=None, archive=archive), InvalidValueError, "archive"),
        (replace(_REQUEST, source_id=None), UsageError, "source_id"),
        (replace(_REQUEST, archive=archive), UsageError, "source_id"),
        (replace(_REQUEST, request_key=""), InvalidValueError, "request_key"),
        (replace(_REQUEST, destination_id="x" * 513), InvalidValueError, "destination_id"),
        (replace(_REQUEST, source_id="\ud800"), InvalidValueError, "source_id"),
        (replace(_REQUEST, run_id=""), InvalidValueError, "run_id"),
        (replace(_REQUEST, source_id=None, archive=cast("bytes", "text")), InvalidValueError, "archive"),
        (replace(_REQUEST, artifacts=cast("tuple[str, ...]", ["x"])), InvalidValueError, "artifacts"),
        (cast("BranchConversation", {"request_key": "k"}), InvalidValueError, "request"),
    )
    for request, kind, argument in cases:
        error = await refused(store.branch_conversation(request), kind)
        same(error.argument, argument, f"the argument of {error}")
    broken = replace(_REQUEST, source_id=None, archive=b"{}")
    same((await refused(store.branch_conversation(broken), ArchiveInvalidError)).field, "format", "the place")
    data = encode_archive(await store.export_conversation("c1"))
    changed = replace(broken, archive=data.replace(b'"text":"hello"', b'"text":"howdy"'))
    contradiction = await refused(store.branch_conversation(changed), ArchiveInvalidError)
    same(contradiction.field, "events.0.payload.message", "the place")
    same(await _events(store, "c2"), (), "the destination")


@store_check("c1", "c2")
async def a_destination_is_empty(store: Store) -> None:
    """A destination that holds anything, was purged, or is the source itself is refused."""
    await Lane(store).turn("a")
    await store.append_event(conversation_id="c2", kind="state/set", payload={})
    for destination in ("c1", "c2"):
        error = await refused(store.branch_conversation(_at("a", destination)), BranchDestinationTakenError)
        same(error.conversation_id, destination, "the conversation of the error")
    same(len(await _events(store, "c2")), 1, "the destination's entries")
    await store.purge_conversation("c2")
    gone = await refused(store.branch_conversation(_at("a")), ConversationPurgedError)
    same(gone.conversation_id, "c2", "the conversation of the error")


# --- receipts -----------------------------------------------------------------------------------------------------


@store_check("c1", "c2", "c3")
async def a_repeated_request_is_a_duplicate(store: Store) -> None:
    """The same request gives the first receipt, whatever became of both conversations; another one is refused."""
    lane = Lane(store)
    await lane.turn("a")
    first = await _created(store, _at("a"))
    await lane.turn("b")
    await Lane(store, "c2").turn("c")
    before = await store.export_conversation("c2")
    again = await store.branch_conversation(_at("a"))
    same((again.outcome, again.receipt), ("duplicate", first.receipt), "the repetition")
    same(await store.export_conversation("c2"), before, "the branch")
    for other in (_at("b"), _at(None), _at("a", "c3"), replace(_at("a"), source_id="c2")):
        error = await refused(store.branch_conversation(other), UsageError)
        same(error.argument, "request_key", "the argument")
    same(await _events(store, "c3"), (), "the other destination")
    second = await _created(store, _at("a", "c3", "k2"))
    expect(second.receipt.fingerprint != first.receipt.fingerprint, "another request has another fingerprint")
    same(second.receipt.source_sha256, first.receipt.source_sha256, "the digest of one boundary")


@store_check("c1", "c2", "c3")
async def an_archive_is_branched_like_its_conversation(store: Store) -> None:
    """The bytes of an archive give the same branch, also in a store that never knew the source, and by run if asked."""
    async with MemoryStore() as other:
        lane = Lane(other)
        await lane.turn("a", "b")
        await lane.accept("c")
        data = encode_archive(await other.export_conversation("c1"))
        there = await _created(other, _at("b"))
        wanted = await other.load_snapshot("c2")
    request = BranchConversation(request_key="k", destination_id="c2", archive=data, run_id="b")
    here = await _created(store, request)
    same(await store.load_snapshot("c2"), wanted, "the snapshot")
    facts = (here.receipt.source_id, here.receipt.source_seq, here.receipt.source_sha256)
    same(facts, ("c1", there.receipt.source_seq, there.receipt.source_sha256), "the source")
    same((await store.branch_conversation(request)).outcome, "duplicate", "the repetition")
    whole = replace(request, request_key="k2", destination_id="c3", run_id=None)
    same((await refused(store.branch_conversation(whole), ConversationActiveError)).run_ids, ("c",), "what is open")
    same((await store.load_head("c1")).version, 0, "the source's id in this store")


@store_check("c1", "c2", "c3")
async def a_purge_reaches_the_receipt(store: Store) -> None:
    """A purged source leaves its branch and no id in the receipt; a purged branch takes its receipt along."""
    lane = Lane(store)
    await lane.turn("a")
    first = await _created(store, _at("a"))
    archive = encode_archive(await store.export_conversation("c1"))
    await store.purge_conversation("c1")
    again = await store.branch_conversation(_at("a"))
    same(again.receipt, first.receipt.model_copy(update={"source_id": None}), "the receipt without its source")
    same(await _ids(store, "c2"), ["a-in", "a-out"], "the branch")
    gone = await refused(store.branch_conversation(_at("a", "c3", "k2")), ConversationPurgedError)
    same(gone.conversation_id, "c1", "the conversation of the error")
    kept = BranchConversation(request_key="k3", destination_id="c3", archive=archive)
    same((await _created(store, kept)).receipt.source_id, None, "the purged source of an archive")
    await store.purge_conversation("c2")
    gone = await refused(store.branch_conversation(_at("a")), ConversationPurgedError)
    expect(gone.conversation_id in {"c1", "c2"}, "the purged conversation is named")


# --- races --------------------------------------------------------------------------------------------------------


@store_check("c1", "c2")
async def one_request_makes_one_branch(store: Store) -> None:
    """Of equal requests at once one is carried out and the others get its receipt; other keys find the place taken."""
    await Lane(store).turn("a")
    results = await at_once(*[lambda: store.branch_conversation(_at("a"))] * 4)
    made = [result for result in results if isinstance(result, BranchResult)]
    same(sorted(result.outcome for result in made), ["created", "duplicate", "duplicate", "duplicate"], "outcomes")
    same(len({result.receipt.model_dump_json() for result in made}), 1, "receipts")
    await check_conversation(store, "c2")


@store_check("c1", "c2")
async def one_destination_takes_one_branch(store: Store) -> None:
    """Of requests with several keys for one destination at once exactly one is carried out."""
    await Lane(store).turn("a")
    keys = ("k0", "k1", "k2")
    results = await at_once(*[lambda key=key: store.branch_conversation(_at("a", "c2", key)) for key in keys])
    made = [result for result in results if isinstance(result, BranchResult)]
    lost = [result for result in results if isinstance(result, BranchDestinationTakenError)]
    same((len(made), len(lost)), (1, 2), "branches and refusals")
    same(made[0].outcome, "created", "the outcome")
    for key in keys:
        if key != made[0].receipt.request_key:
            await refused(store.branch_conversation(_at("a", "c2", key)), BranchDestinationTakenError)


@store_check("c1", "c2", "c3")
async def one_key_serves_one_destination(store: Store) -> None:
    """Of requests with one key for two destinations at once one is carried out, the other is refused unwritten."""
    await Lane(store).turn("a")
    results = await at_once(
        lambda: store.branch_conversation(_at("a", "c2")), lambda: store.branch_conversation(_at("a", "c3"))
    )
    same({type(result) for result in results}, {BranchResult, UsageError}, "a branch and a refusal")
    lost = "c3" if isinstance(results[0], BranchResult) else "c2"
    same(await _events(store, lost), (), "the destination that was refused")


@store_check("c1", "c2")
async def a_branch_and_a_purge_take_turns(store: Store) -> None:
    """A branch at the same time as its source's purge is whole or refused, and nothing names the source any more."""
    await Lane(store).turn("a")
    branched, _ = await at_once(lambda: store.branch_conversation(_at("a")), lambda: store.purge_conversation("c1"))
    same((await store.load_snapshot("c1")).messages, (), "the source")
    if isinstance(branched, BranchResult):
        await check_conversation(store, "c2")
        same((await store.branch_conversation(_at("a"))).receipt.source_id, None, "the source in the receipt")
    else:
        expect(isinstance(branched, ConversationPurgedError | InvalidValueError), f"a refusal, not {branched!r}")
        same(await _events(store, "c2"), (), "the destination")


BRANCH_CHECKS: Final[tuple[StoreCheck, ...]] = (
    a_branch_begins_as_its_source_was,
    a_branch_counts_anew_under_new_ids,
    a_branch_without_a_run_takes_everything,
    a_branch_knows_old_keys,
    a_later_summary_is_undone,
    what_waited_stays_behind,
    what_is_the_sources_stays_with_it,
    an_artefact_must_be_allowed_anew,
    a_boundary_lies_between_turns,
    a_summary_of_what_waited_is_no_boundary,
    a_branch_needs_a_source,
    a_destination_is_empty,
    a_repeated_request_is_a_duplicate,
    an_archive_is_branched_like_its_conversation,
    a_purge_reaches_the_receipt,
    one_request_makes_one_branch,
    one_destination_takes_one_branch,
    one_key_serves_one_destination,
    a_branch_and_a_purge_take_turns,
)
