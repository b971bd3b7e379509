"""Checks of what is no value of its kind: commands are plain data, so a store is the first that looks at them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from operator import methodcaller
from typing import Any, Final, cast

from runlane.errors import InvalidValueError, UsageError
from runlane.records import ControlPart, Message, Ownership, ReasoningPart, RunMetrics, RunOperation, TextPart, Usage
from runlane.records import UsageValue as Tokens
from runlane.store import (
    Absorption,
    AppendEvent,
    CancelRun,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    ConversationReader,
    DraftPatch,
    DriverStore,
    GrownPart,
    Names,
    PurgeConversation,
    Purged,
    ReadEvents,
    RecordRunOperation,
    RecoverRun,
    ReplaceCompactedRange,
    RequestRunInterrupt,
    Rows,
    SeedConversation,
    Store,
)
from runlane.testing._store_checks_groups import accepting, acquiring
from runlane.testing._store_kit import START, Lane, StoreCheck, applied, expect, refused, same, store_check

__all__ = ["ARGUMENT_CHECKS"]

_SPENT: Final = Usage(
    input_tokens=Tokens(value=1, provenance="computed"), output_tokens=Tokens(value=1, provenance="computed")
)
_ODD: Final[dict[str, tuple[object, ...]]] = {
    "at": (START.replace(tzinfo=None), datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))),
    "occurred_at": (0, "", START.replace(tzinfo=None), datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))),
    "replay_safe": (1, "no", float("nan")),
    "ignorable": (1, "no", None),
    "usage": (_SPENT.input_tokens, _SPENT.model_dump(mode="json")),
    "operation": (_SPENT, None),
    "metrics": (_SPENT,),
    "reason": ("done", None, ["success"]),
    "absorb": (None, [], ("a",), (Absorption("b", cast("tuple[str, ...]", ["b-in"])),), "ab"),
    "patch": (
        None,
        DraftPatch(keep=cast("int", 1.0)),
        DraftPatch(keep=True),
        DraftPatch(grown=cast("tuple[GrownPart, ...]", None)),
        DraftPatch(keep=1, grown=(GrownPart(cast("int", "0"), "x"),)),
        DraftPatch(keep=1, grown=(GrownPart(0, "x", cast("Any", {"provider": "p"})),)),
        DraftPatch(added=cast("Any", ("x",))),
        DraftPatch(added=cast("Any", [TextPart(text="x")])),
        DraftPatch(added=cast("Any", ({"type": "text", "text": "x"},))),
    ),
    "replaced_message_ids": ("ab", ["a-in"], None),
    "inputs": (["x"], None),
}
"""Beside an object of no kind at all: what comes near to being right, by the name of the field."""


def _commands(lane: Lane, ownership: Ownership) -> list[Command]:
    """Return one of each command; `a` runs with a draft of one part, `b` waits."""
    named: dict[str, Any] = {"command_id": "odd", "at": lane.now()}
    on_run: dict[str, Any] = {**named, "run_id": "a", "expected_revision": 2}
    operation = RunOperation(operation_id="o", kind="compaction", phase="started", started_at=START)
    return [
        accepting(lane, "c"),
        acquiring(lane, "b"),
        CheckpointRunAssistant(**on_run, ownership=ownership, patch=DraftPatch(keep=1), usage=_SPENT),
        RecordRunOperation(**on_run, ownership=ownership, operation=operation),
        RequestRunInterrupt(**on_run),
        CancelRun(**named, run_id="b", expected_revision=0),
        RecoverRun(**on_run, action="requeue", replay_safe=True, evidence={}),
        CommitRunTerminal(
            **on_run,
            ownership=ownership,
            assistant=lane.message("a-out", "x", "assistant", "completed", run_id="a"),
            reason="success",
            usage=_SPENT,
            metrics=RunMetrics(partial=False, usage=_SPENT),
            absorb=(Absorption("b", ("b-in",)),),
        ),
        ReplaceCompactedRange(
            **named, expected_version=4, replaced_message_ids=("a-in",), summary=lane.message("s", "x", "summary")
        ),
        SeedConversation(**named, seed_key="s", inputs=(lane.message("seed"),)),
        AppendEvent(**named, kind="state/set", payload={}, occurred_at=START, event_id="e"),
    ]


@store_check()
async def every_field_of_a_command_is_of_its_kind(store: Store) -> None:
    """A field that is of another kind is refused by name, on every store alike, and leaves nothing behind."""
    lane = Lane(store)
    await lane.accept("a")
    ownership = await lane.start("a")
    await lane.say("a", "so far")
    await lane.accept("b")
    for command in _commands(lane, ownership):
        for field in fields(command):
            for value in (object(), *_ODD.get(field.name, ())):
                odd = replace(command, **cast("dict[str, Any]", {field.name: value}))
                error = await lane.refused(store.apply("c1", [odd]), InvalidValueError)
                named = error.argument or ""
                expect(named.split(".")[0] == field.name, f"{error!r} must name {field.name} of {command!r}")
    # Each of them was refused for that field alone: as it is, the store takes it, or knows it from before.
    applied(await lane.try_end("a"))


@store_check()
async def a_patch_holds_parts(store: Store) -> None:
    """Any part may be added, and what a part cannot hold is refused before it is kept."""
    lane = Lane(store)
    await lane.accept("a")
    await lane.start("a")
    parts = (ReasoningPart(text="hm"), ControlPart(reason="run-interrupted"))
    applied(await lane.try_checkpoint("a", DraftPatch(added=parts)))
    grown = DraftPatch(keep=2, grown=(GrownPart(0, "\ud800"),))
    await lane.refused(lane.try_checkpoint("a", grown), InvalidValueError)
    draft = await store.load_draft("c1", "a")
    expect(draft is not None and draft.parts == parts, "the draft holds what was added")


@store_check()
async def every_argument_is_of_its_kind(store: Store) -> None:
    """Named operations and reads refuse what is no value of theirs, by name, whatever a database would make of it."""
    lane = Lane(store)
    nothing, five = cast("Any", None), cast("Any", 5)
    message = cast("Message", {"id": "x"})
    wrong: dict[str, Callable[[], Awaitable[object]]] = {
        "input": lambda: store.accept_input(idempotency_key="k", input=message, run=lane.proposal("a")),
        "summary": lambda: store.replace_compacted_range(
            expected_version=0, replaced_message_ids=("a",), summary=message
        ),
        "replaced_message_ids": lambda: store.replace_compacted_range(
            expected_version=0, replaced_message_ids="ab", summary=lane.message("s", "x", "summary")
        ),
        "inputs": lambda: store.seed_conversation(conversation_id="c1", seed_key="s", inputs=nothing),
        "key": lambda: store.append_event_once(conversation_id="c1", kind="state/set", key=five, payload={}),
        "kind": lambda: store.find_event_once(conversation_id="c1", kind=nothing, key="k"),
        "run_id": lambda: store.load_run("c1", cast("Any", ["a"])),
        "run_id ": lambda: store.load_draft("c1", cast("Any", 2**70)),
        "event_id": lambda: store.find_event("c1", nothing),
        "cursor": lambda: store.scan_recoverable(cursor=("\ud800", "a")),
        "max_wait": lambda: store.wait_for_change("c1", 0, max_wait=nothing),
        "command": lambda: store.purge(cast("PurgeConversation", "c1")),
        "query": lambda: store.read_events(cast("ReadEvents", "c1")),
        "commands": lambda: store.apply("c1", nothing),
        "commands ": lambda: store.apply("c1", cast("Any", acquiring(lane, "a"))),
    }
    for argument, attempt in wrong.items():
        error = await lane.refused(attempt(), InvalidValueError)
        expect(error.argument == argument.strip(), f"{error!r} must name {argument}")
    await lane.refused(store.apply("c1", cast("Any", "ab")), InvalidValueError)
    await lane.refused(store.apply("c1", cast("Any", [5])), UsageError)


@store_check()
async def a_number_may_be_beyond_every_row(store: Store) -> None:
    """A bound that no row can reach is a bound like any other, however large."""
    lane = Lane(store)
    await lane.turn("a")
    beyond = 2**80
    page = await store.read_events(ReadEvents(conversation_id="c1", to_seq=beyond))
    expect(len(page.items) == 3 and page.next_seq is None, "everything is below it")  # noqa: PLR2004  one a command
    expect((await store.read_events(ReadEvents(conversation_id="c1", from_seq=beyond))).items == (), "nothing is above")
    late = ReadEvents(conversation_id="c1", after_version=beyond)
    expect((await store.read_events(late)).items == (), "nothing is later")
    expect((await store.load_changes("c1", beyond)).messages == (), "nothing changed since")
    expect(len((await store.read_messages("c1", before=beyond)).items) == 2, "everything is before")  # noqa: PLR2004
    expect(not await store.wait_for_change("c1", beyond, max_wait=0), "it is never reached")


@store_check()
async def a_cursor_is_one_of_its_list(store: Store) -> None:
    """A cursor that no page gave is refused, and so is a search for what is no text."""
    if not isinstance(store, DriverStore):
        return
    await Lane(store).turn("a")
    reader = ConversationReader(store)
    for cursor in (
        "",
        "x",
        "[" * 100_000,
        "[1]",
        '["a", 1]',
        '[true, "a"]',
        "[1.0, 2]",
        "null",
        '["\\ud800", "a"]',
        f'[{2**80}, "a"]',
        cast("str", 5),
    ):
        await refused(reader.list(cursor=cursor), InvalidValueError)
        await refused(reader.messages("c1", cursor=cursor), InvalidValueError)
    for search in (5, b"x", ["x"], "\ud800"):
        await refused(reader.list(search=cast("str", search)), InvalidValueError)


# --- what a driver must do, seen through its own rows --------------------------------------------------------------


@store_check()
async def a_transaction_that_fails_leaves_nothing(store: Store) -> None:
    """What was written before an error in the same transaction is not there afterwards."""
    lane = Lane(store)
    if not isinstance(store, DriverStore):
        return
    await lane.turn("a")

    def purge_and_fail(rows: Rows) -> None:
        rows.purge("c1", "2026-01-01T00:00:00.000Z")
        raise UsageError("fails after it wrote", argument="work")

    await lane.refused(store.driver.write(purge_and_fail, "c1"))


@store_check("c1", "c2")
async def a_purge_leaves_no_row(store: Store) -> None:
    """Behind the tombstone is nothing: no receipt, seed, entry, draft or message; other conversations keep theirs."""
    if not isinstance(store, DriverStore):
        return
    names = Names(receipts={"a-key"}, seeds={"s"}, messages={"a-in", "a-out", "s1", "sum"}, runs={"a"}, drafts={"a"})
    for conversation_id in ("c1", "c2"):
        lane = Lane(store, conversation_id)
        await lane.accept("a")
        await lane.start("a")
        await lane.say("a", "so far")
        seeds = [lane.message("s1")]
        applied(await store.seed_conversation(conversation_id=conversation_id, seed_key="s", inputs=seeds))
        applied(await lane.try_compact("s1"))
        if conversation_id == "c1":
            applied(await lane.try_end("a"))
    expect(await store.purge_conversation("c1") == Purged(), "it is purged")
    for conversation_id, left in (("c1", False), ("c2", True)):
        view = await store.driver.read(methodcaller("view", conversation_id, names))
        entries = await store.driver.read(methodcaller("entries", conversation_id, 1, 100, 100))
        found = (
            view.receipts,
            view.seeds,
            view.messages,
            view.active or view.ended,
            any(view.drafts.values()),
            entries,
        )
        expect(all(map(bool, found)) == left and any(map(bool, found)) == left, f"{conversation_id} holds {found!r}")


@store_check()
async def a_message_says_when_it_was_changed(store: Store) -> None:
    """A stored message carries the version that last changed it: the one at which its place became final, too."""
    lane = Lane(store)
    await lane.accept("a", "b")
    await lane.start("a")
    page = await store.read_messages("c1")
    same([(item.message_id, item.version) for item in page.items], [("b-in", 2), ("a-in", 3)], "versions")


ARGUMENT_CHECKS: tuple[StoreCheck, ...] = (
    every_field_of_a_command_is_of_its_kind,
    a_patch_holds_parts,
    every_argument_is_of_its_kind,
    a_number_may_be_beyond_every_row,
    a_cursor_is_one_of_its_list,
    a_transaction_that_fails_leaves_nothing,
    a_purge_leaves_no_row,
    a_message_says_when_it_was_changed,
)
