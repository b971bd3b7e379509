"""Steps: what is on record is not done again."""

# ruff: noqa: ANN401 - results are any JSON

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from runlane.contracts import CancelToken
from runlane.durability import DURABILITY_STEP_EVENT_KIND, Effect, StepDurability, StepRunOptions
from runlane.errors import (
    AbortedError,
    InvalidValueError,
    ParkRecordDecodeError,
    RunlaneError,
    StepAbortedError,
    StepResultDecodeError,
    StepResultNotSerializableError,
    StoreCommitUnknownError,
    StoreUnavailableError,
    UsageError,
)
from runlane.records import JsonObject
from runlane.store import AcquireRun, Applied, EventKind, MemoryStore
from runlane.testing._store_kit import START
from tests.durability.scenes import CONVERSATION, Counting, durable, ledger, put
from tests.store.turns import accept
from tests.virtual_time import jumping

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Time limits pass at once."""
    return jumping(request.param)


async def test_a_step_on_record_is_not_run_again() -> None:
    """The first call runs the body and records its result; a new object over the same store gives the copy."""
    body = Counting({"a": [1, 2.5, None]})
    async with MemoryStore() as store:
        assert await durable(store).step("s", body) == {"a": [1, 2.5, None]}
        assert await durable(store).step("s", body) == {"a": [1, 2.5, None]}
        assert await ledger(store) == [
            ("durability/step", {"run_id": "run", "step_name": "s", "encoded": '{"a":[1,2.5,null]}'})
        ]
    assert body.entered == 1
    assert DURABILITY_STEP_EVENT_KIND == "durability/step"


async def test_a_plain_body_serves_as_well() -> None:
    """What it returns is taken as it is."""
    async with MemoryStore() as store:
        assert await durable(store).step("s", lambda: 7) == 7


async def test_a_recorded_null_is_recorded() -> None:
    """None is a result: it is there, and the body does not run again."""
    body = Counting(None)
    async with MemoryStore() as store:
        assert not await durable(store).has_recorded_step("s")
        assert await durable(store).step("s", body) is None
        assert await durable(store).step("s", body) is None
        assert await durable(store).has_recorded_step("s")
        assert await durable(store).read_recorded_step("s", "absent") is None
        assert await durable(store).read_recorded_step("t", "absent") == "absent"
    assert body.entered == 1


async def test_every_caller_gets_a_copy_of_its_own() -> None:
    """First result, replay and body's own value share nothing."""
    own: dict[str, Any] = {"list": []}
    async with MemoryStore() as store:
        durability = durable(store)
        first = await durability.step("s", lambda: own)
        first["list"].append("first")
        own["list"].append("own")
        again = await durability.step("s", lambda: own)
        assert again == {"list": []}
        again["list"].append("again")
        assert await durability.read_recorded_step("s") == {"list": []}


async def test_names_are_the_runs_and_the_kinds_own() -> None:
    """Another run sees no step of this one; a step, a sleep and an event of one name are three things."""
    body = Counting()
    async with MemoryStore() as store:
        await durable(store, "one").step("x", body)
        await durable(store, "two").step("x", body)
        await durable(store, "one").sleep(0, "x")
        await durable(store, "one").deliver("x", "x", "told")
        assert await durable(store, "one").wait_for("x", "x") == "told"
        assert await durable(store, "one").step("x", body) == "done"
    assert body.entered == 2


async def test_a_tripped_token_begins_nothing_and_hides_nothing() -> None:
    """Without a record nothing is written and the body stays untouched; with one the copy is given all the same."""
    body, token = Counting(), CancelToken()
    token.cancel("enough")
    async with MemoryStore() as store:
        with pytest.raises(StepAbortedError) as caught:
            await durable(store, signal=token).step("s", body)
        assert (caught.value.reason, caught.value.step_name, body.entered) == ("enough", "s", 0)
        assert isinstance(caught.value, AbortedError)
        assert await ledger(store) == []
        await durable(store).step("s", body)
        assert await durable(store).step("s", body, StepRunOptions(signal=token)) == "done"
    assert body.entered == 1


async def test_a_body_that_raises_writes_nothing_and_may_be_tried_again() -> None:
    """Its own error leaves, the same object."""
    body = Counting(error=KeyError("x"))
    async with MemoryStore() as store:
        durability = durable(store)
        with pytest.raises(KeyError) as caught:
            await durability.step("s", body)
        assert caught.value is body.error
        assert await ledger(store) == []
        body.error = None
        assert await durability.step("s", body) == "done"
    assert body.entered == 2


@pytest.mark.parametrize("value", [-0.0, float("nan"), (1,), {1: 2}, {1}, b"x", "\ud800", object()])
async def test_a_result_that_would_not_come_back_the_same_is_refused(value: object) -> None:
    """The body ran, nothing is on record, and the error says where."""
    body = Counting({"at": value})
    async with MemoryStore() as store:
        with pytest.raises(StepResultNotSerializableError) as caught:
            await durable(store).step("s", body)
        assert await ledger(store) == []
    assert (caught.value.path.startswith("/at"), caught.value.step_name, body.entered) == (True, "s", 1)


async def test_nesting_to_depth_100_passes_and_no_further() -> None:
    """A hundred lists around a scalar come back; another one around it does not."""
    value: Any = 1
    for _ in range(100):
        value = [value]
    async with MemoryStore() as store:
        assert await durable(store).step("s", lambda: value) == value
        with pytest.raises(StepResultNotSerializableError):
            await durable(store).step("t", lambda: [value])


async def test_callers_of_one_store_share_what_is_under_way() -> None:
    """One body for all who ask at once, through whichever object; copies for each; nothing stays behind."""
    entered, go = [], anyio.Event()

    async def body() -> list[int]:
        entered.append(1)
        await go.wait()
        return []

    async with MemoryStore() as store, MemoryStore() as other:
        found: list[list[int]] = []

        async def ask(where: MemoryStore) -> None:
            found.append(await durable(where).step("s", body))

        async with anyio.create_task_group() as tasks:
            for where in (store, store, store, other):
                tasks.start_soon(ask, where)
            await anyio.wait_all_tasks_blocked()
            assert len(entered) == 2
            go.set()
        for one in found:
            one.append(1)
        assert found == [[1]] * 4


async def test_a_shared_failure_is_everybodys_and_can_be_tried_again() -> None:
    """Who waited gets the same error; the next call runs the body anew."""
    go, error = anyio.Event(), RuntimeError("x")
    caught: list[BaseException] = []

    async def failing() -> None:
        await go.wait()
        raise error

    async with MemoryStore() as store:

        async def ask() -> None:
            try:
                await durable(store).step("s", failing)
            except RuntimeError as raised:
                caught.append(raised)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            go.set()
        assert caught == [error, error]
        assert await durable(store).step("s", Counting()) == "done"


async def test_a_cancelled_caller_takes_nobody_along() -> None:
    """Whoever waited for its body runs one of its own."""
    body, is_first = Counting(), anyio.Event()

    async def standing() -> None:
        is_first.set()
        await anyio.sleep_forever()

    async with MemoryStore() as store:
        found: list[object] = []

        async def wait() -> None:
            found.append(await durable(store).step("s", body))

        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as leading:
                    leading.start_soon(lambda: durable(store).step("s", standing))
                    await is_first.wait()
                    tasks.start_soon(wait)
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
    assert (found, body.entered) == (["done"], 1)


async def test_who_waits_for_anothers_body_may_stop_waiting() -> None:
    """Its token ends its own wait; the body and its other callers go on."""
    token, go = CancelToken(), anyio.Event()

    async def body() -> str:
        await go.wait()
        return "done"

    async with MemoryStore() as store:
        found: list[object] = []

        async def ask(options: StepRunOptions) -> None:
            try:
                found.append(await durable(store).step("s", body, options))
            except StepAbortedError as error:
                found.append(error.reason)
                go.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, StepRunOptions())
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(ask, StepRunOptions(signal=token))
            await anyio.wait_all_tasks_blocked()
            token.cancel("patience")
        assert found == ["patience", "done"]


async def test_a_body_that_asks_for_its_own_step_is_refused() -> None:
    """It would wait for itself, from its own task or from one it starts."""
    async with MemoryStore() as store:
        durability = durable(store)

        async def body() -> None:
            with pytest.raises(UsageError, match="around this very call"):
                await durability.step("s", Counting())

            async def below() -> None:
                with pytest.raises(UsageError):
                    await durability.step("s", Counting())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(below)
            assert await durability.step("inner", Counting()) == "done"

        await durability.step("s", body)


async def test_the_last_record_of_a_step_counts() -> None:
    """Two records of one name are a conflict that the later one wins."""
    async with MemoryStore() as store:
        for encoded in ('"old"', '"new"'):
            await put(store, "durability/step", run_id="run", step_name="s", encoded=encoded)
        assert await durable(store).step("s", Counting()) == "new"


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("durability/step", {"run_id": "r", "step_name": "s"}),
        ("durability/step", {"run_id": "r", "step_name": "s", "encoded": "{"}),
        ("durability/step", {"run_id": "r", "step_name": "s", "encoded": "-0.0"}),
        ("durability/step", {"run_id": "r", "step_name": "s", "encoded": "1", "more": 1}),
        ("durability/step", {"run_id": 5, "step_name": "s", "encoded": "1"}),
        ("durability/effect", {"run_id": "r", "effect_name": "e", "phase": "accepted"}),
        ("durability/effect", {"run_id": "r", "effect_name": "e", "phase": "done"}),
        ("durability/park", {"run_id": "r", "kind": "sleep", "name": "n", "deadline": 1.5}),
        ("durability/park", {"run_id": "r", "kind": "nap", "name": "n"}),
        ("durability/event", {"run_id": "r", "event": "e", "id": "i", "encoded": "nope"}),
    ],
)
async def test_a_damaged_record_stops_everything(kind: EventKind, payload: dict[str, object]) -> None:
    """Of whichever run it is: no body runs, no timer starts, and the error names the entry."""
    body = Counting()
    expected = StepResultDecodeError if kind in {"durability/step", "durability/effect"} else ParkRecordDecodeError
    async with MemoryStore() as store:
        await put(store, kind, **payload)
        durability = durable(store)
        for _ in range(2):
            for call in (
                lambda: durability.step("s", body),
                lambda: durability.sleep(1),
                lambda: durability.wait_for("e", "i"),
                lambda: durability.deliver("e", "i"),
                lambda: durability.read_recorded_step("s"),
            ):
                with pytest.raises(expected) as caught:
                    await call()
                assert caught.value.seq == 1
        assert len(await ledger(store)) == 1
    assert body.entered == 0


@pytest.mark.parametrize("between", [0, 1, 150])
async def test_a_reader_of_an_acquired_run_looks_at_nothing_older(between: int) -> None:
    """It begins where the run was admitted, however long the conversation and the queue were; all of it is read."""
    async with MemoryStore() as store:
        for _ in range(70):
            await put(store, "durability/step", run_id="other", step_name="s", encoded="damaged")
        await store.apply(CONVERSATION, accept(CONVERSATION, "run"))
        await put(store, "durability/event", run_id="run", event="e", id="i", encoded='"early"')
        for number in range(between):
            await put(store, "durability/step", run_id="run", step_name=f"s{number}", encoded=str(number))
        [acquired] = await store.apply(
            CONVERSATION, [AcquireRun(command_id="a", at=START, run_id="run", expected_revision=0, owner_id="o")]
        )
        assert isinstance(acquired, Applied)
        sequence = acquired.delta.runs[-1].execution_sequence
        await put(store, "durability/step", run_id="run", step_name="last", encoded="5")
        reading = durable(store, execution_sequence=sequence)
        assert await reading.read_recorded_step("last") == 5
        assert await reading.wait_for("e", "i") == "early"
        assert [await reading.read_recorded_step(f"s{number}") for number in range(between)] == list(range(between))
        with pytest.raises(StepResultDecodeError):
            await durable(store).has_recorded_step("last")


class Flaky(MemoryStore):
    """A store whose appends fail before or after they are carried out."""

    when = ""

    @override
    async def append_event(self, **facts: Any) -> Any:
        """Append, unless it is not to be."""
        if self.when == "before":
            raise StoreUnavailableError("gone")
        appended = await super().append_event(**facts)
        if self.when == "after":
            raise StoreCommitUnknownError("gone")
        return appended


@pytest.mark.parametrize(("when", "entered"), [("before", 2), ("after", 1)])
async def test_a_crash_around_the_record_decides_whether_the_body_runs_again(when: str, entered: int) -> None:
    """Before the record exists the body runs again; once it does, it never does."""
    body = Counting()
    async with Flaky() as store:
        store.when = when
        with pytest.raises(StoreUnavailableError):
            await durable(store).step("s", body)
        store.when = ""
        assert await durable(store).step("s", body) == "done"
        assert len(await ledger(store)) == 1
    assert body.entered == entered


async def test_what_was_done_is_recorded_though_its_task_is_cancelled() -> None:
    """A cancellation that arrives with the body's end does not lose the record."""
    body = Counting()
    async with MemoryStore() as store:
        with anyio.CancelScope() as scope:

            async def last() -> str:
                scope.cancel()
                return str(await body())

            await durable(store).step("s", last)
            await anyio.lowlevel.checkpoint()
        assert await durable(store).step("s", body) == "done"
    assert body.entered == 1


async def test_a_record_that_is_not_confirmed_in_time_is_of_unknown_outcome() -> None:
    """A store that hangs does not hang its caller for good."""

    async def never(kind: EventKind, payload: JsonObject) -> None:
        del kind, payload
        await anyio.sleep_forever()

    async with MemoryStore() as store:
        with pytest.raises(StoreCommitUnknownError):
            await durable(store, append=never).step("s", Counting())


@pytest.mark.parametrize("name", ["", 5, None, "x" * 513])
async def test_names_are_checked(name: Any) -> None:
    """Each is refused by name, and nothing runs."""
    body = Counting()
    async with MemoryStore() as store:
        durability = durable(store)
        with pytest.raises((UsageError, InvalidValueError), match="name"):
            await durability.step(name, body)
        with pytest.raises((UsageError, InvalidValueError), match="name"):
            await durability.effect(name, Effect(run=body, reconcile=body))
        with pytest.raises((UsageError, InvalidValueError)):
            StepDurability(store, "c", name)
        with pytest.raises(RunlaneError, match="options"):
            await durability.step("s", body, CancelToken())  # type: ignore[arg-type]
    assert body.entered == 0


async def test_a_body_that_tries_to_end_the_program_only_fails() -> None:
    """An exit is an error of the body."""

    def leave() -> None:
        raise SystemExit(3)

    async with MemoryStore() as store:
        with pytest.raises(UsageError, match="end the program"):
            await durable(store).step("s", leave)
