"""Checks of a driver's rows, read by read: every bound, limit, order and cursor, against a list of the same rows."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Final

from runlane.errors import UsageError
from runlane.store import (
    AcceptInput,
    BranchRow,
    CancelRun,
    Changes,
    ConversationQuery,
    DriverStore,
    Head,
    MessageQuery,
    MessageRow,
    Store,
)
from runlane.testing._store_kit import Lane, StoreCheck, applied, refused, same, store_check

__all__ = ["ROW_CHECKS"]

_LIMITS: Final = (1, 2, 100)
_EARLY: Final = datetime(2026, 1, 1, tzinfo=UTC)
_LATE: Final = datetime(2100, 1, 1, tzinfo=UTC)


@store_check()
async def a_range_of_messages_is_exact(store: Store) -> None:
    """Both bounds are exclusive, a limit is a limit, and compacted messages come only if they are asked for."""
    if not isinstance(store, DriverStore):
        return
    lane = Lane(store)
    await lane.turn("a", "b", "c")
    await lane.accept("d")
    applied(await lane.try_compact("a-out", "b-in"))
    everything = await _messages(store, MessageQuery(limit=100, newest_first=False, removed=True))
    wanted = ["a-in", "a-out", "sum", "b-in", "b-out", "c-in", "c-out", "d-in"]
    same([row.message_id for row in everything], wanted, "messages")
    bounds = (None, *(row.position for row in everything))
    for above, below, newest_first, removed in product(bounds, bounds, (False, True), (False, True)):
        inside = [row for row in everything if _is_inside(row, above, below) and (removed or row.removed_at is None)]
        inside = inside[::-1] if newest_first else inside
        for limit in _LIMITS:
            query = MessageQuery(limit=limit, above=above, below=below, newest_first=newest_first, removed=removed)
            same(await _messages(store, query), inside[:limit], f"{query}")


async def _messages(store: DriverStore, query: MessageQuery) -> list[MessageRow]:
    return await store.driver.read(lambda rows: rows.messages("c1", query))


def _is_inside(row: MessageRow, above: int | None, below: int | None) -> bool:
    position = row.position or 0
    return (above is None or position > above) and (below is None or position < below)


@store_check("c1", "c2")
async def rows_are_found_by_their_keys(store: Store) -> None:
    """Runs and messages of this conversation alone; a compacted message has a body, a reserved answer has none."""
    if not isinstance(store, DriverStore):
        return
    lane = Lane(store)
    await lane.turn("a")
    await lane.accept("b")
    await Lane(store, "c2").accept("other")
    applied(await lane.try_compact("a-in", "a-out"))
    names = ["a", "b", "other", "nobody"]
    runs = await store.driver.read(lambda rows: rows.runs("c1", names))
    same(sorted(row.run.id for row in runs), ["a", "b"], "runs")
    found = await store.driver.read(lambda rows: [rows.run("c1", name) is not None for name in names])
    same(found, [True, True, False, False], "runs, one by one")
    active = await store.driver.read(lambda rows: rows.active("c1"))
    same([row.run.id for row in active], ["b"], "active runs")
    ids = ["a-in", "a-out", "b-in", "b-out", "sum", "other-in", "nobody"]
    bodies = await store.driver.read(lambda rows: rows.bodies("c1", ids))
    same(sorted(bodies), ["a-in", "a-out", "b-in", "sum"], "messages with a body")


@store_check()
async def a_range_of_entries_is_exact(store: Store) -> None:
    """Both bounds belong to it, and a limit is a limit."""
    if not isinstance(store, DriverStore):
        return
    lane = Lane(store)
    await lane.turn("a", "b")
    last = len(await lane.ledger())
    for first, end, limit in product(range(1, last + 2), range(last + 2), _LIMITS):
        wanted = list(range(first, min(end, last) + 1))[:limit]
        same(await _sequences(store, first, end, limit), wanted, f"entries {first} to {end}, at most {limit}")


async def _sequences(store: DriverStore, first: int, last: int, limit: int) -> list[int]:
    found = await store.driver.read(lambda rows: rows.entries("c1", first, last, limit))
    return [row.seq for row in found]


@store_check("c", "c:1", "d")
async def active_runs_are_found_behind_a_cursor(store: Store) -> None:
    """The scan is ordered by (conversation, run), begins behind its cursor, and keeps its limit."""
    if not isinstance(store, DriverStore):
        return
    for conversation_id in ("d", "c:1", "c"):
        await Lane(store, conversation_id).accept("r2", "r1")
    keys = [(conversation_id, name) for conversation_id in ("c", "c:1", "d") for name in ("r1", "r2")]
    for place, limit in product(range(len(keys) + 1), _LIMITS):
        cursor = keys[place - 1] if place else None
        same(await _recoverable(store, cursor, limit), keys[place:][:limit], f"behind {cursor}, at most {limit}")


async def _recoverable(store: DriverStore, cursor: tuple[str, str] | None, limit: int) -> list[tuple[str, str]]:
    found = await store.driver.read(lambda rows: rows.recoverable(cursor, limit))
    return [(conversation_id, row.run.id) for conversation_id, row in found]


@store_check("bare", "c1", "c2", "c3", "gone")
async def conversations_are_found_behind_a_cursor(store: Store) -> None:
    """Newest input first and equal ones by id, behind a cursor, within a limit; searched by id and by text."""
    if not isinstance(store, DriverStore):
        return
    for minute, conversation_id in enumerate(("gone", "c2", "c3", "c1")):
        lane = Lane(store, conversation_id)
        accept = AcceptInput(
            command_id="accept",
            at=_EARLY.replace(minute=min(minute, 2)),
            idempotency_key="k",
            input=lane.message("a-in"),
            run=lane.proposal("a"),
        )
        applied((await store.apply(conversation_id, [accept]))[-1])
    for conversation_id in ("gone", "c2"):
        # What is no input does not make a conversation newer.
        late = CancelRun(command_id="late", at=_LATE, run_id="a", expected_revision=0)
        applied((await store.apply(conversation_id, [late]))[-1])
    await store.append_event(conversation_id="bare", kind="state/set", payload={})
    await store.purge_conversation("gone")
    whole = await _conversations(store, ConversationQuery(limit=100))
    same([name for name, _ in whole], ["bare", "c1", "c3", "c2"], "conversations, newest input first")
    for place, limit in product(range(len(whole) + 1), _LIMITS):
        after = (whole[place - 1][1].active_at, whole[place - 1][0]) if place else None
        found = await _conversations(store, ConversationQuery(limit=limit, after=after))
        same(found, whole[place:][:limit], f"behind {after}, at most {limit}")
    for search, count in (("BARE", 1), ("C2", 1), ("HELLO", 3), ("nothing like it", 0)):
        found = await _conversations(store, ConversationQuery(limit=100, search=search))
        same(len(found), count, f"conversations with {search!r}")


async def _conversations(store: DriverStore, query: ConversationQuery) -> list[tuple[str, Head]]:
    return await store.driver.read(lambda rows: rows.conversations(query))


@store_check()
async def a_branch_has_a_key_of_its_own(store: Store) -> None:
    """A second receipt under one request key is refused, and nothing of what came with it is written."""
    if not isinstance(store, DriverStore):
        return
    await Lane(store).accept("a")
    head = await store.driver.read(lambda rows: rows.head("c1"))
    receipt = BranchRow("k", bytes(32), "c1", "c2", 1, 1, bytes(32), "2026-01-01T00:00:00.000Z")
    changes = Changes(before=head, head=head, branch=receipt)
    await store.driver.write(lambda rows: rows.save("c1", changes), "c1")
    other = Changes(before=head, head=head._replace(version=9), branch=receipt._replace(destination_id="c3"))
    await refused(store.driver.write(lambda rows: rows.save("c1", other), "c1"), UsageError)
    same(await store.driver.read(lambda rows: rows.head("c1")), head, "the head")
    same(await store.driver.read(lambda rows: rows.branch("k")), receipt, "the receipt")


ROW_CHECKS: tuple[StoreCheck, ...] = (
    a_range_of_messages_is_exact,
    rows_are_found_by_their_keys,
    a_range_of_entries_is_exact,
    active_runs_are_found_behind_a_cursor,
    conversations_are_found_behind_a_cursor,
    a_branch_has_a_key_of_its_own,
)
