"""A process with a tool that ignores everything; started by the tests, never collected as one.

Usage: stubborn_process.py BACKEND

It says `entered` when the tool stands in its thread, waits for SIGTERM, closes, and says how that went.
"""

import signal
import sys
import threading

import anyio

from runlane import AgentRuntime, MemoryStore
from runlane.models import FinishReport, FunctionCallDelta
from runlane.testing import ScriptedModel, ScriptedStep
from runlane.tools import tool


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()


@tool
def stand() -> None:
    """Stand for ever."""
    _say("entered")
    threading.Event().wait()


async def work() -> None:
    """Call the tool, and leave when told to."""
    script: list[ScriptedStep] = [
        FunctionCallDelta(0, id="c1", name="stand", arguments="{}"),
        FinishReport("tool-calls"),
    ]
    async with MemoryStore() as store, AgentRuntime(store, model=ScriptedModel(script), tools=[stand]) as runtime:
        ticket = runtime.submit("c", "Stand.")
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                break
        _say("closed", await runtime.close(force=5))
        _say("ended", (await ticket.result).reason)


if __name__ == "__main__":
    anyio.run(work, backend=sys.argv[1])
