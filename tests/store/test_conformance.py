"""Every store keeps every rule of the public checks, on both event loops."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from runlane.store import MemoryStore, Store
from runlane.store.sqlite import SqliteStore
from runlane.testing import STORE_CHECKS, StoreCheck, StoreMaker

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def _memory(_conversation_ids: Sequence[str]) -> AsyncIterator[Store]:
    async with MemoryStore() as store:
        yield store


@asynccontextmanager
async def _sqlite(_conversation_ids: Sequence[str]) -> AsyncIterator[Store]:
    with TemporaryDirectory() as folder:
        async with SqliteStore(Path(folder) / "store.db", durability="relaxed") as store:
            yield store


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("maker", [_memory, _sqlite], ids=["memory", "sqlite"])
async def test_the_store_keeps_the_rule(maker: StoreMaker, check: StoreCheck) -> None:
    """The store keeps the rule that the check is named after."""
    await check(maker)


def test_every_check_is_listed() -> None:
    """A rule that is written down is checked."""
    modules = [module for name, module in sys.modules.items() if name.startswith("runlane.testing._store_checks_")]
    written = {
        name for module in modules for name, value in vars(module).items() if type(value) is type(STORE_CHECKS[0])
    }
    names = [check.__name__ for check in STORE_CHECKS]
    assert sorted(written) == sorted(names)
