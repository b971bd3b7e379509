"""Tools that listen to nobody: they keep neither a process alive nor a lease from being renewed."""

import os
import signal
import sys
import threading
from pathlib import Path

import anyio
import pytest

from runlane.runtime import AgentRuntime
from runlane.store import MemoryStore
from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.testing import ScriptedModel
from runlane.tools import tool
from tests.fixture_files import REPOSITORY
from tests.runtime.scenes import CONVERSATION
from tests.runtime.test_tools import called

pytestmark = pytest.mark.anyio

_LEASE = 2.0
"""Seconds; a busy machine must not mistake its own slowness for a death."""


@pytest.mark.timeout(300)
async def test_a_thread_that_never_ends_does_not_keep_a_process_alive(anyio_backend: str) -> None:
    """SIGTERM, a close with a budget, and the process is gone with exit code 0, though a tool still stands."""
    program = str(REPOSITORY / "tests" / "runtime" / "stubborn_process.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY), *sys.path))}
    said = b""
    command = [sys.executable, program, anyio_backend]
    async with await anyio.open_process(command, stderr=None, env=environment) as process:
        assert process.stdout is not None
        async for chunk in process.stdout:
            said += chunk
            if b"entered" in chunk:
                process.send_signal(signal.SIGTERM)
        code = await process.wait()
    assert (code, said.decode().split("\n")[-2]) == (0, "ended shutdown")
    assert "settled=True" in said.decode()


async def test_a_tool_that_blocks_the_event_loop_keeps_its_run(tmp_path: Path) -> None:
    """The lease is renewed beside the loop: who looks after dead owners meanwhile takes nothing away."""
    path, entered, swept = tmp_path / "store.db", list[int](), list[str]()

    async def look() -> None:
        async with SqliteStore(path) as other:
            swept.extend(await other.sweep_owners())

    @tool
    async def block() -> str:
        """Block the event loop for longer than a lease, against all advice."""
        entered.append(1)
        threading.Event().wait(_LEASE * 1.5)
        looker = threading.Thread(target=anyio.run, args=(look,))
        looker.start()
        looker.join()
        return "done"

    model = ScriptedModel(called(("c1", "block", "{}")), "Done.")
    options = SqliteOptions(lease_ttl=_LEASE, lease_beat=_LEASE / 10)
    async with SqliteStore(path, options=options) as store, AgentRuntime(store, model=model, tools=[block]) as runtime:
        result = await runtime.submit(CONVERSATION, "Block.").result
    assert (result.reason, entered, swept) == ("success", [1], [])


async def test_many_runs_share_the_threads_of_their_tools() -> None:
    """Twenty conversations with a plain function at once: eight threads at most, and every run ends."""
    now, most = [0], [0]
    lock = threading.Lock()

    @tool
    def count() -> int:
        """Count who is inside."""
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.001)
        with lock:
            now[0] -= 1
        return now[0]

    model = ScriptedModel(lambda call: called(("c1", "count", "{}")) if call.messages[-1].role == "user" else "Done.")
    async with MemoryStore() as store, AgentRuntime(store, model=model, tools=[count]) as runtime:
        tickets = [runtime.submit(f"c{number}", "Count.") for number in range(20)]
        results = [await ticket.result for ticket in tickets]
    assert {result.reason for result in results} == {"success"}
    assert 1 <= most[0] <= 8
