"""Several processes on one file: opening, appending, conflicting, waiting for each other."""

import multiprocessing
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import anyio.to_thread
import apsw
import pytest

from runlane.errors import StoreUnavailableError
from runlane.store import Conflict, NotFound, Store
from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.testing import STORE_CHECKS, StoreCheck, check_conversation
from runlane.testing._store_kit import Lane
from tests.store.partner import PairedStore, append_turns, open_and_close, partner

pytestmark = pytest.mark.anyio

ROUNDS: Final = 25


def _processes(count: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.store.partner"])
    return ProcessPoolExecutor(count, mp_context=context)


def test_many_processes_open_a_missing_file_at_once(tmp_path: Path) -> None:
    """Eight processes open the same 20 missing files at the same time; all 160 succeed."""
    files = [str(tmp_path / f"{index}.db") for index in range(20)]
    with _processes(8) as pool:
        opened = [outcome for file in files for outcome in pool.map(open_and_close, [file] * 8, range(8))]
    assert opened == [8] * 160


async def test_two_processes_append_to_one_conversation(tmp_path: Path) -> None:
    """Turns appended by two processes and two tasks each are all there, strictly ordered, none twice."""
    path = str(tmp_path / "store.db")
    with _processes(2) as pool:
        jobs = [pool.submit(append_turns, path, f"p{index}", ROUNDS) for index in range(2)]
        for job in jobs:
            await anyio.to_thread.run_sync(job.result)
    async with SqliteStore(path) as store:
        await check_conversation(store, "c1")
        wanted = {f"p{process}-{index}-in" for process in range(2) for index in range(ROUNDS)}
        assert set(await Lane(store).message_ids()) == wanted


async def test_a_lock_held_too_long_is_a_prompt_error(tmp_path: Path) -> None:
    """While another program holds the write lock a mutation fails promptly, without effect, and can be repeated."""
    path = tmp_path / "store.db"
    async with SqliteStore(path, options=SqliteOptions(busy_timeout=0.05)) as store:
        lane = Lane(store)
        await lane.accept("a")
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with anyio.fail_after(20), pytest.raises(StoreUnavailableError):
            await lane.try_accept("b")
        assert await lane.version() == 1
        other.execute("ROLLBACK")
        other.close()
        await lane.accept("b")
        assert await lane.version() == 2


async def test_a_write_sees_what_another_store_committed(tmp_path: Path) -> None:
    """A store whose last operation was a read inside a write still writes after another one has committed."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as one, SqliteStore(path) as other:
        mine, theirs = Lane(one), Lane(other)
        await mine.accept("a")
        for name in ("b", "c", "d"):
            assert isinstance(await mine.try_accept(name, into="nobody"), NotFound)
            await theirs.accept(name)
            assert isinstance(await mine.try_acquire(name), Conflict)
            await mine.accept(f"{name}2")
        assert await mine.version() == await theirs.version() == 7


async def test_a_change_of_another_store_wakes_who_waits(tmp_path: Path) -> None:
    """A task waiting on one store is woken by a commit through another one on the same file."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as one, SqliteStore(path) as other, anyio.create_task_group() as group:
        woken: list[bool] = []

        async def wait() -> None:
            woken.append(await one.wait_for_change("c1", 0, max_wait=30))

        group.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        await Lane(other).accept("a")
    assert woken == [True]


@asynccontextmanager
async def _two_processes(_conversation_ids: Sequence[str]) -> AsyncIterator[Store]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        async with SqliteStore(path, durability="relaxed") as here, partner(path) as there:
            yield PairedStore(here, there)


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_rules_hold_between_two_processes(check: StoreCheck, anyio_backend: str) -> None:
    """Every rule holds if each operation goes to the other one of two processes."""
    assert anyio_backend == "asyncio"
    await check(_two_processes)
