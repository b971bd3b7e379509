"""The clock, the model and the store that tests are written with."""

import anyio
import pytest

from runlane.contracts import CancelToken
from runlane.errors import AbortedError, InvalidValueError, ProviderStreamCutError, StoreUnavailableError, UsageError
from runlane.models import FinishReport, ModelMessage, ModelPart, ModelProviderContext, TextDelta
from runlane.store import MemoryStore, ReadEvents
from runlane.testing import FakeClock, Fault, FaultyStore, Hold, Pause, ScriptedModel, StoreCall

pytestmark = pytest.mark.anyio


# --- the clock --------------------------------------------------------------------------------------------------


async def test_sleepers_wake_in_order_of_their_deadlines() -> None:
    """Advancing wakes whoever is due, one deadline after the other, at its own time."""
    clock, log = FakeClock(), list[tuple[str, float]]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        log.append((name, clock.monotonic()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep, "late", 3.0)
        tasks.start_soon(sleep, "early", 1.0)
        await clock.advance(2.0)
        assert log == [("early", 1.0)]
        await clock.advance(2.0)
    assert log == [("early", 1.0), ("late", 3.0)]
    assert clock.monotonic() == 4.0


async def test_a_sleeper_that_sleeps_again_is_woken_within_one_advance() -> None:
    """Deadlines made while time passes count as well."""
    clock, ticks = FakeClock(), list[float]()

    async def tick() -> None:
        for _ in range(3):
            await clock.sleep(1.0)
            ticks.append(clock.monotonic())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await clock.advance(3.0)
    assert ticks == [1.0, 2.0, 3.0]


async def test_wall_time_can_jump_alone() -> None:
    """A jump changes `now` and nothing else; time itself never goes backwards."""
    clock = FakeClock()
    before = clock.now()
    clock.jump(-3600)
    assert ((clock.now() - before).total_seconds(), clock.monotonic()) == (-3600.0, 0.0)
    with pytest.raises(InvalidValueError):
        clock.tick(-1)


# --- the model --------------------------------------------------------------------------------------------------


async def _read(model: ScriptedModel, context: ModelProviderContext | None = None) -> list[ModelPart]:
    messages = [ModelMessage.user("Hi")]
    async with model.open_stream(messages, context or ModelProviderContext()) as parts:
        return [part async for part in parts]


async def test_a_text_is_spoken_word_by_word_and_finished() -> None:
    """A text reply streams its words with their spaces, then `stop`; the last reply is given again and again."""
    model = ScriptedModel("Hello there", "Again")
    spoken = await _read(model)
    assert spoken == [TextDelta("Hello "), TextDelta("there"), FinishReport("stop")]
    assert [(await _read(model))[0] for _ in range(2)] == [TextDelta("Again")] * 2
    assert [call.messages[0].text for call in model.calls] == ["Hi"] * 3  # type: ignore[union-attr]


async def test_steps_are_given_as_they_are_and_an_unfinished_script_is_cut() -> None:
    """Errors in a script are raised in their place; a script without a finish report is cut."""
    with pytest.raises(ZeroDivisionError):
        await _read(ScriptedModel([TextDelta("x"), ZeroDivisionError()]))
    with pytest.raises(ProviderStreamCutError):
        await _read(ScriptedModel([TextDelta("x")]))
    with pytest.raises(UsageError):
        ScriptedModel()


async def test_a_script_can_pause_and_hold() -> None:
    """A pause takes the clock's time, a hold lasts until it is released."""
    clock, hold, found = FakeClock(), Hold(), list[ModelPart]()
    model = ScriptedModel([Pause(5.0), TextDelta("a"), hold, FinishReport("stop")], clock=clock)

    async def read() -> None:
        found.extend(await _read(model))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await clock.advance(5.0)
        await hold.reached()
        assert found == []
        hold.release()
    assert found == [TextDelta("a"), FinishReport("stop")]


async def test_a_tripped_signal_ends_the_script() -> None:
    """After the signal nothing more is said."""
    token = CancelToken()
    context = ModelProviderContext(signal=token)
    model = ScriptedModel("Hello there")
    async with model.open_stream([], context) as parts:
        await anext(parts)
        token.cancel("enough")
        with pytest.raises(AbortedError):
            await anext(parts)
    with pytest.raises(AbortedError):
        await _read(model, context)


# --- the store --------------------------------------------------------------------------------------------------


async def test_a_faulty_store_counts_and_fails_as_planned() -> None:
    """Calls are numbered by method; a planned error is raised before or after the real call."""

    def plan(call: StoreCall) -> Fault | None:
        return Fault(error=StoreUnavailableError("gone")) if call.number == 2 else None

    async with FaultyStore(MemoryStore(), plan) as store:
        assert (await store.load_head("c")).version == 0
        with pytest.raises(StoreUnavailableError):
            await store.load_head("c")
        await store.read_events(ReadEvents(conversation_id="c"))
        assert (store.count("load_head"), store.count("read_events"), store.applied) == (2, 1, [])


async def test_a_killed_store_fails_every_call() -> None:
    """After `kill` nothing reaches the real store any more."""
    async with FaultyStore(MemoryStore()) as store:
        store.kill()
        for call in (store.load_head("c"), store.load_snapshot("c"), store.sweep_owners()):
            with pytest.raises(Exception, match="killed"):
                await call
