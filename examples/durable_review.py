"""The review loop as the driver of a durable conversation that is killed in the middle and recovered.

    python -m examples.durable_review

A worker process takes an input and is killed while its workflow reviews the first draft. This process then opens the
same store, recovers the run and prints its one answer; the input was committed before the worker began, so nothing is
lost, and the key of the input keeps it from being answered twice. The visit that wrote the draft is on record: only the
review is asked for again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

from examples.review_loop import workflow
from runlane import AgentRuntime, RuntimeConfig
from runlane.bridge import WorkflowTurnDriver
from runlane.models import ChatProvider
from runlane.runtime import RunResult
from runlane.store.sqlite import SqliteStore
from runlane.testing import Hold, ScriptedModel

__all__ = ["main", "work"]

_CONVERSATION, _KEY, _SUBJECT = "poems", "poem-1", "the sea"


def _config() -> RuntimeConfig:
    return RuntimeConfig(driver=WorkflowTurnDriver(workflow, None, durable_nodes=True))


async def _answer(path: Path, provider: ChatProvider, *, recover: bool) -> RunResult:
    async with (
        SqliteStore(path) as store,
        AgentRuntime(store, model=provider, config=_config(), recover_on_start=recover) as runtime,
    ):
        return await runtime.submit(_CONVERSATION, _SUBJECT, idempotency_key=_KEY).result


async def work(path: Path) -> None:
    """Be the worker: answer until the review, tell of it, and wait there for the end."""
    hold = Hold()
    provider = ScriptedModel("The sea keeps no one's footprints.", [hold])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: _answer(path, provider, recover=False))
        await hold.reached()
        print("reviewing", flush=True)  # noqa: T201 - what the other process waits for


def main(folder: Path) -> RunResult:
    """Start the worker, kill it in the middle of the workflow, recover, and return the answer."""
    path = folder / "poems.db"
    command = [sys.executable, "-m", "examples.durable_review", "work", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:  # noqa: S603 - this very file
        told = worker.stdout.readline() if worker.stdout is not None else ""
        worker.kill()
    if told.strip() != "reviewing":
        raise RuntimeError("the worker ended before its workflow reviewed anything")
    provider = ScriptedModel("good")

    async def recover() -> RunResult:
        return await _answer(path, provider, recover=True)

    return anyio.run(recover)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        anyio.run(work, Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as place:
            result = main(Path(place))
        print(result.reason, [getattr(part, "text", part.type) for part in result.message.parts])  # noqa: T201
