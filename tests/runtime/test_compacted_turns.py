"""A runtime compacts its conversations at the start of a turn, and goes on whatever comes of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runlane.delivery import RunOperationEvent
from runlane.models import ModelMessage
from runlane.records import Usage, UsageValue
from runlane.runtime import (
    AgentRuntime,
    HistoryConfig,
    RunResult,
    RunTicket,
    RuntimeConfig,
    StructuredCompaction,
    Summarised,
    SummaryRequest,
)
from runlane.store import DriverStore, MemoryStore, ReadEvents
from runlane.testing import FakeClock, FaultyStore, Hold, ScriptedModel
from tests.runtime import compacting
from tests.runtime.compacting import STORES, Talk, compaction
from tests.runtime.scenes import heard

pytestmark = pytest.mark.anyio
on_every_store = pytest.mark.parametrize("kind", STORES)

LONG = "a long answer that says much more than it would have to " * 3
SPENT = Usage.unknown().model_copy(update={"input_tokens": UsageValue(value=70, provenance="provider-reported")})


def configured(compact: StructuredCompaction[str]) -> RuntimeConfig:
    """Return a configuration that compacts."""
    return RuntimeConfig(history=HistoryConfig(compact=compact))


def large(probe: object) -> bool:
    """Whether a history has more than six records."""
    return getattr(probe, "records", 0) > 6


@asynccontextmanager
async def talking(
    compact: StructuredCompaction[str], store: DriverStore, model: ScriptedModel
) -> AsyncIterator[AgentRuntime]:
    """Open a runtime that compacts."""
    async with AgentRuntime(store, model=model, instructions="Be brief.", config=configured(compact)) as runtime:
        yield runtime


async def ask(runtime: AgentRuntime, *questions: str) -> list[RunResult]:
    """Take inputs through whole turns."""
    return [await runtime.submit("c", question).result for question in questions]


async def operations(store: DriverStore) -> list[tuple[str, str, str | None]]:
    """Return kind, phase and code of every operation in the ledger."""
    page = await store.read_events(ReadEvents(conversation_id="c", limit=1000))
    found = [event.payload.get("operation") for event in page.items]
    return [(str(op["kind"]), str(op["phase"]), op.get("code")) for op in found if isinstance(op, dict)]  # type: ignore[misc]


@on_every_store
async def test_the_turn_that_finds_the_history_large_is_told_the_summary(kind: str, tmp_path: Path) -> None:
    """The old turns give way to a system text; people still read everything; the next turn is compacted no more."""
    model = ScriptedModel(LONG)
    compact = compaction(lambda request: f"{len(request.messages)} messages", due=large, keep_recent_turns=1)
    async with compacting.opened(kind, tmp_path) as store, talking(compact, store, model) as runtime:
        results = await ask(runtime, *(f"q{number}" for number in range(5)))
        everything = await Talk(store, "c").everything()
        kept = await store.load_snapshot("c")
        compactions = [op for op in await operations(store) if op[0] == "compaction"]
    assert {result.reason for result in results} == {"success"}
    assert [str(message.role) for message in kept.messages[:2]] == ["summary", "user"]
    told = model.calls[3].messages
    assert [message.text for message in told if isinstance(message, ModelMessage)] == [
        "Be brief.",
        "4 messages",
        "q2",
        LONG,
        "q3",
    ]
    assert [message.text for message in everything if message.role == "user"] == [f"q{n}" for n in range(5)]
    assert compactions == [("compaction", "started", None), ("compaction", "completed", "compaction.applied")]


async def test_the_compaction_is_told_before_the_request() -> None:
    """Started, completed, then the model request, in the events of the run."""
    model = ScriptedModel(LONG)
    async with MemoryStore() as store, talking(compaction(lambda _: "short", due=large), store, model) as runtime:
        await ask(runtime, "q0", "q1", "q2")
        events = await heard(runtime.submit("c", "q3"))
    told = [(e.operation.kind, e.operation.phase) for e in events if isinstance(e, RunOperationEvent)]
    assert told[:3] == [("compaction", "started"), ("compaction", "completed"), ("model-request", "started")]


async def test_below_the_threshold_a_turn_costs_what_it_costs() -> None:
    """No operation, no snapshot, no more commits."""
    async with MemoryStore() as store, talking(compaction(due=large), store, ScriptedModel("ok")) as runtime:
        await ask(runtime, "q0", "q1")
        assert {op[0] for op in await operations(store)} == {"model-request"}


@pytest.mark.parametrize(("said", "code"), [("", "compaction.empty"), ("x" * 9_999, "compaction.not_smaller")])
async def test_a_refused_summary_costs_no_turn(said: str, code: str) -> None:
    """The answer comes all the same, and while the back-off holds nobody is asked again."""
    asked: list[str] = []

    def summarize(request: SummaryRequest[str]) -> str:
        asked.append(request.conversation_id)
        return said

    model = ScriptedModel(LONG)
    async with MemoryStore() as store, talking(compaction(summarize, due=large), store, model) as runtime:
        results = await ask(runtime, *(f"q{number}" for number in range(6)))
        failed = [op for op in await operations(store) if op[0] == "compaction"]
        kept = (await store.load_snapshot("c")).messages
    assert ({result.reason for result in results}, len(asked)) == ({"success"}, 1)
    assert failed == [("compaction", "started", None), ("compaction", "failed", code)]
    assert len(kept) == 12


async def test_a_summariser_that_raises_costs_one_turn_and_no_more() -> None:
    """Its run ends as a runtime failure without a call; the next one goes on; later the summary is made."""
    clock = FakeClock()
    answers = iter(["raise", "short"])

    def summarize(_: SummaryRequest[str]) -> str:
        answer = next(answers)
        if answer == "raise":
            raise LookupError("no model today")
        return answer

    model = ScriptedModel(LONG)
    async with MemoryStore(clock=clock) as store:
        config = configured(compaction(summarize, due=large, back_off=60.0))
        async with AgentRuntime(store, model=model, config=config, clock=clock) as runtime:
            results = await ask(runtime, "q0", "q1", "q2", "q3", "q4")
            clock.tick(61)
            results += await ask(runtime, "q5")
            kept = (await store.load_snapshot("c")).messages
    assert [result.reason for result in results] == [*["success"] * 3, "runtime_failure", *["success"] * 2]
    assert len(model.calls) == 5
    assert [message.role for message in kept] == ["summary", "user", "assistant", "user", "assistant"]


@on_every_store
async def test_input_that_comes_while_a_summary_is_made_waits_its_turn(kind: str, tmp_path: Path) -> None:
    """The first summary is thrown away, the second sees the new version, and both inputs are answered in order."""
    model = ScriptedModel(LONG)
    rounds: list[int] = []
    later: list[RunTicket] = []

    async def summarize(request: SummaryRequest[str]) -> str:
        rounds.append(len(request.snapshot.messages))
        if not later:
            later.append(runtime.submit("c", "later"))
            await later[0].admission
        return "short"

    compact = compaction(summarize, due=large, max_attempts=3)
    async with compacting.opened(kind, tmp_path) as store, talking(compact, store, model) as runtime:
        await ask(runtime, "q0", "q1", "q2", "q3")
        await later[0].result
        everything = await Talk(store, "c").everything()
        compacted = [op[2] for op in await operations(store) if op[0] == "compaction"]
    assert rounds[1] == rounds[0] + 1
    assert [message.text for message in everything if message.role == "user"] == ["q0", "q1", "q2", "q3", "later"]
    assert compacted == [None, "compaction.applied"]
    assert [message.text for message in model.calls[4].messages if isinstance(message, ModelMessage)][-1] == "later"


async def test_what_summarising_spent_is_part_of_the_run() -> None:
    """70 tokens of the summary and none reported for the answer: the run's total is a lower bound of 70."""
    compact = compaction(lambda _: Summarised(summary="short", usage=SPENT), due=large)
    async with MemoryStore() as store, talking(compact, store, ScriptedModel(LONG)) as runtime:
        results = await ask(runtime, "q0", "q1", "q2", "q3")
    metrics = results[-1].metrics
    assert metrics is not None
    assert metrics.usage.input_tokens == UsageValue(value=70, provenance="computed")
    assert metrics.usage.output_tokens == UsageValue(provenance="unavailable")


async def test_a_run_interrupted_while_a_summary_is_made_asks_no_model() -> None:
    """The operation is closed as cancelled, the history is as it was, and the next turn works."""
    hold = Hold()

    async def summarize(_: SummaryRequest[str]) -> str:
        await hold.stand()
        return "short"

    model = ScriptedModel(LONG)
    async with MemoryStore() as store, talking(compaction(summarize, due=large), store, model) as runtime:
        await ask(runtime, "q0", "q1", "q2")
        ticket = runtime.submit("c", "q3")
        await hold.reached()
        assert runtime.stop("c") is True
        stopped = await ticket.result
        hold.release()
        again = await ask(runtime, "q4")
        phases = [op[1:] for op in await operations(store) if op[0] == "compaction"]
    assert (stopped.reason, len(model.calls)) == ("interrupted", 4)
    assert again[0].reason == "success"
    assert phases == [
        ("started", None),
        ("cancelled", "aborted"),
        ("started", None),
        ("completed", "compaction.applied"),
    ]


async def test_another_runtimes_compaction_is_noticed() -> None:
    """Compacted between two turns from outside: the next prompt holds the summary, not what it stands for."""
    model = ScriptedModel(LONG)
    async with MemoryStore() as store, talking(compaction(due=lambda _: False), store, model) as runtime:
        await ask(runtime, "q0", "q1")
        await compacting.compact(Talk(store, "c"), lambda _: "from outside")
        await ask(runtime, "q2")
    told = [message.text for message in model.calls[2].messages if isinstance(message, ModelMessage)]
    assert told == ["Be brief.", "from outside", "q1", LONG, "q2"]


async def test_a_history_that_cannot_be_compacted_is_not_loaded_at_every_turn() -> None:
    """An approval waits at the head: no operation, no snapshot, however large it grows; answered, it is compacted."""
    model = ScriptedModel("ok")
    async with MemoryStore() as store:
        talk = Talk(store, "c")
        waiting = (compacting.call("k"), compacting.consent_wanted("p", "k"))
        await talk.say_turn("a", parts=waiting, reason="provider_stop")
        counting = FaultyStore(store)
        compact = compaction(lambda _: "short", due=lambda probe: probe.records > 3)
        async with AgentRuntime(counting, model=model, config=configured(compact)) as runtime:
            await ask(runtime, *(f"q{number}" for number in range(8)))
        assert counting.count("load_snapshot") == 0
        assert {op[0] for op in await operations(store)} == {"model-request"}
        await talk.consent("b", "p")
        await talk.start("b")
        await talk.end("b", (compacting.result("k"),))
        async with AgentRuntime(counting, model=model, config=configured(compact)) as runtime:
            await ask(runtime, "q8", "q9")
        assert (await store.load_snapshot("c")).messages[0].role == "summary"
