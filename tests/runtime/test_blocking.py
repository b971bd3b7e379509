"""The runtime for programs without an event loop."""

import gc
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import anyio
import anyio.to_thread
import pytest

from runlane.delivery import AdmissionEvent, AssistantDeltaEvent, Gap, TerminalEvent
from runlane.errors import (
    InvalidValueError,
    RuntimeClosedError,
    RuntimeConflictError,
    StoreUnavailableError,
    UsageError,
)
from runlane.models import FinishReport, FunctionCallDelta, TextDelta
from runlane.runtime import AgentRuntime, BlockingRuntime, DeliveryConfig, RuntimeConfig, ToolsConfig
from runlane.store import Applied, MemoryStore
from runlane.testing import Fault, FaultyStore, Hold, ScriptedModel, ScriptedStep
from runlane.testing._store_kit import Lane
from runlane.tools import tool


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Literal["asyncio", "trio"]:
    """The loops the thread may run."""
    chosen: Literal["asyncio", "trio"] = request.param
    return chosen


def test_ask_waits_for_the_answer(backend: Literal["asyncio", "trio"]) -> None:
    """`ask` returns the result; the next one sees the turn before."""
    model = ScriptedModel("One.", "Two.")
    with BlockingRuntime(MemoryStore(), model=model, backend=backend) as runtime:
        assert runtime.ask("c", "first").text == "One."
        assert runtime.ask("c", "second", metadata={"n": 2}).reason == "success"
    assert len(model.calls[1].messages) == 3


def test_stream_yields_the_events_of_the_run(backend: Literal["asyncio", "trio"]) -> None:
    """`stream` gives the text as it comes and ends with the terminal event."""
    with BlockingRuntime(MemoryStore(), model=ScriptedModel("Hello there"), backend=backend) as runtime:
        events = list(runtime.stream("c", "Hi"))
    text = "".join(event.text_delta for event in events if isinstance(event, AssistantDeltaEvent))
    assert (text, type(events[-1])) == ("Hello there", TerminalEvent)


def test_leaving_a_stream_early_does_not_stop_the_run() -> None:
    """The run goes on, and its answer is part of the conversation."""
    model = ScriptedModel("Hello there", "And again")
    with BlockingRuntime(MemoryStore(), model=model) as runtime:
        for _ in runtime.stream("c", "Hi", idempotency_key="k"):
            break
        assert runtime.ask("c", "Hi", idempotency_key="k").text == "Hello there"


def test_errors_come_out_as_they_are() -> None:
    """A refused input raises, a failing store raises, and no thread is left behind."""
    threads = set(threading.enumerate())
    with BlockingRuntime(MemoryStore(), model=ScriptedModel("x")) as runtime:
        with pytest.raises(InvalidValueError, match="conversation_id"):
            runtime.ask("", "Hi")
        with pytest.raises(InvalidValueError):
            next(iter(runtime.stream("c", [])))
    store = FaultyStore(MemoryStore(), lambda _: Fault(error=StoreUnavailableError("gone")))
    with BlockingRuntime(store, model=ScriptedModel("x")) as runtime, pytest.raises(StoreUnavailableError):
        runtime.ask("c", "Hi")
    assert set(threading.enumerate()) <= threads


def test_it_is_used_inside_its_with_block() -> None:
    """Before `with` a call says what to do."""
    runtime = BlockingRuntime(MemoryStore(), model=ScriptedModel("x"))
    with pytest.raises(RuntimeClosedError, match="enter it first: with BlockingRuntime"):
        runtime.ask("c", "Hi")


def test_several_threads_may_ask_at_once() -> None:
    """Four threads with a conversation each get their answers."""
    found: list[str] = []
    with BlockingRuntime(MemoryStore(), model=ScriptedModel("ok")) as runtime:

        def ask(name: str) -> None:
            found.append(runtime.ask(name, "Hi").text)

        threads = [threading.Thread(target=ask, args=(f"c{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == ["ok"] * 4


def test_stop_and_recover_block_too() -> None:
    """The other verbs are there as well."""
    with BlockingRuntime(MemoryStore(), model=ScriptedModel("x")) as runtime:
        assert (runtime.stop("c"), runtime.recover()) == (False, [])


def test_runs_are_ended_from_outside_without_an_event_loop(backend: Literal["asyncio", "trio"]) -> None:
    """A run that executes is interrupted and one that waits is cancelled, from another thread than those that ask."""
    model = ScriptedModel([TextDelta("half "), Hold(), FinishReport("stop")])
    with (
        BlockingRuntime(MemoryStore(), model=model, backend=backend) as runtime,
        ThreadPoolExecutor() as threads,
        runtime.subscribe("c") as events,
    ):
        first = threads.submit(runtime.ask, "c", "first")
        running = next(event for event in events if isinstance(event, AssistantDeltaEvent))
        second = threads.submit(runtime.ask, "c", "second")
        waiting = next(event for event in events if isinstance(event, AdmissionEvent))
        assert isinstance(runtime.cancel("c", waiting.run_id), Applied)
        assert isinstance(runtime.interrupt("c", running.run_id), Applied)
        assert (first.result().reason, second.result().reason) == ("interrupted", "cancelled")


def test_a_conversation_is_seeded_and_taken_up_without_an_event_loop() -> None:
    """A seed is shown to the model; a run that is not there is neither resumed nor abandoned; closing settles all."""
    model = ScriptedModel("Noted.")
    with BlockingRuntime(MemoryStore(), model=model) as runtime:
        assert isinstance(runtime.seed("c", ["Known."], seed_key="s"), Applied)
        assert runtime.ask("c", "Hi").text == "Noted."
        with pytest.raises(RuntimeConflictError, match="no run 'r'"):
            runtime.resume("c", "r")
        with pytest.raises(RuntimeConflictError, match="no run 'r'"):
            runtime.abandon("c", "r", expected_revision=0, stale_owner=True)
        assert runtime.recover(conversation_id="c", max_runs=1) == []
        assert runtime.close(grace=1.0).settled
        with pytest.raises(RuntimeClosedError):
            runtime.ask("c", "Hi")
    assert [getattr(message, "text", "") for message in model.calls[0].messages] == ["Known.", "Hi"]


def test_a_queued_run_is_resumed_without_an_event_loop() -> None:
    """A run that nobody starts is executed, and its result waited for."""
    store = MemoryStore()

    async def leave_one() -> None:
        async with store:
            await store.accept_input(
                idempotency_key="k", input=Lane(store).message("a-in"), run=Lane(store).proposal("a")
            )

    anyio.run(leave_one)
    with BlockingRuntime(store, model=ScriptedModel("Done.")) as runtime:
        assert runtime.resume("c1", "a").text == "Done."


def test_whatever_a_runtime_does_it_does_blocking_too() -> None:
    """Every public method, with the same parameters; `ask` and `stream` stand for `submit`."""

    def methods(kind: type) -> dict[str, set[str]]:
        public = {name: value for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}
        return {name: set(inspect.signature(value).parameters) for name, value in public.items()}

    theirs, ours = methods(AgentRuntime), methods(BlockingRuntime)
    submit = theirs.pop("submit")
    assert {name: ours.get(name) for name in theirs} == theirs
    assert ours["ask"] == ours["stream"] == submit


def test_approvals_are_answered_without_an_event_loop(backend: Literal["asyncio", "trio"]) -> None:
    """A call that needs consent comes back as a request; the answer waits for what the model says then."""
    sent: list[str] = []

    @tool(needs_approval=True)
    def send(to: str) -> None:
        """Send."""
        sent.append(to)

    model = ScriptedModel(
        [FunctionCallDelta(0, id="c1", name="send", arguments='{"to":"a"}'), FinishReport("tool-calls")], "Sent."
    )
    with BlockingRuntime(MemoryStore(), model=model, tools=[send], backend=backend) as runtime:
        [request] = runtime.ask("c", "Send it.").approvals
        assert sent == []
        assert runtime.respond_to_approval("c", request.approval_id, approved=True).text == "Sent."
    assert sent == ["a"]


@pytest.mark.anyio
async def test_it_can_be_made_and_used_inside_an_event_loop_of_another_kind() -> None:
    """Nothing of it belongs to the loop it was made in: a plain function called from trio may use one on asyncio."""

    def ask() -> str:
        with BlockingRuntime(MemoryStore(), model=ScriptedModel("Hello")) as runtime:
            return runtime.ask("c", "Hi").text

    assert [ask(), await anyio.to_thread.run_sync(ask)] == ["Hello", "Hello"]


def test_a_runtime_that_was_left_says_so(backend: Literal["asyncio", "trio"]) -> None:
    """Every call, and an iteration that begins only then; dropping one that has begun is no error."""
    with BlockingRuntime(MemoryStore(), model=ScriptedModel("a b c"), backend=backend) as runtime:
        events, others = runtime.stream("c", "Hi"), runtime.stream("c", "And?")
        next(events)
    for call in (lambda: runtime.ask("c", "Hi"), lambda: runtime.stop("c"), runtime.recover, lambda: next(others)):
        with pytest.raises(RuntimeClosedError):
            call()


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_tool_may_ask_its_own_runtime_only_from_a_thread_of_its_own(
    backend: Literal["asyncio", "trio"], *, is_plain: bool
) -> None:
    """A plain function asks in another conversation; a coroutine function would wait for itself, and is told so."""
    failures: list[Exception] = []

    def ask() -> str:
        return runtime.ask("another", "Hi").text

    async def ask_in_the_loop() -> str:
        return ask()

    asking = tool(ask if is_plain else ask_in_the_loop, id="asking", description="Ask.")
    call: list[ScriptedStep] = [
        FunctionCallDelta(0, id="c1", name="asking", arguments="{}"),
        FinishReport("tool-calls"),
    ]
    config = RuntimeConfig(tools=ToolsConfig(on_error=lambda _, error: failures.append(error)))
    model = ScriptedModel(call, "inner", "outer") if is_plain else ScriptedModel(call, "outer")
    with BlockingRuntime(MemoryStore(), model=model, tools=[asking], config=config, backend=backend) as runtime:
        assert runtime.ask("c", "Go.").text == "outer"
    assert [type(error) for error in failures] == ([] if is_plain else [UsageError])


def test_a_subscription_replays_and_goes_on(backend: Literal["asyncio", "trio"]) -> None:
    """From a version on, then live; each durable event once and in order, and it ends when it is closed."""
    with BlockingRuntime(MemoryStore(), model=ScriptedModel("One.", "Two."), backend=backend) as runtime:
        first = runtime.ask("c", "first")
        with runtime.subscribe("c", after=0) as events:
            said = [next(event for event in events if isinstance(event, TerminalEvent)).message.text]
            runtime.ask("c", "second")
            said.append(next(event for event in events if isinstance(event, TerminalEvent)).message.text)
        assert list(events) == []
        with runtime.subscribe("c", after=first.snapshot_version) as later:
            event = next(later)
        assert isinstance(event, AdmissionEvent)
        assert event.snapshot_version == first.snapshot_version + 1
    assert said == ["One.", "Two."]


def test_a_subscription_to_a_run_ends_with_it(backend: Literal["asyncio", "trio"]) -> None:
    """Nothing has to be closed then."""
    with BlockingRuntime(MemoryStore(), model=ScriptedModel("One.", "Two."), backend=backend) as runtime:
        first = runtime.ask("c", "first")
        runtime.ask("c", "second")
        events = list(runtime.subscribe("c", run_id=first.run.id, after=0))
    assert {event.run_id for event in events if not isinstance(event, Gap)} == {first.run.id}
    assert isinstance(events[-1], TerminalEvent)


def test_a_subscription_that_is_too_slow_is_told_so(backend: Literal["asyncio", "trio"]) -> None:
    """What did not fit is a gap, and durable events come after it all the same."""
    config = RuntimeConfig(delivery=DeliveryConfig(capacity=2))
    with (
        BlockingRuntime(MemoryStore(), model=ScriptedModel("a b c d e"), config=config, backend=backend) as runtime,
        runtime.subscribe("c") as events,
    ):
        runtime.ask("c", "Hi")
        heard = [next(events)]
        while not isinstance(heard[-1], TerminalEvent):
            heard.append(next(events))
    assert [event.reason for event in heard if isinstance(event, Gap)] == ["slow"]


def test_a_subscription_can_be_closed_from_another_thread(backend: Literal["asyncio", "trio"]) -> None:
    """The iteration that waits for the next event ends."""
    heard: list[str] = []
    told = threading.Event()
    with BlockingRuntime(MemoryStore(), model=ScriptedModel("Hello"), backend=backend) as runtime:
        events = runtime.subscribe("c")

        def listen() -> None:
            for event in events:
                if isinstance(event, TerminalEvent):
                    heard.append(event.message.text)
                    told.set()
            heard.append("end")

        thread = threading.Thread(target=listen)
        thread.start()
        runtime.ask("c", "Hi")
        assert told.wait(10)
        events.close()
        events.close()
        thread.join(10)
        assert not thread.is_alive()
    assert heard == ["Hello", "end"]


def test_a_subscription_ends_with_its_runtime(backend: Literal["asyncio", "trio"]) -> None:
    """A thread that waits goes on; one that asks later is told that the runtime is closed, and closing is no error."""
    with BlockingRuntime(MemoryStore(), model=ScriptedModel("Hello"), backend=backend) as runtime:
        events, others = runtime.subscribe("c"), runtime.subscribe("c")
        thread = threading.Thread(target=lambda: list(events))
        thread.start()
    thread.join(10)
    assert not thread.is_alive()
    with pytest.raises(RuntimeClosedError):
        next(others)
    others.close()


def test_a_stream_that_is_read_after_the_runtime_was_left_has_its_end(backend: Literal["asyncio", "trio"]) -> None:
    """As `ask` has its result: the run was stopped, and says so."""
    with BlockingRuntime(MemoryStore(), model=ScriptedModel([TextDelta("Hel"), Hold()]), backend=backend) as runtime:
        stream = runtime.stream("c", "Hi")
        while not isinstance(next(stream), AssistantDeltaEvent):
            pass
    last = list(stream)[-1]
    assert isinstance(last, TerminalEvent)
    assert (last.reason, last.message.text) == ("shutdown", "Hel")


def test_what_was_told_until_the_runtime_was_left_is_read_afterwards(backend: Literal["asyncio", "trio"]) -> None:
    """Then the listener is told that nothing more comes; so is one whose input never ran."""
    with BlockingRuntime(MemoryStore(), model=ScriptedModel([TextDelta("Hel"), Hold()]), backend=backend) as runtime:
        events, stream, waiting = runtime.subscribe("c"), runtime.stream("c", "Hi"), runtime.stream("c", "And?")
        while not isinstance(next(stream), AssistantDeltaEvent):
            pass
        next(waiting)
    heard: list[str] = []
    with pytest.raises(RuntimeClosedError):
        heard.extend(event.reason if isinstance(event, TerminalEvent) else type(event).__name__ for event in events)
    assert heard[-1] == "shutdown"
    assert heard.count("AdmissionEvent") == 2
    with pytest.raises(RuntimeClosedError):
        list(waiting)
    events.close()


def test_a_subscription_that_is_dropped_is_let_go(backend: Literal["asyncio", "trio"]) -> None:
    """The thread of the runtime does it, so that others lose nothing meanwhile."""
    with BlockingRuntime(MemoryStore(), model=ScriptedModel("Hello"), backend=backend) as runtime:
        hub = runtime._runtime._hub
        events = runtime.subscribe("c")
        assert hub.listens("c")
        del events
        gc.collect()
        runtime.ask("another", "Hi")
        assert not hub.listens("c")


@pytest.mark.parametrize(
    ("options", "argument"),
    [({"conversation_id": ""}, "conversation_id"), ({"run_id": 5}, "run_id"), ({"after": -1}, "after")],
)
def test_a_malformed_subscription_is_refused_by_name(options: dict[str, object], argument: str) -> None:
    """At once, and nobody listens."""
    given: dict[str, Any] = {"conversation_id": "c", **options}
    with BlockingRuntime(MemoryStore(), model=ScriptedModel("Hello")) as runtime:
        with pytest.raises((InvalidValueError, UsageError)) as caught:
            runtime.subscribe(given.pop("conversation_id"), **given)
        assert not runtime._runtime._hub.listens("c")
    assert getattr(caught.value, "argument", None) == argument
