"""Stopping before and after every commit, and killing the whole process at any moment."""

import multiprocessing
import os
import random
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import pytest

from runlane.errors import StoreCommitUnknownError, StoreError
from runlane.records import Ownership
from runlane.store import Applied, MemoryStore, ReadEvents, Store
from runlane.store.sqlite import SqliteStore
from runlane.testing import check_conversation
from tests.store.doomed import LANES, work_until_killed
from tests.store.turns import send, story

pytestmark = pytest.mark.anyio

KILLS: Final = 500 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 8


class _Stop:
    """Stops a writer at its nth commit, before or after it."""

    def __init__(self, commit: int, *, after: bool) -> None:
        self._left = commit
        self._after = after

    def before(self) -> None:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise StoreCommitUnknownError("stopped before the commit")

    def after(self) -> None:
        if self._left == 0 and self._after:
            self._left = -1
            raise StoreCommitUnknownError("stopped after the commit")


async def _whole(store: Store) -> object:
    events = await store.read_events(ReadEvents(conversation_id="c1"))
    return await store.load_snapshot("c1"), events, (await store.read_messages("c1")).items


async def _told(store: Store) -> object:
    owned: dict[str, Ownership] = {}
    for group in story("c1"):
        assert isinstance(await send(store, "c1", group, owned), Applied)
    return await _whole(store)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_story_survives_a_stop_at_any_commit(tmp_path: Path, *, after: bool) -> None:
    """Stopped before or after any one commit and sent on with the same ids, a story ends exactly as without a stop."""
    async with MemoryStore() as model:
        wanted = await _told(model)
    groups = story("c1")
    for commit in range(1, len(groups) + 1):
        path = tmp_path / f"{commit}.db"
        stop = _Stop(commit, after=after)
        owned: dict[str, Ownership] = {}
        stopped_at = len(groups)
        async with SqliteStore(path, durability="relaxed") as store:
            store.driver.writer.probe.before_commit = stop.before
            store.driver.writer.probe.after_commit = stop.after
            for index, group in enumerate(groups):
                try:
                    await send(store, "c1", group, owned)
                except StoreError:
                    stopped_at = index
                    break
        assert stopped_at == commit - 1
        async with SqliteStore(path, durability="relaxed") as store:
            await check_conversation(store, "c1")
            for group in groups[stopped_at:]:
                assert isinstance(await send(store, "c1", group, owned), Applied)
            await check_conversation(store, "c1")
            assert await _whole(store) == wanted


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_stopped_group_is_told_and_the_store_goes_on(tmp_path: Path, *, after: bool) -> None:
    """Whoever waits for a commit that was stopped gets an error, and the next mutation works on the same store."""
    async with SqliteStore(tmp_path / "store.db", durability="relaxed") as store:
        owned: dict[str, Ownership] = {}
        stop = _Stop(3, after=after)
        store.driver.writer.probe.before_commit = stop.before
        store.driver.writer.probe.after_commit = stop.after
        failures = 0
        for group in story("c1"):
            try:
                await send(store, "c1", group, owned)
            except StoreCommitUnknownError:
                failures += 1
                assert isinstance(await send(store, "c1", group, owned), Applied)
        assert failures == 1
        await check_conversation(store, "c1")


def _kill_at_random(path: Path, seed: int, moment: float) -> list[tuple[str, str]]:
    """Let a process work on a store, kill it with SIGKILL, and return what it had been promised."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.store.doomed"])
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=work_until_killed, args=(theirs, str(path), seed), daemon=True)
    child.start()
    theirs.close()
    promised: list[tuple[str, str]] = [ours.recv()]
    ends = time.monotonic() + moment
    while (rest := ends - time.monotonic()) > 0 and ours.poll(rest):
        promised.append(ours.recv())
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    promised += _drain(ours)
    child.join()
    child.close()
    return promised[1:]


def _drain(connection: Connection) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    while True:
        try:
            found.append(connection.recv())
        except (EOFError, OSError):
            return found


@pytest.mark.timeout(3600)
async def test_a_killed_process_breaks_no_promise(tmp_path: Path, anyio_backend: str) -> None:
    """After SIGKILL at any moment every promised mutation is there, nothing is half there, and work goes on at once."""
    chance = random.Random(f"kill {anyio_backend}")  # noqa: S311  not for secrets
    path = tmp_path / "store.db"
    kept = 0
    for seed in range(KILLS // 2):
        promised = _kill_at_random(path, seed, chance.uniform(0.0, 0.25))
        kept += len(promised)
        async with SqliteStore(path) as store:
            for conversation_id, command_id in promised:
                assert await store.find_event(conversation_id, command_id) is not None, (conversation_id, command_id)
            for lane in range(LANES):
                await check_conversation(store, f"{seed}-{lane}")
            await _take_over(store, seed)
    assert kept > 0


async def _take_over(store: Store, seed: int) -> None:
    """The killed process is provably gone: its lanes are free at once, and its runs can be carried on."""
    held = [item for item in (await store.scan_recoverable(limit=1000)).items if item.run.is_acquired]
    swept = await store.sweep_owners()
    assert {item.run.owner_id for item in held} <= set(swept) <= {f"process-{seed}"}
    for item in held:
        assert item.owner_alive is False
        outcome = await store.recover_run(
            conversation_id=item.conversation_id,
            run_id=item.run.id,
            expected_revision=item.run.revision,
            action="abandon",
        )
        assert isinstance(outcome, Applied)
    for lane in range(LANES):
        await check_conversation(store, f"{seed}-{lane}")
