"""A process whose tools append a line to a file, until it is killed; started by the tests, never collected as one.

Usage: tool_worker_process.py STORE JOURNAL CONVERSATION...

It recovers what an earlier process left behind, submits one input per conversation under a fixed key, and writes a
line for every event. Every tool call appends its idempotency key to the journal, with one write, and is slow.
"""

import os
import sys
import time

import anyio

from runlane import AgentRuntime, RunTicket, SqliteStore
from runlane.models import FinishReport, FunctionCallDelta, ModelToolResultMessage
from runlane.testing import ScriptedCall, ScriptedModel, ScriptedStep
from runlane.tools import ToolDefinition, ToolExecutionContext, tool

ROUNDS = 2


def reply(call: ScriptedCall) -> list[ScriptedStep] | str:
    """Call both tools in each of two rounds, then answer; the state is in the messages."""
    done = sum(isinstance(message, ModelToolResultMessage) for message in call.messages)
    if done >= ROUNDS:
        return "Done, and done again."
    return [
        FunctionCallDelta(0, id=f"{done}-task", name="in_task", arguments="{}"),
        FunctionCallDelta(1, id=f"{done}-thread", name="in_thread", arguments="{}"),
        FinishReport("tool-calls"),
    ]


def tools_of(journal: str) -> list[ToolDefinition[object, object, object]]:
    """Return two tools that note each entry, in the task and in a thread."""

    def note(key: str | None) -> None:
        handle = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{key}\n".encode())
        os.close(handle)

    @tool
    async def in_task(context: ToolExecutionContext[object]) -> str:
        """Note the entry."""
        note(context.idempotency_key)
        await anyio.sleep(0.002)
        return "noted"

    @tool
    def in_thread(context: ToolExecutionContext[object]) -> str:
        """Note the entry."""
        note(context.idempotency_key)
        time.sleep(0.002)
        return "noted"

    return [in_task, in_thread]  # type: ignore[list-item]  # definitions of functions


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def _follow(conversation_id: str, ticket: RunTicket) -> None:
    async for event in ticket.events():
        _say(conversation_id, event.type)


async def work(path: str, journal: str, conversations: list[str]) -> None:
    """Answer one input in each conversation."""
    model = ScriptedModel(reply)
    async with (
        SqliteStore(path) as store,
        AgentRuntime(store, model=model, tools=tools_of(journal), recover_on_start=True) as runtime,
        anyio.create_task_group() as tasks,
    ):
        for conversation_id in conversations:
            ticket = runtime.submit(conversation_id, f"Question of {conversation_id}", idempotency_key="only")
            tasks.start_soon(_follow, conversation_id, ticket)


if __name__ == "__main__":
    anyio.run(work, sys.argv[1], sys.argv[2], sys.argv[3:])
