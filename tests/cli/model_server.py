"""A model for the commands under test: a replay server beside the test, and bodies in the wire format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from runlane.records import Snapshot
from runlane.store.sqlite import SqliteStore
from runlane.testing import ReceivedRequest, ReplayServer, Reply

_HEADERS = {"Content-Type": "text/event-stream"}


def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    """Return one event of a chat-completions stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(body)}\n\n".encode()


def spoken(*pieces: str, thought: str | None = None) -> bytes:
    """Return the body of a whole answer."""
    thinking = [] if thought is None else [chunk({"reasoning_content": thought})]
    said = [chunk({"content": piece}) for piece in pieces]
    return b"".join([*thinking, *said, chunk({}, "stop"), b"data: [DONE]\n\n"])


def answer(*pieces: str, thought: str | None = None) -> Reply:
    """Return a reply that answers with these pieces."""
    return Reply(spoken(*pieces, thought=thought), headers=_HEADERS)


def hanging(*pieces: str) -> Reply:
    """Return a reply that says these pieces and then nothing more."""
    said = b"".join(chunk({"content": piece}) for piece in pieces)
    return Reply(said + spoken(" never said"), headers=_HEADERS, hang_after=len(said))


def cut(*pieces: str) -> Reply:
    """Return a reply whose connection ends in the middle of the event after these pieces."""
    said = b"".join(chunk({"content": piece}) for piece in pieces)
    return Reply(said + spoken(" never said"), headers=_HEADERS, cut_at=len(said) + 40)


class Served:
    """A replay server that runs in a thread of its own."""

    def __init__(self, server: ReplayServer, portal: BlockingPortal) -> None:
        """Reach a server through the portal to its event loop."""
        self._server = server
        self._portal = portal

    @property
    def base_url(self) -> str:
        """Its address."""
        return self._server.base_url

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        """The requests received so far."""
        return self._server.requests

    def release(self) -> None:
        """Let one hanging reply go on."""
        self._portal.call(self._server.release)


@contextmanager
def serving(*replies: Reply) -> Iterator[Served]:
    """Serve replies, in order, while the block runs."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(ReplayServer(replies)) as server,
    ):
        yield Served(server, portal)


def asked(request: ReceivedRequest) -> list[tuple[str, str]]:
    """Return the role and the text of each message in a request."""
    body: Any = request.json()
    return [(message["role"], message["content"]) for message in body["messages"]]


def stored(path: Path, conversation: str) -> Snapshot:
    """Return what a store holds of a conversation."""

    async def load() -> Snapshot:
        async with SqliteStore(path) as store:
            return await store.load_snapshot(conversation)

    return anyio.run(load)


def flags(server: Served, store: Path) -> Sequence[str]:
    """Return the flags of a chat with a server and a store."""
    return ["--base-url", f"{server.base_url}/v1", "--model", "m", "--store", str(store)]
