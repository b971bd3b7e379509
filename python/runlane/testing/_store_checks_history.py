"""Checks of reads: causal order, pages, catching up, compaction, seeds."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import anyio

from runlane.errors import InvalidValueError
from runlane.records import Message
from runlane.store import QUEUED, ConversationReader, DriverStore, Store
from runlane.testing._store_kit import (
    Lane,
    StoreCheck,
    applied,
    conflict,
    duplicate,
    expect,
    not_found,
    paged,
    refused,
    same,
    store_check,
)

__all__ = ["HISTORY_CHECKS"]

_DIRECTIONS: Final[tuple[Literal["before", "after"], ...]] = ("after", "before")


@store_check()
async def messages_follow_their_runs(store: Store) -> None:
    """A successor admitted before its predecessor's answer reads after it, in snapshot, pages and changes alike."""
    lane = Lane(store)
    await lane.accept("a")
    await lane.start("a")
    await lane.accept("b")
    await lane.say("a", "so far")
    same(await lane.message_ids(), ["a-in", "a-out", "b-in"], "while a runs")
    applied(await lane.try_end("a"))
    await lane.accept("c")
    await lane.start("b")
    applied(await lane.try_end("b"))
    wanted = ["a-in", "a-out", "b-in", "b-out", "c-in"]
    same(await lane.message_ids(), wanted, "the snapshot")
    newest_first = [item.message_id for item in (await store.read_messages("c1")).items]
    same(newest_first, wanted[::-1], "the pages")
    changes = await store.load_changes("c1", 0)
    same([message.id for message in changes.messages], wanted, "the changes")


@store_check()
async def a_page_continues_where_the_last_ended(store: Store) -> None:
    """Pages of any size give every message once, newest first; waiting inputs stand above `QUEUED`."""
    lane = Lane(store)
    await lane.turn("a", "b", "c")
    await lane.accept("d", "e")
    wanted = ["e-in", "d-in", "c-out", "c-in", "b-out", "b-in", "a-out", "a-in"]
    for limit in (1, 2, 3, 8, 100):
        same(await _read_on(store, None, limit), wanted, f"pages of {limit}")
    settled = await store.read_messages("c1", before=QUEUED)
    same([item.message_id for item in settled.items], wanted[2:], "below the queue")
    bodies = [Message.model_validate_json(item.body) for item in settled.items]
    same([body.id for body in bodies], wanted[2:], "the bodies")
    for limit in (0, 1001):
        await refused(store.read_messages("c1", limit=limit), InvalidValueError)


async def _read_on(store: Store, start: str | None, limit: int = 1) -> list[str]:
    """Return the ids of the messages behind a cursor, newest first."""

    async def read(cursor: str | None) -> tuple[list[str], str | None]:
        page = await store.read_messages("c1", before=cursor or start, limit=limit)
        expect(0 < len(page.items) <= limit, "a page holds something, at most its limit")
        return [item.message_id for item in page.items], page.next_before

    return await paged(read)


@store_check()
async def a_page_passes_nothing_over_that_waits(store: Store) -> None:
    """The queue changes between two pages: whatever waited and was not read yet comes in the pages that follow."""
    lane = Lane(store)
    await lane.turn("z")
    await lane.accept("a", "b", "c", "d")
    first = (await store.read_messages("c1", limit=2)).next_before
    applied(await lane.try_accept("u", run=lane.proposal("u", priority="interrupt-next")))
    same(await _read_on(store, first), ["b-in", "a-in", "u-in", "z-out", "z-in"], "an urgent input came")
    await lane.accept("e")
    same(await _read_on(store, first), ["b-in", "a-in", "u-in", "z-out", "z-in"], "an ordinary input came")
    await lane.start("u")
    same(await _read_on(store, first), ["b-in", "a-in", "u-in", "z-out", "z-in"], "the first one began")
    applied(await lane.try_cancel("d"))
    same(await _read_on(store, first), ["b-in", "a-in", "d-out", "d-in", "u-in", "z-out", "z-in"], "one was taken back")
    applied(await lane.try_cancel("c"))
    rest = await _read_on(store, first)
    same(rest[:2], ["b-in", "a-in"], "what was read last was taken back")
    same(rest[-3:], ["u-in", "z-out", "z-in"], "and so on to the beginning")
    applied(await lane.try_end("u"))
    for name in ("a", "b"):
        await lane.start(name)
        applied(await lane.try_end(name))
    wanted = {"a-in", "a-out", "b-in", "b-out", "u-in", "u-out", "z-in", "z-out"}
    same(wanted - set(await _read_on(store, first)), set(), "passed over once all had their turn")


@store_check()
async def a_reader_catches_up_from_any_version(store: Store) -> None:
    """The changes since any version bring a reader to the same runs and messages as a fresh snapshot."""
    lane = Lane(store)
    seen: list[tuple[int, dict[str, object], dict[str, object]]] = []

    async def note() -> None:
        snapshot = await store.load_snapshot("c1")
        runs = {name: (await lane.view(name)).run for name in ("a", "b", "c") if await store.load_run("c1", name)}
        whole = {item.id: item for item in snapshot.messages if item.status != "streaming"}
        seen.append((snapshot.version, dict(runs), dict(whole)))

    await lane.accept("a")
    await note()
    await lane.start("a")
    await lane.say("a", "text")
    await lane.accept("b", "c")
    await note()
    await store.append_event(conversation_id="c1", kind="state/set", payload={"x": 1})
    applied(await lane.try_end("a", absorb=["b"]))
    await note()
    applied(await lane.try_compact("a-in", "b-in"))
    await lane.start("c")
    await note()
    applied(await lane.try_end("c"))
    await note()
    version, runs, messages = seen[-1]
    for since, old_runs, old_messages in seen:
        delta = await store.load_changes("c1", since)
        same(delta.version, version, "the version reached")
        same({**old_runs, **{run.id: run for run in delta.runs}}, runs, f"runs since {since}")
        caught_up = {**old_messages, **{message.id: message for message in delta.messages}}
        same({key: value for key, value in caught_up.items() if key not in delta.removed}, messages, f"since {since}")
    same((await store.load_changes("c1", version)).runs, (), "nothing since the newest")
    same((await store.load_changes("c1", version + 5)).version, version, "a version from the future")
    await lane.accept("d")
    version = await lane.version()
    await lane.start("d")
    placed = (await store.load_changes("c1", version)).messages
    same([message.id for message in placed], ["d-in"], "an input that found its place")


@store_check("c1", "c2")
async def a_run_is_read_alone(store: Store) -> None:
    """`load_run` knows the run's own conversation only, and gives version and answer of that moment."""
    lane = Lane(store)
    same(await store.load_run("c1", "a"), None, "an unknown run")
    await lane.turn("a")
    view = await lane.view("a")
    same(view.snapshot_version, await lane.version(), "the version")
    same(view.assistant and view.assistant.text, "answer", "the answer")
    same(await store.load_run("c2", "a"), None, "the same id elsewhere")
    same((await store.load_snapshot("c2")).version, 0, "an unknown conversation")


@store_check("c", "c:1", "c'", "a", "é")
async def active_runs_are_scanned_once(store: Store) -> None:
    """The scan gives every active run once by (conversation, run), whatever the page size and the ids."""
    ids = ("c", "c:1", "c'", "a", "é")
    for conversation_id in ids:
        lane = Lane(store, conversation_id)
        await lane.accept("r2", "r1", "r:3")
        await lane.start("r2")
    wanted = sorted((conversation_id, name) for conversation_id in ids for name in ("r1", "r2", "r:3"))
    for limit in (1, 4, 1000):
        same(await _scanned(store, limit), wanted, f"pages of {limit}")
    for limit in (0, 1001):
        await refused(store.scan_recoverable(limit=limit), InvalidValueError)


async def _scanned(store: Store, limit: int) -> list[tuple[str, str]]:
    async def read(cursor: tuple[str, str] | None) -> tuple[list[tuple[str, str]], tuple[str, str] | None]:
        page = await store.scan_recoverable(cursor=cursor, limit=limit)
        expect(0 < len(page.items) <= limit, "a page holds something, at most its limit")
        return [(item.conversation_id, item.run.id) for item in page.items], page.next_cursor

    return await paged(read)


# --- compaction ---------------------------------------------------------------------------------------------------


@store_check()
async def a_summary_takes_the_place_of_the_first(store: Store) -> None:
    """A summary stands where the first replaced message stood; what it replaced stays with its runs and keys."""
    lane = Lane(store)
    await lane.turn("a", "b", "c")
    version = await lane.version()
    outcome = applied(await lane.try_compact("a-out", "b-in", "b-out"))
    same((outcome.delta.version, outcome.delta.removed), (version + 1, ("a-out", "b-in", "b-out")), "the delta")
    same(await lane.message_ids(), ["a-in", "sum", "c-in", "c-out"], "messages")
    pages = [item.message_id for item in (await store.read_messages("c1")).items]
    same(pages, ["c-out", "c-in", "sum", "a-in"], "pages")
    same([run.id for run in (await store.load_snapshot("c1")).runs], ["c"], "runs of the snapshot")
    same((await lane.view("b")).assistant and (await lane.view("b")).run.state, "completed", "the compacted run")
    applied(await lane.try_compact("a-in", "sum", summary="sum2"))
    same(await lane.message_ids(), ["sum2", "c-in", "c-out"], "after a second summary")
    duplicate(await lane.try_accept("x", key="b-key"))


@store_check()
async def compaction_is_guarded(store: Store) -> None:
    """An old version conflicts, an absent message is not found, and anything else wrong is misuse; nothing changes."""
    lane = Lane(store)
    await lane.turn("a", "b")
    version = await lane.version()
    conflict(await lane.unchanged(lane.try_compact("a-in", version=version - 1)), version)
    not_found(await lane.unchanged(lane.try_compact("a-in", "nobody")))
    await lane.refused(lane.try_compact())
    await lane.refused(lane.try_compact("a-in", "b-in"))
    await lane.refused(lane.try_compact("a-in", "a-in"))
    for taken in ("a-in", "b-out"):
        await lane.refused(lane.try_compact("a-in", summary=taken))
    for bad in (
        lane.message("sum", "x", "user"),
        lane.message("sum", "x", "summary", "completed"),
        lane.message("sum", "x", "summary", run_id="a"),
    ):
        attempt = store.replace_compacted_range(expected_version=version, replaced_message_ids=["a-in"], summary=bad)
        await lane.refused(attempt)
    applied(await lane.try_compact("a-in"))
    not_found(await lane.unchanged(lane.try_compact("a-in", summary="sum2")))


@store_check()
async def an_active_runs_answer_is_not_compacted(store: Store) -> None:
    """Inputs of an active run may be compacted, its answer may not, and a range does not reach across it."""
    lane = Lane(store)
    await lane.turn("a")
    await lane.accept("b")
    await lane.start("b")
    await lane.accept("c")
    await lane.say("b", "so far")
    await lane.refused(lane.try_compact("b-in", "b-out"))
    await lane.refused(lane.try_compact("b-in", "c-in"))
    applied(await lane.try_compact("a-out", "b-in"))
    same(await lane.message_ids(), ["a-in", "sum", "b-out", "c-in"], "messages")
    applied(await lane.try_end("b"))
    applied(await lane.try_compact("c-in", summary="sum2"))
    await lane.start("c")
    applied(await lane.try_end("c"))
    same(await lane.message_ids(), ["a-in", "sum", "b-out", "sum2", "c-out"], "messages at the end")


# --- seeds --------------------------------------------------------------------------------------------------------


@store_check()
async def a_lead_seed_goes_ahead_of_everything(store: Store) -> None:
    """Seeded user messages stand first, in order, though inputs were admitted before; a repetition changes nothing."""
    lane = Lane(store)
    await lane.accept("a")

    async def seed(key: str, *ids: str) -> int:
        inputs = [lane.message(name) for name in ids]
        outcome = await store.seed_conversation(conversation_id="c1", seed_key=key, inputs=inputs)
        return applied(outcome).delta.version

    same(await seed("k1", "s1", "s2"), 2, "the version")
    same(await seed("k1", "s1", "s2"), 2, "the version after a repetition")
    same(await seed("k1", "other"), 2, "the version after another repetition")
    same(await seed("k2", "s3", "s4", "s5"), 3, "the version after a second seed")
    same(await lane.message_ids(), ["s3", "s4", "s5", "s1", "s2", "a-in"], "messages")
    applied(await lane.try_compact("s3", "s4", "s5", "s1", "s2"))
    await seed("k1", "s1", "s2")
    same(await seed("k3", "s1", "s2"), 4, "known ids are receipted without a change")
    same(await lane.message_ids(), ["sum", "a-in"], "nothing resurfaces")


@store_check()
async def a_settled_seed_goes_before_active_runs(store: Store) -> None:
    """Seeds of placement `after-settled` stand behind settled history and before the first active run's messages."""
    lane = Lane(store)
    await lane.turn("a")

    async def seed(name: str) -> None:
        pair = [lane.message(f"{name}-q"), lane.message(f"{name}-r", "x", "assistant", "completed")]
        outcome = await store.seed_conversation(
            conversation_id="c1", seed_key=name, inputs=pair, placement="after-settled"
        )
        applied(outcome)

    await seed("s1")
    await lane.accept("b", "c")
    await seed("s2")
    await lane.start("b")
    await lane.say("b", "so far")
    await seed("s3")
    await seed("s4")
    settled = ["a-in", "a-out", "s1-q", "s1-r", "s2-q", "s2-r", "s3-q", "s3-r", "s4-q", "s4-r"]
    same(await lane.message_ids(), [*settled, "b-in", "b-out", "c-in"], "while b runs")
    applied(await lane.try_end("b"))
    await seed("s5")
    same(await lane.message_ids(), [*settled, "b-in", "b-out", "s5-q", "s5-r", "c-in"], "after b ended")


@store_check()
async def a_seed_is_checked_whole(store: Store) -> None:
    """Foreign, owned, wrong or partly known messages are misuse, and nothing of the seed is placed."""
    lane = Lane(store)
    await lane.turn("a")
    lead = [
        lane.message("s", role="assistant", status="completed"),
        lane.message("s", status="completed"),
        lane.message("s", run_id="a"),
        lane.message("s").model_copy(update={"conversation_id": "c2"}),
    ]
    for message in lead:
        attempt = store.seed_conversation(conversation_id="c1", seed_key="k", inputs=[lane.message("s0"), message])
        await lane.refused(attempt)
    for inputs in ([], [lane.message("s"), lane.message("s")], [lane.message("s"), lane.message("a-in")]):
        await lane.refused(store.seed_conversation(conversation_id="c1", seed_key="k", inputs=inputs))
    await lane.accept("b")
    reserved = store.seed_conversation(conversation_id="c1", seed_key="k", inputs=[lane.message("b-out")])
    await lane.refused(reserved)
    system = lane.message("s", role="system")
    attempt = store.seed_conversation(conversation_id="c1", seed_key="k", inputs=[system], placement="after-settled")
    await lane.refused(attempt)


@store_check()
async def concurrent_seeds_leave_one_copy(store: Store) -> None:
    """Many seeders of one key place its messages once."""
    lane = Lane(store)
    inputs = [lane.message("s1"), lane.message("s2")]
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(partial(store.seed_conversation, conversation_id="c1", seed_key="k", inputs=inputs))
    same((await lane.message_ids(), await lane.version()), (["s1", "s2"], 1), "messages and version")


# --- the reader for people ----------------------------------------------------------------------------------------


@store_check("c1", "c2", "c3")
async def conversations_are_listed_in_pages(store: Store) -> None:
    """The list gives every conversation once, newest input first, with a preview and its active runs."""
    reader = ConversationReader(store) if isinstance(store, DriverStore) else None
    if reader is None:
        return
    for conversation_id in ("c2", "c3", "c1"):
        await Lane(store, conversation_id).turn("a")
        await Lane(store, conversation_id).accept("b")
    whole = await reader.list()
    same(sorted(item.conversation_id for item in whole.items), ["c1", "c2", "c3"], "conversations")
    same({(item.preview, item.active_runs) for item in whole.items}, {("hello", 1)}, "previews")

    async def read(cursor: str | None) -> tuple[list[str], str | None]:
        page = await reader.list(limit=1, cursor=cursor)
        return [item.conversation_id for item in page.items], page.next_cursor

    same(await paged(read), [item.conversation_id for item in whole.items], "pages of one")
    same([item.conversation_id for item in (await reader.list(search="C2")).items], ["c2"], "a search")
    same(len((await reader.list(search="ANSWER")).items), 3, "a search for text")
    await refused(reader.list(cursor="nonsense"), InvalidValueError)


async def _read_all(
    reader: ConversationReader, limit: int, direction: Literal["before", "after"], *, include_compacted: bool
) -> tuple[list[str], set[str]]:
    """Return the ids of all messages, oldest first, and of those that were compacted."""
    gone: set[str] = set()

    async def read(cursor: str | None) -> tuple[list[str], str | None]:
        page = await reader.messages(
            "c1", limit=limit, direction=direction, cursor=cursor, include_compacted=include_compacted
        )
        gone.update(page.compacted)
        ids = [message.id for message in page.items]
        return (ids if direction == "after" else ids[::-1]), page.next_cursor

    found = await paged(read)
    return (found if direction == "after" else found[::-1]), gone


@store_check()
async def compacted_messages_can_be_read(store: Store) -> None:
    """Pages of any size give every message once; a summary stands right behind the first message it replaced."""
    lane = Lane(store)
    if not isinstance(store, DriverStore):
        return
    reader = ConversationReader(store)
    await lane.turn("a", "b")
    applied(await lane.try_compact("a-in", "a-out"))
    applied(await lane.try_compact("sum", "b-in", summary="again"))
    await lane.accept("q", "r")
    everything = ["a-in", "sum", "again", "a-out", "b-in", "b-out", "q-in", "r-in"]
    for compacted, wanted in ((True, everything), (False, ["again", "b-out", "q-in", "r-in"])):
        for direction in _DIRECTIONS:
            for limit in (1, 3, 100):
                found, gone = await _read_all(reader, limit, direction, include_compacted=compacted)
                same(found, wanted, f"{direction}, pages of {limit}")
                same(gone, {"a-in", "sum", "a-out", "b-in"} if compacted else set(), "compacted ids")


@store_check()
async def a_cursor_outlives_what_it_stood_on(store: Store) -> None:
    """Between two pages history is compacted and the queue moves; what was not read yet is read all the same."""
    lane = Lane(store)
    if not isinstance(store, DriverStore):
        return
    reader = ConversationReader(store)
    await lane.turn("a", "b", "c", "d")
    back = await reader.messages("c1", limit=4)
    forth = await reader.messages("c1", limit=4, direction="after")
    whole = await reader.messages("c1", limit=4, direction="after", include_compacted=True)
    applied(await lane.try_compact("c-in", "c-out", summary="late"))
    applied(await lane.try_compact("b-out", summary="early"))
    rest = await reader.messages("c1", cursor=back.next_cursor)
    same([message.id for message in rest.items], ["a-in", "a-out", "b-in", "early"], "towards the beginning")
    rest = await reader.messages("c1", direction="after", cursor=forth.next_cursor)
    same([message.id for message in rest.items], ["early", "late", "d-in", "d-out"], "towards the end")
    rest = await reader.messages("c1", direction="after", cursor=whole.next_cursor, include_compacted=True)
    wanted = ["early", "c-in", "late", "c-out", "d-in", "d-out"]
    same([message.id for message in rest.items], wanted, "towards the end, with all that was")
    await lane.accept("p", "q", "r", "s")
    back = await reader.messages("c1", limit=2)
    forth = await reader.messages("c1", limit=9, direction="after")
    same([message.id for message in forth.items][-2:], ["p-in", "q-in"], "inputs that wait")
    await lane.start("p")
    applied(await lane.try_end("p"))
    await lane.start("q")
    applied(await lane.try_end("q"))
    rest = await reader.messages("c1", limit=5, cursor=back.next_cursor)
    same([message.id for message in rest.items], ["d-out", "p-in", "p-out", "q-in", "q-out"], "what waited, backwards")
    rest = await reader.messages("c1", direction="after", cursor=forth.next_cursor)
    same([message.id for message in rest.items], ["q-out", "r-in", "s-in"], "what waited, forwards")


HISTORY_CHECKS: tuple[StoreCheck, ...] = (
    messages_follow_their_runs,
    a_page_continues_where_the_last_ended,
    a_page_passes_nothing_over_that_waits,
    a_reader_catches_up_from_any_version,
    a_run_is_read_alone,
    active_runs_are_scanned_once,
    a_summary_takes_the_place_of_the_first,
    compaction_is_guarded,
    an_active_runs_answer_is_not_compacted,
    a_lead_seed_goes_ahead_of_everything,
    a_settled_seed_goes_before_active_runs,
    a_seed_is_checked_whole,
    concurrent_seeds_leave_one_copy,
    conversations_are_listed_in_pages,
    compacted_messages_can_be_read,
    a_cursor_outlives_what_it_stood_on,
)
