"""Real processes, a real file, real SIGKILLs."""

import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.abc
import pytest

from runlane import AgentRuntime, OpenAIChat, Run, SqliteStore
from runlane.testing import ReplayServer, Reply
from tests.fixture_files import REPOSITORY

pytestmark = pytest.mark.anyio

_ANSWER = "".join(f"word{number} " for number in range(40))
_CONVERSATIONS = ("a", "b", "c")
_KILLS = 200 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 5


def _stream() -> bytes:
    """A chat completion as its protocol streams it."""
    chunks: list[dict[str, object]] = [
        {"choices": [{"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None}]}
        for number in range(40)
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    lines = [f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', **chunk})}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


async def _lines(process: anyio.abc.Process) -> AsyncIterator[list[str]]:
    """The words of each line a process writes, until it is gone."""
    rest = b""
    assert process.stdout is not None
    async for chunk in process.stdout:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode().split()


async def _work_until_killed(path: Path, base_url: str, chance: random.Random) -> dict[str, str]:
    """Start a worker and kill it at a random moment of its streams; return the runs it said were admitted."""
    program = str(REPOSITORY / "tests" / "runtime" / "worker_process.py")
    admitted: dict[str, str] = {}
    lines_to_live = chance.randrange(1, 110)
    command = [sys.executable, program, str(path), base_url, *_CONVERSATIONS]
    async with await anyio.open_process(command, stderr=None, env={**os.environ, "OPENAI_API_KEY": "none"}) as process:
        async for words in _lines(process):
            if words[0] == "admitted":
                admitted[words[1]] = words[2]
            lines_to_live -= 1
            if lines_to_live == 0:
                process.send_signal(signal.SIGKILL)
    return admitted


async def _settle(path: Path, base_url: str) -> dict[str, list[Run]]:
    """Recover in this process, submit the same keys once more, and return the runs of each conversation."""
    model = OpenAIChat("replayed", base_url=base_url)
    runs: dict[str, list[Run]] = {}
    async with SqliteStore(path) as store:
        async with AgentRuntime(store, model=model, recover_on_start=True) as runtime:
            for conversation_id in _CONVERSATIONS:
                question = f"Question of {conversation_id}"
                result = await runtime.submit(conversation_id, question, idempotency_key="only").result
                assert (result.reason, result.text) == ("success", _ANSWER)
        for conversation_id in _CONVERSATIONS:
            snapshot = await store.load_snapshot(conversation_id)
            assert [message.role for message in snapshot.messages] == ["user", "assistant"]
            assert snapshot.messages[1].text == _ANSWER
            runs[conversation_id] = list(snapshot.runs)
    return runs


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_process_killed_at_random_moments_loses_nothing_and_answers_nothing_twice(tmp_path: Path) -> None:
    """Seeded SIGKILLs in the middle of three streams: every accepted input ends in exactly one answer."""
    reply = Reply(_stream(), headers={"content-type": "text/event-stream"}, chunk_size=120, delay=0.002)
    chance = random.Random(20)  # noqa: S311 - a seed, so that a red run can be repeated
    async with ReplayServer(lambda _: reply) as server:
        base_url = f"{server.base_url}/v1"
        for number in range(_KILLS):
            path = tmp_path / f"store-{number}.db"
            admitted = await _work_until_killed(path, base_url, chance)
            runs = await _settle(path, base_url)
            for conversation_id, run_id in admitted.items():
                assert [run.id for run in runs[conversation_id]] == [run_id]
            assert all(len(found) == 1 for found in runs.values())


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_one_store_survives_kill_after_kill(tmp_path: Path) -> None:
    """Workers that recover and are killed again, on one file: at last every input has one answer."""
    reply = Reply(_stream(), headers={"content-type": "text/event-stream"}, chunk_size=120, delay=0.002)
    chance = random.Random(7)  # noqa: S311 - a seed, so that a red run can be repeated
    path = tmp_path / "store.db"
    admitted: dict[str, str] = {}
    async with ReplayServer(lambda _: reply) as server:
        base_url = f"{server.base_url}/v1"
        for _ in range(3):
            for conversation_id, run_id in (await _work_until_killed(path, base_url, chance)).items():
                assert admitted.setdefault(conversation_id, run_id) == run_id
        runs = await _settle(path, base_url)
    for conversation_id, run_id in admitted.items():
        assert [run.id for run in runs[conversation_id]] == [run_id]
