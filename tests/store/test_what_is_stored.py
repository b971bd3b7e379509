"""What a store takes in, everything that reads records gives back equal; the rest is refused at once, by its place."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from runlane.canonical import canonical_record_json
from runlane.errors import CanonicalJsonError, InvalidValueError
from runlane.history import History
from runlane.records import (
    Message,
    ProviderEnvelope,
    ProviderPart,
    Run,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    stored_json,
)
from runlane.store import AcceptInput, AppendEvent, MemoryStore, ReadEvents, Store, encode_archive
from runlane.store._bodies import encode_json
from runlane.store.sqlite import SqliteStore
from runlane.testing._store_kit import START


def nested(containers: int, inner: object = 1, *, as_objects: bool = False) -> object:
    """A value with so many containers around it."""
    for _ in range(containers):
        inner = {"a": inner} if as_objects else [inner]
    return inner


def long_integer(digits: int, sign: int) -> int:
    """An integer of so many digits; drawn as their number, for it has no `repr` itself."""
    size: int = 10 ** (digits - 1)
    return sign * size


FACTS: dict[str, Any] = {"conversation_id": "c", "created_at": START, "updated_at": START}
HELLO = TextPart(text="hello")
ODD_TEXTS = st.sampled_from(["", "\x00", "\ud800", "a\udfff", "\ufffd\ufffd\ufffd", "\U0010ffff", '"\\', "\u2028", "é"])
ODD_NUMBERS = st.sampled_from(
    [
        -0.0,
        5e-324,
        1e20,
        1e21,
        1.7976931348623157e308,
        float("inf"),
        float("nan"),
        2**53,
        -(2**63),
        2**64,
    ]
)
LONG_NUMBERS = st.builds(long_integer, st.sampled_from([4299, 4300, 4301, 100_001]), st.sampled_from([1, -1]))
ODD = st.recursive(
    st.none()
    | st.booleans()
    | ODD_TEXTS
    | ODD_NUMBERS
    | LONG_NUMBERS
    | st.floats()
    | st.integers()
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(ODD_TEXTS | st.text(max_size=3), inner, max_size=3)
        | st.builds(nested, st.integers(0, 230), inner, as_objects=st.booleans())
    ),
    max_leaves=5,
)


def as_read(value: object) -> object:
    """What comes back: a double beyond 2**53 as the integer that its shortest digits are, which is the same double."""
    if isinstance(value, float) and 2.0**53 < abs(value) < 10.0**21:
        read = int(canonical_record_json(value))
        assert float(read) == value
        return read
    if isinstance(value, list):
        return [as_read(item) for item in value]
    if isinstance(value, dict):
        return {key: as_read(item) for key, item in value.items()}
    return value


def told(value: object) -> list[Message]:
    """Messages that hold a value wherever a record takes JSON; none if the records themselves refuse it."""
    try:
        parts = (
            ToolCallPart(call_id="x", tool_name="t", arguments="{}", input=value),  # type: ignore[arg-type]
            ToolResultPart(call_id="x", tool_name="t", outcome="success", output=value),  # type: ignore[arg-type]
        )
        envelope = ProviderEnvelope(provider="anthropic", data={"value": value})  # type: ignore[dict-item]
        opaque = ProviderPart(envelope=envelope)
        said: list[dict[str, object]] = [
            {"parts": parts},
            {"parts": (opaque,)},
            {"parts": (), "metadata": {"value": value}},
        ]
        facts = {**FACTS, "id": "m", "role": "user", "status": "committed"}
        return [Message.model_validate({**facts, **fields}) for fields in said]
    except ValidationError:
        return []


@settings(deadline=None)
@given(ODD)
@example({"\ud800": 1})
@example({"\ufffd\ufffd\ufffd": 1})
@example(-(10**4299))
@example(nested(189))
@example(nested(190))
@example(nested(190, as_objects=True))
def test_a_record_that_can_be_written_can_be_read(value: object) -> None:
    """Its class and the history read back what was written; what they could not read is refused with its place."""
    for message, read in zip(told(value), told(as_read(value)), strict=True):
        try:
            body = stored_json(message)
        except CanonicalJsonError as error:
            assert error.path.startswith(("/parts/0/", "/parts/1/", "/metadata"))  # noqa: PT017 - a place, or none
            continue
        assert Message.model_validate_json(body) == read
        history = History([body])
        assert history.record(0) == body


@settings(deadline=None)
@given(ODD)
def test_a_history_gives_a_model_what_was_written(value: object) -> None:
    """The objects of a projection are made of the stored text, and hold the same values."""
    asked = Message.model_validate({**FACTS, "id": "u", "role": "user", "status": "committed", "parts": (HELLO,)})
    for message in told(value)[:1]:
        answer = message.model_copy(update={"role": "assistant", "status": "completed"})
        try:
            history = History([stored_json(asked), stored_json(answer)])
        except CanonicalJsonError:
            continue
        shown = [item for said in history.project().messages for item in said.items]
        assert shown == [HELLO, *told(as_read(value))[0].parts]


def _run(request: object) -> Run:
    facts = {"id": "r", "conversation_id": "c", "input_message_ids": ("m",), "assistant_message_id": "a"}
    times = {"created_at": START, "updated_at": START}
    return Run.model_validate({**facts, "state": "queued", "revision": 0, "request": request, **times})


async def _kept(store: Store, value: Any, message: Message, read: Message) -> str | None:  # noqa: ANN401 - whatever was drawn
    """Put a value wherever a store takes one, and read it back; return what refused it, if something did."""
    accept = AcceptInput(command_id="1", at=START, idempotency_key="k", input=message, run=_run({"value": value}))
    event = AppendEvent(command_id="2", at=START, kind="provider/payload", payload={"value": value})
    try:
        await store.apply("c", [accept, event])
    except InvalidValueError as error:
        assert await store.load_run("c", "r") is None
        return error.argument
    snapshot = await store.load_snapshot("c")
    assert snapshot.messages == (read,)
    assert stored_json(snapshot.runs[0].request) == stored_json({"value": value})
    [stored] = (await store.read_messages("c")).items
    assert Message.model_validate_json(stored.body) == read
    events = await store.read_events(ReadEvents(conversation_id="c"))
    [payload] = [item.payload for item in events.items if item.kind == "provider/payload"]
    assert stored_json(payload) == stored_json({"value": value})
    await _carried(store)
    return None


async def _carried(store: Store) -> None:
    """Whatever was kept leaves in an archive and comes into another store as it was."""
    data = encode_archive(await store.export_conversation("c"))
    async with MemoryStore() as other:
        await other.import_conversation(data)
        assert encode_archive(await other.export_conversation("c")) == data
        # Record by record: a snapshot lies around what is as deep as a record may be.
        here, there = await store.load_snapshot("c"), await other.load_snapshot("c")
        for name in ("messages", "runs"):
            assert list(map(stored_json, getattr(there, name))) == list(map(stored_json, getattr(here, name)))


@settings(deadline=None, max_examples=30)
@given(ODD)
@example(None)
@example({"\ud800": 1})
@example(nested(186))
@example(nested(188))
@example(nested(195))
def test_stores_take_the_same_and_give_it_back(value: object) -> None:
    """In memory and on SQLite a message, a run's request and an event come back as they were, or nothing is kept."""

    async def tried(folder: str) -> list[tuple[str | None, str | None]]:
        found: list[tuple[str | None, str | None]] = []
        for message, read in list(zip(told(value), told(as_read(value)), strict=True))[1:]:
            async with MemoryStore() as memory, SqliteStore(Path(folder) / f"{len(found)}.db") as sqlite:
                found.append((await _kept(memory, value, message, read), await _kept(sqlite, value, message, read)))
        return found

    with tempfile.TemporaryDirectory() as folder:
        for in_memory, on_sqlite in anyio.run(tried, folder):
            assert in_memory == on_sqlite
            assert value is not None or in_memory is None


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(10**4300, id="a long integer"),
        pytest.param(nested(200), id="deep"),
        pytest.param({"\ud800": 1}, id="a broken key"),
        pytest.param("\ud800", id="broken text"),
        pytest.param(float("nan"), id="no number"),
    ],
)
def test_a_refusal_names_the_field(value: object) -> None:
    """The path leads from the argument to the value that cannot be read back."""
    [message, *_] = told(value)
    message = message.model_copy(update={"parts": message.parts[1:]})
    with pytest.raises(InvalidValueError) as raised:
        encode_json(message, argument="input")
    assert str(raised.value.argument).startswith("input.parts.0.output")
