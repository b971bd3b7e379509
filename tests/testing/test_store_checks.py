"""The public store checks find what is wrong with a driver, whatever it is, and come to an end."""

import gc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import anyio
import pytest
from typing_extensions import override

from runlane.records import ConversationHead
from runlane.store import Changes, DriverStore, Head, MemoryDriver, MemoryStore, MessageQuery, Rows, Store
from runlane.testing import STORE_CHECKS, _store_kit, check_store

pytestmark = pytest.mark.anyio

T = TypeVar("T")
_Fault = Callable[..., Any]


class _Rows:
    """Rows of which one read or write is wrong."""

    def __init__(self, rows: Rows, name: str, fault: _Fault) -> None:
        self._rows = rows
        self._name = name
        self._fault = fault

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever rows have
        right = getattr(self._rows, name)
        return right if name != self._name else lambda *args: self._fault(right, *args)


class _FaultyDriver(MemoryDriver):
    """A driver whose rows are wrong in one way."""

    def __init__(self, name: str, fault: _Fault) -> None:
        super().__init__()
        self._fault = (name, fault)

    @override
    async def read(self, work: Callable[[Rows], T], /) -> T:
        return await super().read(lambda rows: work(_Rows(rows, *self._fault)))

    @override
    async def write(self, work: Callable[[Rows], T], conversation_id: str, /) -> T:
        return await super().write(lambda rows: work(_Rows(rows, *self._fault)), conversation_id)


def _below_inclusive(right: _Fault, name: str, query: MessageQuery) -> object:
    return right(name, query if query.below is None else replace(query, below=query.below + 1))


def _above_inclusive(right: _Fault, name: str, query: MessageQuery) -> object:
    return right(name, query if query.above is None else replace(query, above=query.above - 1))


def _saves_without(*fields: str) -> _Fault:
    def save(right: _Fault, name: str, changes: Changes) -> None:
        for field in fields:
            getattr(changes, field).clear()
        right(name, changes)

    return save


_FAULTS: dict[str, tuple[str, _Fault]] = {
    "the upper bound is inclusive": ("messages", _below_inclusive),
    "the lower bound is inclusive": ("messages", _above_inclusive),
    "a page has one message too many": (
        "messages",
        lambda right, name, query: right(name, replace(query, limit=query.limit + 1)),
    ),
    "messages come oldest first": (
        "messages",
        lambda right, name, query: right(name, replace(query, newest_first=False)),
    ),
    "compacted messages are shown": (
        "messages",
        lambda right, name, query: right(name, replace(query, removed=True)),
    ),
    "entries lack the last": (
        "entries",
        lambda right, name, first, last, limit: right(name, first, last - 1, limit),
    ),
    "an entry is not found": ("entry", lambda *_: None),
    "the scan begins anew": ("recoverable", lambda right, _, limit: right(None, limit)),
    "the scan has no limit": ("recoverable", lambda right, cursor, _: right(cursor, 1_000)),
    "the list begins anew": ("conversations", lambda right, query: right(replace(query, after=None))),
    "a search finds all": ("conversations", lambda right, query: right(replace(query, search=None))),
    "every owner lives": (
        "owners",
        lambda right, ids: {owner: row._replace(alive=True) for owner, row in right(ids).items()},
    ),
    "receipts are lost": ("save", _saves_without("receipts")),
    "seeds are lost": ("save", _saves_without("seeds")),
    "positions stay": ("save", _saves_without("moved")),
    "compaction is lost": ("save", _saves_without("removed")),
    "drafts are lost": ("save", _saves_without("drafts")),
    "nothing is purged": ("purge", lambda *_: None),
    "the epoch stays": ("view", lambda right, name, names: _without_epoch(right(name, names))),
    "runs that ended are unknown": (
        "runs",
        lambda right, name, ids: [row for row in right(name, ids) if row.run.is_active],
    ),
}


def _without_epoch(view: Any) -> Any:  # noqa: ANN401 - a view
    view.head = Head(*view.head)._replace(lane_epoch=0)
    return view


@pytest.mark.parametrize("name", list(_FAULTS))
async def test_a_faulty_driver_is_found_out(name: str) -> None:
    """Some check fails, and none of them goes on for ever."""
    method, fault = _FAULTS[name]

    @asynccontextmanager
    async def maker(_ids: Sequence[str]) -> AsyncIterator[Store]:
        async with DriverStore(_FaultyDriver(method, fault)) as store:
            yield store

    with pytest.raises(Exception):  # noqa: B017, PT011 - a check that trips over the fault has found it, too
        await check_store(maker)
    gc.collect()


async def test_a_driver_without_a_fault_passes() -> None:
    """What is between the checks and the rows does no harm."""

    @asynccontextmanager
    async def maker(_ids: Sequence[str]) -> AsyncIterator[Store]:
        async with DriverStore(_FaultyDriver("none", lambda: None)) as store:
            yield store

    await check_store(maker)


async def test_a_store_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check has a time within which it must be done, and says so."""

    class Hanging(MemoryStore):
        @override
        async def load_head(self, conversation_id: str, /) -> ConversationHead:
            await anyio.sleep_forever()
            raise AssertionError

    @asynccontextmanager
    async def maker(_ids: Sequence[str]) -> AsyncIterator[Store]:
        async with Hanging() as store:
            yield store

    monkeypatch.setattr(_store_kit, "_SECONDS", 0.05)
    [check] = [check for check in STORE_CHECKS if check.__name__ == "an_input_is_committed_with_its_run"]
    with pytest.raises(AssertionError, match=r"came to no end within 0\.05 seconds"):
        await check(maker)
