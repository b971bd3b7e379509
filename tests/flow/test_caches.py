"""What nodes remember: rules K1 to K12, C6."""

# ruff: noqa: ANN401 - handlers and routes take a context of any app, also where they ignore it

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from typing_extensions import override

from runlane.errors import InvalidValueError, OutOfTurnError, UsageError, WorkflowContractError
from runlane.flow import (
    MISSING,
    AgentCacheOptions,
    CacheReadOptions,
    EngineCacheOptions,
    StepComplete,
)
from runlane.flow._cache import EngineMemory
from runlane.testing import FakeClock
from tests.flow.engines import Listener, engine_of, run
from tests.flow.test_engine import bare
from tests.flow.workflows import definition, node, way

pytestmark = pytest.mark.anyio


class Port:
    """A host's cache that keeps what it was asked."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str, str], object] = {}
        self.addresses: list[Any] = []

    async def get(self, address: Any, key: str) -> object:
        """Return a value or MISSING."""
        self.addresses.append(address)
        return self.entries.get((address.node_id, address.partition, key), MISSING)

    async def set(self, address: Any, key: str, value: object) -> None:
        """Keep a value."""
        self.addresses.append(address)
        self.entries[address.node_id, address.partition, key] = value

    async def delete(self, address: Any, key: str) -> bool:
        """Drop a value."""
        self.addresses.append(address)
        return self.entries.pop((address.node_id, address.partition, key), MISSING) is not MISSING

    async def clear(self, address: Any) -> int:
        """Drop all of an address."""
        mine = [place for place in self.entries if place[:2] == (address.node_id, address.partition)]
        for place in mine:
            del self.entries[place]
        return len(mine)


async def visiting(*handlers: Any, **options: Any) -> None:
    """Run handlers, each in a node of its own (`n0`, `n1`, ...)."""
    last = len(handlers) - 1
    nodes = [
        node(f"n{index}", way(f"n{index + 1}") if index < last else way(complete=str), run=handler)
        for index, handler in enumerate(handlers)
    ]
    await run(definition(*nodes), **options)


async def test_k1_steps_have_caches_too() -> None:
    """A step's entries live under `$step`."""
    port = Port()

    async def step(context: Any) -> StepComplete:
        context.cache.memory.set("k", 1)
        await context.cache.persistent.set("k", 2)
        return StepComplete(context.cache.memory.get("k"))

    assert (await bare(caches=AgentCacheOptions(persistent=port)).run(step)).value == 1
    assert port.entries == {("$step", "default", "k"): 2}


async def test_k2_k3_k4_views_are_bound_and_reads_may_look_elsewhere() -> None:
    """One key in two nodes is two values; a read may name another node, a write or a clear cannot."""
    seen: list[object] = []

    def first(context: Any) -> None:
        context.cache.memory.set("k", "of n0")

    def second(context: Any) -> None:
        memory = context.cache.memory
        seen.append(memory.get("k", "none"))
        seen.append(memory.get("k", read=CacheReadOptions(node_id=context.state["other"])))
        memory.set("k", "of n1")
        with pytest.raises(TypeError):
            memory.set("k", 1, read=CacheReadOptions())
        seen.append(memory.clear())
        seen.append(memory.has("k"))
        seen.append(memory.has("k", read=CacheReadOptions(node_id=context.state["other"])))

    nodes = [node("n0", way("n1"), run=first), node("n1", way(complete=str), run=second)]
    await run(definition(*nodes), {"other": "n0"})
    assert seen == ["none", "of n0", 1, False, True]


async def test_k2_partitions_keep_apart() -> None:
    """A node with a partition of its own does not see the default one, unless it reads it by name."""
    seen: list[object] = []

    def first(context: Any) -> None:
        context.cache.memory.set("k", 1)

    def second(context: Any) -> None:
        elsewhere = CacheReadOptions(node_id=context.state["n"], partition="default")
        seen.append(context.cache.memory.get("k", read=CacheReadOptions(node_id=context.state["n"])))
        seen.append(context.cache.memory.get("k", read=elsewhere))

    nodes = [node("n0", way("n1"), run=first), node("n1", way(complete=str), run=second, cache_partition="own")]
    await run(definition(*nodes), {"n": "n0"})
    assert seen == [None, 1]


async def test_k5_memory_keeps_identity() -> None:
    """What comes out is what went in, and None is a value."""
    kept: list[int] = []

    def handler(context: Any) -> None:
        memory = context.cache.memory
        memory.set("k", kept)
        assert memory.get("k") is kept
        memory.set("none", None)
        assert memory.has("none")
        assert memory.delete("none")
        assert not memory.delete("none")

    await visiting(handler)


async def test_k8_memory_lives_as_long_as_the_engine() -> None:
    """Over several runs of one engine, and never in another."""

    def handler(context: Any) -> dict[str, object]:
        count = context.cache.memory.get("count", 0) + 1
        context.cache.memory.set("count", count)
        return {"value": count}

    engine = engine_of(definition(node("a", run=handler)))
    assert [(await engine.run()).value, (await engine.run()).value] == [1, 2]
    assert (await engine_of(definition(node("a", run=handler))).run()).value == 1


async def test_k9_the_two_caches_are_independent() -> None:
    """A value set in one is missing in the other."""

    async def handler(context: Any) -> None:
        context.cache.memory.set("m", 1)
        await context.cache.persistent.set("p", None)
        assert await context.cache.persistent.has("p")
        assert await context.cache.persistent.get("p", "default") is None
        assert await context.cache.persistent.get("m", "default") == "default"
        assert not context.cache.memory.has("p")

    await visiting(handler, caches=AgentCacheOptions(persistent=Port()))


@pytest.mark.parametrize("use", ["get", "has", "set", "delete", "clear"])
async def test_k10_a_persistent_cache_that_is_not_there_is_an_error(use: str) -> None:
    """Every use is refused, never a silent miss."""
    arguments: dict[str, tuple[object, ...]] = {"set": ("k", 1), "clear": ()}

    async def handler(context: Any) -> None:
        await getattr(context.cache.persistent, use)(*arguments.get(use, ("k",)))

    with pytest.raises(WorkflowContractError) as caught:
        await visiting(handler)
    assert caught.value.rule == "no_persistent_cache"


async def test_k11_c6_the_port_gets_one_address_per_visit() -> None:
    """All calls of a visit share it; a read elsewhere has its own, with the visit's token; errors pass unchanged."""
    port = Port()

    async def handler(context: Any) -> None:
        await context.cache.persistent.set("k", 1)
        assert await context.cache.persistent.get("k") == 1
        await context.cache.persistent.get("k", read=CacheReadOptions(partition="other"))
        await context.cache.persistent.delete("k")
        assert context.signal is port.addresses[0].signal

    await visiting(handler, handler, caches=AgentCacheOptions(persistent=port))
    first, second, elsewhere, third, next_visit = port.addresses[:5]
    assert first is second is third
    assert elsewhere is not first
    assert (elsewhere.node_id, elsewhere.partition, elsewhere.signal) == ("n0", "other", first.signal)
    assert next_visit.node_id == "n1"

    class Broken(Port):
        @override
        async def get(self, address: Any, key: str) -> object:
            raise ConnectionError("gone")

    async def reading(context: Any) -> None:
        await context.cache.persistent.get("k")

    with pytest.raises(ConnectionError, match="gone"):
        await visiting(reading, caches=AgentCacheOptions(persistent=Broken()))


async def test_k12_a_view_is_of_no_use_after_its_visit() -> None:
    """Neither cache is."""
    kept: list[Any] = []

    async def handler(context: Any) -> None:
        kept.append(context.cache)

    await visiting(handler, caches=AgentCacheOptions(persistent=Port()))
    with pytest.raises(OutOfTurnError):
        kept[0].memory.set("k", 1)
    with pytest.raises(OutOfTurnError):
        await kept[0].persistent.get("k")


async def test_reads_and_writes_are_told_in_order() -> None:
    """Hits and misses with tier and partition, before the visit ends, and no key."""
    listener = Listener()

    async def handler(context: Any) -> None:
        context.cache.memory.get("SECRET")
        context.cache.memory.set("SECRET", 1)
        await context.cache.persistent.get("SECRET")

    await visiting(handler, caches=AgentCacheOptions(persistent=Port()), diagnostics=listener.scope())
    told = listener.named("cache.read", "cache.written", "node.finished")
    assert [
        (event.name, getattr(event.payload, "tier", None), getattr(event.payload, "hit", None)) for event in told
    ] == [
        ("cache.read", "memory", False),
        ("cache.written", "memory", None),
        ("cache.read", "persistent", False),
        ("node.finished", None, None),
    ]
    assert "SECRET" not in repr([event.to_record() for event in listener.events])


async def test_a_key_is_text() -> None:
    """Anything else is refused by name."""

    def handler(context: Any) -> None:
        context.cache.memory.set(1, 2)

    with pytest.raises(UsageError, match="key"):
        await visiting(handler)


@pytest.mark.parametrize("options", [{"max_entries": 0}, {"ttl": 0}, {"ttl": -1.0}, {"max_entries": True}])
async def test_limits_are_checked(options: Any) -> None:
    """A limit out of range is refused by its name."""
    with pytest.raises(InvalidValueError, match=r"caches\.volatile"):
        EngineCacheOptions(**options)


class MemoryMachine(RuleBasedStateMachine):
    """K6, K7: an engine's memory beside a slow model of it, under a clock moved by hand."""

    TTL, SIZE = 10.0, 4

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.memory = EngineMemory(EngineCacheOptions(max_entries=self.SIZE, ttl=self.TTL), self.clock)
        self.writes: list[tuple[tuple[str, str, str], object, float]] = []

    def live(self) -> dict[tuple[str, str, str], object]:
        """What the model says is there: of the newest writes, one per place, those that fit and are not too old."""
        return {place: value for place, value, at in self.writes if self.clock.monotonic() - at < self.TTL}

    @rule(
        node_id=st.sampled_from("ab"), partition=st.sampled_from("xy"), key=st.sampled_from("jkl"), value=st.integers()
    )
    def write(self, node_id: str, partition: str, key: str, value: int) -> None:
        """Keep a value; the oldest write goes if there is no room."""
        place = (node_id, partition, key)
        self.memory.set(*place, value)
        self.writes = [write for write in self.writes if write[0] != place][-(self.SIZE - 1) :]
        self.writes.append((place, value, self.clock.monotonic()))

    @rule(node_id=st.sampled_from("ab"), partition=st.sampled_from("xy"), key=st.sampled_from("jkl"))
    def read(self, node_id: str, partition: str, key: str) -> None:
        """A read gives a live value and prolongs nothing."""
        place = (node_id, partition, key)
        assert self.memory.get(*place) == self.live().get(place, MISSING)

    @rule(node_id=st.sampled_from("ab"), partition=st.sampled_from("xy"), key=st.sampled_from("jkl"))
    def delete(self, node_id: str, partition: str, key: str) -> None:
        """A deletion says whether a live value was there."""
        place = (node_id, partition, key)
        assert self.memory.delete(*place) == (place in self.live())
        self.writes = [write for write in self.writes if write[0] != place]

    @rule(node_id=st.sampled_from("ab"), partition=st.sampled_from("xy"))
    def clear(self, node_id: str, partition: str) -> None:
        """A clear takes one view alone."""
        mine = [place for place in self.live() if place[:2] == (node_id, partition)]
        assert self.memory.clear(node_id, partition) == len(mine)
        self.writes = [write for write in self.writes if write[0][:2] != (node_id, partition)]

    @rule(seconds=st.sampled_from([1.0, 5.0, 10.0]))
    def wait(self, seconds: float) -> None:
        """Time passes; an entry of exactly the time to live is gone."""
        self.clock.jump(seconds)

    @invariant()
    def holds_no_more_than_it_may(self) -> None:
        """The bound holds over all views."""
        assert len(self.memory) <= self.SIZE


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
