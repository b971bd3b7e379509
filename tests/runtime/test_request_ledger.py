"""What was asked of a provider can be worked out again from the ledger and the stored records."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from runlane.canonical import canonical_record_json
from runlane.errors import ProviderStreamCutError
from runlane.models import (
    AnyModelMessage,
    FileItem,
    FinishReport,
    FunctionCallDelta,
    ModelImage,
    ModelMessage,
    ModelToolResultMessage,
    ModelUsage,
    ResolvedModel,
    ResponseInfo,
    RetryPolicy,
    TextDelta,
    UsageReport,
)
from runlane.records import Message, ProviderEnvelope, TextPart, ToolResultPart
from runlane.runtime import AgentRuntime, LoopConfig, RuntimeConfig, StepChanges, StepPreparation
from runlane.runtime._record_chain import START, RecordChain, RecordRange, link, stored_digest
from runlane.runtime._request_ledger import ProviderCall, RequestLedger, instructions_digest, message_digest
from runlane.store import AcquireRun, AppendEvent, DriverStore, MemoryStore, ReadEvents
from runlane.testing import Fault, FaultyStore, Hold, ScriptedCall, ScriptedModel, ScriptedStep, StoreCall
from runlane.tools import tool
from tests.runtime.compacting import STORES, opened

on_every_store = pytest.mark.parametrize("kind", STORES)
NOW = datetime(2026, 1, 2, tzinfo=UTC)


@tool
def weather(city: str) -> str:
    """Say what the weather is."""
    return f"rain in {city}"


async def entries(store: DriverStore, kind: str) -> list[dict[str, Any]]:
    """Return the payloads of one kind."""
    page = await store.read_events(ReadEvents(conversation_id="c", limit=10_000))
    return [dict(event.payload) for event in page.items if event.kind == kind]


async def chained(store: DriverStore, first: str, last: str) -> str:
    """Work a chain out again from the bodies a reader gets, from the first to the last id."""
    page = await store.read_messages("c", limit=1000)
    bodies = {item.message_id: item.body for item in reversed(page.items)}
    ids = list(bodies)
    chain = bytes(32)
    for message_id in ids[ids.index(first) : ids.index(last) + 1]:
        chain = hashlib.sha256(chain + hashlib.sha256(bodies[message_id]).digest()).digest()
    return chain.hex()


def answered(text: str, response: str, tokens: int) -> list[ScriptedStep]:
    """Return a reply with an identity and usage."""
    return [
        ResponseInfo(response_id=response, model="m-2026", upstream_provider="Fireworks"),
        TextDelta(text),
        UsageReport(ModelUsage(input_tokens=tokens, output_tokens=1)),
        FinishReport("stop"),
    ]


# --- in a run -----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@on_every_store
async def test_each_request_names_its_records_and_hashes_what_was_said(kind: str, tmp_path: Path) -> None:
    """The id range grows by a turn; its chain can be worked out again from the stored rows; no list is kept."""
    model = ScriptedModel(answered("one", "r1", 10), answered("two", "r2", 20), answered("three", "r3", 30))
    async with opened(kind, tmp_path) as store:
        async with AgentRuntime(store, model=model, instructions="Be brief.") as runtime:
            for number in range(3):
                await runtime.submit("c", f"q{number}").result
        requests, responses = await entries(store, "provider/request"), await entries(store, "provider/response")
        messages = (await store.load_snapshot("c")).messages
        assert [request["records"]["count"] for request in requests] == [1, 3, 5]
        for request in requests:
            records = request["records"]
            assert (records["first_id"], records["count"]) == (messages[0].id, request["records"]["count"])
            assert records["last_id"] == messages[records["count"] - 1].id
            assert records["sha256"] == await chained(store, records["first_id"], records["last_id"])
            assert request["messages_sha256"] == records["sha256"]
            assert request["added"] == 0
            assert request["instructions_sha256"] == hashlib.sha256(b"Be brief.").hexdigest()
            joined = f"{request['instructions_sha256']},{request['messages_sha256']}"
            assert request["body_sha256"] == hashlib.sha256(joined.encode()).hexdigest()
        assert max(len(canonical_record_json(request)) for request in requests) < 1_200
    assert [(r["attempt"], r["step_number"], r["model_id"]) for r in requests] == [(1, 0, "scripted-model")] * 3
    assert [r["response"] for r in responses] == [
        {"id": f"r{number}", "model": "m-2026", "provider": "Fireworks"} for number in (1, 2, 3)
    ]
    assert [r["usage"]["input_tokens"]["value"] for r in responses] == [10, 20, 30]


@pytest.mark.anyio
async def test_a_step_after_a_tool_hashes_what_the_run_added() -> None:
    """The records stay the same; the call and its result are hashed into the same chain."""
    call: list[ScriptedStep] = [
        FunctionCallDelta(0, id="k", name="weather", arguments='{"city":"Oslo"}'),
        FinishReport("tool-calls"),
    ]
    model = ScriptedModel(call, "It rains.")
    async with MemoryStore() as store, AgentRuntime(store, model=model, tools=[weather]) as runtime:
        await runtime.submit("c", "Hi").result
        requests = await entries(store, "provider/request")
    assert [request["step_number"] for request in requests] == [0, 1]
    assert requests[0]["records"] == requests[1]["records"]
    assert [request["added"] for request in requests] == [0, 2]
    chain = bytes.fromhex(requests[1]["records"]["sha256"])
    for message in model.calls[1].messages[-2:]:
        chain = hashlib.sha256(chain + message_digest(message)).digest()
    assert requests[1]["messages_sha256"] == chain.hex()


@pytest.mark.anyio
async def test_what_prepare_step_says_is_what_is_recorded() -> None:
    """Replaced messages stand for no records; a replaced instruction and model carry on."""
    other = ScriptedModel("Other.", model_id="other")

    def prepare(about: StepPreparation[object]) -> StepChanges | None:
        return (
            None
            if about.index
            else StepChanges(model=other, instructions="Instead.", messages=[ModelMessage.user("Instead")])
        )

    config = RuntimeConfig(loop=LoopConfig(prepare_step=prepare))
    async with MemoryStore() as store, AgentRuntime(store, model=ScriptedModel("No."), config=config) as runtime:
        await runtime.submit("c", "Hi").result
        (request,) = await entries(store, "provider/request")
    assert request["records"] == {"count": 0, "sha256": START.hex()}
    assert (request["added"], request["model_id"]) == (1, "other")
    assert request["instructions_sha256"] == hashlib.sha256(b"Instead.").hexdigest()


@pytest.mark.anyio
async def test_every_attempt_has_a_request_and_a_response_of_its_own() -> None:
    """The same body, attempts 1 and 2; the cut one was billed and says so."""
    cut: list[ScriptedStep] = [
        ResponseInfo(response_id="r1"),
        TextDelta("half"),
        UsageReport(ModelUsage(input_tokens=7)),
        ProviderStreamCutError(),
    ]
    config = RuntimeConfig(loop=LoopConfig(retry=RetryPolicy(max_attempts=2, delay=lambda _: 0.0)))
    model = ScriptedModel(cut, answered("whole", "r2", 3))
    async with MemoryStore() as store, AgentRuntime(store, model=model, config=config) as runtime:
        await runtime.submit("c", "Hi").result
        requests, responses = await entries(store, "provider/request"), await entries(store, "provider/response")
    assert [request["attempt"] for request in requests] == [1, 2]
    assert requests[0]["body_sha256"] == requests[1]["body_sha256"]
    told = [(r["attempt"], r["response"]["id"], r["finished"], r["usage"]["input_tokens"]["value"]) for r in responses]
    assert told == [(1, "r1", False, 7), (2, "r2", True, 3)]


@pytest.mark.anyio
async def test_a_call_nothing_came_back_from_leaves_no_response() -> None:
    """There is nothing to say of it."""
    model = ScriptedModel([ProviderStreamCutError()])
    async with MemoryStore() as store, AgentRuntime(store, model=model) as runtime:
        await runtime.submit("c", "Hi").result
        assert len(await entries(store, "provider/request")) == 1
        assert await entries(store, "provider/response") == []


@pytest.mark.anyio
async def test_the_request_is_on_record_before_the_provider_is_called() -> None:
    """In the commit that records the call's start, so a process that dies in the call leaves evidence of it."""
    async with MemoryStore() as inner:
        store = FaultyStore(inner)
        asked: list[int] = []

        def reply(_: ScriptedCall) -> str:
            commands = [command for call in store.applied for command in call.commands]
            asked.append(sum(isinstance(c, AppendEvent) and c.kind == "provider/request" for c in commands))
            return "said"

        async with AgentRuntime(store, model=ScriptedModel(reply)) as runtime:
            await runtime.submit("c", "Hi").result
            await runtime.submit("c", "Hi again").result
    assert asked == [1, 2]


class Seeding(Hold):
    """Instead of standing, puts a message at the head of the conversation, as another process might."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self._store = store

    @override
    async def stand(self) -> None:
        message = Message(
            id="seeded",
            conversation_id="c",
            role="user",
            status="committed",
            parts=(TextPart(text="Seeded"),),
            created_at=NOW,
            updated_at=NOW,
        )
        await self._store.seed_conversation(conversation_id="c", seed_key="s", inputs=[message])


@pytest.mark.anyio
async def test_a_prompt_that_changed_while_it_was_acquired_is_recorded_as_it_is_asked() -> None:
    """Somebody wrote between preparation and acquisition: the request that is made has an entry of its own."""
    async with MemoryStore() as inner:

        def plan(call: StoreCall) -> Fault | None:
            acquires = any(isinstance(command, AcquireRun) for command in call.commands)
            return Fault(hold=Seeding(inner)) if acquires else None

        model = ScriptedModel("said")
        async with AgentRuntime(FaultyStore(inner, plan), model=lambda _: model) as runtime:
            result = await runtime.submit("c", "Hi").result
        requests = await entries(inner, "provider/request")
        last = requests[-1]["records"]
        assert last["sha256"] == await chained(inner, last["first_id"], last["last_id"])
    assert result.reason == "success"
    assert [request["records"]["count"] for request in requests] == [1, 2]
    assert last["first_id"] == "seeded"
    assert [message.text for message in model.calls[0].messages if isinstance(message, ModelMessage)] == [
        "Seeded",
        "Hi",
    ]


# --- the chain ----------------------------------------------------------------------------------------------------

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "append", "remove"]), st.integers(0, 20)), max_size=25
)


@given(operations=OPERATIONS, picks=st.sets(st.integers(0, 24)))
def test_a_chain_is_that_of_what_is_left(operations: list[tuple[str, int]], picks: set[int]) -> None:
    """Whatever was appended and removed: the hash of the records in order, of all or of some."""
    chain, left = RecordChain(), list[str]()
    for number, (kind, place) in enumerate(operations):
        if kind == "append":
            chain.append(f"m{number}", hashlib.sha256(str(number).encode()).digest())
            left.append(f"m{number}")
        elif left:
            gone = left.pop(place % len(left))
            chain.remove([gone, "nobody"])
    kept = sorted(pick for pick in picks if pick < len(left))
    for places in (None, kept):
        found = chain.of(places, messages=3)
        ids = left if places is None else [left[place] for place in places]
        expected = START
        for message_id in ids:
            expected = link(expected, hashlib.sha256(message_id.removeprefix("m").encode()).digest())
        assert (found.records, found.chain, found.messages) == (len(ids), expected, 3)
        assert (found.first_id, found.last_id) == ((ids[0], ids[-1]) if ids else (None, None))


@pytest.mark.anyio
async def test_a_stored_digest_is_that_of_the_stored_bytes() -> None:
    """Of any message, whoever hashes it."""
    message = Message(
        id="m",
        conversation_id="c",
        role="user",
        status="committed",
        parts=(TextPart(text="é😀"),),
        created_at=NOW,
        updated_at=NOW,
    )
    async with MemoryStore() as store:
        await store.seed_conversation(conversation_id="c", seed_key="s", inputs=[message])
        (stored,) = (await store.read_messages("c")).items
        (kept,) = (await store.load_snapshot("c")).messages
    assert stored_digest(kept) == hashlib.sha256(stored.body).digest()


# --- hashes -------------------------------------------------------------------------------------------------------


def test_instructions_are_hashed_as_their_text_or_as_a_list() -> None:
    """One text as it is, several as canonical JSON, none as the empty text."""
    assert instructions_digest([ModelMessage.system("a")]) == hashlib.sha256(b"a").hexdigest()
    both = [ModelMessage.system("a"), ModelMessage.system("b")]
    assert instructions_digest(both) == hashlib.sha256(b'["a","b"]').hexdigest()
    assert instructions_digest([]) == hashlib.sha256(b"").hexdigest()
    marked = ModelMessage.system("a", ProviderEnvelope(provider="anthropic", data={"cache_control": {}}))
    assert len({instructions_digest(each) for each in ([marked], [ModelMessage.system("a")], both)}) == 3


def test_bytes_stand_in_a_message_by_their_hash_and_size() -> None:
    """Other data, another hash; the data itself is never written out."""
    image = ModelMessage.user("look", [ModelImage(media_type="image/png", data=b"a" * 1_000_000)])
    other = ModelMessage.user("look", [ModelImage(media_type="image/png", data=b"b" * 1_000_000)])
    address = ModelMessage.user("look", [ModelImage(media_type="image/png", url="https://x/y.png")])
    file = ModelMessage("user", (FileItem(media_type="text/plain", text="words", filename="a.txt"),))
    assert len({message_digest(message) for message in (image, other, address, file)}) == 4
    assert message_digest(image) == message_digest(
        ModelMessage.user("look", [ModelImage(media_type="image/png", data=b"a" * 1_000_000)])
    )


def test_a_message_no_store_would_take_still_has_a_fingerprint() -> None:
    """A callback may put anything into a prompt; recording it never fails a run."""
    odd = ModelToolResultMessage(
        (ToolResultPart.model_construct(call_id="k", tool_name="t", outcome="success", output={"x": float("nan")}),)
    )
    assert len(message_digest(odd)) == 32


TEXTS = st.lists(st.text(max_size=5), max_size=6)


@given(base=TEXTS, added=TEXTS, more=TEXTS)
def test_a_ledger_that_goes_on_says_what_a_fresh_one_says(base: list[str], added: list[str], more: list[str]) -> None:
    """What is kept between two steps changes no hash, whatever was replaced in between."""
    model = ResolvedModel(model="m", provider=ScriptedModel("said"))
    call = ProviderCall(model=model)
    start: tuple[AnyModelMessage, ...] = tuple(map(ModelMessage.user, base))
    records = RecordRange(first_id="a", last_id="b", records=9, chain=bytes(range(32)), messages=len(start))
    ledger = RequestLedger("r", start, records)
    first = (*start, *map(ModelMessage.user, added))
    second = (*first, *map(ModelMessage.assistant, more))
    for spoken in (first, second, start, tuple(reversed(second)), second):
        fresh = RequestLedger("r", start, records).request(call, spoken)
        assert ledger.request(call, spoken).payload == fresh.payload
