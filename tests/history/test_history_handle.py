"""The handle: what it takes, what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from runlane.canonical import canonical_record_json
from runlane.errors import InvalidValueError, RecordCorruptError, RecordTooNewError, UsageError
from runlane.history import RUNTIME_EVIDENCE, History, ProjectionOptions, project_history_detailed, resolve_files
from runlane.models import FileItem, ModelImage
from runlane.records import FilePart, Message, Part
from tests.history.records import assistant, call, histories, message, request, result, stored, text, user

REFUSALS = (RecordCorruptError, RecordTooNewError, InvalidValueError)


def state(history: History) -> object:
    """Everything a handle shows."""
    return history.revision, history.message_ids, [history.record(i) for i in range(len(history))]


@given(
    st.binary(max_size=60)
    | st.text(max_size=60).map(str.encode)
    | st.recursive(st.none() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_any_bytes_end_in_a_typed_error(noise: bytes) -> None:
    """Bytes that are no record are refused by type, and the handle is as it was."""
    history = History([stored(user("m"))])
    before = state(history)
    for change in (
        history.append,
        history.replace,
        history.put,
        lambda record: history.extend([stored(user("n")), record]),
    ):
        with pytest.raises(REFUSALS):
            change(noise)
        assert state(history) == before


@given(histories(3).filter(bool), st.data())
def test_a_record_with_a_fault_is_refused_as_the_records_refuse_it(records: list[Message], data: st.DataObject) -> None:
    """Whatever one change makes of a stored record: what the handle takes, the records' own validation takes."""
    document = json.loads(stored(records[0]))
    places = list(_places(document))
    parent, key = data.draw(st.sampled_from(places))
    junk: st.SearchStrategy[object] = st.sampled_from(
        [None, "", "x", 0, -1, 2, True, [], {}, {"provider": ""}, "é" * 600]
    )
    action = data.draw(st.sampled_from(["drop", "put", "add"]))
    if action == "drop":
        del parent[key]
    elif action == "put":
        parent[key] = data.draw(junk)
    elif isinstance(parent, dict):
        parent["more"] = 1
    changed = json.dumps(document, ensure_ascii=data.draw(st.booleans())).encode()
    if _takes(History().append, changed):
        assert _takes(Message.model_validate_json, changed)


def _places(value: object) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def _takes(read: Callable[[bytes], object], record: bytes) -> bool:
    try:
        read(record)
    except (*REFUSALS, ValidationError):
        return False
    return True


@given(histories(4))
def test_every_way_to_write_a_record_is_taken(records: list[Message]) -> None:
    """Key order, white space and escapes make no difference to what is projected."""
    plain = History(map(stored, records)).project()
    spaced = [json.dumps(json.loads(stored(record)), indent=1, sort_keys=True).encode() for record in records]
    canonical = [canonical_record_json(json.loads(stored(record))) for record in records]
    for other in (spaced, canonical):
        again = History(other).project()
        assert (list(again.messages), list(again.decisions)) == (list(plain.messages), list(plain.decisions))


def test_a_record_of_a_later_release_says_so() -> None:
    """A newer schema version is told apart from damage, whatever else is in the record."""
    newer = json.loads(stored(user("m"))) | {"schema_version": 2, "colour": "blue"}
    with pytest.raises(RecordTooNewError):
        History().append(json.dumps(newer).encode())
    with pytest.raises(RecordCorruptError, match="byte"):
        History().append(b'{"schema_version": 2')


def test_extending_is_all_or_none() -> None:
    """A fault in the last of many records takes the others back."""
    history = History([stored(user("1"))])
    before = state(history)
    with pytest.raises(InvalidValueError, match="already there"):
        history.extend([stored(user("2")), stored(user("3")), stored(user("2"))])
    assert state(history) == before
    assert history.append(stored(user("2"))) == 1


def test_records_are_found_replaced_and_removed_by_their_ids() -> None:
    """Message ids are the names of records in a handle."""
    history = History([stored(user(f"m{n}")) for n in range(30)])
    assert "m7" in history
    assert history.index("m29") == 29
    assert history.replace(stored(user("m7", text("newer")))) == 7
    assert history.put(stored(user("m30"))) == 30
    assert history.put(stored(user("m30", text("newer")))) == 30
    history.remove(["m0", "m8"])
    assert (len(history), history.index("m7"), history.index("m9"), history.index("m8")) == (29, 6, 7, None)
    history.insert(0, stored(message("s", "summary", text("before"))))
    assert history.message_ids[:2] == ("s", "m1")
    for change in (lambda: history.remove(["m1", "gone"]), lambda: history.replace(stored(user("gone")))):
        before = state(history)
        with pytest.raises(InvalidValueError):
            change()
        assert state(history) == before
    with pytest.raises(UsageError):
        history.append("not bytes")  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        history.record(99)


def test_an_old_view_is_never_wrong() -> None:
    """A projection read after a record was replaced says so instead of answering from other records."""
    history = History([stored(user("1", text("old")))])
    read, unread, selected = history.project(), history.project(), history.select(100)
    messages = tuple(read.messages)
    history.append(stored(user("2")))
    assert [said.items for said in unread.messages] == [said.items for said in messages]
    unread, selected = history.project(), history.select(100)
    history.replace(stored(user("1", text("new"))))
    assert tuple(read.messages) == messages
    for reading in (lambda: list(unread.messages), lambda: list(unread.decisions), lambda: selected.kept):
        with pytest.raises(UsageError, match="since"):
            reading()
    with pytest.raises(UsageError, match="select again"):
        history.project(selection=selected)


def test_a_growing_draft_costs_no_memory() -> None:
    """Replacing the newest record over and over leaves no holes behind."""
    history = History([stored(user(f"m{n}")) for n in range(10)])
    for length in range(2_000):
        history.put(stored(assistant("draft", text("word " * (length % 200)), status="streaming", run_id="r")))
    assert history.held_bytes < 64_000


def test_a_handle_holds_little_more_than_its_records() -> None:
    """Twenty thousand projected and counted records are held in at most 1.6 times their bytes."""
    parts: list[Part] = [text("x" * 300), call("a"), result("a"), text("done")]
    records = [
        stored(assistant(f"m{n:08}", *parts, run_id=f"r{n:08}") if n % 2 else user(f"m{n:08}", text("y" * 150)))
        for n in range(20_000)
    ]
    history = History(records)
    history.project()
    history.select(10_000)
    assert history.stored_bytes == sum(map(len, records))
    assert history.held_bytes <= 1.6 * history.stored_bytes


def test_hostile_sizes_stay_cheap() -> None:
    """Many calls, deep arguments and long numbers end in an answer or a refusal, soon."""
    many = 20_000
    calls = [call(f"c{n}") for n in range(many)]
    open_round = assistant(
        "1", *calls, *(result(f"c{n}") for n in range(0, many, 2)), text("cut"), status="interrupted"
    )
    projection = project_history_detailed([user("go"), open_round], ProjectionOptions(evidence_policy=RUNTIME_EVIDENCE))
    assert sum(len(said.items) for said in projection.messages if said.role == "tool") == many
    asked: list[Part] = [*calls, *(request(f"p{n}", f"c{n}") for n in range(many))]
    waiting = assistant("1", *asked)
    assert project_history_detailed([user("go"), waiting]).decisions[1].action == "projected"
    head = stored(user("m"))[:-1]
    assert len(History([head + b',"metadata":{"a":' + b"[" * 500 + b"]" * 500 + b"}}"])) == 1
    for bad in (b"[" * 100_000, b"[" * 600 + b"]" * 600, b"1" * 5_000):
        with pytest.raises(RecordCorruptError):
            History().append(head + b',"metadata":{"a":' + bad + b"}}")


def test_threads_may_use_handles_side_by_side() -> None:
    """Handles of several threads, their work done without the interpreter, do not disturb each other."""
    records = [stored(user(f"m{n}", text("word " * 50))) for n in range(2_000)]
    expected = tuple(History(records).project().messages)
    wrong: list[object] = []

    def work() -> None:
        for _ in range(5):
            history = History(records)
            if tuple(history.project().messages) != expected:
                wrong.append(history)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.anyio
async def test_files_are_fetched_before_the_projection() -> None:
    """Each file that a user sent is asked for once, with its record; an image's bytes become an image."""
    image = FilePart(media_type="image/png", reference="ref-1")
    report = FilePart(media_type="application/pdf", reference="ref-2", filename="r.pdf")
    records = [user("m", text("see"), image, report), assistant("a", image), user("n", report)]
    history = History(map(stored, records))
    asked: list[tuple[str, str]] = []

    async def resolver(file: FilePart, record: Message) -> bytes | None:
        asked.append((record.id, file.reference))
        return None if record.id == "n" else b"data"

    found = await resolve_files(history, resolver)
    assert asked == [("m", "ref-1"), ("m", "ref-2"), ("n", "ref-2")]
    assert found == await resolve_files(records, resolver)
    assert found[("m", 1)] == ModelImage(media_type="image/png", data=b"data")
    assert found[("m", 2)] == FileItem(media_type="application/pdf", data=b"data", filename="r.pdf")
    projection = history.project(files=found)
    assert projection.messages[0].items[1:] == (found[("m", 1)], found[("m", 2)])
    assert projection.decisions[2].reason == "empty"
    body = projection.messages.openai_chat_body(b"[", b"]", pieces={("m", 1): b'{"one":1}', ("m", 2): b'{"two":2}'})
    assert json.loads(body)[0]["content"] == [{"type": "text", "text": "see"}, {"one": 1}, {"two": 2}]
    with pytest.raises(UsageError, match="piece"):
        projection.messages.openai_chat_body(b"[", b"]")
    with pytest.raises(UsageError, match="resolver"):
        await resolve_files(records, lambda _file, _record: 7)  # type: ignore[arg-type, return-value]


def test_a_turn_may_come_to_begin_otherwise() -> None:
    """A user record replaced by an answer no longer starts the chronology over, though it once did."""
    records = [user("1"), user("2"), user("3")]
    history = History(map(stored, records))
    history.project()
    records[1] = assistant("2", call("a"), call("b"), result("a"), text("cut"))
    history.replace(stored(records[1]))
    assert list(history.project().decisions) == list(project_history_detailed(records).decisions)
