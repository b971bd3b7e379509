"""Real processes, real SIGKILLs, and tools that count their entries in a file."""

import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest

from runlane import AgentRuntime, Message, SqliteStore
from runlane.records import ToolApprovalRequestPart, ToolCallPart, ToolResultPart
from runlane.testing import ScriptedModel
from runlane.tools import approval_kind
from tests.fixture_files import REPOSITORY
from tests.runtime.tool_worker_process import reply, tools_of

pytestmark = pytest.mark.anyio

_CONVERSATIONS = ("a", "b")
_KILLS = 200 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 5
_EVENTS = 60
"""About how many events two undisturbed conversations have."""


async def _work_until_killed(path: Path, journal: Path, chance: random.Random) -> None:
    """Start a worker and kill it at a random event, or a moment after it."""
    program = str(REPOSITORY / "tests" / "runtime" / "tool_worker_process.py")
    command = [sys.executable, program, str(path), str(journal), *_CONVERSATIONS]
    lines, pause = chance.randrange(1, _EVENTS), chance.choice((0.0, 0.0005, 0.002))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY), *sys.path))}
    async with await anyio.open_process(command, stderr=None, env=environment) as process:
        assert process.stdout is not None
        async for chunk in process.stdout:
            lines -= chunk.count(b"\n")
            if lines <= 0:
                await anyio.sleep(pause)
                process.send_signal(signal.SIGKILL)
                break


async def _settle(path: Path, journal: Path) -> dict[str, list[Message]]:
    """Recover in this process, submit the same keys once more, and return the conversations."""
    found: dict[str, list[Message]] = {}
    async with SqliteStore(path) as store:
        model = ScriptedModel(reply)
        async with AgentRuntime(store, model=model, tools=tools_of(str(journal)), recover_on_start=True) as runtime:
            for conversation_id in _CONVERSATIONS:
                question = f"Question of {conversation_id}"
                result = await runtime.submit(conversation_id, question, idempotency_key="only").result
                assert result.reason in ("success", "provider_stop")
        for conversation_id in _CONVERSATIONS:
            snapshot = await store.load_snapshot(conversation_id)
            assert await store.list_active_runs(conversation_id) == ()
            assert [message.role for message in snapshot.messages] == ["user", "assistant"]
            found[conversation_id] = list(snapshot.messages)
    return found


def _check(answer: Message, entries: Counter[str]) -> bool:
    """Check an answer against what its tools really did; whether it ends with a question."""
    keys = {part.call_id: f"{answer.run_id}:{part.call_id}" for part in answer.parts if isinstance(part, ToolCallPart)}
    results = {part.call_id for part in answer.parts if isinstance(part, ToolResultPart)}
    asked = {
        part.call_id
        for part in answer.parts
        if isinstance(part, ToolApprovalRequestPart) and approval_kind(part) == "effect-unknown"
    }
    for call_id, key in keys.items():
        assert entries[key] <= 1, f"{call_id} was entered {entries[key]} times"
        assert (call_id in results) != (call_id in asked), f"{call_id} has neither a result nor a question, or both"
        if call_id in results:
            assert entries[key] == 1, f"{call_id} has a result and was never entered"
    assert answer.text == ("" if asked else "Done, and done again.")
    return bool(asked)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_tool_is_never_entered_twice_whatever_moment_its_process_dies_at(tmp_path: Path) -> None:
    """Seeded SIGKILLs among tools in tasks and threads: entered at most once, each call with a result or a question."""
    chance = random.Random(11)  # noqa: S311 - a seed, so that a red run can be repeated
    for number in range(_KILLS):
        path, journal = tmp_path / f"store-{number}.db", tmp_path / f"journal-{number}"
        journal.touch()
        await _work_until_killed(path, journal, chance)
        answers = await _settle(path, journal)
        entries = Counter(journal.read_text(encoding="utf-8").split())
        for messages in answers.values():
            _check(messages[1], entries)
