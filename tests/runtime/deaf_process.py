"""A process with work that does not want to end; it ends in order when it is told to. Started by the tests.

Usage: deaf_process.py STORE BACKEND GRACE FORCE

GRACE and FORCE are the budgets of its close in seconds, or `none`.
In three conversations a model swallows its cancellations for a while, a tool blocks its thread for an hour, and a
suspended generator wants time to clean up. A fourth task keeps the event loop busy. SIGTERM closes everything.
"""

import asyncio
import math
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from typing_extensions import override

from runlane import AgentRuntime, SqliteStore
from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    FinishReport,
    FunctionCallDelta,
    ModelMessage,
    ModelPart,
    ModelProviderContext,
    TextDelta,
)

CONVERSATIONS = ("swallows", "blocks", "generates")


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


class _Deaf(ChatProvider):
    provider_id = "deaf"
    model_id = "deaf"

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        said = [message.text for message in messages if isinstance(message, ModelMessage)]
        yield {"swallows": _swallow, "blocks": _call, "generates": _generate}[said[-1]]()


async def _swallow() -> AsyncGenerator[ModelPart, None]:
    yield TextDelta("half")
    for _ in range(20):
        try:
            _say("stands", "swallows")
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            pass
    yield FinishReport("stop")


async def _call() -> AsyncGenerator[ModelPart, None]:
    yield FunctionCallDelta(0, id="c", name="block", arguments="{}")
    yield FinishReport("tool-calls")


async def _generate() -> AsyncGenerator[ModelPart, None]:
    try:
        yield TextDelta("half")
        _say("stands", "generates")
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.05)


def block() -> str:
    """Block a thread, whatever happens."""
    _say("stands", "blocks")
    threading.Event().wait(3600)
    return "never"


async def _keep_busy() -> None:
    while True:
        time.sleep(0.005)  # noqa: ASYNC251 - the event loop is busy
        await anyio.lowlevel.checkpoint()


async def work(path: str, backend: str, budgets: dict[str, float]) -> None:
    """Begin, and close at SIGTERM."""
    if backend == "asyncio":
        # A machine that is busy with other things is no fault of this process, and nothing to complain of.
        asyncio.get_running_loop().slow_callback_duration = math.inf
    async with anyio.create_task_group() as tasks:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async with (
                SqliteStore(path) as store,
                AgentRuntime(store, model=_Deaf(), tools=[block]) as runtime,
            ):
                for conversation_id in CONVERSATIONS:
                    await runtime.submit(conversation_id, conversation_id).admission
                tasks.start_soon(_keep_busy)
                async for _ in signals:
                    _say("closing")
                    break
                result = await runtime.close(**budgets)
            _say("closed", "settled" if result.settled else f"with {result.remaining} left")
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    given = {name: float(value) for name, value in (argument.split("=") for argument in sys.argv[3:])}
    anyio.run(work, sys.argv[1], sys.argv[2], given, backend=sys.argv[2])
