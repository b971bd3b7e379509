"""Effects: at most one for each name of a run, and an honest answer when nobody can tell."""

# ruff: noqa: ANN401 - proofs are any JSON

from __future__ import annotations

from typing import Any

import anyio
import pytest

from runlane.contracts import CancelToken
from runlane.durability import Effect, EffectOutcome, StepRunOptions
from runlane.errors import (
    EffectUnresolvedError,
    InvalidValueError,
    StepAbortedError,
    StoreCommitUnknownError,
    StoreUnavailableError,
    UsageError,
)
from runlane.records import JsonObject
from runlane.store import EventKind, MemoryStore
from tests.durability.scenes import CONVERSATION, Counting, durable, ledger, put
from tests.virtual_time import jumping

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Time limits pass at once."""
    return jumping(request.param)


class World:
    """Something outside that can be changed and looked at."""

    def __init__(self, proof: Any = "receipt", seen: Any = "found") -> None:
        """Give this proof, or see that."""
        self.run, self.look = Counting(proof), Counting(seen)

    @property
    def effect(self) -> Effect:
        """The effect on it."""
        return Effect(run=self.run, reconcile=self.look)

    @property
    def calls(self) -> tuple[int, int]:
        """How often it was changed and looked at."""
        return self.run.entered, self.look.entered


async def phases(store: MemoryStore) -> list[object]:
    """Return the phases on record."""
    return [payload["phase"] for _, payload in await ledger(store)]


async def test_an_accepted_effect_is_never_had_again() -> None:
    """Its proof is given instead, also when the token has tripped."""
    world, token = World({"id": 7}), CancelToken()
    async with MemoryStore() as store:
        assert await durable(store).effect("pay", world.effect) == EffectOutcome(status="accepted", proof={"id": 7})
        token.cancel("enough")
        again = await durable(store).effect("pay", world.effect, options=StepRunOptions(signal=token))
        assert again == EffectOutcome(status="accepted", proof={"id": 7})
        assert await phases(store) == ["intent", "accepted"]
        assert (await ledger(store))[1][1]["via"] == "run"
    assert world.calls == (1, 0)


async def test_an_intent_alone_is_reconciled_and_never_run() -> None:
    """A proof makes it accepted, by reconciliation."""
    world = World()
    async with MemoryStore() as store:
        await put(store, "durability/effect", run_id="run", effect_name="pay", phase="intent")
        assert (await durable(store).effect("pay", world.effect)).proof == "found"
        assert (await ledger(store))[1][1]["via"] == "reconcile"
    assert world.calls == (0, 1)


async def test_what_nobody_can_tell_is_uncertain_for_good() -> None:
    """It is neither run nor looked at again."""
    world = World(seen=None)
    async with MemoryStore() as store:
        await put(store, "durability/effect", run_id="run", effect_name="pay", phase="intent")
        for _ in range(2):
            assert await durable(store).effect("pay", world.effect) == EffectOutcome(status="uncertain")
        assert await phases(store) == ["intent", "uncertain"]
    assert world.calls == (0, 1)


async def test_a_tripped_token_begins_nothing() -> None:
    """Neither with nothing on record nor with an intent alone."""
    world, token = World(), CancelToken()
    token.cancel("enough")
    async with MemoryStore() as store:
        with pytest.raises(StepAbortedError):
            await durable(store, signal=token).effect("pay", world.effect)
        assert await ledger(store) == []
        await put(store, "durability/effect", run_id="run", effect_name="pay", phase="intent")
        with pytest.raises(StepAbortedError):
            await durable(store, signal=token).effect("pay", world.effect)
        assert await phases(store) == ["intent"]
    assert world.calls == (0, 0)


async def test_a_failed_run_is_unresolved_and_the_next_call_reconciles() -> None:
    """Its error is the cause; the intent stands."""
    world = World()
    world.run.error = KeyError("x")
    async with MemoryStore() as store:
        with pytest.raises(EffectUnresolvedError) as caught:
            await durable(store).effect("pay", world.effect)
        assert (caught.value.problem, caught.value.__cause__) == ("run-failed", world.run.error)
        assert await phases(store) == ["intent"]
        assert (await durable(store).effect("pay", world.effect)).proof == "found"
    assert world.calls == (1, 1)


async def test_a_failed_or_late_reconciliation_writes_nothing() -> None:
    """Both are unresolved, and the next call looks again."""
    world, answers = World(), []

    async def stubborn() -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(40)
        answers.append("late")
        return "late"

    async with MemoryStore() as store:
        await put(store, "durability/effect", run_id="run", effect_name="pay", phase="intent")
        world.look.error = KeyError("x")
        problems = []
        for effect in (world.effect, Effect(run=world.run, reconcile=stubborn)):
            with pytest.raises(EffectUnresolvedError) as caught:
                await durable(store).effect("pay", effect)
            problems.append(caught.value.problem)
        with pytest.raises(EffectUnresolvedError) as caught:
            await durable(store).effect(
                "pay", Effect(run=world.run, reconcile=anyio.sleep_forever), reconcile_timeout=0.5
            )
        assert [*problems, caught.value.problem] == ["reconcile-failed", "reconcile-timeout", "reconcile-timeout"]
        assert (answers, await phases(store)) == (["late"], ["intent"])
        world.look.error = None
        assert (await durable(store).effect("pay", world.effect)).proof == "found"
    assert world.run.entered == 0


@pytest.mark.parametrize("proof", ["x" * 65_535, -0.0, (1,)])
async def test_a_proof_that_is_none_is_rejected_after_the_fact(proof: Any) -> None:
    """The effect has happened, the intent stands, and the next call reconciles."""
    world = World(proof)
    async with MemoryStore() as store:
        with pytest.raises(EffectUnresolvedError) as caught:
            await durable(store).effect("pay", world.effect)
        assert caught.value.problem == "proof-rejected"
        assert await phases(store) == ["intent"]
        assert (await durable(store).effect("pay", world.effect)).proof == "found"
    assert world.calls == (1, 1)


async def test_a_proof_of_exactly_the_limit_passes() -> None:
    """65,536 bytes, encoded."""
    world = World("x" * 65_534)
    async with MemoryStore() as store:
        assert (await durable(store).effect("pay", world.effect)).status == "accepted"


async def test_the_first_outcome_wins_and_an_intent_never_undoes_one() -> None:
    """Whatever was appended later."""
    world = World()
    async with MemoryStore() as store:
        await put(store, "durability/effect", run_id="run", effect_name="pay", phase="uncertain")
        await put(store, "durability/effect", run_id="run", effect_name="pay", phase="intent")
        await put(store, "durability/effect", run_id="run", effect_name="pay", phase="accepted", encoded="1", via="run")
        assert (await durable(store).effect("pay", world.effect)).status == "uncertain"
    assert world.calls == (0, 0)


@pytest.mark.parametrize(
    ("fails", "when", "calls"),
    [(1, "before", (1, 0)), (1, "after", (0, 1)), (2, "before", (1, 1)), (2, "after", (1, 0))],
)
async def test_kill_points_of_an_effect(fails: int, when: str, calls: tuple[int, int]) -> None:
    """Whatever append the process dies at, before or after, the world is changed at most once.

    Died before the intent: it is run by the next process. After the intent, or before the outcome: only looked at.
    """
    world = World()
    async with MemoryStore() as store:
        count = 0

        async def append(kind: EventKind, payload: JsonObject) -> None:
            nonlocal count
            count += 1
            if count == fails and when == "before":
                raise StoreUnavailableError("dead")
            await store.append_event(conversation_id=CONVERSATION, kind=kind, payload=payload)
            if count == fails:
                raise StoreCommitUnknownError("dead")

        with pytest.raises(StoreUnavailableError):
            await durable(store, append=append).effect("pay", world.effect)
        assert (await durable(store).effect("pay", world.effect)).status == "accepted"
    assert world.calls == calls
    assert world.run.entered <= 1


async def test_callers_share_one_effect() -> None:
    """Three at once have it once."""
    world, go = World(), anyio.Event()

    async def slowly() -> str:
        await go.wait()
        proof: str = await world.run()
        return proof

    async with MemoryStore() as store:
        found: list[EffectOutcome] = []

        async def ask() -> None:
            found.append(await durable(store).effect("pay", Effect(run=slowly, reconcile=world.look)))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            go.set()
    assert (found, world.calls) == ([EffectOutcome(status="accepted", proof="receipt")] * 3, (1, 0))


@pytest.mark.parametrize("limit", [0, -1, float("inf"), float("nan"), "5", True])
async def test_a_time_limit_that_is_none_is_refused_first(limit: Any) -> None:
    """Before anything is written or called."""
    world = World()
    async with MemoryStore() as store:
        with pytest.raises((UsageError, InvalidValueError), match="reconcile_timeout"):
            await durable(store).effect("pay", world.effect, reconcile_timeout=limit)
        with pytest.raises(UsageError, match="effect"):
            await durable(store).effect("pay", world.run)  # type: ignore[arg-type]
        assert await ledger(store) == []
    assert world.calls == (0, 0)
