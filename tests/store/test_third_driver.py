"""A driver that knows nothing but the documentation of the port is a store like any other."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from runlane.store import DriverStore, Store
from runlane.testing import STORE_CHECKS, StoreCheck
from tests.store.plain_driver import PlainDriver

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def _plain(_conversation_ids: Sequence[str]) -> AsyncIterator[Store]:
    async with DriverStore(PlainDriver(":memory:")) as store:
        yield store


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
async def test_a_plain_driver_keeps_the_rule(check: StoreCheck) -> None:
    """Mapping rows and opening transactions is all that a driver does: each public check passes."""
    await check(_plain)
