"""Checks of admission: keys, identities, coalescing, order of the queue."""

from __future__ import annotations

from datetime import timedelta

from runlane.errors import InvalidValueError
from runlane.records import JsonObject, Message, Run, TextPart, ToolApprovalResponsePart
from runlane.store import AcceptInput, Store
from runlane.testing._store_kit import (
    START,
    Lane,
    StoreCheck,
    applied,
    conflict,
    duplicate,
    expect,
    not_found,
    refused,
    same,
    store_check,
)

__all__ = ["ADMISSION_CHECKS"]


@store_check()
async def an_input_is_committed_with_its_run(store: Store) -> None:
    """An accepted input is readable, its run is queued, and version and ledger went up by one."""
    lane = Lane(store)
    same(await lane.version(), 0, "the version of an unknown conversation")
    outcome = applied(await lane.try_accept("a", "first words"))
    same((outcome.delta.version, outcome.delta.seq), (1, 1), "version and sequence")
    same([run.id for run in outcome.delta.runs], ["a"], "changed runs")
    same([message.id for message in outcome.delta.messages], ["a-in"], "changed messages")
    run = (await lane.view("a")).run
    same((run.state, run.revision, run.owner_id, run.fencing_token), ("queued", 0, None, None), "the new run")
    same(await lane.message_ids(), ["a-in"], "messages")
    same([item.run.id for item in (await store.scan_recoverable()).items], ["a"], "recoverable runs")


@store_check()
async def a_known_key_answers_with_its_first_admission(store: Store) -> None:
    """A repeated key gives the first input and run before any other check, discards the proposal, changes nothing."""
    lane = Lane(store)
    applied(await lane.try_accept("a", "first words"))
    proposal = lane.proposal("b").model_copy(update={"state": "running", "revision": 7})
    again = await lane.unchanged(lane.try_accept("b", "other words", key="a-key", run=proposal, expected_version=99))
    answer = duplicate(again)
    same(answer.receipt.input.id, "a-in", "the receipt's input")
    same(answer.receipt.input.text, "first words", "the first input's text")
    same((answer.receipt.run_id, answer.receipt.assistant_message_id), ("a", "a-out"), "the receipt's run")
    same((answer.run.id, answer.assistant, answer.version), ("a", None, 1), "the run, its answer, the version")
    expect(not answer.input_matches, "another text must not match")
    same(await store.load_run("c1", "b"), None, "the discarded proposal")
    repeated = duplicate(await lane.try_accept("b", "first words", key="a-key"))
    expect(repeated.input_matches, "the same text under other ids must match")


@store_check("x", "x:y", "x'y")
async def a_key_belongs_to_one_conversation(store: Store) -> None:
    """The same key in several conversations gives several runs, whatever separators the ids hold."""
    for conversation_id, key in (("x", "y:k"), ("x:y", "k"), ("x'y", "k"), ("x", "k")):
        lane = Lane(store, conversation_id)
        name = f"run-{key}"
        applied(await lane.try_accept(name, key=key))
    same(len(await store.list_active_runs("x")), 2, "runs of x")
    same(len(await store.list_active_runs("x:y")), 1, "runs of x:y")


@store_check()
async def a_key_outlives_its_turn_and_its_compaction(store: Store) -> None:
    """A key still answers with original input and answer once its run ended and both were compacted."""
    lane = Lane(store)
    await lane.turn("a")
    answer = (await lane.view("a")).assistant
    applied(await lane.try_compact("a-in", "a-out"))
    found = duplicate(await lane.try_accept("b", key="a-key"))
    same((found.receipt.input.id, found.assistant), ("a-in", answer), "input and answer")
    same((await lane.view("a")).assistant, answer, "the answer of the ended run")


@store_check()
async def an_identity_is_used_once(store: Store) -> None:
    """An input, run or answer id that is taken is misuse, also after compaction, and leaves nothing behind."""
    lane = Lane(store)
    await lane.turn("a")
    await lane.accept("q")
    await lane.refused(lane.try_accept("a", key="other"))
    fresh = lane.proposal("b")
    for field, taken in (("id", "a"), ("assistant_message_id", "a-out"), ("assistant_message_id", "q-out")):
        await lane.refused(lane.try_accept("b", run=fresh.model_copy(update={field: taken})))
    reserved = lane.message("q-out")
    attempt = store.accept_input(
        idempotency_key="k", input=reserved, run=fresh.model_copy(update={"input_message_ids": ("q-out",)})
    )
    await lane.refused(attempt)
    joining = store.accept_input(
        idempotency_key="k", input=reserved, run=lane.proposal("unused"), coalesce_into_run_id="q"
    )
    await lane.refused(joining)
    applied(await lane.try_compact("a-in", "a-out"))
    await lane.refused(lane.try_accept("a", key="other"))


@store_check()
async def an_expected_version_must_be_current(store: Store) -> None:
    """An input that expects another version conflicts with the conversation's version and leaves nothing behind."""
    lane = Lane(store)
    conflict(await lane.unchanged(lane.try_accept("a", expected_version=1)), 0)
    applied(await lane.try_accept("a", expected_version=0))
    conflict(await lane.unchanged(lane.try_accept("b", expected_version=0)), 1)
    applied(await lane.try_accept("b", expected_version=1))


def _bent(run: Run) -> list[Run]:
    changes: list[dict[str, object]] = [
        {"state": "running"},
        {"revision": 1},
        {"owner_id": "o"},
        {"fencing_token": 1},
        {"execution_sequence": 1},
        {"state": "completed", "terminal_reason": "success"},
        {"state": "completed", "terminal_reason": "policy_stop", "terminal_policy_name": "p"},
        {"input_message_ids": ("b-in", "other")},
        {"input_message_ids": ("other",)},
        {"assistant_message_id": "b-in"},
        {"conversation_id": "elsewhere"},
    ]
    return [run.model_copy(update=change) for change in changes]


@store_check()
async def a_proposal_is_queued_and_lists_its_own_input(store: Store) -> None:
    """Each deviation of a proposed run, and each input that is no committed unowned input, is refused whole."""
    lane = Lane(store)
    await lane.accept("a")
    for run in _bent(lane.proposal("b")):
        await lane.refused(lane.try_accept("b", run=run))
    inputs: list[Message] = [
        lane.message("b-in", role="assistant"),
        lane.message("b-in", status="completed"),
        lane.message("b-in", run_id="b"),
        lane.message("b-in").model_copy(update={"conversation_id": "elsewhere"}),
    ]
    for message in inputs:
        attempt = store.apply("c1", [await _accepting(lane, message)])
        await lane.refused(attempt)


async def _accepting(lane: Lane, message: Message) -> AcceptInput:
    return AcceptInput(
        command_id=lane.ids.new("command"),
        at=lane.now(),
        idempotency_key=lane.ids.new("key"),
        input=message,
        run=lane.proposal("b"),
    )


@store_check()
async def a_tool_input_is_accepted_and_repeated(store: Store) -> None:
    """An input of role `tool` is accepted, and its repetition is a valid duplicate."""
    lane = Lane(store)
    part = ToolApprovalResponsePart(approval_id="approval-1", approved=True)
    message = lane.message("b-in", role="tool", parts=(part,))
    applied(await store.accept_input(idempotency_key="k", input=message, run=lane.proposal("b")))
    outcome = await store.accept_input(idempotency_key="k", input=message, run=lane.proposal("b"))
    same(duplicate(outcome).receipt.input.parts, (part,), "the repeated input")


@store_check()
async def an_input_joins_a_queued_run(store: Store) -> None:
    """A coalesced input is appended to its run, which gains a revision; its own proposed ids never appear."""
    lane = Lane(store)
    await lane.accept("a", "b")
    outcome = applied(await lane.try_accept("c", into="b"))
    run = (await lane.view("b")).run
    same((run.input_message_ids, run.revision), (("b-in", "c-in"), 1), "the joined run")
    same(outcome.delta.runs, (run,), "the delta")
    same(await store.load_run("c1", "c"), None, "the run that was proposed")
    await lane.accept("d")
    same(await lane.message_ids(), ["a-in", "b-in", "c-in", "d-in"], "messages")
    shared = duplicate(await lane.try_accept("x", key="c-key"))
    same((shared.run.id, shared.receipt.run_id, shared.receipt.input.id), ("b", "b", "c-in"), "the shared run")


@store_check()
async def an_admission_is_read_back_as_it_was(store: Store) -> None:
    """The ledger gives the run as each admission left it: without what came later, with the time of that admission."""
    lane = Lane(store)
    at = lane.now()
    left: list[JsonObject] = []
    for number, into in enumerate([None, "a", "a"]):
        command = AcceptInput(
            command_id=f"command-{number}",
            at=at + timedelta(seconds=number),
            idempotency_key=f"key-{number}",
            input=lane.message(f"in-{number}"),
            run=lane.proposal(f"a{number}" if into else "a", created_at=at).model_copy(
                update={"input_message_ids": (f"in-{number}",)}
            ),
            coalesce_into_run_id=into,
        )
        (outcome,) = await store.apply(lane.id, [command])
        left.append(applied(outcome).delta.runs[0].to_json())
    await lane.start("a")
    same([payload["run"] for payload in await lane.ledger() if payload["type"] == "accept"], left, "the runs then")


@store_check()
async def joining_can_lose_a_race(store: Store) -> None:
    """Joining an unknown run finds nothing; joining one that is no longer queued conflicts with its revision."""
    lane = Lane(store)
    not_found(await lane.unchanged(lane.try_accept("b", into="a")))
    await lane.accept("a")
    await lane.start("a")
    conflict(await lane.unchanged(lane.try_accept("b", into="a")), 1)
    applied(await lane.try_end("a"))
    conflict(await lane.unchanged(lane.try_accept("b", into="a")), 2)


@store_check()
async def the_queue_is_fifo_behind_the_urgent(store: Store) -> None:
    """Only the first of the queue can be acquired: urgent runs before ordinary ones, each in order of arrival."""
    lane = Lane(store)
    await lane.accept("a")
    await lane.start("a")
    await lane.accept("b")
    applied(await lane.try_accept("c", run=lane.proposal("c", priority="interrupt-next")))
    applied(await lane.try_accept("d", run=lane.proposal("d", priority="interrupt-next")))
    same([run.id for run in await store.list_active_runs("c1")], ["a", "c", "d", "b"], "the order")
    same(await lane.message_ids(), ["a-in", "c-in", "d-in", "b-in"], "messages")
    for name in ("c", "b"):
        conflict(await lane.unchanged(lane.try_acquire(name)), 0)
    applied(await lane.try_end("a"))
    for name in ("b", "d"):
        conflict(await lane.unchanged(lane.try_acquire(name)), 0)
    for name in ("c", "d", "b"):
        await lane.start(name)
        applied(await lane.try_end(name))
    wanted = ["a-in", "a-out", "c-in", "c-out", "d-in", "d-out", "b-in", "b-out"]
    same(await lane.message_ids(), wanted, "messages at the end")


@store_check()
async def equal_times_fall_back_to_arrival(store: Store) -> None:
    """Of runs created at the same instant the one that arrived first is first; an earlier instant goes before."""
    lane = Lane(store)
    for name in ("z", "a"):
        applied(await lane.try_accept(name, run=lane.proposal(name, created_at=START)))
    same([run.id for run in await store.list_active_runs("c1")], ["z", "a"], "equal times")
    early = lane.proposal("m", created_at=START - timedelta(seconds=1))
    applied(await lane.try_accept("m", run=early))
    same([run.id for run in await store.list_active_runs("c1")], ["m", "z", "a"], "an earlier time")


@store_check("x') OR 1=1 --", "x", 'quote"%_\n\x00é😀')
async def ids_are_values(store: Store) -> None:
    """Ids and keys with quotes, wildcards, NUL or SQL are ordinary values and reach nobody else's rows."""
    for conversation_id in ("x", "x') OR 1=1 --", 'quote"%_\n\x00é😀'):
        lane = Lane(store, conversation_id)
        applied(await lane.try_accept("a", key="'; DROP TABLE run; --"))
        same([run.conversation_id for run in await store.list_active_runs(conversation_id)], [conversation_id], "runs")
        same(await store.load_run(conversation_id, "' OR '1'='1"), None, "a run by a hostile id")


@store_check()
async def any_text_round_trips(store: Store) -> None:
    """NUL, quotes, astral characters and integers of any size come back as they were given."""
    lane = Lane(store)
    text = 'nul \x00 quote " back \\ line \u2028 astral 😀'
    request: JsonObject = {"id": 2512292042121000001, "nested": [None, True, 1.5, {"text": text}]}
    message = lane.message("a-in", parts=(TextPart(text=text),)).model_copy(update={"metadata": {"big": 10**30}})
    run = lane.proposal("a", request=request)
    applied(await store.accept_input(idempotency_key="k\x00", input=message, run=run))
    snapshot = await store.load_snapshot("c1")
    same(snapshot.messages, (message,), "the message")
    same(snapshot.runs[0].request, request, "the run's request")


@store_check()
async def a_lone_surrogate_is_refused(store: Store) -> None:
    """A text that is not valid Unicode is refused by name before anything is written."""
    lane = Lane(store)
    await lane.refused(lane.try_accept("a", key="\ud835"), InvalidValueError)
    await refused(store.load_head("\ud835"), InvalidValueError)
    applied(await lane.try_accept("a"))


@store_check()
async def what_was_given_is_ones_own(store: Store) -> None:
    """Whoever changes what a store was given, or gave, changes no record of it."""
    lane = Lane(store)
    request: JsonObject = {"list": [1]}
    accepted = applied(await lane.try_accept("a", run=lane.proposal("a", request=request)))
    request["list"] = 2
    started = applied(await lane.try_acquire("a"))
    given = [*accepted.delta.runs, *started.delta.runs, *await store.list_active_runs("c1"), (await lane.view("a")).run]
    given += [item.run for item in (await store.scan_recoverable()).items]
    given += (await store.load_snapshot("c1")).runs
    for run in given:
        if run.request is not None:
            run.request["list"] = 3
    lane.hold("a", started)
    applied(await lane.try_end("a"))
    same((await lane.view("a")).run.request, {"list": [1]}, "the run's request")


ADMISSION_CHECKS: tuple[StoreCheck, ...] = (
    an_input_is_committed_with_its_run,
    a_known_key_answers_with_its_first_admission,
    a_key_belongs_to_one_conversation,
    a_key_outlives_its_turn_and_its_compaction,
    an_identity_is_used_once,
    an_expected_version_must_be_current,
    a_proposal_is_queued_and_lists_its_own_input,
    a_tool_input_is_accepted_and_repeated,
    an_input_joins_a_queued_run,
    an_admission_is_read_back_as_it_was,
    joining_can_lose_a_race,
    the_queue_is_fifo_behind_the_urgent,
    equal_times_fall_back_to_arrival,
    ids_are_values,
    what_was_given_is_ones_own,
    any_text_round_trips,
    a_lone_surrogate_is_refused,
)
