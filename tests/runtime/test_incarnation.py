"""Who a runtime is, when its lease is lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from typing_extensions import override

from runlane.errors import StoreUnavailableError
from runlane.runtime import AgentRuntime
from runlane.store import Lease, MemoryDriver, MemoryStore
from runlane.testing import FaultyStore, ScriptedModel
from tests.runtime.scenes import CONVERSATION, held_after

pytestmark = pytest.mark.anyio


class _Lapsing(Lease):
    def __init__(self, owner_id: str) -> None:
        self._owner_id = owner_id
        self.lapsed = False

    @property
    @override
    def owner_id(self) -> str:
        return self._owner_id

    @property
    @override
    def held(self) -> bool:
        return not self.lapsed


class _Store(FaultyStore):
    """A store whose leases lapse when the test says."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.leases: list[_Lapsing] = []

    @override
    @asynccontextmanager
    async def hold_lease(self, owner_id: str, /) -> AsyncIterator[Lease]:
        async with self.inner.hold_lease(owner_id):
            self.leases.append(_Lapsing(owner_id))
            yield self.leases[-1]


def _sweep(store: MemoryStore, owner_id: str) -> None:
    """Have the store know an owner as gone."""
    driver = store.driver
    assert isinstance(driver, MemoryDriver)
    driver.owners[owner_id] = False


async def test_a_runtime_whose_lease_lapsed_goes_on_as_another_owner() -> None:
    """The next run is acquired under a new owner id, whose lease is held."""
    async with MemoryStore() as inner:
        store = _Store(inner)
        async with AgentRuntime(store, model=ScriptedModel("Hello")) as runtime:
            first = await runtime.submit(CONVERSATION, "Hi").result
            store.leases[0].lapsed = True
            second = await runtime.submit(CONVERSATION, "Again").result
            assert runtime.owner_id == store.leases[1].owner_id
    assert (first.run.owner_id, second.run.owner_id) == (store.leases[0].owner_id, store.leases[1].owner_id)


async def test_a_runtime_the_store_has_swept_goes_on_as_another_owner() -> None:
    """When the store is the first to know, the acquisition is repeated under a new owner; nothing is abandoned."""
    async with MemoryStore() as inner:
        store = _Store(inner)
        async with AgentRuntime(store, model=ScriptedModel("Hello")) as runtime:
            _sweep(inner, runtime.owner_id)
            result = await runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, result.run.owner_id) == ("success", store.leases[1].owner_id)


async def test_an_execution_of_a_lost_owner_whose_run_was_taken_ends_by_the_record() -> None:
    """Another runtime sweeps the owner and answers its run; the first execution resolves from the record."""
    hold, model = held_after("one")
    async with MemoryStore() as inner:
        store = _Store(inner)
        async with AgentRuntime(store, model=model) as runtime:
            ticket = runtime.submit(CONVERSATION, "Hi")
            await hold.reached()
            _sweep(inner, runtime.owner_id)
            async with AgentRuntime(inner, model=ScriptedModel("two")) as other:
                [outcome] = await other.recover()
                assert outcome.result is not None
                await outcome.result
            hold.release()
            result = await ticket.result
    assert (result.text, result.metrics, len(model.calls)) == ("two", None, 1)


async def test_a_store_that_cannot_be_registered_with_is_not_entered() -> None:
    """A failing lease raises from entering the runtime, as it is."""

    class _Refusing(FaultyStore):
        @override
        @asynccontextmanager
        async def hold_lease(self, owner_id: str, /) -> AsyncIterator[Lease]:
            if owner_id:
                raise StoreUnavailableError("no")
            async with self.inner.hold_lease(owner_id) as lease:
                yield lease

    async with MemoryStore() as inner:
        with pytest.raises(StoreUnavailableError):
            async with AgentRuntime(_Refusing(inner), model=ScriptedModel("Hello")):
                pass
