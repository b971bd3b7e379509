"""A process that answers inputs until it is killed; started by the tests, never collected as one.

Usage: worker_process.py STORE BASE_URL CONVERSATION...

It recovers what an earlier process left behind, submits one input per conversation under a fixed key, and writes a
line for every admission, every piece of text and every end.
"""

import sys

import anyio

from runlane import AdmissionEvent, AgentRuntime, AssistantDeltaEvent, OpenAIChat, RunTicket, SqliteStore, TerminalEvent
from runlane.runtime import LoopConfig, RuntimeConfig

_EAGER = RuntimeConfig(loop=LoopConfig(checkpoint_every_events=3))


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def _follow(conversation_id: str, ticket: RunTicket) -> None:
    async for event in ticket.events():
        if isinstance(event, AdmissionEvent):
            _say("admitted", conversation_id, event.run_id)
        elif isinstance(event, AssistantDeltaEvent):
            _say("said", conversation_id)
        elif isinstance(event, TerminalEvent):
            _say("ended", conversation_id)


async def work(path: str, base_url: str, conversations: list[str]) -> None:
    """Answer one input in each conversation."""
    model = OpenAIChat("replayed", base_url=base_url)
    async with (
        SqliteStore(path) as store,
        AgentRuntime(store, model=model, config=_EAGER, recover_on_start=True) as runtime,
        anyio.create_task_group() as tasks,
    ):
        for conversation_id in conversations:
            ticket = runtime.submit(conversation_id, f"Question of {conversation_id}", idempotency_key="only")
            tasks.start_soon(_follow, conversation_id, ticket)


if __name__ == "__main__":
    anyio.run(work, sys.argv[1], sys.argv[2], sys.argv[3:])
