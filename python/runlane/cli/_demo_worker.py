"""The demo's worker: a process of its own, with a runtime of its own, on the store that all of them share.

It takes orders as JSON lines on stdin and tells what happens as JSON lines on stdout. When stdin ends, whoever started
it is gone, and it ends too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from runlane.cli._demo_script import MODEL
from runlane.cli._failure import Failure
from runlane.cli._lines import read_lines
from runlane.delivery import AssistantDeltaEvent, Gap, RuntimeEvent, TerminalEvent
from runlane.errors import RunlaneError
from runlane.models.openai_chat import OpenAIChat
from runlane.runtime import AgentRuntime
from runlane.store.sqlite import SqliteStore

__all__ = ["main"]

_STDIN: Final = 0
_MOST_ORDERS: Final = 8


def main() -> int:
    """Serve orders until stdin ends: `python -m runlane.cli._demo_worker STORE BASE_URL`."""
    store, base_url = sys.argv[1:]
    try:
        anyio.run(_serve, Path(store), base_url)
    except BaseException as error:  # noqa: BLE001 - the process that started this one tells people
        failure = Failure.of(error)
        # The advice that goes with the code is given once, by that process.
        message = str(error) if isinstance(error, RunlaneError) else failure.message
        _tell("failed", code=failure.code, message=message)
        return 1
    return 0


async def _serve(path: Path, base_url: str) -> None:
    provider = OpenAIChat(MODEL, base_url=base_url)
    async with SqliteStore(path) as store, AgentRuntime(store, model=provider) as runtime:
        _tell("ready", process=os.getpid())
        send, receive = anyio.create_memory_object_stream[dict[str, str]](_MOST_ORDERS)
        async with anyio.create_task_group() as tasks, receive:
            tasks.start_soon(_take_orders, send, tasks.cancel_scope)
            async for order in receive:
                if order["do"] == "recover":
                    await _recover(runtime, order["conversation"])
                else:
                    await _submit(runtime, order)


async def _take_orders(orders: MemoryObjectSendStream[dict[str, str]], everything: anyio.CancelScope) -> None:
    """Read orders; the end of stdin is the end of everything, also of an answer that is under way."""
    async for line in read_lines(_STDIN):
        await orders.send(json.loads(line))
    everything.cancel()


async def _submit(runtime: AgentRuntime, order: dict[str, str]) -> None:
    ticket = runtime.submit(order["conversation"], order["text"], idempotency_key=order["key"])
    admission = await ticket.admission
    _tell("accepted", run=admission.run_id, version=admission.snapshot_version)
    await _tell_events(ticket.events())
    await ticket.result


async def _recover(runtime: AgentRuntime, conversation: str) -> None:
    async with runtime.subscribe(conversation) as events:
        outcomes = await runtime.recover()
        for outcome in outcomes:
            _tell("recovered", run=outcome.run_id, outcome=outcome.action)
        await _tell_events(events)


async def _tell_events(events: AsyncIterable[RuntimeEvent | Gap]) -> None:
    async for event in events:
        if isinstance(event, AssistantDeltaEvent):
            _tell("delta", run=event.run_id, text=event.text_delta)
        elif isinstance(event, TerminalEvent):
            _tell("ended", run=event.run_id, reason=event.reason)
            break


def _tell(event: str, **facts: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
