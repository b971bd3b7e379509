"""Checks of archives: what leaves a store whole, comes into another one whole, and is refused whole."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final, cast

import anyio

from runlane.canonical import canonical_record_hash, canonical_record_json
from runlane.errors import (
    ArchiveInvalidError,
    ConversationPurgedError,
    ImportTargetNotEmptyError,
    InvalidValueError,
)
from runlane.records import JsonObject, Ownership
from runlane.store import (
    Applied,
    CommitRunTerminal,
    ConversationArchive,
    EventEnvelope,
    MemoryStore,
    ReadEvents,
    Store,
    decode_archive,
    encode_archive,
    once_event_id,
)
from runlane.testing._store_invariants import check_conversation
from runlane.testing._store_kit import (
    Lane,
    StoreCheck,
    applied,
    at_once,
    conflict,
    duplicate,
    expect,
    refused,
    same,
    store_check,
)

__all__ = ["ARCHIVE_CHECKS"]


async def _tell(store: Store) -> Lane:
    """Tell a story of everything an archive has to carry: one run is under way at its end, another one waits."""
    lane = Lane(store)
    applied(await store.seed_conversation(conversation_id="c1", seed_key="s", inputs=(lane.message("be-brief"),)))
    await lane.turn("a", "b")
    applied(await lane.try_compact("a-in", "a-out"))
    await store.append_event_once(conversation_id="c1", kind="durability/effect", key="k", payload={"paid": 10**20})
    await lane.accept("c", "d")
    await lane.start("c")
    applied(await lane.try_end("c", absorb=("d",)))
    request: JsonObject = {"context": {"plan": None}}
    applied(await lane.try_accept("e", run=lane.proposal("e", request=request)))
    applied(await lane.try_accept("f", into="e"))
    await lane.start("e")
    await lane.say("e", "so ")
    await lane.say("e", "far")
    await lane.accept("g")
    return lane


async def _told() -> bytes:
    """Return the archive of the story."""
    async with MemoryStore() as store:
        await _tell(store)
        return encode_archive(await store.export_conversation("c1"))


async def _events(store: Store) -> tuple[EventEnvelope, ...]:
    return (await store.read_events(ReadEvents(conversation_id="c1", limit=10_000))).items


async def _empty(store: Store) -> None:
    same((await store.load_head("c1")).version, 0, "the version of a conversation that was not imported")
    same(await _events(store), (), "its ledger")


def _document(data: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(data)
    return document


# --- there and back -----------------------------------------------------------------------------------------------


@store_check()
async def an_archive_is_canonical(store: Store) -> None:
    """An archive is canonical JSON with exactly its fields; reading it back gives an equal one, and the same bytes."""
    await _tell(store)
    archive = await store.export_conversation("c1")
    data = encode_archive(archive)
    document = _document(data)
    same(canonical_record_json(document), data, "the canonical form")
    fields = {"conversation_id", "events", "format", "format_version", "projections", "spills"}
    same(document.keys(), fields, "the fields")
    same((document["format"], document["format_version"]), ("runlane.conversation", 1), "the format")
    same(document["projections"][0]["archive_type"], "runtime-snapshot", "the first projection")
    same((len(document["projections"]), document["spills"]), (1, []), "what does not exist yet")
    same(decode_archive(data), archive, "the archive read back")
    bodies = {one["message"]["id"] for one in document["projections"][0]["messages"]}
    expect({"a-in", "a-out", "sum", "g-in"} <= bodies, "an archive carries every body, compacted ones too")


@store_check()
async def an_import_is_the_same_conversation(store: Store) -> None:
    """Snapshot, ledger, drafts, changes and archive of an imported conversation equal those of the exported one."""
    async with MemoryStore() as other:
        await _tell(other)
        archive = await other.export_conversation("c1")
        result = await store.import_conversation(archive)
        same((result.conversation_id, result.events), ("c1", len(archive.events)), "the result")
        same(await store.load_snapshot("c1"), await other.load_snapshot("c1"), "the snapshot")
        same(await _events(store), await _events(other), "the ledger with its bodies")
        same(await store.load_draft("c1", "e"), await other.load_draft("c1", "e"), "the draft")
        for version in (0, 3, 7):
            same(await store.load_changes("c1", version), await other.load_changes("c1", version), "changes")
        same((await store.read_messages("c1")).items, (await other.read_messages("c1")).items, "the messages")
        for name in "abcdeg":
            same((await store.load_run("c1", name)), await other.load_run("c1", name), f"run {name!r}")
        same(await store.export_conversation("c1"), archive, "the archive of the import")
    await check_conversation(store, "c1")


@store_check()
async def an_imported_conversation_knows_its_retries(store: Store) -> None:
    """After an import repeated keys, commands, seeds and once-only events are answered as in the store they left."""
    async with MemoryStore() as other:
        await _tell(other)
        ended = [event for event in await _events(other) if event.payload.get("type") == "terminal"]
        await store.import_conversation(await other.export_conversation("c1"))
    lane = Lane(store)
    same(duplicate(await lane.unchanged(lane.try_accept("a"))).run.state, "completed", "the run of an old key")
    absorbed = duplicate(await lane.unchanged(lane.try_accept("d")))
    same((absorbed.run.id, absorbed.input_matches), ("c", True), "the run of an absorbed key")
    same(duplicate(await lane.unchanged(lane.try_accept("f", into="e"))).run.id, "e", "the run of a joined key")
    seed = store.seed_conversation(conversation_id="c1", seed_key="s", inputs=(lane.message("other-words"),))
    applied(await lane.unchanged(seed))
    once = await store.append_event_once(conversation_id="c1", kind="durability/effect", key="k", payload={})
    same((once.outcome, once.event.payload), ("duplicate", {"paid": 10**20}), "an effect that happened")
    same(once.event.event_id, once_event_id("durability/effect", "k"), "its id")
    found = await store.find_event("c1", ended[0].event_id)
    same(found, ended[0], "an entry found by its id")
    command = CommitRunTerminal(
        command_id=ended[0].command_id or "",
        at=lane.now(),
        run_id="a",
        expected_revision=1,
        ownership=Ownership(owner="owner-a"),
        assistant=lane.message("a-out", "answer", "assistant", "completed", run_id="a"),
        reason="success",
    )
    [outcome] = await store.apply("c1", [command])
    same(applied(outcome).delta.version, ended[0].version, "the version of an end that is sent again")
    for taken in ("a-out", "d-out", "g-out", "sum", "be-brief"):
        reserved = store.accept_input(idempotency_key="new", input=lane.message(taken), run=lane.proposal("z"))
        same((await lane.refused(reserved)).argument, "input.id", f"the argument for {taken!r}")


@store_check()
async def an_imported_run_can_be_recovered(store: Store) -> None:
    """A run that was under way is listed with an owner nobody knows, taken over, and goes on; the queue follows it."""
    await store.import_conversation(await _told())
    lane = Lane(store)
    page = await store.scan_recoverable()
    found = [(item.run.id, item.run.state, item.owner_alive) for item in page.items]
    same(found, [("e", "running", None), ("g", "queued", None)], "what can be recovered")
    conflict(await lane.try_acquire("g"), 0)
    requeue = store.recover_run(
        conversation_id="c1", run_id="e", expected_revision=await lane.revision("e"), action="requeue", replay_safe=True
    )
    applied(await requeue)
    await lane.start("e", "owner-b")
    await lane.say("e", "again")
    applied(await lane.try_end("e"))
    await lane.start("g", "owner-b")
    applied(await lane.try_end("g"))
    await lane.turn("h")
    same((await lane.message_ids())[-4:], ["g-in", "g-out", "h-in", "h-out"], "the newest messages")
    await check_conversation(store, "c1")


@store_check()
async def an_imported_run_can_be_abandoned(store: Store) -> None:
    """A run that was under way is ended with what its draft held."""
    await store.import_conversation(await _told())
    lane = Lane(store)
    revision = await lane.revision("e")
    applied(await store.recover_run(conversation_id="c1", run_id="e", expected_revision=revision, action="abandon"))
    answer = (await lane.view("e")).assistant
    same(answer and [part.to_json()["text"] for part in answer.parts], ["so far"], "the answer")


@store_check()
async def an_unknown_conversation_is_an_empty_archive(store: Store) -> None:
    """An unknown or purged id gives an archive without events, whose import leaves the id unused."""
    archive = await store.export_conversation("c1")
    same((archive.events, len(archive.projections)), ((), 1), "the archive")
    same(archive.projections[0]["version"], 0, "its version")
    same((await store.import_conversation(archive)).events, 0, "imported events")
    await Lane(store).turn("a")
    await store.purge_conversation("c1")
    same(await store.export_conversation("c1"), archive, "the archive of a purged conversation")


# --- refused ------------------------------------------------------------------------------------------------------


@store_check()
async def an_import_needs_an_empty_conversation(store: Store) -> None:
    """A conversation with anything at all, if only one event, is not imported over; a purged id never again."""
    data = await _told()
    lane = Lane(store)
    await store.append_event(conversation_id="c1", kind="state/set", payload={})
    error = await lane.refused(store.import_conversation(data), ImportTargetNotEmptyError)
    same(error.conversation_id, "c1", "the conversation of the error")
    await store.purge_conversation("c1")
    gone = await lane.refused(store.import_conversation(data), ConversationPurgedError)
    same(gone.conversation_id, "c1", "the conversation of the error")


@store_check()
async def an_archive_is_checked_in_order(store: Store) -> None:
    """Encoding, JSON, shape, then each event: of several faults the first in this order is told, with its place."""
    good = await _told()
    text = good.decode()
    cases: tuple[tuple[bytes, str], ...] = (
        (b"\xff{", ""),
        (good.replace(b'"spills"', b'"spills":[],"spills"'), "spills"),
        (good[:-1], ""),
        (b"[]", ""),
        (text.replace('"runlane.conversation"', '"other"').encode(), "format"),
        (text.replace('"format_version":1', '"format_version":2').encode(), "format_version"),
        (text.replace('"format_version":1', '"format_version":true').encode(), "format_version"),
        (text.replace('"spills":[]', '"spills":[],"x":1').encode(), "x"),
        (text.replace('"spills":[]', '"spills":[7]').encode(), "spills.0"),
        (b"{}", "format"),
    )
    for data, field in cases:
        error = await refused(store.import_conversation(data), ArchiveInvalidError)
        same(error.field, field, f"the place of {error}")
    expect("UTF-8" in str(await refused(store.import_conversation(b"\xff{"), ArchiveInvalidError)), "UTF-8 comes first")
    for value in ("text", None, _document(good)):
        await refused(store.import_conversation(cast("bytes", value)), InvalidValueError)
    await _empty(store)


def _change(document: dict[str, Any], path: str, value: object) -> None:
    """Set what stands at a dotted path; `...` takes it away."""
    *steps, last = path.split(".")
    place: Any = document
    for step in steps:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if value is ...:
        del place[last]
    elif isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value


async def _decoded(data: bytes) -> ConversationArchive:
    return decode_archive(data)


_BAD_EVENTS: Final[tuple[tuple[str, object, str], ...]] = (
    ("events.1.conversation_id", "c2", "events.1.conversation_id"),
    ("events.1.conversation_id", ..., "events.1.conversation_id"),
    ("events.1.seq", 1, "events.1.seq"),
    ("events.1.seq", "2", "events.1"),
    ("events.1.extra", 1, "events.1"),
    ("events.1.ignorable", False, "events.1"),
    ("events.1.kind", "unheard/of", "events.1"),
    ("events.1.schema_version", 2, "events.1"),
    ("events.1.occurred_at", "2026-01-01T00:00:00", "events.1"),
    ("events.1.payload", [], "events.1"),
)


@store_check()
async def each_event_is_checked(store: Store) -> None:
    """An event of another conversation, out of order, seen before or unknown is refused as it is decoded."""
    document = _document(await _told())
    for path, value, field in _BAD_EVENTS:
        broken = deepcopy(document)
        _change(broken, path, value)
        data = canonical_record_json(broken)
        for attempt in (_decoded(data), store.import_conversation(data)):
            error = await refused(attempt, ArchiveInvalidError)
            same(error.field, field, f"the place of {error}")
    broken = deepcopy(document)
    _change(broken, "events.2.event_id", document["events"][0]["event_id"])
    error = await refused(_decoded(canonical_record_json(broken)), ArchiveInvalidError)
    same(error.field, "events.2.event_id", f"the place of {error}")
    await _empty(store)


@store_check()
async def what_may_be_skipped_is_kept(store: Store) -> None:
    """An ignorable event of a later release is imported as it is and exported again; with more fields it is refused."""
    document = _document(await _told())
    last = len(document["events"])
    future = {
        "conversation_id": "c1",
        "event_id": "later",
        "ignorable": True,
        "kind": "dream/began",
        "occurred_at": "2031-05-06T07:08:09+02:00",
        "payload": {"deep": [1, None]},
        "schema_version": 3,
        "seq": last + 1,
        "version": document["projections"][0]["version"],
    }
    document["events"].append(future)
    for wrong in ({"new": 1}, {"payload": 1}):
        broken = {**document, "events": [*document["events"][:-1], {**future, **wrong}]}
        await refused(store.import_conversation(canonical_record_json(broken)), ArchiveInvalidError)
    skipped = {**document["events"][1], "ignorable": True, "schema_version": 2}
    broken = {**document, "events": [document["events"][0], skipped, *document["events"][2:]]}
    error = await refused(store.import_conversation(canonical_record_json(broken)), ArchiveInvalidError)
    same(error.field, "events.1.schema_version", "the place of a transition that is to be skipped")
    await _empty(store)
    data = canonical_record_json(document)
    await store.import_conversation(data)
    event = await store.find_event("c1", "later")
    same(event and (event.schema_version, event.kind, event.ignorable), (3, "dream/began", True), "the event")
    same(encode_archive(await store.export_conversation("c1")), data, "the archive of the import")
    await Lane(store).accept("h")


@store_check()
async def a_gap_is_refused_by_the_import(store: Store) -> None:
    """Missing entries pass the decoder, which cannot know, and are refused by the import, which keeps sequences."""
    document = _document(await _told())
    del document["events"][1]
    data = canonical_record_json(document)
    same(len(decode_archive(data).events), len(document["events"]), "decoded events")
    error = await refused(store.import_conversation(data), ArchiveInvalidError)
    same(error.field, "events.1.seq", f"the place of {error}")
    await _empty(store)


_SNAPSHOT: Final = "projections.0"
_RUNS: Final = f"{_SNAPSHOT}.runs"
_MESSAGES: Final = f"{_SNAPSHOT}.messages"
_CONTRADICTIONS: Final[tuple[tuple[str, object, str], ...]] = (
    ("spills", [{"id": "x"}], "spills.0"),
    (f"{_SNAPSHOT}.archive_type", "search-index", f"{_SNAPSHOT}.archive_type"),
    (f"{_SNAPSHOT}.archive_type", ..., f"{_SNAPSHOT}.archive_type"),
    (f"{_SNAPSHOT}.conversation_id", "c2", f"{_SNAPSHOT}.conversation_id"),
    (f"{_SNAPSHOT}.unknown", 1, f"{_SNAPSHOT}.unknown"),
    (f"{_SNAPSHOT}.version", 3, f"{_SNAPSHOT}.version"),
    (f"{_SNAPSHOT}.gap", 1 << 60, f"{_SNAPSHOT}.gap"),
    (f"{_SNAPSHOT}.lowest", 1, f"{_SNAPSHOT}.lowest"),
    (f"{_SNAPSHOT}.created_at", ..., f"{_SNAPSHOT}.created_at"),
    ("projections", [], "projections.version"),
    (f"{_RUNS}.0.run.conversation_id", "c2", f"{_RUNS}.0.run.conversation_id"),
    (f"{_RUNS}.0.run.id", "b", f"{_RUNS}.1.run.id"),
    (f"{_RUNS}.0.run.revision", 9, f"{_RUNS}.0.run.revision"),
    (f"{_RUNS}.0.run.state", "interrupted", f"{_RUNS}.0.run"),
    (f"{_RUNS}.0.run.assistant_message_id", "b-out", f"{_RUNS}.0.run.assistant_message_id"),
    (f"{_RUNS}.0.run.input_message_ids", ["b-in"], "events.1.payload.message"),
    (f"{_RUNS}.0.arrival", 1, f"{_RUNS}.0.arrival"),
    (f"{_RUNS}.0.version", 1, f"{_RUNS}.0.version"),
    (f"{_RUNS}.0.run.fencing_token", 1 << 62, f"{_RUNS}.0.run.fencing_token"),
    (f"{_RUNS}.0.run.execution_sequence", 2, f"{_RUNS}.0.run.execution_sequence"),
    (f"{_RUNS}.4.run.owner_id", "owner-z", f"{_RUNS}.4.run.owner_id"),
    (f"{_RUNS}.1.place", 0, f"{_RUNS}.1"),
    (f"{_RUNS}.3.place", 0, f"{_RUNS}.3.place"),
    (f"{_RUNS}.2.run.input_message_ids", ["c-in"], f"{_RUNS}.3.run.absorbed_into_run_id"),
    (f"{_SNAPSHOT}.lane_epoch", 1 << 62, f"{_SNAPSHOT}.lane_epoch"),
    (f"{_SNAPSHOT}.next_place", 1, f"{_SNAPSHOT}.gap"),
    (f"{_MESSAGES}.0.position", 1 << 61, f"{_MESSAGES}.0.position"),
    ("events.2.payload.fencing_token", 7, "events.2.payload.fencing_token"),
    ("events.2.payload.lane_epoch", 1 << 50, "events.2.payload.lane_epoch"),
    ("events.3.payload.reason", ..., "events.3.payload.reason"),
    ("events.3.payload.state", "running", "events.3.payload.state"),
    (f"{_RUNS}.0.place", ..., f"{_RUNS}.0.place"),
    (f"{_RUNS}.4.draft", ..., f"{_RUNS}.4.draft"),
    (f"{_RUNS}.4.draft", [{"keep": 0}], f"{_RUNS}.4.draft"),
    (f"{_RUNS}.4.draft", [{"keep": 7}], f"{_RUNS}.4.draft"),
    (f"{_RUNS}.5.run.state", "running", f"{_RUNS}.5.run"),
    (f"{_RUNS}.5.run.assistant_message_id", "e-out", f"{_RUNS}.5.run.assistant_message_id"),
    (f"{_MESSAGES}.1.message.parts.0.text", "changed", "events.1.payload.message"),
    (f"{_MESSAGES}.1.message.conversation_id", "c2", f"{_MESSAGES}.1.message.conversation_id"),
    (f"{_MESSAGES}.1.message.id", "be-brief", f"{_MESSAGES}.1.message.id"),
    (f"{_MESSAGES}.1.message.role", "pilot", f"{_MESSAGES}.1.message"),
    (f"{_MESSAGES}.1.removed_at", ..., f"{_MESSAGES}.1.removed_at"),
    (f"{_MESSAGES}.1.position", 1 << 62, f"{_RUNS}.0.run.input_message_ids"),
    (f"{_MESSAGES}.-1.position", (1 << 62) + 1, f"{_RUNS}.5.run.input_message_ids"),
    (f"{_MESSAGES}.1.version", 1 << 50, f"{_MESSAGES}.1.version"),
    (f"{_MESSAGES}.1", {}, f"{_MESSAGES}.1.message"),
    ("events.1.version", 7, "events.1.version"),
    ("events.1.payload.run_id", "nobody", "events.1.payload.run_id"),
    ("events.1.payload.idempotency_key", "", "events.1.payload.idempotency_key"),
    ("events.4.payload.idempotency_key", "a-key", "events.4.payload.idempotency_key"),
    ("events.0.payload.seed_key", "", "events.0.payload.seed_key"),
    ("events.1.payload.message.sha256", "0" * 64, "events.1.payload.message"),
    ("events.1.payload.secret", 1, "events.1.payload.secret"),
    ("events.16.payload.message.parts", ..., "events.16.payload.message"),
    ("events.12.payload.message", ..., f"{_MESSAGES}"),
    ("events.7.payload.removed", ["a-in", "a-out", "nobody"], "events.7.payload.removed"),
    ("events.1.event_id", "x" * 600, "events.1.event_id"),
    ("events.1.occurred_at", "1700000000", "events.1.occurred_at"),
)


@store_check()
async def an_archive_that_contradicts_itself_is_refused(store: Store) -> None:
    """Whatever record was changed, the import names the place and leaves nothing behind."""
    document = _document(await _told())
    for path, value, field in _CONTRADICTIONS:
        broken = deepcopy(document)
        _change(broken, path, value)
        error = await refused(store.import_conversation(canonical_record_json(broken)), ArchiveInvalidError)
        expect(error.field == field or error.field.startswith(f"{field}."), f"{path}: wanted {field!r}, got {error}")
        await _empty(store)
    for more in ({"archive_type": "search-index"}, document["projections"][0]):
        broken = {**document, "projections": [*document["projections"], more]}
        error = await refused(store.import_conversation(canonical_record_json(broken)), ArchiveInvalidError)
        same(error.field, "projections.1.archive_type", f"the place of {error}")


def _forge(document: dict[str, Any], index: int, **facts: object) -> None:
    """Change a message and the hash by which the ledger names it."""
    message = document["projections"][0]["messages"][index]["message"]
    message |= facts
    sha256 = canonical_record_hash(message)
    for event in document["events"]:
        named = [event["payload"].get("message"), *event["payload"].get("messages", ())]
        for reference in named:
            if reference and reference["id"] == message["id"]:
                reference["sha256"] = sha256


@store_check()
async def a_forged_archive_is_refused(store: Store) -> None:
    """Several changes that hide each other, hashes included, do not hide what cannot have happened."""
    document = _document(await _told())
    order = [one["message"]["id"] for one in document["projections"][0]["messages"]]
    owned, failed, twice, stray, again = (deepcopy(document) for _ in range(5))
    _forge(owned, 0, run_id="a")
    _forge(failed, order.index("b-out"), status="failed")
    twice["events"][12]["payload"]["absorbed"] = [{"run_id": "d", "revision": 1}, {"run_id": "d", "revision": 2}]
    _change(twice, f"{_RUNS}.3.run.revision", 2)
    message = {**document["projections"][0]["messages"][0]["message"], "id": "stray"}
    stray["projections"][0]["messages"].append({"message": message, "position": 0, "version": 1})
    again["events"][0]["payload"]["messages"] *= 2
    cases = (
        (stray, f"{_MESSAGES}.{len(order)}"),
        (again, "events.0.payload.message"),
        (owned, f"{_MESSAGES}.0.message.run_id"),
        (failed, f"{_RUNS}.1.run.assistant_message_id"),
        (twice, "events.12.payload.absorbed.1"),
    )
    for forged, field in cases:
        error = await refused(store.import_conversation(canonical_record_json(forged)), ArchiveInvalidError)
        same(error.field, field, f"the place of {error}")
    await _empty(store)
    _forge(document, order.index("b-out"), parts=[{"type": "text", "text": "another answer"}])
    await store.import_conversation(canonical_record_json(document))
    await check_conversation(store, "c1")


@store_check()
async def an_archive_made_by_hand_is_held_to_the_same_rules(store: Store) -> None:
    """An archive object is checked like the bytes of one, also when it holds what no JSON can say."""
    told = decode_archive(await _told())
    shorter = replace(told, events=told.events[:-1])
    same(
        (await refused(store.import_conversation(shorter), ArchiveInvalidError)).field, "projections.0.version", "place"
    )
    nan = replace(told, spills=({"x": float("nan")},))
    same((await refused(store.import_conversation(nan), InvalidValueError)).argument, "archive.spills.0.x", "place")
    await _empty(store)
    await store.import_conversation(replace(told))
    same(await store.export_conversation("c1"), told, "the archive of the import")


# --- races --------------------------------------------------------------------------------------------------------


@store_check()
async def one_of_several_imports_wins(store: Store) -> None:
    """Of imports of one conversation at once exactly one is carried out, whole."""
    data = await _told()
    results = await at_once(*[lambda: store.import_conversation(data)] * 4)
    lost = [result for result in results if isinstance(result, ImportTargetNotEmptyError)]
    same(len(lost), 3, "imports that came too late")
    same(encode_archive(await store.export_conversation("c1")), data, "the archive of the import")


@store_check()
async def an_import_and_an_input_exclude_each_other(store: Store) -> None:
    """An input and an import at once: either the import is refused, or the input stands in what was imported."""
    data = await _told()
    lane = Lane(store)
    outcome, imported = await at_once(lambda: lane.try_accept("z"), lambda: store.import_conversation(data))
    expect(isinstance(outcome, Applied), "an input is taken, before or after")
    only = isinstance(imported, ImportTargetNotEmptyError)
    ids = await lane.message_ids()
    same((ids[-1], len(ids) == 1), ("z-in", only), "the newest message, and whether it is alone")
    await check_conversation(store, "c1")


@store_check()
async def an_export_is_one_moment(store: Store) -> None:
    """Archives made while turns are committed are each of one moment: every one can be imported."""
    lane = Lane(store)
    archives: list[ConversationArchive] = []

    async def export() -> None:
        archives.extend([await store.export_conversation("c1") for _ in range(6)])

    async with anyio.create_task_group() as group:
        group.start_soon(export)
        for index in range(6):
            await lane.turn(f"r{index}")
    for archive in archives:
        async with MemoryStore() as other:
            await other.import_conversation(archive)
            await check_conversation(other, "c1")


ARCHIVE_CHECKS: Final[tuple[StoreCheck, ...]] = (
    an_archive_is_canonical,
    an_import_is_the_same_conversation,
    an_imported_conversation_knows_its_retries,
    an_imported_run_can_be_recovered,
    an_imported_run_can_be_abandoned,
    an_unknown_conversation_is_an_empty_archive,
    an_import_needs_an_empty_conversation,
    an_archive_is_checked_in_order,
    each_event_is_checked,
    what_may_be_skipped_is_kept,
    a_gap_is_refused_by_the_import,
    an_archive_that_contradicts_itself_is_refused,
    a_forged_archive_is_refused,
    an_archive_made_by_hand_is_held_to_the_same_rules,
    one_of_several_imports_wins,
    an_import_and_an_input_exclude_each_other,
    an_export_is_one_moment,
)
