"""Many streams open at once, each in the middle of its answer; what a process holds for them.

Usage: python -m benches.stream_work serve
       python -m benches.stream_work runlane|bare URL COUNT

`serve` answers every request with the head of a chat completion and lets it stand there; it writes its address, and
ends with its standard input. The others open so many streams, wait until the whole head has come to each subscriber
(or has been read from each connection), and write by how many bytes they have grown.
"""

import gc
import json
import resource
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread
import httpx2

from runlane.delivery import AssistantDeltaEvent
from runlane.models.openai_chat import OpenAIChat
from runlane.runtime import AgentRuntime
from runlane.store.sqlite import SqliteStore
from runlane.testing import ReplayServer, Reply

WORDS = 50
OPENING = 20
"""Connections that are being made at a time: the server is a Python process too."""
WARM = 5


def _answer() -> tuple[bytes, int]:
    """Return a chat completion, and how much of it is sent."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m"}
    deltas: list[tuple[dict[str, str], str | None]] = [({"content": word}, None) for word in text().split(" ")]
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas]
    said = "".join(f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n" for chunk in chunks).encode()
    return said + b"data: [DONE]\n\n", len(said)


def text() -> str:
    """Return what each stream has said when it stands."""
    return " ".join(f"word{number:04}" for number in range(WORDS))


def _resident() -> int:
    """Return the bytes of this process that are in memory; their peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return pages * resource.getpagesize()


async def _serve() -> None:
    body, upto = _answer()
    reply = Reply(body, headers={"content-type": "text/event-stream"}, chunk_size=512, hang_after=upto)
    async with ReplayServer(lambda _: reply) as server:
        sys.stdout.write(server.base_url + "\n")
        sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.read)


@dataclass
class _Crowd:
    """Streams that are about to stand."""

    left: int
    opening: anyio.Semaphore
    complete: anyio.Event

    def stands(self) -> None:
        """Take note that one more stands."""
        self.opening.release()
        self.left -= 1
        if not self.left:
            self.complete.set()


async def _grow(count: int, stand: Callable[[str, _Crowd], Coroutine[object, object, None]]) -> int:
    """Open a few streams to load what is loaded once, then `count`; return the bytes that these added."""
    grown = 0
    async with anyio.create_task_group() as tasks:
        for so_many in (WARM, count):
            gc.collect()
            before, crowd = _resident(), _Crowd(so_many, anyio.Semaphore(OPENING), anyio.Event())
            for number in range(so_many):
                await crowd.opening.acquire()
                tasks.start_soon(stand, f"{so_many}-{number}", crowd)
            await crowd.complete.wait()
            gc.collect()
            grown = _resident() - before
        tasks.cancel_scope.cancel()
    return grown


async def _with_runlane(base_url: str, count: int) -> int:
    with TemporaryDirectory() as folder:
        model = OpenAIChat("m", base_url=f"{base_url}/v1", api_key="none")
        async with SqliteStore(Path(folder) / "store.db") as store, AgentRuntime(store, model=model) as runtime:

            async def stand(name: str, crowd: _Crowd) -> None:
                words = 0
                async for event in runtime.submit(name, "How is the weather?").events():
                    words += isinstance(event, AssistantDeltaEvent)
                    if words == WORDS and isinstance(event, AssistantDeltaEvent):
                        crowd.stands()
                raise RuntimeError("a stream ended before the others stood: the machine is too busy to measure on")

            return await _grow(count, stand)


async def _bare(base_url: str, count: int) -> int:
    """The HTTP client alone, as runlane sets it up."""
    upto = _answer()[1]
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=httpx2.Timeout(10.0, read=None), limits=limits, trust_env=False) as client:

        async def stand(_: str, crowd: _Crowd) -> None:
            async with client.stream("POST", f"{base_url}/v1/chat/completions", content=b"{}") as response:
                read = 0
                async for chunk in response.aiter_raw():
                    read += len(chunk)
                    if read == upto:
                        crowd.stands()

        return await _grow(count, stand)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        anyio.run(_serve)
    else:
        work = {"runlane": _with_runlane, "bare": _bare}[sys.argv[1]]
        sys.stdout.write(f"{anyio.run(work, sys.argv[2], int(sys.argv[3]))}\n")
